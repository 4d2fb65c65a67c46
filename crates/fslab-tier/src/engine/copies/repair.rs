//! Repair of a damaged container: rewrites it, and replaces its damaged part by an intact copy from
//! another archive.
//!
//! The other parts are kept as far as they can be read, because they may be the only intact copies
//! of other objects in the bundle. The damaged copy may be truncated, so the length of a bundle is
//! read from the bundle's list of members. The list in another archive is used only if the damaged
//! copy has none. So a malicious archive can't make containers in other archives grow.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use fslab_vfs::Errno;

use super::{KIND, PIECE, read_exactly};
use crate::archive::{Archive, ContainerKind};
use crate::error::{Error, Result};
use crate::object::bundle::{Contents, contents_of};
use crate::rate_limit::Pace;
use crate::stored::Location;
use crate::stored::bytes::Corrupt;
use crate::stored::format::{BUNDLE_BYTES_MAX, CHUNK_BYTES};

/// The repair of one part of a container.
pub(super) struct Repair<'a> {
    pub(super) kind: ContainerKind,
    /// The archive in which the part is intact; `from_offset` is the part's offset there.
    pub(super) from: &'a Arc<dyn Archive>,
    pub(super) from_offset: u64,
    pub(super) to: &'a Arc<dyn Archive>,
    pub(super) part: Location,
    /// Length of the whole container in bytes.
    pub(super) length: u64,
}

impl Repair<'_> {
    /// Rewrites the container.
    ///
    /// # Errors
    /// Errors of an archive. The container is then unchanged, unless only the last step of the
    /// repair failed: see [`Upload::finish`](crate::archive::Upload::finish).
    pub(super) fn run(&self, pace: Pace<'_>) -> Result<()> {
        let part = self.part;
        let container = (self.kind, part.container);
        let mut upload = self.to.begin(container).map_err(self.failed(self.to))?;
        let mut offset = 0;
        while offset < self.length {
            pace.check()?;
            let length = self.piece_at(offset, PIECE as u64);
            pace.pass(length)?;
            let mut bytes = vec![0; length as usize];
            if (part.offset..part.offset + part.length).contains(&offset) {
                let place = self.from_offset + (offset - part.offset);
                self.read(self.from, place, &mut bytes).map_err(self.failed(self.from))?;
            } else {
                self.read_rest(offset, &mut bytes)?;
            }
            upload.write(&bytes).map_err(self.failed(self.to))?;
            offset += length;
        }
        // A checksum would prove only that the archive received the bytes that were read here, so
        // the caller reads the repaired part back in any case.
        upload.finish().map(drop).map_err(self.failed(self.to))
    }

    fn failed(&self, archive: &Arc<dyn Archive>) -> impl FnOnce(io::Error) -> Error {
        Error::archive(archive.label(), self.part.container)
    }

    /// Returns the number of bytes from an offset to the next boundary. Boundaries are the
    /// multiples of `piece`, the start and end of the part, and the end of the container.
    fn piece_at(&self, offset: u64, piece: u64) -> u64 {
        let first = self.part.offset;
        let bounds = [first, first + self.part.length, self.length, (offset / piece + 1) * piece];
        let next = bounds.into_iter().filter(|bound| *bound > offset).min();
        next.map_or(0, |next| next - offset)
    }

    /// Reads bytes outside the part. If reading them in one call fails, they are read chunk by
    /// chunk, so that damage at one offset makes at most one chunk unreadable.
    fn read_rest(&self, start: u64, bytes: &mut [u8]) -> Result<()> {
        if self.read(self.to, start, bytes).is_ok() {
            return Ok(());
        }
        // If the length of a copy is unknown, it does not limit the pieces.
        let length =
            |copy: &Arc<dyn Archive>| copy.length((self.kind, self.part.container)).unwrap_or(0);
        let ends = [self.to, self.from].map(length);
        let (mut offset, end) = (start, start + bytes.len() as u64);
        while offset < end {
            let next = end.min(offset + self.piece_at(offset, CHUNK_BYTES));
            // A piece never crosses the end of a copy, so that the bytes before that end are kept.
            let next = ends.into_iter().filter(|end| *end > offset).fold(next, u64::min);
            self.read_either(
                offset,
                &mut bytes[(offset - start) as usize..(next - start) as usize],
            )?;
            offset = next;
        }
        Ok(())
    }

    /// Reads bytes from the damaged copy, or else from the copy in the other archive. Bytes that
    /// are missing or damaged in both become zeros; their object is reported as damaged. If an
    /// archive does not respond, the repair fails, because that archive may still have the bytes.
    ///
    /// Two kinds of errors may be temporary. No zeros are written after them, because the zeros
    /// could replace the only intact bytes. After a read error (`EIO`) of the damaged copy, the
    /// bytes must come from the other archive. The second kind is a chunk that can't be decrypted:
    /// it may be intact in the archive and changed only in transit. If a copy is repaired from
    /// another part of itself, such a chunk makes the repair fail.
    fn read_either(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let own = match self.read(self.to, offset, bytes) {
            Ok(()) => return Ok(()),
            Err(own) if is_gone(&own) || is_unreadable(&own) => own,
            Err(own) => return Err(self.failed(self.to)(own)),
        };
        match self.read(self.from, offset, bytes) {
            Err(error) if is_gone(&error) && is_gone(&own) => {
                if own.kind() == ErrorKind::InvalidData && self.from.id() == self.to.id() {
                    return Err(self.failed(self.to)(own));
                }
                bytes.fill(0);
            }
            read => read.map_err(self.failed(self.from))?,
        }
        Ok(())
    }

    fn read(&self, archive: &Arc<dyn Archive>, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        read_exactly(archive, (self.kind, self.part.container), offset, bytes)
    }
}

