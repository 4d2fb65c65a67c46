//! Tests access to inodes by number only, as with file handles.

use fslab_ext2::{Ext2, MkfsOptions};
use fslab_vfs::{Entry, Errno, FileSystem, Ino, Name, Result};
use fslab_vfs_testing::client::Client;

use crate::support::{Image, in_memory, options};

const BYTES: u64 = 8 << 20;

/// Offsets of `i_mode` and `i_links_count` in an inode.
const MODE: u64 = 0;
const LINKS: u64 = 26;

#[track_caller]
fn looked_up(ext2: &Ext2, parent: Ino, name: &str) -> Entry {
    let request = Client::new(ext2).request();
    let entry = ext2.lookup(&request, parent, Name::new(name.as_ref()).unwrap()).unwrap();
    ext2.forget(entry.attr.ino, 1);
    entry
}

fn resolved(ext2: &Ext2, ino: Ino) -> Result<Entry> {
    let found = ext2.resolve(&Client::new(ext2).request(), ino);
    found.iter().for_each(|entry| ext2.forget(entry.attr.ino, 1));
    found
}

#[track_caller]
fn is_stale(answer: Result<Entry>) {
    assert_eq!(answer.map_err(|error| error.errno()), Err(Errno::STALE));
}

#[test]
fn inode_numbers_resolve_to_files() {
    let ext2 = in_memory(BYTES, &options(1024));
    let client = Client::new(&ext2);
    let directory = client.mkdir(Ino::ROOT, "directory").unwrap();
    client.file(directory, "file", b"bytes").unwrap();
    client.symlink(directory, "link", "target").unwrap();
    drop(client);
    assert!(ext2.can_resolve());
    for name in ["file", "link"] {
        let known = looked_up(&ext2, directory, name);
        assert_eq!(ext2.uses(), (0, 0));
        assert_eq!(resolved(&ext2, known.attr.ino).unwrap(), known);
        assert_eq!(ext2.uses(), (0, 0));
    }
    let request = Client::new(&ext2).request();
    let root = ext2.parent_of(&request, directory).unwrap();
    assert_eq!((root.attr.ino, root.generation), (Ino::ROOT, 0));
    is_stale(ext2.parent_of(&request, Ino::ROOT));
    let file = looked_up(&ext2, directory, "file").attr.ino;
    assert_eq!(ext2.parent_of(&request, file).unwrap_err().errno(), Errno::NOTDIR);
}

#[test]
fn inode_numbers_without_a_file_are_stale() {
    let image = Image::new(BYTES, &options(1024));
    // Make two inodes look like files: the journal's inode, and an old inode in a table that was
    // not cleared.
    for number in [8, 1000] {
        image.set_in_inode(Ino(number), MODE, &0o100_600_u16.to_le_bytes());
        image.set_in_inode(Ino(number), LINKS, &1_u16.to_le_bytes());
    }
    let ext2 = image.open();
    let client = Client::new(&ext2);
    let file = client.file(Ino::ROOT, "file", b"bytes").unwrap();
    let last = u64::from(ext2.superblock().geometry().inodes());
    // Test reserved inodes, free inodes, and numbers past the last inode.
    for number in (2..11).chain([1000, file.0 + 1, last, last + 1, 1 << 32 | file.0, u64::MAX]) {
        is_stale(resolved(&ext2, Ino(number)));
    }
    assert!(resolved(&ext2, Ino(11)).is_ok(), "lost+found");
    // A file without a name can't be resolved, even while it is in use.
    let opened = client.open(file, fslab_vfs::OpenMode::empty()).unwrap();
    client.unlink(Ino::ROOT, "file").unwrap();
    is_stale(resolved(&ext2, file));
    opened.close().unwrap();
    client.forget(file);
    is_stale(resolved(&ext2, file));
    drop(client);
    ext2.shutdown().unwrap();
    drop(ext2);
    assert!(image.open().superblock().is_clean(), "none of it is damage");
}

#[test]
fn generations_distinguish_reused_inodes_and_other_images() {
    let made = |options: &MkfsOptions| {
        let ext2 = in_memory(BYTES, options);
        Client::new(&ext2).file(Ino::ROOT, "file", b"bytes").unwrap();
        ext2
    };
    let ext2 = made(&options(1024));
    let first = looked_up(&ext2, Ino::ROOT, "file");
    let client = Client::new(&ext2);
    client.unlink(Ino::ROOT, "file").unwrap();
    ext2.sync().unwrap();
    client.file(Ino::ROOT, "later", b"bytes").unwrap();
    let later = looked_up(&ext2, Ino::ROOT, "later");
    assert_eq!(first.attr.ino, later.attr.ino);
    assert_ne!(first.generation, resolved(&ext2, first.attr.ino).unwrap().generation);

    let other = made(&MkfsOptions { uuid: *b"another-of-these", ..options(1024) });
    let other = looked_up(&other, Ino::ROOT, "file");
    assert_eq!(first.attr.ino, other.attr.ino);
    assert_ne!(first.generation, other.generation);
}
