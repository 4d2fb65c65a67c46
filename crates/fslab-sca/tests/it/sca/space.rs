//! Tests that rewritten files do not grow, and that a full disk loses no data.

use std::time::{Duration, Instant};

use fslab_vfs::{Capacity, Errno, FallocateMode, Ino, MemFs, OpenMode};
use fslab_vfs_testing::client::{Client, File};

use super::below::{Below, CODECS, Failing, random, read_file, text, write_at, write_file};

const MIB: u64 = 1 << 20;

/// Length of a growing file in bytes.
const GROWN_BYTES: usize = 32 << 20;

/// Action of a program after each small write.
#[derive(Clone, Copy, Debug)]
enum After {
    Nothing,
    Sync,
    Close,
}

#[test]
fn a_file_that_is_rewritten_takes_a_bounded_space() {
    for (layer, writes) in
        [("gzip:level=1", 1500), ("zstd:chunk=4KiB,level=1", 4000), ("copy:chunk=16KiB", 1500)]
    {
        for after in [After::Nothing, After::Sync, After::Close] {
            rewrite(layer, writes, after);
        }
    }
}

fn rewrite(layer: &str, writes: u64, after: After) {
    let below = Below::new();
    let fs = below.mount(layer);
    let mut data = [text(150_000), random(5, 150_000)].concat();
    write_file(&*fs, "file", &data);
    let first = below.allocated("file");
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let open = || client.open(ino, OpenMode::READ_WRITE).unwrap();
    let mut file = open();
    let mut most = 0;
    for round in 0..writes {
        let (offset, piece) = (round * 7919 % 295_000, random(round, 3000));
        file.write_all(offset, &piece).unwrap();
        data[offset as usize..][..3000].copy_from_slice(&piece);
        match after {
            After::Nothing => {}
            After::Sync => file.fsync(true).unwrap(),
            After::Close => std::mem::replace(&mut file, open()).close().unwrap(),
        }
        most = most.max(below.allocated("file"));
    }
    close(file);
    // The live content never takes more than 300 KB, plus its index pages.
    assert!(most < 3 * MIB, "{layer}, {after:?}: {most} bytes, {first} at first");
    assert!(below.bytes("file").len() as u64 > 2 * most, "{layer}: too little was written");
    assert!(read_file(&*fs, "file").unwrap() == data, "{layer}, {after:?}");
    // The content is found after the daemon is killed, and then also if the slots are destroyed, so
    // that the walk must pass over the gaps.
    assert!(read_file(&*below.mount(layer), "file").unwrap() == data, "{layer}, {after:?}: killed");
    below.overwrite("file", 128, &[0xEE; 800]);
    assert!(
        read_file(&*below.mount(layer), "file").unwrap() == data,
        "{layer}, {after:?}: no slots"
    );
}

/// A file under random writes takes little more than twice its packed size, for any number of
/// writes. `FSLAB_RANDOM_WRITES` sets the number of 4 KiB writes to a file of one gibibyte.
#[test]
fn random_writes_take_at_most_twice_the_packed_size() {
    let asked = std::env::var("FSLAB_RANDOM_WRITES").ok().map(|text| text.parse().unwrap());
    let (size, writes) = asked.map_or((6 << 20, 2500), |writes| (1 << 30, writes));
    let layer = if asked.is_some() { "zstd:level=1" } else { "zstd:level=1,chunk=16KiB" };
    let below = Below::new();
    let fs = below.mount(layer);
    let mut data = [text(size / 2), random(3, size / 2)].concat();
    write_file(&*fs, "file", &data);
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    let (mut most, mut place) = (0, 1_u64);
    for round in 0..writes {
        place =
            place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let offset = ((place >> 20) as usize % (size / 4096)) * 4096;
        let piece = if round % 2 == 0 { random(round, 4096) } else { text(4096) };
        file.write_all(offset as u64, &piece).unwrap();
        data[offset..offset + 4096].copy_from_slice(&piece);
        most = most.max(below.allocated("file"));
    }
    close(file);
    let fresh = Below::new();
    write_file(&*fresh.mount(layer), "file", &data);
    let packed = fresh.allocated("file");
    eprintln!("{writes} writes: at most {most} bytes, packed {packed}");
    let spare = if asked.is_some() { 64 * MIB } else { 4 * MIB };
    assert!(most <= 2 * packed + spare, "{most} bytes, packed {packed}");
    assert!(read_file(&*fs, "file").unwrap() == data);
}

fn close(file: File<'_>) {
    file.close().unwrap();
}

