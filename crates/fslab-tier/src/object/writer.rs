//! Writes an object in one pass: head, attributes, blocks, table of blocks, tail.

use fslab_vfs::Timestamp;
use zerocopy::IntoBytes;

use crate::id::Id;
use crate::parallel::in_shares;
use crate::spool::Spool;
use crate::stored::attributes::Attributes;
use crate::stored::format::{
    BLOCK_BYTES, BLOCK_LOG2, EntryRecord, FORM_RAW, FORM_ZEROS, FORM_ZSTD, HEAD_MAGIC, HeadRecord,
    PAGE_ENTRIES, SOURCES_MAX, SourceRecord, TAIL_MAGIC, TailRecord, VERSION, VERSION_WITH_SOURCES,
    crc_of,
};

/// The destination of an object: all archives that receive a copy.
pub trait Sink {
    /// Appends bytes to every copy.
    ///
    /// # Errors
    /// Errors of an archive.
    fn put(&mut self, bytes: &[u8]) -> crate::Result<()>;
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) -> crate::Result<()> {
        self.extend(bytes);
        Ok(())
    }
}

/// The fixed properties of an object.
#[derive(Clone, Debug)]
pub struct Heading {
    /// `KIND_FILE`, `KIND_TREE` or `KIND_BUNDLE` of the format.
    pub kind: u8,
    /// The identity of the object.
    pub object: Id,
    /// The identity of the file.
    pub file: Id,
    /// The identity of the tier.
    pub tier: Id,
    /// The sequence number; it increases with each object.
    pub sequence: u64,
    /// Size of the contents in bytes.
    pub size: u64,
    /// The creation time of the object.
    pub created: Timestamp,
    /// Whether the object may have sources.
    pub may_have_sources: bool,
}

/// An object that is being written. Keeps in memory one page and one block of the object's table,
/// and the hashes of the table's pages (32 bytes per GiB of contents). The rest of the table is in
/// a temporary file.
pub struct ObjectWriter<'a> {
    sink: &'a mut dyn Sink,
    hasher: blake3::Hasher,
    /// Complete pages of the table.
    table: Spool,
    /// The hash of each complete page.
    page_hashes: Vec<u8>,
    /// The last page of the table, which is incomplete.
    page: Vec<u8>,
    blocks: u64,
    /// Number of bytes written so far.
    position: u64,
    /// The objects that contain blocks to which this object refers.
    sources: Vec<SourceRecord>,
    encoder: &'a mut BlockEncoder,
}

/// A block in another object, to which an object can refer.
#[derive(Clone, Copy, Debug)]
pub struct Referred {
    /// The object that contains the block.
    pub source: SourceRecord,
    /// The block's entry in the table of an object.
    pub entry: EntryRecord,
}

/// Compresses blocks. Allocating its state, at the first block, takes longer than compressing a
/// small file, so the objects of a bundle share one encoder.
pub struct BlockEncoder {
    level: i32,
    compressor: Option<zstd::bulk::Compressor<'static>>,
}

/// The encoding of a block.
struct Encoded {
    form: u8,
    /// The compressed bytes; `None` if the block is stored as it is, or contains only zeros.
    compressed: Option<Vec<u8>>,
    length: u64,
    hash: [u8; 32],
}

/// Maximum number of blocks that are encoded in parallel. A writer needs the memory of these
/// blocks, and an encoder for each thread.
pub const BATCH_BLOCKS: usize = 8;

impl BlockEncoder {
    /// Makes an encoder with a zstd level; 0 for no compression.
    #[must_use]
    pub fn new(level: i32) -> Self {
        Self { level, compressor: None }
    }

    /// Returns an encoder that does not compress.
    #[must_use]
    pub fn raw() -> Self {
        Self::new(0)
    }

    /// Compresses a block. Returns `None` if this saves less than a sixteenth of its size, which
    /// does not justify the time for decoding.
    fn compress(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        if self.level == 0 {
            return None;
        }
        let compressor = match self.compressor.take() {
            Some(compressor) => compressor,
            None => zstd::bulk::Compressor::new(self.level).ok()?,
        };
        let encoded = self.compressor.insert(compressor).compress(bytes);
        encoded.ok().filter(|encoded| encoded.len() + bytes.len() / 16 < bytes.len())
    }

