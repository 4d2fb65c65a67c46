//! Archiving: copies files to archives, separately or bundled.

use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use crate::engine::Settings;
use crate::environment::Environment;
use crate::id::Id;
use crate::rate_limit::RateLimit;

pub(super) mod archiver;
pub(super) mod archiving;
mod basis;
pub(super) mod bundling;
pub(super) mod failover;
mod marking;
pub(super) mod repacking;
pub(super) mod sequences;
mod uploads;

/// State of archiving that all files share.
pub(super) struct Outbound {
    limit: Option<RateLimit>,
    failed: failover::FailedArchives,
    /// The target archives of uploads in progress. An archive is listed once for each upload.
    uploads: Mutex<Vec<Id>>,
    sequences: sequences::Sequences,
    /// Held during a sync of the tree.
    pub(super) tree_sync: Mutex<()>,
    /// Whether the files of a bundle are synced one by one, because a sync of the tree has failed.
    pub(super) syncs_one_by_one: AtomicBool,
    /// The sequence number that was drawn when the engine started. Versions archived by this engine
    /// have greater numbers; earlier versions do not.
    pub(super) first_sequence: u64,
}

impl Outbound {
    pub(super) fn new(settings: &Settings, around: &Environment, first_sequence: u64) -> Self {
        Self {
            limit: RateLimit::new(settings.archive_rate, &around.clock),
            failed: failover::FailedArchives::default(),
            uploads: Mutex::default(),
            sequences: sequences::Sequences::default(),
            tree_sync: Mutex::default(),
            syncs_one_by_one: AtomicBool::default(),
            first_sequence,
        }
    }

    /// Returns whether a file is being archived to an archive.
    pub(super) fn has_upload_to(&self, archive: Id) -> bool {
        self.uploads.lock().contains(&archive)
    }
}
