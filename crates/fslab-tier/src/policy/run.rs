//! Runs a policy, or reports the planned actions.
//!
//! Without watermarks there is one walk: files are released soon after they were archived. With
//! watermarks, freeing space comes before making copies. Archived files are released first, the
//! least recently used first, until enough space is free. Then copies are made, and more files are
//! released if needed.
//!
//! A run keeps in memory up to [`CANDIDATES_MAX`] candidates, the files of a bundle, the files that
//! are released next, files with several names, and files in use. If there are more candidates, the
//! tree is walked again for the next ones.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fslab_vfs::Request;

use super::candidates::{Candidate, Candidates};
use super::file_facts::{bytes_wanted, fullness, here_for};
use super::freed_space::{Freed, Measured};
use super::selection::{Chosen, Met};
use super::{Policy, Watermarks};
use crate::engine::{
    Archived, Archiver, OutcomeSink, ReleaseBatch, Released, Tier, Visit, WalkEntry,
};
use crate::error::{Error, Result, shown};
use crate::event::{Event, EventSink, go_on, report_problem, total};
use crate::lower::{Found, is_missing};
use crate::object::prefetch::Prefetched;

/// Maximum number of candidates held at once.
const CANDIDATES_MAX: usize = 100_000;

/// The results of a run.
#[derive(Default)]
struct Tally {
    /// Number of files in the largest walk.
    files: u64,
    archived: u64,
    archived_bytes: u64,
    released: u64,
    released_bytes: u64,
    /// Paths of files that are in use or being changed. The next run may be able to handle them. A
    /// set counts each file once, even if the run tries several times to release it.
    busy: HashSet<String>,
    /// Number of files of other users, which an ordinary user's tier skips.
    foreign: u64,
}

/// A run of a policy.
struct Run<'a> {
    tier: &'a Arc<Tier>,
    policy: Policy,
    dry_run: bool,
    request: &'a Request,
    tell: &'a mut EventSink<'a>,
    archiver: Archiver<'a>,
    /// Files that are being archived and are to be released afterwards, by path.
    on_their_way: HashMap<Vec<u8>, Candidate>,
    /// Files that will be released together next.
    ready: Vec<Candidate>,
    ready_batch: ReleaseBatch,
    /// The sequence number at the beginning of the run. Versions archived by this run have greater
    /// ones.
    begun: u64,
    /// Bytes of space still to be freed.
    wanted: u64,
    /// The measurement of freed space, if there are watermarks.
    freed: Option<Freed>,
    /// Whether measurements have shown that releases free no space.
    is_in_vain: bool,
    has_walked: bool,
    /// Whether an [`Error::OthersArchive`] was reported. Only the first one is reported.
    has_told_others: bool,
    tally: Tally,
}

/// The operation on each chosen file.
type Deed<'a> = dyn FnMut(&mut Run<'_>, &WalkEntry<'_>, Chosen) -> Result<()> + 'a;

/// Files that the archiver has finished, with their outcomes.
type Outcomes = Vec<(Vec<u8>, Result<Archived>)>;

/// Runs a policy, or reports the planned actions. Without `rules`, the policy in the tier's home is
/// used.
pub(crate) fn run(
    tier: &Arc<Tier>,
    rules: Option<(&str, &str)>,
    dry_run: bool,
    request: &Request,
    tell: &mut EventSink<'_>,
) -> Result<()> {
    let policy = match rules {
        Some((rules, origin)) => Policy::parse(rules, origin)?,
        None => usual(tier)?,
    };
    tier.check_copy_targets()?;
    let watermarks = policy.watermarks;
    let mut run = Run {
        tier,
        wanted: bytes_wanted(tier, &policy)?,
        begun: tier.catalogue().next_sequence(tier.surroundings().calendar.now(), 0)?,
        archiver: tier.archiver(request, None, policy.bundled),
        policy,
        dry_run,
        freed: None,
        is_in_vain: false,
        request,
        tell,
        on_their_way: HashMap::new(),
        ready: Vec::new(),
        ready_batch: ReleaseBatch::default(),
        has_walked: false,
        has_told_others: false,
        tally: Tally::default(),
    };
    match watermarks {
        None => run.archive_and_release()?,
        Some(watermarks) => run.keep_below(watermarks)?,
    }
    run.tally.tell(run.tell)
}

