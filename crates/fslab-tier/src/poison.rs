//! Poison: the text that a released file shows instead of zeros while its tree is not mounted.
//!
//! If the lower file system can share blocks between files, released blocks are replaced by shared
//! blocks of text. The text tells users to mount the tree. The sector size is a multiple of the
//! length of the text, so all sectors of poison are the same. Bytes that a program wrote in the
//! lower directory are found by comparison with poison.
//!
//! The shared blocks belong to unnamed temporary files, the sources, which exist as long as the
//! engine that made them. Their blocks remain allocated as long as a released file shares them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_vfs::{Errno, FileSystem, Handle, Ino, OpenMode, Result, SetAttr, WriteOptions};
use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};

use crate::lower::{is_full, own_request};
use crate::runs::Runs;
use crate::stored::BLOCK_BYTES;

/// The text, which is repeated from the beginning of a file.
pub const LINE: &[u8; 64] = b"fslab: this file is in an archive; mount its tree to read it. \n\n";

/// Bytes of a sector. A power cut leaves a sector either completely old or completely new.
const SECTOR_BYTES: u64 = 512;

/// Maximum size of a source of poison in bytes, and so of an extent of a released file. A source
/// larger than [`SOURCE_BYTES_FIRST`] has at most one byte for each [`SOURCE_SHARE`] released
/// bytes.
const SOURCE_BYTES_MAX: u64 = 16 * BLOCK_BYTES;
const SOURCE_BYTES_FIRST: u64 = 64 << 10;
const SOURCE_SHARE: u64 = 16;

/// Maximum number of extents that share one source. Further extents share a new source. Operations
/// that walk over all users of a block (a balance of Btrfs, `filefrag`) take at most this many
/// steps.
const USES_MAX: u64 = 16_384;

/// Maximum number of sources for partial last blocks. Each has its own length, and uses one block
/// of the file system and [`TAIL_DESCRIPTORS`] descriptors. All of them use at most a fourth of the
/// descriptors that this process may open.
const TAILS_MAX: u64 = 4096;
const TAIL_DESCRIPTORS: u64 = 2;

/// If fewer bytes than this lie between a changed byte and the edge of its sector, they are treated
/// as changed, too. They may equal poison by coincidence, and programs write whole sectors more
/// often than parts of a sector.
const COINCIDENCE_BYTES: usize = 8;

/// Fills a buffer with the poison that belongs at an offset of a file.
pub fn fill(offset: u64, buffer: &mut [u8]) {
    let start = (offset % LINE.len() as u64) as usize;
    let text = LINE.iter().cycle().skip(start);
    buffer.iter_mut().zip(text).for_each(|(byte, poison)| *byte = *poison);
}

/// Returns the ranges of a file that are not poison. `bytes` are the file's bytes at `offset`.
///
/// A sector counts as changed unless all of it is poison. Adjacent changed sectors form one range,
/// from the first to the last byte that differs from poison. If this first or last byte is less
/// than 8 bytes from the edge of its sector, the range extends to the edge.
pub fn changed_in(offset: u64, bytes: &[u8]) -> Vec<Range<u64>> {
    let (mut poison, mut changes) = (vec![0; bytes.len()], Runs::new());
    fill(offset, &mut poison);
    let is_poison = |within: Range<usize>| bytes[within.clone()] == poison[within];
    differing_sectors(offset, bytes.len(), &mut changes, is_poison);
    let mut changes: Vec<_> = changes.iter().collect();
    let differs = |at: &u64| bytes[(at - offset) as usize] != poison[(at - offset) as usize];
    for change in &mut changes {
        let start = change.clone().find(differs).unwrap_or(change.start);
        let end = change.clone().rev().find(differs).map_or(change.end, |last| last + 1);
        let is_chance = |bytes: u64| bytes < COINCIDENCE_BYTES as u64;
        if !is_chance(start - change.start) {
            change.start = start;
        }
        if !is_chance(change.end - end) {
            change.end = end;
        }
    }
    changes
}

/// Adds to `differing` the sectors of a range for which `is_same` returns `false`.
pub(crate) fn differing_sectors(
    offset: u64,
    length: usize,
    differing: &mut Runs,
    is_same: impl Fn(Range<usize>) -> bool,
) {
    let (mut next, end) = (offset, offset + length as u64);
    while next < end {
        let sector = next..end.min((next / SECTOR_BYTES + 1) * SECTOR_BYTES);
        next = sector.end;
        if !is_same((sector.start - offset) as usize..(sector.end - offset) as usize) {
            differing.insert(sector);
        }
    }
}

