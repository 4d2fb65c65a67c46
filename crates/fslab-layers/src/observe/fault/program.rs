//! All rules of a script, and their effect on one call.
//!
//! Every rule counts every call it matches, regardless of the effect of other rules. If several
//! rules apply to a call, their effects are combined: the delays add up, the smallest length
//! applies, and the first error is returned.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fslab_vfs::{Call, Errno, FallocateMode};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use crate::error::{Error, Result};
use crate::observe::operation::{Operation, Operations};

use super::rule::{Action, Rule};
use super::script;

/// A program of faults: its rules with their counters, and the seed for random choices.
#[derive(Debug, Default)]
pub struct Program {
    rules: Vec<Rule>,
    watched: Operations,
    seed: u64,
}

/// The counters of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleCount {
    /// The number of the rule's line in its script, counted from 1.
    pub line: usize,
    /// Number of matching calls.
    pub seen: u64,
    /// Number of calls on which its action was performed.
    pub struck: u64,
}

/// The transfer that a call requests, before the call is performed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    operation: Operation,
    /// Number of bytes that it would transfer or reserve.
    pub length: u64,
    /// Whether the call may transfer fewer bytes.
    divisible: bool,
}

impl Transfer {
    pub fn of(call: &Call<'_>) -> Self {
        let (length, divisible) = match *call {
            Call::Read { size, .. } => (size as u64, true),
            Call::Write { data, .. } => (data.len() as u64, true),
            Call::CopyFileRange { length, .. } => (length, true),
            Call::Fallocate { length, mode, .. } => {
                let frees = FallocateMode::PUNCH_HOLE | FallocateMode::COLLAPSE_RANGE;
                (if mode.intersects(frees) { 0 } else { length }, false)
            }
            _ => (0, false),
        };
        Self { operation: call.operation(), length, divisible }
    }
}

/// The combined effect of the rules on a call.
#[derive(Debug)]
pub(super) struct Verdict {
    pub delay: Duration,
    pub error: Option<Errno>,
    pub late: Option<Errno>,
    pub skip: bool,
    /// Maximum number of bytes to transfer.
    pub limit: u64,
    pub flips: Vec<Flip>,
    /// The `full` rules whose space this call has reserved: the rule's index and the number of
    /// reserved bytes.
    charged: Vec<(usize, u64)>,
    program: Arc<Program>,
}

/// Bits to flip.
#[derive(Debug)]
pub(super) enum Flip {
    /// One random bit in each of this many bytes.
    Drawn(u64, Box<Pcg64Mcg>),
    /// The lowest bit of the byte at this offset of the file.
    At(u64),
}

impl Program {
    /// Parses a script with one rule per line; `origin` identifies it in errors.
    ///
    /// # Errors
    /// The error contains the first invalid line.
    pub fn parse(origin: &str, text: &str, seed: u64) -> Result<Self> {
        let mut program = Self { seed, ..Self::default() };
        program.append(origin, text.lines())?;
        Ok(program)
    }

    /// Appends rules to the existing ones.
    pub(super) fn append<'a>(
        &mut self,
        origin: &str,
        lines: impl Iterator<Item = &'a str>,
    ) -> Result<()> {
        for (index, text) in lines.enumerate() {
            let line = index + 1;
            let rule = script::parse_line(text, line).map_err(|source| Error::Line {
                origin: origin.to_owned(),
                line,
                source: Box::new(source),
            })?;
            self.rules.extend(rule);
        }
        self.watched = self.rules.iter().flat_map(|rule| &rule.operations).copied().collect();
        Ok(())
    }

    pub(super) fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Whether any rule matches an operation.
    #[must_use]
    pub fn watches(&self, operation: Operation) -> bool {
        self.watched.contains(&operation)
    }

    /// The counters of all rules so far.
    #[must_use]
    pub fn counts(&self) -> Vec<RuleCount> {
        let count = |rule: &Rule| RuleCount {
            line: rule.line,
            seen: rule.seen.load(Ordering::Relaxed),
            struck: rule.struck.load(Ordering::Relaxed),
        };
        self.rules.iter().map(count).collect()
    }

    /// Counts a call and returns the effect of the rules on it. `paths` returns the paths in the
    /// call.
    pub(super) fn judge(
        self: &Arc<Self>,
        call: Transfer,
        paths: &dyn Fn() -> Vec<Vec<u8>>,
    ) -> Verdict {
        let mut verdict = Verdict::harmless(Arc::clone(self));
        for (place, rule) in self.rules.iter().enumerate() {
            if rule.operations.contains(&call.operation)
                && rule.is_about(paths)
                && let Some(draws) = rule.strikes(self.seed, place)
            {
                verdict.add(place, rule, call, draws);
            }
        }
        verdict
    }
}

