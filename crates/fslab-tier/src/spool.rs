//! A buffer for data whose length must be known before it is written. Up to a block is kept in
//! memory, the rest in an unnamed temporary file.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use rustix::fs::{Mode, OFlags};

use crate::error::{Error, Result};
use crate::stored::BLOCK_BYTES;
use crate::stored::format::blocks_of;

/// Buffered bytes, in the order in which they were added.
#[derive(Default)]
pub(crate) struct Spool {
    /// The first bytes, once the buffered data exceeds a block.
    file: Option<File>,
    /// The bytes after those in the file.
    buffer: Vec<u8>,
    length: u64,
}

impl Spool {
    /// Returns the total number of bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Returns the number of bytes in memory.
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Appends bytes.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend(bytes);
        self.length += bytes.len() as u64;
        if self.buffer.len() as u64 >= BLOCK_BYTES { self.spill() } else { Ok(()) }
    }

    fn spill(&mut self) -> Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => nameless().map_err(failed)?,
        };
        self.file.insert(file).write_all(&self.buffer).map_err(failed)?;
        self.buffer.clear();
        Ok(())
    }

    /// Calls `visit` with each block. All blocks except the last have [`BLOCK_BYTES`] bytes.
    pub(crate) fn blocks(&mut self, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        if self.file.is_some() {
            self.spill()?;
        }
        let Some(file) = &self.file else {
            return if self.buffer.is_empty() { Ok(()) } else { visit(&self.buffer) };
        };
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        for block in 0..blocks_of(self.length) {
            let offset = block * BLOCK_BYTES;
            bytes.truncate((self.length - offset).min(BLOCK_BYTES) as usize);
            file.read_exact_at(&mut bytes, offset).map_err(failed)?;
            visit(&bytes)?;
        }
        Ok(())
    }
}

fn nameless() -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let opened = rustix::fs::open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR)?;
    Ok(opened.into())
}

fn failed(source: io::Error) -> Error {
    Error::file(&std::env::temp_dir())(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a spool to which `length` bytes are added in pieces that are shorter than a block.
    fn check(length: usize) {
        let bytes: Vec<u8> = (0..length).map(|byte| (byte % 251) as u8).collect();
        let mut spool = Spool::default();
        bytes.chunks(70_001).try_for_each(|piece| spool.put(piece)).unwrap();
        assert_eq!(spool.length(), length as u64);
        assert!(spool.memory_bytes() < BLOCK_BYTES as usize);
        for _ in 0..2 {
            let (mut found, mut lengths) = (Vec::<u8>::new(), Vec::new());
            let mut visit = |block: &[u8]| {
                found.extend(block);
                lengths.push(block.len() as u64);
                Ok(())
            };
            spool.blocks(&mut visit).unwrap();
            assert!(found == bytes, "{length}");
            let last = lengths.pop().unwrap_or(1);
            assert!((1..=BLOCK_BYTES).contains(&last) && lengths.iter().all(|l| *l == BLOCK_BYTES));
        }
    }

    #[test]
    fn spooled_data_is_read_in_blocks() {
        const BLOCK: usize = BLOCK_BYTES as usize;
        [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 7].into_iter().for_each(check);
    }
}
