//! Directory entries in one block: parses them from an untrusted image and changes them in place.
//!
//! ```text
//! offset  0         4        6         7        8
//!         inode u32 | length u16 | name length u8 | kind u8 | name, then slack to `length`
//! ```
//!
//! The records fill a block without gaps; `length` is a multiple of 4. A record with inode 0 is
//! free space, as is the space after a record's name.

use fslab_vfs::FileKind;

use crate::flaw::{Checked, Flaw};
use crate::types::InodeNo;

/// The kind of an entry's inode, as stored on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EntryKind(pub u8);

impl EntryKind {
    /// No kind, in file systems without the `filetype` feature.
    pub const UNKNOWN: Self = Self(0);
    /// A regular file.
    pub const REGULAR: Self = Self(1);
    /// A directory.
    pub const DIRECTORY: Self = Self(2);
}

/// All kinds, in on-disk order: the kind stored as `n` is at index `n - 1`.
const KINDS: [FileKind; 7] = [
    FileKind::Regular,
    FileKind::Directory,
    FileKind::CharDevice,
    FileKind::BlockDevice,
    FileKind::Fifo,
    FileKind::Socket,
    FileKind::Symlink,
];

impl From<FileKind> for EntryKind {
    fn from(kind: FileKind) -> Self {
        let at = KINDS.iter().position(|candidate| *candidate == kind);
        Self(at.map_or(0, |at| at as u8 + 1))
    }
}

impl EntryKind {
    /// Returns the kind, or `None` if the stored value is invalid.
    pub(crate) fn file_kind(self) -> Option<FileKind> {
        KINDS.get(usize::from(self.0).checked_sub(1)?).copied()
    }
}

/// Length of a record's fields before the name, in bytes.
pub(crate) const HEADER: usize = 8;
/// Maximum length of a name, in bytes.
pub(crate) const NAME_MAX: usize = 255;
/// Minimum length of a record with a name, in bytes.
pub(crate) const RECORD_MIN: usize = 12;

/// Returns the minimum size in bytes of a record for a name of `length` bytes.
#[must_use]
pub(crate) fn record_size(length: usize) -> usize {
    (HEADER + length).next_multiple_of(4)
}

/// One record of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Offset of the record in its block, in bytes.
    pub offset: usize,
    /// Distance to the next record, in bytes.
    pub length: usize,
    /// The inode; `None` for a record that is free space.
    pub inode: Option<InodeNo>,
    /// The kind of the inode.
    pub kind: EntryKind,
    /// The name. In a free record it is empty or left over from an earlier use.
    pub name: &'a [u8],
}

impl Entry<'_> {
    /// Returns the number of bytes in this record that a new record could use.
    #[must_use]
    pub(crate) fn room(&self) -> usize {
        if self.is_live() { self.length - record_size(self.name.len()) } else { self.length }
    }

    /// Whether the record contains a name and an inode.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.inode.is_some() && !self.name.is_empty()
    }
}

/// An iterator over the records of a block, in order; it ends after the first damaged record.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    block: &'a [u8],
    next: usize,
}

impl<'a> Entries<'a> {
    /// Iterates over a whole block.
    #[must_use]
    pub fn of(block: &'a [u8]) -> Self {
        Self { block, next: 0 }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Checked<Entry<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.block.len() {
            return None;
        }
        let answer = entry_at(self.block, self.next);
        self.next = match &answer {
            Ok(entry) => entry.offset + entry.length,
            Err(_) => self.block.len(),
        };
        Some(answer)
    }
}

/// Returns the record at an offset, after checking that it lies within its block.
#[inline]
pub(crate) fn entry_at(block: &[u8], offset: usize) -> Checked<Entry<'_>> {
    let Some(header) = block.get(offset..).and_then(<[u8]>::first_chunk::<HEADER>) else {
        return Err(Flaw::RecordBeyondBlock);
    };
    let header = u64::from_le_bytes(*header);
    let inode = header as u32;
    let length = decode_length((header >> 32) as u16, block.len());
    let name_length = (header >> 48) as usize & 0xff;
    if length < RECORD_MIN || !length.is_multiple_of(4) {
        return Err(Flaw::RecordLength);
    }
    if length > block.len() - offset {
        return Err(Flaw::RecordBeyondBlock);
    }
    if HEADER + name_length > length {
        return Err(Flaw::NameBeyondRecord);
    }
    Ok(Entry {
        offset,
        length,
        inode: (inode != 0).then_some(InodeNo(inode)),
        kind: EntryKind((header >> 56) as u8),
        name: &block[offset + HEADER..][..name_length],
    })
}

