//! Operations on a stored file while nothing is mounted over it: statistics, check, read, dump,
//! repair and pack.

mod check;
mod found;
mod pack;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fslab_vfs::{
    Errno, FileSystem, Handle, HostFs, HostOptions, Ino, LockMode, Name, OpenMode, Request,
};

use super::context::own_request;
use super::context::{Io, Session, Settings};
use super::dump::{self, Stretch};
use super::format::Kind;
use super::frame::{Entry, Identity};
use super::log::Log;
use super::lower::LowerFile;
use super::size_xattr::{self, Clean, Mark};
use super::{options, superblock};
use crate::error::{Error, Result};
use found::Found;

pub use pack::{PackedFile, pack};

/// A stored file, opened by its path in the lower directory, with nothing mounted over it.
pub struct Tool {
    path: PathBuf,
    lower: LowerFile,
    settings: Settings,
    request: Request,
    identity: Identity,
    length: u64,
    /// State at the last clean close, according to the size xattr.
    mark: Option<Clean>,
    /// Whether the size xattr records that this is a plain file which only looks like a stored
    /// file.
    is_foreign: bool,
    session: Session,
}

/// Statistics of a stored file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The codec's name.
    pub codec: &'static str,
    /// Chunk size in bytes.
    pub chunk_bytes: u64,
    /// Logical size.
    pub size: u64,
    /// Length of the stored file.
    pub stored_bytes: u64,
    /// Space that the stored file takes in the lower file system.
    pub allocated_bytes: u64,
    /// The layout: `packed`, `packed, sparse` or `log`.
    pub form: &'static str,
    /// Number of chunks with content.
    pub chunks: u64,
    /// Number of chunks whose content is stored raw.
    pub raw_chunks: u64,
    /// Number of pieces of a fast tail.
    pub segments: u64,
    /// Bytes of frames with live content.
    pub live_bytes: u64,
    /// Bytes of all other data except the head.
    pub garbage_bytes: u64,
    /// Number of frames with quarantined bytes.
    pub kept: u64,
    /// Whether something is missing; the other figures then cover the part that was found.
    pub is_incomplete: bool,
    /// Numbers of chunks by encoded length relative to the content: below 10 %, below 20 % and so
    /// on. The last number is for 100 % or more.
    pub histogram: [u64; 11],
}

/// The part of a stored file that [`Tool::check`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The head, every frame header, and metadata with their checksums.
    Structure,
    /// The content as well: its checksums are verified and it is decoded.
    Everything,
}

/// A problem in a stored file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Offset in the stored file.
    pub offset: u64,
    /// The chunk whose content is affected, if any.
    pub chunk: Option<u64>,
    /// Description of the problem.
    pub what: String,
}

