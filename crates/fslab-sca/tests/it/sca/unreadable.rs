//! Tests that operations which need no content work on files that can't be read, because of
//! permissions or damage.
//!
//! The daemon of an ordinary user has only the rights of this user. Faults simulate the missing
//! rights.

use fslab_vfs::{Errno, FileSystem, Ino, OpenMode};
use fslab_vfs_testing::client::Client;

use super::below::{Below, Failing, random, read_file, text, write_file};

const LAYER: &str = "gzip:chunk=4KiB";

/// The rule that simulates a missing read permission.
const NO_READING: &str = "getxattr|open on file error EACCES";

#[track_caller]
fn fails<T>(answer: fslab_vfs::Result<T>, errno: Errno) {
    assert_eq!(answer.err().map(|error| error.errno()), Some(errno));
}

/// Checks that all operations that do not read the file work.
#[track_caller]
fn is_only_unreadable(fs: &dyn FileSystem, stored_length: usize, errno: Errno) {
    let client = Client::new(fs);
    let attr = client.lookup(Ino::ROOT, "file").unwrap();
    assert_eq!((attr.size, attr.is_size_known), (stored_length as u64, false));
    let ino = attr.ino;
    fails(client.open(ino, OpenMode::empty()), errno);
    assert_eq!(client.chmod(ino, 0o600).unwrap().permissions.bits(), 0o600);
    assert!(!client.attr(ino).unwrap().is_size_known);
    client.link(ino, Ino::ROOT, "link").unwrap();
    client.unlink(Ino::ROOT, "link").unwrap();
    write_file(fs, "other", b"other");
    client.rename(Ino::ROOT, "file", Ino::ROOT, "renamed").unwrap();
    client.rename(Ino::ROOT, "renamed", Ino::ROOT, "file").unwrap();
    client.rename(Ino::ROOT, "other", Ino::ROOT, "file").unwrap();
    assert_eq!(client.names(Ino::ROOT).unwrap(), ["file"]);
}

#[test]
fn unreadable_files_can_be_renamed_and_removed() {
    for layer in [LAYER, "gzip:chunk=4KiB,size-xattr=off"] {
        let below = Below::new();
        let failing = Failing::over(&below, layer, "");
        write_file(&*failing.fs, "file", &text(9000));
        failing.by(NO_READING);
        is_only_unreadable(&*failing.fs, below.bytes("file").len(), Errno::ACCESS);
    }
}

#[test]
fn damaged_files_can_be_renamed_and_removed() {
    let below = Below::new();
    let fs = below.mount(LAYER);
    write_file(&*fs, "file", &text(9000));
    fs.shutdown().unwrap();
    below.replace("file", &random(1, 1500));
    is_only_unreadable(&*below.mount(LAYER), below.bytes("file").len(), Errno::IO);
}

/// Once a file is readable again, its size is known.
#[test]
fn size_is_known_once_a_file_is_readable_again() {
    let below = Below::new();
    let failing = Failing::over(&below, LAYER, "");
    write_file(&*failing.fs, "file", &text(9000));
    let client = Client::new(&*failing.fs);
    failing.by(NO_READING);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    failing.by("");
    let attr = client.chmod(ino, 0o644).unwrap();
    assert_eq!((attr.size, attr.is_size_known), (9000, true));
    assert!(read_file(&*failing.fs, "file") == Ok(text(9000)));
}

/// The creator of a file can read and write the open file, whatever its permissions.
#[test]
fn files_can_be_created_without_read_permission() {
    let below = Below::new();
    let failing = Failing::over(&below, LAYER, "");
    failing.by("getxattr|setxattr error EACCES");
    let client = Client::new(&*failing.fs);
    let flags = OpenMode::READ_WRITE;
    for (name, flags) in [("one", flags), ("two", flags | OpenMode::EXCLUSIVE)] {
        let (_, file) = client.create(Ino::ROOT, name, 0, flags).unwrap();
        file.write_all(0, &text(9000)).unwrap();
        assert!(file.read(0, 9000).unwrap() == text(9000));
        file.close().unwrap();
    }
    let (_, unnamed) = client.tmpfile(Ino::ROOT, 0, flags).unwrap();
    unnamed.write_all(0, &text(9000)).unwrap();
    unnamed.close().unwrap();
    failing.by("");
    assert!(read_file(&*failing.fs, "one") == Ok(text(9000)));
    let (attr, again) = client.create(Ino::ROOT, "one", 0, flags).unwrap();
    assert_eq!(attr.size, 9000, "a file that is there is opened");
    again.close().unwrap();
}

/// Permissions are checked only at open, so a writer continues after losing them.
#[test]
fn open_writer_continues_after_losing_write_permission() {
    let below = Below::new();
    let failing = Failing::over(&below, LAYER, "");
    write_file(&*failing.fs, "file", &text(5000));
    let client = Client::new(&*failing.fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    // Makes the layer write the size xattr, which the next write must invalidate.
    client.subject().flush(&client.request(), ino, file.handle).unwrap();
    client.chmod(ino, 0o444).unwrap();
    failing.by("setxattr error EACCES");
    file.write_all(5000, b"written on").unwrap();
    file.close().unwrap();
    let expected = [&text(5000)[..], b"written on"].concat();
    assert!(read_file(&*below.mount(LAYER), "file") == Ok(expected));
}

/// Like those of a stored file, permissions of a foreign file are checked only at open, even if the
/// file is changed or emptied.
#[test]
fn open_writer_of_a_foreign_file_continues_without_permission() {
    for (is_emptied, expected) in [(false, &b"written over"[..]), (true, b"written")] {
        let below = Below::new();
        write_file(&*below.fs, "file", b"not yet over");
        let failing = Failing::over(&below, LAYER, "");
        let client = Client::new(&*failing.fs);
        let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
        let flags = if is_emptied { OpenMode::TRUNCATE } else { OpenMode::empty() };
        let file = client.open(ino, OpenMode::READ_WRITE | flags).unwrap();
        client.chmod(ino, 0o444).unwrap();
        failing.by("setxattr error EACCES");
        file.write_all(0, b"written").unwrap();
        file.close().unwrap();
        assert_eq!(read_file(&*below.mount(LAYER), "file").unwrap(), expected);
    }
}

/// An emptied foreign file keeps its foreign mark until new data is written. A change of its mode
/// while only a reader has it open must not replace the mark.
#[test]
fn mode_of_an_emptied_foreign_file_can_be_changed_without_write_permission() {
    let below = Below::new();
    write_file(&*below.fs, "file", b"plain");
    let failing = Failing::over(&below, LAYER, "");
    let client = Client::new(&*failing.fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let writer = client.open(ino, OpenMode::READ_WRITE).unwrap();
    writer.write_all(0, b"Plain").unwrap();
    writer.truncate(0).unwrap();
    writer.close().unwrap();
    let reader = client.open(ino, OpenMode::empty()).unwrap();
    failing.by("setxattr error EACCES");
    assert_eq!(client.chmod(ino, 0o600).unwrap().permissions.bits(), 0o600);
    reader.close().unwrap();
}
