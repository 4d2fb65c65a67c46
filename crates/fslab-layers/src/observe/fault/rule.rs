//! One rule of a program: the calls it matches, the conditions for performing its action, and the
//! action.
//!
//! Invariant: whether a rule is applied to its n-th matching call depends only on the seed, the
//! rule's index in the program and n. Other rules and time have no effect.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fslab_vfs::Errno;
use globset::GlobMatcher;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::observe::operation::{Operation, Operations};

/// A rule and its counters.
#[derive(Debug)]
pub(super) struct Rule {
    pub line: usize,
    pub operations: Operations,
    pub pattern: Option<Pattern>,
    pub condition: Condition,
    pub action: Action,
    pub seen: AtomicU64,
    pub struck: AtomicU64,
    /// For [`Action::Full`]: number of bytes that may still be stored.
    pub room: AtomicU64,
}

/// The paths that a rule matches.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub glob: GlobMatcher,
    /// Whether the pattern begins with `/`. Otherwise it is matched against the last name only.
    pub whole_path: bool,
}

/// The conditions for applying a rule to a matching call. All of them must hold.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    /// The call's number is in this range, counted from 1.
    pub nth: RangeInclusive<u64>,
    /// The call's number is a multiple of this.
    pub every: u64,
    /// A random choice with this probability, from 0 to 1, selects the call.
    pub chance: f64,
    /// The rule was applied to fewer calls than this.
    pub times: u64,
}

impl Default for Condition {
    fn default() -> Self {
        Self { nth: 1..=u64::MAX, every: 1, chance: 1.0, times: u64::MAX }
    }
}

/// The action of a rule on a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Fails without performing the call.
    Error(Errno),
    /// Performs the call, but returns an error.
    Late(Errno),
    /// Returns success without performing the call.
    Skip,
    /// Waits first, for a random time from the range.
    Delay(Duration, Duration),
    /// Transfers at most this many bytes.
    Short(u64),
    /// Flips one bit in each of this many bytes, at random offsets.
    Flip(u64),
    /// Flips the lowest bit of the byte at this offset of the file.
    FlipAt(u64),
    /// Accepts this many bytes in total, then fails with `ENOSPC`.
    Full(u64),
}

impl Action {
    /// Whether the action applies to an operation.
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
    /// Whether the rule matches one of these paths; without a pattern it matches all calls.
    pub fn is_about(&self, paths: impl FnOnce() -> Vec<Vec<u8>>) -> bool {
        let Some(pattern) = &self.pattern else { return true };
        paths().iter().any(|path| pattern.matches(path))
    }

    /// Counts a call. If the rule is to be applied to it, returns the generator for the rule's
    /// random numbers. `place` is the rule's index in its program.
    pub fn strikes(&self, seed: u64, place: usize) -> Option<Pcg64Mcg> {
        let number = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        let Condition { nth, every, chance, times } = &self.condition;
        // The multiplier gives each call and rule a different seed.
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

    /// Takes up to `wanted` bytes of the remaining space; `None` if there is none.
    pub fn take_room(&self, wanted: u64) -> Option<u64> {
        let mut taken = 0;
        let take = |room: u64| {
            taken = wanted.min(room);
            (room > 0).then(|| room - taken)
        };
        self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok().then_some(taken)
    }

    /// Gives back unused space.
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
