//! The list of all kinds of archives.

use super::directory;
use super::kind::ArchiveKindSpec;

/// The kinds, in the order in which they are listed. A plain path means the first.
pub const ARCHIVE_KINDS: &[&ArchiveKindSpec] = &[&directory::SPEC];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kinds_are_unique_schemes() {
        let mut names: Vec<_> = ARCHIVE_KINDS.iter().map(|kind| kind.name).collect();
        assert!(names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase())));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ARCHIVE_KINDS.len());
    }
}
