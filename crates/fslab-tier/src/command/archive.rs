//! Archiving files on a user's command.

use super::Execution;
use crate::engine::Archived;
use crate::error::{Error, Result};
use crate::event::{EventSink, report_done, report_problem};
use crate::rate_limit::RateLimit;

impl Execution<'_> {
    /// Archives files. Small files are bundled, and reported once their bundle is archived.
    pub(super) fn archive(
        &mut self,
        paths: &[Vec<u8>],
        limit: Option<RateLimit>,
        bundled: Option<u64>,
    ) -> Result<()> {
        self.tier.check_copy_targets()?;
        let mut archiver = self.tier.archiver(self.request, limit, bundled);
        let walked = self.each_file(paths, &mut |place, tell| {
            archiver.archive(place, &mut |path, outcome| tell_archived(tell, path, outcome))
        });
        if !matches!(walked, Err(Error::Interrupted)) {
            archiver.finish(&mut |path, outcome| tell_archived(self.tell, path, outcome))?;
        }
        walked
    }
}

fn tell_archived(tell: &mut EventSink<'_>, path: &[u8], outcome: Result<Archived>) -> Result<()> {
    match outcome {
        Ok(Archived::Now { bytes }) => report_done(tell, "archived", path, bytes),
        Ok(Archived::Before) => Ok(()),
        Err(error) => report_problem(tell, &error),
    }
}
