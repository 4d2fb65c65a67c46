//! Predicts which ranges of an object a reader reads, from the sizes of the object's parts. Plans
//! of commands use it; a test compares it with the reader.

use std::ops::Range;

use super::reader::{END_BYTES_MAX, START_BYTES};
use crate::stored::Attributes;
use crate::stored::format::{
    BLOCK_BYTES, CHUNK_BYTES, EntryRecord, HeadRecord, PAGE_ENTRIES, SourceRecord, TailRecord,
    blocks_of,
};

const HEAD_BYTES: u64 = size_of::<HeadRecord>() as u64;
const TAIL_BYTES: u64 = size_of::<TailRecord>() as u64;
const ENTRY_BYTES: u64 = size_of::<EntryRecord>() as u64;
const HASH_BYTES: u64 = 32;
const SOURCE_BYTES: u64 = size_of::<SourceRecord>() as u64;

/// The sizes of an object's parts. Offsets are relative to the object's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Length of the encoded attributes in bytes.
    attributes: u64,
    /// Offset of the table of blocks.
    table: u64,
    size: u64,
    /// Number of sources.
    sources: u64,
    /// Whether the stored blocks are known: none of them is compressed or missing.
    is_raw: bool,
}

impl Shape {
    /// Returns the largest shape of a new object. `data_bytes` are the bytes of its blocks that may
    /// contain other bytes than zeros.
    pub(crate) fn of_new(attributes: &Attributes, size: u64, data_bytes: u64) -> Self {
        let mut encoded = Vec::new();
        attributes.encode(&mut encoded);
        let attributes = encoded.len() as u64;
        let table = HEAD_BYTES + attributes + data_bytes;
        Self { attributes, table, size, sources: 0, is_raw: data_bytes == size }
    }

    /// Returns the shape of an archived object with this number of sources. An object that is long
    /// enough for its size is not compressed. The attributes of a compressed object are assumed to
    /// be short.
    pub(crate) fn of_archived(length: u64, size: u64, sources: usize) -> Self {
        let sources = sources as u64;
        let table = length.saturating_sub(end_bytes(sources) + table_bytes(size));
        let mut least = Vec::new();
        Attributes::default().encode(&mut least);
        let beside_data = table.saturating_sub(HEAD_BYTES + size);
        let is_raw = sources == 0 && beside_data >= least.len() as u64;
        let attributes = if is_raw { beside_data } else { least.len() as u64 };
        Self { attributes, table, size, sources, is_raw }
    }