fn is_unreadable(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::IO)
}

/// Returns whether an error means that the bytes are missing or damaged.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof | ErrorKind::NotFound)
}

/// Returns the contents of a bundle according to the list in one archive's copy. The list must
/// contain `part`, the object that is known to be in the bundle.
///
/// # Errors
/// Errors of the archive; [`Error::Damaged`] if there is no such list.
pub(in crate::engine) fn listed(archive: &Arc<dyn Archive>, part: Location) -> Result<Contents> {
    let container = part.container;
    archive.forget((KIND, container));
    let length =
        archive.length((KIND, container)).map_err(Error::archive(archive.label(), container))?;
    let contents = contents_of(archive, container, length)?;
    if contents.list_bytes > 0 && contents.members.contains(&part) {
        return Ok(contents);
    }
    let what = Corrupt("the bundle's list of members is missing or lacks the object");
    Err(Error::damaged(archive.label(), container, what))
}

/// Returns the first copy of a bundle that has an intact list, and the contents from that list.
pub(super) fn first_listed<'a>(
    copies: impl IntoIterator<Item = &'a Arc<dyn Archive>>,
    part: Location,
) -> Option<(&'a Arc<dyn Archive>, Contents)> {
    copies.into_iter().find_map(|archive| Some((archive, listed(archive, part).ok()?)))
}

/// Returns the length of the whole container in bytes, from the list in this copy or else in
/// another copy. If no copy has a list, the copy keeps its current length up to `BUNDLE_BYTES_MAX`,
/// because the container may be a bundle.
///
/// # Errors
/// Errors of the copy's archive.
pub(super) fn whole_length<'a>(
    copy: &'a Arc<dyn Archive>,
    others: impl IntoIterator<Item = &'a Arc<dyn Archive>>,
    part: Location,
) -> Result<u64> {
    let end = part.offset + part.length;
    // An object at offset 0 is alone in its container, because a bundle begins with its list.
    if part.offset == 0 {
        return Ok(end);
    }
    if let Some((_, contents)) = first_listed(std::iter::once(copy).chain(others), part) {
        return Ok(contents.length());
    }
    match copy.length((KIND, part.container)) {
        Ok(length) => Ok(end.max(length.min(BUNDLE_BYTES_MAX))),
        Err(error) if is_gone(&error) => Ok(end),
        Err(error) => Err(Error::archive(copy.label(), part.container)(error)),
    }
}
