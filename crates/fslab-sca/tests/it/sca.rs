//! Tests of stored files: their form in the lower directory, and their content after kills,
//! truncation and damage.

mod below;
mod convert;
mod convert_for_others;
mod copies;
mod cuts;
mod damage;
mod emptying;
mod failures;
pub mod identity;
mod marks;
mod memory;
mod pack;
mod packer;
mod read_ahead;
mod rights;
mod space;
mod unreadable;
mod waiting;

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

use fslab_vfs::{Errno, FallocateMode, FileSystem, Ino, OpenMode, SeekTo};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::skip::skip;

use below::{Below, CODECS, mixed, random, read_file, text, write_at, write_file};

fn piped(program: &str, arguments: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        skip("the ordinary tools decode what a layer wrote", &format!("no {program}"));
        return None;
    };
    let mut to_child = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || to_child.write_all(&input));
    let output = child.wait_with_output().unwrap();
    match writer.join().unwrap() {
        // uudecode exits at the end of the data and may not read the lines after it.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written.unwrap(),
    }
    assert!(output.status.success(), "{program}: {}", output.status);
    Some(output.stdout)
}

#[test]
fn ordinary_tools_decode_files_written_in_order() {
    let data = mixed(3_000_000);
    for codec in ["gzip", "zstd", "lz4"] {
        let below = Below::new();
        let fs = below.mount(codec);
        write_file(&*fs, "file", &data);
        let stored = below.bytes("file");
        assert!(stored.len() < data.len() / 2, "{codec}: {} bytes", stored.len());
        if let Some(decoded) = piped(codec, &["-dc", "-"], &stored) {
            assert!(decoded == data, "{codec}: {} bytes", decoded.len());
        }
    }
}

