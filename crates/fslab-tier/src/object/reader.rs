//! Reads an object. A byte is returned only after its block was checked.
//!
//! The hash in the file's residency covers the head, the attributes and the hashes of the table's
//! pages. A page contains the hashes of its blocks. So checking one block needs only one page of 56
//! KiB, for files of any size.

use fslab_vfs::Timestamp;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

use super::piece::Piece;
use super::prefetch::{PlannedReads, Prefetched};
use super::writer::{Heading, Referred, is_zero};
use crate::archive::{Archive, Container, ContainerKind};
use crate::error::Error;
use crate::id::Id;
use crate::stored::attributes::Attributes;
use crate::stored::bytes::{Corrupt, Cursor, Result};
use crate::stored::format::{
    ATTRIBUTES_BYTES_MAX, BLOCK_BYTES, BLOCK_LOG2, EntryRecord, FORM_RAW, FORM_ZEROS, FORM_ZSTD,
    HEAD_MAGIC, HeadRecord, KIND_FILE, PAGE_ENTRIES, PAGES_MAX, SIZE_MAX, SOURCES_MAX,
    STORED_BLOCK_BYTES_MAX, SourceRecord, TAIL_MAGIC, TailRecord, VERSION, VERSION_WITH_SOURCES,
    blocks_of, crc_of,
};
use crate::stored::residency::{Location, Version};

/// Objects up to this size are read by one call, because each call is a round trip to the archive.
/// When a larger object is opened, this many bytes at its end are read. They usually contain the
/// hashes of the table's pages, and often the whole table.
pub(crate) const END_BYTES_MAX: u64 = 64 << 10;

/// Number of bytes that are read at the beginning of an object. They usually contain all of its
/// attributes.
pub(crate) const START_BYTES: u64 = 4 << 10;

/// An object in an archive.
pub struct ObjectReader {
    archive: Arc<dyn Archive>,
    kind: ContainerKind,
    location: Location,
    /// The end of the object, if it contains the whole table. For a small object, this is the whole
    /// object.
    end: Option<Piece>,
    heading: Heading,
    attributes: Attributes,
    root: [u8; 32],
    table_offset: u64,
    blocks: u64,
    page_hashes: Vec<u8>,
    /// The objects that contain the blocks that this object does not contain.
    sources: Vec<SourceRecord>,
    /// The most recently read and checked page of the table, with its number.
    page: Mutex<Option<(u64, Arc<Vec<u8>>)>>,
}

/// The length of a block and the hash of its bytes, from the table of its object.
pub(crate) struct BlockSum {
    length: usize,
    /// `None` for a block of zeros.
    hash: Option<[u8; 32]>,
}

impl BlockSum {
    /// Returns whether these are the bytes of the block.
    pub(crate) fn is_of(&self, bytes: &[u8]) -> bool {
        let is_same = |hash: [u8; 32]| *blake3::hash(bytes).as_bytes() == hash;
        bytes.len() == self.length && self.hash.map_or_else(|| is_zero(bytes), is_same)
    }
}

/// Reads a container of one archive. Errors contain the label of the archive.
pub(super) struct Source<'a> {
    pub(super) archive: &'a Arc<dyn Archive>,
    pub(super) container: Container,
    /// Parts that were already read.
    pieces: Vec<&'a Piece>,
}

impl<'a> Source<'a> {
    pub(super) fn of(archive: &'a Arc<dyn Archive>, container: Container) -> Self {
        Self { archive, container, pieces: Vec::new() }
    }

    pub(super) fn read(&self, offset: u64, length: usize) -> crate::Result<Vec<u8>> {
        if let Some(bytes) = self.pieces.iter().find_map(|piece| piece.get(offset, length)) {
            return Ok(bytes.to_vec());
        }
        let mut bytes = vec![0; length];
        let read = self.archive.read(self.container, offset, &mut bytes);
        match read {
            Ok(count) if count == length => Ok(bytes),
            Ok(_) => {
                Err(self
                    .damaged(Corrupt("the archive returned fewer bytes than the container has")))
            }
            Err(source) => Err(self.failed(source)),
        }
    }

