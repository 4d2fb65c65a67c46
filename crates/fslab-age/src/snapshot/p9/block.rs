//! Directory and pointer blocks, which consist of a count and that number of items.

/// Size of a directory entry in bytes.
pub const ENTRY_BYTES: usize = 62;

/// Size of a pointer in bytes.
pub const POINTER_BYTES: usize = 4;

const MODE_DIRECTORY: u16 = 0x4000;

/// A directory entry. It also contains the fields that other file systems store in an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// A number that is never reused.
    pub path: u32,
    /// A number that changes with each write.
    pub version: u32,
    pub mode: u16,
    /// Size in bytes; 0 for directories.
    pub size: u32,
    pub direct: [u32; 6],
    pub indirect: u32,
    pub double_indirect: u32,
    /// Time of the last change, in seconds since 1970.
    pub modified_s: u32,
    pub uid: u16,
    pub gid: u16,
}

impl DirectoryEntry {
    pub fn is_directory(&self) -> bool {
        self.mode & MODE_DIRECTORY != 0
    }

    fn of(bytes: &[u8]) -> Self {
        // Layout: slot, path, version, mode, size, 6 + 2 pointers, two times, three users.
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

/// Parses a directory block; `None` if its length does not match its count.
pub fn entries(bytes: &[u8]) -> Option<Vec<DirectoryEntry>> {
    let entries = counted(bytes, ENTRY_BYTES)?;
    Some(entries.chunks_exact(ENTRY_BYTES).map(DirectoryEntry::of).collect())
}

/// Parses a pointer block; `None` if its length does not match its count.
pub fn pointers(bytes: &[u8]) -> Option<impl Iterator<Item = u32>> {
    let pointers = counted(bytes, POINTER_BYTES)?;
    Some(pointers.chunks_exact(POINTER_BYTES).map(|bytes| be32(bytes, 0)))
}

/// Returns the bytes after the count, if their length is exactly the count times `each` bytes.
pub fn counted(bytes: &[u8], each: usize) -> Option<&[u8]> {
    let (count, rest) = bytes.split_first_chunk()?;
    (rest.len() == each * usize::from(u16::from_be_bytes(*count))).then_some(rest)
}

/// Reads a big-endian number of two bytes; panics if `bytes` is too short.
pub fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Reads a big-endian number of four bytes; panics if `bytes` is too short.
pub fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_with_a_wrong_item_count_is_refused() {
        let block = |count: u16, bytes: usize| [&count.to_be_bytes()[..], &vec![7; bytes]].concat();
        assert_eq!(entries(&block(2, 124)).unwrap().len(), 2);
        assert_eq!(pointers(&block(3, 12)).unwrap().count(), 3);
        assert!(entries(&block(0, 0)).unwrap().is_empty());
        for damaged in [vec![], vec![0], block(2, 123), block(2, 62), block(1, 124), block(0, 1)] {
            assert!(entries(&damaged).is_none() && pointers(&damaged).is_none(), "{damaged:?}");
        }
    }
}