#[test]
fn uuencoded_files_are_text_with_sections_for_uudecode() {
    let data = mixed(500_000);
    let below = Below::new();
    write_file(&*below.mount("uuencode"), "file", &data);
    let stored = below.bytes("file");
    assert!(stored.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n')));
    let mut decoded = Vec::new();
    let sections = String::from_utf8(stored).unwrap();
    for section in sections.split("begin 644 ").skip(1) {
        let section = format!("begin 644 {section}");
        match piped("uudecode", &["-o", "/dev/stdout"], section.as_bytes()) {
            Some(piece) => decoded.extend(piece),
            None => return,
        }
    }
    assert!(decoded == data);
}

/// The next daemon finds everything that a killed daemon wrote, for every codec and every way of
/// changing a file.
#[test]
fn all_written_content_survives_a_killed_daemon() {
    for codec in CODECS {
        for layer in [format!("{codec}:chunk=4KiB"), codec.to_owned()] {
            for seed in 1..4 {
                random_changes_survive(&layer, seed);
            }
        }
    }
}

fn random_changes_survive(layer: &str, seed: u64) {
    let below = Below::new();
    let mut fs = below.mount(layer);
    let mut expected: Vec<u8> = Vec::new();
    write_file(&*fs, "file", b"");
    let mut numbers = random(seed * 977, 4096).into_iter().map(usize::from);
    let mut number = |below: usize| {
        let (high, low) = (numbers.next().unwrap(), numbers.next().unwrap());
        (((high << 8) | low) * below) >> 16
    };
    for round in 0..60_u64 {
        change(&*fs, &mut expected, &mut number, round);
        if round % 3 == 0 {
            // Simulates a kill: the old layer is not shut down.
            fs = below.mount(layer);
        }
        let found = read_file(&*fs, "file").unwrap();
        let first = found.iter().zip(&expected).position(|(one, other)| one != other);
        assert!(
            found == expected,
            "{layer}, seed {seed}, round {round}: {} bytes, expected {}, differ at {first:?}",
            found.len(),
            expected.len()
        );
    }
}

fn change(
    fs: &dyn FileSystem,
    expected: &mut Vec<u8>,
    number: &mut impl FnMut(usize) -> usize,
    round: u64,
) {
    let client = Client::new(fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    let (offset, length) = (number(400_000), number(30_000) + 1);
    let end = offset + length;
    match number(8) {
        0 => {
            file.truncate(offset as u64).unwrap();
            expected.resize(offset, 0);
        }
        1 => {
            let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
            file.fallocate(offset as u64, length as u64, mode).unwrap();
            let size = expected.len();
            expected[offset.min(size)..end.min(size)].fill(0);
        }
        2 => {
            file.fsync(false).unwrap();
        }
        3..6 => {
            for piece in 0..20 {
                let data = random(round * 31 + piece, length % 700 + 1);
                file.write_all(expected.len() as u64, &data).unwrap();
                expected.extend(data);
            }
        }
        _ => {
            let data = if round.is_multiple_of(2) { text(length) } else { random(round, length) };
            file.write_all(offset as u64, &data).unwrap();
            expected.resize(expected.len().max(end), 0);
            expected[offset..end].copy_from_slice(&data);
        }
    }
    file.close().unwrap();
}

/// A stored file inside a stored file is treated as content, even if it is an earlier version of
/// the outer file.
#[test]
fn stored_file_inside_a_stored_file_stays_content() {
    for codec in CODECS {
        let below = Below::new();
        let fs = below.mount(codec);
        write_file(&*fs, "inner", &text(300_000));
        let inner = below.bytes("inner");
        write_file(&*fs, "outer", &inner);
        let again = [below.bytes("outer"), inner.clone()].concat();
        write_file(&*fs, "outermost", &again);
        let fs = below.mount(codec);
        assert!(read_file(&*fs, "outer").unwrap() == inner, "{codec}");
        assert!(read_file(&*fs, "outermost").unwrap() == again, "{codec}");
    }
}

#[test]
fn file_with_damaged_slots_is_read_from_its_frames() {
    for codec in CODECS {
        let below = Below::new();
        let fs = below.mount(codec);
        write_file(&*fs, "file", &mixed(700_000));
        let client = Client::new(&*fs);
        let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        for round in 0..6 {
            file.write_all(round * 1000, b"again").unwrap();
            file.fsync(false).unwrap();
        }
        file.close().unwrap();
        let expected = read_file(&*fs, "file").unwrap();
        for damage in [64..128, 128..512, 512..1024, 64..1024] {
            let mut stored = below.bytes("file");
            stored[damage.clone()].fill(0xEE);
            below.replace("file", &stored);
            let found = read_file(&*below.mount(codec), "file");
            assert!(found.as_ref() == Ok(&expected), "{codec}: {damage:?} {:?}", found.err());
        }
    }
}

/// A torn write leaves either the old content or all of the new content, and the file remains
/// usable.
#[test]
fn torn_write_leaves_old_or_new_content() {
    for codec in CODECS {
        let layer = format!("{codec}:chunk=4KiB");
        let below = Below::new();
        let fs = below.mount(&layer);
        write_file(&*fs, "file", &text(5000));
        let before = below.bytes("file").len();
        let client = Client::new(&*fs);
        let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        file.write_all(5000, &random(1, 900)).unwrap();
        let whole = below.bytes("file");
        drop(file);
        let expected = [text(5000), random(1, 900)].concat();
        for cut in (before..=whole.len()).step_by(7).chain([whole.len()]) {
            below.replace("file", &whole[..cut]);
            let fs = below.mount(&layer);
            let found = read_file(&*fs, "file").unwrap();
            assert!(found == expected[..5000] || found == expected, "{codec}: cut at {cut}");
            let client = Client::new(&*fs);
            let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
            let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
            file.write_all(0, b"it goes on").unwrap();
            file.close().unwrap();
            let found = read_file(&*below.mount(&layer), "file").unwrap();
            assert_eq!(&found[..10], b"it goes on", "{codec}: cut at {cut}");
            assert!(found[10..5000] == expected[10..5000], "{codec}: cut at {cut}");
        }
    }
}

#[test]
fn foreign_files_are_served_as_they_are() {
    let below = Below::new();
    let data = random(3, 50_000);
    write_file(&*below.fs, "foreign", &data);
    let fs = below.mount("gzip");
    assert!(read_file(&*fs, "foreign").unwrap() == data);
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "foreign").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(1000, b"changed in place").unwrap();
    file.close().unwrap();
    let mut expected = data;
    expected[1000..1016].copy_from_slice(b"changed in place");
    assert!(below.bytes("foreign") == expected);
    assert!(read_file(&*below.mount("gzip"), "foreign").unwrap() == expected);
    let file = client.open(ino, OpenMode::READ_WRITE | OpenMode::TRUNCATE).unwrap();
    file.write_all(0, &text(50_000)).unwrap();
    file.close().unwrap();
    assert!(read_file(&*fs, "foreign").unwrap() == text(50_000));
    assert!(below.bytes("foreign").len() < 10_000, "rewritten, and still not encoded");
}

/// A foreign file remains foreign even if its new content looks like a stored file.
#[test]
fn a_foreign_file_stays_foreign_whatever_is_written_to_it() {
    let below = Below::new();
    write_file(&*below.fs, "foreign", &random(3, 5000));
    let fs = below.mount("gzip");
    write_file(&*fs, "stored", &text(5000));
    let looks_stored = below.bytes("stored");
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "foreign").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, &looks_stored).unwrap();
    file.truncate(looks_stored.len() as u64).unwrap();
    file.close().unwrap();
    assert!(read_file(&*below.mount("gzip"), "foreign").unwrap() == looks_stored);
}

