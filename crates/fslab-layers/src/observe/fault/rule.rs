//! One rule of a program: which calls it is about, which of those it strikes, and what it does.
//!
//! Invariant: whether a rule strikes its n-th call depends on the seed, the rule's place in the
//! program and n, and on nothing else: neither on other rules nor on time.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fslab_vfs::Errno;
use globset::GlobMatcher;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::observe::operation::{Operation, Operations};

/// A rule, and how far it has come.
#[derive(Debug)]
pub(super) struct Rule {
    pub line: usize,
    pub operations: Operations,
    pub pattern: Option<Pattern>,
    pub condition: Condition,
    pub action: Action,
    pub seen: AtomicU64,
    pub struck: AtomicU64,
    /// Of [`Action::Full`]: bytes that may still be taken.
    pub room: AtomicU64,
}

/// Which paths a rule is about.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub glob: GlobMatcher,
    /// Whether the pattern begins with `/`: otherwise it is about the last name only.
    pub whole_path: bool,
}

/// Which of the calls it is about a rule strikes; all conditions must hold.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    /// The calls in this range, counted from 1.
    pub nth: RangeInclusive<u64>,
    /// Every so many calls.
    pub every: u64,
    /// With this probability, from 0 to 1.
    pub chance: f64,
    /// So often at most.
    pub times: u64,
}

impl Default for Condition {
    fn default() -> Self {
        Self { nth: 1..=u64::MAX, every: 1, chance: 1.0, times: u64::MAX }
    }
}

/// What a rule does to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Fails without doing anything.
    Error(Errno),
    /// Is done, and answers an error all the same.
    Late(Errno),
    /// Answers success without doing anything.
    Skip,
    /// Waits first, for a time drawn from the range.
    Delay(Duration, Duration),
    /// Moves at most so many bytes.
    Short(u64),
    /// Flips one bit in each of so many bytes, at drawn places.
    Flip(u64),
    /// Flips the lowest bit of the byte at this offset of the file.
    FlipAt(u64),
    /// Takes so many bytes in all, then answers that the disk is full.
    Full(u64),
}

impl Action {
    /// The operations that it can be done to.
    pub fn fits(&self, operation: Operation) -> bool {
        use Operation::{
            CopyFileRange, Create, Fallocate, FileattrSet, Flush, Fsync, Fsyncdir, Getxattr, Link,
            Mkdir, Mknod, Read, Removexattr, Rename, Rmdir, Setxattr, Symlink, Syncfs, Tmpfile,
            Unlink, Write,
        };
        match self {
            Self::Error(_) | Self::Late(_) | Self::Delay(..) => true,
            Self::Skip => matches!(
                operation,
                Write
                    | Fsync
                    | Fsyncdir
                    | Syncfs
                    | Flush
                    | Unlink
                    | Rmdir
                    | Rename
                    | Setxattr
                    | Removexattr
                    | FileattrSet
                    | Fallocate
            ),
            Self::Short(_) => matches!(operation, Read | Write | CopyFileRange),
            Self::Flip(_) => matches!(operation, Read | Write | Getxattr | Setxattr),
            Self::FlipAt(_) => matches!(operation, Read | Write),
            Self::Full(_) => matches!(
                operation,
                Write
                    | Fallocate
                    | CopyFileRange
                    | Mknod
                    | Mkdir
                    | Symlink
                    | Link
                    | Create
                    | Tmpfile
                    | Rename
                    | Setxattr
            ),
        }
    }
}

impl Rule {
    /// Whether the rule is about one of these paths; without a pattern it is about all calls.
    pub fn is_about(&self, paths: impl FnOnce() -> Vec<Vec<u8>>) -> bool {
        let Some(pattern) = &self.pattern else { return true };
        paths().iter().any(|path| pattern.matches(path))
    }

    /// Counts a call; where the rule strikes it, answers what draws are made from. `place` is the
    /// rule's place in its program.
    pub fn strikes(&self, seed: u64, place: usize) -> Option<Pcg64Mcg> {
        let number = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        let Condition { nth, every, chance, times } = &self.condition;
        // A multiplier spreads the calls of a rule, and rules, over the seeds of the generator.
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (place as u64) << 48;
        let mut draws = Pcg64Mcg::seed_from_u64(seed ^ spread);
        let chosen = nth.contains(&number) && number.is_multiple_of(*every);
        let drawn = *chance >= 1.0 || draws.random_bool(*chance);
        let may = |struck: u64| (struck < *times).then(|| struck + 1);
        let strikes = chosen
            && drawn
            && self.struck.fetch_update(Ordering::Relaxed, Ordering::Relaxed, may).is_ok();
        strikes.then_some(draws)
    }

    /// Takes up to `wanted` bytes of the room that is left; `None` where there is none at all.
    pub fn take_room(&self, wanted: u64) -> Option<u64> {
        let mut taken = 0;
        let take = |room: u64| {
            taken = wanted.min(room);
            (room > 0).then(|| room - taken)
        };
        self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok().then_some(taken)
    }

    /// Gives back room that was not used.
    pub fn give_room(&self, bytes: u64) {
        self.room.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Pattern {
    fn matches(&self, path: &[u8]) -> bool {
        use std::os::unix::ffi::OsStrExt;
        let last = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let subject = if self.whole_path { path } else { &path[last..] };
        self.glob.is_match(std::ffi::OsStr::from_bytes(subject))
    }
}
