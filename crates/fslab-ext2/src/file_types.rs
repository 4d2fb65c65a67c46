//! What an inode is, as directory entries tell it.

use fslab_vfs::FileKind;

use crate::dir::EntryKind;

/// All kinds, each at the number that entries store.
const KINDS: [FileKind; 7] = [
    FileKind::Regular,
    FileKind::Directory,
    FileKind::CharDevice,
    FileKind::BlockDevice,
    FileKind::Fifo,
    FileKind::Socket,
    FileKind::Symlink,
];

pub(crate) fn entry_kind(kind: FileKind) -> EntryKind {
    let at = KINDS.iter().position(|candidate| *candidate == kind);
    EntryKind(at.map_or(0, |at| at as u8 + 1))
}

/// `None` for an entry that does not tell.
pub(crate) fn file_kind(kind: EntryKind) -> Option<FileKind> {
    KINDS.get(usize::from(kind.0).checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_as_the_format_does() {
        assert_eq!(entry_kind(FileKind::Regular), EntryKind::REGULAR);
        assert_eq!(entry_kind(FileKind::Directory), EntryKind::DIRECTORY);
        assert_eq!(entry_kind(FileKind::Symlink), EntryKind(7));
        assert_eq!(file_kind(EntryKind::UNKNOWN), None);
        assert!(KINDS.iter().all(|kind| file_kind(entry_kind(*kind)) == Some(*kind)));
    }
}
