//! Doing what rules say, or saying what would be done: one walk, then releases in order of use.

use std::collections::{BinaryHeap, HashSet};
use std::sync::Arc;

use fslab_vfs::{FileKind, Ino, Request};

use super::facts::{bytes_wanted, facts, fullness, here_for, last_use};
use super::{Action, Policy, Watermarks};
use crate::command::{Event, State, Tell, state_of, total};
use crate::engine::{Archived, Archiver, Outcome, Place, Tier, Visit};
use crate::error::{Error, Result};
use crate::lower::Found;

/// A file whose bytes may go. The one that was used last is the greatest.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    used: (i64, u32),
    ino: u64,
    path: Vec<u8>,
    bytes: u64,
}

/// Candidates that are remembered at once; the next run finds the others.
const CANDIDATES_MAX: usize = 100_000;

/// What a run of a policy has come to.
#[derive(Default)]
struct Tally {
    looked_at: u64,
    archived: u64,
    archived_bytes: u64,
    released: u64,
    released_bytes: u64,
}

/// What a policy is done to, and what it has come to so far.
struct Run<'a> {
    tier: &'a Arc<Tier>,
    policy: Policy,
    dry_run: bool,
    /// The file system is fuller than the policy lets it be without copies.
    archives: bool,
    request: &'a Request,
    archiver: Archiver<'a>,
    tally: Tally,
    candidates: BinaryHeap<Candidate>,
    /// Candidates that could not be archived.
    failed: HashSet<Vec<u8>>,
}

/// Files that an archiver is done with, and what became of them.
type Outcomes = Vec<(Vec<u8>, Result<Archived>)>;

/// Does what a policy says, or says what it would do. Without rules, those of the tier's home.
pub(crate) fn run(
    tier: &Arc<Tier>,
    rules: Option<(&str, &str)>,
    dry_run: bool,
    request: &Request,
    tell: &mut Tell<'_>,
) -> Result<()> {
    let policy = match rules {
        Some((rules, origin)) => Policy::parse(rules, origin)?,
        None => usual(tier)?,
    };
    let (tally, candidates, failed) = (Tally::default(), BinaryHeap::new(), HashSet::new());
    let archives = match policy.watermarks {
        Some(Watermarks { premigrate, .. }) => fullness(tier)?.share() >= premigrate,
        None => true,
    };
    let archiver = tier.archiver(request, None, policy.bundled);
    let mut run =
        Run { tier, policy, dry_run, archives, request, archiver, tally, candidates, failed };
    tier.walk(b"", request, &mut |place| {
        // Whatever this is, files that wait for others have waited for it.
        run.by_archiver(tell, |archiver, told| archiver.finish_if_due(told))?;
        if place.found.attr.kind == FileKind::Regular {
            run.tally.looked_at += 1;
            run.consider(&place, tell)?;
        }
        Ok(Visit::Into)
    })?;
    // What did not fill a bundle.
    run.by_archiver(tell, |archiver, told| archiver.finish(told))?;
    run.release_some(tell)?;
    let Tally { looked_at, archived, archived_bytes, released, released_bytes } = run.tally;
    total(
        tell,
        &[
            ("files", looked_at),
            ("archived", archived),
            ("archived_bytes", archived_bytes),
            ("released", released),
            ("released_bytes", released_bytes),
        ],
    )
}

/// The policy in the tier's home.
fn usual(tier: &Tier) -> Result<Policy> {
    let path = tier.settings().policy.as_ref().ok_or_else(|| Error::Refused {
        what: "the tier has no home with a policy: name one with --file".to_owned(),
    })?;
    let rules = std::fs::read_to_string(path).map_err(|source| Error::Refused {
        what: format!("can't read the policy {}: {source}; name one with --file", path.display()),
    })?;
    Policy::parse(&rules, &path.display().to_string())
}