    fn failed(&self, source: std::io::Error) -> Error {
        Error::archive(self.archive.label(), self.container.1)(source)
    }

    pub(super) fn damaged(&self, what: Corrupt) -> Error {
        Error::damaged(self.archive.label(), self.container.1, what)
    }
}

impl ObjectReader {
    /// Opens the object of a version of a file, and checks that it is this version.
    ///
    /// # Errors
    /// Errors of the archive, or damage to the object.
    pub fn open(archive: &Arc<dyn Archive>, version: &Version) -> crate::Result<Self> {
        Self::open_prefetched(archive, version, &Prefetched::default())
    }

    /// Like [`Self::open`], for a caller that will read blocks. An object with one block is read as
    /// a whole, by one call.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub(crate) fn open_to_read(
        archive: &Arc<dyn Archive>,
        version: &Version,
    ) -> crate::Result<Self> {
        let container = version.location.container;
        let parts = whole_to_read(version).map(|whole| (Arc::clone(archive), container, whole));
        Self::open_prefetched(archive, version, &PlannedReads::of(parts).read(false, || false))
    }

    /// Like [`Self::open`], without reading the parts that were read before.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub(crate) fn open_prefetched(
        archive: &Arc<dyn Archive>,
        version: &Version,
        prefetched: &Prefetched,
    ) -> crate::Result<Self> {
        let location = version.location;
        let reader = Self::open_at(archive, ContainerKind::Files, location, prefetched)?;
        if reader.root != version.root || reader.heading.object != version.object {
            return Err(reader.damaged(Corrupt("it is not the version that was archived")));
        }
        Ok(reader)
    }

    /// Like [`Self::open`], and checks that the archive has all sources of the object.
    ///
    /// # Errors
    /// Errors of the archive, or damage to the object or a source.
    pub fn open_complete(archive: &Arc<dyn Archive>, version: &Version) -> crate::Result<Self> {
        let reader = Self::open(archive, version)?;
        reader.check_sources().map(|()| reader)
    }

    /// Returns whether each archive lacks a version, or one of its sources. Returns `false` if an
    /// archive can't be asked.
    pub(crate) fn is_lost_in(archives: &[Arc<dyn Archive>], version: &Version) -> bool {
        archives.iter().all(|archive| {
            Self::open_complete(archive, version).is_err_and(|error| error.is_missing_object())
        })
    }

    /// Opens an object by its location alone, without checking its version.
    ///
    /// # Errors
    /// Errors of the archive, or damage to the object.
    pub fn open_any(
        archive: &Arc<dyn Archive>,
        kind: ContainerKind,
        location: Location,
    ) -> crate::Result<Self> {
        Self::open_at(archive, kind, location, &Prefetched::default())
    }

    fn open_at(
        archive: &Arc<dyn Archive>,
        kind: ContainerKind,
        location: Location,
        prefetched: &Prefetched,
    ) -> crate::Result<Self> {
        let container = (kind, location.container);
        let known = |place: &Range<u64>| prefetched.get(archive.id(), location.container, place);
        let [start, end] = match location.range().and_then(|whole| known(&whole)) {
            Some(whole) => [None, Some(whole)],
            None => ends_of(location).map(|place| {
                let place = place?;
                known(&place).or_else(|| Piece::read(&**archive, container, place))
            }),
        };
        let pieces = start.iter().chain(&end).collect();
        let source = Source { pieces, ..Source::of(archive, container) };
        let tail = read_tail(&source, location.offset.saturating_add(location.length))?;
        let damaged = |what| source.damaged(what);
        if tail.length.get() != location.length {
            return Err(damaged(Corrupt("its length differs from the recorded one")));
        }
        let head_bytes = source.read(location.offset, size_of::<HeadRecord>())?;
        let (heading, attributes_length) = parse_head(&head_bytes).map_err(damaged)?;
        let layout = Layout::new(&tail, &heading, attributes_length).map_err(damaged)?;
        let described = source
            .read(location.offset + size_of::<HeadRecord>() as u64, attributes_length as usize)?;
        let hashes_offset = location.offset + layout.hashes_offset;
        let page_hashes = source.read(hashes_offset, layout.hashes_length)?;
        let sources =
            source.read(hashes_offset + layout.hashes_length as u64, layout.sources_length)?;
        let mut hasher = blake3::Hasher::new();
        for part in [&head_bytes, &described, &page_hashes, &sources] {
            hasher.update(part);
        }
        let root = *hasher.finalize().as_bytes();
        if root != tail.root {
            return Err(damaged(Corrupt("its description or table of blocks is damaged")));
        }
        let attributes = Attributes::decode(&mut Cursor(&described)).map_err(damaged)?;
        let sources = <[SourceRecord]>::ref_from_bytes(&sources)
            .or(Err(damaged(Corrupt("its list of sources is cut short"))))?
            .to_vec();
        let table = location.offset + tail.table_offset.get();
        let end = end.filter(|end| end.offset <= table);
        Ok(Self {
            archive: Arc::clone(archive),
            kind,
            location,
            end,
            heading,
            attributes,
            root,
            table_offset: tail.table_offset.get(),
            blocks: tail.blocks.get(),
            page_hashes,
            sources,
            page: Mutex::new(None),
        })
    }

    /// Returns the file and the version of an object of a tier, which is known by its location.
    /// Asks all archives, so that the version lists each of them that has a copy with all sources;
    /// if there is none, each that has a copy. Also lists those with its container in cold storage.
    ///
    /// # Errors
    /// The error of an archive, if no archive has the object. It is a lack of the object only if no
    /// archive failed in another way.
    pub(crate) fn find_version(
        archives: &[Arc<dyn Archive>],
        (tier, object, location): (Id, Id, Location),
    ) -> crate::Result<(Id, Version)> {
        let mut known: Option<(Id, Version)> = None;
        // The archives that have the object, but not all of its sources.
        let mut incomplete = Vec::new();
        // The archives that have the container in cold storage.
        let mut cold = Vec::new();
        let mut problem = None;
        for archive in archives {
            let reader = match Self::open_any(archive, ContainerKind::Files, location) {
                Ok(reader) => reader,
                Err(error) if error.cold_container().is_some() => {
                    cold.push(archive.id());
                    problem = Some(error);
                    continue;
                }
                Err(error) if problem.is_none() || !error.is_missing_object() => {
                    problem = Some(error);
                    continue;
                }
                Err(_) => continue,
            };
            let heading = reader.heading();
            if (heading.object, heading.tier, heading.kind) != (object, tier, KIND_FILE) {
                problem = Some(reader.damaged(Corrupt("it is not the object that was archived")));
                continue;
            }
            let found = || Version { copies: Vec::new(), ..reader.version() };
            let (file, version) = known.get_or_insert_with(|| (heading.file, found()));
            if *file != heading.file || version.root != reader.root {
                continue;
            }
            match reader.check_sources() {
                Ok(()) => *version = version.clone().with_copies(&[archive.id()]),
                Err(_) => incomplete.push(archive.id()),
            }
        }
        let none = || Error::TooFewCopies { wanted: 1, found: 0, missing: Vec::new() };
        let (file, version) = known.ok_or_else(|| problem.unwrap_or_else(none))?;
        let has_none = version.copies.is_empty();
        let version = if has_none { version.with_copies(&incomplete) } else { version };
        Ok((file, version.with_copies(&cold)))
    }

    /// Returns a reader that reads each part from the archive, for callers that combine copies.
    pub(crate) fn without_cached_end(mut self) -> Self {
        self.end = None;
        self
    }

    /// Returns the heading of the object.
    #[must_use]
    pub fn heading(&self) -> &Heading {
        &self.heading
    }

    /// Returns the attributes of the file.
    #[must_use]
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Returns the object as a version of its file, with this archive as the only one that has a
    /// copy.
    #[must_use]
    pub fn version(&self) -> Version {
        Version {
            object: self.heading.object,
            location: self.location,
            size: self.heading.size,
            sequence: self.heading.sequence,
            modified: self.attributes.modified,
            root: self.root,
            copies: vec![self.archive.id()],
        }
    }

    /// Returns the archive that contains the object.
    pub(crate) fn archive(&self) -> &Arc<dyn Archive> {
        &self.archive
    }

    /// Returns the memory in bytes that the reader uses once a page of the table was read.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let page = self.blocks.min(PAGE_ENTRIES) as usize * size_of::<EntryRecord>();
        let end = self.end.as_ref().map_or(0, |end| end.bytes.len());
        let sources = size_of_val(&self.sources[..]);
        let parts = [self.attributes.bytes(), self.page_hashes.len(), sources, page, end];
        (size_of::<Self>() + parts.iter().sum::<usize>()) as u64
    }

    /// Returns the number of blocks of the contents.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the objects that contain the blocks that this object does not contain.
    #[must_use]
    pub fn sources(&self) -> &[SourceRecord] {
        &self.sources
    }

    /// Returns the containers of the sources.
    pub(crate) fn source_containers(&self) -> Vec<Id> {
        self.sources.iter().map(|source| Id(source.container)).collect()
    }

    /// Checks that the archive itself, not a cache, has all sources. Their blocks are not read.
    ///
    /// # Errors
    /// Errors of the archive, or damage to a source.
    pub(crate) fn check_sources(&self) -> crate::Result<()> {
        self.sources.iter().try_for_each(|source| {
            let location = Location::of_source(source);
            self.archive.forget((self.kind, location.container));
            let found = Self::open_any(&self.archive, self.kind, location)?;
            let is_it = found.heading.object.0 == source.object && found.root == source.root;
            let what = Corrupt("it is not the object to which a later version refers");
            if is_it { Ok(()) } else { Err(found.damaged(what)) }
        })
    }

    fn source(&self) -> Source<'_> {
        let source = Source::of(&self.archive, (self.kind, self.location.container));
        Source { pieces: self.end.iter().collect(), ..source }
    }

    /// Returns the source that contains the block of an entry; `None` for this object. The entry
    /// was checked.
    fn source_of(&self, entry: &EntryRecord) -> Option<&SourceRecord> {
        self.sources.get(usize::from(entry.source).checked_sub(1)?)
    }

    /// Returns the location of the stored bytes of a block: the container, and the offset in it.
    fn place(&self, entry: &EntryRecord) -> (Id, u64) {
        match self.source_of(entry) {
            Some(source) => (Id(source.container), entry.offset.get()),
            None => (self.location.container, self.location.offset + entry.offset.get()),
        }
    }

    pub(crate) fn damaged(&self, what: Corrupt) -> Error {
        self.source().damaged(what)
    }

    /// Reads a block and checks its hash.
    ///
    /// # Errors
    /// Errors of the archive, or damage to the block.
    pub fn block(&self, number: u64) -> crate::Result<Vec<u8>> {
        let entry = self.entry(number)?;
        let length = entry.length.get() as usize;
        if entry.form == FORM_ZEROS {
            return Ok(vec![0; length]);
        }
        let (container, offset) = self.place(&entry);
        let source = match entry.source {
            0 => self.source(),
            _ => Source::of(&self.archive, (self.kind, container)),
        };
        let stored = source.read(offset, entry.stored_length.get() as usize)?;
        let bytes = decode(entry.form, stored, length).map_err(|what| self.damaged(what))?;
        if *blake3::hash(&bytes).as_bytes() != entry.hash {
            return Err(self.damaged(Corrupt("a block is damaged")));
        }
        Ok(bytes)
    }

    /// Returns the number of bytes that are read from the archive for a block.
    ///
    /// # Errors
    /// Like [`Self::block`].
    pub fn stored_bytes(&self, number: u64) -> crate::Result<u64> {
        let entry = self.entry(number)?;
        Ok(if entry.form == FORM_ZEROS { 0 } else { entry.stored_length.get().into() })
    }

    /// Returns whether a block contains only zeros, which are not stored.
    ///
    /// # Errors
    /// Like [`Self::block`].
    pub fn is_zeros(&self, number: u64) -> crate::Result<bool> {
        Ok(self.entry(number)?.form == FORM_ZEROS)
    }

    /// Returns the length and the hash of a block.
    pub(crate) fn block_sum(&self, number: u64) -> crate::Result<BlockSum> {
        let entry = self.entry(number)?;
        let hash = (entry.form != FORM_ZEROS).then_some(entry.hash);
        Ok(BlockSum { length: entry.length.get() as usize, hash })
    }

    /// Returns the container of a block and the range in it; an empty range for zeros.
    pub(crate) fn block_place(&self, number: u64) -> crate::Result<(Id, Range<u64>)> {
        let (container, start) = self.place(&self.entry(number)?);
        Ok((container, start..start + self.stored_bytes(number)?))
    }

    /// Returns whether this object contains the block, or the block contains only zeros.
    ///
    /// # Errors
    /// Like [`Self::block`].
    pub(crate) fn is_own(&self, number: u64) -> crate::Result<bool> {
        Ok(self.entry(number)?.source == 0)
    }

    /// Returns the object that contains a block, with the block's entry; `None` for a block of
    /// zeros. Another object can refer to the block.
    ///
    /// # Errors
    /// Like [`Self::block`].
    pub(crate) fn referred(&self, number: u64) -> crate::Result<Option<Referred>> {
        let entry = self.entry(number)?;
        let source = self.source_of(&entry).copied().unwrap_or(SourceRecord {
            object: self.heading.object.0,
            container: self.location.container.0,
            length: self.location.length.into(),
            root: self.root,
        });
        Ok((entry.form != FORM_ZEROS).then_some(Referred { source, entry }))
    }

    /// Returns the range in the container of the table's page with the entry of a block.
    pub(crate) fn page_place(&self, block: u64) -> Range<u64> {
        let first = block / PAGE_ENTRIES * PAGE_ENTRIES;
        let entries = self.blocks.saturating_sub(first).min(PAGE_ENTRIES);
        let entry_bytes = size_of::<EntryRecord>() as u64;
        let start = self.location.offset + self.table_offset + first * entry_bytes;
        start..start + entries * entry_bytes
    }

    /// Reads and checks the table's page with the entry of a block.
    ///
    /// # Errors
    /// Errors of the archive, or damage to the page.
    pub(crate) fn check_page(&self, block: u64) -> crate::Result<()> {
        self.page(block / PAGE_ENTRIES).map(drop)
    }

    fn entry(&self, number: u64) -> crate::Result<EntryRecord> {
        if number >= self.blocks {
            return Err(self.damaged(Corrupt("it has fewer blocks than expected")));
        }
        let page = self.page(number / PAGE_ENTRIES)?;
        let start = (number % PAGE_ENTRIES) as usize * size_of::<EntryRecord>();
        let entry = page
            .get(start..)
            .and_then(|rest| EntryRecord::read_from_prefix(rest).ok())
            .ok_or_else(|| self.damaged(Corrupt("its table of blocks is cut short")))?
            .0;
        self.check(number, &entry).map_err(|what| self.damaged(what))?;
        Ok(entry)
    }

    /// Checks an entry of the table. A matching hash does not prove that the values are valid,
    /// because the writer may have been malicious.
    fn check(&self, number: u64, entry: &EntryRecord) -> Result<()> {
        let rest = self.heading.size - number * BLOCK_BYTES;
        let stored = entry.stored_length.get();
        let end = entry.offset.get().checked_add(stored.into());
        let limit = match (entry.source, self.source_of(entry)) {
            (0, _) => self.table_offset,
            (_, Some(source)) => source.length.get(),
            (_, None) => return Err(Corrupt("a block refers to an unknown object")),
        };
        let is_inside = end.is_some_and(|end| end <= limit);
        let has_length = u64::from(entry.length.get()) == rest.min(BLOCK_BYTES);
        if !is_inside || !has_length || stored > STORED_BLOCK_BYTES_MAX {
            return Err(Corrupt("its table of blocks is inconsistent"));
        }
        Ok(())
    }

    fn page(&self, number: u64) -> crate::Result<Arc<Vec<u8>>> {
        let mut known = self.page.lock();
        if let Some((_, page)) = known.as_ref().filter(|(known, _)| *known == number) {
            return Ok(Arc::clone(page));
        }
        let place = self.page_place(number * PAGE_ENTRIES);
        let page = self.source().read(place.start, (place.end - place.start) as usize)?;
        let expected = self.page_hashes.get(number as usize * 32..number as usize * 32 + 32);
        if expected != Some(blake3::hash(&page).as_bytes()) {
            return Err(self.damaged(Corrupt("its table of blocks is damaged")));
        }
        let page = Arc::new(page);
        *known = Some((number, Arc::clone(&page)));
        Ok(page)
    }
}

