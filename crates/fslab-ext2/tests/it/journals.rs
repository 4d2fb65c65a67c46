//! Tests images with unknown features: they are read if that is safe, and never changed.

use std::sync::Arc;

use fslab_ext2::check::{check, repair, shrink};
use fslab_ext2::{Error, Ext2, Tuning, VolumeOptions, grow, tune};
use fslab_vfs::{BlockDevice, Ino};
use fslab_vfs_testing::client::Client;

use crate::support::{Image, NOW, has_e2fsprogs};

/// Makes an image with mke2fs and writes a file `bytes` to its root.
fn with_file(size: u64, arguments: &[&str]) -> Image {
    let image = Image::of_mke2fs(size, arguments);
    let file = tempfile::NamedTempFile::new_in("/tmp").unwrap();
    std::fs::write(file.path(), [5; 70_000]).unwrap();
    image.debugfs(&[&format!("write {} bytes", file.path().display())]);
    image
}

/// Asserts that every operation that checks or changes an image fails, reports the feature, and
/// changes no byte.
#[track_caller]
fn assert_refused(image: &Image, feature: &str) {
    let before = std::fs::read(image.path()).unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(image.device());
    let tuning = Tuning { label: Some(b"label".to_vec()), ..Tuning::default() };
    let open = || Ext2::open(Arc::clone(&device), VolumeOptions::default()).map(drop);
    let answers = [
        ("check", check(Arc::clone(&device)).map(drop)),
        ("repair", repair(&device, NOW).map(drop)),
        ("tune", tune(&*device, &tuning)),
        ("grow", grow(&*device).map(drop)),
        ("shrink", shrink(&device, device.size() / 2).map(drop)),
        ("mount", open()),
    ];
    for (what, answer) in answers {
        let Err(error @ Error::UnknownFeatures { .. }) = answer else {
            panic!("{feature}: {what}: {answer:?}");
        };
        let message = error.to_string();
        assert!(message.contains(feature) && !message.contains('\n'), "{what}: {message}");
    }
    assert!(std::fs::read(image.path()).unwrap() == before, "{feature}: bytes changed");
}

/// Asserts that the image contains only the expected file, and that reading changes no byte.
#[track_caller]
fn assert_readable(image: &Image, feature: &str) {
    let before = std::fs::read(image.path()).unwrap();
    let ext2 = image.open_with(VolumeOptions { read_only: true, ..VolumeOptions::default() });
    let client = Client::new(&ext2);
    let mut names: Vec<_> =
        client.list(Ino::ROOT).unwrap().into_iter().map(|entry| entry.name).collect();
    names.sort();
    assert_eq!(names, ["bytes", "lost+found"], "{feature}");
    let file = client.lookup(Ino::ROOT, "bytes").unwrap().ino;
    assert!(client.contents(file).unwrap() == [5; 70_000], "{feature}");
    drop(client);
    fslab_vfs::FileSystem::shutdown(&ext2).unwrap();
    assert!(std::fs::read(image.path()).unwrap() == before, "{feature}: bytes changed");
}

#[test]
fn images_with_a_journal_are_read_and_never_changed() {
    if !has_e2fsprogs() {
        return;
    }
    let image = with_file(64 << 20, &["-t", "ext3"]);
    assert_refused(&image, "has_journal");
    assert_readable(&image, "has_journal");
    image.check("never changed");
    // The image also has a wrong link count; repair would correct the count if it were allowed to
    // change the image.
    image.debugfs(&["sif <2> links_count 9"]);
    assert_refused(&image, "has_journal");
    image.debugfs(&["sif <2> links_count 3", "feature needs_recovery"]);
    let device: Arc<dyn BlockDevice> = Arc::new(image.device());
    let read_only = VolumeOptions { read_only: true, ..VolumeOptions::default() };
    let message = Ext2::open(device, read_only).map(drop).unwrap_err().to_string();
    assert!(message.contains("needs_recovery") && message.contains("e2fsck"), "{message}");
}

#[test]
fn images_with_unknown_compat_features_are_read_and_never_changed() {
    if !has_e2fsprogs() {
        return;
    }
    for feature in ["sparse_super2", "stable_inodes"] {
        let image = with_file(
            40 << 20,
            &["-t", "ext2", "-b", "1024", "-O", &format!("^resize_inode,{feature}")],
        );
        assert_refused(&image, feature);
        assert_readable(&image, feature);
    }
    let image = with_file(8 << 20, &["-t", "ext2", "-b", "1024"]);
    image.debugfs(&["feature FEATURE_C30"]);
    assert_refused(&image, "FEATURE_C30");
}

/// The feature is only a hint to kernels; it does not affect the data on the device.
#[test]
fn dir_prealloc_feature_is_accepted() {
    if !has_e2fsprogs() {
        return;
    }
    let image = with_file(8 << 20, &["-t", "ext2", "-b", "1024"]);
    image.debugfs(&["feature dir_prealloc"]);
    assert!(image.report().findings.is_empty(), "{:?}", image.report().findings);
    fslab_vfs::FileSystem::shutdown(&image.open()).unwrap();
    image.check("opened for writing");
}

/// An inconsistency in plain ext2 may be valid with an unknown feature.
#[test]
fn unknown_features_are_named_rather_than_called_damage() {
    if !has_e2fsprogs() {
        return;
    }
    let image = Image::of_mke2fs(64 << 20, &["-t", "ext4", "-O", "bigalloc,^64bit,^flex_bg"]);
    image.debugfs(&["feature -extent"]);
    let device: Arc<dyn BlockDevice> = Arc::new(image.device());
    let read_only = VolumeOptions { read_only: true, ..VolumeOptions::default() };
    for answer in [check(Arc::clone(&device)).map(drop), Ext2::open(device, read_only).map(drop)] {
        let message = answer.unwrap_err().to_string();
        assert!(message.contains("bigalloc"), "{message}");
    }
}
