//! A part of a container in memory.

use std::ops::Range;

use crate::archive::{Archive, Container};

/// A part of a container, and its offset.
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

impl Piece {
    /// Reads a part. Returns `None` if the read fails; later reads of the part then report the
    /// error.
    pub(super) fn read(
        archive: &dyn Archive,
        container: Container,
        place: Range<u64>,
    ) -> Option<Self> {
        let length = usize::try_from(place.end - place.start).ok()?;
        let (offset, mut bytes) = (place.start, vec![0; length]);
        let read = archive.read(container, offset, &mut bytes);
        read.ok().filter(|count| *count == length).map(|_| Self { offset, bytes })
    }

    pub(super) fn get(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(start..start.checked_add(length)?)
    }

    fn range(&self, place: &Range<u64>) -> Option<&[u8]> {
        self.get(place.start, usize::try_from(place.end.checked_sub(place.start)?).ok()?)
    }

    /// Returns whether the piece contains a part of the container.
    pub(super) fn has(&self, place: &Range<u64>) -> bool {
        self.range(place).is_some()
    }

    /// Returns a part of the piece.
    pub(super) fn part(&self, place: &Range<u64>) -> Option<Self> {
        self.range(place).map(|bytes| Self { offset: place.start, bytes: bytes.to_vec() })
    }
}
