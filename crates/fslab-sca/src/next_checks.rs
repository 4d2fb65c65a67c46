//! The lengths of a stored file at which it is next checked for garbage. A check costs calls to the
//! lower file system, so not every write makes one.

/// Minimum number of dead bytes that are worth a commit. A file that is shorter than this can't
/// have enough of them.
pub const DEAD_BYTES_MIN: u64 = 1 << 20;

/// Lengths of the stored file at which the next checks are due.
pub struct NextChecks {
    /// Length at which to check whether dead frames are worth a commit.
    commit: u64,
    /// Length at which to check whether to collect garbage.
    cleaning: u64,
}

impl Default for NextChecks {
    fn default() -> Self {
        Self { commit: DEAD_BYTES_MIN, cleaning: 0 }
    }
}

impl NextChecks {
    /// Whether a file of this length must be checked for dead frames.
    pub fn is_commit_due(&self, length: u64) -> bool {
        length >= self.commit
    }

    /// Whether a file of this length must be checked for garbage to collect.
    pub fn is_cleaning_due(&self, length: u64) -> bool {
        length >= self.cleaning
    }

    /// Sets the length at which to check next for dead frames.
    pub fn put_off_commit(&mut self, length: u64) {
        self.commit = length;
    }

    /// Sets the length at which to check next for garbage to collect.
    pub fn put_off_cleaning(&mut self, length: u64) {
        self.cleaning = length;
    }
}