impl Verdict {
    fn harmless(program: Arc<Program>) -> Self {
        Self {
            delay: Duration::ZERO,
            error: None,
            late: None,
            skip: false,
            limit: u64::MAX,
            flips: Vec::new(),
            charged: Vec::new(),
            program,
        }
    }

    fn add(&mut self, place: usize, rule: &Rule, call: Transfer, mut draws: Pcg64Mcg) {
        match rule.action {
            Action::Error(errno) => self.fail(errno),
            Action::Late(errno) => self.late = self.late.or(Some(errno)),
            Action::Skip => self.skip = true,
            Action::Delay(least, most) => self.delay += draws.random_range(least..=most),
            Action::Short(bytes) => self.limit = self.limit.min(bytes),
            Action::Flip(count) => self.flips.push(Flip::Drawn(count, Box::new(draws))),
            Action::FlipAt(offset) => self.flips.push(Flip::At(offset)),
            Action::Full(_) => self.charge(place, rule, call),
        }
    }

    fn fail(&mut self, errno: Errno) {
        self.error = self.error.or(Some(errno));
    }

    fn charge(&mut self, place: usize, rule: &Rule, call: Transfer) {
        let wanted = call.length.min(self.limit);
        match rule.take_room(wanted) {
            None => self.fail(Errno::NOSPC),
            Some(taken) => {
                self.charged.push((place, taken));
                if taken < wanted && call.divisible {
                    self.limit = taken;
                } else if taken < wanted {
                    self.fail(Errno::NOSPC);
                }
            }
        }
    }

    /// Records how many bytes were transferred. Each `full` rule gets back the bytes that the call
    /// reserved but did not use.
    pub fn settle(&self, used: u64) {
        for (place, taken) in &self.charged {
            if let Some(rule) = self.program.rules.get(*place) {
                rule.give_room(taken.saturating_sub(used));
            }
        }
    }

    /// Returns the length of a transfer after the rules have limited it.
    pub fn limited(&self, length: usize) -> usize {
        usize::try_from(self.limit).map_or(length, |limit| limit.min(length))
    }

    /// Returns the data to store: the original, or a copy with flipped bits.
    pub fn spoiled<'a>(&mut self, offset: u64, data: &'a [u8]) -> Cow<'a, [u8]> {
        if self.flips.is_empty() {
            return Cow::Borrowed(data);
        }
        let mut copy = data.to_vec();
        self.spoil(offset, &mut copy);
        Cow::Owned(copy)
    }

    /// Flips the chosen bits in bytes at an offset of a file.
    pub fn spoil(&mut self, offset: u64, bytes: &mut [u8]) {
        for flip in &mut self.flips {
            match flip {
                Flip::Drawn(count, draws) => flip_drawn(bytes, *count, draws),
                Flip::At(at) => {
                    let place = at.checked_sub(offset).and_then(|at| usize::try_from(at).ok());
                    if let Some(byte) = place.and_then(|place| bytes.get_mut(place)) {
                        *byte ^= 1;
                    }
                }
            }
        }
    }
}

/// Flips one bit in each of `count` different bytes, or in all bytes if there are fewer.
fn flip_drawn(bytes: &mut [u8], count: u64, draws: &mut Pcg64Mcg) {
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(bytes.len());
    for place in rand::seq::index::sample(draws, bytes.len(), count) {
        bytes[place] ^= 1 << draws.random_range(0..8);
    }
}
