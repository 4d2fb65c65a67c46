//! The records of changes, as 64-bit words.
//!
//! The first word of a record contains its kind and a 32-bit number. The other words depend on the
//! kind. The parser checks only the form of a record; its numbers are checked when it is applied.

use zerocopy::IntoBytes;

use crate::cache::{Change, Role, STEPS_MAX};
use crate::free_space::Freeing;
use crate::types::{BlockNo, GroupNo, InodeNo};

/// One change, or a part of the state of a volume.
#[derive(Debug, PartialEq)]
pub(super) enum Record<'a> {
    /// The bytes of a block that is not on the device yet.
    Changed(BlockNo, Change, &'a [u8]),
    /// A block that no longer differs from the device: it was written, or is no longer used.
    Unchanged(BlockNo),
    /// An inode's earlier bytes, without the changes that must be written after directory blocks.
    Late(InodeNo, &'a [u8]),
    /// Consecutive blocks that were freed and can't be reused yet: the first, and their number.
    FreedBlocks(BlockNo, u32),
    FreedInode(InodeNo),
    /// The free blocks, free inodes and directories of a group.
    Group {
        no: GroupNo,
        counts: [u32; 3],
    },
    /// An inode without a name that is still in use. It is settled if it is in the orphan list on
    /// the device.
    OrphanAdded {
        no: InodeNo,
        is_settled: bool,
        is_linkable: bool,
    },
    OrphanRemoved(InodeNo),
}

/// The kinds of records, as stored.
const CHANGED: u32 = 1;
const UNCHANGED: u32 = 2;
const LATE: u32 = 3;
const FREED_BLOCKS: u32 = 4;
const FREED_INODE: u32 = 5;
const GROUP: u32 = 6;
const ORPHAN_ADDED: u32 = 7;
const ORPHAN_REMOVED: u32 = 8;

/// Bits of a stored change; its role is in the lowest eight bits, and its step in the next eight.
const FRESH: u64 = 1 << 16;
const PINNED: u64 = 1 << 17;

/// Bits of a stored orphan.
const SETTLED: u64 = 1;
const LINKABLE: u64 = 2;

/// Encoded records.
#[derive(Default)]
pub(super) struct Records(Vec<u64>);

impl Records {
    pub fn words(&self) -> &[u64] {
        &self.0
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn put(&mut self, record: &Record<'_>) {
        match record {
            Record::Changed(block, change, bytes) => {
                self.head(CHANGED, block.0);
                self.0.push(encode_change(*change));
                self.bytes(bytes);
            }
            Record::Unchanged(block) => self.head(UNCHANGED, block.0),
            Record::Late(no, before) => {
                self.head(LATE, no.0);
                self.bytes(before);
            }
            Record::FreedBlocks(first, count) => {
                self.head(FREED_BLOCKS, first.0);
                self.0.push((*count).into());
            }
            Record::FreedInode(no) => self.head(FREED_INODE, no.0),
            Record::Group { no, counts } => {
                self.head(GROUP, no.0);
                self.0.extend(counts.map(u64::from));
            }
            Record::OrphanAdded { no, is_settled, is_linkable } => {
                self.head(ORPHAN_ADDED, no.0);
                let settled = if *is_settled { SETTLED } else { 0 };
                self.0.push(settled | if *is_linkable { LINKABLE } else { 0 });
            }
            Record::OrphanRemoved(no) => self.head(ORPHAN_REMOVED, no.0),
        }
    }

    /// Encodes freed blocks and inodes; consecutive blocks share a record.
    pub fn put_freed(&mut self, freed: impl IntoIterator<Item = Freeing>) {
        let mut run: Option<(BlockNo, u32)> = None;
        for one in freed {
            match (one, &mut run) {
                (Freeing::Block(block), Some((first, count))) if first.0 + *count == block.0 => {
                    *count += 1;
                }
                (Freeing::Block(block), run) => {
                    let before = run.replace((block, 1));
                    before.iter().for_each(|(first, count)| self.put_run(*first, *count));
                }
                (Freeing::Inode(no), _) => self.put(&Record::FreedInode(no)),
            }
        }
        run.iter().for_each(|(first, count)| self.put_run(*first, *count));
    }

    fn put_run(&mut self, first: BlockNo, count: u32) {
        self.put(&Record::FreedBlocks(first, count));
    }

    fn head(&mut self, kind: u32, number: u32) {
        self.0.push(u64::from(kind) << 32 | u64::from(number));
    }

    /// Appends the bytes of a block or inode, whose size is a multiple of eight.
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend(bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)));
    }
}

fn encode_change(change: Change) -> u64 {
    let (role, step) = match change.role {
        Role::Map => (0, 0),
        Role::Inodes => (1, 0),
        Role::Directory => (2, 0),
        Role::DirectoryLate(step) => (3, step),
        Role::MapLate => (4, 0),
        Role::Bitmap => (5, 0),
    };
    let fresh = if change.fresh { FRESH } else { 0 };
    role | u64::from(step) << 8 | fresh | if change.pinned { PINNED } else { 0 }
}