/// Returns whether a file system can share blocks, by a trial with two new files.
#[must_use]
pub fn is_possible(fs: &Arc<dyn FileSystem>) -> bool {
    Poison::new(fs, true).is_ready(1)
}

/// Writes poison to files of a tree.
pub struct Poison {
    fs: Arc<dyn FileSystem>,
    /// Whether files without poison are given poison when they are released.
    is_wanted: bool,
    sources: Mutex<Sources>,
}

/// The files whose blocks are shared.
#[derive(Default)]
struct Sources {
    /// Whether the file system can share blocks; `None` before the first trial.
    can_share: Option<bool>,
    /// Number of bytes that were replaced by poison, including failed attempts.
    put_bytes: u64,
    newest: Option<Arc<Source>>,
    /// Sources for partial last blocks, by length.
    tails: HashMap<u64, Arc<Source>>,
}

impl Poison {
    /// Prepares to write poison to the files of a tree.
    pub fn new(fs: &Arc<dyn FileSystem>, is_wanted: bool) -> Self {
        Self { fs: Arc::clone(fs), is_wanted, sources: Mutex::default() }
    }

    /// Returns whether a fully resident file of this size will get poison when it is released. This
    /// requires that poison is wanted, and that a source of shareable blocks exists or can be
    /// created.
    pub fn is_ready(&self, size: u64) -> bool {
        let said = |error: &fslab_vfs::Error| {
            tracing::info!(
                %error,
                "can't create the text for released files (poison); they get holes instead"
            );
        };
        self.is_wanted && self.source(size).inspect_err(said).is_ok()
    }

    /// Replaces a range of a file by poison. The range begins at a block. Returns the number of
    /// bytes of a partial last block that were written, because the block can't be shared.
    ///
    /// # Errors
    /// Errors of the lower file system: see [`is_refusal`].
    pub fn put(&self, file: (Ino, Handle), range: Range<u64>, size: u64) -> Result<u64> {
        let end = range.end.min(size);
        let (mut at, length) = (range.start, end.saturating_sub(range.start));
        {
            let mut sources = self.sources.lock();
            sources.put_bytes = sources.put_bytes.saturating_add(length);
        }
        while at < end {
            let source = self.source(length)?;
            let shared_end = if end == size { end / source.unit * source.unit } else { end };
            if at >= shared_end {
                return self.put_tail(file, at..end);
            }
            let shared = (shared_end - at).min(source.bytes);
            source.share((file.0, file.1, at), shared)?;
            at += shared;
        }
        Ok(0)
    }

    /// Replaces a partial last block. File systems share such a block only with the last block of
    /// another file, of the same length.
    fn put_tail(&self, file: (Ino, Handle), range: Range<u64>) -> Result<u64> {
        let length = range.end - range.start;
        let place = (file.0, file.1, range.start);
        let shared = self.tail(length).and_then(|tail| {
            tail.map_or(Ok(false), |tail| tail.share(place, length).map(|()| true))
        });
        match shared {
            Ok(true) => return Ok(0),
            Ok(false) => {}
            Err(error) if is_refusal(&error) => {
                tracing::debug!(
                    %error,
                    "can't reflink the partial last block of poison, so it is written instead"
                );
            }
            Err(error) => return Err(error),
        }
        let mut text = vec![0; length as usize];
        fill(range.start, &mut text);
        let (request, options) = (own_request(), WriteOptions::default());
        self.fs.write_all(&request, file.0, file.1, range.start, &text, options)?;
        Ok(length)
    }

    /// Returns a source of this length, for partial last blocks. Returns `None` if it does not
    /// exist yet and there are already too many sources.
    fn tail(&self, length: u64) -> Result<Option<Arc<Source>>> {
        let mut sources = self.sources.lock();
        if let Some(tail) = sources.tails.get(&length).filter(|tail| !tail.has_enough()) {
            return Ok(Some(Arc::clone(tail)));
        }
        if sources.tails.len() as u64 >= tails_max() {
            return Ok(None);
        }
        // Not synced here, because the file system writes the blocks to the disk before it shares
        // them.
        let tail = Arc::new(Source::make(&self.fs, length)?);
        sources.tails.insert(length, Arc::clone(&tail));
        Ok(Some(tail))
    }

