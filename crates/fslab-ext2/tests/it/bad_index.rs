//! Tests directories with an unreadable index. As in the kernel, their names are found without the
//! index.

use std::collections::BTreeSet;

use fslab_ext2::VolumeOptions;
use fslab_vfs::{BlockDevice, FileSystem, Ino};
use fslab_vfs_testing::client::Client;

use crate::mounted::{Mounted, can_mount};
use crate::support::{Image, has_e2fsprogs, options};

const NAMES: u32 = 2000;

/// Offsets in the root of an index, with bytes that make the index unusable. They change the hash
/// function, the length of the root's fields, the levels, and the limit and count of the table.
const DAMAGE: [(&str, u64, &[u8]); 5] = [
    ("hash function", 28, &[9]),
    ("length of fields", 29, &[7]),
    ("levels", 30, &[3]),
    ("limit", 32, &[7, 0]),
    ("count", 34, &[0xff, 0xff]),
];

fn name(number: u32) -> String {
    format!("name{number:06}")
}

fn all_names() -> BTreeSet<String> {
    (0..NAMES).map(name).collect()
}

/// Makes an image with an indexed directory `names`.
fn indexed() -> Image {
    let image =
        Image::new(16 << 20, &fslab_ext2::MkfsOptions { bytes_per_inode: 4096, ..options(1024) });
    let ext2 = image.open();
    let client = Client::new(&ext2);
    let directory = client.mkdir(Ino::ROOT, "names").unwrap();
    (0..NAMES).for_each(|number| {
        client.file(directory, name(number), b"").unwrap();
    });
    assert!(ext2.index_of(directory, &mut |_| {}).unwrap());
    drop(client);
    ext2.shutdown().unwrap();
    image
}

/// Makes an image like [`indexed`], with bytes overwritten in the directory's first block.
fn damaged(offset: u64, bytes: &[u8]) -> Image {
    let image = indexed();
    let output = std::process::Command::new("debugfs")
        .args(["-R", "bmap names 0"])
        .arg(image.path())
        .output()
        .unwrap();
    let block: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    image.device().write_at(block * 1024 + offset, bytes).unwrap();
    image
}

fn listed(client: &Client<'_>) -> BTreeSet<String> {
    let directory = client.lookup(Ino::ROOT, "names").unwrap().ino;
    let names = client.names(directory).unwrap();
    let set: BTreeSet<_> = names.iter().cloned().collect();
    assert_eq!(set.len(), names.len(), "a name was listed twice");
    set
}

#[test]
fn names_are_listed_and_found_despite_a_bad_index_root() {
    if !has_e2fsprogs() {
        return;
    }
    for (what, offset, bytes) in DAMAGE {
        let image = damaged(offset, bytes);
        let before = std::fs::read(image.path()).unwrap();
        let ext2 = image.open_with(VolumeOptions { read_only: true, ..VolumeOptions::default() });
        let client = Client::new(&ext2);
        assert_eq!(listed(&client), all_names(), "{what}");
        let directory = client.lookup(Ino::ROOT, "names").unwrap().ino;
        for number in 0..NAMES {
            client.lookup(directory, name(number)).unwrap();
        }
        assert!(!client.exists(directory, "no such name").unwrap(), "{what}");
        drop(client);
        ext2.shutdown().unwrap();
        assert!(std::fs::read(image.path()).unwrap() == before, "{what}: bytes changed");
        // The check still reports the damage.
        assert!(!image.report().is_clean(), "{what}");
    }
}

#[test]
fn detected_index_damage_leaves_the_image_unclean() {
    if !has_e2fsprogs() {
        return;
    }
    let image = damaged(28, &[9]);
    let ext2 = image.open();
    let client = Client::new(&ext2);
    assert_eq!(listed(&client), all_names());
    client.file(Ino::ROOT, "elsewhere", b"").unwrap();
    drop(client);
    ext2.shutdown().unwrap();
    assert!(!image.open().superblock().is_clean());
    image.repair_whole();
}

/// As in the kernel, the first change drops the index, because the new names may overwrite index
/// blocks.
#[test]
fn changed_directory_with_a_bad_index_root_becomes_linear() {
    const TEST: &str = "changed_directory_with_a_bad_index_root_becomes_linear";
    if !has_e2fsprogs() {
        return;
    }
    for (what, offset, bytes) in DAMAGE {
        let image = damaged(offset, bytes);
        let ext2 = image.open();
        let client = Client::new(&ext2);
        let directory = client.lookup(Ino::ROOT, "names").unwrap().ino;
        let mut expected = all_names();
        for number in 0..300 {
            client.file(directory, format!("new{number}"), b"").unwrap();
            expected.insert(format!("new{number}"));
        }
        for number in (0..NAMES).step_by(3) {
            client.unlink(directory, name(number)).unwrap();
            expected.remove(&name(number));
        }
        client.rename(directory, &name(1), directory, "renamed").unwrap();
        expected.remove(&name(1));
        expected.insert("renamed".to_owned());
        assert_eq!(listed(&client), expected, "{what}");
        drop(client);
        ext2.shutdown().unwrap();
        image.check(what);
        assert!(image.report().is_clean(), "{what}: {:?}", image.report().findings);
        if can_mount(TEST) {
            let mounted = Mounted::with_kind(&image.path(), "ext4");
            for name in &expected {
                assert!(mounted.path().join("names").join(name).exists(), "{what}: {name}");
            }
            mounted.unmount();
        }
    }
}

#[test]
fn removing_a_name_beside_a_bad_index_root_keeps_the_others() {
    if !has_e2fsprogs() {
        return;
    }
    let image = damaged(28, &[9]);
    let ext2 = image.open();
    let client = Client::new(&ext2);
    let directory = client.lookup(Ino::ROOT, "names").unwrap().ino;
    client.unlink(directory, name(7)).unwrap();
    let mut expected = all_names();
    expected.remove(&name(7));
    assert_eq!(listed(&client), expected);
    drop(client);
    ext2.shutdown().unwrap();
    image.check("one name removed");
    let ext2 = image.open();
    assert_eq!(listed(&Client::new(&ext2)), expected);
}
