//! How things stand with the engine now: what somebody who watches it wants to be woken for.

use std::time::Duration;

use crate::engine::Tier;
use crate::engine::recall::queue::Class;
use crate::error::Result;

impl Tier {
    /// Name, meaning and value of each gauge. What is not known has none.
    ///
    /// # Errors
    /// What the catalogue answers.
    pub fn gauges(&self) -> Result<Vec<(&'static str, &'static str, u64)>> {
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