/// Returns the policy in the tier's home.
fn usual(tier: &Tier) -> Result<Policy> {
    let path = tier.settings().policy.as_ref().ok_or_else(|| Error::Refused {
        what: "the tier has no home with a policy; give a policy with --file".to_owned(),
    })?;
    let rules = std::fs::read_to_string(path).map_err(|source| Error::Refused {
        what: format!(
            "can't read the policy {}: {source}; give another one with --file",
            path.display()
        ),
    })?;
    Policy::parse(&rules, &path.display().to_string())
}

impl Tally {
    fn tell(&self, tell: &mut EventSink<'_>) -> Result<()> {
        total(
            tell,
            &[
                ("files", self.files),
                ("archived", self.archived),
                ("archived_bytes", self.archived_bytes),
                ("released", self.released),
                ("released_bytes", self.released_bytes),
                ("busy", self.busy.len() as u64),
                ("foreign", self.foreign),
            ],
        )
    }
}

impl Run<'_> {
    /// Archives all files that need it, and releases all files that may be released, in one walk.
    fn archive_and_release(&mut self) -> Result<()> {
        self.each_file(&mut |run, place, chosen| {
            if chosen.needs_archiving() {
                run.archive(place, chosen)
            } else if chosen.may_go() {
                run.release(chosen.candidate)
            } else {
                Ok(())
            }
        })
    }

    /// Frees space if more than `high` is used, and archives files if at least `premigrate` is
    /// used.
    fn keep_below(&mut self, watermarks: Watermarks) -> Result<()> {
        let archives = fullness(self.tier)?.share() >= watermarks.premigrate;
        self.release_by_use(&|_, _, chosen| !chosen.needs_archiving())?;
        if !archives {
            return Ok(());
        }
        self.each_file(&mut |run, place, chosen| {
            if chosen.needs_archiving() { run.archive(place, chosen) } else { Ok(()) }
        })?;
        if self.wanted == 0 {
            // Archiving may have taken hours, during which other programs may have filled the free
            // space.
            self.wanted = if self.dry_run { 0 } else { bytes_wanted(self.tier, &self.policy)? };
            return self.release_by_use(&|_, _, chosen| !chosen.needs_archiving());
        }
        // Considers only files archived by this run, because earlier ones were already released as
        // far as possible.
        self.release_by_use(&|run, place, chosen| {
            if run.dry_run { run.would_archive(place, chosen) } else { run.is_new(place) }
        })
    }

    /// Releases suitable files, the least recently used first, until enough space is free.
    fn release_by_use(
        &mut self,
        fits: &dyn Fn(&Run<'_>, &WalkEntry<'_>, &Chosen) -> bool,
    ) -> Result<()> {
        let mut candidates = Candidates::of(CANDIDATES_MAX);
        let watermarks = self.policy.watermarks.filter(|_| !self.dry_run);
        let begin = |watermarks| Freed::begin(self.tier, watermarks, self.wanted);
        self.freed = watermarks.map(begin).transpose()?;
        while self.wanted > 0 && !self.is_in_vain {
            self.each_file(&mut |run, place, chosen| {
                if chosen.may_go() && fits(run, place, &chosen) {
                    candidates.add(chosen.candidate);
                }
                Ok(())
            })?;
            let (next, has_more) = candidates.take();
            self.release_some(&next)?;
            if !has_more {
                break;
            }
        }
        Ok(())
    }

    fn release_some(&mut self, next: &[Candidate]) -> Result<()> {
        let mut rest = next;
        while !rest.is_empty() {
            if self.wanted == 0 {
                // Measures the free space, because released bytes do not always become free.
                self.measure()?;
            }
            if self.wanted == 0 || self.is_in_vain {
                return Ok(());
            }
            let (now, later) = rest.split_at(self.count_to_release(rest));
            self.release_all(now)?;
            rest = later;
        }
        self.measure()
    }

    /// Returns the number of candidates to release next: just enough to free the wanted space, or
    /// to reach the next measurement.
    fn count_to_release(&self, candidates: &[Candidate]) -> usize {
        let bytes_left = self.freed.as_ref().map_or(u64::MAX, Freed::bytes_left);
        let (mut space, enough) = (0, self.wanted.min(bytes_left));
        let is_enough = |candidate: &Candidate| {
            space += candidate.space;
            space >= enough
        };
        let most = candidates.len().min(ReleaseBatch::FILES_MAX);
        candidates[..most].iter().position(is_enough).map_or(most, |last| last + 1)
    }

    /// Measures how much space is still to be freed, and whether releases free any space.
    fn measure(&mut self) -> Result<()> {
        let Some(freed) = &mut self.freed else { return Ok(()) };
        let Some(measured) = freed.measure(self.tier)? else { return Ok(()) };
        self.wanted = measured.wanted;
        self.is_in_vain = measured.is_in_vain();
        if !self.is_in_vain {
            return Ok(());
        }
        let Measured { released, freed, .. } = measured;
        let what = format!(
            "released {released} bytes, but this freed only {freed} bytes in the lower file \
             system. This run stops releasing files, because snapshots or reflinks may share the \
             blocks, or other programs may be filling the file system"
        );
        go_on((self.tell)(Event::Problem { what }))
    }

    /// Walks the tree, and applies `deed` to each file that is to be archived or may be released.
    /// Errors of entries are reported only in the first walk.
    fn each_file(&mut self, deed: &mut Deed<'_>) -> Result<()> {
        let (tier, request, mut met) = (self.tier, self.request, Met::default());
        tier.walk_on(b"", request, &mut |place| {
            // Before each entry of any kind, bundles whose files have waited long enough are
            // archived.
            self.by_archiver(|archiver, told| archiver.finish_if_due(told))?;
            let chosen = place.and_then(|place| {
                let chosen = met.choose(tier, &self.policy, &place)?;
                Ok(chosen.map(|chosen| (place, chosen)))
            });
            match chosen {
                Ok(Some((place, chosen))) => deed(self, &place, chosen)?,
                Err(error) if !self.has_walked => self.pass_over(&error)?,
                Ok(None) | Err(_) => {}
            }
            Ok(Visit::Descend)
        })?;
        // Archives the last bundle even if it is not full.
        self.by_archiver(|archiver, told| archiver.finish(told))?;
        self.release_ready()?;
        self.has_walked = true;
        self.tally.files = self.tally.files.max(met.files);
        Ok(())
    }

    /// Archives a file, now or in a bundle. Without watermarks the file is then released, if that
    /// is allowed.
    fn archive(&mut self, place: &WalkEntry<'_>, chosen: Chosen) -> Result<()> {
        if chosen.may_go() && self.policy.watermarks.is_none() {
            self.on_their_way.insert(place.path.to_vec(), chosen.candidate);
        }
        if self.dry_run {
            let bytes = place.found.attr.size;
            let archived = self.hindrance(place).map_or(Ok(Archived::Now { bytes }), Err);
            return self.note(vec![(place.path.to_vec(), archived)]);
        }
        self.by_archiver(|archiver, told| archiver.archive(place, told))
    }

    /// Returns the reason why a file can't be archived, if it is known in advance.
    fn hindrance(&self, place: &WalkEntry<'_>) -> Option<Error> {
        let (_, may_be_written) = self.tier.openings(place.found.ino());
        if !self.tier.surroundings().marks.are_believed(&place.found.attr) {
            Some(Error::Foreign { path: shown(place.path) })
        } else if may_be_written {
            Some(Error::busy(place.path, "is open for writing"))
        } else {
            None
        }
    }

    fn would_archive(&self, place: &WalkEntry<'_>, chosen: &Chosen) -> bool {
        chosen.needs_archiving() && self.hindrance(place).is_none()
    }

    /// Returns whether a file was archived by this run; `false` if its residency can't be read.
    fn is_new(&self, place: &WalkEntry<'_>) -> bool {
        let known = self.tier.residency_of(&place.found.attr).ok().flatten();
        known.is_some_and(|known| !known.changed && known.version.sequence > self.begun)
    }

    /// Runs an operation of the archiver, and records the outcomes of files even if it fails.
    fn by_archiver(
        &mut self,
        work: impl FnOnce(&mut Archiver<'_>, &mut OutcomeSink<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut outcomes = Outcomes::new();
        let done = work(&mut self.archiver, &mut |path, outcome| {
            outcomes.push((path.to_vec(), outcome));
            Ok(())
        });
        self.note(outcomes)?;
        done
    }

    fn note(&mut self, outcomes: Outcomes) -> Result<()> {
        for (path, outcome) in outcomes {
            let candidate = self.on_their_way.remove(&path);
            match outcome {
                Err(error) => {
                    self.pass_over(&error)?;
                    continue;
                }
                Ok(Archived::Now { bytes }) => {
                    self.tally.archived += 1;
                    self.tally.archived_bytes += bytes;
                }
                Ok(Archived::Before) => {}
            }
            if let Some(candidate) = candidate {
                self.release(candidate)?;
            }
        }
        Ok(())
    }

    /// Releases a file later, together with others.
    fn release(&mut self, candidate: Candidate) -> Result<()> {
        let is_complete = self.ready_batch.add(candidate.space);
        self.ready.push(candidate);
        if is_complete { self.release_ready() } else { Ok(()) }
    }

    fn release_ready(&mut self) -> Result<()> {
        let ready = std::mem::take(&mut self.ready);
        self.ready_batch = ReleaseBatch::default();
        self.release_all(&ready)
    }

    fn release_all(&mut self, candidates: &[Candidate]) -> Result<()> {
        let (tier, policy, dry_run) = (self.tier, &self.policy, self.dry_run);
        let request = self.request;
        let mut candidates: Vec<&Candidate> = candidates.iter().collect();
        let version = |candidate: &&Candidate| {
            let found = Found::at(tier.lower(), &candidate.path).ok().filter(|_| !dry_run)?;
            tier.releasable_version(&found.attr)
        };
        let release = |candidate: &&Candidate, prefetched: &Prefetched| {
            request.cancellation.check().or(Err(Error::Interrupted))?;
            if dry_run {
                would_release(tier, candidate)
            } else {
                release_now(tier, policy, candidate, prefetched)
            }
        };
        let released = tier.release_several(&mut candidates, request, version, |_| {}, release);
        released.into_iter().try_for_each(|released| self.note_release(released))?;
        let is_due = self.freed.as_ref().is_some_and(|freed| freed.bytes_left() == 0);
        if is_due { self.measure() } else { Ok(()) }
    }

    fn note_release(&mut self, released: Result<Released>) -> Result<()> {
        match released {
            Ok(Released { bytes, freed }) => {
                self.tally.released += u64::from(bytes > 0);
                self.tally.released_bytes += freed;
                self.wanted = self.wanted.saturating_sub(freed);
                self.freed.iter_mut().for_each(|sum| sum.add(freed));
                Ok(())
            }
            Err(error) => self.pass_over(&error),
        }
    }

    /// Counts a file that can't be archived or released now; reports other errors.
    fn pass_over(&mut self, error: &Error) -> Result<()> {
        match error {
            Error::Busy { path, .. } => {
                self.tally.busy.insert(path.clone());
            }
            Error::Foreign { .. } => self.tally.foreign += 1,
            Error::OthersArchive { .. } if self.has_told_others => {}
            error => {
                self.has_told_others |= matches!(error, Error::OthersArchive { .. });
                report_problem(self.tell, error)?;
            }
        }
        Ok(())
    }
}

fn would_release(tier: &Tier, candidate: &Candidate) -> Result<Released> {
    let (is_open, _) = tier.openings(candidate.ino);
    if is_open {
        return Err(Error::busy(&candidate.path, "is in use"));
    }
    Ok(Released { bytes: candidate.space, freed: candidate.space })
}

/// Releases a file, unless it was removed, replaced or recalled since it was selected.
fn release_now(
    tier: &Arc<Tier>,
    policy: &Policy,
    candidate: &Candidate,
    prefetched: &Prefetched,
) -> Result<Released> {
    let found = match Found::at(tier.lower(), &candidate.path) {
        Err(error) if is_missing(&error) => return Ok(Released::default()),
        found => found.map_err(Error::below(&candidate.path))?,
    };
    let stays = !policy.stay.is_zero() && here_for(tier, &found.attr) < policy.stay;
    // The file may have been pinned since it was selected.
    if found.ino() != candidate.ino || stays || tier.is_pinned(&found.attr) {
        return Ok(Released::default());
    }
    tier.release_prefetched(found.ino(), &candidate.path, 0, prefetched)
}
