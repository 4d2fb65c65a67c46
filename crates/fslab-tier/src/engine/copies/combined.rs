//! Several damaged copies of an object, read as one.
//!
//! The parts of an object are verified one by one: head, tail, attributes with the hashes of the
//! table, a page of the table, a block. Each is read from a copy that has it whole. Encrypted
//! copies refuse damaged chunks, so they are combined chunk by chunk: a block can be whole though
//! each copy lacks some of it.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::Request;
use parking_lot::Mutex;

use crate::archive::{Archive, ContainerKind, Upload};
use crate::error::{Error, Result};
use crate::id::Id;
use crate::object::reader::{ObjectReader, attributes_place, hashes_place, head_place, tail_place};
use crate::stored::format::{CHUNK_BYTES, PAGE_ENTRIES};
use crate::stored::{Attributes, Version};

/// Copies as one archive that is only read.
pub(in crate::engine) struct CombinedCopies {
    copies: Vec<Arc<dyn Archive>>,
    label: String,
    choices: Mutex<Choices>,
}

impl CombinedCopies {
    /// Finds a copy for each part of an object.
    ///
    /// # Errors
    /// What is wrong with the first part that no copy has whole; [`Error::Interrupted`].
    pub(in crate::engine) fn whole(
        copies: Vec<Arc<dyn Archive>>,
        version: &Version,
        request: &Request,
    ) -> Result<Arc<Self>> {
        let (work, object) = Self::open(copies, version)?;
        for block in 0..object.blocks() {
            request.cancellation.check().or(Err(Error::Interrupted))?;
            if block.is_multiple_of(PAGE_ENTRIES) {
                work.choose(&object.page_place(block), || object.check_page(block))?;
            }
            work.choose(&object.block_place(block)?, || object.block(block))?;
        }
        Ok(work)
    }

    /// One block of an object.
    ///
    /// # Errors
    /// What is wrong with a part that is needed for it and that no copy has whole.
    pub(in crate::engine) fn block(
        copies: Vec<Arc<dyn Archive>>,
        version: &Version,
        block: u64,
    ) -> Result<Vec<u8>> {
        let (work, object) = Self::open(copies, version)?;
        work.choose(&object.page_place(block), || object.check_page(block))?;
        work.choose(&object.block_place(block)?, || object.block(block))
    }

    /// What is kept of a file beside its bytes.
    ///
    /// # Errors
    /// As [`Self::block`].
    pub(in crate::engine) fn attributes(
        copies: Vec<Arc<dyn Archive>>,
        version: &Version,
    ) -> Result<Attributes> {
        let (_, object) = Self::open(copies, version)?;
        Ok(object.attributes().clone())
    }

    fn open(copies: Vec<Arc<dyn Archive>>, version: &Version) -> Result<(Arc<Self>, ObjectReader)> {
        let labels: Vec<_> = copies.iter().map(|copy| copy.label()).collect();
        let label = labels.join(" and ");
        let work = Arc::new(Self { copies, label, choices: Mutex::default() });
        let (archive, at) = (Arc::clone(&work) as Arc<dyn Archive>, version.location);
        let hashes = work.choose(&tail_place(at), || hashes_place(&archive, at))?;
        let attributes = work.choose(&head_place(at), || attributes_place(&archive, at))?;
        // Only both together can be checked.
        let mut problem = Error::NoCopy { missing: Vec::new() };
        for copy in 0..work.copies.len() {
            work.choices.lock().settle(attributes.clone(), copy);
            match work.choose(&hashes, || ObjectReader::open(&archive, version)) {
                Ok(object) => return Ok((work, object)),
                Err(error) => problem = error,
            }
        }
        Err(problem)
    }

    /// Reads a part, from the first copy that gives it whole; that one is asked first from then on.
    fn choose<T>(&self, place: &Range<u64>, mut read: impl FnMut() -> Result<T>) -> Result<T> {
        let mut found = read();
        for copy in 0..self.copies.len() {
            if found.is_ok() {
                break;
            }
            self.choices.lock().tried = Some((place.clone(), copy));
            found = read();
        }
        let mut choices = self.choices.lock();
        if let Some((place, copy)) = choices.tried.take().filter(|_| found.is_ok()) {
            choices.settle(place, copy);
        }
        found
    }

