//! Tests of damaged stored files: each read returns the correct bytes or fails, and the other
//! content remains readable.

use fslab_sca::{Depth, Packed, Tool};
use fslab_vfs::{Errno, FallocateMode, FileSystem, Ino, OpenMode, SeekTo};
use fslab_vfs_testing::client::{Client, File};
use fslab_vfs_testing::environment::{number, seed};
use fslab_vfs_testing::scratch;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tempfile::TempDir;

use super::below::{Below, CODECS, mixed, random, read_file, text, write_at, write_file};

/// Flips every byte in turn: requests for content and size return the correct result or fail.
#[test]
fn a_flipped_byte_is_never_served() {
    for codec in CODECS {
        for synced in [false, true] {
            flip_every_byte(codec, synced);
        }
    }
}

fn flip_every_byte(codec: &str, synced: bool) {
    let layer = format!("{codec}:chunk=4KiB");
    let below = Below::new();
    let data = text(9000);
    let fs = below.mount(&layer);
    write_file(&*fs, "file", &data);
    {
        let client = Client::new(&*fs);
        let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        file.write_all(9000, b"a tail").unwrap();
        file.write_all(100, b"changed").unwrap();
        if synced {
            file.fsync(false).unwrap();
        }
        file.close().unwrap();
    }
    let expected = read_file(&*fs, "file").unwrap();
    fs.shutdown().unwrap();
    let stored = below.bytes("file");
    let (mut right, mut refused) = (0, 0);
    for index in 0..stored.len() {
        let mut damaged = stored.clone();
        damaged[index] ^= 1 << (index % 8);
        below.replace("file", &damaged);
        let fs = below.mount(&layer);
        match read_file(&*fs, "file") {
            Ok(found) => {
                let all = stored.len();
                assert!(found == expected, "{codec}, synced {synced}: byte {index} of {all}");
                right += 1;
            }
            Err(errno) => {
                assert_eq!(errno, Errno::IO, "{codec}: byte {index}");
                refused += 1;
            }
        }
        // After the session has ended properly, the file's size xattr is trusted.
        fs.shutdown().unwrap();
    }
    assert!(right > 0 && refused > 0, "{codec}: {right} right, {refused} refused");
}

/// A block of zeros at the beginning of a file destroys its identity. The zeros can't result from
/// lost writes, since the size xattr records that the file was closed cleanly. An earlier version
/// served such a file as empty with its old size, and the next write quarantined its frames.
#[test]
fn settled_file_with_a_lost_head_is_refused_instead_of_empty() {
    for (layer, is_synced) in [("", false), ("", true), (",size-xattr=off", true)] {
        let below = Below::new();
        let fs = below.mount("zstd:chunk=4KiB");
        let client = Client::new(&*fs);
        let (_, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::READ_WRITE).unwrap();
        file.write_all(0, &mixed(20_000)).unwrap();
        if is_synced {
            file.fsync(false).unwrap();
        }
        file.close().unwrap();
        fs.shutdown().unwrap();
        below.overwrite("file", 0, &[0; 4096]);
        let before = below.bytes("file");
        let fs = below.mount(&format!("zstd:chunk=4KiB{layer}"));
        assert_eq!(read_file(&*fs, "file"), Err(Errno::IO), "{layer}, synced {is_synced}");
        let written = write_at(&*fs, "file", 0, b"next").map_err(|error| error.errno());
        assert_eq!(written, Err(Errno::IO), "{layer}, synced {is_synced}");
        assert!(below.bytes("file") == before, "{layer}, synced {is_synced}");
    }
}

/// The walk must know the length of a hole. In an earlier version, a single flipped bit in this
/// length made the whole file unreadable. Without a trusted size xattr, it hid all later data.
#[test]
fn flipped_bit_in_a_hole_frame_loses_no_data() {
    for codec in CODECS {
        for is_believed in [true, false] {
            flip_a_hole(codec, is_believed);
        }
    }
}