/// Decodes the length of a record. A record that fills a block of 64 KiB has a length that does not
/// fit in 16 bits. Every length is a multiple of 4. So in blocks of this size, the two low bits of
/// the stored value contain the two highest bits of the length. The values 0 and 65535 mean the
/// full block.
#[inline]
fn decode_length(stored: u16, block_size: usize) -> usize {
    let stored = usize::from(stored);
    match (block_size, stored) {
        (0x1_0000.., 0 | 0xffff) => block_size,
        (0x1_0000.., _) => (stored & 0xfffc) | (stored & 3) << 16,
        _ => stored,
    }
}

#[inline]
fn encode_length(length: usize) -> u16 {
    if length > 0xffff { 0xffff } else { length as u16 }
}

/// Writes a record. The caller has checked the offset and that the name fits.
pub(crate) fn put(
    block: &mut [u8],
    offset: usize,
    length: usize,
    inode: InodeNo,
    kind: EntryKind,
    name: &[u8],
) {
    put_header(block, offset, length, inode, name.len(), kind);
    block[offset + HEADER..][..name.len()].copy_from_slice(name);
    // The padding after the name must not keep bytes from an earlier record.
    let end = record_size(name.len()).min(length);
    block[offset + HEADER + name.len()..offset + end].fill(0);
}

/// Turns a block into a directory with only `.` and `..`.
pub(crate) fn put_dots(block: &mut [u8], own: InodeNo, parent: InodeNo, kind: EntryKind) {
    let rest = block.len() - RECORD_MIN;
    block.fill(0);
    put(block, 0, RECORD_MIN, own, kind, b".");
    put(block, RECORD_MIN, rest, parent, kind, b"..");
}

/// Writes a free record. The word after the record's header becomes 0. Otherwise e2fsck may mistake
/// a free block for an index node.
pub(crate) fn put_free(block: &mut [u8], offset: usize, length: usize) {
    put_header(block, offset, length, InodeNo(0), 0, EntryKind::UNKNOWN);
    block[offset + HEADER..offset + RECORD_MIN].fill(0);
}

fn put_header(
    block: &mut [u8],
    offset: usize,
    length: usize,
    inode: InodeNo,
    name_length: usize,
    kind: EntryKind,
) {
    let header = u64::from(inode.0)
        | u64::from(encode_length(length)) << 32
        | (name_length as u64) << 48
        | u64::from(kind.0) << 56;
    block[offset..offset + HEADER].copy_from_slice(&header.to_le_bytes());
}

pub(crate) fn set_length(block: &mut [u8], offset: usize, length: usize) {
    block[offset + 4..offset + 6].copy_from_slice(&encode_length(length).to_le_bytes());
}

pub(crate) fn set_inode(block: &mut [u8], offset: usize, inode: InodeNo, kind: EntryKind) {
    block[offset..offset + 4].copy_from_slice(&inode.0.to_le_bytes());
    block[offset + 7] = kind.0;
}

/// Puts a name into a record that has room for it: a free record, or the slack of a used one.
///
/// # Errors
/// Damage if the record differs from the expected one; the block is then unchanged.
pub(crate) fn insert(
    block: &mut [u8],
    offset: usize,
    name: &[u8],
    inode: InodeNo,
    kind: EntryKind,
) -> Checked<()> {
    let host = entry_at(block, offset)?;
    if host.room() < record_size(name.len()) {
        return Err(Flaw::RecordChanged);
    }
    let (start, length) = match host.is_live() {
        true => (offset + host.length - host.room(), host.room()),
        false => (offset, host.length),
    };
    if host.is_live() {
        set_length(block, offset, start - offset);
    }
    put(block, start, length, inode, kind, name);
    Ok(())
}

/// Removes a record. Its space is added to the previous record. If there is no previous record, the
/// record becomes free space.
///
/// # Errors
/// Damage if the records differ from the expected ones; the block is then unchanged.
pub(crate) fn remove(block: &mut [u8], offset: usize, previous: Option<usize>) -> Checked<()> {
    let entry = entry_at(block, offset)?;
    let length = entry.length;
    let Some(previous) = previous else {
        put_free(block, offset, length);
        return Ok(());
    };
    let before = entry_at(block, previous)?;
    if previous + before.length != offset {
        return Err(Flaw::RecordChanged);
    }
    let whole = before.length + length;
    set_length(block, previous, whole);
    set_inode(block, offset, InodeNo(0), EntryKind::UNKNOWN);
    Ok(())
}

/// Replaces the content of a block from `start` on by one free record.
pub(crate) fn clear(block: &mut [u8], start: usize) {
    block[start..].fill(0);
    put_free(block, start, block.len() - start);
}

