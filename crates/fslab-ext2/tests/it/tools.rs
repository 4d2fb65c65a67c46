//! Tools for images that nobody uses: other labels, larger sizes, deleted files.

use fslab_ext2::{BlockSize, Ext2, MkfsOptions, Tuning, VolumeOptions, grow, tune};
use fslab_vfs::testing::client::Client;
use fslab_vfs::{BlockDevice, Errno, FileSystem, Ino, MemoryDevice};

use crate::script::{Script, compare};
use crate::support::{Image, has, in_memory, options};

#[test]
fn labels_and_identities_are_changed_in_every_copy() {
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
    // The first copy, behind group 0.
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

/// From and to sizes that end within groups and at their ends; files stay, and the new space works.
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
        // What lay there before must not be taken for inodes.
        let garbage = vec![0xee; (to - from) as usize];
        std::os::unix::fs::FileExt::write_all_at(&file, &garbage, from).unwrap();
        let grown = grow(&image.device()).unwrap();
        assert!(grown.to > grown.from && u64::from(grown.to) * 1024 > to - (1 << 20), "{grown:?}");
        assert_eq!(grow(&image.device()).unwrap(), fslab_ext2::Grown { from: grown.to, ..grown });
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
    // A block has the descriptors of 32 groups, of 256 KiB each.
    let file = std::fs::OpenOptions::new().write(true).open(image.path()).unwrap();
    file.set_len(16 << 20).unwrap();
    let before = std::fs::read(image.path()).unwrap();
    let message = grow(&image.device()).unwrap_err().to_string();
    assert!(message.contains("descriptors are full"), "{message}");
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
    // With two levels of indirect blocks.
    let bytes: Vec<u8> = (0..700_000_u32).map(|at| (at * 7 / 3) as u8).collect();
    for (name, length) in [("large", 700_000), ("small", 100), ("kept", 5000), ("empty", 0)] {
        client.file(Ino::ROOT, name, &bytes[..length]).unwrap();
    }
    ext2.sync().unwrap();
    assert_eq!(ext2.deleted().unwrap(), []);
    for name in ["large", "small", "empty"] {
        client.unlink(Ino::ROOT, name).unwrap();
    }
    // Until then, removed files are remembered.
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
    // Others take the space, and the inode of the small one.
    client.file(Ino::ROOT, "new", &vec![1; 6 << 20]).unwrap();
    let found = ext2.deleted().unwrap();
    assert!(found.iter().all(|one| !one.is_whole()), "{found:?}");
}
