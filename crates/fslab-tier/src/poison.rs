//! Poison: what a released file shows while its tree is not mounted, in the place of zeros.
//!
//! Where the file system below can share blocks between files, released blocks are replaced by
//! shared blocks of text that says what to do. The text has a period that divides every sector, so
//! that what a program wrote below is told from it by looking at the bytes.
//!
//! The text comes from a file without a name, which goes with the engine that made it. Its blocks
//! stay for as long as a released file shares them.

use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::{Errno, FileSystem, Handle, Ino, OpenMode, Result, SetAttr, WriteOptions};
use parking_lot::Mutex;

use crate::lower::own_request;
use crate::stored::BLOCK_BYTES;

/// The text, again and again from the first byte of a file on.
pub const LINE: &[u8; 64] = b"fslab: this file is in an archive; mount its tree to read it. \n\n";

/// What a power cut leaves whole or not at all.
const SECTOR_BYTES: u64 = 512;

/// Bytes of a source of poison: one extent of a released file is as long at most. The second is for
/// disks that are full.
const SOURCE_BYTES: [u64; 2] = [16 * BLOCK_BYTES, BLOCK_BYTES];

/// Extents of released files that share a source; then there is a new one. What walks over all
/// users of a block (a balance of Btrfs, `filefrag`) takes so many steps at most.
const USES_MAX: u64 = 16_384;

/// Fewer bytes of a change that are as poison are taken to be the program's, where the change
/// begins or ends in their sector: programs write whole sectors more often than parts of one.
const COINCIDENCE_BYTES: usize = 8;

/// Fills a buffer as poison has it at an offset of a file.
pub fn fill(offset: u64, buffer: &mut [u8]) {
    let start = (offset % LINE.len() as u64) as usize;
    let text = LINE.iter().cycle().skip(start);
    buffer.iter_mut().zip(text).for_each(|(byte, poison)| *byte = *poison);
}

