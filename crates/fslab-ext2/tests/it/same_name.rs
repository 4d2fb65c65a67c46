//! Tests a name that occurs twice in a directory, in different blocks.

use fslab_ext2::Flaw;
use fslab_ext2::MkfsOptions;
use fslab_ext2::check::Problem;
use fslab_vfs::{BlockDevice, FileSystem, Ino};
use fslab_vfs_testing::client::Client;

use crate::support::{Image, has_e2fsprogs, options};

const NAMES: u32 = 200;

fn name(number: u32) -> String {
    format!("name{number:04}-of-some-length")
}

/// Makes an image with a directory `names` of several blocks; `last` creates the last entry of the
/// directory, with the name `name(NAMES)`.
fn with_last(made: &MkfsOptions, last: impl Fn(&Client<'_>, Ino)) -> Image {
    let image = Image::new(8 << 20, made);
    let ext2 = image.open();
    let client = Client::new(&ext2);
    let directory = client.mkdir(Ino::ROOT, "names").unwrap();
    for number in 0..NAMES {
        client.file(directory, name(number), name(number).as_bytes()).unwrap();
    }
    last(&client, directory);
    drop(client);
    ext2.shutdown().unwrap();
    image
}

/// Changes the name of the last entry of `names` to that of the second entry.
fn rename_last(image: &Image) {
    let bytes = std::fs::read(image.path()).unwrap();
    let wanted = name(NAMES).into_bytes();
    // File content may also match the name, but only a directory record has the name's length two
    // bytes before it.
    let record = [&[wanted.len() as u8][..]].concat();
    let found: Vec<_> = (0..bytes.len() - wanted.len())
        .filter(|at| bytes[*at..].starts_with(&wanted) && bytes[at - 2] == record[0])
        .collect();
    assert_eq!(found.len(), 1);
    image.device().write_at(found[0] as u64, name(1).as_bytes()).unwrap();
}

fn linear() -> MkfsOptions {
    MkfsOptions { index: None, ..options(1024) }
}

#[track_caller]
fn find_and_repair(image: &Image) {
    rename_last(image);
    let report = image.report();
    let twice = report
        .findings
        .iter()
        .find(|finding| matches!(finding.problem, Problem::Entry { what: Flaw::NameTwice, .. }));
    let twice = twice.unwrap_or_else(|| panic!("not found: {:?}", report.findings));
    assert!(twice.beyond_e2fsck, "e2fsck looks at single blocks");
    let (clean, text) = image.e2fsck();
    assert_eq!(report.is_clean(), clean, "{text}");
    image.repair_whole();
}

/// Returns the contents of all files in lost+found.
fn lost(client: &Client<'_>) -> Vec<Vec<u8>> {
    let lost = client.lookup(Ino::ROOT, "lost+found").unwrap().ino;
    client
        .list(lost)
        .unwrap()
        .into_iter()
        .map(|entry| client.contents(entry.ino).unwrap())
        .collect()
}

#[test]
fn duplicate_name_of_two_files_is_found_and_both_are_kept() {
    if !has_e2fsprogs() {
        return;
    }
    let image = with_last(&linear(), |client, directory| {
        client.file(directory, name(NAMES), b"the other").unwrap();
    });
    find_and_repair(&image);
    let ext2 = image.open();
    let client = Client::new(&ext2);
    let directory = client.lookup(Ino::ROOT, "names").unwrap().ino;
    assert_eq!(client.list(directory).unwrap().len(), NAMES as usize);
    let first = client.lookup(directory, name(1)).unwrap().ino;
    assert_eq!(client.contents(first).unwrap(), name(1).as_bytes());
    assert_eq!(lost(&client), [b"the other"]);
}

#[test]
fn duplicate_name_of_one_file_is_removed() {
    if !has_e2fsprogs() {
        return;
    }
    let image = with_last(&linear(), |client, directory| {
        let first = client.lookup(directory, name(1)).unwrap().ino;
        client.link(first, directory, name(NAMES)).unwrap();
    });
    find_and_repair(&image);
    let ext2 = image.open();
    let client = Client::new(&ext2);
    let directory = client.lookup(Ino::ROOT, "names").unwrap().ino;
    let first = client.lookup(directory, name(1)).unwrap();
    assert_eq!((first.links, client.list(directory).unwrap().len()), (1, NAMES as usize));
    assert!(lost(&client).is_empty());
}

#[test]
fn directory_with_the_duplicate_name_of_a_file_is_kept() {
    if !has_e2fsprogs() {
        return;
    }
    let image = with_last(&linear(), |client, directory| {
        let inner = client.mkdir(directory, name(NAMES)).unwrap();
        client.file(inner, "file", b"within").unwrap();
    });
    find_and_repair(&image);
    let ext2 = image.open();
    let client = Client::new(&ext2);
    let lost = client.lookup(Ino::ROOT, "lost+found").unwrap().ino;
    let entries = client.list(lost).unwrap();
    assert_eq!(entries.len(), 1);
    let file = client.lookup(entries[0].ino, "file").unwrap().ino;
    assert_eq!(client.contents(file).unwrap(), b"within");
}

/// In an indexed directory, the name is also in a leaf that does not match its hash.
#[test]
fn duplicate_name_in_an_indexed_directory_keeps_both_files() {
    if !has_e2fsprogs() {
        return;
    }
    let image = with_last(&options(1024), |client, directory| {
        client.file(directory, name(NAMES), b"the other").unwrap();
    });
    find_and_repair(&image);
    let ext2 = image.open();
    assert_eq!(lost(&Client::new(&ext2)).len(), 1);
}
