//! The uploads of an archiving run: a bundle of small files, or one file.

use std::sync::Arc;

use fslab_vfs::Ino;

use crate::catalogue::ObjectRow;
use crate::engine::Tier;
use crate::engine::metrics::Counter;
use crate::engine::outbound::archiving::{Archived, Job};
use crate::engine::outbound::bundling::Contents;
use crate::error::{Error, Result, shown};
use crate::rate_limit::Pace;

/// A file in a bundle.
pub(super) struct Gathered {
    pub(super) job: Job,
    pub(super) contents: Contents,
}

/// The outcomes of an upload.
pub(super) struct Outcomes {
    pub(super) files: Vec<FileOutcome>,
    /// The result of recording the archived files in the catalogue.
    pub(super) recorded: Result<()>,
}

/// The outcome for one file of an upload.
pub(super) struct FileOutcome {
    pub(super) ino: Ino,
    pub(super) path: Vec<u8>,
    pub(super) outcome: Result<Archived>,
}

impl FileOutcome {
    /// Ends a job.
    fn of(job: Job, outcome: Result<Archived>) -> Self {
        Self { ino: job.file().ino(), path: job.path.clone(), outcome }
    }
}

impl Tier {
    /// Archives a file in its own container.
    pub(super) fn upload_alone(&self, job: Job, pace: Pace<'_>) -> Outcomes {
        // The file may have changed while it waited for other uploads.
        let outcome = self.unchanged(&job).map(drop).and_then(|()| self.copy_out(&job, pace));
        Outcomes { files: vec![FileOutcome::of(job, outcome)], recorded: Ok(()) }
    }

    /// Archives files as a bundle.
    pub(super) fn upload_bundle(
        self: &Arc<Self>,
        gathered: Vec<Gathered>,
        pace: Pace<'_>,
    ) -> Outcomes {
        let (outcomes, recorded) = match self.ship(&gathered, pace) {
            Ok(shipped) => shipped,
            Err(error) => (all_failed(&gathered, error), Ok(())),
        };
        let files = gathered.into_iter().zip(outcomes);
        let files = files.map(|(file, outcome)| FileOutcome::of(file.job, outcome)).collect();
        Outcomes { files, recorded }
    }

    /// Archives files as a bundle. Returns the outcome of each, and the result of recording them.
    fn ship(
        &self,
        gathered: &[Gathered],
        pace: Pace<'_>,
    ) -> Result<(Vec<Result<Archived>>, Result<()>)> {
        let before = gathered.iter().map(|gathered| gathered.job.sequence_before()).max();
        let sequence = self.reserve_sequence(before.unwrap_or(0))?;
        let rows = self.with_copy_targets(|archives| {
            let container = self.around.identities.make();
            let row = |gathered: &Gathered| {
                self.pending_row(&gathered.job, container, sequence.number, archives)
            };
            let rows = gathered.iter().map(row).collect();
            let contents = gathered.iter().map(|gathered| &gathered.contents);
            self.put_bundle(rows, contents, archives, pace)
        })?;
        let archived: Vec<_> = gathered.iter().map(|one| &one.job).zip(&rows).collect();
        let marked = self.mark_all(&archived);
        let settled = self.settle_bundle(gathered, rows, &marked);
        self.counters.add(Counter::Bundles, 1);
        let outcome = |(gathered, marked): (&Gathered, Result<()>)| {
            marked.map(|()| {
                self.note_archived(gathered.job.attr.size);
                Archived::Now { bytes: gathered.job.attr.size }
            })
        };
        let outcomes = gathered.iter().zip(marked).map(outcome).collect();
        Ok((outcomes, settled))
    }

    /// Records an object as live if its file refers to it. Deletes the objects that no file refers
    /// to, and the bundle if no object is left. If it is unknown whether a file refers to an
    /// object, the object remains pending.
    fn settle_bundle(
        &self,
        gathered: &[Gathered],
        rows: Vec<ObjectRow>,
        marked: &[Result<()>],
    ) -> Result<()> {
        let (mut live, mut dead) = (Vec::new(), Vec::new());
        for ((Gathered { job, .. }, row), marked) in gathered.iter().zip(rows).zip(marked) {
            if marked.is_ok() {
                live.push((row, job.object_before()));
            } else if !self.may_name(job.file().ino(), row.version.object) {
                dead.push(row);
            }
        }
        self.catalogue.settle(&live, self.around.calendar.now())?;
        self.delete_rows(&dead).map(drop)
    }
}

/// Returns the outcomes if the whole bundle failed before any file was archived. Only the first
/// one includes the cause.
fn all_failed(gathered: &[Gathered], error: Error) -> Vec<Result<Archived>> {
    let why = "was in a bundle that could not be archived";
    let mut error = Some(error);
    let outcome = |gathered: &Gathered| {
        let path = shown(&gathered.job.path);
        Err(error.take().unwrap_or(Error::NotNow { path, why }))
    };
    gathered.iter().map(outcome).collect()
}
