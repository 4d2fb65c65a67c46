//! The flaws that an image can have, each with a name and a message.

use std::fmt;

/// A parsed value, or the flaw that was found. The caller knows where the flaw is.
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
    // The superblock and groups.
    DeviceTooSmall: "the device is smaller than the file system",
    CutShort: "is cut short",
    BadBlockSize: "invalid block size",
    ClustersDiffer: "the cluster size differs from the block size",
    TooManyGroups: "too many block groups",
    TooManyReservedDescriptors: "too many reserved descriptor blocks",
    NoRoomForFiles: "there is no room for files",
    TooManyReservedBlocks: "more blocks are reserved than exist",
    BadFirstBlock: "the first group starts at an invalid block",
    NoBlocks: "there are no blocks",
    BadBlocksPerGroup: "invalid number of blocks per group",
    BadInodeSize: "invalid inode size",
    BadInodesPerGroup: "invalid number of inodes per group",
    BadInodeCount: "the inode count does not match the groups",
    BadFirstInode: "invalid first inode",
    NoInodesForFiles: "there are no inodes for files",
    DescriptorsTooLarge: "the group descriptors don't fit in one group",
    DescriptorCutShort: "a descriptor is cut short",
    BitmapOutside: "a bitmap is outside its group",
    InodeTableOutside: "the inode table is outside its group",
    GroupOverlap: "bitmaps and inode table overlap",
    CountsTooLarge: "counts exceed the size of the group",
    MetadataFree: "metadata is marked as free",
    ReservedInodesFree: "reserved inodes are marked as free",
    TooFewFreeBlocks: "fewer blocks are free than the count states",
    TooFewFreeInodes: "fewer inodes are free than the count states",
    // Inodes and their blocks.
    BadMode: "has an unknown file type",
    BadSize: "has an invalid size",
    BadExtraSize: "has an invalid size of its extra fields",
    ForeignInode: "uses a feature that the superblock doesn't declare",
    ForeignFlags: "has flags of features that the file system doesn't have",
    AfsFlag: "has the flag of AFS directories",
    NewerFields: "has values in fields that only newer formats use",
    SizeBeyondFormat: "is neither a file nor a directory, but its size exceeds 4 GiB",
    SpecialSize: "is a special file but has a size",
    SymlinkSize: "is a symbolic link whose target does not match its size",
    SymlinkBlocks: "is a symbolic link with more than one block",
    IndexedFile: "is indexed but not a directory",
    IndexWithoutFeature: "is an indexed directory, but the file system lacks this feature",
    BadDirectorySize: "is a directory with an invalid size",
    DirectoryHole: "is a hole in a directory",
    NotDeleted: "has no name but is not deleted",
    DeletedInUse: "is in use but has a deletion time",
    BadBlocksInode: "is reserved for bad blocks but has other fields set",
    ReservedInUse: "should not be in use but has names or blocks",
    ReservedMode: "is reserved but has a mode",
    ReservedAttributes: "is reserved but has extended attributes",
    RootNotDirectory: "should be the root but is not a directory",
    NotForFiles: "can't be used for a file",
    NoSuchInode: "does not exist",
    NamedUnused: "has a name but is not in use",
    NamesNoFile: "has an entry for an inode that can't be used for a file",
    DirectoryCircle: "is a directory inside itself",
    EndlessOrphans: "the orphan list has no end",
    FreedTwice: "was freed twice",
    MarkedFree: "is in use but marked as free",
    PointerOutside: "can't belong to a file",
    NotData: "points to a block that is not a data block",
    BelongsTwice: "belongs to two files, or to one file twice",
    TooManyBlocks: "has more blocks than the file system",
    // Extended attributes.
    BadAcl: "has an invalid ACL",
    XattrOutside: "can't contain attributes",
    XattrOverlap: "attributes overlap",
    XattrHash: "an attribute has a wrong hash",
    XattrEnd: "the list of attributes has no end",
    XattrBeyondRegion: "an attribute extends past its region",
    XattrName: "an attribute's name is cut short",
    XattrValueInInode: "an attribute's value is in a separate inode",
    XattrValueBeyondRegion: "an attribute's value extends past its region",
    XattrBlocks: "attributes in more than one block",
    XattrMagic: "an attribute block has no magic number",
    // Directory entries.
    NoDots: "doesn't start with '.' and '..'",
    WrongDot: "is '.' but refers to another inode",
    DotNotEnded: "is '.' or '..' but is not followed by a NUL byte",
    ExtraDot: "is an extra '.' or '..'",
    NoName: "has no name",
    BadName: "has a name with a '/' or a NUL byte",
    NameTwice: "has a name that occurs twice",
    WrongKind: "has the wrong kind",
    NamesReserved: "refers to an inode that can't have a name",
    NamesUnused: "refers to an unused inode",
    NamesRoot: "refers to the root directory",
    DirectoryTwice: "refers to a directory that has another name",
    // Directory blocks.
    NoDirectoryBlocks: "a directory has no blocks",
    RecordBeyondBlock: "a directory record extends past its block",
    RecordLength: "a directory record has an invalid length",
    NameBeyondRecord: "a name is longer than its directory record",
    RecordChanged: "a directory record changed unexpectedly",
    LeafChanged: "a directory leaf has less room than expected",
    LeafOfOneName: "a full directory leaf has only one name",
    // Directory indexes.
    IndexTooDeep: "an index has too many levels",
    IndexNodeStart: "an index node doesn't start with a free record of its size",
    IndexTableSize: "an index table doesn't fill its block",
    IndexLimit: "an index table has the wrong limit",
    IndexCount: "an index table has an invalid count",
    IndexRootSize: "an index root doesn't fit in its block",
    IndexRootFields: "an index root has unknown fields",
    IndexHashVersion: "an index root has an unknown hash function",
    IndexChanged: "an index table changed unexpectedly",
    IndexBeyondEnd: "an index points past the directory's end",
    IndexTwice: "an index points to a block twice",
    IndexCircle: "an index points to more blocks than the directory has",
    BlockNotIndexed: "a directory block is not in the index",
    LoneLeafNeighbour: "the only leaf of an index has a neighbour",
    HashOrder: "the hashes of an index are not in order",
    HashBelowLeaf: "a name's hash is below the range of its leaf",
    HashAboveLeaf: "a name's hash is above the range of its leaf",
    HashUnreachable: "the index does not lead to all names with the same hash",
}

impl Flaw {
    /// Returns the flaw's name in kebab-case, such as `bad-mode`.
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
