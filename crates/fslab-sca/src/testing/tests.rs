//! Tests of the checks, the corpus of the fuzz targets, and random damage to real files.

use fslab_vfs_testing::environment::{number, seed};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::commit::unless_gone;
use crate::log::Log;
use crate::pack::{Packed, pack};
use crate::pre_encode::PreEncoded;
use crate::recovery::Walk;
use crate::testing::logs::{alone, sync};
use crate::{codec, recovery};

const GOLDEN: &str = "tests/golden";
const CORPUS: &str = "../../fuzz/corpus/stored";

/// If a file is valid, sealing changes only its id. So the fuzz targets reach all code.
#[test]
fn sealed_version_1_files_pass_all_checks() {
    for (number, codec) in ["copy", "gzip", "zstd", "lz4", "uuencode"].iter().enumerate() {
        let path = format!("{GOLDEN}/sca-1-{codec}");
        let bytes = std::fs::read(path).unwrap();
        for how in [0x80, number as u8] {
            let input = [&[how][..], &bytes].concat();
            check_reader(&input);
            check_recovery(&input);
            check_dump(&input);
        }
    }
}

#[test]
fn sealing_makes_damaged_slots_valid() {
    let place = CODECS.iter().position(|codec| codec.name == "gzip").unwrap();
    let mut bytes = std::fs::read(format!("{GOLDEN}/sca-1-gzip")).unwrap();
    // Damages the second slot and the first frame.
    bytes[700] ^= 1;
    bytes[1024 + 16 + 70] ^= 1;
    let file = sealed(place as u8, &bytes);
    let identity = superblock::identify(&file).unwrap();
    assert_eq!(identity.file_id, FILE_ID);
    assert_eq!(superblock::slots(&identity, &file).len(), 2);
}

/// Inputs of the fuzz targets can contain valid staged chunks.
#[test]
fn sealed_staging_areas_have_valid_chunks() {
    for (place, codec) in CODECS.iter().enumerate().filter(|(_, codec)| codec.compresses) {
        let input = staged_input(place as u8, codec.number);
        if std::env::var_os("FSLAB_BLESS").is_some() {
            std::fs::write(format!("{CORPUS}/{}-staged", codec.name), &input).unwrap();
        }
        assert_eq!(std::fs::read(format!("{CORPUS}/{}-staged", codec.name)).unwrap(), input);
        let below = Below::with(&input);
        let size = below.mounted(|fs, ino, handle| {
            Ok(fs.getattr(&Request::default(), ino, Some(handle))?.size)
        });
        assert_eq!(size.unwrap(), 2 * 4096 + 700, "{}", codec.name);
        check_all(&input);
    }
}

/// Returns an input with a chunk in the journal. A whole chunk and part of a chunk are in the
/// staging area.
fn staged_input(place: u8, codec: u8) -> Vec<u8> {
    let how = (0..0x20).find(|how| how & STAGED != 0 && how % CODECS.len() as u8 == place);
    let identity = Identity::from_stored(codec, 12, FILE_ID).unwrap();
    let piece = |out: &mut Vec<u8>, kind, chunk, from: u32, length: u32| {
        let file_size = chunk * 4096 + u64::from(from + length);
        let frame = Frame { raw: true, from, length, ..Frame::new(kind, chunk, file_size) };
        let body = identity.codec.stored(&vec![b'x'; length as usize]);
        frame::append(out, 0, &identity, frame, &body);
    };
    let (mut frames, mut staged) = (vec![0; HEAD_BYTES as usize], Vec::new());
    piece(&mut frames, Kind::Data, 0, 0, 4096);
    piece(&mut staged, Kind::Data, 1, 0, 4096);
    piece(&mut staged, Kind::Segment, 2, 0, 300);
    piece(&mut staged, Kind::Segment, 2, 300, 400);
    [&[how.unwrap()][..], &(frames.len() as u16).to_le_bytes(), &frames, &staged].concat()
}