/// Garbage collection stops at unreadable content, and keeps it for a repair.
#[test]
fn garbage_collection_keeps_damaged_content() {
    let below = Below::new();
    let layer = "copy:chunk=4KiB,garbage=4KiB";
    let fs = below.mount(layer);
    write_file(&*fs, "file", &text(40_000));
    fs.shutdown().unwrap();
    // A byte in the body of the third chunk's frame.
    let place = 1024 + 2 * (72 + 4096) + 1000;
    let right = below.bytes("file")[place];
    below.overwrite("file", place, &[right ^ 1]);
    let fs = below.mount(layer);
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    for round in 0..200 {
        file.write_all(16_384 + round * 61 % 20_000, b"again").unwrap();
    }
    assert_eq!(file.read(8192, 10).unwrap_err().errno(), Errno::IO);
    file.close().unwrap();
    below.overwrite("file", place, &[right]);
    assert!(read_file(&*fs, "file").unwrap()[..16_384] == text(16_384));
}

/// On a full disk every operation succeeds or reports an error, and no data is lost. Operations
/// that need no lower space, such as truncating and removing, always work.
#[test]
fn full_disk_returns_errors_and_loses_no_data() {
    for codec in CODECS {
        let below = Below::of(MemFs::new(Capacity { bytes: 4 * MIB, inodes: 100 }));
        let fs = below.mount(&format!("{codec}:chunk=16KiB"));
        let mut data = random(9, 600_000);
        write_file(&*fs, "file", &data);
        let client = Client::new(&*fs);
        let (_, filler) = client.create(Ino::ROOT, "filler", 0o600, OpenMode::EXCLUSIVE).unwrap();
        let full = (0..).map(|place| filler.write_all(place * 4096, &random(place, 4096)));
        let refused = full.take(2000).find_map(Result::err).unwrap();
        assert_eq!(refused.errno(), Errno::NOSPC, "{codec}");
        let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        shrink(codec, &file, &mut data);
        let found = read_file(&*fs, "file").unwrap();
        let first = found.iter().zip(&data).position(|(one, other)| one != other);
        assert!(found == data, "{codec} {} {} {first:?}", found.len(), data.len());
        file.truncate(0).unwrap();
        file.write_all(0, b"room again").unwrap();
        file.fsync(false).unwrap();
        file.close().unwrap();
        filler.close().unwrap();
        client.unlink(Ino::ROOT, "filler").unwrap();
        assert!(read_file(&*below.mount(codec), "file").unwrap() == b"room again", "{codec}");
    }
}

/// While the lower file system has no space for the encoded chunks, the chunks stay in the staging
/// area.
#[test]
fn staged_chunks_survive_a_full_disk() {
    const CHUNK: usize = 16 << 10;
    for codec in ["gzip", "zstd", "lz4"] {
        let below = Below::of(MemFs::new(Capacity { bytes: 8 * MIB, inodes: 100 }));
        let layer = format!("{codec}:chunk=16KiB,threads=2");
        let fs = below.mount(&layer);
        let client = Client::new(&*fs);
        let (_, file) = client.create(Ino::ROOT, "file", 0o600, OpenMode::EXCLUSIVE).unwrap();
        let (_, filler) = client.create(Ino::ROOT, "filler", 0o600, OpenMode::EXCLUSIVE).unwrap();
        let chunk = |number| [text(CHUNK / 2), random(number, CHUNK / 2)].concat();
        let data: Vec<u8> = (0..64).flat_map(chunk).collect();
        let mut written = Ok(());
        let mut acknowledged = 0;
        for (number, chunk) in data.chunks(CHUNK).enumerate() {
            if number == 9 {
                let length = below.bytes("file").len();
                assert!(length > 64 << 20, "{codec}: no chunk is staged");
                let full = (0..).map(|place| filler.write_all(place * 4096, &random(place, 4096)));
                full.take(3000).find_map(Result::err).unwrap();
            }
            written = file.write_all(acknowledged as u64, chunk);
            if written.is_err() {
                break;
            }
            acknowledged += CHUNK;
        }
        assert_eq!(written.unwrap_err().errno(), Errno::NOSPC, "{codec}");
        assert!(read_file(&*fs, "file").unwrap() == data[..acknowledged], "{codec}");
        let killed = below.mount(&layer);
        assert!(read_file(&*killed, "file").unwrap() == data[..acknowledged], "{codec}: killed");
        filler.truncate(0).unwrap();
        let expected = [&data[..acknowledged], b"next"].concat();
        write_at(&*killed, "file", acknowledged as u64, b"next").unwrap();
        assert!(read_file(&*below.mount(&layer), "file").unwrap() == expected, "{codec}: next");
        assert!(below.bytes("file").len() < 64 << 20, "{codec}: the staging area is left");
    }
}