impl Tool {
    /// Opens a stored file, and takes the shared lock of its tree.
    ///
    /// # Errors
    /// A mount uses the file; it is not a stored file; errors of the lower file system.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |source| Error::StoredFile { path: path.to_owned(), source };
        let mode = OpenMode::empty();
        let (fs, ino, handle) = open_below(path, LockMode::Shared, mode).map_err(failed)?;
        let request = own_request();
        let settings = options::of_tools().map_err(failed)?;
        let lower = LowerFile { fs, ino, handle };
        let length = lower.length(&request).map_err(failed)?;
        let beginning = lower.read(&request, 0, superblock::BEGINNING_BYTES).map_err(failed)?;
        let found = size_xattr::read(&*lower.fs, &request, ino).map_err(failed)?;
        let identity = superblock::identify(&beginning).ok_or_else(|| match found {
            Some(Mark::Clean(_) | Mark::Dirty) if length > 0 => failed(size_xattr::headless(ino)),
            _ => Error::NoStoredFile { path: path.to_owned() },
        })?;
        let is_foreign = found == Some(Mark::Foreign);
        let mark = match found {
            Some(Mark::Clean(clean)) => Some(clean),
            Some(Mark::Dirty | Mark::Foreign) | None => None,
        };
        let whole_path = path.canonicalize().map_err(|error| failed(error.into()))?;
        let session = size_xattr::session_above(&whole_path);
        let path = path.to_owned();
        Ok(Self { path, lower, settings, request, identity, length, mark, is_foreign, session })
    }

    /// Length of the stored file in bytes.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.length
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// Length of the logical file in bytes.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn size(&self) -> Result<u64> {
        Ok(self.look()?.log.size())
    }

    fn io(&self) -> Io<'_> {
        Io::new(&self.lower, &self.request, &self.settings)
    }

    fn failed(&self, source: fslab_vfs::Error) -> Error {
        Error::StoredFile { path: self.path.clone(), source }
    }

    /// Reads the file's structure as a mount would.
    fn look(&self) -> Result<Found> {
        self.found().map_err(|source| self.failed(source))
    }

    fn stretches(&self) -> Result<Vec<Stretch>> {
        dump::stretches(self.io(), &self.identity, self.length).map_err(|error| self.failed(error))
    }

    /// Returns statistics, for which only headers are read.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn figures(&self) -> Result<Figures> {
        let Found { log, missing, .. } = self.look()?;
        let attr = self.lower.attr(&self.request).map_err(|error| self.failed(error))?;
        let mut figures = Figures {
            codec: self.identity.codec.name,
            chunk_bytes: self.identity.chunk_bytes(),
            size: log.size(),
            is_incomplete: !missing.is_empty(),
            stored_bytes: self.length,
            allocated_bytes: attr.blocks * 512,
            ..Figures::default()
        };
        let (entries, stretches) = (self.entries(&log)?, self.stretches()?);
        figures.kept = count_frames(&stretches, &[Kind::Kept]);
        let form = form(self.io(), &log, has_outdated_content(&entries, &stretches));
        figures.form = form.map_err(|error| self.failed(error))?;
        for (chunk, entry) in entries {
            self.count(&log, chunk, entry, &mut figures)?;
        }
        let table = log.journal.closing_bytes();
        let used = super::format::HEAD_BYTES + figures.live_bytes + table;
        figures.garbage_bytes = self.length.saturating_sub(used + log.bytes_before_staging());
        Ok(figures)
    }

    /// Whether [`pack()`] would rewrite the file.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn gains_by_packing(&self) -> Result<bool> {
        let log = self.look()?.log;
        Ok(log.journal.is_staging()
            || self.gains_in_a_mount(&log)?
            || self.has_outdated_content(&log)?)
    }

    /// Whether [`pack()`] would rewrite the file, but a mount would not.
    fn gains_only_by_tool(&self) -> Result<bool> {
        let log = self.look()?.log;
        Ok(!self.gains_in_a_mount(&log)? && self.has_outdated_content(&log)?)
    }

    fn gains_in_a_mount(&self, log: &Log) -> Result<bool> {
        log.gains_by_packing(self.io()).map_err(|error| self.failed(error))
    }

    /// Whether ordinary tools print outdated content of the file, which packing would remove.
    /// Mounts do not pack a file for this reason, because most such files have little garbage.
    fn has_outdated_content(&self, log: &Log) -> Result<bool> {
        if self.is_foreign || !log.is_whole() || log.is_packed() {
            return Ok(false);
        }
        Ok(has_outdated_content(&self.entries(log)?, &self.stretches()?))
    }

    fn count(&self, log: &Log, chunk: u64, entry: Entry, figures: &mut Figures) -> Result<()> {
        let io = self.io();
        let header = io
            .lower
            .read(io.request, entry.frame.offset, self.identity.header_bytes())
            .map_err(|error| self.failed(error))?;
        let stored = u64::from(entry.frame.stored_length);
        figures.live_bytes += stored;
        let is_segment = log.map.segments(chunk).contains(&entry);
        if is_segment {
            figures.segments += 1;
            return Ok(());
        }
        figures.chunks += 1;
        if let Ok(frame) = super::frame::parse(&self.identity, &header, entry.frame.offset) {
            figures.raw_chunks += u64::from(frame.raw);
            let tenth = stored * 10 / u64::from(frame.length.max(1));
            figures.histogram[tenth.min(10) as usize] += 1;
        }
        Ok(())
    }

    /// Returns all entries with content, in logical order.
    fn entries(&self, log: &Log) -> Result<Vec<(u64, Entry)>> {
        let (io, mut all, mut next) = (self.io(), Vec::new(), 0);
        while let Some(chunk) =
            log.map.next_present(io, next).map_err(|error| self.failed(error))?
        {
            let entries = log.map.entries(io, chunk).map_err(|error| self.failed(error))?;
            all.extend(entries.into_iter().map(|entry| (chunk, entry)));
            next = chunk + 1;
        }
        Ok(all)
    }

    /// Writes the content to `out`.
    ///
    /// # Errors
    /// Content is damaged, or writing fails. If parts of the file are missing, the rest is written
    /// before the error is returned.
    pub fn cat(&self, out: &mut dyn Write) -> Result<()> {
        let Found { log, missing, .. } = self.look()?;
        let (io, mut offset) = (self.io(), 0);
        let mut buffer = vec![0; 1 << 20];
        while offset < log.size() {
            let count =
                log.map.read(io, offset, &mut buffer).map_err(|error| self.failed(error))?;
            out.write_all(&buffer[..count]).map_err(|error| self.failed(error.into()))?;
            offset += count as u64;
        }
        match missing.into_iter().next() {
            Some(Finding { offset, what, .. }) => {
                Err(Error::Incomplete { path: self.path.clone(), offset, what })
            }
            None => Ok(()),
        }
    }

    /// Writes a line for each part of the file to `out`.
    ///
    /// # Errors
    /// The file can't be read, or writing fails.
    pub fn dump(&self, out: &mut dyn Write) -> Result<()> {
        dump::dump(self.io(), &self.identity, self.length, out).map_err(|error| self.failed(error))
    }

    /// Passes all content that can be decoded to `write_at`, in logical order, and returns the lost
    /// parts. It also searches for frames after damaged bytes.
    ///
    /// # Errors
    /// Errors after which the salvage can't continue, and errors of `write_at`.
    pub fn salvage(
        &self,
        write_at: &mut dyn FnMut(u64, &[u8]) -> std::io::Result<()>,
    ) -> Result<Salvaged> {
        let io = self.io();
        let found = self.look().and_then(|found| self.entries(&found.log).map(|_| found));
        // If the index is damaged, the frames are read instead.
        let found = found.or_else(|_| self.found_by_frames()).and_then(|found| self.go_on(found));
        let Found { log, size, missing } = found.map_err(|error| self.failed(error))?;
        let mut lost = Vec::new();
        let mut next = 0;
        while let Some(chunk) =
            log.map.next_present(io, next).map_err(|error| self.failed(error))?
        {
            match log.map.chunk_content(io, chunk) {
                Ok(content) => {
                    let offset = chunk * log.map.chunk_bytes() + u64::from(content.from);
                    write_at(offset, &content.bytes).map_err(|error| self.failed(error.into()))?;
                }
                Err(error) => lost.push(Finding {
                    offset: chunk * log.map.chunk_bytes(),
                    chunk: Some(chunk),
                    what: error.to_string(),
                }),
            }
            next = chunk + 1;
        }
        Ok(Salvaged { size, lost, missing, chunk_bytes: log.map.chunk_bytes() })
    }

    /// Returns the specification of a layer with the same codec and chunk size.
    #[must_use]
    pub fn layer(&self) -> String {
        format!("{}:chunk={}", self.identity.codec.name, self.identity.chunk_bytes())
    }
}

