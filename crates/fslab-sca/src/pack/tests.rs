//! Tests of failures while the packed copy replaces the old content.

use std::cell::Cell;
use std::sync::Arc;

use fslab_layers::LayerChoice;
use fslab_vfs::{Ino, OpenMode, Request};
use fslab_vfs_testing::client::Client;

use super::*;
use crate::LAYERS;
use crate::commit::unless_gone;
use crate::gap::{Gap, make_gap};
use crate::options;
use crate::testing::logs::{
    CHUNK, Refusing, alone, beside, content, file_in, identity, put, reopened, sync,
};

const CHUNKS: u64 = 64;
/// Number of times all chunks are written, so that the gaps have room for a copy.
const ROUNDS: u64 = 5;

/// Makes the file begin with a gap, as after a move.
fn with_a_gap(log: &mut Log, io: Io<'_>) {
    let mut moving = log.begin_move();
    let file = alone(log, io);
    while move_some(&file, &mut moving).unwrap() {}
    assert!(end_move(&file, &moving).unwrap());
}

/// Makes the file begin with several gaps, like a file of more than 2 GiB. The first gap is shorter
/// than the live content.
fn with_two_gaps(log: &mut Log, io: Io<'_>) {
    with_a_gap(log, io);
    let gap = log.leading_gaps(io).unwrap()[0];
    let (start, end) = (gap.reference.offset, gap.reference.end());
    let middle = start + CHUNKS * CHUNK / 4;
    let (first, last) = (gap.sequence, gap.last_sequence());
    for (range, sequences) in [(middle..end, first + 1..=last), (start..middle, first..=first)] {
        make_gap(io, log.identity(), &Gap { range, sequences }, log.size()).unwrap();
    }
    assert_eq!(log.leading_gaps(io).unwrap().len(), 2);
}

/// Writes all chunks several times and packs the file, but the write that shortens the first gap
/// fails. Returns the expected content.
fn with_failed_cut(
    log: &mut Log,
    io: Io<'_>,
    fs: &Refusing,
    with_gaps: fn(&mut Log, Io<'_>),
) -> Vec<u8> {
    for chunk in (0..ROUNDS).flat_map(|_| 0..CHUNKS) {
        put(log, io, (chunk, chunk as u8 + 1));
    }
    with_gaps(log, io);
    let expected = content(log, io, CHUNKS);
    fs.refuse(HEAD_BYTES..HEAD_BYTES + 1, Errno::IO, 1);
    let packed = unless_gone(pack(&alone(log, io), &mut |_| true));
    assert_eq!(packed.unwrap_err().errno(), Errno::IO);
    assert_eq!(fs.end(), 0, "nothing was written to the first gap");
    expected
}

/// Until the old content of a packed file is cut off, a walk over the frames still finds it. Data
/// appended to the old content would be cut off with it.
#[test]
fn write_after_a_failed_cut_survives_a_damaged_index() {
    let fs = Arc::new(Refusing::default());
    let (lower, request, settings) =
        (file_in(fs.clone()), Request::default(), options::of_tools().unwrap());
    let io = Io::new(&lower, &request, &settings);
    let mut log = Log::new(identity());
    let mut expected = with_failed_cut(&mut log, io, &fs, with_a_gap);
    let in_a_page = log.commits.checkpoint().offset - 10;
    let byte = io.lower.read(io.request, in_a_page, 1).unwrap()[0];
    let put_byte = |byte| {
        io.lower.write(io.request, in_a_page, &[byte], WriteOptions::default()).unwrap();
    };
    put_byte(byte ^ 1);
    let layer = LayerChoice::parse("copy:chunk=4KiB,size-xattr=off", LAYERS).unwrap();
    let mounted = layer.build(fs.clone()).unwrap();
    let client = Client::new(&*mounted);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    assert_eq!(file.read(0, 10).unwrap_err().errno(), Errno::IO);
    // The damaged byte is restored, as if only that one read had failed.
    put_byte(byte);
    file.write_all(3 * CHUNK, &[200; CHUNK as usize]).unwrap();
    file.close().unwrap();
    expected[3] = 200;
    assert_eq!(content(&reopened(io), io, CHUNKS), expected);
}

/// The slot points to packed frames in the former gaps. These former gaps must never be emptied
/// again, whatever fails later.
#[test]
fn failed_cut_after_packing_loses_no_packed_frames() {
    let fs = Arc::new(Refusing::default());
    let (lower, request, settings) =
        (file_in(fs.clone()), Request::default(), options::of_tools().unwrap());
    let io = Io::new(&lower, &request, &settings);
    let mut log = Log::new(identity());
    let mut expected = with_failed_cut(&mut log, io, &fs, with_two_gaps);
    assert_eq!(content(&log, io, CHUNKS), expected);
    assert_eq!(content(&reopened(io), io, CHUNKS), expected);
    put(&mut log, io, (3, 200));
    expected[3] = 200;
    sync(&mut log, io);
    let mut found = reopened(io);
    assert_eq!(content(&found, io, CHUNKS), expected);
    assert_eq!(found.journal.sequence(), log.journal.sequence());
    assert!(!found.journal.is_superseding() && found.journal.prepare_end(io).is_ok());
}

/// A copy that lacks a later write must not replace the file.
#[test]
fn write_during_any_sync_of_packing_is_kept() {
    for moment in 0.. {
        let fs = Arc::new(Refusing::default());
        let lower = file_in(fs.clone());
        let (request, settings) = (Request::default(), options::of_tools().unwrap());
        let (io, mut log) = (Io::new(&lower, &request, &settings), Log::new(identity()));
        for chunk in (0..ROUNDS).flat_map(|_| 0..CHUNKS) {
            put(&mut log, io, (chunk, 1));
        }
        let syncs = Cell::new(0);
        let write_beside = |log: &mut Log, io: Io<'_>| {
            if syncs.replace(syncs.get() + 1) == moment {
                put(log, io, (3, 2));
            }
        };
        unless_gone(pack(&beside(&mut log, io, &write_beside), &mut |_| true)).unwrap();
        let expected: Vec<u8> =
            (0..CHUNKS).map(|chunk| 1 + u8::from(chunk == 3 && syncs.get() > moment)).collect();
        assert_eq!(content(&log, io, CHUNKS), expected, "sync {moment}");
        assert_eq!(content(&reopened(io), io, CHUNKS), expected, "sync {moment}");
        if syncs.get() <= moment {
            assert!(moment > 2, "packing syncs only {moment} times");
            return;
        }
    }
}