    /// Fills a buffer from one copy, or where that fails from another.
    fn read_piece(
        &self,
        first: usize,
        (kind, container): (ContainerKind, Id),
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let mut problem = None;
        let others = (0..self.copies.len()).filter(|copy| *copy != first);
        for copy in std::iter::once(first).chain(others) {
            let error = match self.copies[copy].read(kind, container, offset, buffer) {
                Ok(count) if count == buffer.len() => return Ok(()),
                Ok(_) => ErrorKind::UnexpectedEof.into(),
                Err(error) => error,
            };
            problem.get_or_insert(error);
        }
        Err(problem.unwrap_or_else(|| ErrorKind::NotFound.into()))
    }
}

/// Which copy is asked first, by offset in the container.
#[derive(Default)]
struct Choices {
    /// Where parts begin, with their end and the copy.
    settled: BTreeMap<u64, (u64, usize)>,
    /// The part that is being looked for.
    tried: Option<(Range<u64>, usize)>,
}

impl Choices {
    /// The copy at an offset, and up to where it is the one.
    fn at(&self, offset: u64) -> (usize, u64) {
        let next = self.settled.range(offset + 1..).next().map_or(u64::MAX, |(start, _)| *start);
        let next = match &self.tried {
            Some((place, copy)) if place.contains(&offset) => return (*copy, place.end),
            Some((place, _)) if place.start > offset => next.min(place.start),
            _ => next,
        };
        match self.settled.range(..=offset).next_back() {
            Some((_, (end, copy))) if offset < *end => (*copy, next.min(*end)),
            _ => (0, next),
        }
    }

    fn settle(&mut self, place: Range<u64>, copy: usize) {
        // What was thought of the place before must not be found first.
        self.settled.remove(&place.start);
        let before = self.settled.range_mut(..place.start).next_back();
        match before {
            // So what one copy has is one entry, however many blocks that is.
            Some((_, (end, known))) if *end == place.start && *known == copy => *end = place.end,
            _ => drop(self.settled.insert(place.start, (place.end, copy))),
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

    fn begin(&self, _: ContainerKind, _: Id) -> io::Result<Box<dyn Upload>> {
        Err(ErrorKind::Unsupported.into())
    }

    fn read(
        &self,
        kind: ContainerKind,
        container: Id,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let (first, end) = self.choices.lock().at(at);
            let end = end.min((at / CHUNK_BYTES + 1) * CHUNK_BYTES);
            let next = buffer.len().min((end - offset) as usize);
            self.read_piece(first, (kind, container), at, &mut buffer[done..next])?;
            done = next;
        }
        Ok(done)
    }

    fn length(&self, kind: ContainerKind, container: Id) -> io::Result<u64> {
        let lengths = self.copies.iter().map(|copy| copy.length(kind, container));
        let longest = lengths.reduce(|longest, next| match (&longest, &next) {
            (Ok(longest), Ok(next)) if longest >= next => Ok(*longest),
            (Ok(longest), Err(_)) => Ok(*longest),
            _ => next,
        });
        longest.unwrap_or_else(|| Err(ErrorKind::NotFound.into()))
    }

    fn list(&self, _: ContainerKind, _: &mut dyn FnMut(Id, u64)) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn delete(&self, _: ContainerKind, _: Id) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_of_a_part_is_asked_there_and_nowhere_else() {
        let mut choices = Choices::default();
        choices.settle(100..200, 1);
        choices.settle(200..300, 1);
        choices.settle(400..500, 2);
        assert_eq!(choices.settled.len(), 2, "neighbours are one");
        let found = [0, 99, 100, 299, 300, 400, 499, 500].map(|offset| choices.at(offset));
        let expected =
            [(0, 100), (0, 100), (1, 300), (1, 300), (0, 400), (2, 500), (2, 500), (0, u64::MAX)];
        assert_eq!(found, expected);
        choices.tried = Some((150..160, 0));
        let found = [100, 150, 159, 160].map(|offset| choices.at(offset));
        assert_eq!(found, [(1, 150), (0, 160), (0, 160), (1, 300)]);
        // A part that was settled otherwise is the other's from then on.
        choices.tried = None;
        choices.settle(200..300, 0);
        assert_eq!(
            [199, 200, 300].map(|offset| choices.at(offset)),
            [(1, 200), (0, 300), (0, 400)]
        );
        // Nor is it found where the part before is the same copy's by now.
        choices.settle(300..400, 2);
        choices.settle(300..400, 0);
        assert_eq!([299, 300].map(|offset| choices.at(offset)), [(0, 400), (0, 400)]);
    }
}