fn flip_a_hole(codec: &str, is_believed: bool) {
    let layer = format!("{codec}:chunk=4KiB");
    let below = Below::new();
    let fs = below.mount(&layer);
    let mut data = text(40_960);
    write_file(&*fs, "file", &data);
    punch(&*fs, 2 * 4096, 3 * 4096);
    data[2 * 4096..5 * 4096].fill(0);
    write_at(&*fs, "file", 7 * 4096, b"changed").unwrap();
    data[7 * 4096..7 * 4096 + 7].copy_from_slice(b"changed");
    fs.shutdown().unwrap();
    let stored = below.bytes("file");
    for place in body_of_hole(codec, &stored) {
        for bit in 0..8 {
            below.overwrite("file", place, &[stored[place] ^ 1 << bit]);
            let fs = below.mount(&layer);
            let found = read_file(&*fs, "file");
            let what = found.as_ref().map_or_else(|errno| errno.to_string(), |_| "wrong".into());
            let is_right = found.is_ok_and(|found| found == data);
            assert!(is_right, "{codec}, {is_believed}: bit {bit} of {place}: {what}");
            if is_believed {
                fs.shutdown().unwrap();
            }
        }
        below.overwrite("file", place, &[stored[place]]);
    }
}

fn punch(fs: &dyn FileSystem, offset: u64, length: u64) {
    let client = Client::new(fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.fallocate(offset, length, FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE).unwrap();
    file.close().unwrap();
}

/// Returns the range of the eight bytes with the length of the only hole, and of the bytes that
/// wrap them.
fn body_of_hole(codec: &str, stored: &[u8]) -> std::ops::Range<usize> {
    let (begin, header, body): (&[u8], _, _) = match codec {
        "uuencode" => (b"fslab:RlNmMQQC", 103, 12),
        "gzip" => (b"FSf1\x04", 72, 18),
        _ => (b"FSf1\x04", 72, 8),
    };
    let is_there = |bytes: &[u8]| bytes.starts_with(begin);
    let place = (0..stored.len()).find(|place| is_there(&stored[*place..])).unwrap() + header;
    place..place + body
}

/// A read that touches a damaged chunk fails completely, because a short read would look like the
/// end of the file.
#[test]
fn read_across_a_damaged_chunk_fails_instead_of_being_short() {
    let below = Below::new();
    let fs = below.mount("copy:chunk=4KiB");
    write_file(&*fs, "file", &text(20_000));
    fs.shutdown().unwrap();
    let mut stored = below.bytes("file");
    // A byte in the body of the third chunk's frame.
    stored[1024 + 2 * (72 + 4096) + 1000] ^= 1;
    below.replace("file", &stored);
    let fs = below.mount("copy:chunk=4KiB");
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::empty()).unwrap();
    assert_eq!(file.read(0, 20_000).unwrap_err().errno(), Errno::IO);
    assert!(file.read(0, 8192).unwrap() == text(20_000)[..8192]);
    assert_eq!(file.read(8192, 10).unwrap_err().errno(), Errno::IO);
    assert!(file.read(12_288, 20_000).unwrap() == text(20_000)[12_288..]);
}

/// Unknown bytes after the last frame are quarantined before their space is used. A power cut may
/// keep the copies but lose the gap and the next write. The copies must then not be mistaken for
/// complete frames that follow a torn frame among the bytes.
#[test]
fn quarantined_copies_do_not_count_as_frames_after_a_torn_one() {
    let layer = "copy:chunk=4KiB";
    let below = Below::new();
    let fs = below.mount(layer);
    write_file(&*fs, "file", &text(4096));
    write_at(&*fs, "file", 20_000, b"behind a hole").unwrap();
    let expected = read_file(&*fs, "file").unwrap();
    let end = below.bytes("file").len();
    write_at(&*fs, "file", 8192, &text(4096)).unwrap();
    // The body is torn, the header is complete.
    below.overwrite("file", end + 100, b"torn");
    let torn = below.bytes("file")[end..].to_vec();
    let fs = below.mount(layer);
    assert!(read_file(&*fs, "file").unwrap() == expected);
    write_at(&*fs, "file", 0, b"next").unwrap();
    assert!(below.bytes("file").len() > end + 2 * torn.len(), "nothing was kept aside");
    below.overwrite("file", end, &torn);
    assert!(read_file(&*below.mount(layer), "file").unwrap() == expected);
}