/// A program may write again and again although the disk is full. No attempt may use the slot of a
/// staged chunk.
#[test]
fn staged_chunks_survive_repeated_writes_to_a_full_disk() {
    const CHUNK: usize = 16 << 10;
    for (staged, piece) in [(1, CHUNK), (3, CHUNK), (6, CHUNK), (2, 3000), (5, 7000)] {
        let below = Below::of(MemFs::new(Capacity { bytes: 8 * MIB, inodes: 100 }));
        let layer = "zstd:chunk=16KiB,threads=2";
        let fs = below.mount(layer);
        let client = Client::new(&*fs);
        let (_, file) = client.create(Ino::ROOT, "file", 0o600, OpenMode::EXCLUSIVE).unwrap();
        let (_, filler) = client.create(Ino::ROOT, "filler", 0o600, OpenMode::EXCLUSIVE).unwrap();
        let data: Vec<u8> =
            (0..64).flat_map(|n| [text(CHUNK / 2), random(n, CHUNK / 2)].concat()).collect();
        // A write that is refused may have written its first bytes.
        let written = || client.attr(file.ino).unwrap().size as usize;
        let write = || {
            let place = written();
            file.write_all(place as u64, &data[place..][..piece])
        };
        for _ in 0..4 * CHUNK / piece + 1 + staged * CHUNK / piece {
            write().unwrap();
        }
        assert!(below.bytes("file").len() > 64 << 20, "{staged} chunks, {piece}: not staged");
        let full = (0..).map(|place| filler.write_all(place * 4096, &random(place, 4096)));
        full.take(3000).find_map(Result::err).unwrap();
        let acknowledged = written();
        let refused = (0..40).filter(|_| write().is_err()).count();
        assert!(refused > 10, "{staged} chunks, {piece}: {refused} writes were refused");
        assert!(written() >= acknowledged, "{staged} chunks, {piece}");
        assert!(read_file(&*fs, "file").unwrap() == data[..written()], "{staged}, {piece}");
        let killed = below.mount(layer);
        assert!(read_file(&*killed, "file").unwrap() == data[..written()], "{staged}: killed");
        filler.truncate(0).unwrap();
        write().unwrap();
        file.fsync(false).unwrap();
        assert!(read_file(&*fs, "file").unwrap() == data[..written()], "{staged}, {piece}: room");
    }
}

/// If the lower file system can't store sparse files, a staging area would take 128 MiB of zeros.
#[test]
fn chunks_are_staged_only_where_ranges_can_be_freed() {
    const CHUNK: usize = 4096;
    let layer = "zstd:chunk=4KiB,threads=2";
    for (rule, is_staged) in [
        ("", [true, true]),
        ("fallocate error EOPNOTSUPP", [false, false]),
        ("fallocate error EIO", [false, true]),
    ] {
        let below = Below::new();
        let failing = Failing::over(&below, layer, rule);
        let client = Client::new(&*failing.fs);
        let (_, file) = client.create(Ino::ROOT, "file", 0o600, OpenMode::EXCLUSIVE).unwrap();
        let data = text(12 * CHUNK);
        for (part, staged) in is_staged.into_iter().enumerate() {
            for number in part * 6..(part + 1) * 6 {
                let place = number * CHUNK;
                file.write_all(place as u64, &data[place..][..CHUNK]).unwrap();
            }
            assert_eq!(below.bytes("file").len() > 64 << 20, staged, "{rule:?}, part {part}");
            failing.by("");
        }
        file.close().unwrap();
        assert!(read_file(&*failing.fs, "file").unwrap() == data, "{rule:?}");
    }
}

/// If a program stops writing without closing its file, staging must end while the mount is idle.
#[test]
fn staging_ends_while_the_mount_is_idle() {
    const PIECE: usize = 3000;
    for (pack, is_ended) in [("pack-after=10ms", true), ("pack=off", false)] {
        let below = Below::new();
        let fs = below.mount(&format!("zstd:chunk=4KiB,threads=2,{pack}"));
        let client = Client::new(&*fs);
        let (_, file) = client.create(Ino::ROOT, "file", 0o600, OpenMode::EXCLUSIVE).unwrap();
        let data = text(20 * PIECE);
        for (number, piece) in data.chunks(PIECE).enumerate() {
            file.write_all((number * PIECE) as u64, piece).unwrap();
        }
        let is_long = || below.bytes("file").len() > 64 << 20;
        let deadline = Instant::now() + Duration::from_secs(if is_ended { 30 } else { 1 });
        while is_long() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(is_long(), !is_ended, "{pack}");
        assert!(read_file(&*below.mount("zstd:chunk=4KiB"), "file").unwrap() == data, "{pack}");
        file.close().unwrap();
    }
}

