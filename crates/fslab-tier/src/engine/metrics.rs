//! Counters and gauges.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fslab_vfs::Result;

use crate::engine::Tier;
use crate::engine::recall::queue::Class;
use crate::stored::BLOCK_BYTES;

/// Counters that only ever rise.
#[derive(Debug, Default)]
pub struct Counters {
    recalled_blocks: AtomicU64,
    failed_recalls: AtomicU64,
    archived_files: AtomicU64,
    archived_bytes: AtomicU64,
    bundles: AtomicU64,
    repacked_bundles: AtomicU64,
    released_bytes: AtomicU64,
    refused_recalls: AtomicU64,
    expired_objects: AtomicU64,
    rounds: AtomicU64,
    round_problems: AtomicU64,
}

impl Counters {
    pub(super) fn recalled(&self, outcome: &Result<()>) {
        let counter = if outcome.is_ok() { &self.recalled_blocks } else { &self.failed_recalls };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn archived(&self, bytes: u64) {
        self.archived_files.fetch_add(1, Ordering::Relaxed);
        self.archived_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn bundled(&self) {
        self.bundles.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn repacked(&self, bundles: u64) {
        self.repacked_bundles.fetch_add(bundles, Ordering::Relaxed);
    }

    pub(super) fn released(&self, bytes: u64) {
        self.released_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refused_recalls.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn expired(&self, objects: u64) {
        self.expired_objects.fetch_add(objects, Ordering::Relaxed);
    }

    pub(crate) fn round(&self, problems: u64) {
        self.round_problems.fetch_add(problems, Ordering::Relaxed);
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }
}

impl Tier {
    /// Name, meaning and value of each counter.
    #[must_use]
    pub fn counts(&self) -> Vec<(&'static str, &'static str, u64)> {
        let counted = &self.counters;
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let recalled = value(&counted.recalled_blocks) * BLOCK_BYTES;
        vec![
            ("tier_recalled_bytes", "bytes brought back, in whole blocks", recalled),
            ("tier_failed_recalls", "blocks that no archive gave", value(&counted.failed_recalls)),
            (
                "tier_refused_recalls",
                "reads and writes of programs that do not recall",
                value(&counted.refused_recalls),
            ),
            ("tier_archived_files", "files copied to archives", value(&counted.archived_files)),
            ("tier_archived_bytes", "bytes of these", value(&counted.archived_bytes)),
            ("tier_bundles", "bundles of small files among these", value(&counted.bundles)),
            (
                "tier_repacked_bundles",
                "bundles of which what is needed went into new ones",
                value(&counted.repacked_bundles),
            ),
            ("tier_released_bytes", "bytes of space freed", value(&counted.released_bytes)),
            (
                "tier_expired_objects",
                "replaced and removed versions that were kept for long enough and are gone",
                value(&counted.expired_objects),
            ),
            ("tier_rounds", "times the mount did what the policy says", value(&counted.rounds)),
            ("tier_round_problems", "what failed of that", value(&counted.round_problems)),
        ]
    }

    /// Name, meaning and value of each gauge. What is not known has none.
    ///
    /// # Errors
    /// What the catalogue answers.
    pub fn gauges(&self) -> crate::Result<Vec<(&'static str, &'static str, u64)>> {
        let recalls = self.recalls();
        let pending = recalls.len() as u64;
        let now_ns = self.around.clock.now_ns();
        let waits = recalls.iter().filter(|recall| recall.class() == Class::Waiting);
        let longest = waits.map(|recall| now_ns.saturating_sub(recall.asked_ns)).max().unwrap_or(0);
        let longest = Duration::from_nanos(longest).as_secs();
        let mut gauges = vec![
            ("tier_pending_recalls", "blocks that were asked for and are not here", pending),
            ("tier_longest_wait_seconds", "how long who waits longest has waited", longest),
        ];
        if let Some(at) = self.catalogue.tree_archived_at()? {
            let age = self.around.calendar.now().seconds.saturating_sub(at);
            let what = "since the names of the tree went to archives last";
            gauges.push(("tier_tree_age_seconds", what, age.try_into().unwrap_or(0)));
        }
        Ok(gauges)
    }
}