    fn encode(&mut self, bytes: &[u8]) -> Encoded {
        let length = bytes.len() as u64;
        if is_zero(bytes) {
            return Encoded::zeros(length);
        }
        let compressed = self.compress(bytes);
        let form = if compressed.is_some() { FORM_ZSTD } else { FORM_RAW };
        Encoded { form, compressed, length, hash: *blake3::hash(bytes).as_bytes() }
    }
}

impl Encoded {
    fn zeros(length: u64) -> Self {
        Self { form: FORM_ZEROS, compressed: None, length, hash: [0; 32] }
    }
}

impl<'a> ObjectWriter<'a> {
    /// Begins an object.
    ///
    /// # Errors
    /// Errors of the sink.
    pub fn begin(
        sink: &'a mut dyn Sink,
        heading: &Heading,
        attributes: &Attributes,
        encoder: &'a mut BlockEncoder,
    ) -> crate::Result<Self> {
        let mut described = Vec::new();
        attributes.encode(&mut described);
        let head = head(heading, described.len());
        let mut hasher = blake3::Hasher::new();
        hasher.update(head.as_bytes());
        hasher.update(&described);
        let (table, page_hashes, page) = (Spool::default(), Vec::new(), Vec::new());
        let (blocks, position, sources) = (0, 0, Vec::new());
        let mut writer =
            Self { sink, hasher, table, page_hashes, page, blocks, position, sources, encoder };
        writer.put(head.as_bytes())?;
        writer.put(&described)?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> crate::Result<()> {
        self.position += bytes.len() as u64;
        self.sink.put(bytes)
    }

    /// Adds the next block. All blocks except the last have [`BLOCK_BYTES`] bytes.
    ///
    /// # Errors
    /// Errors of the sink, or of the file system for temporary files.
    pub fn block(&mut self, bytes: &[u8]) -> crate::Result<()> {
        let encoded = self.encoder.encode(bytes);
        self.append(&encoded, bytes)
    }

    /// Adds the next blocks, at most [`BATCH_BLOCKS`], which are encoded in parallel.
    ///
    /// # Errors
    /// Like [`Self::block`].
    pub fn blocks(&mut self, blocks: &mut [Vec<u8>]) -> crate::Result<()> {
        if let [block] = blocks {
            return self.block(block);
        }
        let level = self.encoder.level;
        let shares = in_shares(blocks, 2, |share| {
            let mut encoder = BlockEncoder::new(level);
            share.iter().map(|block| encoder.encode(block)).collect::<Vec<_>>()
        });
        let encoded = shares.into_iter().flatten();
        encoded.zip(blocks).try_for_each(|(encoded, block)| self.append(&encoded, block))
    }

    /// Adds a block of zeros.
    ///
    /// # Errors
    /// Errors of the file system for temporary files.
    pub fn zeros(&mut self, length: u64) -> crate::Result<()> {
        self.append(&Encoded::zeros(length), &[])
    }

    /// Adds a block that another object contains.
    ///
    /// # Errors
    /// If the object would have more than [`SOURCES_MAX`] sources; errors of the file system for
    /// temporary files.
    pub fn refer(&mut self, block: &Referred) -> crate::Result<()> {
        let known = self.sources.iter().position(|source| *source == block.source);
        let number = known.unwrap_or(self.sources.len());
        if number == SOURCES_MAX {
            let what = "an object would have too many sources".to_owned();
            return Err(crate::Error::Refused { what });
        }
        if known.is_none() {
            self.sources.push(block.source);
        }
        self.add(EntryRecord { source: number as u8 + 1, ..block.entry })
    }

    /// Returns the objects that contain blocks to which this object refers so far.
    #[must_use]
    pub fn sources(&self) -> &[SourceRecord] {
        &self.sources
    }

    fn append(&mut self, block: &Encoded, bytes: &[u8]) -> crate::Result<()> {
        let stored = match block.form {
            FORM_ZEROS => &[],
            _ => block.compressed.as_deref().unwrap_or(bytes),
        };
        self.enter(block, stored.len())?;
        if stored.is_empty() { Ok(()) } else { self.put(stored) }
    }

    fn enter(&mut self, block: &Encoded, stored: usize) -> crate::Result<()> {
        let Encoded { form, length, hash, .. } = *block;
        self.add(EntryRecord {
            offset: self.position.into(),
            stored_length: (stored as u32).into(),
            length: (length.min(BLOCK_BYTES) as u32).into(),
            form,
            source: 0,
            zero: [0; 6],
            hash,
        })
    }

    fn add(&mut self, entry: EntryRecord) -> crate::Result<()> {
        self.page.extend(entry.as_bytes());
        self.blocks += 1;
        if self.blocks.is_multiple_of(PAGE_ENTRIES) { self.end_page() } else { Ok(()) }
    }

    fn end_page(&mut self) -> crate::Result<()> {
        self.page_hashes.extend(blake3::hash(&self.page).as_bytes());
        self.table.put(&self.page)?;
        self.page.clear();
        Ok(())
    }

    /// Ends the object. Returns its length, and the hash of its head, attributes, page hashes and
    /// sources.
    ///
    /// # Errors
    /// Errors of the sink, or of the file system for temporary files.
    pub fn finish(mut self) -> crate::Result<(u64, [u8; 32])> {
        if !self.page.is_empty() {
            self.end_page()?;
        }
        let table_offset = self.position;
        let mut table = std::mem::take(&mut self.table);
        table.blocks(&mut |bytes| self.put(bytes))?;
        let hashes = std::mem::take(&mut self.page_hashes);
        let sources = std::mem::take(&mut self.sources);
        for part in [&hashes[..], sources.as_bytes()] {
            self.put(part)?;
            self.hasher.update(part);
        }
        let root = *self.hasher.finalize().as_bytes();
        let mut tail = TailRecord {
            magic: TAIL_MAGIC,
            length: (self.position + size_of::<TailRecord>() as u64).into(),
            table_offset: table_offset.into(),
            blocks: self.blocks.into(),
            root,
            sources: (sources.len() as u32).into(),
            crc: 0.into(),
        };
        tail.crc = crc_of(tail.as_bytes()).into();
        self.put(tail.as_bytes())?;
        Ok((self.position, root))
    }
}

fn head(heading: &Heading, attributes_length: usize) -> HeadRecord {
    let mut head = HeadRecord {
        magic: HEAD_MAGIC,
        kind: heading.kind,
        version: if heading.may_have_sources { VERSION_WITH_SOURCES } else { VERSION },
        block_log2: BLOCK_LOG2,
        zero: 0,
        attributes_length: (attributes_length as u32).into(),
        object: heading.object.0,
        file: heading.file.0,
        tier: heading.tier.0,
        sequence: heading.sequence.into(),
        size: heading.size.into(),
        created_seconds: heading.created.seconds.into(),
        created_nanoseconds: heading.created.nanoseconds.into(),
        crc: 0.into(),
    };
    head.crc = crc_of(head.as_bytes()).into();
    head
}

/// Returns whether all bytes are zero; compares words of 16 bytes.
#[must_use]
pub fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use fslab_vfs::{FileSystem, MemFs};

