//! Tests the checker and its repair, and compares their verdicts with those of e2fsck.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use fslab_ext2::check::repair;
use fslab_ext2::{Group, MkfsOptions, VolumeOptions};
use fslab_vfs::{BlockDevice, FileSystem, Ino};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::environment::seed;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::support::{Image, NOW, add_every_kind, has, options};

/// Makes an image with files of all kinds.
fn furnished() -> Image {
    let options = MkfsOptions { bytes_per_inode: 4096, ..options(1024) };
    let image = Image::new(6 << 20, &options);
    let engine = image.open_with(VolumeOptions::default());
    let client = Client::new(&engine);
    let large = client.mkdir(Ino::ROOT, "large").unwrap();
    for number in 0..300 {
        client.file(large, format!("{number}-{}", "x".repeat(100)), b"").unwrap();
    }
    let deep = client.mkdir(large, "deep").unwrap();
    let file = client.file(deep, "file", &[7; 40_000]).unwrap();
    add_every_kind(&client, deep, file);
    engine.sync().unwrap();
    drop(client);
    drop(engine);
    image
}

#[test]
fn an_undamaged_image_is_clean() {
    let image = furnished();
    let report = image.report();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!((report.inodes, report.directories), (309, 4));
    if has("e2fsck") {
        let (clean, text) = image.e2fsck();
        assert!(clean, "{text}");
    }
}

/// Two files share a block, one pointer is invalid, and one refers to an inode table. Repair fixes
/// all these pointers without losing valid content.
#[test]
fn wrong_and_shared_pointers_are_repaired() {
    use std::os::unix::fs::FileExt;
    let image = Image::new(6 << 20, &options(1024));
    let engine = image.open();
    let client = Client::new(&engine);
    let bytes: Vec<u8> = (0..30_000_u32).map(|at| (at / 7) as u8).collect();
    let [one, other] = ["one", "other"].map(|name| client.file(Ino::ROOT, name, &bytes).unwrap());
    engine.sync().unwrap();
    let table = u64::from(engine.groups()[0].inode_table.0) * 1024;
    let map = |ino: Ino| table + (ino.0 - 1) * 256 + 40;
    drop(client);
    engine.shutdown().unwrap();
    drop(engine);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(image.path()).unwrap();
    let mut pointer = [0; 4];
    file.read_exact_at(&mut pointer, map(one)).unwrap();
    // Damage the block map of the other file. Pointer 0 refers to a block of the first file,
    // pointer 1 is invalid, pointer 2 refers to the inode table, and pointer 3 equals pointer 4.
    // The indirect block is that of the first file.
    let mut fourth = [0; 4];
    file.read_exact_at(&mut fourth, map(other) + 16).unwrap();
    let mut indirect = [0; 4];
    file.read_exact_at(&mut indirect, map(one) + 48).unwrap();
    let table_block = ((table / 1024) as u32).to_le_bytes();
    for (index, value) in
        [(0, pointer), (1, [0xff; 4]), (2, table_block), (3, fourth), (12, indirect)]
    {
        file.write_all_at(&value, map(other) + 4 * index).unwrap();
    }
    assert!(!image.report().is_clean());
    let repaired = image.repair();
    assert!(repaired.left.is_clean(), "{:?}", repaired.left.findings);
    if has("e2fsck") {
        let (clean, text) = image.e2fsck();
        assert!(clean, "{text}");
    }
    let engine = image.open();
    let client = Client::new(&engine);
    assert!(client.contents(one).unwrap() == bytes, "the first file is unchanged");
    let found = client.contents(other).unwrap();
    let mut expected = bytes.clone();
    expected[1024..2048].fill(0);
    expected[3072..4096].copy_from_slice(&bytes[4096..5120]);
    assert!(found[..2048] == expected[..2048] && found[3072..] == expected[3072..]);
    // After repair, writing to one file does not affect the other.
    for ino in [one, other] {
        let file = client.open(ino, fslab_vfs::OpenMode::READ_WRITE).unwrap();
        file.write_all(0, &vec![ino.0 as u8; 30_000]).unwrap();
    }
    assert!(client.contents(one).unwrap() == vec![one.0 as u8; 30_000]);
}

