//! Tests the results of repair and the use of repaired images.

use std::sync::Arc;

use fslab_ext2::check::{Problem, repair, shrink};
use fslab_ext2::{BlockNo, Error, InodeNo, grow};
use fslab_vfs::{BlockDevice, FileSystem, Ino, OpenMode};
use fslab_vfs_testing::client::Client;

use crate::support::{Image, NOW, has, has_e2fsprogs, options};

/// Offset of the superblock's state on the device.
const STATE: u64 = 1024 + 58;

/// Makes an image in the state after a crash, with two removed files that were open.
fn crashed() -> (Image, [InodeNo; 2]) {
    let image = Image::new(8 << 20, &options(1024));
    let ext2 = image.open();
    let client = Client::new(&ext2);
    let names = ["one", "other"];
    let inos = names.map(|name| client.file(Ino::ROOT, name, &[1; 30_000]).unwrap());
    let open = inos.map(|ino| client.open(ino, OpenMode::READ_WRITE).unwrap());
    names.iter().for_each(|name| client.unlink(Ino::ROOT, name).unwrap());
    ext2.sync().unwrap();
    let left = std::fs::read(image.path()).unwrap();
    open.into_iter().for_each(|file| file.close().unwrap());
    drop(client);
    ext2.shutdown().unwrap();
    std::fs::write(image.path(), left).unwrap();
    (image, inos.map(|ino| InodeNo(ino.0 as u32)))
}

#[test]
fn image_with_orphans_is_repaired_and_can_be_resized() {
    let (image, [_, other]) = crashed();
    // Also record errors, as the kernel does.
    image.device().write_at(STATE, &[2, 0]).unwrap();
    let found = image.report().findings;
    let of_state = [Problem::Orphans(other), Problem::NotInOrder];
    assert!(of_state.iter().all(|one| found.iter().any(|finding| finding.problem == *one)));
    assert!(!image.report().is_clean());
    let repaired = image.repair();
    assert!(repaired.left.findings.is_empty(), "{:?}", repaired.left.findings);
    let free = |image: &Image| image.open().superblock().raw().s_free_blocks_count.get();
    let new = Image::new(8 << 20, &options(1024));
    assert_eq!(free(&image), free(&new), "what the removed files had is free");
    let file = std::fs::OpenOptions::new().write(true).open(image.path()).unwrap();
    file.set_len(12 << 20).unwrap();
    assert_eq!(grow(&image.device()).unwrap().to, 12 << 10);
    let ext2 = image.open();
    Client::new(&ext2).file(Ino::ROOT, "new", b"bytes").unwrap();
    ext2.shutdown().unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(image.device());
    assert_eq!(shrink(&device, 8 << 20).unwrap().to, 8 << 10);
    assert!(image.report().findings.is_empty());
    if has("e2fsck") {
        image.check("repaired, grown and shrunk");
    }
}

/// The image has no problem other than the missing clean mark.
#[test]
fn repair_marks_an_undamaged_unclean_image_clean() {
    let image = Image::new(8 << 20, &options(1024));
    image.device().write_at(STATE, &[0, 0]).unwrap();
    let report = image.report();
    assert!(report.is_clean(), "e2fsck does not mind");
    assert_eq!(report.findings.len(), 1);
    assert!(grow(&image.device()).is_err());
    assert_eq!(image.repair().mended.len(), 1);
    assert!(grow(&image.device()).is_ok() && image.report().findings.is_empty());
}

/// The bad blocks are recorded in the same way as by `mke2fs -c`.
#[test]
fn bad_blocks_stay_allocated_in_check_repair_and_shrink() {
    if !has_e2fsprogs() {
        return;
    }
    let bad: Vec<u32> = [3000, 7000].into_iter().chain(3100..3130).collect();
    let list = tempfile::NamedTempFile::new_in("/tmp").unwrap();
    let lines: Vec<String> = bad.iter().map(u32::to_string).collect();
    std::fs::write(list.path(), lines.join("\n") + "\n").unwrap();
    let list = list.path().to_str().unwrap();
    let arguments = ["-t", "ext2", "-b", "1024", "-O", "^resize_inode", "-l", list];
    let image = Image::of_mke2fs(8 << 20, &arguments);
    assert!(image.report().findings.is_empty(), "{:?}", image.report().findings);
    // Wrong counts make repair rebuild the bitmaps.
    image.debugfs(&["set_bg 0 free_blocks_count 5", "setb 4001 1"]);
    image.repair_whole();
    let ext2 = image.open();
    for block in bad {
        assert!(!ext2.is_free(BlockNo(block)).unwrap(), "block {block}");
    }
    ext2.shutdown().unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(image.device());
    let message = shrink(&device, 6 << 20).unwrap_err().to_string();
    assert!(message.contains("bad blocks"), "{message}");
    assert!(shrink(&device, 7500 << 10).is_ok());
    image.check("shrunk to behind the last bad block");
    // Any other field that is set in the bad-blocks inode is reported as damage.
    image.debugfs(&["sif <1> uid 7"]);
    assert!(!image.report().is_clean() && !image.e2fsck().0);
}

#[test]
fn images_with_unknown_ro_compat_features_are_not_repaired() {
    if !has_e2fsprogs() {
        return;
    }
    let arguments = ["-t", "ext2", "-b", "1024", "-O", "uninit_bg,huge_file,dir_nlink"];
    let image = Image::of_mke2fs(40 << 20, &arguments);
    // Set a wrong link count, which repair would correct if it were allowed to.
    image.debugfs(&["sif <2> links_count 9"]);
    let before = std::fs::read(image.path()).unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(image.device());
    let refused = repair(&device, NOW).err();
    assert!(matches!(refused, Some(Error::UnknownFeatures(found)) if found.ro_compat != 0));
    assert!(std::fs::read(image.path()).unwrap() == before);
}
