//! Tests of emptying a file while lower calls fail: afterwards it has its old content or is empty.

use fslab_vfs::{Errno, Ino, OpenMode};
use fslab_vfs_testing::client::Client;

use super::below::{Below, Failing, random, read_file, rewrite_file, text, write_at, write_file};

const LAYER: &str = "copy:chunk=4KiB";

#[track_caller]
fn fails<T>(answer: fslab_vfs::Result<T>) {
    assert_eq!(answer.err().map(|error| error.errno()), Some(Errno::IO));
}

/// Emptying a file must succeed even if reads and syncs fail. `power_cuts::rewriting` tests the
/// state after a crash.
#[test]
fn truncating_to_zero_neither_reads_nor_syncs() {
    let below = Below::new();
    let failing = Failing::over(&below, LAYER, "");
    write_file(&*failing.fs, "file", &text(5000));
    failing.by("read error EIO\nfsync error EIO");
    rewrite_file(&*failing.fs, "file", b"new").unwrap();
    failing.by("");
    assert_eq!(read_file(&*failing.fs, "file"), Ok(b"new".to_vec()));
    assert_eq!(read_file(&*below.mount(LAYER), "file"), Ok(b"new".to_vec()));
}

/// A kernel without ATOMIC_O_TRUNC opens a file first and then empties it.
#[test]
fn emptying_an_open_file_reads_and_syncs_nothing() {
    let below = Below::new();
    let failing = Failing::over(&below, LAYER, "");
    write_file(&*failing.fs, "file", &text(5000));
    let client = Client::new(&*failing.fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    failing.by("read error EIO\nfsync error EIO");
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.truncate(0).unwrap();
    file.write_all(0, b"new").unwrap();
    file.close().unwrap();
    failing.by("");
    assert_eq!(read_file(&*below.mount(LAYER), "file"), Ok(b"new".to_vec()));
}

/// The foreign mark must be replaced durably before new data is written. Here, that sync fails.
#[test]
fn emptied_foreign_file_stays_empty_if_its_mark_cannot_be_voided() {
    let below = Below::new();
    write_file(&*below.fs, "file", &text(5000));
    let failing = Failing::over(&below, LAYER, "");
    write_at(&*failing.fs, "file", 4990, b"changed").unwrap();
    let client = Client::new(&*failing.fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.truncate(0).unwrap();
    failing.by("fsync error EIO");
    fails(file.write_all(0, b"new"));
    assert!(below.bytes("file").is_empty());
    failing.by("");
    file.write_all(0, b"new").unwrap();
    file.close().unwrap();
    assert_eq!(read_file(&*below.mount(LAYER), "file"), Ok(b"new".to_vec()));
}

/// A foreign file remains foreign if it can't be emptied, whatever it begins with.
#[test]
fn foreign_file_stays_unchanged_if_truncating_it_fails() {
    for mut content in [random(3, 5000), vec![0; 5000]] {
        let below = Below::new();
        write_file(&*below.fs, "file", &content);
        let failing = Failing::over(&below, LAYER, "");
        write_at(&*failing.fs, "file", 4990, b"changed").unwrap();
        content[4990..4997].copy_from_slice(b"changed");
        failing.by("setattr on file error EIO");
        fails(rewrite_file(&*failing.fs, "file", &text(5000)));
        // A new mount, as after a kill of the daemon, also finds the unchanged file.
        assert!(read_file(&*below.mount(LAYER), "file") == Ok(content));
    }
}