    use super::*;
    use crate::archive::testing::MemoryArchive;
    use crate::archive::{Archive, ContainerKind};
    use crate::lower::Found;
    use crate::object::reader::ObjectReader;
    use crate::stored::Location;
    use crate::stored::format::KIND_FILE;

    const KIND: ContainerKind = ContainerKind::Files;
    const CONTAINER: Id = Id([4; 16]);
    /// Number of blocks for which the object's table is slightly longer than three blocks.
    const BLOCKS: u64 = 60_000;

    fn heading(size: u64) -> Heading {
        Heading {
            kind: KIND_FILE,
            object: CONTAINER,
            file: Id([2; 16]),
            tier: Id([3; 16]),
            sequence: 1,
            size,
            created: Timestamp::default(),
            may_have_sources: false,
        }
    }

    fn attributes() -> Attributes {
        let memory: Arc<dyn FileSystem> = Arc::new(MemFs::default());
        Attributes::of(&Found::root(&memory).unwrap().attr)
    }

    /// Makes an archive with one container, and returns the location of its object.
    fn archive_of(bytes: Vec<u8>) -> (Arc<MemoryArchive>, Location) {
        let location = Location { container: CONTAINER, offset: 0, length: bytes.len() as u64 };
        let archive = MemoryArchive::new(Id([1; 16]), "memory");
        archive.put((KIND, CONTAINER), bytes);
        (Arc::new(archive), location)
    }

