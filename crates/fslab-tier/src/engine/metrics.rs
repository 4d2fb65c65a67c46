//! Counters and gauges of the engine, for monitoring.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::engine::Tier;
use crate::engine::recall::queue::Class;

/// The events that are counted from the start of the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counter {
    RecalledBytes,
    FailedRecalls,
    UnstoredBytes,
    RefusedRecalls,
    ArchivedFiles,
    ArchivedBytes,
    Bundles,
    RepackedBundles,
    ReleasedBytes,
    ExpiredObjects,
    Rounds,
    RoundProblems,
}

/// Name and meaning of each [`Counter`], in their order.
const COUNTERS: [(&str, &str); 12] = [
    ("tier_recalled_bytes", "bytes recalled from archives, in whole blocks"),
    ("tier_failed_recalls", "blocks whose recall failed"),
    ("tier_unstored_bytes", "bytes recalled into memory only, because the disk was full"),
    ("tier_refused_recalls", "reads and writes refused because the program is on the deny list"),
    ("tier_archived_files", "files copied to archives"),
    ("tier_archived_bytes", "bytes of the files copied to archives"),
    ("tier_bundles", "archived bundles of small files"),
    ("tier_repacked_bundles", "bundles whose live members were copied into new bundles"),
    ("tier_released_bytes", "bytes of disk space freed by releases"),
    ("tier_expired_objects", "versions that were deleted because their retention time had passed"),
    ("tier_rounds", "maintenance rounds that the mount has run"),
    ("tier_round_problems", "problems in maintenance rounds"),
];

/// The values of the counters, which never decrease.
#[derive(Debug, Default)]
pub(crate) struct Counters([AtomicU64; COUNTERS.len()]);

impl Counters {
    pub(crate) fn add(&self, counter: Counter, count: u64) {
        self.0[counter as usize].fetch_add(count, Ordering::Relaxed);
    }
}

impl Tier {
    /// Returns name, meaning and value of each counter.
    #[must_use]
    pub fn counts(&self) -> Vec<(&'static str, &'static str, u64)> {
        let values = self.counters.0.iter().map(|value| value.load(Ordering::Relaxed));
        COUNTERS.iter().zip(values).map(|((name, help), value)| (*name, *help, value)).collect()
    }

    /// Returns name, meaning and value of each gauge. Gauges without a known value are skipped.
    ///
    /// # Errors
    /// Errors of the catalogue.
    pub fn gauges(&self) -> crate::Result<Vec<(&'static str, &'static str, u64)>> {
        let recalls = self.recalls();
        let pending = recalls.len() as u64;
        let now_ns = self.around.clock.now_ns();
        let waits = recalls.iter().filter(|recall| recall.class() == Class::Waiting);
        let longest = waits.map(|recall| now_ns.saturating_sub(recall.asked_ns)).max().unwrap_or(0);
        let longest = Duration::from_nanos(longest).as_secs();
        let mut gauges = vec![
            ("tier_pending_recalls", "blocks that are waiting for a recall", pending),
            ("tier_longest_wait_seconds", "longest current wait for a recall", longest),
        ];
        if let Some(at) = self.catalogue.tree_archived_at()? {
            let age = self.around.calendar.now().seconds.saturating_sub(at);
            let what = "time since the names in the tree were last archived";
            gauges.push(("tier_tree_age_seconds", what, age.try_into().unwrap_or(0)));
        }
        Ok(gauges)
    }
}
