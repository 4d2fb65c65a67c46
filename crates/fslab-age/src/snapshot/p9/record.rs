//! Reads the records of a trace. Each has a header of two bytes; the rest may be compressed with
//! deflate.
//!
//! ```text
//! 0      2     3      7      11                 17       37
//! | size | tag | path | addr | zsize wsize dsize | score | depends on the tag |
//! ```
//!
//! All numbers are big-endian. The highest bit of the size marks a compressed record. The other
//! bits are the stored length of the record.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use libdeflater::Decompressor;

use super::block::{ENTRY_BYTES, POINTER_BYTES, be32, counted};
use crate::error::{Error, Result};

pub const TAG_DIRECTORY: u8 = 2;
/// The tag of a block of pointers to data.
pub const TAG_INDIRECT: u8 = 3;
/// The tag of a block of pointers to pointer blocks.
pub const TAG_DOUBLE: u8 = 4;
const TAG_NULL: u8 = 0;
const TAG_SUPER: u8 = 1;
const TAG_FILE: u8 = 5;

/// Maximum size of a record in bytes, both compressed and decompressed.
const RECORD_BYTES_MAX: usize = 32 << 10;

/// Length of the fields at the beginning of all records, in bytes.
const COMMON_BYTES: usize = 35;

/// The message for a block whose length does not match the count in it.
pub const LENGTH: &str = "its length does not match its count";

/// The content of a super block, which starts a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Super {
    /// The address of the block with the root of the tree.
    pub root: u32,
}

/// A block of the file server.
pub struct Record {
    /// The kind of block, as stored.
    pub tag: u8,
    /// The address of the block.
    pub address: u32,
    /// The parsed content of the block.
    pub kind: Kind,
}

/// The parsed content of a block.
pub enum Kind {
    Super(Super),
    /// The content of a directory block: the number of entries and the entries.
    Directory(Vec<u8>),
    /// The content of a pointer block: the number of pointers and the pointers.
    Pointers(Vec<u8>),
    /// Data or an empty block.
    Other,
}

/// The records of a trace.
pub struct Records {
    path: PathBuf,
    input: BufReader<File>,
    inflater: Decompressor,
    offset: u64,
    failed: bool,
}

impl Records {
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Error::file(path))?;
        let (path, input) = (path.to_owned(), BufReader::with_capacity(1 << 18, file));
        Ok(Self { path, input, inflater: Decompressor::new(), offset: 0, failed: false })
    }

    fn wrong(&self, what: &'static str) -> Error {
        Error::Record { path: self.path.clone(), offset: self.offset, what }
    }

    fn read(&mut self) -> Result<Option<Record>> {
        let Some(head) = self.header()? else { return Ok(None) };
        let (is_deflated, stored) = (head & 0x8000 != 0, usize::from(head & 0x7fff));
        let mut bytes = vec![0; stored];
        self.fill(&mut bytes)?;
        if is_deflated {
            bytes = self.inflate(&bytes)?;
        }
        let record = self.parse(&bytes)?;
        self.offset += 2 + stored as u64;
        Ok(Some(record))
    }

    /// Reads the header of the next record; `None` at the end of the trace.
    fn header(&mut self) -> Result<Option<u16>> {
        let mut head = [0; 2];
        match self.input.read(&mut head[..1]).map_err(Error::file(&self.path))? {
            0 => Ok(None),
            _ => {
                self.fill(&mut head[1..])?;
                Ok(Some(u16::from_be_bytes(head)))
            }
        }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        match self.input.read_exact(bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(self.wrong("the trace ends within it"))
            }
            answer => answer.map_err(Error::file(&self.path)),
        }
    }

    fn inflate(&mut self, bytes: &[u8]) -> Result<Vec<u8>> {
        let mut inflated = vec![0; RECORD_BYTES_MAX];
        let answer = self.inflater.deflate_decompress(bytes, &mut inflated);
        let length = answer.map_err(|_unfit| self.wrong("it can't be inflated to 32 KiB"))?;
        inflated.truncate(length);
        Ok(inflated)
    }

    fn parse(&self, bytes: &[u8]) -> Result<Record> {
        if bytes.len() < COMMON_BYTES {
            return Err(self.wrong("it has fewer than 35 bytes"));
        }
        let (common, rest) = bytes.split_at(COMMON_BYTES);
        let (tag, address) = (common[0], be32(common, 5));
        let (is_whole, kind) = match tag {
            TAG_NULL | TAG_FILE => (rest.is_empty(), Kind::Other),
            TAG_SUPER if rest.len() == 16 => (true, Kind::Super(Super { root: be32(rest, 0) })),
            TAG_SUPER => (false, Kind::Other),
            TAG_DIRECTORY => (counted(rest, ENTRY_BYTES).is_some(), Kind::Directory(rest.to_vec())),
            TAG_INDIRECT | TAG_DOUBLE => {
                (counted(rest, POINTER_BYTES).is_some(), Kind::Pointers(rest.to_vec()))
            }
            _ => return Err(self.wrong("its tag is not from 0 to 5; is this a trace of p9trace?")),
        };
        if !is_whole {
            return Err(self.wrong(LENGTH));
        }
        Ok(Record { tag, address, kind })
    }
}

impl Iterator for Records {
    type Item = Result<Record>;

    /// Returns `None` after the first record that can't be read.
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let record = self.read().transpose();
        self.failed = matches!(record, Some(Err(_)));
        record
    }
}
