//! Stability levels of the parts of fslab.

use std::fmt;

/// The stability level of a part, which states how much it can be trusted with files.
/// `docs/stability.toml` states the requirements of each level and the evidence for each part. A
/// test compares it with the levels in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    /// The part's tests pass, but its long tests did not run, or not for long enough.
    Experimental,
    /// The part's long tests ran without a lost or wrong byte.
    Beta,
    /// The part's long tests ran ten times as much as [`Beta`](Self::Beta) requires.
    Stable,
}

impl Stability {
    /// The name of the level, as shown to users.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Experimental => "experimental",
            Self::Beta => "beta",
            Self::Stable => "stable",
        }
    }

    /// The warning for users who mount a part of this level; `None` from beta on.
    #[must_use]
    pub fn caution(self) -> Option<&'static str> {
        match self {
            Self::Experimental => Some("experimental: keep other copies of your files"),
            Self::Beta | Self::Stable => None,
        }
    }
}

impl fmt::Display for Stability {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