/// Unknown bytes after the last frame may be valuable data of another program.
#[test]
fn all_unknown_bytes_after_the_last_frame_are_kept() {
    let layer = "copy:chunk=4KiB";
    let below = Below::new();
    write_file(&*below.mount(layer), "file", &text(4096));
    let end = below.bytes("file").len();
    let unknown = random(7, 200_000);
    below.overwrite("file", end, &unknown);
    let fs = below.mount(layer);
    write_at(&*fs, "file", 0, b"next").unwrap();
    let copies = &below.bytes("file")[end + unknown.len()..];
    for (number, piece) in unknown.chunks(1024).enumerate() {
        let is_kept = copies.windows(64).any(|window| window == &piece[..64]);
        assert!(is_kept, "byte {} of the unknown bytes is lost", number * 1024);
    }
}

/// Truncated data does not reappear, even if a power cut tore the write that added it or the
/// truncation. A file that grows again has zeros there.
#[test]
fn truncated_data_never_reappears_after_a_power_cut() {
    // A torn write leaves incomplete content. A torn truncation lacks the bytes after gzip's
    // header. Without xattrs, nothing records that the file was closed cleanly.
    let torn = [("copy:chunk=4KiB", Torn::Write), ("gzip:chunk=4KiB,size-xattr=off", Torn::Cut)];
    for (layer, torn) in torn {
        let below = Below::new();
        let fs = below.mount(layer);
        write_file(&*fs, "file", &text(4096));
        let before_write = below.bytes("file").len();
        write_at(&*fs, "file", 4096, &text(4096)).unwrap();
        let before_cut = below.bytes("file").len();
        cut(&*fs, 4096);
        write_at(&*fs, "file", 0, b"next").unwrap();
        let place = match torn {
            Torn::Write => before_write + 100,
            Torn::Cut => before_cut + 88,
        };
        below.overwrite("file", place, b"!");
        let fs = below.mount(layer);
        let mut expected = [b"next", &text(4096)[4..]].concat();
        assert!(read_file(&*fs, "file").unwrap() == expected, "{layer}");
        cut(&*fs, 20_000);
        expected.resize(20_000, 0);
        assert!(read_file(&*fs, "file").is_ok_and(|found| found == expected), "{layer}");
        assert!(read_file(&*below.mount(layer), "file").is_ok_and(|found| found == expected));
    }
}

enum Torn {
    Write,
    Cut,
}

