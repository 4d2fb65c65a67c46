//! The result of a case: [`Stop`] and the `ensure` macros.

use std::any::Any;
use std::fmt;
use std::panic::Location;

use fslab_vfs::{Errno, Error};

/// The result of a case.
pub type Outcome = Result<(), Stop>;

/// The reason why a case stopped early.
#[derive(Clone, Debug)]
pub enum Stop {
    /// A check failed.
    Failed {
        /// The message.
        message: String,
        /// The source location in the suite.
        place: String,
    },
    /// The subject does not support the operation, and need not.
    Unsupported {
        /// The reason.
        reason: String,
    },
}

impl Stop {
    /// A failed check, at the source location of the caller.
    #[track_caller]
    #[must_use]
    pub fn failed(message: String) -> Self {
        Self::Failed { message, place: Location::caller().to_string() }
    }

    pub(super) fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Self::Failed { message: format!("panicked: {text}"), place: "a thread".to_owned() }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { message, place } => write!(out, "{message} ({place})"),
            Self::Unsupported { reason } => write!(out, "can't be checked: {reason}"),
        }
    }
}

impl From<Error> for Stop {
    #[track_caller]
    fn from(error: Error) -> Self {
        Self::failed(format!("unexpected error: {error} ({:?})", error.errno()))
    }
}

impl From<Errno> for Stop {
    #[track_caller]
    fn from(errno: Errno) -> Self {
        Self::from(Error::from(errno))
    }
}

/// Checks that an operation fails with the errno.
#[track_caller]
pub(super) fn refused<T: fmt::Debug>(
    answer: Result<T, Error>,
    expected: Errno,
) -> Result<(), Stop> {
    refused_with_any(answer, &[expected])
}

/// Checks that an operation fails with one of several errnos, if POSIX allows several.
#[track_caller]
pub(super) fn refused_with_any<T: fmt::Debug>(
    answer: Result<T, Error>,
    expected: &[Errno],
) -> Result<(), Stop> {
    match answer {
        Err(error) if expected.contains(&error.errno()) => Ok(()),
        Err(error) => {
            Err(Stop::failed(format!("expected {expected:?}, got {:?}: {error}", error.errno())))
        }
        Ok(value) => Err(Stop::failed(format!("expected {expected:?}, got success: {value:?}"))),
    }
}

/// Checks that a condition holds.
macro_rules! ensure {
    ($condition:expr) => {
        ensure!($condition, "does not hold: {}", stringify!($condition))
    };
    ($condition:expr, $($format:tt)+) => {
        if !$condition {
            return Err($crate::conformance::Stop::failed(format!($($format)+)));
        }
    };
}

/// Checks that two values are equal; the second is the expected one.
macro_rules! ensure_eq {
    ($seen:expr, $expected:expr) => {
        // `match` keeps temporaries alive until the comparison is done.
        match (&$seen, &$expected) {
            (seen, expected) => ensure!(
                seen == expected,
                "{} is {:?}, expected {:?}",
                stringify!($seen),
                seen,
                expected
            ),
        }
    };
}

/// Checks that bytes are equal, and shows only the first difference, because files are long.
macro_rules! ensure_bytes {
    ($seen:expr, $expected:expr) => {
        $crate::conformance::check::same_bytes(&$seen, &$expected)?
    };
}

/// Lists the cases of an area by their functions.
macro_rules! cases {
    ($area:literal: $($case:ident),* $(,)?) => {
        pub(super) const CASES: &[$crate::conformance::Case] = &[$(
            $crate::conformance::Case {
                name: concat!($area, "/", stringify!($case)),
                area: $area,
                run: $case,
            }
        ),*];
    };
}

#[track_caller]
pub(super) fn same_bytes(seen: &[u8], expected: &[u8]) -> Result<(), Stop> {
    if let Some(at) = seen.iter().zip(expected).position(|(a, b)| a != b) {
        let (seen, expected) = (seen[at], expected[at]);
        return Err(Stop::failed(format!("byte {at} is {seen:#04x}, expected {expected:#04x}")));
    }
    if seen.len() == expected.len() {
        Ok(())
    } else {
        let (seen, expected) = (seen.len(), expected.len());
        Err(Stop::failed(format!("{seen} bytes, expected {expected}")))
    }
}

/// Bytes that vary with the position and the seed.
pub(super) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(|| {
        // Xorshift: good enough to reveal shifted or repeated blocks.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8 | 1
    })
    .take(length)
    .collect()
}
