//! Makes snapshots from traces of Plan 9 file servers (9fans/p9trace). Such a server dumped its
//! tree every day. A trace contains every block of every dump, but no file contents and no names.
//!
//! Each tree is walked from its super block, as in the server. While traces are read, directory and
//! pointer blocks are stored in a temporary file with an index by address. So the memory needed
//! depends on the number of these blocks, not on their size. Blocks are missing if not all traces
//! of a server are available. Missing blocks are counted, and everything under them is omitted.

mod block;
mod record;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use self::block::{DirectoryEntry, pointers};
use self::record::{Kind, Records, Super};
use super::{Entry, EntryKind, SnapshotWriter, Taken};
use crate::error::{Error, Result};

const SECOND_NS: i64 = 1_000_000_000;

/// The dumps of a file server.
pub struct P9Dumps {
    blocks: Blocks,
    dumps: Vec<Super>,
}

/// The results of writing the dumps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct P9Written {
    /// Paths of the snapshots, in the order of the dumps.
    pub snapshots: Vec<PathBuf>,
    /// Number of dumps whose root block is missing.
    pub rootless: u64,
    /// Number of blocks that were needed but are missing.
    pub missing_blocks: u64,
}

impl P9Dumps {
    /// Reads traces, which must be in chronological order. Directory and pointer blocks are stored
    /// in a temporary file in the directory `beside`.
    ///
    /// # Errors
    /// Fails at the first invalid record, and on I/O errors.
    pub fn read(traces: &[PathBuf], beside: &Path) -> Result<Self> {
        let mut blocks = Blocks::new(beside)?;
        let mut dumps = Vec::new();
        for path in traces {
            for record in Records::open(path)? {
                let record = record?;
                match record.kind {
                    Kind::Super(found) => dumps.push(found),
                    Kind::Directory(bytes) | Kind::Pointers(bytes) => {
                        blocks.add(record.address, record.tag, &bytes)?;
                    }
                    Kind::Other => {}
                }
            }
        }
        blocks.flush()?;
        Ok(Self { blocks, dumps })
    }

    /// Returns the number of dumps.
    #[must_use]
    pub fn dumps(&self) -> usize {
        self.dumps.len()
    }

    /// Writes a snapshot for each dump into `directory`.
    ///
    /// # Errors
    /// Fails at the first invalid block, and on I/O errors.
    pub fn write(&self, directory: &Path) -> Result<P9Written> {
        let mut written = P9Written::default();
        let mut latest_ns = 0;
        for dump in &self.dumps {
            let path = directory.join(format!("{:08}.parquet", written.snapshots.len()));
            let mut walk = Walk::new(&self.blocks, SnapshotWriter::new(&path));
            if !walk.root(dump.root)? {
                written.rootless += 1;
                continue;
            }
            written.missing_blocks += walk.missing_blocks;
            // A dump has no time; use the time of its latest change.
            latest_ns = walk.latest_ns.max(latest_ns);
            let source = "a Plan 9 file server".to_owned();
            walk.writer.finish(&Taken { taken_ns: latest_ns, source, ..Taken::default() })?;
            written.snapshots.push(path);
        }
        Ok(written)
    }
}

/// Directory and pointer blocks by address.
struct Blocks {
    path: PathBuf,
    file: File,
    /// Data that has not been written to the file yet; it will be written at the offset `written`.
    tail: Vec<u8>,
    written: u64,
    /// For each block, its offset in the file, its length and its tag.
    places: HashMap<u32, (u64, u16, u8)>,
}

/// Number of bytes that are written to the temporary file at a time.
const TAIL_BYTES: usize = 1 << 20;

impl Blocks {
    fn new(beside: &Path) -> Result<Self> {
        let file = tempfile::tempfile_in(beside).map_err(Error::file(beside))?;
        let (path, places) = (beside.to_owned(), HashMap::new());
        Ok(Self { path, file, tail: Vec::new(), written: 0, places })
    }

    fn add(&mut self, address: u32, tag: u8, bytes: &[u8]) -> Result<()> {
        let at = self.written + self.tail.len() as u64;
        // A record has at most 32 KiB, so its length fits in 16 bits.
        self.places.insert(address, (at, bytes.len() as u16, tag));
        self.tail.extend_from_slice(bytes);
        if self.tail.len() >= TAIL_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        self.file.write_all(&self.tail).map_err(Error::file(&self.path))?;
        self.written += self.tail.len() as u64;
        self.tail.clear();
        Ok(())
    }

    /// Returns the error for a block whose length does not match the count in it.
    fn damaged(&self, address: u32) -> Error {
        let offset = self.places.get(&address).map_or(0, |(at, ..)| *at);
        Error::Record { path: self.path.clone(), offset, what: record::LENGTH }
    }

