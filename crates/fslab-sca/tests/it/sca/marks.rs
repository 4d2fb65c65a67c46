//! Tests that the size xattrs (marks) of files are trusted only while they are true, whatever
//! changed the files.

use fslab_vfs::{Errno, Ino, OpenMode};
use fslab_vfs_testing::client::Client;

use super::below::{Below, Failing, random, read_file, rewrite_file, text, write_at, write_file};

const KEEPS: &str = "copy:chunk=4KiB";
const KEEPS_NOT: &str = "copy:chunk=4KiB,size-xattr=off";

/// The first xattr that a mount sets is that of the tree. An ordinary user who may write the files
/// but not the directory can't set it.
const NO_TREE: &str = "setxattr nth 1 error EACCES";

/// Makes a stored file of 1024 + (72 + 1000) + (72 + 100) bytes and a foreign one, both with marks.
fn marked() -> Below {
    let below = Below::new();
    write_file(&*below.fs, "foreign", &random(3, 5000));
    let fs = below.mount(KEEPS);
    write_file(&*fs, "stored", &text(1000));
    write_at(&*fs, "stored", 1000, &text(100)).unwrap();
    write_at(&*fs, "foreign", 0, b"changed").unwrap();
    fs.shutdown().unwrap();
    below
}

/// Rewrites both files and checks their marks. The stored file gets its earlier length again, so
/// that the next mount would trust a stale mark.
#[track_caller]
fn marks_stay_true(layer: &str, rules: &str) {
    let below = marked();
    let before = below.bytes("stored").len();
    let without = Failing::over(&below, layer, rules);
    rewrite_file(&*without.fs, "stored", &random(5, 1172)).unwrap();
    rewrite_file(&*without.fs, "foreign", &text(4000)).unwrap();
    without.fs.shutdown().unwrap();
    assert_eq!(below.bytes("stored").len(), before, "another length shows that a mark is stale");
    let fs = below.mount(KEEPS);
    assert!(read_file(&*fs, "stored") == Ok(random(5, 1172)));
    assert!(read_file(&*fs, "foreign") == Ok(text(4000)));
    write_at(&*fs, "foreign", 4000, b"more").unwrap();
    let expected = [&text(4000)[..], b"more"].concat();
    assert!(read_file(&*below.mount(KEEPS), "foreign") == Ok(expected));
}

#[test]
fn marks_stay_correct_after_a_mount_with_size_xattr_off() {
    marks_stay_true(KEEPS_NOT, "");
}

#[test]
fn marks_stay_correct_if_the_tree_cannot_be_marked() {
    marks_stay_true(KEEPS, NO_TREE);
}

/// If the write succeeded, a later mount would trust the mark of the earlier content.
#[test]
fn write_fails_if_the_mark_of_the_file_cannot_be_voided() {
    for layer in [KEEPS, KEEPS_NOT] {
        let below = marked();
        let failing = Failing::over(&below, layer, "");
        failing.by("setxattr error EACCES");
        let errno = |answer: fslab_vfs::Result<()>| answer.unwrap_err().errno();
        assert_eq!(errno(write_at(&*failing.fs, "stored", 0, b"x")), Errno::ACCESS);
        assert_eq!(errno(rewrite_file(&*failing.fs, "stored", b"x")), Errno::ACCESS);
        let fs = below.mount(KEEPS);
        assert!(read_file(&*fs, "stored") == Ok([text(1000), text(100)].concat()), "{layer}");
    }
}

/// A foreign file remains foreign after any write, whether or not sizes are kept in xattrs.
#[test]
fn foreign_files_are_marked_even_with_size_xattr_off() {
    let below = Below::new();
    write_file(&*below.fs, "foreign", &random(3, 5000));
    let fs = below.mount(KEEPS_NOT);
    write_file(&*fs, "stored", &text(5000));
    let looks_stored = below.bytes("stored");
    write_at(&*fs, "foreign", 0, &looks_stored).unwrap();
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "foreign").unwrap().ino;
    client.truncate(ino, looks_stored.len() as u64).unwrap();
    for layer in [KEEPS, KEEPS_NOT] {
        assert!(read_file(&*below.mount(layer), "foreign") == Ok(looks_stored.clone()), "{layer}");
    }
    let lower = Client::new(&*below.fs);
    let ino = lower.lookup(Ino::ROOT, "stored").unwrap().ino;
    let none = lower.getxattr(ino, "user.fslab.sca").unwrap_err().errno();
    assert_eq!(none, Errno::NODATA, "a size was kept");
}

/// If one file can't be closed cleanly at unmount, the next mount still trusts the marks of the
/// others.
#[test]
fn session_ends_properly_even_if_one_file_cannot_be_settled() {
    const NAMES: [&str; 4] = ["bad", "b", "c", "d"];
    let below = Below::new();
    // At unmount, the layer appends the seek table, and restores the modification time with
    // `setattr`.
    let failing = Failing::over(&below, "zstd:chunk=4KiB", "");
    let client = Client::new(&*failing.fs);
    let make = |name| client.create(Ino::ROOT, name, 0o644, OpenMode::READ_WRITE).unwrap().1;
    let files = NAMES.map(make);
    files.iter().for_each(|file| file.write_all(0, &text(5000)).unwrap());
    failing.by("setattr on bad error EIO");
    assert_eq!(failing.fs.shutdown().unwrap_err().errno(), Errno::IO);
    let lower = Client::new(&*below.fs);
    // The state that the mark of a file records. In the xattr of the tree, bytes 8 to 15 are the
    // last session, and bytes 24 to 31 the last one that ended properly.
    let state = |name: &&str| {
        let ino = lower.lookup(Ino::ROOT, name).unwrap().ino;
        lower.getxattr(ino, "user.fslab.sca").map_or(0, |mark| mark[2])
    };
    let tree = lower.getxattr(Ino::ROOT, "user.fslab.sca.tree").unwrap();
    assert_eq!(tree[8..16], tree[24..32]);
    assert_eq!(NAMES.each_ref().map(state), [0, 1, 1, 1]);
    failing.by("");
    files.into_iter().for_each(|file| file.close().unwrap());
}
