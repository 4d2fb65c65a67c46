//! Tests of bytes after the last frame, at the time when the next frame is written.

use std::sync::Arc;

use fslab_vfs::Request;

use super::*;
use crate::format::Kind;
use crate::log::Log;
use crate::pre_encode::PreEncoded;
use crate::testing::logs::{CHUNK, Refusing, content, file_in, identity, put, reopened, sync};
use crate::{codec, options};

/// The lower file system writes two frames, but returns an error and refuses to truncate the file.
/// The next write replaces the first of these frames by one of the same length. The leftover second
/// frame must not be read as if it followed the new frame.
#[test]
fn leftovers_of_a_failed_write_do_not_count_as_frames() {
    let fs = Arc::new(Refusing::default());
    let lower = file_in(fs.clone());
    let (request, settings) = (Request::default(), options::of_tools().unwrap());
    let io = Io::new(&lower, &request, &settings);
    let mut log = Log::new(identity());
    put(&mut log, io, (0, 1));
    sync(&mut log, io);
    fs.answer_wrongly(log.end()..u64::MAX, Errno::IO);
    let two_chunks = vec![2; 2 * CHUNK as usize];
    let whole = (CHUNK, two_chunks.as_slice());
    let refused = log.write(io, whole, &mut PreEncoded::default(), WriteOptions::default());
    assert_eq!((refused.unwrap_err().errno(), fs.end()), (Errno::IO, 0));
    let left = io.lower.length(io.request).unwrap();
    assert!(left > log.end() + 2 * CHUNK, "nothing is left");
    put(&mut log, io, (1, 9));
    // Opens the file as if the daemon had been killed. No checkpoint covers the bytes of the failed
    // write.
    let found = reopened(io);
    assert_eq!(found.size(), 2 * CHUNK);
    assert_eq!(content(&found, io, 2), [1, 9]);
}

/// A frame may be shorter than the seek table it replaces.
#[test]
fn a_frame_shorter_than_the_seek_table_replaces_all_of_it() {
    let lower = file_in(Arc::new(Refusing::default()));
    let (request, settings) = (Request::default(), options::of_tools().unwrap());
    let io = Io::new(&lower, &request, &settings);
    let mut log = Log::new(Identity::from_stored(codec::zstd::SPEC.number, 12, 5).unwrap());
    (0..64).for_each(|chunk| put(&mut log, io, (chunk, 1)));
    let closing = log.missing_closing().unwrap();
    log.write_closing(io, &log.closing(io, closing).unwrap()).unwrap();
    let table = log.journal.closing_bytes();
    assert!(table > 2 * log.identity().header_bytes() as u64, "{table} bytes");
    log.set_size(io, log.size() + 1, WriteOptions::default()).unwrap();
    assert_eq!(io.lower.length(io.request).unwrap(), log.end());
}

/// The old content of the file begins at the limit, and a packed copy must not overwrite it.
#[test]
fn a_packed_copy_stays_before_its_limit() {
    let lower = file_in(Arc::new(Refusing::default()));
    let (request, settings) = (Request::default(), options::of_tools().unwrap());
    let io = Io::new(&lower, &request, &settings);
    let (end, frame) = (HEAD_BYTES, Frame::new(Kind::Size, 0, 77));
    let new = || NewFrame { frame, body: vec![1; 100], payload: Vec::new() };
    let batch_at = |journal: &Journal| {
        let mut batch = journal.begin(0);
        batch.add(&identity(), new());
        batch
    };
    let length = {
        let journal = Journal::of_copy(identity(), end, 1, u64::MAX);
        batch_at(&journal).frames[0].0.reference.end() - end
    };
    io.lower.write(io.request, end, &vec![7; 1000], WriteOptions::default()).unwrap();
    for (limit, fits) in [(end + length - 1, false), (end + length, true)] {
        let mut journal = Journal::of_copy(identity(), end, 1, limit);
        let batch = batch_at(&journal);
        let written = journal.write(io, &batch, WriteOptions::default());
        assert_eq!(written.map_err(|error| error.errno()), fits.then_some(()).ok_or(Errno::NOSPC));
        let behind = io.lower.read(io.request, end + length, 100).unwrap();
        assert_eq!(behind, [7; 100]);
        let first = io.lower.read(io.request, end, 1).unwrap();
        assert_eq!(first == [7], !fits, "limit {limit}");
    }
}