    /// Returns the length of the object in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.table + table_bytes(self.size) + end_bytes(self.sources)
    }

    /// Returns the stored bytes of all blocks.
    fn data_bytes(&self) -> u64 {
        self.table.saturating_sub(HEAD_BYTES + self.attributes)
    }

    fn is_short(&self) -> bool {
        self.length() <= END_BYTES_MAX
    }

    /// Returns the start of the part at the end that is read when the object is opened.
    fn end_start(&self) -> u64 {
        self.length().saturating_sub(END_BYTES_MAX)
    }

    /// Returns the ranges that are read when the object is opened.
    pub(crate) fn opening_reads(&self) -> Vec<Range<u64>> {
        let end = self.end_start()..self.length();
        if self.is_short() {
            return vec![end];
        }
        let sources = self.length() - end_bytes(self.sources);
        let later = [
            HEAD_BYTES..HEAD_BYTES + self.attributes,
            sources - hashes_bytes(self.size)..sources,
            sources..self.length() - TAIL_BYTES,
        ];
        let start = 0..START_BYTES;
        let is_read = |part: &Range<u64>| {
            [&start, &end].iter().any(|read| read.start <= part.start && part.end <= read.end)
        };
        let later: Vec<_> =
            later.into_iter().filter(|part| !part.is_empty() && !is_read(part)).collect();
        [start.clone(), end.clone()].into_iter().chain(later).collect()
    }

    /// Returns whether a range needs no read, because the part at the end was kept and contains it.
    fn is_kept(&self, place: &Range<u64>) -> bool {
        self.end_start() <= self.table && self.end_start() <= place.start
    }

    /// Returns the ranges of the table that are read for blocks, each page once.
    pub(crate) fn page_reads(
        &self,
        blocks: impl Iterator<Item = u64>,
    ) -> impl Iterator<Item = Range<u64>> {
        let (mut last, shape) = (None, *self);
        let pages = blocks.map(|block| block / PAGE_ENTRIES);
        let pages = pages.filter(move |page| last.replace(*page) != Some(*page));
        pages.map(move |page| shape.page(page)).filter(move |page| !shape.is_kept(page))
    }

    fn page(&self, page: u64) -> Range<u64> {
        let first = page * PAGE_ENTRIES;
        let entries = blocks_of(self.size).saturating_sub(first).min(PAGE_ENTRIES);
        let start = self.table + first * ENTRY_BYTES;
        start..start + entries * ENTRY_BYTES
    }

    /// Returns the ranges that are read for blocks, in ascending order. If the object is
    /// compressed or has sources, their number and total length are upper bounds, and their offsets
    /// are arbitrary.
    pub(crate) fn block_reads(
        &self,
        blocks: impl Iterator<Item = u64>,
    ) -> impl Iterator<Item = Range<u64>> {
        let has_sources = self.sources > 0;
        let (shape, mut left) = (*self, if has_sources { self.size } else { self.data_bytes() });
        let (last, has_data) = (blocks_of(self.size).saturating_sub(1), left > 0);
        blocks.filter_map(move |block| {
            let length = (shape.size - block * BLOCK_BYTES).min(BLOCK_BYTES);
            if shape.is_raw {
                let start = HEAD_BYTES + shape.attributes + block * BLOCK_BYTES;
                let place = start..start + length;
                return (!shape.is_kept(&place)).then_some(place);
            }
            let stored = length.min(left);
            left -= stored;
            // The last block is kept for certain if it would be kept without compression.
            let least_start = shape.table.saturating_sub(length);
            let is_last_kept = block == last && shape.is_kept(&(least_start..shape.table));
            let is_kept = !has_sources && (shape.is_short() || is_last_kept);
            // At this offset the range overlaps as many encrypted chunks as possible.
            let place = CHUNK_BYTES - 1..CHUNK_BYTES - 1 + stored.max(1);
            (has_data && !is_kept).then_some(place)
        })
    }

    /// Returns the least number of reads, and of bytes, for all blocks.
    pub(crate) fn least_block_reads(&self) -> (u64, u64) {
        if self.is_raw {
            let reads = self.block_reads(0..blocks_of(self.size));
            return reads
                .fold((0, 0), |(reads, bytes), read| (reads + 1, bytes + (read.end - read.start)));
        }
        let beyond = match self.is_short() {
            true => 0,
            false => self.data_bytes().saturating_sub(END_BYTES_MAX),
        };
        (beyond / BLOCK_BYTES, beyond)
    }
}

/// Returns the length of the sources and the tail.
fn end_bytes(sources: u64) -> u64 {
    sources * SOURCE_BYTES + TAIL_BYTES
}

/// Returns the length of the table of blocks, with the hashes of its pages.
fn table_bytes(size: u64) -> u64 {
    blocks_of(size) * ENTRY_BYTES + hashes_bytes(size)
}

