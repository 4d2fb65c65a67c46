//! Tests tools for unmounted images: changing labels, resizing, and recovering deleted files.

use std::sync::Arc;

use fslab_ext2::check::shrink;
use fslab_ext2::{BlockSize, Ext2, MkfsOptions, Resized, Tuning, VolumeOptions, grow, mkfs, tune};
use fslab_vfs::{BlockDevice, Errno, FileSystem, Ino, MemoryDevice};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::crash::{CrashDevice, Plan};
use fslab_vfs_testing::environment::seed;

use crate::script::{Script, compare};
use crate::support::{Image, has, in_memory, options};

#[test]
fn label_and_uuid_are_changed_in_every_superblock_copy() {
    let image = Image::new(40 << 20, &options(1024));
    let tuning = Tuning {
        label: Some(b"new label".to_vec()),
        uuid: Some([7; 16]),
        reserved_percent: Some(10),
    };
    tune(&image.device(), &tuning).unwrap();
    let ext2 = image.open();
    let superblock = ext2.superblock();
    assert_eq!((superblock.label(), superblock.raw().s_uuid), (&b"new label"[..], [7; 16]));
    assert_eq!(superblock.reserved_blocks(), superblock.geometry().blocks / 10);
    // Read the first backup copy, at the start of group 1.
    let mut copy = [0; 1024];
    image.device().read_at(8193 * 1024, &mut copy).unwrap();
    assert_eq!((&copy[104..120], &copy[120..129]), (&[7; 16][..], &b"new label"[..]));
    if has("e2fsck") {
        image.check("tuned");
    }
    for wrong in [
        Tuning { label: Some(vec![b'x'; 17]), ..Tuning::default() },
        Tuning { uuid: Some([0; 16]), ..Tuning::default() },
        Tuning { reserved_percent: Some(51), ..Tuning::default() },
    ] {
        assert!(tune(&image.device(), &wrong).is_err(), "{wrong:?}");
    }
    assert_eq!(image.open().superblock().label(), b"new label");
}

/// Grows file systems whose old and new sizes are inside a group or at the end of one. Files are
/// unchanged, and the new space is usable.
#[test]
fn file_systems_grow_to_the_size_of_their_device() {
    let made = MkfsOptions { bytes_per_inode: 2048, ..options(1024) };
    for (from, to) in [(5 << 20, 6 << 20), (8 << 20, 30 << 20), (20 << 20, (40 << 20) + 3000)] {
        let image = Image::new(from, &made);
        let model = in_memory(64 << 20, &made);
        let mut script = Script::new(from ^ to);
        {
            let ext2 = image.open();
            script.run_small(&Client::new(&ext2), &Client::new(&model), 20);
            ext2.shutdown().unwrap();
        }
        let file = std::fs::OpenOptions::new().write(true).open(image.path()).unwrap();
        file.set_len(to).unwrap();
        // Old bytes in the new space must not be mistaken for inodes.
        let garbage = vec![0xee; (to - from) as usize];
        std::os::unix::fs::FileExt::write_all_at(&file, &garbage, from).unwrap();
        let grown = grow(&image.device()).unwrap();
        assert!(grown.to > grown.from && u64::from(grown.to) * 1024 > to - (1 << 20), "{grown:?}");
        assert_eq!(grow(&image.device()).unwrap(), Resized { from: grown.to, ..grown });
        if has("e2fsck") {
            image.check("grown");
        }
        let ext2 = image.open();
        {
            let (client, model) = (Client::new(&ext2), Client::new(&model));
            compare(&client, &model, "grown");
            script.run_small(&client, &model, 20);
            compare(&client, &model, "grown and changed");
            let large = vec![5; (to - from) as usize / 2];
            client.file(Ino::ROOT, "in the new space", &large).unwrap();
        }
        ext2.shutdown().unwrap();
        if has("e2fsck") {
            image.check("grown and filled");
        }
    }
}

#[test]
fn growth_that_needs_more_descriptor_blocks_is_refused() {
    let small = MkfsOptions { blocks_per_group: Some(256), ..options(1024) };
    let image = Image::new(4 << 20, &small);
    // One block has room for the descriptors of 32 groups of 256 KiB each.
    let file = std::fs::OpenOptions::new().write(true).open(image.path()).unwrap();
    file.set_len(16 << 20).unwrap();
    let before = std::fs::read(image.path()).unwrap();
    let message = grow(&image.device()).unwrap_err().to_string();
    assert!(message.contains("descriptor blocks are full"), "{message}");
    assert!(std::fs::read(image.path()).unwrap() == before);
    file.set_len(7 << 20).unwrap();
    assert_eq!(grow(&image.device()).unwrap().to, 7 << 10);
}

