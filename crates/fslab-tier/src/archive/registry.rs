//! The list of all kinds of archives: those of this crate, and those that the program adds.

use std::sync::OnceLock;

use super::directory;
use super::kind::ArchiveKindSpec;

/// The kinds of this crate. A path without a scheme belongs to the first kind.
pub(super) const OWN: &[&ArchiveKindSpec] = &[&directory::SPEC];

/// The kinds of other crates, which the `fslab` program registers at its start.
static FOREIGN: OnceLock<&'static [&'static ArchiveKindSpec]> = OnceLock::new();

/// Adds kinds of other crates. Call this once, before any address is parsed; later calls have no
/// effect.
pub fn add_archive_kinds(kinds: &'static [&'static ArchiveKindSpec]) {
    FOREIGN.get_or_init(|| kinds);
}

/// Returns all kinds, in the order in which lists show them.
pub fn archive_kinds() -> impl Iterator<Item = &'static ArchiveKindSpec> {
    OWN.iter().chain(FOREIGN.get().into_iter().copied().flatten()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_kind_names_are_unique_url_schemes() {
        let mut names: Vec<_> = archive_kinds().map(|kind| kind.name).collect();
        let count = names.len();
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        assert!(names.iter().all(|name| name.bytes().all(is_inner)));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