fn decode(form: u8, stored: Vec<u8>, length: usize) -> Result<Vec<u8>> {
    let bytes = match form {
        FORM_RAW => stored,
        FORM_ZSTD => {
            zstd::bulk::decompress(&stored, length).or(Err(Corrupt("a block can't be decoded")))?
        }
        _ => return Err(Corrupt("a block has an unknown encoding")),
    };
    if bytes.len() == length { Ok(bytes) } else { Err(Corrupt("a block has a wrong length")) }
}

/// Checked offsets in an object.
struct Layout {
    hashes_offset: u64,
    hashes_length: usize,
    sources_length: usize,
}

impl Layout {
    fn new(tail: &TailRecord, heading: &Heading, attributes_length: u32) -> Result<Self> {
        let wrong = Corrupt("the sizes of its parts are inconsistent");
        let blocks = tail.blocks.get();
        if blocks != blocks_of(heading.size) {
            return Err(Corrupt("its table of blocks has a wrong number of entries"));
        }
        let pages = blocks.div_ceil(PAGE_ENTRIES);
        if pages > PAGES_MAX {
            return Err(Corrupt("it is larger than this version supports"));
        }
        let table_length = blocks.checked_mul(size_of::<EntryRecord>() as u64).ok_or(wrong)?;
        let hashes_offset = tail.table_offset.get().checked_add(table_length).ok_or(wrong)?;
        let sources_length = tail.sources.get() as usize * size_of::<SourceRecord>();
        let may_have_sources = heading.may_have_sources;
        if tail.sources.get() as usize > if may_have_sources { SOURCES_MAX } else { 0 } {
            return Err(Corrupt("it has too many sources"));
        }
        let after = pages * 32 + (sources_length + size_of::<TailRecord>()) as u64;
        let end = hashes_offset.checked_add(after);
        let begin = size_of::<HeadRecord>() as u64 + u64::from(attributes_length);
        if end != Some(tail.length.get()) || tail.table_offset.get() < begin {
            return Err(wrong);
        }
        Ok(Self { hashes_offset, hashes_length: (pages * 32) as usize, sources_length })
    }
}