fn cut(fs: &dyn FileSystem, size: u64) {
    let client = Client::new(fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    client.truncate(ino, size).unwrap();
}

/// Flips random bits in a large file. The affected piece is read correctly or not at all. All other
/// pieces and the size are correct. `FSLAB_FLIPS` sets the number of flips, `FSLAB_SEED` the seed.
#[test]
fn a_flipped_bit_costs_no_more_than_its_chunk() {
    let flips = number("FSLAB_FLIPS").unwrap_or(40);
    let seed = seed();
    let mut draws = Pcg64Mcg::seed_from_u64(seed);
    for codec in CODECS {
        let layer = format!("{codec}:chunk=16KiB,level=1,cache=0");
        let layer =
            if ["gzip", "zstd"].contains(&codec) { layer } else { layer.replace("level=1,", "") };
        let (below, expected) = large_file(&layer);
        let stored = below.bytes("file");
        let mut refused = 0;
        for flip in 0..flips {
            let (place, bit) = (draws.random_range(0..stored.len()), draws.random_range(0..8));
            below.overwrite("file", place, &[stored[place] ^ 1 << bit]);
            let fs = below.mount(&layer);
            let lost = lost_pieces(&*fs, &expected);
            let lost =
                lost.unwrap_or_else(|problem| panic!("{codec}, bit {bit} of {place}: {problem}"));
            assert!(lost <= 1, "{codec}: bit {bit} of {place} costs {lost} chunks");
            refused += lost;
            below.overwrite("file", place, &[stored[place]]);
            // In every second case, the mount is shut down, so that the next one trusts the size
            // xattr.
            if flip % 2 == 0 {
                fs.shutdown().unwrap();
            }
        }
        eprintln!("{codec}: {refused} of {flips} refused in {} stored bytes", stored.len());
        assert!(refused > 0, "{codec}");
    }
}

/// A cleanly closed file ends with a checkpoint. In an earlier version, a wrong bit in this
/// checkpoint made the whole file unreadable: the size xattr included a frame that the walk did not
/// find.
#[test]
fn a_flipped_bit_at_the_end_costs_no_more_than_its_chunk() {
    for codec in CODECS {
        let layer = format!("{codec}:chunk=16KiB,cache=0");
        let (below, expected) = large_file(&layer);
        let stored = below.bytes("file");
        for place in (stored.len() - 250..stored.len()).step_by(3) {
            below.overwrite("file", place, &[stored[place] ^ 1]);
            let fs = below.mount(&layer);
            let lost = lost_pieces(&*fs, &expected);
            assert!(lost.as_ref().is_ok_and(|lost| *lost <= 1), "{codec}, byte {place}: {lost:?}");
            fs.shutdown().unwrap();
            below.overwrite("file", place, &[stored[place]]);
        }
    }
}

/// If an index page is damaged, the index is rebuilt from the frames. This also works during an
/// open, if frames after the checkpoint belong to chunks of that page.
#[test]
fn a_flipped_bit_in_the_index_loses_no_data() {
    for codec in ["copy", "gzip", "zstd", "lz4"] {
        for xattr in ["on", "off"] {
            let layer = format!("{codec}:chunk=16KiB,cache=0,size-xattr={xattr}");
            let (below, mut expected) = large_file(&layer);
            let fs = below.mount(&layer);
            write_at(&*fs, "file", 100_000, b"behind").unwrap();
            write_at(&*fs, "file", expected.len() as u64, b" and more").unwrap();
            fs.shutdown().unwrap();
            expected[100_000..100_006].copy_from_slice(b"behind");
            expected.extend(b" and more");
            let stored = below.bytes("file");
            for place in page_bodies(&stored) {
                below.overwrite("file", place, &[stored[place] ^ 1]);
                let fs = below.mount(&layer);
                let lost = lost_pieces(&*fs, &expected);
                assert!(lost == Ok(0), "{layer}, byte {place}: {lost:?}");
                fs.shutdown().unwrap();
                below.overwrite("file", place, &[stored[place]]);
            }
        }
    }
}

/// Returns an offset in the body of each index page.
fn page_bodies(stored: &[u8]) -> Vec<usize> {
    let headers = stored.windows(5).enumerate().filter(|(_, bytes)| *bytes == b"FSf1\x05");
    let places: Vec<usize> = headers.map(|(place, _)| place + 72 + 30).collect();
    assert!(!places.is_empty());
    places
}

/// A damaged index page is rebuilt by whichever operation needs it first, not only by reads.
#[test]
fn any_first_operation_heals_a_damaged_index() {
    let calls: [fn(&File<'_>, &mut Vec<u8>); 4] = [
        |file, expected| {
            file.write_all(10_000, b"in the middle").unwrap();
            expected[10_000..10_013].copy_from_slice(b"in the middle");
        },
        |file, expected| {
            file.truncate(20_000).unwrap();
            expected.truncate(20_000);
        },
        |file, expected| {
            let punching = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
            file.fallocate(5000, 20_000, punching).unwrap();
            expected[5000..25_000].fill(0);
        },
        |file, expected| {
            assert_eq!(file.seek(0, SeekTo::Hole).unwrap(), expected.len() as u64);
        },
    ];
    for (number, call) in calls.into_iter().enumerate() {
        let layer = "copy:chunk=4KiB,cache=0";
        let below = Below::new();
        let fs = below.mount(layer);
        write_file(&*fs, "file", &text(40_000));
        sync(&*fs);
        fs.shutdown().unwrap();
        let stored = below.bytes("file");
        for place in page_bodies(&stored) {
            below.overwrite("file", place, &[stored[place] ^ 1]);
        }
        let fs = below.mount(layer);
        let client = Client::new(&*fs);
        let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        let mut expected = text(40_000);
        call(&file, &mut expected);
        file.close().unwrap();
        assert!(read_file(&*fs, "file").unwrap() == expected, "call {number}");
        sync(&*fs);
        assert!(read_file(&*below.mount(layer), "file").unwrap() == expected, "call {number}");
    }
}

#[test]
fn the_tool_packs_a_file_with_a_damaged_index() {
    let layer = "copy:chunk=4KiB,cache=0,pack=off";
    let below = Below::new();
    let fs = below.mount(layer);
    write_file(&*fs, "file", &text(40_000));
    sync(&*fs);
    fs.shutdown().unwrap();
    let mut stored = below.bytes("file");
    page_bodies(&stored).into_iter().for_each(|place| stored[place] ^= 1);
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let path = scratch.path().join("file");
    std::fs::write(&path, stored).unwrap();
    assert_eq!(fslab_sca::pack(&path, &|_| {}).unwrap().outcome, Packed::Now);
    let mut content = Vec::new();
    Tool::open(&path).unwrap().cat(&mut content).unwrap();
    assert!(content == text(40_000));
}

/// A killed daemon may leave staged chunks. Tools read them, and `pack` appends them.
#[test]
fn tools_accept_a_staging_area() {
    const CHUNK: usize = 4096;
    let below = Below::new();
    let fs = below.mount("gzip:chunk=4KiB,threads=2");
    let client = Client::new(&*fs);
    let (_, file) = client.create(Ino::ROOT, "file", 0o600, OpenMode::EXCLUSIVE).unwrap();
    let data = text(12 * CHUNK + 700);
    let whole = 9 * CHUNK;
    for (number, chunk) in data[..whole].chunks(CHUNK).enumerate() {
        file.write_all((number * CHUNK) as u64, chunk).unwrap();
    }
    for (number, piece) in data[whole..].chunks(1000).enumerate() {
        file.write_all((whole + number * 1000) as u64, piece).unwrap();
    }
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let path = scratch.path().join("file");
    std::fs::write(&path, below.bytes("file")).unwrap();
    let tool = Tool::open(&path).unwrap();
    assert_eq!(tool.check(Depth::Everything).unwrap(), []);
    let mut content = Vec::new();
    tool.cat(&mut content).unwrap();
    assert!(content == data);
    assert!(tool.figures().unwrap().garbage_bytes < 1 << 20);
    assert!(tool.gains_by_packing().unwrap());
    drop(tool);
    assert_eq!(fslab_sca::pack(&path, &|_| {}).unwrap().outcome, Packed::Now);
    assert!(std::fs::metadata(&path).unwrap().len() < data.len() as u64);
    let input = std::fs::File::open(&path).unwrap();
    let printed = std::process::Command::new("gzip").arg("-dc").stdin(input).output().unwrap();
    assert!(printed.stdout == data, "gzip prints other content");
}

/// If a frame header is damaged, the frames after it are not found. They must be kept also if a
/// killed daemon has left a staging area after them.
#[test]
fn frames_after_a_damaged_header_are_kept_before_a_staging_area() {
    const CHUNK: usize = 4096;
    const FRAMES: usize = 1024;
    let below = Below::new();
    let fs = below.mount("gzip:chunk=4KiB,threads=2");
    let client = Client::new(&*fs);
    let (_, file) = client.create(Ino::ROOT, "file", 0o600, OpenMode::EXCLUSIVE).unwrap();
    for number in 0..12 {
        let chunk = [random(number, CHUNK / 2), text(CHUNK / 2)].concat();
        file.write_all(number * CHUNK as u64, &chunk).unwrap();
    }
    let frame = below.bytes("file")[FRAMES + 3000..FRAMES + 5000].to_vec();
    below.overwrite("file", FRAMES, &[0xEE; 64]);
    write_at(&*below.mount("gzip:chunk=4KiB"), "file", 0, b"new").unwrap();
    let lower = below.bytes("file");
    let is_kept = lower[FRAMES + 5000..].windows(frame.len()).any(|window| window == frame);
    assert!(is_kept, "{} bytes are left", lower.len());
}

fn sync(fs: &dyn FileSystem) {
    let client = Client::new(fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, b"I").unwrap();
    file.fsync(false).unwrap();
    file.close().unwrap();
}

/// A power cut may tear the frame that replaced a tail, and leave the pieces before and after it. A
/// checkpoint can't list that many pieces. A later sync must still make all data durable.
#[test]
fn overlong_tail_after_a_crash_is_made_durable_by_the_next_sync() {
    for xattr in ["on", "off"] {
        let layer = format!("copy:chunk=4KiB,size-xattr={xattr}");
        let below = Below::new();
        let fs = below.mount(&layer);
        write_file(&*fs, "file", &text(8192));
        let mut expected = text(8192);
        let client = Client::new(&*fs);
        let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        // Appends one byte, then pieces, a frame for all of them, and pieces again.
        for number in 0..1 + PIECES + 1 + PIECES {
            file.write_all(8192 + number as u64, b"a").unwrap();
        }
        // Simulates a kill of the daemon: the file is not closed.
        std::mem::forget(file);
        expected.resize(8192 + 2 + 2 * PIECES, b'a');
        let whole = frame_of_length(&below.bytes("file"), PIECES as u32 + 2);
        below.overwrite("file", whole + 72 + 5, b"torn");
        expected[8192 + 1 + PIECES] = 0;
        let fs = below.mount(&layer);
        assert!(read_file(&*fs, "file").unwrap() == expected, "{layer}");
        let client = Client::new(&*fs);
        let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        file.write_all(0, b"next").unwrap();
        file.fsync(false).unwrap();
        file.close().unwrap();
        fs.shutdown().unwrap();
        expected[..4].copy_from_slice(b"next");
        let found = read_file(&*below.mount(&layer), "file");
        assert!(found.as_ref() == Ok(&expected), "{layer}: {:?}", found.err());
    }
}

/// Number of pieces that can be appended to a chunk before it is encoded.
const PIECES: usize = 768;

/// Returns the offset of the header of a data frame with this many bytes of content.
fn frame_of_length(stored: &[u8], length: u32) -> usize {
    let is_it =
        |bytes: &[u8]| bytes.starts_with(b"FSf1\x01") && bytes[56..60] == length.to_le_bytes();
    stored.windows(72).position(is_it).unwrap()
}

/// Makes a file that contains every kind of frame.
fn large_file(layer: &str) -> (Below, Vec<u8>) {
    let below = Below::new();
    let fs = below.mount(layer);
    let mut data = mixed(900_000);
    write_file(&*fs, "file", &data);
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    for round in 0..20 {
        let offset = round * 43_001;
        file.write_all(offset as u64, b"changed").unwrap();
        data[offset..offset + 7].copy_from_slice(b"changed");
        if round % 5 == 0 {
            file.fsync(false).unwrap();
        }
    }
    file.write_all(900_000, b"a tail").unwrap();
    data.extend(b"a tail");
    file.fsync(false).unwrap();
    file.close().unwrap();
    fs.shutdown().unwrap();
    (below, data)
}

/// Reads all pieces; returns the number of failed reads.
fn lost_pieces(fs: &dyn FileSystem, expected: &[u8]) -> Result<usize, String> {
    const CHUNK: usize = 16 << 10;
    let client = Client::new(fs);
    let attr = client.lookup(Ino::ROOT, "file").map_err(|error| error.to_string())?;
    if attr.size != expected.len() as u64 {
        return Err(format!("a size of {}", attr.size));
    }
    let file = client.open(attr.ino, OpenMode::empty()).map_err(|error| error.to_string())?;
    let mut lost = 0;
    for (number, piece) in expected.chunks(CHUNK).enumerate() {
        match file.read((number * CHUNK) as u64, CHUNK) {
            Ok(found) if found == piece => {}
            Ok(_) => return Err(format!("wrong bytes in chunk {number}")),
            Err(error) if error.errno() == Errno::IO => lost += 1,
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(lost)
}

#[test]
fn next_write_repairs_a_damaged_head() {
    for codec in CODECS {
        let (below, layer) = (Below::new(), format!("{codec}:chunk=4KiB"));
        {
            let fs = below.mount(&layer);
            write_file(&*fs, "file", &text(9000));
            fs.shutdown().unwrap();
        }
        let before = below.bytes("file");
        below.overwrite("file", 0, &[0xEE; 1024]);
        {
            let fs = below.mount(&layer);
            write_at(&*fs, "file", 100, b"changed").unwrap();
            fs.shutdown().unwrap();
        }
        assert!(below.bytes("file")[..64] == before[..64], "{codec}");
    }
}
