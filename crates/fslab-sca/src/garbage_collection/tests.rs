//! Tests of moves that are interrupted or fail.

use std::sync::Arc;

use fslab_vfs::Request;

use super::*;
use crate::gap::GAP_BYTES_MAX;
use crate::options;
use crate::testing::logs::{
    Refusing, alone, by_frames, content, file_in, identity, put, reopened, sync,
};

/// Number of chunks; they need more than one page of the index.
const CHUNKS: u64 = 600;

fn byte_of(chunk: u64) -> u8 {
    chunk as u8 ^ 0x5a
}

fn expected() -> Vec<u8> {
    (0..CHUNKS).map(byte_of).collect()
}

/// Runs `test` on a file that was written twice and synced.
fn with_file(test: impl FnOnce(&Refusing, Io<'_>, Log)) {
    let fs = Arc::new(Refusing::default());
    let lower = file_in(fs.clone());
    let (request, settings) = (Request::default(), options::of_tools().unwrap());
    let io = Io::new(&lower, &request, &settings);
    let mut log = Log::new(identity());
    (0..CHUNKS).for_each(|chunk| put(&mut log, io, (chunk, 1)));
    sync(&mut log, io);
    (0..CHUNKS).for_each(|chunk| put(&mut log, io, (chunk, byte_of(chunk))));
    sync(&mut log, io);
    test(&fs, io, log);
}

/// Before a move is complete, a checkpoint after the border may refer to index pages before the
/// border. If there is no room for another checkpoint, the slot still points to that checkpoint.
/// The move must then free nothing.
#[test]
fn move_frees_nothing_if_a_full_disk_prevents_its_checkpoint() {
    with_file(|fs, io, mut log| {
        let mut moving = log.begin_move();
        assert!(log.move_some(io, &mut moving).unwrap());
        sync(&mut log, io);
        while log.move_some(io, &mut moving).unwrap() {}
        fs.refuse(log.end()..u64::MAX, Errno::NOSPC, u64::MAX);
        let is_free = end_move(&alone(&mut log, io), &moving).unwrap();
        // The next open finds the index pages and need not search the frames.
        let found = content(&reopened(io), io, CHUNKS);
        assert!(!is_free && found == expected(), "free {is_free}");
        fs.end();
        clean(&alone(&mut log, io)).unwrap();
        assert_eq!(content(&reopened(io), io, CHUNKS), expected());
    });
}

/// If the last checkpoint is damaged, the earlier slot points to a checkpoint before the border.
/// Some index pages of that checkpoint were freed, but the frames are complete.
#[test]
fn content_survives_a_damaged_checkpoint_after_a_move() {
    with_file(|_, io, mut log| {
        clean(&alone(&mut log, io)).unwrap();
        let body = log.commits.checkpoint().offset + log.identity().header_bytes() as u64;
        for place in (body..log.commits.checkpoint().end()).step_by(7) {
            let byte = io.lower.read(io.request, place, 1).unwrap()[0];
            let put = |byte| io.lower.write(io.request, place, &[byte], WriteOptions::default());
            put(byte ^ 1).unwrap();
            assert_eq!(content(&reopened(io), io, CHUNKS), expected(), "byte {place}");
            put(byte).unwrap();
        }
    });
}

/// The first moved frames may die before the move ends, like everything before its border. If they
/// were joined with frames before the border, there would be no header at the border, where the
/// gaps of the move end.
#[test]
fn moved_frames_are_not_joined_with_frames_before_the_border() {
    with_file(|_, io, mut log| {
        let mut moving = log.begin_move();
        while log.move_some(io, &mut moving).unwrap() {}
        // The second round makes the checkpoint before the border obsolete.
        for _ in 0..2 {
            (0..CHUNKS).for_each(|chunk| put(&mut log, io, (chunk, byte_of(chunk))));
            sync(&mut log, io);
        }
        assert!(end_move(&alone(&mut log, io), &moving).unwrap());
        assert!(frame_reader::header(io, log.identity(), moving.border).is_ok());
        let found = by_frames(io);
        let ends = |log: &Log| (log.size(), log.end(), log.journal.sequence());
        assert_eq!(ends(&found), ends(&log));
        assert_eq!(content(&found, io, CHUNKS), expected());
    });
}

/// If two moves overlap, the one that began first may end last: packing runs its own move, and a
/// write may collect garbage during that move. The gaps of the later move extend further, and are
/// kept.
#[test]
fn overlapping_move_keeps_the_gaps_of_the_other_move() {
    with_file(|_, io, mut log| {
        let mut first = log.begin_move();
        assert!(log.move_some(io, &mut first).unwrap());
        clean(&alone(&mut log, io)).unwrap();
        while log.move_some(io, &mut first).unwrap() {}
        assert!(end_move(&alone(&mut log, io), &first).unwrap());
        let found = by_frames(io);
        let ends = |log: &Log| (log.size(), log.end(), log.journal.sequence());
        assert_eq!(ends(&found), ends(&log));
        assert_eq!(content(&found, io, CHUNKS), expected());
    });
}

/// Every reader repairs a wrong byte in a header, and so must the code that turns the frame into a
/// gap. Otherwise each collection would move everything and free nothing.
#[test]
fn garbage_collection_frees_space_despite_a_flipped_header_bit() {
    with_file(|_, io, mut log| {
        let place = HEAD_BYTES + 30;
        let byte = io.lower.read(io.request, place, 1).unwrap()[0];
        io.lower.write(io.request, place, &[byte ^ 4], WriteOptions::default()).unwrap();
        let before = io.lower.attr(io.request).unwrap().blocks;
        clean(&alone(&mut log, io)).unwrap();
        let after = io.lower.attr(io.request).unwrap().blocks;
        assert!(after < before * 5 / 4, "{after} blocks, {before} before");
        assert_eq!(content(&by_frames(io), io, CHUNKS), expected());
    });
}

#[test]
fn gaps_cover_the_range_and_every_sequence_number() {
    let end = HEAD_BYTES + 2 * GAP_BYTES_MAX + 5;
    let all = gaps(HEAD_BYTES..end, 3, 100).unwrap();
    assert_eq!(all.len(), 3);
    let borders = |gap: &Gap| (gap.range.start, gap.range.end);
    assert_eq!(borders(&all[0]), (HEAD_BYTES, HEAD_BYTES + GAP_BYTES_MAX));
    assert!(all.windows(2).all(|pair| pair[0].range.end == pair[1].range.start));
    assert!(all.windows(2).all(|pair| pair[0].sequences.end() + 1 == *pair[1].sequences.start()));
    assert_eq!((borders(&all[2]).1, all[2].sequences.clone()), (end, 5..=100));
    assert!(gaps(HEAD_BYTES..end, 3, 4).is_none());
}