    /// Returns a source that is large enough for a range of this length.
    fn source(&self, length: u64) -> Result<Arc<Source>> {
        let mut sources = self.sources.lock();
        if sources.can_share == Some(false) {
            return Err(Errno::OPNOTSUPP.into());
        }
        let wanted = bytes_of_source(sources.put_bytes, length);
        let usable = |source: &&Arc<Source>| source.bytes >= wanted && !source.has_enough();
        if let Some(source) = sources.newest.as_ref().filter(usable) {
            return Ok(Arc::clone(source));
        }
        if sources.can_share.is_none() {
            let tried = self.try_out();
            // A full disk may have space later, so the trial is repeated then.
            let refused = tried.as_ref().is_err_and(is_lack);
            sources.can_share = (refused || tried.is_ok()).then_some(!refused);
            tried?;
        }
        let made = match (self.make(wanted), &sources.newest) {
            // The disk is full, so the previous source is used.
            (Err(error), Some(newest)) if is_full(error.errno()) => return Ok(Arc::clone(newest)),
            (Err(error), None) if is_full(error.errno()) => self.make(SOURCE_BYTES_FIRST)?,
            (made, _) => made?,
        };
        Ok(Arc::clone(sources.newest.insert(Arc::new(made))))
    }

    /// Tries to share a block between two new files. The block is a hole, so no data is written.
    fn try_out(&self) -> Result<()> {
        let unit = unit_of(&*self.fs)?;
        let [source, target] = [Source::empty(&self.fs, unit)?, Source::empty(&self.fs, unit)?];
        self.fs.clone_range(source.place(), target.place(), unit)
    }

    fn make(&self, bytes: u64) -> Result<Source> {
        let unit = unit_of(&*self.fs)?;
        let mut source = Source::make(&self.fs, bytes.next_multiple_of(unit))?;
        source.unit = unit;
        // Synced so that files that share its blocks never have undefined contents after a crash.
        self.fs.fsync(&own_request(), source.ino, source.handle, false)?;
        Ok(source)
    }
}

/// Returns the size of the source for a range of this length, after `put_bytes` bytes were replaced
/// by poison.
fn bytes_of_source(put_bytes: u64, length: u64) -> u64 {
    let least = length.clamp(1, SOURCE_BYTES_FIRST).next_power_of_two();
    let share = put_bytes / SOURCE_SHARE;
    let share = share.checked_ilog2().map_or(0, |log2| 1_u64 << log2);
    share.clamp(least, SOURCE_BYTES_MAX)
}

fn tails_max() -> u64 {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    TAILS_MAX.min(descriptors / 4 / TAIL_DESCRIPTORS)
}

/// Returns the unit of sharing: ranges are shared in multiples of it.
fn unit_of(fs: &dyn FileSystem) -> Result<u64> {
    let unit = u64::from(fs.statfs(&own_request(), Ino::ROOT)?.fragment_size).max(SECTOR_BYTES);
    let is_usable = unit.is_power_of_two() && unit <= SOURCE_BYTES_FIRST;
    if is_usable { Ok(unit) } else { Err(Errno::OPNOTSUPP.into()) }
}

/// Returns whether bytes at an offset of a file contain poison.
pub fn is_in(offset: u64, bytes: &[u8]) -> bool {
    let changed = changed_in(offset, bytes).into_iter().map(|change| change.end - change.start);
    changed.sum::<u64>() < bytes.len() as u64
}

/// Returns whether an error means that a file can't share blocks, or that no space is left.
pub fn is_refusal(error: &fslab_vfs::Error) -> bool {
    is_lack(error) || is_full(error.errno())
}

/// Returns whether an error means that blocks can't be shared.
fn is_lack(error: &fslab_vfs::Error) -> bool {
    use Errno as E;
    let errno = error.errno();
    matches!(errno, E::OPNOTSUPP | E::NOSYS | E::NOTTY | E::INVAL | E::XDEV | E::ISDIR)
}

/// An unnamed file that contains only poison.
struct Source {
    fs: Arc<dyn FileSystem>,
    ino: Ino,
    handle: Handle,
    bytes: u64,
    /// Unit of sharing in bytes: the lengths of shared ranges are multiples of it.
    unit: u64,
    uses: AtomicU64,
}

impl Source {
    /// Makes a source of any length.
    fn make(fs: &Arc<dyn FileSystem>, bytes: u64) -> Result<Self> {
        let source = Self::empty(fs, bytes)?;
        source.write()?;
        Ok(source)
    }

