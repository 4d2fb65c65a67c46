//! What blocks of directories and of addresses hold, after their lengths were checked.

use super::record::ENTRY_BYTES;

/// The bit of a mode that says that this is a directory.
const MODE_DIRECTORY: u16 = 0x4000;

/// An entry of a directory: a file's inode, as it were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Unique for ever.
    pub path: u32,
    /// Another one after each write.
    pub version: u32,
    pub mode: u16,
    /// In bytes; 0 for directories.
    pub size: u32,
    pub direct: [u32; 6],
    pub indirect: u32,
    pub double_indirect: u32,
    /// The last change, in seconds since 1970.
    pub modified_s: u32,
    pub uid: u16,
    pub gid: u16,
}

impl DirectoryEntry {
    pub fn is_directory(&self) -> bool {
        self.mode & MODE_DIRECTORY != 0
    }

    fn of(bytes: &[u8]) -> Self {
        // slot, path, version, mode, size, 6 + 2 pointers, two times, three users
        Self {
            path: be32(bytes, 2),
            version: be32(bytes, 6),
            mode: be16(bytes, 10),
            size: be32(bytes, 12),
            direct: std::array::from_fn(|index| be32(bytes, 16 + 4 * index)),
            indirect: be32(bytes, 40),
            double_indirect: be32(bytes, 44),
            modified_s: be32(bytes, 48),
            uid: be16(bytes, 56),
            gid: be16(bytes, 58),
        }
    }
}

/// The entries of a block of a directory: a number of them, and they themselves.
pub fn entries(bytes: &[u8]) -> Vec<DirectoryEntry> {
    let rest = bytes.get(2..).unwrap_or_default();
    rest.chunks_exact(ENTRY_BYTES).map(DirectoryEntry::of).collect()
}

/// The addresses of a block of addresses: a number of them, and they themselves.
pub fn pointers(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let rest = bytes.get(2..).unwrap_or_default();
    rest.chunks_exact(4).map(|bytes| be32(bytes, 0))
}

/// A number of two bytes. The caller knows that they are there.
pub fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// A number of four bytes. The caller knows that they are there.
pub fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
