//! Aged images: round trips, and errors for damaged files.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use fslab_age::image::{AgedImage, Identity, Packed, dump, is_aged_image, pack};

fn identity() -> Identity {
    let facts = [("data", "none"), ("source", "a test: with a colon")];
    let facts = facts.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    Identity { workload: "0123456789abcdef".repeat(4), facts }
}

/// Makes an image of `size` bytes with scattered data, and its packed form.
pub fn packed(scratch: &Path, size: u64) -> (PathBuf, PathBuf, Packed) {
    let [image, file] = ["image", "packed"].map(|name| scratch.join(name));
    let out = File::create(&image).unwrap();
    out.set_len(size).unwrap();
    let noise: Vec<u8> =
        (0..9000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for at in [0, 5000, size / 2, size.saturating_sub(9000)] {
        let length = noise.len().min(size.saturating_sub(at) as usize);
        out.write_all_at(&noise[..length], at).unwrap();
    }
    let told = pack(&image, &file, &identity()).unwrap();
    (image, file, told)
}

#[test]
fn packed_image_is_unpacked_sparse_and_by_zstd() {
    let scratch = tempfile::tempdir().unwrap();
    for size in [0, 1, 4 << 20, (64 << 20) + 12_345] {
        let (image, file, told) = packed(scratch.path(), size);
        assert_eq!(told.image_bytes, size);
        assert!(told.file_bytes < 60_000, "{told:?}");
        assert!(is_aged_image(&file).unwrap() && !is_aged_image(&image).unwrap());
        let opened = AgedImage::open(&file).unwrap();
        assert_eq!((opened.identity(), opened.image_bytes()), (&identity(), size));
        let shown = dump(&opened);
        assert!(shown.contains("source: a test: with a colon\n"), "{shown}");
        let back = scratch.path().join("back");
        fs::write(&back, "what was there before").unwrap();
        opened.unpack(&back, &File::options().write(true).open(&back).unwrap()).unwrap();
        assert!(fs::read(&back).unwrap() == fs::read(&image).unwrap(), "{size} bytes");
        assert!(size < 1 << 26 || back.metadata().unwrap().blocks() * 512 < 1 << 20);
        let by_zstd = Command::new("zstd").args(["-dcq"]).arg(&file).output();
        match by_zstd {
            Ok(output) => assert!(output.stdout == fs::read(&image).unwrap(), "{size} bytes"),
            Err(error) => {
                fslab_vfs_testing::skip::skip("fslab_age::images, zstd -d", &error.to_string());
            }
        }
    }
}

/// Version 1 stores the hash of the workload file's bytes instead of the workload's identity.
#[test]
fn images_of_version_1_are_read() {
    const HEADER: usize = 104;
    let scratch = tempfile::tempdir().unwrap();
    let (image, file, _) = packed(scratch.path(), 20_000);
    let mut bytes = fs::read(&file).unwrap();
    let facts = u32::from_le_bytes(bytes[96..100].try_into().unwrap()) as usize;
    let mut with_version = |version: u32| {
        bytes[16..20].copy_from_slice(&version.to_le_bytes());
        bytes[20..24].fill(0);
        let checksum = crc32c::crc32c(&bytes[..HEADER + facts]);
        bytes[20..24].copy_from_slice(&checksum.to_le_bytes());
        fs::write(&file, &bytes).unwrap();
        AgedImage::open(&file)
    };
    let opened = with_version(1).unwrap();
    assert_eq!(opened.identity(), &identity());
    let told = format!("bytes of the workload file: {}\n", identity().workload);
    assert!(dump(&opened).contains(&told), "{}", dump(&opened));
    let back = scratch.path().join("back");
    opened.unpack(&back, &File::create(&back).unwrap()).unwrap();
    assert!(fs::read(&back).unwrap() == fs::read(&image).unwrap());
    assert!(dump(&with_version(2).unwrap()).contains("\nworkload: "));
    for version in [0, 3] {
        let message = with_version(version).err().unwrap().to_string();
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

/// Damages each of the first 300 bytes and then every 37th byte, one at a time, and truncates the
/// file. The result is an error or the same image.
#[test]
fn damaged_image_files_are_detected() {
    let scratch = tempfile::tempdir().unwrap();
    let (image, file, _) = packed(scratch.path(), 20_000);
    let (good, expected) = (fs::read(&file).unwrap(), fs::read(&image).unwrap());
    let [damaged, back] = ["damaged", "back"].map(|name| scratch.path().join(name));
    let unpack = |bytes: &[u8]| {
        fs::write(&damaged, bytes).unwrap();
        AgedImage::open(&damaged)?.unpack(&back, &File::create(&back).unwrap())
    };
    unpack(&good).unwrap();
    let mut refused = 0;
    for place in (0..300).chain((300..good.len()).step_by(37)) {
        let mut bytes = good.clone();
        bytes[place] ^= 0x10;
        match unpack(&bytes) {
            Ok(()) => assert!(fs::read(&back).unwrap() == expected, "byte {place}"),
            Err(error) => {
                let message = error.to_string();
                assert!(message.contains("/damaged") && message.lines().count() == 1, "{message}");
                refused += 1;
            }
        }
    }
    assert!(refused > 300, "{refused}");
    for length in [0, 50, 150, good.len() - 1] {
        assert!(unpack(&good[..length]).is_err(), "cut to {length} bytes");
    }
    let twice = [good.as_slice(), &good].concat();
    assert!(unpack(&twice).is_err(), "more than the header says");
}

/// Complete frames from another image are detected, even though each has a valid checksum.
#[test]
fn frames_of_another_image_are_detected() {
    let scratch = tempfile::tempdir().unwrap();
    let [plain, one, two, mixed] =
        ["plain", "one", "two", "mixed"].map(|name| scratch.path().join(name));
    for (byte, packed) in [(1, &one), (2, &two)] {
        fs::write(&plain, [byte; 5000]).unwrap();
        pack(&plain, packed, &identity()).unwrap();
    }
    let (one, two) = (fs::read(&one).unwrap(), fs::read(&two).unwrap());
    let head = 8 + u32::from_le_bytes(one[4..8].try_into().unwrap()) as usize;
    fs::write(&mixed, [&one[..head], &two[head..]].concat()).unwrap();
    let answer = AgedImage::open(&mixed).unwrap().unpack(&plain, &File::create(&plain).unwrap());
    assert!(answer.unwrap_err().to_string().contains("damaged"));
}

#[test]
fn invalid_identities_are_refused_with_a_reason() {
    let scratch = tempfile::tempdir().unwrap();
    let (image, file, _) = packed(scratch.path(), 100);
    let refused = |identity: Identity, what: &str| {
        let message = pack(&image, &file, &identity).unwrap_err().to_string();
        assert!(message.contains(what), "{message}");
    };
    refused(Identity { workload: "short".to_owned(), ..identity() }, "'short' is not a hash");
    let with = |key: &str, value: &str| {
        let mut identity = identity();
        identity.facts.insert(key.to_owned(), value.to_owned());
        identity
    };
    refused(with("a: b", "c"), "must be on one line");
    refused(with("a", "b\nc: d"), "must be on one line");
    refused(with("a", &"b".repeat(70_000)), "64 KiB");
}