#[test]
fn a_mount_of_any_codec_reads_files_of_all_codecs() {
    let below = Below::new();
    for codec in CODECS {
        write_file(&*below.mount(codec), codec, &mixed(300_000));
    }
    for reader in CODECS {
        let fs = below.mount(&format!("{reader}:chunk=8KiB"));
        for codec in CODECS {
            assert!(read_file(&*fs, codec).unwrap() == mixed(300_000), "{codec} by {reader}");
        }
    }
}

#[test]
fn fslab_xattrs_are_hidden_and_cannot_be_set() {
    let below = Below::new();
    let fs = below.mount("copy");
    write_file(&*fs, "file", b"data");
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    for name in ["user.fslab.sca", "user.fslab.sca.tree"] {
        assert_eq!(client.getxattr(ino, name).unwrap_err().errno(), Errno::NODATA);
        assert_eq!(client.setxattr(ino, name, b"x").unwrap_err().errno(), Errno::PERM);
        assert_eq!(client.removexattr(ino, name).unwrap_err().errno(), Errno::NODATA);
    }
    assert_eq!(client.listxattr(ino).unwrap().len(), 0);
    assert_eq!(client.listxattr(Ino::ROOT).unwrap().len(), 0);
    let lower = Client::new(&*below.fs);
    let ino = lower.lookup(Ino::ROOT, "file").unwrap().ino;
    assert_eq!(lower.getxattr(ino, "user.fslab.sca").unwrap().len(), 40);
}

/// Content of the stored files of version 1 in `golden/`.
fn golden_content() -> Vec<u8> {
    let mut data = text(20_000);
    data.extend(random(11, 6000));
    data.extend(b"a tail");
    data.resize(60_000, 0);
    data.extend(b"behind a hole");
    data[5000..5016].copy_from_slice(b"changed in place");
    data[9000..13_000].fill(0);
    data
}

fn write_golden(fs: &dyn FileSystem) {
    write_file(fs, "golden", &[text(20_000), random(11, 6000)].concat());
    let client = Client::new(fs);
    let ino = client.lookup(Ino::ROOT, "golden").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(26_000, b"a tail").unwrap();
    file.fsync(false).unwrap();
    file.truncate(70_000).unwrap();
    file.write_all(60_000, b"behind a hole").unwrap();
    file.truncate(60_013).unwrap();
    file.write_all(5000, b"changed in place").unwrap();
    let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    file.fallocate(9000, 4000, mode).unwrap();
    file.fsync(false).unwrap();
    file.close().unwrap();
}

/// Files of released versions remain readable forever. `FSLAB_BLESS=1` writes new files; use it
/// only for a new version, and keep the old files.
#[test]
fn stored_files_of_version_1_stay_readable() {
    for codec in CODECS {
        let path = format!("tests/golden/sca-1-{codec}");
        if std::env::var_os("FSLAB_BLESS").is_some() {
            let below = Below::new();
            write_golden(&*below.mount(&format!("{codec}:chunk=4KiB")));
            std::fs::write(&path, below.bytes("golden")).unwrap();
        }
        let below = Below::new();
        write_file(&*below.fs, "golden", &std::fs::read(&path).unwrap());
        let fs = below.mount("copy");
        assert!(read_file(&*fs, "golden").unwrap() == golden_content(), "{codec}");
    }
}

/// Writes the content of the golden files, and packs it with a layer of this version. The file is
/// rewritten to contain garbage, and has a hole that becomes zeros if the codec compresses.
fn write_packed_golden(fs: &dyn FileSystem) {
    write_golden(fs);
    let client = Client::new(fs);
    let ino = client.lookup(Ino::ROOT, "golden").unwrap().ino;
    let content = golden_content();
    for round in 0..4 {
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        file.write_all(0, &vec![round; 26_000]).unwrap();
        file.write_all(0, &content[..26_006]).unwrap();
        file.fsync(false).unwrap();
        file.close().unwrap();
    }
}

