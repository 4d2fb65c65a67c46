//! Versions that are restored as files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_tier::archive::Archive;
use fslab_tier::catalogue::{ObjectRow, ObjectState};
use fslab_tier::command::{Command, Event, execute};
use fslab_tier::own_request;
use fslab_vfs::{Attr, Errno, FileSystem, Handle, Ino, MemFs, OpenMode, Request, SetAttr};
use fslab_vfs_testing::client::Client;

use crate::bundles::{bundled, contents, expire, ino_of, replace, two_copies};
use crate::parts::rebuild_in;
use crate::support::Bench;

/// Returns the row of the version of a file in a certain state.
fn version(bench: &Bench, path: &str, state: ObjectState) -> ObjectRow {
    let mut found = Vec::new();
    let mut keep = |row: ObjectRow| {
        if row.path == path.as_bytes() && row.state == state {
            found.push(row);
        }
        Ok(())
    };
    bench.tier.catalogue().for_each(&mut keep).unwrap();
    assert_eq!(found.len(), 1, "{path}: {found:?}");
    found.remove(0)
}

/// Restores a version under a name; returns the events.
fn undelete(bench: &Bench, row: &ObjectRow, path: &str) -> Vec<Event> {
    let command = Command::Undelete { object: row.version.object, path: path.into() };
    let mut told = Vec::new();
    let mut tell = |event| {
        told.push(event);
        true
    };
    execute(&bench.tier, &command, &own_request(), &mut tell).unwrap();
    told
}

fn read(client: &Client<'_>, name: &str) -> Vec<u8> {
    client.contents(client.lookup(Ino::ROOT, name).unwrap().ino).unwrap()
}

/// An undeleted file is independent of the original file. This also holds in a rebuild from only
/// the archive, and after one object was moved.
#[test]
fn undeleted_file_has_an_identity_of_its_own() {
    let bench = Bench::new();
    bundled(&bench, 10);
    let client = bench.client();
    let file = client.open(ino_of(&bench, 9), OpenMode::READ_WRITE).unwrap();
    file.write_all(0, b"later").unwrap();
    file.close().unwrap();
    bench.archive(ino_of(&bench, 9), "file9").unwrap();
    let later = read(&client, "file9");
    let earlier = version(&bench, "file9", ObjectState::Replaced);
    undelete(&bench, &earlier, "again");
    bench.tier.archive_tree(&own_request()).unwrap();
    replace(&bench, 0..8);
    assert_eq!(expire(&bench).repacked, 1, "what was undeleted moves");
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    let report = rebuild_in(&bench, &lower);
    assert_eq!((report.lost.len(), report.problems.len()), (0, 0), "{report:?}");
    let fresh = Bench::over(lower);
    fresh.tier.attach(Arc::clone(&bench.archives[0]) as Arc<dyn Archive>);
    assert!(read(&fresh.client(), "again") == contents(9));
    assert!(read(&fresh.client(), "file9") == later);
}

#[test]
fn version_is_undeleted_from_the_intact_parts_of_its_copies() {
    let bench = two_copies();
    let client = bench.client();
    for name in ["one", "parts"] {
        let ino = client.file(Ino::ROOT, name, &contents(1)).unwrap();
        bench.archive(ino, name).unwrap();
        client.unlink(Ino::ROOT, name).unwrap();
    }
    let [one, parts] = ["one", "parts"].map(|name| version(&bench, name, ObjectState::Removed));
    let faults = bench.archives[0].faults();
    faults.reads_fail.store(true, Ordering::SeqCst);
    undelete(&bench, &one, "one");
    assert!(read(&client, "one") == contents(1));
    faults.reads_fail.store(false, Ordering::SeqCst);
    let at = parts.version.location;
    bench.archives[0].damage_at(at.container, at.offset + 20);
    bench.archives[1].damage_at(at.container, at.offset + at.length - 20);
    undelete(&bench, &parts, "parts");
    assert!(read(&client, "parts") == contents(1));
}

/// A tree in memory that counts its syncs. Owners can't be set in it, as for an ordinary user.
#[derive(Default)]
struct Ordinary {
    memory: MemFs,
    syncs: AtomicU64,
}