/// A power cut may leave a staging area without a valid chunk. The hole before it must not be
/// copied.
#[test]
fn hole_before_unknown_bytes_takes_no_space_in_their_quarantine() {
    let (below, layer) = (Below::new(), "zstd:chunk=4KiB");
    let data = text(30_000);
    write_file(&*below.mount(layer), "file", &data);
    let unknown = random(9, 50_000);
    let offset = 129 << 20;
    let lower = Client::new(&*below.fs);
    let file = lower.open(lower.lookup(Ino::ROOT, "file").unwrap().ino, OpenMode::READ_WRITE);
    let file = file.unwrap();
    file.write_all(offset, &unknown).unwrap();
    file.close().unwrap();
    let before = below.allocated("file");
    write_at(&*below.mount(layer), "file", data.len() as u64, b"next").unwrap();
    let after = below.allocated("file");
    assert!(after < before + MIB, "{after} bytes, {before} before");
    assert!(read_file(&*below.mount(layer), "file").unwrap() == [&data[..], b"next"].concat());
    let copies = &below.bytes("file")[offset as usize + unknown.len()..];
    let is_copied = |piece: &&[u8]| copies.windows(piece.len()).any(|window| window == *piece);
    // The copies are at most three frames, so at most two pieces are divided between two frames.
    assert!(unknown.chunks(100).filter(is_copied).count() >= 498, "unknown bytes are lost");
}

fn shrink(codec: &str, file: &File<'_>, data: &mut Vec<u8>) {
    let punching = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    for size in (100_000..500_000_usize).rev().step_by(7777) {
        match file.truncate(size as u64) {
            Ok(_) => data.truncate(size),
            Err(error) => assert_eq!(error.errno(), Errno::NOSPC, "{codec}"),
        }
        let offset = size / 3;
        match file.fallocate(offset as u64, 20_000, punching) {
            Ok(()) => data[offset..offset + 20_000].fill(0),
            Err(error) => assert_eq!(error.errno(), Errno::NOSPC, "{codec}"),
        }
        match file.write_all(offset as u64, b"small") {
            Ok(()) => data[offset..offset + 5].copy_from_slice(b"small"),
            Err(error) => assert_eq!(error.errno(), Errno::NOSPC, "{codec}"),
        }
        match file.fsync(false) {
            Ok(()) => {}
            Err(error) => assert_eq!(error.errno(), Errno::NOSPC, "{codec}"),
        }
    }
}

/// Returns the maximum space of a file of random data while it is appended to, in percent of its
/// size.
fn peak_percent(layer: &str, piece: usize) -> u64 {
    let (below, data) = (Below::new(), random(5, GROWN_BYTES));
    let fs = below.mount(layer);
    let client = Client::new(&*fs);
    let (_, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::EXCLUSIVE).unwrap();
    let (mut peak, mut looked) = (0, 0);
    for (number, bytes) in data.chunks(piece).enumerate() {
        file.write_all((number * piece) as u64, bytes).unwrap();
        if number * piece >= looked {
            peak = peak.max(below.allocated("file"));
            looked += 256 << 10;
        }
    }
    file.close().unwrap();
    100 * peak / GROWN_BYTES as u64
}

/// Small pieces are stored raw until their chunk is full. Then the chunk is encoded, and the pieces
/// are dead.
#[test]
fn appending_small_pieces_takes_at_most_110_percent_of_the_size() {
    for layer in ["copy:pack=off", "gzip:pack=off", "zstd:pack=off"] {
        for piece in [700, 4 << 10, 64 << 10] {
            let percent = peak_percent(layer, piece);
            assert!(percent <= 110, "{layer}, pieces of {piece} bytes: {percent} % of the size");
        }
    }
}

/// Space is freed in the background. A writer that is faster waits for the background thread, so
/// that the garbage is bounded.
#[test]
fn space_is_freed_while_a_file_is_written() {
    let (below, data) = (Below::new(), random(6, 4 * MIB as usize));
    let layer = "copy:chunk=16KiB,pack-after=1h";
    let slow = Failing::over(&below, layer, "fsync delay 20ms");
    {
        let client = Client::new(&*slow.fs);
        let (_, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::EXCLUSIVE).unwrap();
        let mut peak = 0;
        for _ in 0..40 {
            file.write_all(0, &data).unwrap();
            peak = peak.max(below.allocated("file"));
        }
        file.close().unwrap();
        assert!(peak <= 20 * MIB, "{peak} bytes for 4 MiB");
    }
    slow.fs.shutdown().unwrap();
    drop(slow);
    assert!(read_file(&*below.mount("copy"), "file").unwrap() == data);
}