/// What of bytes at an offset of a file is no poison, as ranges of the file.
///
/// A sector is poison as a whole or was changed. Neighbouring changed sectors are one change, which
/// begins and ends where the first and the last byte differ from poison.
pub fn changed_in(offset: u64, bytes: &[u8]) -> Vec<Range<u64>> {
    let (mut poison, mut changes) = (vec![0; bytes.len()], Vec::<Range<u64>>::new());
    fill(offset, &mut poison);
    let end = offset + bytes.len() as u64;
    let mut next = offset;
    while next < end {
        let sector = next..end.min((next / SECTOR_BYTES + 1) * SECTOR_BYTES);
        next = sector.end;
        let within = (sector.start - offset) as usize..(sector.end - offset) as usize;
        if bytes[within.clone()] == poison[within] {
            continue;
        }
        match changes.last_mut().filter(|last| last.end == sector.start) {
            Some(last) => last.end = sector.end,
            None => changes.push(sector),
        }
    }
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

/// Whether a file system can share blocks, as two new files show.
#[must_use]
pub fn is_possible(fs: &Arc<dyn FileSystem>) -> bool {
    let tried = || {
        let source = Source::make(fs, BLOCK_BYTES)?;
        let target = Source::make(fs, BLOCK_BYTES)?;
        fs.clone_range(source.at(0), target.at(0), BLOCK_BYTES)
    };
    tried().inspect_err(|error| tracing::info!(%error, "blocks are not shared here")).is_ok()
}

/// Puts poison into files of a tree.
pub struct Poison {
    fs: Arc<dyn FileSystem>,
    /// Whether files get it that have none.
    is_wanted: bool,
    source: Mutex<Option<Arc<Source>>>,
}

impl Poison {
    /// For files of a tree.
    pub fn new(fs: &Arc<dyn FileSystem>, is_wanted: bool) -> Self {
        Self { fs: Arc::clone(fs), is_wanted, source: Mutex::default() }
    }

    /// Whether files that have no offline block yet are to get it, and a source of it is there.
    pub fn is_ready(&self) -> bool {
        let said = |error: &fslab_vfs::Error| tracing::info!(%error, "no poison is made");
        self.is_wanted && self.source().inspect_err(said).is_ok()
    }

    /// Replaces a range of a file, which begins at a block, by poison. Of a last page that is not
    /// whole, the bytes are written: file systems share whole pages only.
    ///
    /// # Errors
    /// What the file system below answers: see [`is_refusal`].
    pub fn put(&self, file: (Ino, Handle), range: Range<u64>, size: u64) -> Result<()> {
        let end = range.end.min(size);
        let mut at = range.start;
        while at < end {
            let source = self.source()?;
            let shared_end = if end == size { end / source.unit * source.unit } else { end };
            if at < shared_end {
                let length = (shared_end - at).min(source.bytes);
                self.fs.clone_range(source.at(0), (file.0, file.1, at), length)?;
                self.used(&source);
                at += length;
                continue;
            }
            let mut text = vec![0; (end - at) as usize];
            fill(at, &mut text);
            write(&*self.fs, file, at, &text)?;
            at = end;
        }
        Ok(())
    }

    fn source(&self) -> Result<Arc<Source>> {
        let mut source = self.source.lock();
        if let Some(source) = &*source {
            return Ok(Arc::clone(source));
        }
        let [large, small] = SOURCE_BYTES;
        let made = match Source::make(&self.fs, large) {
            Err(error) if matches!(error.errno(), Errno::NOSPC | Errno::DQUOT) => {
                Source::make(&self.fs, small)
            }
            made => made,
        };
        Ok(Arc::clone(source.insert(Arc::new(made?))))
    }

    /// Counts a use of a source, and gives it up when it has enough.
    fn used(&self, used: &Arc<Source>) {
        let mut source = self.source.lock();
        let uses = used.uses.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        if uses >= USES_MAX && source.as_ref().is_some_and(|source| Arc::ptr_eq(source, used)) {
            *source = None;
        }
    }
}

/// Whether bytes at an offset of a file have poison in them.
pub fn is_in(offset: u64, bytes: &[u8]) -> bool {
    let changed = changed_in(offset, bytes).into_iter().map(|change| change.end - change.start);
    changed.sum::<u64>() < bytes.len() as u64
}

/// Whether an error says that a file can't share blocks, or that there is no room for it.
pub fn is_refusal(error: &fslab_vfs::Error) -> bool {
    use Errno as E;
    let errno = error.errno();
    matches!(errno, E::OPNOTSUPP | E::NOSYS | E::NOTTY | E::INVAL | E::XDEV | E::NOSPC | E::DQUOT)
}

fn write(fs: &dyn FileSystem, file: (Ino, Handle), offset: u64, bytes: &[u8]) -> Result<()> {
    let (request, options, mut done) = (own_request(), WriteOptions::default(), 0);
    while done < bytes.len() {
        let (at, rest) = (offset + done as u64, &bytes[done..]);
        match fs.write(&request, file.0, file.1, at, rest, options)? {
            0 => return Err(Errno::IO.into()),
            count => done += count,
        }
    }
    Ok(())
}

/// A file without a name that is all poison.
struct Source {
    fs: Arc<dyn FileSystem>,
    ino: Ino,
    handle: Handle,
    bytes: u64,
    /// What ranges are shared in whole numbers of.
    unit: u64,
    uses: std::sync::atomic::AtomicU64,
}

impl Source {
    fn make(fs: &Arc<dyn FileSystem>, bytes: u64) -> Result<Self> {
        let request = own_request();
        let unit = fs.statfs(&request, Ino::ROOT)?.fragment_size.max(1).into();
        if !BLOCK_BYTES.is_multiple_of(unit) {
            return Err(Errno::OPNOTSUPP.into());
        }
        let (entry, opened) = fs.tmpfile(&request, Ino::ROOT, 0o600, OpenMode::READ_WRITE)?;
        let (ino, handle) = (entry.attr.ino, opened.handle);
        let source =
            Self { fs: Arc::clone(fs), ino, handle, bytes, unit, uses: Default::default() };
        source.write()?;
        Ok(source)
    }

    fn write(&self) -> Result<()> {
        let (mut text, request) = (vec![0; BLOCK_BYTES as usize], own_request());
        fill(0, &mut text);
        // XFS reserves as much again for a file that is appended to.
        let size = SetAttr { size: Some(self.bytes), ..SetAttr::default() };
        self.fs.setattr(&request, self.ino, Some(self.handle), &size)?;
        for offset in (0..self.bytes).step_by(BLOCK_BYTES as usize) {
            write(&*self.fs, (self.ino, self.handle), offset, &text)?;
        }
        // What shares its blocks is durable with them.
        self.fs.fsync(&request, self.ino, self.handle, false)
    }

    fn at(&self, offset: u64) -> (Ino, Handle, u64) {
        (self.ino, self.handle, offset)
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Err(error) = self.fs.release(&own_request(), self.ino, self.handle) {
            tracing::warn!(%error, "closing a source of poison");
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

    #[test]
    fn written_bytes_are_told_from_poison() {
        check(&[], &[]);
        check(&[(100, b"XX")], &[(100, 102)]);
        check(&[(0, &[0; 4096])], &[(0, 4096)]);
        check(&[(511, b"XX"), (2000, b"XX")], &[(511, 513), (2000, 2002)]);
        check(&[(100, b"X"), (300, b"X")], &[(100, 301)]);
    }

    /// Bytes of a change that happen to be as poison are kept within it, and at the sectors' edges.
    #[test]
    fn bytes_as_in_poison_are_kept_within_a_change() {
        let mut written = vec![0; 1024];
        fill(512, &mut written);
        (3..1021).filter(|at| at % 7 == 3).for_each(|at| written[at] = 0);
        check(&[(512, &written)], &[(512, 1536)]);
    }

    #[test]
    fn poison_is_the_same_at_each_offset_wherever_it_is_read() {
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