fn hashes_bytes(size: u64) -> u64 {
    blocks_of(size).div_ceil(PAGE_ENTRIES) * HASH_BYTES
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use fslab_vfs::Timestamp;

    use super::*;
    use crate::archive::testing::MemoryArchive;
    use crate::archive::{Archive, ContainerKind};
    use crate::id::Id;
    use crate::object::reader::ObjectReader;
    use crate::object::writer::{BlockEncoder, Heading, ObjectWriter};
    use crate::stored::Location;
    use crate::stored::format::KIND_FILE;

    /// Returns the number of reads and of bytes that opening an object and reading all of its
    /// blocks causes, and the length of the object.
    fn read_all(contents: &[u8], attributes: &Attributes, level: i32) -> (u64, u64, u64) {
        let (mut bytes, mut encoder) = (Vec::new(), BlockEncoder::new(level));
        let heading = Heading {
            kind: KIND_FILE,
            object: Id([4; 16]),
            file: Id([2; 16]),
            tier: Id([3; 16]),
            sequence: 1,
            size: contents.len() as u64,
            created: Timestamp::default(),
            may_have_sources: false,
        };
        let writer = ObjectWriter::begin(&mut bytes, &heading, attributes, &mut encoder);
        let mut writer = writer.unwrap();
        contents.chunks(BLOCK_BYTES as usize).for_each(|block| writer.block(block).unwrap());
        let (length, _root) = writer.finish().unwrap();
        let archive = Arc::new(MemoryArchive::new(Id([1; 16]), "memory"));
        let location = Location { container: Id([4; 16]), offset: 0, length };
        archive.put((ContainerKind::Files, location.container), bytes);
        let shared: Arc<dyn Archive> = Arc::clone(&archive) as _;
        let reader = ObjectReader::open_any(&shared, ContainerKind::Files, location).unwrap();
        (0..reader.blocks()).for_each(|block| drop(reader.block(block).unwrap()));
        let faults = archive.faults();
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::SeqCst);
        (read(&faults.reads), read(&faults.bytes_read), length)
    }

    fn planned(shape: &Shape) -> (u64, u64) {
        let blocks = || 0..blocks_of(shape.size);
        let reads = shape.opening_reads().into_iter();
        let reads = reads.chain(shape.page_reads(blocks())).chain(shape.block_reads(blocks()));
        reads.fold((0, 0), |(reads, bytes), read| (reads + 1, bytes + read.end - read.start))
    }

    /// Bytes without a pattern, which are not compressed.
    fn noise(length: usize) -> Vec<u8> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"noise");
        let mut bytes = vec![0; length];
        hasher.finalize_xof().fill(&mut bytes);
        bytes
    }

    fn with_xattr(bytes: usize) -> Attributes {
        let xattrs = vec![(b"user.large".to_vec(), vec![7; bytes])];
        Attributes { mode: 0o100_644, xattrs, ..Attributes::default() }
    }

    #[test]
    fn planned_reads_are_the_reads_of_the_reader() {
        let block = BLOCK_BYTES as usize;
        let sizes = [0, 1, 60_000, 65_000, 66_000, block, block + 9, 3 * block + 70_000];
        for size in sizes {
            for xattr in [0, 3000, 5000, 70_000] {
                let (attributes, contents) = (with_xattr(xattr), noise(size));
                let (reads, bytes, length) = read_all(&contents, &attributes, 3);
                let size = size as u64;
                let new = Shape::of_new(&attributes, size, size);
                let archived = Shape::of_archived(length, size, 0);
                assert_eq!(new.length(), length, "{size}, {xattr}");
                for shape in [new, archived] {
                    assert_eq!(planned(&shape), (reads, bytes), "{size}, {xattr}");
                }
                let (least, least_bytes) = archived.least_block_reads();
                assert!(least <= reads && least_bytes <= bytes, "{size}, {xattr}");
            }
        }
    }

    #[test]
    fn planned_reads_of_compressed_objects_are_upper_bounds() {
        let block = BLOCK_BYTES as usize;
        for size in [1, 60_000, 70_000, block + 9, 5 * block + 70_000] {
            let mut contents = noise(size);
            contents.iter_mut().skip(1).step_by(2).for_each(|byte| *byte = 0);
            contents[size / 2..].fill(7);
            let attributes = with_xattr(10);
            let (reads, bytes, length) = read_all(&contents, &attributes, 3);
            let size = size as u64;
            let new = Shape::of_new(&attributes, size, size);
            assert!(new.length() >= length);
            let archived = Shape::of_archived(length, size, 0);
            for shape in [new, archived] {
                let (most, most_bytes) = planned(&shape);
                assert!(most >= reads && most_bytes >= bytes, "{size}: {most} {most_bytes}");
                // Opening an object reads parts that may overlap its blocks.
                assert!(most_bytes <= shape.length() + (80 << 10), "{size}: {most_bytes}");
            }
            let (least, least_bytes) = archived.least_block_reads();
            assert!(least <= reads && least_bytes <= bytes, "{size}: {least} {least_bytes}");
        }
    }
}