#[test]
fn deleted_files_are_found_until_their_blocks_are_used() {
    let device = std::sync::Arc::new(MemoryDevice::new(8 << 20));
    let made = MkfsOptions { block_size: BlockSize::MIN, ..options(1024) };
    fslab_ext2::mkfs(&*device, &made).unwrap();
    let ext2 = Ext2::open(device, VolumeOptions::default()).unwrap();
    let client = Client::new(&ext2);
    // Large enough to need two levels of indirect blocks.
    let bytes: Vec<u8> = (0..700_000_u32).map(|at| (at * 7 / 3) as u8).collect();
    for (name, length) in [("large", 700_000), ("small", 100), ("kept", 5000), ("empty", 0)] {
        client.file(Ino::ROOT, name, &bytes[..length]).unwrap();
    }
    ext2.sync().unwrap();
    assert_eq!(ext2.deleted().unwrap(), []);
    for name in ["large", "small", "empty"] {
        client.unlink(Ino::ROOT, name).unwrap();
    }
    // The client is dropped, because its references would keep removed files from being deleted.
    drop(client);
    ext2.sync().unwrap();
    let client = Client::new(&ext2);
    let found = ext2.deleted().unwrap();
    assert_eq!(found.iter().map(|one| one.size).collect::<Vec<_>>(), [700_000, 100]);
    assert!(found.iter().all(fslab_ext2::Deleted::is_whole), "{found:?}");
    let mut read = vec![0; 800_000];
    assert_eq!(ext2.read_deleted(found[0].inode, 0, &mut read).unwrap(), 700_000);
    assert!(read[..700_000] == bytes);
    let kept = client.lookup(Ino::ROOT, "kept").unwrap().ino;
    let kept = fslab_ext2::InodeNo(kept.0 as u32);
    let refused = ext2.read_deleted(kept, 0, &mut read).unwrap_err();
    assert!(matches!(&refused, fslab_ext2::Error::Vfs(error) if error.errno() == Errno::NOENT));
    // Other files use the space, and the inode of the small file.
    client.file(Ino::ROOT, "new", &vec![1; 6 << 20]).unwrap();
    let found = ext2.deleted().unwrap();
    assert!(found.iter().all(|one| !one.is_whole()), "{found:?}");
}

/// mke2fs reserves blocks for more descriptors. It records the addresses of these blocks and of
/// their copies in the resize inode.
#[test]
fn reserved_descriptor_blocks_allow_growth_up_to_a_new_backup() {
    if !has("e2fsck") || !has("mke2fs") {
        return;
    }
    let made = ["-t", "ext2", "-b", "1024", "-O", "resize_inode"];
    let image = Image::of_mke2fs(20 << 20, &made);
    let file = std::fs::OpenOptions::new().write(true).open(image.path()).unwrap();
    // Grow up to the start of group 3, which would need a copy.
    file.set_len(24 << 20).unwrap();
    assert!(grow(&image.device()).unwrap().to > 20 << 10);
    image.check("grown");
    file.set_len(40 << 20).unwrap();
    let message = grow(&image.device()).unwrap_err().to_string();
    assert!(message.contains("use resize2fs"), "{message}");
    let message = shrunk(&image, 10 << 20).unwrap_err().to_string();
    assert!(message.contains("use resize2fs"), "{message}");
    image.check("refused");
}

fn shrunk(image: &Image, bytes: u64) -> fslab_ext2::Result<Resized> {
    let device: Arc<dyn BlockDevice> = Arc::new(image.device());
    shrink(&device, bytes)
}

/// Many files fill the beginning of the volume and others follow; then most of the first files are
/// removed. Shrinking must therefore move inodes, directories, maps and data, including an indexed
/// directory.
#[test]
fn file_systems_shrink_and_keep_all_files() {
    for (block, groups) in [(1024, 1), (1024, 4), (2048, 2), (4096, 3)] {
        let per_group = 2048;
        let made = MkfsOptions {
            blocks_per_group: Some(per_group),
            bytes_per_inode: 2048,
            ..options(block)
        };
        let group = u64::from(block) * u64::from(per_group);
        let image = Image::new(group * 16, &made);
        let model = in_memory(256 << 20, &MkfsOptions { blocks_per_group: None, ..made.clone() });
        let mut script = Script::new(groups);
        {
            let ext2 = image.open();
            let (client, model) = (Client::new(&ext2), Client::new(&model));
            let front = vec![1; group as usize];
            (0..7).for_each(|number| {
                client.file(Ino::ROOT, format!("front {number}"), &front).unwrap();
            });
            script.run_small(&client, &model, 40);
            for client in [&client, &model] {
                let directory = client.mkdir(Ino::ROOT, "directory").unwrap();
                for number in 0..600 {
                    client.file(directory, format!("{number:0>60}"), &[number as u8]).unwrap();
                }
                let large = client.mkdir(directory, "sub").unwrap();
                let bytes: Vec<u8> = (0..group / 3).map(|at| (at % 251) as u8).collect();
                client.file(large, "large", &bytes).unwrap();
            }
            (0..7).for_each(|number| {
                client.unlink(Ino::ROOT, format!("front {number}")).unwrap();
            });
            drop(client);
            ext2.shutdown().unwrap();
        }
        let wanted = group * (4 + groups) + 5 * u64::from(block);
        let when = format!("{block}, to {wanted} bytes");
        let resized = shrunk(&image, wanted).unwrap();
        assert!(u64::from(resized.to) * u64::from(block) <= wanted, "{when}: {resized:?}");
        assert!(resized.to < resized.from, "{when}: {resized:?}");
        let file = std::fs::OpenOptions::new().write(true).open(image.path()).unwrap();
        file.set_len(wanted).unwrap();
        if has("e2fsck") {
            image.check(&when);
        }
        let ext2 = image.open();
        {
            let (client, model) = (Client::new(&ext2), Client::new(&model));
            compare(&client, &model, &when);
            script.run_small(&client, &model, 20);
            compare(&client, &model, &when);
        }
        ext2.shutdown().unwrap();
        if has("e2fsck") {
            image.check(&format!("{when}, and changed"));
        }
        // Grow the file system to its former size.
        file.set_len(group * 16).unwrap();
        let back = grow(&image.device()).unwrap();
        assert_eq!((back.from, back.to), (resized.to, resized.from), "{when}");
        if has("e2fsck") {
            image.check(&format!("{when}, and back"));
        }
    }
}