    /// Returns a block with this tag; `None` if no trace contains it.
    fn get(&self, address: u32, wanted: u8) -> Result<Option<Vec<u8>>> {
        let found = self.places.get(&address).filter(|(.., tag)| *tag == wanted);
        let Some((at, length, _)) = found else { return Ok(None) };
        let mut bytes = vec![0; usize::from(*length)];
        self.file.read_exact_at(&mut bytes, *at).map_err(Error::file(&self.path))?;
        Ok(Some(bytes))
    }
}

/// A walk through the tree of one dump.
struct Walk<'a> {
    blocks: &'a Blocks,
    writer: SnapshotWriter,
    /// Visited addresses, so that each block is read at most once, even if a trace contains cycles.
    seen: HashSet<u32>,
    /// Directories to visit, with their inodes.
    waiting: Vec<(DirectoryEntry, u64)>,
    missing_blocks: u64,
    latest_ns: i64,
}

impl<'a> Walk<'a> {
    fn new(blocks: &'a Blocks, writer: SnapshotWriter) -> Self {
        let (seen, waiting) = (HashSet::new(), Vec::new());
        Self { blocks, writer, seen, waiting, missing_blocks: 0, latest_ns: 0 }
    }

    /// Walks through the whole tree. Returns `false` if its root does not exist.
    fn root(&mut self, address: u32) -> Result<bool> {
        let Some(bytes) = self.blocks.get(address, record::TAG_DIRECTORY)? else {
            return Ok(false);
        };
        // The root block contains one entry, the root directory.
        let entries = block::entries(&bytes).ok_or_else(|| self.blocks.damaged(address))?;
        let root = entries.into_iter().find(DirectoryEntry::is_directory);
        let Some(root) = root else { return Ok(false) };
        self.waiting.push((root, 0));
        while let Some((directory, inode)) = self.waiting.pop() {
            for block in self.contents(&directory)? {
                self.directory_block(block, inode)?;
            }
        }
        Ok(true)
    }

    /// Returns the addresses of a directory's entry blocks, in order.
    fn contents(&mut self, directory: &DirectoryEntry) -> Result<Vec<u32>> {
        let mut blocks = directory.direct.to_vec();
        self.follow(directory.indirect, record::TAG_INDIRECT, &mut blocks)?;
        let mut between = Vec::new();
        self.follow(directory.double_indirect, record::TAG_DOUBLE, &mut between)?;
        for address in between {
            self.follow(address, record::TAG_INDIRECT, &mut blocks)?;
        }
        blocks.retain(|address| *address != 0);
        Ok(blocks)
    }

    /// Appends the pointers in a pointer block to `into`; address 0 means no block.
    fn follow(&mut self, address: u32, tag: u8, into: &mut Vec<u32>) -> Result<()> {
        if address != 0
            && let Some(bytes) = self.take(address, tag)?
        {
            into.extend(pointers(&bytes).ok_or_else(|| self.blocks.damaged(address))?);
        }
        Ok(())
    }

    /// Returns a block and marks it as visited; `None` if it is missing or was visited before.
    fn take(&mut self, address: u32, tag: u8) -> Result<Option<Vec<u8>>> {
        if !self.seen.insert(address) {
            return Ok(None);
        }
        let bytes = self.blocks.get(address, tag)?;
        self.missing_blocks += u64::from(bytes.is_none());
        Ok(bytes)
    }

    fn directory_block(&mut self, address: u32, directory: u64) -> Result<()> {
        let Some(bytes) = self.take(address, record::TAG_DIRECTORY)? else { return Ok(()) };
        let entries = block::entries(&bytes).ok_or_else(|| self.blocks.damaged(address))?;
        for found in entries {
            let entry = to_entry(&found, directory);
            self.latest_ns = self.latest_ns.max(entry.modified_ns);
            let inode = entry.inode;
            self.writer.push(entry)?;
            if found.is_directory() {
                self.waiting.push((found, inode));
            }
        }
        Ok(())
    }
}

/// Converts an entry. A path number is never reused, so it serves as an inode number. The version
/// changes with each write, even within one second. Therefore it is stored as the nanoseconds of
/// the modification time.
fn to_entry(found: &DirectoryEntry, directory: u64) -> Entry {
    let is_directory = found.is_directory();
    let version_ns = i64::from(found.version) % SECOND_NS;
    let modified_ns = i64::from(found.modified_s) * SECOND_NS + version_ns;
    Entry {
        inode: u64::from(found.path) + 1,
        directory,
        kind: if is_directory { EntryKind::Directory } else { EntryKind::File },
        size: if is_directory { 0 } else { found.size.into() },
        modified_ns,
        changed_ns: modified_ns,
        mode: u32::from(found.mode & 0o777),
        uid: found.uid.into(),
        gid: found.gid.into(),
        links: 1,
        name: format!("{:x}", found.path).into_bytes().into(),
        ..Entry::default()
    }
}