/// Returns a random offset in metadata that is likely to be in use.
fn metadata_bytes(groups: &[Group], random: &mut Pcg64) -> u64 {
    let group = &groups[random.random_range(0..groups.len())];
    let first = &groups[0];
    let block = 1024;
    match random.random_range(0..10) {
        // Damage only the superblock's counts of free blocks and inodes, because most other fields
        // determine the addresses of all other structures.
        0 => 1024 + random.random_range(12..20),
        1 => u64::from(group.block_bitmap.0) * block + random.random_range(0..block),
        2 => u64::from(group.inode_bitmap.0) * block + random.random_range(0..block),
        3 => 2048 + 32 * random.random_range(0..groups.len() as u64) + random.random_range(12..18),
        4 | 5 => u64::from(first.inode_table.0) * block + random.random_range(128 * 2..256 * 320),
        _ => {
            // Directories begin after the inode table of the first group.
            let data = u64::from(first.inode_table.0) + 1024 * 6 / 4 / 4;
            data * block + random.random_range(0..200 * block)
        }
    }
}

#[test]
fn random_damage_gets_the_verdict_of_e2fsck() {
    if !has("e2fsck") {
        return;
    }
    verdicts_agree(seed());
}

/// Seeds that found bugs:
///
/// - 4024: an unused reserved inode had a block count. Also, a pointer to an indirect block
///   referred to the inode table. Repair changed inodes as if they were pointers, and finally
///   overwrote the superblock.
/// - 4012: a reserved inode had names, which must be ignored.
/// - 4045: a reserved inode had a wrong size, which must be checked.
/// - 4032: repair gave a symbolic link a second block.
#[test]
fn seeds_of_earlier_disagreements_get_the_verdict_of_e2fsck() {
    if has("e2fsck") {
        [4024, 4012, 4032, 4045].into_iter().for_each(verdicts_agree);
    }
}

fn verdicts_agree(seed: u64) {
    let mut random = Pcg64::seed_from_u64(seed);
    let image = furnished();
    let whole = std::fs::read(image.path()).unwrap();
    let read_only = VolumeOptions { read_only: true, ..VolumeOptions::default() };
    let groups = image.open_with(read_only).groups();
    let (mut dirty, mut completed, mut wrong) = (0, 0, Vec::new());
    let rounds = std::env::var("FSLAB_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(150);
    for round in 0..rounds {
        let mut places = Vec::new();
        {
            let file = std::fs::OpenOptions::new().write(true).open(image.path()).unwrap();
            for _ in 0..random.random_range(1..3) {
                let at = metadata_bytes(&groups, &mut random);
                let byte: u8 = whole[at as usize] ^ 1 << random.random_range(0..8);
                file.write_all_at(&[byte], at).unwrap();
                places.push((at, byte));
            }
        }
        let (clean, text) = image.e2fsck();
        let report = image.report();
        dirty += u32::from(!clean);
        if clean != report.is_clean() {
            let found: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
            let text: String = text.lines().take(8).collect::<Vec<_>>().join("\n  ");
            wrong
                .push(format!("round {round}, bytes {places:?}: e2fsck: {text}\n ours: {found:?}"));
        }
        let device: Arc<dyn BlockDevice> = Arc::new(image.device());
        let repaired = repair(&device, NOW)
            .unwrap_or_else(|error| panic!("round {round}, bytes {places:?}: {error}"));
        if !clean && repaired.left.is_clean() {
            completed += 1;
            let (clean, text) = image.e2fsck();
            assert!(clean, "round {round}, bytes {places:?}: {:?}: {text}", repaired.mended);
        }
        std::fs::write(image.path(), &whole).unwrap();
    }
    println!("{dirty} of {rounds} damaged, {completed} of these repaired");
    assert!(completed > dirty / 3, "{completed} of {dirty} repaired");
    assert!(dirty > rounds / 4, "{dirty} of {rounds} damaged");
    assert!(wrong.is_empty(), "{} of {rounds}:\n{}", wrong.len(), wrong.join("\n\n"));
}