impl Run<'_> {
    /// Archives a file where its rule says so, and remembers it where its bytes may go.
    fn consider(&mut self, place: &Place<'_>, tell: &mut Tell<'_>) -> Result<()> {
        let action = self.policy.decide(&facts(self.tier, &self.policy, place));
        if action == Action::Keep {
            return Ok(());
        }
        let state = state_of(self.tier, place)?;
        if needs_archiving(&state) {
            if !self.archives {
                return Ok(());
            }
            self.archive(place, &state, tell)?;
        }
        if action == Action::Release && state.resident_bytes > 0 {
            self.candidates.push(candidate(place, state.resident_bytes));
            if self.candidates.len() > CANDIDATES_MAX {
                self.candidates.pop();
            }
        }
        Ok(())
    }

    fn archive(&mut self, place: &Place<'_>, state: &State, tell: &mut Tell<'_>) -> Result<()> {
        if self.dry_run {
            let archived = Archived::Now { bytes: state.bytes };
            return self.note(vec![(place.path.to_vec(), Ok(archived))], tell);
        }
        self.by_archiver(tell, |archiver, told| archiver.archive(place, told))
    }

    /// Has the archiver do something, and notes what it tells of files, whether it fails or not.
    fn by_archiver(
        &mut self,
        tell: &mut Tell<'_>,
        work: impl FnOnce(&mut Archiver<'_>, &mut Outcome<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut outcomes = Outcomes::new();
        let done = work(&mut self.archiver, &mut |path, outcome| {
            outcomes.push((path.to_vec(), outcome));
            Ok(())
        });
        self.note(outcomes, tell)?;
        done
    }

    fn note(&mut self, outcomes: Outcomes, tell: &mut Tell<'_>) -> Result<()> {
        for (path, outcome) in outcomes {
            match outcome {
                Ok(Archived::Now { bytes }) => {
                    self.tally.archived += 1;
                    self.tally.archived_bytes += bytes;
                }
                Ok(Archived::Before) => {}
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => {
                    self.failed.insert(path);
                    problem(tell, &error)?;
                }
            }
        }
        Ok(())
    }

    /// Releases candidates, those that were not used for longest first, as far as watermarks ask.
    fn release_some(&mut self, tell: &mut Tell<'_>) -> Result<()> {
        let mut wanted = bytes_wanted(self.tier, &self.policy)?;
        for candidate in std::mem::take(&mut self.candidates).into_sorted_vec() {
            if wanted == 0 {
                break;
            }
            self.request.cancellation.check().or(Err(Error::Interrupted))?;
            if self.failed.contains(&candidate.path) {
                continue;
            }
            let released =
                if self.dry_run { Ok(candidate.bytes) } else { self.release(&candidate) };
            match released {
                Ok(bytes) => {
                    self.tally.released += u64::from(bytes > 0);
                    self.tally.released_bytes += bytes;
                    wanted = wanted.saturating_sub(bytes);
                }
                Err(error) => problem(tell, &error)?,
            }
        }
        Ok(())
    }

    /// Releases a file, unless another is in its place or its bytes came back since.
    fn release(&self, candidate: &Candidate) -> Result<u64> {
        let below = || Error::below(&candidate.path);
        let found = Found::at(self.tier.lower(), &candidate.path).map_err(below())?;
        let stays =
            !self.policy.stay.is_zero() && here_for(self.tier, &found.attr) < self.policy.stay;
        if found.ino() != Ino(candidate.ino) || stays {
            return Ok(0);
        }
        Ok(self.tier.release(found.ino(), &candidate.path, 0)?.bytes)
    }
}

fn problem(tell: &mut Tell<'_>, error: &Error) -> Result<()> {
    let heard = tell(Event::Problem { what: error.to_string() });
    if heard { Ok(()) } else { Err(Error::Interrupted) }
}

fn needs_archiving(state: &State) -> bool {
    state.state == "resident" || state.changed
}

fn candidate(place: &Place<'_>, bytes: u64) -> Candidate {
    let attr = &place.found.attr;
    let used = last_use(attr);
    Candidate {
        used: (used.seconds, used.nanoseconds),
        ino: attr.ino.0,
        path: place.path.to_vec(),
        bytes,
    }
}
