//! What blocks of directories and of addresses hold: a count, and as many things as it says.

/// Bytes of an entry of a directory.
pub const ENTRY_BYTES: usize = 62;

/// Bytes of an address.
pub const POINTER_BYTES: usize = 4;

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

/// The entries of a block of a directory; `None` where there are not as many as it says.
pub fn entries(bytes: &[u8]) -> Option<Vec<DirectoryEntry>> {
    let entries = counted(bytes, ENTRY_BYTES)?;
    Some(entries.chunks_exact(ENTRY_BYTES).map(DirectoryEntry::of).collect())
}

/// The addresses of a block of addresses; `None` where there are not as many as it says.
pub fn pointers(bytes: &[u8]) -> Option<impl Iterator<Item = u32>> {
    let pointers = counted(bytes, POINTER_BYTES)?;
    Some(pointers.chunks_exact(POINTER_BYTES).map(|bytes| be32(bytes, 0)))
}

/// What follows a count of things of `each` bytes, if it is just that many.
pub fn counted(bytes: &[u8], each: usize) -> Option<&[u8]> {
    let (count, rest) = bytes.split_first_chunk()?;
    (rest.len() == each * usize::from(u16::from_be_bytes(*count))).then_some(rest)
}

/// A number of two bytes. The caller knows that they are there.
pub fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// A number of four bytes. The caller knows that they are there.
pub fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever reads a block finds as much as it says, or that it is damaged; never less.
    #[test]
    fn a_block_holds_what_it_counts() {
        let block = |count: u16, bytes: usize| [&count.to_be_bytes()[..], &vec![7; bytes]].concat();
        assert_eq!(entries(&block(2, 124)).unwrap().len(), 2);
        assert_eq!(pointers(&block(3, 12)).unwrap().count(), 3);
        assert!(entries(&block(0, 0)).unwrap().is_empty());
        for damaged in [vec![], vec![0], block(2, 123), block(2, 62), block(1, 124), block(0, 1)] {
            assert!(entries(&damaged).is_none() && pointers(&damaged).is_none(), "{damaged:?}");
        }
    }
}
