//! Files and directories that are renamed during a scan.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_tier::catalogue::{ObjectRow, ObjectState};
use fslab_tier::{TierFs, own_request};
use fslab_vfs::{Entry, Errno, FileSystem, Handle, Ino, MemFs, Name, RenameMode, Request};
use fslab_vfs_testing::client::Client;
use parking_lot::Mutex;

use crate::support::{Bench, MIB, noise};

/// A function that is called whenever an inode is accessed.
type Habit = Box<dyn FnMut() + Send>;

/// A tree that calls a function whenever an inode is listed or an xattr of it is read. New names
/// can be made invisible for some lookups.
#[derive(Default)]
struct Restless {
    memory: MemFs,
    habit: Mutex<Option<(Ino, Habit)>>,
    /// The number of accesses to this inode.
    looks: AtomicU64,
    /// The number of lookups that fail after each rename.
    lost: AtomicU64,
    failing: AtomicU64,
}

impl Restless {
    fn bench() -> (Arc<Self>, Bench) {
        let lower = Arc::new(Self::default());
        let bench = Bench::over(lower.clone());
        (lower, bench)
    }

    fn whenever(&self, ino: Ino, habit: impl FnMut() + Send + 'static) {
        *self.habit.lock() = Some((ino, Box::new(habit)));
    }

    fn look(&self, ino: Ino) {
        let due = self.habit.lock().take_if(|(wanted, _)| *wanted == ino);
        if let Some((ino, mut habit)) = due {
            self.looks.fetch_add(1, Ordering::SeqCst);
            habit();
            *self.habit.lock() = Some((ino, habit));
        }
    }
}

impl FileSystem for Restless {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.memory)
    }

    fn lookup(&self, request: &Request, parent: Ino, name: Name<'_>) -> fslab_vfs::Result<Entry> {
        let less = |left: u64| left.checked_sub(1);
        match self.failing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
            Ok(_) => Err(Errno::IO.into()),
            Err(_) => self.memory.lookup(request, parent, name),
        }
    }

    fn rename(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        new_parent: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> fslab_vfs::Result<()> {
        self.failing.store(self.lost.load(Ordering::SeqCst), Ordering::SeqCst);
        self.memory.rename(request, parent, name, new_parent, new_name, mode)
    }

    fn opendir(&self, request: &Request, ino: Ino) -> fslab_vfs::Result<Handle> {
        self.look(ino);
        self.memory.opendir(request, ino)
    }

    fn getxattr(&self, request: &Request, ino: Ino, name: &OsStr) -> fslab_vfs::Result<Vec<u8>> {
        self.look(ino);
        self.memory.getxattr(request, ino, name)
    }
}

/// Renames a file or directory, and gives it its old name again.
fn rename_twice(fs: &TierFs, parent: Ino, name: &str) {
    let client = Client::new(fs);
    client.rename(parent, name, parent, "another").unwrap();
    client.rename(parent, "another", parent, name).unwrap();
}

#[test]
fn scan_ends_even_if_a_file_is_renamed_at_every_access() {
    let (lower, bench) = Restless::bench();
    let ino = bench.offline(&bench.client(), "file", &noise(95, MIB));
    let (fs, mut left) = (Arc::clone(&bench.fs), 1000);
    lower.whenever(ino, move || {
        if left > 0 {
            left -= 1;
            rename_twice(&fs, Ino::ROOT, "file");
        }
    });
    assert_eq!(bench.tier.scan(&own_request()).unwrap().unneeded, 0);
    *lower.habit.lock() = None;
    // The scan accesses the file during the walk, and once more after it.
    assert!(lower.looks.load(Ordering::SeqCst) < 10, "{:?}", lower.looks);
}

#[test]
fn repeatedly_renamed_directory_is_walked_only_once_more() {
    let (lower, bench) = Restless::bench();
    let client = bench.client();
    let outer = client.mkdir(Ino::ROOT, "outer").unwrap();
    let inner = client.mkdir(outer, "inner").unwrap();
    let innermost = client.mkdir(inner, "innermost").unwrap();
    client.file(innermost, "file", b"plain").unwrap();
    let (fs, mut left) = (Arc::clone(&bench.fs), 100);
    lower.whenever(innermost, move || {
        if left > 0 {
            left -= 1;
            rename_twice(&fs, Ino::ROOT, "outer");
            rename_twice(&fs, outer, "inner");
        }
    });
    assert_eq!(bench.tier.scan(&own_request()).unwrap().files, 2);
    *lower.habit.lock() = None;
    assert_eq!(lower.looks.load(Ordering::SeqCst), 2);
}

fn states(bench: &Bench) -> Vec<ObjectState> {
    let mut states = Vec::new();
    let mut keep = |row: ObjectRow| {
        states.push(row.state);
        Ok(())
    };
    bench.tier.catalogue().for_each(&mut keep).unwrap();
    states
}

/// A file moves from a directory not yet walked to one already walked.
#[test]
fn scan_fails_if_a_renamed_file_cannot_be_found() {
    let (lower, bench) = Restless::bench();
    let (client, data) = (bench.client(), noise(96, MIB));
    let mut places = ["last", "first"].map(|name| client.mkdir(Ino::ROOT, name).unwrap());
    let [last, _] = places;
    let ino = client.file(last, "file", &data).unwrap();
    bench.archive(ino, "last/file").unwrap();
    bench.release(ino, "last/file").unwrap();
    let fs = Arc::clone(&bench.fs);
    lower.whenever(last, move || {
        Client::new(&*fs).rename(places[0], "file", places[1], "file").unwrap();
        places.reverse();
    });
    // The lookups of the old and the new name fail.
    lower.lost.store(2, Ordering::SeqCst);
    let missed = bench.tier.scan(&own_request()).unwrap_err().to_string();
    assert!(missed.starts_with("not every file was seen"), "{missed}");
    assert_eq!(states(&bench), [ObjectState::Live]);
    bench.dates.0.store(31 * 24 * 3600, Ordering::SeqCst);
    assert!(bench.tier.expire(&own_request()).is_err(), "it is still in doubt");
    *lower.habit.lock() = None;
    assert_eq!(bench.tier.expire(&own_request()).unwrap().objects, 0);
    assert!(client.contents(ino).unwrap() == data);
}