/// Returns the range of an object that is read as a whole when it is opened to read its block.
pub(crate) fn whole_to_read(version: &Version) -> Option<Range<u64>> {
    let is_short = version.location.length <= BLOCK_BYTES + END_BYTES_MAX;
    version.location.range().filter(|_| version.size <= BLOCK_BYTES && is_short)
}

/// Returns the two ranges that are read when an object is opened: its start and its end. A small
/// object needs only the second. Both are `None` if the location is invalid.
pub(crate) fn ends_of(object: Location) -> [Option<Range<u64>>; 2] {
    let Some(Range { end, .. }) = object.range() else { return [None, None] };
    let start = (object.length > END_BYTES_MAX).then(|| object.offset..object.offset + START_BYTES);
    [start, Some(end.saturating_sub(END_BYTES_MAX).max(object.offset)..end)]
}

/// Returns the range of an object's tail in its container.
pub(crate) fn tail_place(object: Location) -> Range<u64> {
    let end = object.offset.saturating_add(object.length);
    end.saturating_sub(size_of::<TailRecord>() as u64)..end
}

/// Returns the range of an object's head in its container.
pub(crate) fn head_place(object: Location) -> Range<u64> {
    object.offset..object.offset.saturating_add(size_of::<HeadRecord>() as u64)
}