fn parse_change(word: u64) -> Option<Change> {
    let role = match (word & 0xff, (word >> 8) as u8) {
        (0, 0) => Role::Map,
        (1, 0) => Role::Inodes,
        (2, 0) => Role::Directory,
        (3, step @ 1..=STEPS_MAX) => Role::DirectoryLate(step),
        (4, 0) => Role::MapLate,
        (5, 0) => Role::Bitmap,
        _ => return None,
    };
    Some(Change { role, fresh: word & FRESH != 0, pinned: word & PINNED != 0 })
}

/// Parses the records of a volume with these block and inode sizes in bytes. Yields `None` for the
/// first invalid record, and then ends.
pub(super) fn parse(
    words: &[u64],
    block_bytes: usize,
    inode_bytes: usize,
) -> impl Iterator<Item = Option<Record<'_>>> {
    let mut parser = Parser { words, block_bytes, inode_bytes };
    std::iter::from_fn(move || {
        let is_over = parser.words.is_empty();
        let record = (!is_over).then(|| parser.next());
        if let Some(None) = record {
            parser.words = &[];
        }
        record
    })
}

struct Parser<'a> {
    words: &'a [u64],
    block_bytes: usize,
    inode_bytes: usize,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<Record<'a>> {
        let head = self.word()?;
        let (kind, number) = ((head >> 32) as u32, head as u32);
        let (block, no) = (BlockNo(number), InodeNo(number));
        Some(match kind {
            CHANGED => {
                let change = parse_change(self.word()?)?;
                Record::Changed(block, change, self.bytes(self.block_bytes)?)
            }
            UNCHANGED => Record::Unchanged(block),
            LATE => Record::Late(no, self.bytes(self.inode_bytes)?),
            FREED_BLOCKS => Record::FreedBlocks(block, self.small()?),
            FREED_INODE => Record::FreedInode(no),
            GROUP => {
                let counts = [self.small()?, self.small()?, self.small()?];
                Record::Group { no: GroupNo(number), counts }
            }
            ORPHAN_ADDED => {
                let bits = self.word()?;
                let (is_settled, is_linkable) = (bits & SETTLED != 0, bits & LINKABLE != 0);
                Record::OrphanAdded { no, is_settled, is_linkable }
            }
            ORPHAN_REMOVED => Record::OrphanRemoved(no),
            _ => return None,
        })
    }

    fn word(&mut self) -> Option<u64> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(*first)
    }

    fn small(&mut self) -> Option<u32> {
        self.word()?.try_into().ok()
    }

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.words.split_at_checked(count / size_of::<u64>())?;
        self.words = rest;
        Some(bytes.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed_records_equal_the_encoded_ones() {
        let (block, inode) = ([3; 1024], [4; 128]);
        let change = |role, fresh, pinned| Change { role, fresh, pinned };
        let roles = [Role::Map, Role::Inodes, Role::Directory, Role::MapLate, Role::Bitmap];
        let late = (1..=STEPS_MAX).map(Role::DirectoryLate);
        let mut all: Vec<_> = roles
            .into_iter()
            .chain(late)
            .map(|role| Record::Changed(BlockNo(u32::MAX), change(role, true, false), &block))
            .collect();
        all.extend([
            Record::Changed(BlockNo(7), change(Role::Map, false, true), &block),
            Record::Unchanged(BlockNo(1)),
            Record::Late(InodeNo(2), &inode),
            Record::FreedBlocks(BlockNo(3), 9),
            Record::FreedInode(InodeNo(4)),
            Record::Group { no: GroupNo(5), counts: [1, 2, 3] },
            Record::OrphanAdded { no: InodeNo(6), is_settled: true, is_linkable: false },
            Record::OrphanAdded { no: InodeNo(6), is_settled: false, is_linkable: true },
            Record::OrphanRemoved(InodeNo(7)),
        ]);
        let mut records = Records::default();
        all.iter().for_each(|record| records.put(record));
        let parsed: Option<Vec<_>> = parse(records.words(), 1024, 128).collect();
        assert_eq!(parsed.unwrap(), all);
    }

    #[test]
    fn freed_blocks_are_joined_in_runs() {
        let mut records = Records::default();
        let blocks = [5, 6, 7, 9, 10].map(|no| Freeing::Block(BlockNo(no)));
        records.put_freed(blocks.into_iter().chain([Freeing::Inode(InodeNo(3))]));
        let parsed: Option<Vec<_>> = parse(records.words(), 1024, 128).collect();
        let run = |first, count| Record::FreedBlocks(BlockNo(first), count);
        assert_eq!(parsed.unwrap(), [run(5, 3), Record::FreedInode(InodeNo(3)), run(9, 2)]);
    }

    #[test]
    fn invalid_words_end_the_records() {
        let valid = |kind: u32| u64::from(kind) << 32;
        for words in [
            vec![valid(99)],
            vec![valid(0)],
            vec![valid(CHANGED)],
            vec![valid(CHANGED), 6],
            vec![valid(CHANGED), 3 | u64::from(STEPS_MAX + 1) << 8],
            vec![valid(CHANGED), 0, 1, 2],
            vec![valid(LATE), 1],
            vec![valid(FREED_BLOCKS), 1 << 32],
            vec![valid(GROUP), 1, 2],
            vec![valid(ORPHAN_ADDED)],
        ] {
            let parsed: Vec<_> = parse(&words, 1024, 128).collect();
            assert_eq!(parsed, [None], "{words:?}");
        }
    }
}