/// Returns the number of bytes that the live records of a block need without slack.
///
/// # Errors
/// Damage if a record is damaged.
pub(crate) fn live_bytes(block: &[u8]) -> Checked<usize> {
    Entries::of(block).try_fold(0, |sum, entry| {
        let entry = entry?;
        Ok(sum + if entry.is_live() { record_size(entry.name.len()) } else { 0 })
    })
}

/// A name with its inode and the kind of the inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEntry<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) inode: InodeNo,
    pub(crate) kind: EntryKind,
}

impl NewEntry<'_> {
    /// Returns the minimum size of the entry's record in bytes.
    pub(crate) fn size(&self) -> usize {
        record_size(self.name.len())
    }

    /// Inserts the entry into the first record with enough room; returns `false` if there is no
    /// such record.
    pub(crate) fn put_anywhere(&self, block: &mut [u8]) -> Checked<bool> {
        let room = Wanted::new(self.name).scan(block)?.room;
        match room {
            Some(offset) => self.put_at(block, offset).map(|()| true),
            None => Ok(false),
        }
    }

    pub(crate) fn put_at(&self, block: &mut [u8], offset: u32) -> Checked<()> {
        insert(block, offset as usize, self.name, self.inode, self.kind)
    }
}

/// Fills a block with records without slack; the last record gets the rest of the block.
pub(crate) struct Packer<'a> {
    block: &'a mut [u8],
    end: usize,
    last: Option<usize>,
}

impl<'a> Packer<'a> {
    /// Begins to fill a block, overwriting its content.
    pub(crate) fn new(block: &'a mut [u8]) -> Self {
        Self { block, end: 0, last: None }
    }

    /// Appends a record. The caller has checked that it fits.
    pub(crate) fn push(&mut self, inode: InodeNo, kind: EntryKind, name: &[u8]) {
        let size = record_size(name.len());
        put(self.block, self.end, size, inode, kind, name);
        self.last = Some(self.end);
        self.end += size;
    }

    /// Appends the live records. The caller has checked that they fit.
    pub(crate) fn push_all<'b>(
        &mut self,
        entries: impl Iterator<Item = Checked<Entry<'b>>>,
    ) -> Checked<()> {
        for entry in entries {
            let entry = entry?;
            if let Some(inode) = entry.inode.filter(|_| entry.is_live()) {
                self.push(inode, entry.kind, entry.name);
            }
        }
        Ok(())
    }

    /// Extends the last record to the end of the block, with zeros as slack.
    pub(crate) fn finish(self) {
        let Self { block, end, last } = self;
        block[end..].fill(0);
        match last {
            Some(last) => set_length(block, last, block.len() - last),
            None => clear(block, 0),
        }
    }
}

/// The result of searching one block for a name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scan {
    /// The record of the name.
    pub(crate) found: Option<Spot>,
    /// The first record with room for the name, in the part of the block that was searched.
    pub(crate) room: Option<u32>,
}

/// A record that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) inode: InodeNo,
    pub(crate) kind: EntryKind,
    /// The offset of the record in its block, in bytes.
    pub(crate) offset: u32,
    /// The offset of the previous record in the block.
    pub(crate) previous: Option<u32>,
}

/// A name prepared for many comparisons. Comparing the length and the last 4 bytes first rejects
/// most other names.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    name: &'a [u8],
    tail: [u8; 4],
}

/// Reads every cache line of a block once, so that the lines are loaded in parallel. Following the
/// chain of records in an uncached block would wait for each line in turn.
#[inline]
fn touch(block: &[u8]) {
    const LINE: usize = 64;
    std::hint::black_box(block.iter().step_by(LINE).fold(0, |sum, byte| sum ^ byte));
}

impl<'a> Wanted<'a> {
    pub(crate) fn new(name: &'a [u8]) -> Self {
        Self { name, tail: name.last_chunk().copied().unwrap_or_default() }
    }

    pub(crate) fn name(&self) -> &'a [u8] {
        self.name
    }

    #[inline]
    fn is(&self, other: &[u8]) -> bool {
        other.len() == self.name.len()
            && other.last_chunk::<4>().is_none_or(|tail| *tail == self.tail)
            && other == self.name
    }

    /// Searches a block for the name and for a record with room for it.
    #[inline]
    pub(crate) fn scan(&self, block: &[u8]) -> Checked<Scan> {
        touch(block);
        let need = record_size(self.name.len());
        let mut scan = Scan::default();
        let mut previous = None;
        for entry in Entries::of(block) {
            let entry = entry?;
            if self.is(entry.name)
                && let Some(inode) = entry.inode
            {
                let offset = entry.offset as u32;
                scan.found = Some(Spot { inode, kind: entry.kind, offset, previous });
                return Ok(scan);
            }
            previous = Some(entry.offset as u32);
            if scan.room.is_none() && entry.room() >= need {
                scan.room = previous;
            }
        }
        Ok(scan)
    }
}