#[test]
fn refused_shrinking_changes_nothing() {
    let image = Image::new(16 << 20, &options(1024));
    let refuse = |bytes: u64, part: &str| {
        let before = std::fs::read(image.path()).unwrap();
        let message = shrunk(&image, bytes).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
        assert!(std::fs::read(image.path()).unwrap() == before, "{part}");
    };
    let ext2 = image.open();
    Client::new(&ext2).file(Ino::ROOT, "file", &vec![3; 6 << 20]).unwrap();
    ext2.shutdown().unwrap();
    refuse(3 << 20, "more blocks");
    refuse(100 << 10, "no room");
    // A file system with a wrong link count must be repaired first.
    let table = u64::from(image.open().groups()[0].inode_table.0) * 1024;
    image.device().write_at(table + 256 + 26, &[9]).unwrap();
    refuse(12 << 20, "repair it first");
}

/// After a power cut at any point, e2fsck restores all files.
#[test]
fn a_power_cut_while_shrinking_loses_no_file() {
    const BYTES: u64 = 8 << 20;
    if !has("e2fsck") {
        return;
    }
    let made = MkfsOptions { blocks_per_group: Some(1024), bytes_per_inode: 4096, ..options(1024) };
    let device = Arc::new(CrashDevice::new(BYTES, 1024).unwrap());
    mkfs(&*device, &made).unwrap();
    let bytes: Vec<u8> = (0..900_000_u32).map(|at| (at % 251) as u8).collect();
    {
        let ext2 = Ext2::open(device.clone(), VolumeOptions::default()).unwrap();
        let client = Client::new(&ext2);
        let front: Vec<String> = (0..5).map(|number| format!("front {number}")).collect();
        for name in &front {
            client.file(Ino::ROOT, name, &vec![1; 900_000]).unwrap();
        }
        let directory = client.mkdir(Ino::ROOT, "directory").unwrap();
        (0..700).for_each(|number| {
            client.file(directory, format!("{number:0>50}"), b"").unwrap();
        });
        client.file(directory, "large", &bytes).unwrap();
        front.iter().for_each(|name| client.unlink(Ino::ROOT, name).unwrap());
        drop(client);
        ext2.shutdown().unwrap();
    }
    let begin = device.position();
    let shared: Arc<dyn BlockDevice> = device.clone();
    let resized = shrink(&shared, 4 << 20).unwrap();
    assert!(resized.to <= 4096, "{resized:?}");
    let seed = seed();
    let plan = Plan { seed, subsets: 2, prefixes: 2 };
    let log = device.log();
    let flushes = log.points_before_flushes();
    let states = log
        .for_each_state(&plan, &|point| point > begin && flushes.contains(&point), &mut |state| {
            let (image, memory) = (Image::empty(BYTES), state.open().unwrap());
            let mut all = vec![0; BYTES as usize];
            memory.read_at(0, &mut all).unwrap();
            image.device().write_at(0, &all).unwrap();
            let output = std::process::Command::new("e2fsck")
                .args(["-fy".as_ref(), image.path().as_os_str()])
                .output()
                .unwrap();
            assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
            image.check("repaired by e2fsck");
            let ext2 = image.open();
            let client = Client::new(&ext2);
            let found = client.lookup(Ino::ROOT, "directory").unwrap().ino;
            assert_eq!(client.list(found).unwrap().len(), 701);
            let large = client.lookup(found, "large").unwrap().ino;
            assert!(client.contents(large).unwrap() == bytes);
            Ok(())
        })
        .unwrap_or_else(|problem: String| panic!("FSLAB_SEED={seed}: {problem}"));
    assert!(states > 10, "{states}");
}
