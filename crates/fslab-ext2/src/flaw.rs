//! The flaws that an image can have, by name.

use std::fmt;

/// A parsed value, or the flaw that was found. The caller knows the place.
pub type Checked<T> = std::result::Result<T, Flaw>;

macro_rules! flaws {
    ($($name:ident: $message:literal,)*) => {
        /// A kind of damage. Its name is stable; its message may change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Flaw {
            $(#[doc = $message] $name,)*
        }

        impl Flaw {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns a description of the flaw.
            #[must_use]
            pub fn message(self) -> &'static str {
                match self {
                    $(Self::$name => $message,)*
                }
            }
        }
    };
}

flaws! {
    // Superblock and groups.
    DeviceTooSmall: "the device is smaller than the file system",
    CutShort: "cut short",
    BadBlockSize: "impossible block size",
    ClustersDiffer: "clusters differ from blocks",
    TooManyGroups: "too many block groups",
    TooManyReservedDescriptors: "too many reserved descriptor blocks",
    NoRoomForFiles: "no room for files",
    TooManyReservedBlocks: "more blocks reserved than there are",
    BadFirstBlock: "the first group starts at an impossible block",
    NoBlocks: "there are no blocks",
    BadBlocksPerGroup: "impossible number of blocks a group",
    BadInodeSize: "impossible inode size",
    BadInodesPerGroup: "impossible inodes a group",
    BadInodeCount: "inode count contradicts the groups",
    BadFirstInode: "impossible first inode",
    NoInodesForFiles: "there are no inodes for files",
    DescriptorsTooLarge: "group descriptors don't fit a group",
    DescriptorCutShort: "descriptor cut short",
    BitmapOutside: "a bitmap is outside its group",
    InodeTableOutside: "the inode table is outside its group",
    GroupOverlap: "bitmaps and inode table overlap",
    CountsTooLarge: "counts are larger than the group",
    MetadataFree: "metadata is marked free",
    ReservedInodesFree: "reserved inodes are marked free",
    TooFewFreeBlocks: "fewer blocks are free than counted",
    TooFewFreeInodes: "fewer inodes are free than counted",
    // Inodes and their blocks.
    BadMode: "is of no known kind",
    BadSize: "impossible size",
    BadExtraSize: "impossible extra size",
    ForeignInode: "uses a feature the superblock doesn't name",
    ForeignFlags: "has flags of features that the file system doesn't have",
    AfsFlag: "has the flag of AFS directories",
    NewerFields: "has values in fields that only newer formats use",
    SizeBeyondFormat: "is neither file nor directory, and has a size beyond 4 GiB",
    SpecialSize: "is a special file and has a size",
    SymlinkSize: "is a symbolic link whose target contradicts its size",
    SymlinkBlocks: "is a symbolic link with more than one block",
    IndexedFile: "is indexed and no directory",
    IndexWithoutFeature: "is an indexed directory, which the file system doesn't have",
    BadDirectorySize: "is a directory of impossible size",
    DirectoryHole: "is a hole in a directory",
    NotDeleted: "has no name, and is not deleted",
    DeletedInUse: "is in use and has a time of deletion",
    BadBlocksInode: "is for bad blocks, and has more than these",
    ReservedInUse: "is not in use, and has names or blocks",
    ReservedMode: "is reserved, and has a mode",
    ReservedAttributes: "is reserved, and has attributes",
    RootNotDirectory: "is no directory, and should be the root",
    NotForFiles: "is no inode for files",
    NoSuchInode: "does not exist",
    NamedUnused: "has a name and is not in use",
    NamesNoFile: "has a name for what is no inode for files",
    DirectoryCircle: "lies within itself",
    EndlessOrphans: "the list of orphans has no end",
    FreedTwice: "was freed twice",
    MarkedFree: "is in use and marked free",
    PointerOutside: "can't belong to a file",
    NotData: "points to what is no data block",
    BelongsTwice: "belongs to two files, or to one twice",
    TooManyBlocks: "has more blocks than the file system",
    // Extended attributes.
    BadAcl: "has an access control list that is none",
    XattrOutside: "can't hold attributes",
    XattrOverlap: "attributes lie over each other",
    XattrHash: "an attribute has a wrong hash",
    XattrEnd: "attributes without an end",
    XattrBeyondRegion: "an attribute goes beyond its region",
    XattrName: "an attribute's name is cut short",
    XattrValueInInode: "an attribute's value is in an inode",
    XattrValueBeyondRegion: "an attribute's value goes beyond its region",
    XattrBlocks: "attributes in more than one block",
    XattrMagic: "attribute block without its magic",
    // Directory entries.
    NoDots: "doesn't start with '.' and '..'",
    WrongDot: "is its '.'",
    DotNotEnded: "is its '.' or '..', and does not end with a zero byte",
    ExtraDot: "is one more '.' or '..'",
    NoName: "has no name",
    BadName: "has a name with a '/' or a zero byte",
    NameTwice: "has a name that is there twice",
    WrongKind: "has the wrong kind",
    NamesReserved: "can't have a name",
    NamesUnused: "is not in use",
    NamesRoot: "is the root directory",
    DirectoryTwice: "is a directory with another name",
    // Directory blocks.
    NoDirectoryBlocks: "a directory has no blocks",
    RecordBeyondBlock: "a directory record goes beyond its block",
    RecordLength: "a directory record has an impossible length",
    NameBeyondRecord: "a name is longer than its directory record",
    RecordChanged: "a directory record is not as it was",
    LeafChanged: "a directory leaf has less room than was counted",
    LeafOfOneName: "a directory leaf is full of one name",
    // Directory indexes.
    IndexTooDeep: "an index has more levels than it may",
    IndexNodeStart: "an index node doesn't start with a free record of its size",
    IndexTableSize: "an index table doesn't fill its block",
    IndexLimit: "an index table has the wrong limit",
    IndexCount: "an index table has an impossible count",
    IndexRootSize: "an index root doesn't fit its block",
    IndexRootFields: "an index root has unknown fields",
    IndexHashVersion: "an index root names an unknown hash function",
    IndexChanged: "an index table is not as it was",
    IndexBeyondEnd: "an index leads beyond the directory's end",
    IndexTwice: "an index leads to a block twice",
    IndexCircle: "an index leads to more blocks than there are",
    BlockNotIndexed: "a directory block is in no index",
    LoneLeafNeighbour: "the only leaf of an index has a neighbour",
    HashOrder: "the hashes of an index are not in order",
    HashBelowLeaf: "a name hashes to less than its leaf begins with",
    HashAboveLeaf: "a name hashes to more than its leaf ends with",
    HashUnreachable: "names of one hash lie in two leaves, and nothing leads to the second",
}

impl Flaw {
    /// Returns its name in kebab-case: `bad-mode`.
    #[must_use]
    pub fn code(self) -> String {
        kebab(&format!("{self:?}"))
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.message())
    }
}

/// Converts the name of a variant to kebab-case.
pub(crate) fn kebab(name: &str) -> String {
    let mut code = String::with_capacity(name.len() + 4);
    for character in name.chars() {
        if character.is_ascii_uppercase() && !code.is_empty() {
            code.push('-');
        }
        code.push(character.to_ascii_lowercase());
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_document_lists_every_flaw() {
        let document = include_str!("../../../docs/formats/ext2.md");
        for flaw in Flaw::ALL {
            let line = format!("{:<29} {flaw}", flaw.code());
            assert!(document.lines().any(|one| one == line), "missing: {line}");
        }
    }
}