impl FileSystem for Ordinary {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.memory)
    }

    fn setattr(
        &self,
        request: &Request,
        ino: Ino,
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> fslab_vfs::Result<Attr> {
        if changes.uid.is_some() {
            return Err(Errno::PERM.into());
        }
        self.memory.setattr(request, ino, handle, changes)
    }

    fn syncfs(&self, request: &Request, ino: Ino) -> fslab_vfs::Result<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        self.memory.syncfs(request, ino)
    }
}

/// After a clean shutdown, the catalogue is trusted. So the shutdown must make the new name durable
/// first.
#[test]
fn undeleted_file_is_durable_after_shutdown() {
    let lower = Arc::new(Ordinary::default());
    let mut bench = Bench::over(lower.clone());
    bench.offline(&bench.client(), "file", &contents(1));
    bench.client().unlink(Ino::ROOT, "file").unwrap();
    // A newly started engine has not changed the tree yet.
    bench.restart();
    bench.tier.scan(&own_request()).unwrap();
    let row = version(&bench, "file", ObjectState::Removed);
    undelete(&bench, &row, "again");
    let before = lower.syncs.load(Ordering::SeqCst);
    bench.tier.shutdown().unwrap();
    assert_eq!(lower.syncs.load(Ordering::SeqCst) - before, 1);
}

/// The undelete fails to restore some attributes, but the file exists and refers to the object.
#[test]
fn failed_undelete_keeps_the_object() {
    let bench = Bench::over(Arc::new(Ordinary::default()));
    bench.offline(&bench.client(), "file", &contents(1));
    bench.client().unlink(Ino::ROOT, "file").unwrap();
    let row = version(&bench, "file", ObjectState::Removed);
    let told = undelete(&bench, &row, "again");
    let is_right = matches!(&told[..], [Event::Problem { .. }, Event::Done { .. }]);
    assert!(is_right, "{told:?}");
    assert_eq!(expire(&bench).objects, 0);
    assert!(read(&bench.client(), "again") == contents(1));
}

#[test]
fn emptied_directory_is_undeleted_in_its_last_state() {
    let bench = Bench::new();
    let client = bench.client();
    let directory = client.mkdir(Ino::ROOT, "directory").unwrap();
    let deep = client.mkdir(directory, "deep").unwrap();
    let beside = client.mkdir(Ino::ROOT, "directory2").unwrap();
    let put = |parent, path: &str, number| {
        let name = path.rsplit('/').next().unwrap();
        let ino = client.file(parent, name, &contents(number)).unwrap();
        bench.archive(ino, path).unwrap();
    };
    put(directory, "directory/twice", 1);
    client.unlink(directory, "twice").unwrap();
    put(directory, "directory/twice", 2);
    put(directory, "directory/stays", 3);
    put(deep, "directory/deep/file", 4);
    put(beside, "directory2/other", 5);
    for (parent, name) in [(directory, "twice"), (deep, "file"), (beside, "other")] {
        client.unlink(parent, name).unwrap();
    }
    client.rmdir(directory, "deep").unwrap();
    // A file whose name is in use is not restored.
    client.unlink(directory, "stays").unwrap();
    client.file(directory, "stays", b"something else").unwrap();
    let command = Command::UndeleteAll { path: b"directory".to_vec() };
    let told = || {
        let mut told = Vec::new();
        let mut tell = |event| {
            told.push(event);
            true
        };
        execute(&bench.tier, &command, &own_request(), &mut tell).unwrap();
        assert!(!told.iter().any(|event| matches!(event, Event::Problem { .. })), "{told:?}");
        told
    };
    assert_eq!(told().len(), 3, "two files, and their number");
    assert!(read_below(&client, directory, "twice") == contents(2));
    let deep = client.lookup(directory, "deep").unwrap().ino;
    assert!(read_below(&client, deep, "file") == contents(4));
    assert_eq!(client.attr(deep).unwrap().permissions.bits(), 0o700, "nobody knows who might look");
    assert_eq!(read_below(&client, directory, "stays"), b"something else");
    assert!(client.lookup(beside, "other").is_err());
    assert_eq!(told().len(), 1, "all of it is there");
    bench.dates.0.store(31 * 24 * 3600, Ordering::SeqCst);
    expire(&bench);
    assert!(read_below(&client, deep, "file") == contents(4), "it is needed again");
}

fn read_below(client: &Client<'_>, parent: Ino, name: &str) -> Vec<u8> {
    client.contents(client.lookup(parent, name).unwrap().ino).unwrap()
}
