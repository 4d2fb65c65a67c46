//! Emptying a file where calls below fail: it is what it was or empty, and nothing in between.

use fslab_vfs::testing::client::Client;
use fslab_vfs::{Errno, Ino, OpenMode, WriteOptions};

use super::below::{Below, Failing, random, read_file, rewrite_file, text, write_at, write_file};

const LAYER: &str = "copy:chunk=4KiB";

#[track_caller]
fn fails<T>(answer: fslab_vfs::Result<T>) {
    assert_eq!(answer.err().map(|error| error.errno()), Some(Errno::IO));
}

/// What is appended to a file that is empty, though not durably, begins it anew. Until the disk
/// makes that durable, nothing is: neither an emptying nor a write is answered with success.
#[test]
fn a_file_is_empty_though_that_could_not_be_made_durable() {
    for failing_syncs in [1, 2] {
        let below = Below::new();
        let failing = Failing::over(&below, LAYER, "");
        write_file(&*failing.fs, "file", &text(5000));
        let client = Client::new(&*failing.fs);
        let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        failing.by(&format!("fsync times {failing_syncs} error EIO"));
        fails(file.truncate(0));
        let append = WriteOptions { append: true, ..WriteOptions::default() };
        if failing_syncs == 2 {
            fails(file.write_with(0, b"new", append));
        }
        assert_eq!((file.attr().unwrap().size, below.bytes("file").len()), (0, 0));
        assert_eq!(file.write_with(0, b"new", append).unwrap(), 3);
        file.close().unwrap();
        assert_eq!(read_file(&*below.mount(LAYER), "file"), Ok(b"new".to_vec()));
    }
}

#[test]
fn an_emptying_that_is_not_durable_can_be_tried_again() {
    let below = Below::new();
    let failing = Failing::over(&below, LAYER, "");
    write_file(&*failing.fs, "file", &text(5000));
    let client = Client::new(&*failing.fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    failing.by("fsync times 2 error EIO");
    fails(file.truncate(0));
    fails(file.truncate(0));
    assert_eq!(file.truncate(0).unwrap().size, 0);
    file.close().unwrap();
}

/// Whatever a foreign file begins with, it stays one if it is not emptied.
#[test]
fn a_foreign_file_that_can_not_be_emptied_stays_as_it_is() {
    for mut content in [random(3, 5000), vec![0; 5000]] {
        let below = Below::new();
        write_file(&*below.fs, "file", &content);
        let failing = Failing::over(&below, LAYER, "");
        write_at(&*failing.fs, "file", 4990, b"changed").unwrap();
        content[4990..4997].copy_from_slice(b"changed");
        failing.by("setattr on file error EIO");
        fails(rewrite_file(&*failing.fs, "file", &text(5000)));
        // A kill.
        assert!(read_file(&*below.mount(LAYER), "file") == Ok(content));
    }
}