/// Result of a salvage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salvaged {
    /// The logical size.
    pub size: u64,
    /// Chunks that could not be read, by their offset in the logical file.
    pub lost: Vec<Finding>,
    /// Missing parts whose offset in the logical file is unknown, by their offset in the stored
    /// file.
    pub missing: Vec<Finding>,
    /// Chunk size in bytes.
    pub chunk_bytes: u64,
}

/// Whether some frames hold content that was later overwritten or cut off. `entries` are the index
/// entries of all live frames with content.
fn has_outdated_content(entries: &[(u64, Entry)], stretches: &[Stretch]) -> bool {
    count_frames(stretches, &[Kind::Data, Kind::Segment]) > entries.len() as u64
}

fn count_frames(stretches: &[Stretch], kinds: &[Kind]) -> u64 {
    let is_counted = |stretch: &&Stretch| match stretch {
        Stretch::Frame(frame) => kinds.contains(&frame.kind),
        _ => false,
    };
    stretches.iter().filter(is_counted).count() as u64
}

/// Returns the layout of a file. Ordinary tools also print outdated content.
fn form(io: Io<'_>, log: &Log, has_outdated_content: bool) -> fslab_vfs::Result<&'static str> {
    Ok(match log.is_packed() {
        true => "packed",
        false if !has_outdated_content && log.is_packed_but_for_holes(io)? => "packed, sparse",
        false => "log",
    })
}

fn open_below(
    path: &Path,
    lock: LockMode,
    mode: OpenMode,
) -> fslab_vfs::Result<(Arc<dyn FileSystem>, Ino, Handle)> {
    let (parent, name) = split(path)?;
    let fs: Arc<dyn FileSystem> = Arc::new(HostFs::open(&parent, &HostOptions::default())?);
    fs.lock_tree(lock)?;
    let request = own_request();
    let entry = fs.lookup(&request, Ino::ROOT, Name::new(&name)?)?;
    let opened = fs.open(&request, entry.attr.ino, mode)?;
    Ok((fs, entry.attr.ino, opened.handle))
}

fn split(path: &Path) -> fslab_vfs::Result<(PathBuf, OsString)> {
    let name: &OsStr = path.file_name().ok_or(Errno::ISDIR)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((parent.unwrap_or(Path::new(".")).to_owned(), name.to_owned()))
}
