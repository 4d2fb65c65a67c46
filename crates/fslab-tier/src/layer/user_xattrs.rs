//! Xattrs that show users of a mount the state of their own files and recalls. They exist only in
//! the mount, and are computed when a program reads them.
//!
//! The names begin with `user.`. So the kernel lets a program read them only if the program may
//! read the file.

use std::ffi::OsStr;

use fslab_vfs::{Attr, Credentials, Errno, FileKind, Ino, Request, Result};
use serde::{Deserialize, Serialize};

use super::TierFs;
use crate::command::waiting_event;
use crate::error::Error;
use crate::event::Event;
use crate::stored::marks::{QUEUE_NAME, STATE_NAME};

/// The maximum size of the list of recalls, in bytes. The kernel transfers xattrs of up to 64 KiB.
const QUEUE_BYTES_MAX: usize = 60 << 10;

/// The value of [`QUEUE_NAME`], as JSON.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UserQueue {
    /// The recalls for which programs of the user wait, as [`Event::Waiting`].
    pub recalls: Vec<Event>,
    /// Number of recalls for which there was no space.
    pub omitted: u64,
}

impl TierFs {
    /// Returns the value of a computed xattr, as JSON. `None` if the xattr is not computed.
    pub(super) fn computed_xattr(
        &self,
        request: &Request,
        ino: Ino,
        name: &OsStr,
    ) -> Option<Result<Vec<u8>>> {
        match name.to_str() {
            Some(STATE_NAME) => Some(self.state_of(request, ino)),
            Some(QUEUE_NAME) if ino == Ino::ROOT => Some(self.queue_of(request)),
            _ => None,
        }
    }

    /// Returns the summary of a regular file, with an empty path.
    fn state_of(&self, request: &Request, ino: Ino) -> Result<Vec<u8>> {
        let attr: Attr = self.settled(ino, || self.lower.getattr(request, ino, None))?;
        if attr.kind != FileKind::Regular {
            return Err(Errno::NODATA.into());
        }
        let mut summary = self.tier.file_summary(&attr, b"").map_err(|error| match error {
            Error::Below { source, .. } => source,
            _ => Errno::IO.into(),
        })?;
        summary.path.clear();
        as_json(&summary)
    }

    /// Returns the recalls for which programs of the calling user wait; all recalls for root.
    fn queue_of(&self, request: &Request) -> Result<Vec<u8>> {
        let uid = request.credentials.uid;
        if uid == Credentials::UNKNOWN {
            return Err(Errno::OPNOTSUPP.into());
        }
        let mut queue = UserQueue::default();
        let mut bytes = 0;
        for recall in self.tier.recalls() {
            let Some(event) = waiting_event(&self.tier, &recall, Some(uid).filter(|uid| *uid != 0))
            else {
                continue;
            };
            bytes += serde_json::to_vec(&event).map_or(QUEUE_BYTES_MAX, |text| text.len() + 1);
            match bytes <= QUEUE_BYTES_MAX {
                true => queue.recalls.push(event),
                false => queue.omitted += 1,
            }
        }
        as_json(&queue)
    }
}

fn as_json(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| {
        tracing::warn!(%error, "can't format a computed xattr");
        Errno::IO.into()
    })
}
