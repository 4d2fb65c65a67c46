//! The space that releasing small files frees.

use std::fs;
use std::os::unix::fs::MetadataExt;

use fslab_sys::make_file_system::Kind;

use crate::support::require_mounting;
use crate::tiering::{Tiered, noise};

const FILES: u64 = 500;
const FILE_BYTES: u64 = 4096;

/// Without room for the residency in the inode, each released file of one block would need another
/// block for its xattr.
#[test]
fn releasing_files_of_one_block_frees_their_blocks_on_ext4() {
    require_mounting!();
    let tiered = Tiered::mounted_over(Kind::Ext4);
    let used = || {
        // Blocks that are written late are not counted before a sync.
        rustix::fs::syncfs(fs::File::open(tiered.tree()).unwrap()).unwrap();
        let space = rustix::fs::statvfs(tiered.tree()).unwrap();
        (space.f_blocks - space.f_bfree) * space.f_frsize
    };
    let path = |number: u64| tiered.path(&number.to_string());
    for number in 0..FILES {
        fs::write(path(number), noise(number, FILE_BYTES as usize)).unwrap();
    }
    let before = used();
    tiered.of("archive", "");
    tiered.of("release", "");
    let freed = before.saturating_sub(used());
    assert!(freed * 100 >= FILES * FILE_BYTES * 95, "{freed} bytes were freed");
    let blocks =
        |number: u64| fs::metadata(tiered.tree().join(number.to_string())).unwrap().blocks();
    assert!((0..FILES).all(|number| blocks(number) == 0));
    // Archivers that skip holes must not treat the file as empty.
    assert!((0..FILES).all(|number| path(number).metadata().unwrap().blocks() > 0));
    for number in [0, FILES / 2, FILES - 1] {
        assert_eq!(fs::read(path(number)).unwrap(), noise(number, FILE_BYTES as usize));
    }
    tiered.umount();
    // A new catalogue has no facts about the objects.
    fs::remove_file(tiered.beside("home").join("catalogue.redb")).unwrap();
    let (code, said) = tiered.place().try_mount(&["-l", "tier"]);
    assert!(code == 0 && said.contains("is missing"), "{said}");
    for number in 0..FILES {
        assert_eq!(fs::read(path(number)).unwrap(), noise(number, FILE_BYTES as usize));
    }
    tiered.umount();
}
