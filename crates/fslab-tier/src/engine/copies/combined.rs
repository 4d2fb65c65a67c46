//! Reads several damaged copies of an object as if they were one copy.
//!
//! The parts of an object are verified separately: head, tail, attributes with the hashes of the
//! table, a page of the table, a block. Each part is read from a copy in which it is intact. A
//! damaged chunk of an encrypted copy is unreadable, so encrypted copies are combined chunk by
//! chunk. A block can then be read even if no single copy has all of its chunks.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::iter;
use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::Request;
use parking_lot::Mutex;

use super::{first_answer, read_exactly};
use crate::archive::{Archive, Container, ContainerKind, Deletion, Upload};
use crate::error::{Error, Result};
use crate::id::Id;
use crate::object::reader::{ObjectReader, attributes_place, hashes_place, head_place, tail_place};
use crate::stored::format::{CHUNK_BYTES, PAGE_ENTRIES};
use crate::stored::{Attributes, Version};

/// Presents several copies of an object as one read-only archive.
pub(in crate::engine) struct CombinedCopies {
    copies: Vec<Arc<dyn Archive>>,
    label: String,
    /// The parts for which a copy other than copy 0 is preferred. Maps the container and the start
    /// of a part to its end and the number of the copy.
    choices: Mutex<BTreeMap<(Id, u64), (u64, usize)>>,
}

/// A part of a container.
type Part = (Id, Range<u64>);

impl CombinedCopies {
    /// Finds an intact copy of each part of an object, except for its sources. Later reads of the
    /// result prefer these copies.
    ///
    /// # Errors
    /// The error of the first part that is not intact in any copy; [`Error::Interrupted`].
    pub(in crate::engine) fn whole(
        copies: Vec<Arc<dyn Archive>>,
        version: &Version,
        request: &Request,
    ) -> Result<Arc<Self>> {
        let (work, object) = Self::open(copies, version)?;
        for block in 0..object.blocks() {
            request.cancellation.check().or(Err(Error::Interrupted))?;
            if block.is_multiple_of(PAGE_ENTRIES) {
                work.choose_page(&object, block)?;
            }
            if object.is_own(block)? {
                work.choose(&object.block_place(block)?, || object.block(block))?;
            }
        }
        Ok(work)
    }

    /// Returns one block of an object, combined from several copies if necessary.
    ///
    /// # Errors
    /// The error of a required part that is not intact in any copy.
    pub(in crate::engine) fn block(
        copies: Vec<Arc<dyn Archive>>,
        version: &Version,
        block: u64,
    ) -> Result<Vec<u8>> {
        let (work, object) = Self::open(copies, version)?;
        work.choose_page(&object, block)?;
        work.choose(&object.block_place(block)?, || object.block(block))
    }

    /// Returns the archived attributes of a file, combined from several copies if necessary.
    ///
    /// # Errors
    /// The errors of [`Self::block`].
    pub(in crate::engine) fn attributes(
        copies: Vec<Arc<dyn Archive>>,
        version: &Version,
    ) -> Result<Attributes> {
        let (_, object) = Self::open(copies, version)?;
        object.check_sources()?;
        Ok(object.attributes().clone())
    }

    fn open(copies: Vec<Arc<dyn Archive>>, version: &Version) -> Result<(Arc<Self>, ObjectReader)> {
        let labels: Vec<_> = copies.iter().map(|copy| copy.label()).collect();
        let label = labels.join(" and ");
        let work = Arc::new(Self { copies, label, choices: Mutex::default() });
        let (archive, at) = (Arc::clone(&work) as Arc<dyn Archive>, version.location);
        let part = |range: Range<u64>| (at.container, range);
        let hashes = work.choose(&part(tail_place(at)), || hashes_place(&archive, at))?;
        let attributes = work.choose(&part(head_place(at)), || attributes_place(&archive, at))?;
        // The attributes and the hashes can only be verified together.
        let object = work.choose(&part(attributes), || {
            work.choose(&part(hashes.clone()), || ObjectReader::open(&archive, version))
        })?;
        Ok((work, object.without_cached_end()))
    }

    /// Reads the table's page with the entry of a block from the first copy in which it is intact.
    fn choose_page(&self, object: &ObjectReader, block: u64) -> Result<()> {
        let part = (object.version().location.container, object.page_place(block));
        self.choose(&part, || object.check_page(block))
    }

    /// Reads a part from the first copy in which it is intact. That copy is then preferred for the
    /// part.
    fn choose<T>(&self, part: &Part, mut read: impl FnMut() -> Result<T>) -> Result<T> {
        let none = || Error::NoCopy { missing: Vec::new() };
        let found = first_answer(0..self.copies.len(), none, |copy| {
            self.prefer(part, copy);
            read()
        });
        if found.is_err() {
            self.prefer(part, 0);
        }
        found
    }

    fn prefer(&self, (container, part): &Part, copy: usize) {
        let mut choices = self.choices.lock();
        match copy {
            // A block of zeros is not stored, so no copy is needed.
            _ if part.is_empty() => {}
            0 => drop(choices.remove(&(*container, part.start))),
            _ => drop(choices.insert((*container, part.start), (part.end, copy))),
        }
    }

    /// Returns the copy that is preferred at an offset, and the end of the range in which it is
    /// preferred.
    fn preferred(&self, container: Id, offset: u64) -> (usize, u64) {
        let choices = self.choices.lock();
        match choices.range((container, 0)..=(container, offset)).next_back() {
            Some((_, (end, copy))) if offset < *end => (*copy, *end),
            _ => {
                let next = choices.range((container, offset + 1)..=(container, u64::MAX)).next();
                (0, next.map_or(u64::MAX, |((_, start), _)| *start))
            }
        }
    }
}

impl Archive for CombinedCopies {
    fn id(&self) -> Id {
        self.copies.first().map_or_else(Id::default, |copy| copy.id())
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn begin(&self, _: Container) -> io::Result<Box<dyn Upload>> {
        Err(ErrorKind::Unsupported.into())
    }

    fn read(&self, container: Container, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let (first, end) = self.preferred(container.1, at);
            let end = end.min((at / CHUNK_BYTES + 1) * CHUNK_BYTES);
            let next = buffer.len().min((end - offset) as usize);
            // If the preferred copy can't be read, the others are tried.
            let others = (0..self.copies.len()).filter(|copy| *copy != first);
            let none = || ErrorKind::NotFound.into();
            first_answer(iter::once(first).chain(others), none, |copy| {
                read_exactly(&self.copies[copy], container, at, &mut buffer[done..next])
            })?;
            done = next;
        }
        Ok(done)
    }

    fn length(&self, container: Container) -> io::Result<u64> {
        let lengths = self.copies.iter().filter_map(|copy| copy.length(container).ok());
        lengths.max().ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn list(&self, _: ContainerKind, _: &mut dyn FnMut(Id, u64)) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn delete(&self, _: Container) -> io::Result<Deletion> {
        Err(ErrorKind::Unsupported.into())
    }
}
