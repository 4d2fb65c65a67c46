//! The access time options of mount(8).

use crate::types::{FileKind, Timestamp};

/// Selects which accesses to a file update its access time, like the options of mount(8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// The default of the leaf. For a directory of the host this is the option of its mount. For
    /// all other leaves it is `relatime`.
    #[default]
    Usual,
    /// `relatime`: an access updates the access time only in two cases. The time is not newer than
    /// the last change of the file, or it is at least a day old.
    Relative,
    /// `relatime,nodiratime`: as `relatime`, but listing a directory does not update its time.
    RelativeOfFiles,
    /// `noatime`: no access updates the time.
    Never,
}

impl AccessTimes {
    /// Whether an access at the time `now` must update the access time. `changed` is the time of
    /// the file's last change of contents or attributes.
    #[must_use]
    pub fn is_due(
        self,
        kind: FileKind,
        accessed: Timestamp,
        changed: Timestamp,
        now: Timestamp,
    ) -> bool {
        const AGE_SECONDS: i64 = 24 * 60 * 60;
        let is_old = || now.seconds.saturating_sub(accessed.seconds) >= AGE_SECONDS;
        match self {
            Self::Never => false,
            Self::RelativeOfFiles if kind == FileKind::Directory => false,
            _ => accessed <= changed || is_old(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_is_recorded_once_per_change_or_day() {
        let at = |seconds| Timestamp { seconds, nanoseconds: 0 };
        let is_due = |choice: AccessTimes, kind, accessed, changed, now| {
            choice.is_due(kind, at(accessed), at(changed), at(now))
        };
        let (file, directory) = (FileKind::Regular, FileKind::Directory);
        for choice in [AccessTimes::Usual, AccessTimes::Relative, AccessTimes::RelativeOfFiles] {
            assert!(is_due(choice, file, 10, 10, 20));
            assert!(!is_due(choice, file, 11, 10, 20));
            assert!(is_due(choice, file, 11, 10, 11 + 24 * 60 * 60));
            let is_of_directories = choice != AccessTimes::RelativeOfFiles;
            assert_eq!(is_due(choice, directory, 10, 10, 20), is_of_directories);
        }
        assert!(!is_due(AccessTimes::Never, file, 10, 10, i64::MAX));
    }
}
