//! Applies an operation to every regular file at some paths.

use fslab_vfs::FileKind;

use super::Execution;
use crate::engine::{Visit, WalkEntry};
use crate::error::Result;
use crate::event::{EventSink, report_problem};

type Work<'a> = dyn FnMut(&WalkEntry<'_>, &mut EventSink<'_>) -> Result<()> + 'a;

impl Execution<'_> {
    /// Applies `work` to every regular file at some paths. Errors of single files are reported.
    pub(super) fn each_file(&mut self, paths: &[Vec<u8>], work: &mut Work<'_>) -> Result<()> {
        let Self { tier, request, tell } = self;
        for path in paths {
            tier.walk_on(path, request, &mut |place| {
                let done = place.and_then(|place| match place.found.attr.kind {
                    FileKind::Regular => work(&place, tell),
                    _ => Ok(()),
                });
                done.or_else(|error| report_problem(tell, &error))?;
                Ok(Visit::Descend)
            })?;
        }
        Ok(())
    }
}
