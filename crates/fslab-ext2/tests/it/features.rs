//! Tests the feature flags that are set when a feature is first used.

use std::sync::Arc;

use fslab_ext2::check::Problem;
use fslab_ext2::{BlockNo, Ext2, Feature, MkfsOptions, Superblock, VolumeOptions, mkfs};
use fslab_vfs::{BlockDevice, FileSystem, Ino, MemoryDevice};
use fslab_vfs_testing::client::Client;

use crate::support::{Image, has_e2fsprogs, options};

const LARGE: u64 = 3 << 30;
const VALUE: [u8; 400] = [7; 400];

/// Uses both features, in two files.
fn use_both(client: &Client<'_>) {
    let file = client.file(Ino::ROOT, "file", b"bytes").unwrap();
    client.setxattr(file, "user.block", &VALUE).unwrap();
    let large = client.file(Ino::ROOT, "large", b"").unwrap();
    client.truncate(large, LARGE).unwrap();
}

#[test]
fn ext_attr_and_large_file_features_are_set_on_first_use() {
    if !has_e2fsprogs() {
        return;
    }
    for arguments in [
        &["-t", "ext2", "-I", "128", "-O", "^ext_attr,^large_file"][..],
        &["-t", "ext2", "-I", "256", "-O", "none"],
        &["-t", "ext2", "-r", "0"],
    ] {
        let image = Image::of_mke2fs(8 << 20, arguments);
        let features = |superblock: &Superblock| {
            let raw = superblock.raw();
            (raw.s_feature_compat.get() & 8, raw.s_feature_ro_compat.get() & 2)
        };
        let ext2 = image.open();
        assert_eq!(features(&ext2.superblock()), (0, 0), "{arguments:?}");
        use_both(&Client::new(&ext2));
        ext2.shutdown().unwrap();
        image.check(&format!("{arguments:?}"));
        let ext2 = image.open();
        assert_eq!(features(&ext2.superblock()), (8, 2), "{arguments:?}");
        assert_eq!(ext2.superblock().raw().s_rev_level.get(), 1);
    }
}

/// The flags are also written first if an earlier sync has already removed the clean mark from the
/// superblock.
#[test]
fn feature_flags_are_on_the_device_before_their_first_use() {
    let device = Arc::new(MemoryDevice::new(8 << 20));
    mkfs(&*device, &MkfsOptions { inode_size: 128, ..options(1024) }).unwrap();
    let superblock = || Superblock::read(&*device).unwrap();
    let mut raw = superblock().raw().clone();
    (raw.s_feature_compat, raw.s_feature_ro_compat) = (0.into(), 1.into());
    device.write_at(1024, zerocopy::IntoBytes::as_bytes(&raw)).unwrap();
    let ext2 = Ext2::open(device.clone(), VolumeOptions::default()).unwrap();
    let client = Client::new(&ext2);
    // A removed file that is still referenced prevents marking the image clean.
    let removed = client.file(Ino::ROOT, "removed", b"bytes").unwrap();
    client.unlink(Ino::ROOT, "removed").unwrap();
    assert!(client.contents(removed).is_ok());
    ext2.sync().unwrap();
    assert!(!superblock().is_clean());
    use_both(&client);
    let raw = superblock().raw().clone();
    assert_eq!((raw.s_feature_compat.get(), raw.s_feature_ro_compat.get()), (8, 3));
    assert!(!superblock().is_clean());
    drop(client);
    ext2.shutdown().unwrap();
    assert!(superblock().is_clean());
}

#[test]
fn missing_feature_flags_are_found_and_repaired() {
    if !has_e2fsprogs() {
        return;
    }
    for (feature, name) in [(Feature::ExtAttr, "ext_attr"), (Feature::LargeFile, "large_file")] {
        let image = Image::new(8 << 20, &options(1024));
        let ext2 = image.open();
        use_both(&Client::new(&ext2));
        ext2.shutdown().unwrap();
        image.debugfs(&[&format!("feature -{name}")]);
        let (clean, text) = image.e2fsck();
        assert!(!clean, "{name}: {text}");
        let report = image.report();
        assert!(!report.is_clean(), "{name}");
        let problems: Vec<_> = report.findings.iter().map(|one| one.problem).collect();
        assert_eq!(problems, [Problem::UnnamedFeature(feature)]);
        let repaired = image.repair();
        assert!(repaired.left.findings.is_empty(), "{:?}", repaired.left.findings);
        image.check(name);
        let ext2 = image.open();
        let client = Client::new(&ext2);
        let file = client.lookup(Ino::ROOT, "file").unwrap().ino;
        assert_eq!(client.getxattr(file, "user.block").unwrap(), VALUE);
    }
}

/// After damage, the pointer to an attribute block refers to another file's block. The word that is
/// read as a count is then large, zero, or a valid count in a header with an unsupported number of
/// blocks.
#[test]
fn deleting_an_inode_keeps_a_block_that_it_wrongly_claims() {
    let (magic, count, blocks) = (0xea02_0000_u32, 1_u32, 2_u32);
    let unknown = [magic, count, blocks].map(u32::to_le_bytes).concat();
    for start in [[5; 12].to_vec(), [0; 12].to_vec(), unknown] {
        let image = Image::new(8 << 20, &options(1024));
        let ext2 = image.open();
        let client = Client::new(&ext2);
        let bytes = [start.clone(), vec![9; 1012]].concat();
        let owner = client.file(Ino::ROOT, "owner", &bytes).unwrap();
        let damaged = client.file(Ino::ROOT, "damaged", b"").unwrap();
        let offset = ext2.layout().unwrap().extents(owner).unwrap()[0].physical;
        let block = BlockNo((offset / 1024) as u32);
        drop(client);
        ext2.shutdown().unwrap();
        image.set_in_inode(damaged, 104, &block.0.to_le_bytes());
        let ext2 = image.open();
        Client::new(&ext2).unlink(Ino::ROOT, "damaged").unwrap();
        ext2.shutdown().unwrap();
        let ext2 = image.open();
        let client = Client::new(&ext2);
        assert!(!ext2.is_free(block).unwrap(), "{start:?}");
        assert!(client.contents(owner).unwrap() == bytes, "{start:?}");
        assert!(!ext2.superblock().is_clean(), "damage was seen");
        assert!(image.report().is_clean(), "{:?}", image.report().findings);
    }
}
