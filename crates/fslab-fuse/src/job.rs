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
    /// The transport for a reply sent later by another thread. `None` if it must be sent now.
    pub later: Option<&'a Arc<dyn Transport>>,
    /// Its record, on a kept mount.
    pub record: Option<&'a Record<'a>>,
}

/// How a request is answered, and its record.
#[derive(Clone, Copy, Default)]
pub(crate) struct Route<'a> {
    /// As [`Job::later`].
    pub later: Option<&'a Arc<dyn Transport>>,
    /// As [`Job::record`].
    pub record: Option<&'a Record<'a>>,
    /// The offer to perform the request again.
    pub deferral: Option<&'a Deferral>,
}

/// When the reply is sent.
pub(crate) enum Answer {
    /// Now; the payload is in the output.
    Now,
    /// Later by another thread, on the same transport.
    Later,
    /// After the request was performed again.
    Deferred,
}

impl Job<'_> {
    /// The inode of the request.
    pub fn ino(&self) -> Ino {
        Ino(self.incoming.header.nodeid)
    }
}