/// The sequence numbers of several gaps together exceed the largest number.
#[test]
fn gaps_with_overflowing_sequence_numbers_are_refused() {
    let codec = CODECS.iter().find(|codec| codec.name == "copy").unwrap();
    let identity = Identity::from_stored(codec.number, 12, FILE_ID).unwrap();
    let mut file = superblock::new_head(&identity);
    let position: u64 = 0x0123_4567_89AB_CDEF;
    for sequence in 1..4 {
        let gap = Frame { sequence, ..Frame::new(Kind::Gap, position, 0) };
        let at = file.len() as u64;
        frame::append(&mut file, at, &identity, gap, &[0; 100]);
        let header = &mut file[at as usize..];
        let place = header.windows(8).position(|bytes| bytes == position.to_le_bytes()).unwrap();
        header[place..place + 8].fill(0xFF);
    }
    let how = CODECS.iter().position(|codec| codec.name == "copy").unwrap() as u8;
    check_all(&[&[how][..], &file].concat());
}

/// A frame of a few kilobytes that decodes to much more than the length in its header must count as
/// damaged.
#[test]
fn decompression_bombs_are_refused() {
    let zeros = vec![0; 64 << 20];
    for codec in CODECS.iter().filter(|codec| codec.compresses) {
        let identity = Identity::from_stored(codec.number, 12, FILE_ID).unwrap();
        let body = (codec.encode)(&zeros, 1).unwrap();
        let new = Frame { sequence: 1, length: 4096, ..Frame::new(Kind::Data, 0, 4096) };
        let mut file = superblock::new_head(&identity);
        frame::append(&mut file, 0, &identity, new, &body);
        assert!(file.len() < 1 << 20, "{}: {} bytes", codec.name, file.len());
        let below = Below { fs: Arc::new(MemFs::default()) };
        below.put(&file).unwrap();
        let answer = below.mounted(|fs, ino, handle| {
            let request = Request::default();
            assert_eq!(fs.getattr(&request, ino, Some(handle))?.size, 4096);
            fs.read(&request, ino, handle, 0, &mut [0; 4096])
        });
        let errno = answer.unwrap_err().errno();
        assert_eq!(errno, fslab_vfs::Errno::IO, "{}", codec.name);
    }
}