    /// Makes a file of this length that consists of a single hole.
    fn empty(fs: &Arc<dyn FileSystem>, bytes: u64) -> Result<Self> {
        let request = own_request();
        let (entry, opened) = fs.tmpfile(&request, Ino::ROOT, 0o600, OpenMode::READ_WRITE)?;
        let (ino, handle) = (entry.attr.ino, opened.handle);
        let (fs, uses) = (Arc::clone(fs), AtomicU64::new(0));
        let source = Self { fs, ino, handle, bytes, unit: 1, uses };
        // The size is set first, because XFS preallocates extra space for a file that grows by
        // appending, up to the file's size.
        let size = SetAttr { size: Some(bytes), ..SetAttr::default() };
        source.fs.setattr(&request, ino, Some(handle), &size)?;
        Ok(source)
    }

    fn write(&self) -> Result<()> {
        let mut text = vec![0; BLOCK_BYTES.min(self.bytes) as usize];
        fill(0, &mut text);
        for offset in (0..self.bytes).step_by(BLOCK_BYTES as usize) {
            let length = BLOCK_BYTES.min(self.bytes - offset) as usize;
            let (request, options) = (own_request(), WriteOptions::default());
            let text = &text[..length];
            self.fs.write_all(&request, self.ino, self.handle, offset, text, options)?;
        }
        Ok(())
    }

    /// Shares the first bytes of this source with a file, at an offset of that file.
    fn share(&self, file: (Ino, Handle, u64), bytes: u64) -> Result<()> {
        self.fs.clone_range(self.place(), file, bytes)?;
        self.uses.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn has_enough(&self) -> bool {
        self.uses.load(Ordering::Relaxed) >= USES_MAX
    }

    fn place(&self) -> (Ino, Handle, u64) {
        (self.ino, self.handle, 0)
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Err(error) = self.fs.release(&own_request(), self.ino, self.handle) {
            tracing::warn!(%error, "can't close the file whose blocks are shared as poison");
        }
        self.fs.forget(self.ino, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poison(length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        fill(0, &mut bytes);
        bytes
    }

    #[track_caller]
    fn check(written: &[(usize, &[u8])], expected: &[(u64, u64)]) {
        let mut bytes = poison(4096);
        for (at, data) in written {
            bytes[*at..at + data.len()].copy_from_slice(data);
        }
        let changed = changed_in(0, &bytes);
        let borders: Vec<_> = changed.iter().map(|range| (range.start, range.end)).collect();
        assert_eq!(borders, expected);
    }

    /// The source of a small release uses few blocks. In a large tree, sources grow so that
    /// released files have long extents.
    #[test]
    fn source_size_grows_with_released_bytes() {
        const KIB: u64 = 1 << 10;
        for (put, length, expected) in [
            (0, 1, 1),
            (0, 5 * KIB, 8 * KIB),
            (5 * KIB, 5 * KIB, 8 * KIB),
            (0, 900 * KIB, 64 * KIB),
            (BLOCK_BYTES, BLOCK_BYTES, 64 * KIB),
            (64 * BLOCK_BYTES, 1, 4 * BLOCK_BYTES),
            (100 * BLOCK_BYTES, BLOCK_BYTES, 4 * BLOCK_BYTES),
            (1 << 50, 1, 16 * BLOCK_BYTES),
        ] {
            assert_eq!(bytes_of_source(put, length), expected, "{length} bytes after {put}");
        }
    }

    #[test]
    fn written_bytes_are_distinguished_from_poison() {
        check(&[], &[]);
        check(&[(100, b"XX")], &[(100, 102)]);
        check(&[(0, &[0; 4096])], &[(0, 4096)]);
        check(&[(511, b"XX"), (2000, b"XX")], &[(511, 513), (2000, 2002)]);
        check(&[(100, b"X"), (300, b"X")], &[(100, 301)]);
    }

    /// Bytes that equal poison by chance belong to a change if they are inside it or at the edges
    /// of its sectors.
    #[test]
    fn poison_like_bytes_inside_a_change_are_kept() {
        let mut written = vec![0; 1024];
        fill(512, &mut written);
        (3..1021).filter(|at| at % 7 == 3).for_each(|at| written[at] = 0);
        check(&[(512, &written)], &[(512, 1536)]);
    }

    #[test]
    fn poison_depends_only_on_the_offset() {
        let whole = poison(1000);
        for offset in 0..200 {
            let mut part = vec![0; 300];
            fill(offset, &mut part);
            assert_eq!(part, whole[offset as usize..offset as usize + 300]);
            assert!(changed_in(offset, &part).is_empty());
        }
        assert!(SECTOR_BYTES.is_multiple_of(LINE.len() as u64), "sectors begin with a line");
    }
}
