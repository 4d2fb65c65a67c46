//! Results of tests: the counts in the last line of `cargo xtask test`.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Results of one or more tests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Number of passed tests.
    pub passed: usize,
    /// Names of failed tests, each with its cause if known.
    pub failed: Vec<String>,
    /// Skipped tests.
    pub skipped: Vec<Skip>,
}

/// A test that did not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skip {
    /// Name of the test.
    pub test: String,
    /// The reason why it did not run.
    pub reason: String,
    /// Whether an allow-list contains the test. Such a skip is not a failure, even if all tests are
    /// required.
    pub allowed: bool,
}

impl Tally {
    /// Makes the result of one passed test.
    pub fn pass() -> Self {
        Self { passed: 1, ..Self::default() }
    }

    /// Makes the result of one failed test.
    pub fn fail(what: impl Into<String>) -> Self {
        Self { failed: vec![what.into()], ..Self::default() }
    }

    /// Makes the result of one skipped test.
    pub fn skip(test: impl Into<String>, reason: impl Into<String>) -> Self {
        let skip = Skip { test: test.into(), reason: reason.into(), allowed: false };
        Self { skipped: vec![skip], ..Self::default() }
    }

    /// Returns whether nothing failed.
    pub fn is_good(&self) -> bool {
        self.failed.is_empty()
    }

    /// Turns every skip without an entry in an allow-list into a failure.
    #[must_use]
    pub fn requiring_all(mut self) -> Self {
        let (allowed, refused) = self.skipped.into_iter().partition(|skip: &Skip| skip.allowed);
        self.skipped = allowed;
        self.failed.extend(refused.into_iter().map(|skip: Skip| {
            format!("{}: skipped, although all tests are required: {}", skip.test, skip.reason)
        }));
        self
    }

    /// Returns the counts in the form of the last line of `cargo xtask test`.
    pub fn counts(&self) -> String {
        let (failed, skipped) = (self.failed.len(), self.skipped.len());
        format!("{} passed, {failed} failed, {skipped} skipped", self.passed)
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_required_skip_fails_unless_it_is_allowed() {
        let mut tally = Tally::skip("mounted", "no root");
        tally.skipped.push(Skip {
            test: "erofs".into(),
            reason: "no remount".into(),
            allowed: true,
        });
        assert_eq!(tally.counts(), "0 passed, 0 failed, 2 skipped");
        let required = tally.requiring_all();
        assert_eq!(required.counts(), "0 passed, 1 failed, 1 skipped");
        assert!(required.failed[0].contains("mounted") && required.failed[0].contains("no root"));
    }
}
