//! Checks new images with e2fsck.

use fslab_ext2::{Error, HashVersion, MkfsOptions, mkfs};
use fslab_vfs::MemoryDevice;

use crate::support::{Image, has, options};

#[test]
fn new_images_are_clean_at_every_size() {
    if !has("e2fsck") {
        return;
    }
    for block in [1024, 2048, 4096] {
        for (inode, mebibytes) in [(128, 1), (256, 7), (256, 65), (128, 300)] {
            let options = MkfsOptions { inode_size: inode, ..options(block) };
            let image = Image::new(mebibytes << 20, &options);
            image.check(&format!("{mebibytes} MiB, blocks of {block}, inodes of {inode}"));
        }
    }
}

#[test]
fn mkfs_options_are_stored_in_the_image() {
    if !has("e2fsck") {
        return;
    }
    let base = options(1024);
    for options in [
        MkfsOptions { index: None, ..base.clone() },
        MkfsOptions { index: Some(HashVersion::Tea), signed_hash: false, ..base.clone() },
        MkfsOptions { blocks_per_group: Some(256), bytes_per_inode: 65_536, ..base.clone() },
        MkfsOptions { label: b"0123456789abcdef".to_vec(), reserved_percent: 50, ..base.clone() },
        MkfsOptions { large_directories: true, bytes_per_inode: 1024, ..base },
    ] {
        let image = Image::new(20 << 20, &options);
        image.check(&format!("{options:?}"));
        let superblock = image.open().superblock();
        assert_eq!(superblock.label(), options.label);
        assert_eq!(superblock.hash_is_signed(), options.signed_hash);
        assert_eq!(superblock.raw().s_uuid, options.uuid);
    }
}

#[test]
fn equal_options_make_equal_bytes_and_sparse_images() {
    let bytes = || {
        let image = Image::new(64 << 20, &options(4096));
        let blocks = std::os::unix::fs::MetadataExt::blocks(&image.path().metadata().unwrap());
        assert!(blocks * 512 < 1 << 20, "{blocks} sectors for an empty image of 64 MiB");
        std::fs::read(image.path()).unwrap()
    };
    assert!(bytes() == bytes());
}

#[test]
fn invalid_mkfs_options_are_refused() {
    let base = options(4096);
    for (wrong, bytes) in [
        (MkfsOptions { inode_size: 100, ..base.clone() }, 64 << 20),
        (MkfsOptions { inode_size: 8192, ..base.clone() }, 64 << 20),
        (MkfsOptions { blocks_per_group: Some(100), ..base.clone() }, 64 << 20),
        (MkfsOptions { uuid: [0; 16], ..base.clone() }, 64 << 20),
        (MkfsOptions { label: vec![b'x'; 17], ..base.clone() }, 64 << 20),
        (MkfsOptions { simulation: false, ..options(8192) }, 64 << 20),
        (base.clone(), 0),
        (base.clone(), 8192),
        (base, 1 << 45),
    ] {
        let device = MemoryDevice::new(bytes);
        let answer = mkfs(&device, &wrong);
        assert!(matches!(answer, Err(Error::BadParameters(_))), "{wrong:?}: {answer:?}");
        assert_eq!(device.allocated(), 0, "{wrong:?}");
    }
}

/// 131,072 groups with 32,768 inodes each have one inode more than 32 bits can number.
#[test]
fn too_many_inodes_are_refused_before_any_write() {
    const BYTES: u64 = (1 << 44) - 4096;
    let too_many = MkfsOptions { bytes_per_inode: 4096, ..options(4096) };
    let device = MemoryDevice::new(BYTES);
    let answer = mkfs(&device, &too_many);
    assert!(matches!(answer, Err(Error::BadParameters(_))), "{answer:?}");
    let message = answer.unwrap_err().to_string();
    assert!(message.contains("too many inodes") && message.contains("-i"), "{message}");
    assert_eq!(device.allocated(), 0);
    assert!(too_many.check_for(BYTES).is_err());
    assert!(options(4096).check_for(BYTES).is_ok(), "one inode for 8 KiB");
}
