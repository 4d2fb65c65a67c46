//! The phases of Bonnie, and checks of the file after them.

use super::{Bonnie, CHUNK_BLOCKS, PATH};
use crate::error::Result;
use crate::runner::{Phase, Session, Timed};
use crate::tree::{Access, TreeFile};
use crate::worker::{Task, Worker};
use crate::workload::content::{self, expect, read_exactly};
use crate::workload::crew::in_threads;
use crate::workload::program::directory;
use crate::workload::random_access::Accesses;
use fslab_stats::Stopwatch;

/// The buffer size of `putc` and `getc`.
const BUFFER: usize = 4096;

/// A rewrite changes the first byte of each piece by an exclusive or with this value.
const CHANGE: u8 = 0x5A;

/// The file of [`Bonnie::write_characters`].
const CHARACTERS: &str = "bonnie-characters";

impl Bonnie {
    /// Returns the contents of a file of `size` bytes, in pieces of at most `length` bytes.
    fn pieces<'a>(
        &self,
        chunk: &'a [u8],
        size: u64,
        length: u64,
    ) -> impl Iterator<Item = (u64, &'a [u8])> + use<'a> {
        let chunk_bytes = self.block * CHUNK_BLOCKS;
        content::pieces(size, length).map(move |(offset, length)| {
            let start = (offset % chunk_bytes) as usize;
            (offset, &chunk[start..start + length])
        })
    }

    /// Copies bytes one by one into a buffer and writes it when it is full, as `putc` does.
    pub(super) fn put(&self, timed: &mut Timed<'_>, size: u64, create: bool) -> Result<()> {
        let tree = timed.tree();
        let file = if create { tree.create(PATH)? } else { tree.open(PATH, Access::Write)? };
        let mut buffer = Vec::with_capacity(BUFFER);
        let pieces = self.pieces(&self.first, size, BUFFER as u64);
        timed.each("buffer", Stopwatch::start(), pieces, |_, (offset, piece)| {
            for character in piece {
                buffer.push(std::hint::black_box(*character));
            }
            file.write_at(offset, &buffer)?;
            buffer.clear();
            Ok(())
        })?;
        self.finish_writing(timed, file, size)
    }

    /// Writes every byte with a separate system call.
    pub(super) fn write_characters(&self, timed: &mut Timed<'_>, size: u64) -> Result<()> {
        let file = timed.tree().create(CHARACTERS)?;
        let mut stopwatch = Stopwatch::start();
        for (_, piece) in self.pieces(&self.first, size, BUFFER as u64) {
            timed.check()?;
            for character in piece.chunks(1) {
                file.append(character)?;
                stopwatch.lap();
            }
        }
        timed.record("write", stopwatch);
        self.finish_writing(timed, file, size)
    }

    pub(super) fn verify_characters(&self, session: &Session<'_>, size: u64) -> Result<()> {
        self.verify_file(session, CHARACTERS, size)?;
        session.tree()?.remove(CHARACTERS)
    }

    /// Checks that a file has the content with which it was first written.
    pub(super) fn verify_file(&self, session: &Session<'_>, path: &str, size: u64) -> Result<()> {
        let append = |sum, (_, piece): (u64, &[u8])| crc32c::crc32c_append(sum, piece);
        let expected = self.pieces(&self.first, size, self.block).fold(0, append);
        content::verify(session.tree()?, path, expected)
    }

    pub(super) fn write_new_blocks(&self, timed: &mut Timed<'_>, size: u64) -> Result<()> {
        let file = timed.tree().create(PATH)?;
        self.write_blocks(timed, file, &self.first, size)
    }

    pub(super) fn overwrite_blocks(&self, timed: &mut Timed<'_>, size: u64) -> Result<()> {
        let file = timed.tree().open(PATH, Access::Write)?;
        self.write_blocks(timed, file, &self.second, size)
    }

    fn write_blocks(
        &self,
        timed: &mut Timed<'_>,
        file: Box<dyn TreeFile + '_>,
        contents: &[u8],
        size: u64,
    ) -> Result<()> {
        let pieces = self.pieces(contents, size, self.block);
        timed.each("write", Stopwatch::start(), pieces, |_, (offset, piece)| {
            file.write_at(offset, piece)
        })?;
        self.finish_writing(timed, file, size)
    }

    /// Reads, changes and writes back every piece.
    pub(super) fn rewrite(&self, timed: &mut Timed<'_>, size: u64, length: u64) -> Result<()> {
        let file = timed.tree().open(PATH, Access::ReadWrite)?;
        let mut buffer = vec![0; length as usize];
        timed.each("rewrite", Stopwatch::start(), 0..size / length, |_, piece| {
            read_exactly(&*file, PATH, piece * length, &mut buffer)?;
            buffer[0] ^= CHANGE;
            file.write_at(piece * length, &buffer)
        })?;
        self.finish_writing(timed, file, size)
    }

    fn finish_writing(
        &self,
        timed: &mut Timed<'_>,
        file: Box<dyn TreeFile + '_>,
        size: u64,
    ) -> Result<()> {
        timed.count(size.div_ceil(self.block), size);
        timed.sync(&*file)?;
        file.close()?;
        timed.flush()
    }

    /// Reads into a buffer and takes the bytes out one by one, as `getc` does.
    pub(super) fn get(&self, timed: &mut Timed<'_>, size: u64) -> Result<()> {
        let file = timed.open_for_reading(PATH)?;
        let mut buffer = vec![0; BUFFER];
        let mut stopwatch = Stopwatch::start();
        let mut bytes = 0;
        while let length @ 1.. = file.read_at(bytes, &mut buffer)? {
            timed.check()?;
            for character in &buffer[..length] {
                std::hint::black_box(*character);
            }
            bytes += length as u64;
            stopwatch.lap();
        }
        file.close()?;
        timed.record("buffer", stopwatch);
        timed.count(size.div_ceil(self.block), bytes);
        expect("characters read", size, bytes)
    }

    pub(super) fn read_blocks(&self, timed: &mut Timed<'_>, size: u64) -> Result<()> {
        let file = timed.open_for_reading(PATH)?;
        let mut buffer = vec![0; self.block as usize];
        timed.each("read", Stopwatch::start(), 0..size / self.block, |_, block| {
            read_exactly(&*file, PATH, block * self.block, &mut buffer)
        })?;
        file.close()?;
        timed.count(size / self.block, size);
        Ok(())
    }

    /// Checks the file after both rewrites. The first of every 1024 bytes was changed once, except
    /// in the first piece of a block. There it was changed twice and has its original value again.
    pub(super) fn verify_rewritten(&self, session: &Session<'_>, size: u64) -> Result<()> {
        let mut expected = 0;
        for (offset, piece) in self.pieces(&self.first, size, 1024) {
            let changed = !offset.is_multiple_of(self.block);
            let first = piece[0] ^ if changed { CHANGE } else { 0 };
            expected = crc32c::crc32c_append(expected, &[first]);
            expected = crc32c::crc32c_append(expected, &piece[1..]);
        }
        content::verify(session.tree()?, PATH, expected)
    }

    /// Runs the third part, with processes or threads.
    pub(super) fn seek(
        &self,
        session: &mut Session<'_>,
        size: u64,
        name: &'static str,
        accesses: &[Accesses],
    ) -> Result<()> {
        let phase = Phase::new(name).size(size);
        let visits = accesses.iter().map(|worker| worker.visits).sum();
        // Writes are recorded as `rewrite`, because each reads its block first.
        let counted = |timed: &mut Timed<'_>, directions| {
            timed.record_directions(["read", "rewrite"], directions);
            timed.count(visits, visits * self.block);
            timed.flush()
        };
        if !self.processes {
            return session.measure(phase, |timed| {
                let directions = in_threads(timed, self.seekers, |hand, number| {
                    accesses[number as usize].run(hand.tree, || hand.check())
                })?;
                counted(timed, directions)
            });
        }
        let mut workers = self.start_workers(session, accesses)?;
        session.measure(phase, |timed| {
            workers.iter_mut().try_for_each(Worker::go)?;
            let mut directions = Vec::new();
            for worker in &mut workers {
                let (done, user, system) = worker.result()?;
                timed.add_processor_time(user, system);
                directions.push(done);
            }
            counted(timed, directions)
        })
    }

    fn start_workers(&self, session: &Session<'_>, accesses: &[Accesses]) -> Result<Vec<Worker>> {
        let root = directory(session, "bonnie with seeking processes (seek_by = \"processes\")")?;
        let command = self.worker.as_ref().ok_or(crate::Error::NoWorkers)?;
        let start = |accesses: &Accesses| {
            Worker::start(command, &Task { root: root.clone(), accesses: accesses.clone() })
        };
        accesses.iter().map(start).collect()
    }
}