/// Returns the range of the hashes of an object's table and of its sources, according to its tail.
///
/// # Errors
/// Errors of the archive, or damage to the tail.
pub(crate) fn hashes_place(
    archive: &Arc<dyn Archive>,
    object: Location,
) -> crate::Result<Range<u64>> {
    let source = Source::of(archive, (ContainerKind::Files, object.container));
    let place = tail_place(object);
    let tail = read_tail(&source, place.end)?;
    let table = tail.blocks.get().saturating_mul(size_of::<EntryRecord>() as u64);
    let start = object.offset.saturating_add(tail.table_offset.get()).saturating_add(table);
    if tail.length.get() != object.length || start > place.start {
        return Err(source.damaged(Corrupt("the sizes of its parts are inconsistent")));
    }
    Ok(start..place.start)
}

/// Returns the range of an object's attributes, according to its head.
///
/// # Errors
/// Errors of the archive, or damage to the head.
pub(crate) fn attributes_place(
    archive: &Arc<dyn Archive>,
    object: Location,
) -> crate::Result<Range<u64>> {
    let source = Source::of(archive, (ContainerKind::Files, object.container));
    let place = head_place(object);
    let head = source.read(place.start, size_of::<HeadRecord>())?;
    let (_, length) = parse_head(&head).map_err(|what| source.damaged(what))?;
    Ok(place.end..place.end.saturating_add(length.into()))
}

