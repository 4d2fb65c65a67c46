//! A request being served, and who answers it.

use std::sync::Arc;

use fslab_vfs::{Ino, Request};

use crate::decode::Incoming;
use crate::kept::Record;
use crate::reply_buffer::ReplyBuffer;
use crate::transport::Transport;

/// A request being served.
pub(crate) struct Job<'a> {
    pub incoming: Incoming<'a>,
    pub request: Request,
    pub output: &'a mut ReplyBuffer,
    /// Where somebody else may send the answer, later. `None` where it must be sent now.
    pub later: Option<&'a Arc<dyn Transport>>,
    /// Its record, on a kept mount.
    pub record: Option<&'a Record<'a>>,
}

/// The way of a request's answer, and its record.
#[derive(Clone, Copy, Default)]
pub(crate) struct Route<'a> {
    /// As [`Job::later`].
    pub later: Option<&'a Arc<dyn Transport>>,
    /// As [`Job::record`].
    pub record: Option<&'a Record<'a>>,
}

/// Who answers.
pub(crate) enum Answer {
    /// The payload is in the output.
    Now,
    /// Somebody else will, on the same transport.
    Later,
}

impl Job<'_> {
    /// The inode the request is about.
    pub fn ino(&self) -> Ino {
        Ino(self.incoming.header.nodeid)
    }
}