    #[test]
    fn a_table_of_any_length_takes_little_memory() {
        let heading = heading(BLOCKS * BLOCK_BYTES);
        let mut bytes = Vec::new();
        let mut raw = BlockEncoder::raw();
        let mut writer =
            ObjectWriter::begin(&mut bytes, &heading, &attributes(), &mut raw).unwrap();
        for _ in 0..BLOCKS {
            writer.zeros(BLOCK_BYTES).unwrap();
            let kept = writer.page.len() + writer.table.memory_bytes() + writer.page_hashes.len();
            assert!(kept < BLOCK_BYTES as usize + (64 << 10), "{kept} bytes");
        }
        writer.finish().unwrap();
        let (archive, location) = archive_of(bytes);
        let archive: Arc<dyn Archive> = archive;
        let reader = ObjectReader::open_any(&archive, KIND, location).unwrap();
        assert_eq!(reader.blocks(), BLOCKS);
        (0..BLOCKS).for_each(|block| assert!(reader.is_zeros(block).unwrap(), "{block}"));
    }

    /// Each read of a remote archive is a round trip, so opening an object and reading its first
    /// block must take few reads.
    #[test]
    fn first_block_takes_few_reads_of_the_archive() {
        // The number of blocks, the reads to open the object, and those to read its first block.
        for (blocks, opening, first) in [(1, 2, 1), (900, 2, 1), (BLOCKS, 2, 2)] {
            let mut bytes = Vec::new();
            let heading = heading(blocks * BLOCK_BYTES);
            let mut raw = BlockEncoder::raw();
            let mut writer =
                ObjectWriter::begin(&mut bytes, &heading, &attributes(), &mut raw).unwrap();
            let block = vec![7; BLOCK_BYTES as usize];
            writer.block(&block).unwrap();
            (1..blocks).for_each(|_| writer.zeros(BLOCK_BYTES).unwrap());
            writer.finish().unwrap();
            let (archive, location) = archive_of(bytes);
            let reads = || archive.faults().reads.load(Ordering::SeqCst);
            let shared: Arc<dyn Archive> = Arc::clone(&archive) as _;
            let reader = ObjectReader::open_any(&shared, KIND, location).unwrap();
            assert_eq!(reads(), opening, "{blocks} blocks");
            assert!(reader.block(0).unwrap() == block);
            assert_eq!(reads() - opening, first, "{blocks} blocks");
        }
    }

    /// Opening a small object reads all of it, so reading its block needs no further read.
    #[test]
    fn small_object_takes_one_read_of_the_archive() {
        let (mut bytes, text) = (Vec::new(), b"a small file".repeat(100));
        let heading = heading(text.len() as u64);
        let mut raw = BlockEncoder::raw();
        let mut writer =
            ObjectWriter::begin(&mut bytes, &heading, &attributes(), &mut raw).unwrap();
        writer.block(&text).unwrap();
        writer.finish().unwrap();
        let (archive, location) = archive_of(bytes);
        let shared: Arc<dyn Archive> = Arc::clone(&archive) as _;
        let reader = ObjectReader::open_any(&shared, KIND, location).unwrap();
        assert!(reader.block(0).unwrap() == text);
        assert_eq!(archive.faults().reads.load(Ordering::SeqCst), 1);
    }
}
