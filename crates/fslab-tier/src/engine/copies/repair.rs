//! Repair of a damaged container: it is written anew with a whole part from other archives.
//!
//! Its other parts are kept as far as they can be read: of a bundle, another part may be whole only
//! there. The container's own list gives its length, since the copy may be cut short; where it has
//! no list, another copy's list does. So a malicious archive can't grow other archives.

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

/// What is put where.
pub(super) struct Repair<'a> {
    pub(super) kind: ContainerKind,
    /// Where the part is whole, and at which offset.
    pub(super) from: &'a Arc<dyn Archive>,
    pub(super) from_offset: u64,
    pub(super) to: &'a Arc<dyn Archive>,
    pub(super) part: Location,
    /// Bytes of the container when it is whole.
    pub(super) length: u64,
}

impl Repair<'_> {
    /// Writes the container.
    ///
    /// # Errors
    /// Errors of an archive; the container is then as it was.
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
        upload.finish().map_err(self.failed(self.to))
    }

    fn failed(&self, archive: &Arc<dyn Archive>) -> impl FnOnce(io::Error) -> Error {
        Error::archive(archive.label(), self.part.container)
    }

    /// Bytes up to the next place where a piece ends, or the part begins or ends.
    fn piece_at(&self, offset: u64, piece: u64) -> u64 {
        let first = self.part.offset;
        let bounds = [first, first + self.part.length, self.length, (offset / piece + 1) * piece];
        let next = bounds.into_iter().filter(|bound| *bound > offset).min();
        next.map_or(0, |next| next - offset)
    }

    /// What is not the part: in pieces as small as what one damaged place costs where the whole
    /// can't be read.
    fn read_rest(&self, start: u64, bytes: &mut [u8]) -> Result<()> {
        if self.read(self.to, start, bytes).is_ok() {
            return Ok(());
        }
        // One that can't tell is read all the same.
        let length =
            |copy: &Arc<dyn Archive>| copy.length((self.kind, self.part.container)).unwrap_or(0);
        let ends = [self.to, self.from].map(length);
        let (mut offset, end) = (start, start + bytes.len() as u64);
        while offset < end {
            let next = end.min(offset + self.piece_at(offset, CHUNK_BYTES));
            // What a copy has before it ends is no part of what it lacks.
            let next = ends.into_iter().filter(|end| *end > offset).fold(next, u64::min);
            self.read_either(
                offset,
                &mut bytes[(offset - start) as usize..(next - start) as usize],
            )?;
            offset = next;
        }
        Ok(())
    }

    /// What neither archive has any more becomes zeros. Whose it was is damaged in both, and told;
    /// where an archive only fails to answer, nothing is written over what it may have. A disk that
    /// can't read a place has lost it.
    fn read_either(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let own = match self.read(self.to, offset, bytes) {
            Ok(()) => return Ok(()),
            Err(own) if is_gone(&own) || is_unreadable(&own) => own,
            Err(own) => return Err(self.failed(self.to)(own)),
        };
        match self.read(self.from, offset, bytes) {
            Err(error) if is_gone(&error) && is_gone(&own) => bytes.fill(0),
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

/// Whether bytes are not there, or not what they were.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof | ErrorKind::NotFound)
}

/// What a bundle holds, as a copy says that has a list; it must name an object where that is known
/// to lie.
///
/// # Errors
/// Errors of the archive, or that it has no such list.
pub(in crate::engine) fn listed(archive: &Arc<dyn Archive>, part: Location) -> Result<Contents> {
    let container = part.container;
    archive.forget((KIND, container));
    let length =
        archive.length((KIND, container)).map_err(Error::archive(archive.label(), container))?;
    let contents = contents_of(archive, container, length)?;
    if contents.list_bytes > 0 && contents.members.contains(&part) {
        return Ok(contents);
    }
    let what = Corrupt("no list of the bundle names what is in it");
    Err(Error::damaged(archive.label(), container, what))
}

/// The first of some copies of a bundle that has a list, with what that says.
pub(super) fn first_listed<'a>(
    copies: impl IntoIterator<Item = &'a Arc<dyn Archive>>,
    part: Location,
) -> Option<(&'a Arc<dyn Archive>, Contents)> {
    copies.into_iter().find_map(|archive| Some((archive, listed(archive, part).ok()?)))
}

/// Bytes of a copy of a container when it is whole: as its own list tells, or that of another one.
/// Where no list is left, nothing is cut off of what may be a bundle.
///
/// # Errors
/// What the archive of the copy answers.
pub(super) fn whole_length<'a>(
    copy: &'a Arc<dyn Archive>,
    others: impl IntoIterator<Item = &'a Arc<dyn Archive>>,
    part: Location,
) -> Result<u64> {
    let end = part.offset + part.length;
    // Only what is in a bundle has something before it.
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
