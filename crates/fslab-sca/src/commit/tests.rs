//! Tests of the order in which slots and checkpoints are written and space is freed.

use std::sync::Arc;

use fslab_vfs::Request;

use super::*;
use crate::commit_state::CommitState;
use crate::format::{HEAD_BYTES, SLOT_OFFSETS, SlotRecord};
use crate::frame::Reference;
use crate::frame_reader;
use crate::options;
use crate::testing::logs::{
    Refusing, alone, beside, content, file_in, identity, put, reopened, sync,
};

const CHUNKS: u64 = 64;

fn with_file(test: impl FnOnce(&Refusing, Io<'_>, Log)) {
    let fs = Arc::new(Refusing::default());
    let lower = file_in(fs.clone());
    let (request, settings) = (Request::default(), options::of_tools().unwrap());
    test(&fs, Io::new(&lower, &request, &settings), Log::new(identity()));
}

fn fill(log: &mut Log, io: Io<'_>, byte: u8) {
    (0..CHUNKS).for_each(|chunk| put(log, io, (chunk, byte)));
}

fn filled_with(byte: u8) -> Vec<u8> {
    vec![byte; CHUNKS as usize]
}

/// Returns the number of blocks allocated to the lower file.
fn blocks(io: Io<'_>) -> u64 {
    io.lower.attr(io.request).unwrap().blocks
}

/// An event after which the test checks the slots of the file.
#[derive(Clone, Copy, Debug)]
enum Event {
    Committed,
    /// A checkpoint without a slot, as written when too many index pages are changed.
    Checkpointed,
    /// A commit whose slot could not be written.
    Refused,
}

const EVENTS: [Event; 3] = [Event::Committed, Event::Checkpointed, Event::Refused];

fn happen(fs: &Refusing, io: Io<'_>, log: &mut Log, event: Event) {
    match event {
        Event::Committed => sync(log, io),
        Event::Checkpointed => log.write_checkpoint(io).unwrap(),
        Event::Refused => {
            fs.refuse(0..HEAD_BYTES, Errno::IO, u64::MAX);
            // The commit writes no slot if a slot already covers all writes.
            unless_gone(commit(&alone(log, io), false)).ok();
            fs.end();
        }
    }
}

/// A crash may tear the slot being written, so a commit must overwrite the older slot.
#[test]
fn a_commit_never_overwrites_the_latest_slot() {
    const LENGTH: u32 = 6;
    for number in 0..EVENTS.len().pow(LENGTH) {
        let events = (0..LENGTH).map(|digit| EVENTS[number / EVENTS.len().pow(digit) % 3]);
        with_file(|fs, io, mut log| {
            let slots = || {
                SLOT_OFFSETS.map(|offset| {
                    io.lower.read(io.request, offset as u64, size_of::<SlotRecord>()).unwrap()
                })
            };
            put(&mut log, io, (0, 1));
            let (mut before, mut last) = (slots(), None);
            for (step, event) in events.clone().enumerate() {
                put(&mut log, io, (0, step as u8 + 2));
                happen(fs, io, &mut log, event);
                let after = slots();
                for slot in (0..SLOT_OFFSETS.len()).filter(|slot| before[*slot] != after[*slot]) {
                    let events = || events.clone().collect::<Vec<_>>();
                    assert_ne!(last.replace(slot), Some(slot), "{:?}, step {step}", events());
                }
                before = after;
            }
            assert!(content(&reopened(io), io, 1) == [LENGTH as u8 + 1]);
        });
    }
}

/// The replaced frames are kept, because the existing slot refers to them.
#[test]
fn no_space_is_freed_if_writing_the_slot_fails() {
    with_file(|fs, io, mut log| {
        fill(&mut log, io, 1);
        sync(&mut log, io);
        fill(&mut log, io, 2);
        let (before, dead) = (blocks(io), log.garbage.bytes());
        fs.refuse(0..HEAD_BYTES, Errno::IO, 1);
        let refused = unless_gone(commit(&alone(&mut log, io), false)).unwrap_err();
        assert_eq!((refused.errno(), fs.end()), (Errno::IO, 0));
        assert!(blocks(io) >= before && log.garbage.bytes() >= dead && dead > 0);
        assert_eq!(content(&reopened(io), io, CHUNKS), filled_with(2));
        sync(&mut log, io);
        sync(&mut log, io);
        assert!(blocks(io) < before * 3 / 4, "{} blocks, {before} before", blocks(io));
        assert_eq!(content(&reopened(io), io, CHUNKS), filled_with(2));
    });
}

/// The space of a single frame smaller than a block can't be freed. Once a slot that covers such
/// frames is durable, the next commit joins them, even if it has no other work.
#[test]
fn second_commit_frees_small_dead_frames() {
    with_file(|_, io, mut log| {
        fill(&mut log, io, 1);
        fill(&mut log, io, 2);
        sync(&mut log, io);
        let before = blocks(io);
        sync(&mut log, io);
        assert!(blocks(io) < before * 3 / 4, "{} blocks, {before} before", blocks(io));
        assert_eq!(content(&reopened(io), io, CHUNKS), filled_with(2));
    });
}

/// Earlier versions numbered checkpoints consecutively, including those without a slot.
#[test]
fn checkpoint_is_rewritten_if_it_would_overwrite_the_latest_slot() {
    let reference = |offset| Reference { offset, stored_length: 100, header_crc: 0 };
    let commits_behind = |ordinal| {
        let slot = Slot {
            ordinal: 1,
            checkpoint: reference(1024),
            sequence: 1,
            file_size: 0,
            is_packed: false,
        };
        let mut commits =
            CommitState::at_checkpoint(ordinal, reference(2048)).with_slot(Some(&slot));
        commits.begin(4096);
        commits
    };
    assert!(commits_behind(2).is_current() && !commits_behind(3).is_current());
    assert_eq!(commits_behind(3).next_ordinal() % 2, 0);
}

/// The sync began before the write, so it need not make the write durable.
#[test]
fn write_during_a_commit_is_not_covered_by_it() {
    with_file(|_, io, mut log| {
        put(&mut log, io, (0, 1));
        let prepared = log.prepare_commit(io).unwrap();
        io.lower.sync(io.request, false).unwrap();
        put(&mut log, io, (1, 2));
        assert!(log.publish(io, prepared).unwrap());
        assert!(log.commits.is_unsynced(log.journal.writes()));
        sync(&mut log, io);
        assert!(!log.commits.is_unsynced(log.journal.writes()));
    });
}

/// If power fails before the next commit is durable, recovery uses the checkpoint of this commit,
/// which still refers to these frames.
#[test]
fn frames_that_die_during_a_commit_are_not_freed_by_it() {
    with_file(|_, io, mut log| {
        fill(&mut log, io, 1);
        sync(&mut log, io);
        put(&mut log, io, (0, 1));
        sync(&mut log, io);
        let frames: Vec<Reference> =
            (0..CHUNKS).map(|chunk| log.map.entry(io, chunk).unwrap().unwrap().frame).collect();
        put(&mut log, io, (CHUNKS, 1));
        let write_beside = |log: &mut Log, io: Io<'_>| fill(log, io, 2);
        unless_gone(commit(&beside(&mut log, io, &write_beside), false)).unwrap();
        for frame in frames {
            frame_reader::frame(io, log.identity(), frame).unwrap();
        }
    });
}