/// A file crafted by an attacker who knows all checksums, made with a manipulated log.
fn crafted(craft: impl FnOnce(&mut Log, Io<'_>)) -> Below {
    let below = Below { fs: Arc::new(MemFs::default()) };
    below.put(&[]).unwrap();
    below.with_io(|io| {
        let identity = Identity::from_stored(codec::copy::SPEC.number, 12, FILE_ID).unwrap();
        craft(&mut Log::new(identity), io);
    });
    below
}

impl Below {
    fn with_io<T>(&self, work: impl FnOnce(Io<'_>) -> T) -> T {
        let (ino, handle) = self.open_below().unwrap();
        let (request, settings) = (Request::default(), options::of_tools().unwrap());
        let lower = LowerFile { fs: Arc::clone(&self.fs), ino, handle };
        let done = work(Io::new(&lower, &request, &settings));
        self.fs.release(&request, ino, handle).unwrap();
        done
    }

    /// Opens and packs the file, as the background thread does without a request.
    fn packed(&self) -> Result<Option<Packed>> {
        self.with_io(|io| {
            let beginning = io.lower.read(io.request, 0, superblock::BEGINNING_BYTES)?;
            let (identity, length) =
                (superblock::identify(&beginning), io.lower.length(io.request)?);
            let mut log = recovery::open(io, identity.unwrap(), &beginning, length, None)?;
            log.wants_packing(io.settings);
            if !log.gains_by_packing(io)? {
                return Ok(None);
            }
            unless_gone(pack(&alone(&mut log, io), &mut |_| true))
        })
    }

    /// Calls `make` with a walk over all frames.
    fn walk(&self, make: impl FnOnce(Walk<'_>, Log)) {
        self.with_io(|io| {
            let beginning = io.lower.read(io.request, 0, superblock::BEGINNING_BYTES).unwrap();
            let identity = superblock::identify(&beginning).unwrap();
            make(Walk::new(io, io.lower.length(io.request).unwrap(), false), Log::new(identity));
        });
    }

    fn begins_with(&self, expected: &[u8]) -> bool {
        let read = self.mounted(|fs, ino, handle| {
            let mut found = vec![0; expected.len()];
            fs.read(&Request::default(), ino, handle, 0, &mut found)?;
            Ok(found)
        });
        read.is_ok_and(|found| found == expected)
    }
}

fn put(log: &mut Log, io: Io<'_>, bytes: &[u8]) {
    log.write(io, (0, bytes), &mut PreEncoded::default(), WriteOptions::default()).unwrap();
}

/// The index of a file contains a chunk past the largest possible offset.
#[test]
fn an_index_beyond_the_largest_file_is_refused() {
    let below = crafted(|log, io| {
        put(log, io, &[1; 4096]);
        let entry = log.map.entry(io, 0).unwrap().unwrap();
        log.map.mark_lost(io, 1 << 52, entry).unwrap();
        sync(log, io);
    });
    assert_eq!(below.packed().unwrap_err().errno(), fslab_vfs::Errno::IO);
    // The frames do not contain that chunk.
    assert!(below.begins_with(&[1; 4096]));
}

/// According to the frames, a chunk lies past the end of the file.
#[test]
fn packing_tolerates_a_chunk_past_the_end_of_file() {
    let below = crafted(|log, io| {
        (0..50).for_each(|_| put(log, io, &[1; 4096]));
        let behind = log.data_frame(5, true, (0, 4096), vec![2; 4096]);
        log.append_frames(io, vec![behind], WriteOptions::default()).unwrap();
        sync(log, io);
    });
    assert_eq!(below.packed().unwrap(), Some(Packed::Now));
    assert!(below.begins_with(&[1; 4096]));
}

/// A slot points to a checkpoint within the head, where no frame can be.
#[test]
fn a_checkpoint_in_the_head_is_refused() {
    let below = crafted(|log, io| {
        put(log, io, &[1; 4096]);
        log.journal.go_on_at(256, log.journal.sequence());
        sync(log, io);
    });
    assert_eq!(below.packed().unwrap(), None);
    assert!(below.begins_with(&[1; 4096]));
}

/// Without slots, the walk over this crafted file needs an index page for each frame. The number of
/// pages in memory must be bounded.
#[test]
fn a_walk_over_frames_far_apart_keeps_a_bounded_index() {
    let below = crafted(|log, io| {
        let far = |number: u64| log.data_frame(number << 30, true, (0, 4), vec![1; 4]);
        let frames = (0..100).map(far).collect();
        log.append_frames(io, frames, WriteOptions::default()).unwrap();
    });
    for (pages_max, is_found) in [(1000, true), (100, false)] {
        below.walk(|mut walk, mut log| {
            walk.pages_max = pages_max;
            assert_eq!(walk.run(&mut log).is_ok(), is_found);
            assert!(log.map.changed_pages() < pages_max + 10);
        });
    }
}

/// Dead frames and raw pieces in a crafted file must not fill the memory of its reader.
#[test]
fn a_walk_remembers_a_bounded_number_of_dead_frames_and_pieces() {
    let rewritten = crafted(|log, io| {
        (0..100).for_each(|round| put(log, io, &[round; 4096]));
    });
    rewritten.walk(|mut walk, mut log| {
        walk.dead_max = 10;
        walk.run(&mut log).unwrap();
        assert_eq!((log.garbage.dead_count(), log.journal.sequence()), (10, 100));
    });
    let pieces = crafted(|log, io| {
        let piece = |number: u64| {
            let mut frame = log.data_frame(number, true, (0, 4), vec![1; 4]);
            frame.frame.kind = Kind::Segment;
            frame
        };
        let frames = (0..100).map(piece).collect();
        log.append_frames(io, frames, WriteOptions::default()).unwrap();
    });
    for (segments_max, is_found) in [(1000, true), (60, false)] {
        pieces.walk(|mut walk, mut log| {
            walk.segments_max = segments_max;
            assert_eq!(walk.run(&mut log).is_ok(), is_found);
            assert!(log.map.segment_count() <= 100.min(segments_max));
        });
    }
}

/// Incomplete frames are lost if a complete one follows. Otherwise the file ends before the first
/// of them.
#[test]
fn incomplete_frames_are_lost_if_a_complete_one_follows() {
    const FRAME_BYTES: u64 = 72 + 4096;
    for (torn, chunks_left) in [(10..40, 50), (30..50, 30)] {
        let below = crafted(|log, io| {
            for chunk in 0..50 {
                let (bytes, options) = ([chunk as u8; 4096], WriteOptions::default());
                let whole = (chunk * 4096, bytes.as_slice());
                log.write(io, whole, &mut PreEncoded::default(), options).unwrap();
            }
            for chunk in torn.clone() {
                let place = HEAD_BYTES + chunk * FRAME_BYTES + 100;
                io.lower.write(io.request, place, b"torn", WriteOptions::default()).unwrap();
            }
        });
        below.walk(|mut walk, mut log| {
            walk.run(&mut log).unwrap();
            assert_eq!(log.size(), chunks_left * 4096);
            let lost = |chunk| {
                let entry = below.with_io(|io| log.map.entry(io, chunk)).unwrap();
                entry.is_none_or(|entry| entry.frame.is_none())
            };
            for chunk in 0..chunks_left {
                assert_eq!(lost(chunk), torn.contains(&chunk), "chunk {chunk} of {torn:?}");
            }
        });
    }
}

fn check_all(input: &[u8]) {
    check_reader(input);
    check_recovery(input);
    check_dump(input);
}

/// Checks the inputs in the corpus of the fuzz targets.
#[test]
fn fuzz_corpus_passes_all_checks() {
    let mut inputs = 0;
    for entry in std::fs::read_dir(CORPUS).unwrap() {
        check_all(&std::fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs > 2, "only {inputs} inputs in {CORPUS}");
}

/// Damages some bytes of real files, with and without sealing. `FSLAB_STORED_CASES` sets the number
/// of cases, `FSLAB_SEED` the seed, and `FSLAB_STORED_KEEP` a file for a failing input.
#[test]
fn random_damage_to_real_files_passes() {
    let cases = number("FSLAB_STORED_CASES").unwrap_or(60);
    let seed = seed();
    let files = golden_files();
    for case in 0..cases {
        let seed = seed.wrapping_add(case);
        let input = damaged(&files, seed);
        if let Err(panic) = std::panic::catch_unwind(|| check_all(&input)) {
            eprintln!("FSLAB_SEED={seed} FSLAB_STORED_CASES=1");
            if let Ok(path) = std::env::var("FSLAB_STORED_KEEP") {
                std::fs::write(path, &input).unwrap();
            }
            std::panic::resume_unwind(panic);
        }
    }
}

/// Inputs for which the test above once failed.
#[test]
fn seeds_of_earlier_damage_failures_pass() {
    // Data that was written after recovery was not found, because a slot and its checkpoint had
    // different numbers.
    let found = [17_573_356_754_890_598_480];
    let files = golden_files();
    for seed in found {
        check_all(&damaged(&files, seed));
    }
}

fn golden_files() -> Vec<Vec<u8>> {
    let files = ["copy", "gzip", "zstd", "lz4", "uuencode"];
    files.iter().map(|codec| std::fs::read(format!("{GOLDEN}/sca-1-{codec}")).unwrap()).collect()
}

fn damaged(files: &[Vec<u8>], seed: u64) -> Vec<u8> {
    let mut draws = Pcg64Mcg::seed_from_u64(seed);
    let file = &files[draws.random_range(0..files.len())];
    let how: u8 = draws.random();
    let mut input = [&[how][..], file].concat();
    for _ in 0..draws.random_range(0..12) {
        damage(&mut input, &mut draws);
    }
    input
}

/// Changes a byte or a number, mostly in headers and records, or truncates the file.
fn damage(input: &mut Vec<u8>, draws: &mut Pcg64Mcg) {
    let near_head = draws.random_bool(0.3);
    let end = if near_head { input.len().min(1300) } else { input.len() };
    let place = draws.random_range(1..end.max(2)).min(input.len() - 1);
    match draws.random_range(0..8) {
        0 => input.truncate(place.max(2)),
        1 => {
            let number: u64 = draws.random::<u64>() >> draws.random_range(0..64);
            let length = 8.min(input.len() - place);
            input[place..place + length].copy_from_slice(&number.to_le_bytes()[..length]);
        }
        2 => {
            let from = draws.random_range(1..input.len());
            let length = draws.random_range(1..200).min(input.len() - place.max(from));
            input.copy_within(from..from + length, place);
        }
        _ => input[place] = draws.random(),
    }
}