pub(super) fn read_tail(source: &Source<'_>, end: u64) -> crate::Result<TailRecord> {
    let bytes = end.checked_sub(size_of::<TailRecord>() as u64);
    let start = bytes.ok_or_else(|| source.damaged(Corrupt("it is too short")))?;
    let bytes = source.read(start, size_of::<TailRecord>())?;
    let tail = TailRecord::read_from_bytes(&bytes).ok();
    let tail = tail.filter(|tail| tail.magic == TAIL_MAGIC);
    let tail = tail.filter(|tail| tail.crc.get() == crc_of(tail.as_bytes()));
    tail.ok_or_else(|| source.damaged(Corrupt("its tail is missing or damaged")))
}

pub(super) fn parse_head(bytes: &[u8]) -> Result<(Heading, u32)> {
    let head = HeadRecord::read_from_bytes(bytes).or(Err(Corrupt("it has no head")))?;
    if head.magic != HEAD_MAGIC || head.crc.get() != crc_of(bytes) {
        return Err(Corrupt("its head is damaged"));
    }
    let may_have_sources = head.version == VERSION_WITH_SOURCES && head.kind == KIND_FILE;
    if (head.version != VERSION && !may_have_sources) || head.block_log2 != BLOCK_LOG2 {
        return Err(Corrupt("its version is unknown"));
    }
    let attributes_length = head.attributes_length.get();
    if head.size.get() > SIZE_MAX || attributes_length as usize > ATTRIBUTES_BYTES_MAX {
        return Err(Corrupt("its head contains numbers that are too large"));
    }
    let created = Timestamp {
        seconds: head.created_seconds.get(),
        nanoseconds: head.created_nanoseconds.get().min(999_999_999),
    };
    let heading = Heading {
        kind: head.kind,
        object: Id(head.object),
        file: Id(head.file),
        tier: Id(head.tier),
        sequence: head.sequence.get(),
        size: head.size.get(),
        created,
        may_have_sources,
    };
    Ok((heading, attributes_length))
}
