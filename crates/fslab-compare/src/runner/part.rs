//! Runs several workloads at the same time on one target, each in its own directory.

use fslab_sys::block_counters::DeviceNumber;
use fslab_sys::signals::Interrupt;

use super::meeting::{Meeting, Seat};
use super::session::Session;
use crate::error::{Error, Result};
use crate::target::Target;
use crate::tree::Tree;
use crate::tree::sub_tree::SubTree;
use crate::workload::Workload;
use fslab_report::sample::Sample;

/// One workload's part of a target: a directory that is never remounted.
pub(crate) struct Part<'a> {
    whole: &'a dyn Target,
    tree: SubTree<'a>,
    template: Sample,
    interrupt: Interrupt,
    backing: Option<DeviceNumber>,
    slowed: Option<f64>,
}

impl Session<'_> {
    /// Returns a part of the target for each of several concurrent workloads. Their directories
    /// must exist.
    pub(crate) fn parts(&self, directories: &[String]) -> Result<Vec<Part<'_>>> {
        let part = |directory: &String| {
            Ok(Part {
                whole: &*self.target,
                tree: SubTree::new(self.target.tree()?, directory),
                template: self.template.clone(),
                interrupt: self.interrupt.clone(),
                backing: self.backing,
                slowed: self.slowed,
            })
        };
        directories.iter().map(part).collect()
    }
}

impl Part<'_> {
    /// Runs a workload. Before each phase it waits at the barrier `meeting`, so that the phase
    /// begins together with a phase of the other workloads.
    pub fn run(
        mut self,
        label: &str,
        workload: &dyn Workload,
        meeting: &Meeting,
    ) -> Result<Vec<Sample>> {
        let _seat = Seat(meeting);
        let (template, interrupt) = (std::mem::take(&mut self.template), self.interrupt.clone());
        let (backing, slowed) = (self.backing, self.slowed);
        let mut session = Session::new(&mut self, template, interrupt);
        session.backing = backing;
        session.slowed = slowed;
        session.meeting = Some((label, meeting));
        workload.run(&mut session).map_err(|error| named(label, error))?;
        Ok(session.samples)
    }
}

/// Adds the label of the workload to an error, if the workload itself failed.
fn named(label: &str, error: Error) -> Error {
    match error {
        Error::Interrupted => Error::Interrupted,
        missing if missing.is_missing_prerequisite() => missing,
        error => Error::Failed(format!("{label}: {error}")),
    }
}

impl Target for Part<'_> {
    fn tree(&self) -> Result<&dyn Tree> {
        Ok(&self.tree)
    }

    fn device(&self) -> Option<DeviceNumber> {
        self.whole.device()
    }

    fn daemon(&self) -> Option<u32> {
        self.whole.daemon()
    }

    fn sync_below(&self) -> Result<()> {
        self.whole.sync_below()
    }

    fn tear_down(self: Box<Self>) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}
