//! Kept mounts (`-o keep`): a daemon records its state so that a new daemon can take over the
//! mount.
//!
//! The supervisor holds the descriptors (see [`fslab_sys::supervise`]). Shared memory (`state`)
//! contains all other state that the kernel relies on: the granted features, the open files
//! (`handles`), and a record for each non-idempotent request (`records`). If an earlier daemon may
//! have performed a request, `again` repeats it.

mod again;
mod handles;
mod records;
mod state;

use std::sync::Arc;

use fslab_vfs::{Handle, Result};

use crate::protocol::opcode::Opcode;

pub(crate) use again::Made;
pub(crate) use handles::{Found, Open, OpenHandles, Restored};
pub(crate) use records::{Before, Record, Records, Stage};
pub(crate) use state::Connection;
pub use state::{DaemonEnd, KeptState};

/// Flag that the kernel sets in the number of a request that it resends.
pub(crate) const SENT_AGAIN: u64 = 1 << 63;

/// The state of a kept mount in its daemon.
#[derive(Debug)]
pub(crate) struct Kept {
    pub state: Arc<KeptState>,
    pub handles: OpenHandles,
    records: Records,
}

impl Kept {
    /// Makes the state of a new mount, which has no earlier daemon.
    pub fn new(state: Arc<KeptState>) -> Self {
        let (handles, records) = (OpenHandles::new(&state), Records::new(&state));
        Self { state, handles, records }
    }

    /// Takes over the state of an earlier daemon, and opens its files again with `reopen`.
    pub fn taken_over(
        state: Arc<KeptState>,
        mut reopen: impl FnMut(&Open) -> Result<Handle>,
    ) -> (Self, Found) {
        let records = Records::taken_over(&state);
        let (handles, restored) =
            OpenHandles::taken_over(&state, |unique| records.was_cut_short(unique), &mut reopen);
        (Self { state, handles, records }, restored)
    }

    /// Begins the record of a request; `None` if no record is needed. The result is also `None` if
    /// there is no room for a record, which is logged.
    pub fn begin(&self, opcode: Opcode, unique: u64) -> Option<Record<'_>> {
        let is_needed = has_one_effect(opcode) || unique & SENT_AGAIN != 0;
        is_needed.then(|| self.records.begin(opcode, unique)).flatten()
    }

    /// Logs how far earlier daemons had come with a resent request, which was now served.
    pub fn log_resent(&self, opcode: Opcode, unique: u64, record: Option<&Record<'_>>) {
        if unique & SENT_AGAIN != 0 {
            let progress = record.map(Record::progress);
            let idempotent = record.map(|record| record.is_idempotent(opcode));
            let operation = opcode.name();
            tracing::info!(operation, idempotent, progress, "the kernel resent a request");
        }
    }
}

/// Whether an operation is not idempotent: performing it twice has another effect than performing
/// it once.
pub(crate) fn has_one_effect(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Symlink
            | Opcode::Mknod
            | Opcode::Mkdir
            | Opcode::Unlink
            | Opcode::Rmdir
            | Opcode::Rename
            | Opcode::Rename2
            | Opcode::Link
            | Opcode::Open
            | Opcode::Opendir
            | Opcode::Create
            | Opcode::Tmpfile
            | Opcode::Write
            | Opcode::Setxattr
            | Opcode::Removexattr
    )
}