/// Packed files (see `docs/formats/sca.md`), which tools can decode, remain readable too.
#[test]
fn packed_files_of_version_1_stay_readable() {
    for codec in CODECS {
        let path = format!("tests/golden/sca-1-packed-{codec}");
        if std::env::var_os("FSLAB_BLESS").is_some() {
            let below = Below::new();
            let layer = format!("{codec}:chunk=4KiB,garbage=4KiB,pack=close");
            write_packed_golden(&*below.mount(&layer));
            std::fs::write(&path, below.bytes("golden")).unwrap();
        }
        let stored = std::fs::read(&path).unwrap();
        let form = fslab_sca::Tool::open(path.as_ref()).unwrap().figures().unwrap().form;
        let below = Below::new();
        write_file(&*below.fs, "golden", &stored);
        let fs = below.mount("copy");
        assert!(read_file(&*fs, "golden").unwrap() == golden_content(), "{codec}");
        if !["gzip", "zstd", "lz4"].contains(&codec) {
            assert_eq!(form, "packed, sparse", "{codec}");
            continue;
        }
        assert_eq!(form, "packed", "{codec}");
        if let Some(decoded) = piped(codec, &["-dc", "-"], &stored) {
            assert!(decoded == golden_content(), "{codec}: {} bytes", decoded.len());
        }
    }
}

/// Files with a staging area, which a killed daemon leaves, remain readable too. A golden file has
/// the frames and the area, but not the hole between them.
#[test]
fn staged_files_of_version_1_stay_readable() {
    const AREA_BYTES: usize = 8 * (4096 + 8192);
    const AREA: usize = 129 << 20;
    let content = text(50_000);
    for codec in ["gzip", "zstd", "lz4"] {
        let path = format!("tests/golden-staged/sca-1-{codec}");
        if std::env::var_os("FSLAB_BLESS").is_some() {
            let below = Below::new();
            let fs = below.mount(&format!("{codec}:chunk=4KiB,threads=2"));
            let client = Client::new(&*fs);
            let (_, file) = client.create(Ino::ROOT, "golden", 0o600, OpenMode::EXCLUSIVE).unwrap();
            let (chunks, pieces) = content.split_at(8 * 4096);
            for (number, chunk) in chunks.chunks(4096).enumerate() {
                file.write_all(number as u64 * 4096, chunk).unwrap();
            }
            for (number, piece) in pieces.chunks(1000).enumerate() {
                file.write_all((chunks.len() + number * 1000) as u64, piece).unwrap();
            }
            let lower = below.bytes("golden");
            assert_eq!(lower.len(), AREA + AREA_BYTES);
            let end = lower[..AREA].iter().rposition(|byte| *byte != 0).unwrap() + 1;
            std::fs::write(&path, [&lower[..end], &lower[AREA..]].concat()).unwrap();
        }
        let golden = std::fs::read(&path).unwrap();
        let (frames, area) = golden.split_at(golden.len() - AREA_BYTES);
        let below = Below::new();
        write_file(&*below.fs, "golden", frames);
        write_at(&*below.fs, "golden", AREA as u64, area).unwrap();
        let before = below.bytes("golden");
        let fs = below.mount("copy");
        assert!(read_file(&*fs, "golden").unwrap() == content, "{codec}");
        let client = Client::new(&*fs);
        let ino = client.lookup(Ino::ROOT, "golden").unwrap().ino;
        let file = client.open(ino, OpenMode::empty()).unwrap();
        let size = content.len() as u64;
        assert_eq!(file.seek(45_000, SeekTo::Data).unwrap(), 45_000, "{codec}");
        assert_eq!(file.seek(0, SeekTo::Hole).unwrap(), size, "{codec}");
        file.close().unwrap();
        fs.shutdown().unwrap();
        assert!(below.bytes("golden") == before, "{codec}: reading has changed the stored file");
        write_at(&*below.mount(codec), "golden", content.len() as u64, b"next").unwrap();
        let expected = [&content[..], b"next"].concat();
        assert!(read_file(&*below.mount("copy"), "golden").unwrap() == expected, "{codec}: next");
    }
}

/// A request for attributes must not fail when another user closes the file.
#[test]
fn getattr_succeeds_while_another_user_opens_and_closes() {
    let below = Below::new();
    let fs = below.mount("copy");
    write_file(&*fs, "file", b"data");
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    std::thread::scope(|scope| {
        let opener = scope.spawn(|| {
            for _ in 0..20_000 {
                client.open(ino, OpenMode::READ_WRITE).unwrap().close().unwrap();
            }
        });
        while !opener.is_finished() {
            assert_eq!(client.attr(ino).unwrap().size, 4);
            client.chmod(ino, 0o600).unwrap();
        }
    });
}
