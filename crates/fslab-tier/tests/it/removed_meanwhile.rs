//! Files that are removed, or changed under another name, while they are being archived. The
//! unfinished objects are removed.

use std::sync::atomic::Ordering;

use fslab_tier::catalogue::ObjectState;
use fslab_tier::{Found, WalkEntry, own_request};
use fslab_vfs::{Ino, OpenMode};

use crate::bundles::{contents, expire};
use crate::concurrency::rows;
use crate::support::{Bench, MIB, noise};

/// Adds a file to a bundle, calls a function, and finishes the bundle; returns the errors.
fn gathered(bench: &Bench, deed: impl FnOnce()) -> Vec<String> {
    let request = own_request();
    let mut archiver = bench.tier.archiver(&request, None, None);
    let found = Found::at(&bench.lower, b"file").unwrap();
    let mut problems = Vec::new();
    let mut told = |_: &[u8], outcome: fslab_tier::Result<_>| {
        problems.extend(outcome.err().map(|error| error.to_string()));
        Ok(())
    };
    archiver.archive(&WalkEntry { path: b"file", found: &found }, &mut told).unwrap();
    deed();
    archiver.finish(&mut told).unwrap();
    problems
}

#[test]
fn file_removed_while_waiting_for_its_bundle_leaves_no_object() {
    let bench = Bench::new();
    let client = bench.client();
    client.file(Ino::ROOT, "file", &contents(1)).unwrap();
    let problems = gathered(&bench, || client.unlink(Ino::ROOT, "file").unwrap());
    assert_eq!(problems, ["file: was removed while it was archived"]);
    assert_eq!((rows(&bench), bench.archives[0].containers()), (vec![], 0));
}

/// Removing the name marks the previous version as removed. The later version does not mark it as
/// replaced.
#[test]
fn version_archived_after_removal_keeps_the_previous_one_removed() {
    let bench = Bench::new();
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "file", &contents(1)).unwrap();
    bench.archive(ino, "file").unwrap();
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, b"later").unwrap();
    file.close().unwrap();
    gathered(&bench, || client.unlink(Ino::ROOT, "file").unwrap());
    let states: Vec<_> = rows(&bench).into_iter().map(|row| row.state).collect();
    assert_eq!((states, bench.archives[0].containers()), (vec![ObjectState::Removed], 1));
    assert_eq!((expire(&bench).objects, bench.archives[0].containers()), (1, 0));
}

/// The path under which the file was submitted no longer leads to the file.
#[test]
fn file_changed_and_renamed_during_archiving_leaves_no_object() {
    type Deed = fn(&Bench, Ino);
    let change = |bench: &Bench, ino| {
        let client = bench.client();
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        file.write_all(0, b"later").unwrap();
        file.close().unwrap();
    };
    let deeds: [(&str, Deed); 3] = [
        ("another name", |bench, _| {
            bench.client().rename(Ino::ROOT, "file", Ino::ROOT, "other").unwrap();
        }),
        ("another file in its place", |bench, _| {
            let client = bench.client();
            client.rename(Ino::ROOT, "file", Ino::ROOT, "other").unwrap();
            client.file(Ino::ROOT, "file", b"another").unwrap();
        }),
        ("no name, and somebody has it open", |bench, _| {
            bench.client().unlink(Ino::ROOT, "file").unwrap();
        }),
    ];
    for (what, deed) in deeds {
        let bench = Bench::new();
        let client = bench.client();
        let ino = client.file(Ino::ROOT, "file", &noise(98, MIB)).unwrap();
        let reader = client.open(ino, OpenMode::empty()).unwrap();
        let faults = bench.archives[0].faults();
        *faults.stalled.lock() = true;
        std::thread::scope(|scope| {
            let archiving = scope.spawn(|| bench.archive(ino, "file").map(drop));
            // The object is written, and about to be read back.
            while faults.blocked.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            change(&bench, ino);
            deed(&bench, ino);
            faults.resume();
            archiving.join().unwrap().unwrap_err();
        });
        reader.close().unwrap();
        assert_eq!((rows(&bench), bench.archives[0].containers()), (vec![], 0), "{what}");
    }
}
