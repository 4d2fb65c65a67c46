//! A request being served, and how its reply is sent.

use std::sync::Arc;

use fslab_vfs::{Deferral, Ino, Request};

use crate::decode::Incoming;
use crate::kept::Record;
use crate::reply_buffer::ReplyBuffer;
use crate::transport::Transport;

/// A request being served.
pub(crate) struct Job<'a> {
    pub incoming: Incoming<'a>,
    pub request: Request,
    pub output: &'a mut ReplyBuffer,
    /// The transport for a reply sent later by another thread. `None` if this thread must reply.
    pub later: Option<&'a Arc<dyn Transport>>,
    /// The record of the request, on a kept mount (`-o keep`).
    pub record: Option<&'a Record<'a>>,
}

/// The possible ways to answer a request, and its record.
#[derive(Clone, Copy, Default)]
pub(crate) struct Route<'a> {
    /// See [`Job::later`].
    pub later: Option<&'a Arc<dyn Transport>>,
    /// See [`Job::record`].
    pub record: Option<&'a Record<'a>>,
    /// The offer to defer the request, if there is one.
    pub deferral: Option<&'a Deferral>,
}

/// When the reply is sent.
pub(crate) enum Answer {
    /// Now; the payload is in the output.
    Now,
    /// Later by another thread, on the same transport.
    Later,
    /// Later, after the request was deferred and performed again.
    Deferred,
}

impl Job<'_> {
    /// The inode of the request.
    pub fn ino(&self) -> Ino {
        Ino(self.incoming.header.nodeid)
    }
}
