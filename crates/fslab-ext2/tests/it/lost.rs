//! Tests that repair attaches all files and directories without a name to lost+found.

use std::collections::BTreeMap;

use fslab_vfs::{FileSystem, Ino};
use fslab_vfs_testing::client::Client;

use crate::support::{Image, has_e2fsprogs, options};

/// Makes a directory with this many files, each containing its number, and one subdirectory.
fn fill(client: &Client<'_>, name: &str, files: u32) -> BTreeMap<String, Vec<u8>> {
    let directory = client.mkdir(Ino::ROOT, name).unwrap();
    let mut made = BTreeMap::new();
    for number in 0..files {
        let bytes = number.to_string().into_bytes();
        let ino = client.file(directory, format!("file{number}"), &bytes).unwrap();
        made.insert(format!("#{}", ino.0), bytes);
    }
    let inner = client.mkdir(directory, "inner").unwrap();
    client.file(inner, "file", b"within").unwrap();
    made.insert(format!("#{}", inner.0), Vec::new());
    made
}

/// Clears the inode of the directory `names`, repairs the image, and checks that all entries are in
/// lost+found.
#[track_caller]
fn assert_all_attached(image: &Image, made: &BTreeMap<String, Vec<u8>>) {
    image.debugfs(&["clri names"]);
    image.repair_whole();
    let ext2 = image.open();
    let client = Client::new(&ext2);
    let lost = client.lookup(Ino::ROOT, "lost+found").unwrap().ino;
    for (name, bytes) in made {
        let found = client.lookup(lost, name).unwrap_or_else(|error| panic!("{name}: {error}"));
        if bytes.is_empty() {
            let inner = client.lookup(found.ino, "file").unwrap().ino;
            assert_eq!(client.contents(inner).unwrap(), b"within");
        } else {
            assert_eq!(&client.contents(found.ino).unwrap(), bytes, "{name}");
        }
    }
    drop(client);
    ext2.shutdown().unwrap();
}

#[test]
fn all_files_of_a_cleared_directory_are_attached() {
    if !has_e2fsprogs() {
        return;
    }
    for block in [1024, 4096] {
        let made = fslab_ext2::MkfsOptions { bytes_per_inode: 2048, ..options(block) };
        let image = Image::new(24 << 20, &made);
        let ext2 = image.open();
        let made = fill(&Client::new(&ext2), "names", 3000);
        ext2.shutdown().unwrap();
        assert_all_attached(&image, &made);
        let ext2 = image.open();
        let client = Client::new(&ext2);
        let lost = client.lookup(Ino::ROOT, "lost+found").unwrap().ino;
        assert_eq!(client.list(lost).unwrap().len(), 3001);
    }
}

#[test]
fn names_already_in_lost_and_found_are_not_reused() {
    if !has_e2fsprogs() {
        return;
    }
    let image = Image::new(8 << 20, &options(1024));
    let ext2 = image.open();
    let client = Client::new(&ext2);
    let lost = client.lookup(Ino::ROOT, "lost+found").unwrap().ino;
    let taken = client.mkdir(Ino::ROOT, "names").unwrap();
    let ino = client.file(taken, "file", b"lost").unwrap();
    client.file(lost, format!("#{}", ino.0), b"in the way").unwrap();
    drop(client);
    ext2.shutdown().unwrap();
    image.debugfs(&["clri names"]);
    image.repair_whole();
    let ext2 = image.open();
    let client = Client::new(&ext2);
    let mut all: Vec<_> = client
        .list(lost)
        .unwrap()
        .into_iter()
        .map(|entry| client.contents(entry.ino).unwrap())
        .collect();
    all.sort();
    let names = client.names(lost).unwrap();
    let distinct: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(distinct.len(), 2, "{names:?}");
    assert_eq!(all, [b"in the way".to_vec(), b"lost".to_vec()]);
}

/// A lost+found that was removed and created again becomes indexed when it grows beyond one block.
#[test]
fn files_are_attached_to_an_indexed_lost_and_found() {
    if !has_e2fsprogs() {
        return;
    }
    let image = Image::new(24 << 20, &options(1024));
    let ext2 = image.open();
    let client = Client::new(&ext2);
    client.rmdir(Ino::ROOT, "lost+found").unwrap();
    let lost = client.mkdir(Ino::ROOT, "lost+found").unwrap();
    let name = |number: u32| format!("{number:0>60}");
    (0..400).for_each(|number| {
        client.file(lost, name(number), b"kept").unwrap();
    });
    assert!(ext2.index_of(lost, &mut |_| {}).unwrap(), "lost+found has an index");
    let made = fill(&client, "names", 500);
    drop(client);
    ext2.shutdown().unwrap();
    assert_all_attached(&image, &made);
    let ext2 = image.open();
    let client = Client::new(&ext2);
    assert_eq!(client.list(lost).unwrap().len(), 901);
    (0..400).for_each(|number| {
        client.lookup(lost, name(number)).unwrap();
    });
}

/// In one of the cases, the root directory has an index and all of its blocks are full.
#[test]
fn a_missing_lost_and_found_is_made() {
    if !has_e2fsprogs() {
        return;
    }
    for (block, in_root) in [(1024, 0), (1024, 300), (4096, 0)] {
        let image = Image::new(24 << 20, &options(block));
        let ext2 = image.open();
        let client = Client::new(&ext2);
        client.rmdir(Ino::ROOT, "lost+found").unwrap();
        for number in 0..in_root {
            client.file(Ino::ROOT, format!("{number:0>100}"), b"").unwrap();
        }
        assert_eq!(ext2.index_of(Ino::ROOT, &mut |_| {}).unwrap(), in_root > 0);
        let made = fill(&client, "names", 50);
        drop(client);
        ext2.shutdown().unwrap();
        assert_all_attached(&image, &made);
        let ext2 = image.open();
        let client = Client::new(&ext2);
        assert_eq!(client.list(Ino::ROOT).unwrap().len(), in_root + 1);
        let lost = client.lookup(Ino::ROOT, "lost+found").unwrap();
        assert_eq!(lost.permissions.bits(), 0o700);
    }
}
