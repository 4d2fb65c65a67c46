//! Lets each write, discard and flush of the device fail in turn. Either only this call fails, or
//! all later calls fail too, or the engine ends at this call, as if it were killed.
//!
//! If the engine continues, all acknowledged changes are visible. Once the device works again, a
//! sync makes them durable. If the engine ends, the image can be repaired, and synced files still
//! exist.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fslab_ext2::check::{Problem, check, repair};
use fslab_ext2::{Ext2, VolumeOptions, mkfs};
use fslab_vfs::{BlockDevice, Errno, FileSystem, Ino, MemoryDevice, OpenMode, Result};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::crash::failing::{self, Fails, Failure, Then};
use fslab_vfs_testing::crash::history::are_bytes_of;
use fslab_vfs_testing::crash::overtaking::Verdict;

use crate::support::{Access, Fault, FaultyDevice, NOW, Watch, Watched, options};

const BYTES: u64 = 1 << 20;
const BLOCK: usize = 1024;

impl Watch for Fails {
    fn see(&self, access: Access<'_>) -> Result<Verdict> {
        match access {
            Access::DataRead => Ok(Verdict::Do),
            Access::Write { is_metadata: true, .. } => self.decide("write of metadata"),
            Access::Write { is_metadata: false, .. } => self.decide("write of data"),
            Access::Discard { .. } => self.decide("discard"),
            Access::Flush => self.decide("flush"),
        }
    }
}

type Device = Watched<Fails>;

/// An operation of the script. Paths have one directory and a name.
#[derive(Debug)]
enum Step {
    Create(&'static str),
    /// Path, offset, number of bytes and their value.
    Write(&'static str, u64, usize, u8),
    Truncate(&'static str, u64),
    Rename(&'static str, &'static str),
    Link(&'static str, &'static str),
    Unlink(&'static str),
    /// Creates many names, which need more directory blocks.
    Fill(&'static str),
    Fsync(&'static str),
    SyncAll,
}

/// The steps use direct, indirect and doubly indirect blocks, grow directories and reuse freed
/// blocks. They move names between directories and replace files. Some steps sync a file or
/// everything.
fn script() -> Vec<Step> {
    use Step::{Create, Fill, Fsync, Link, Rename, SyncAll, Truncate, Unlink, Write};
    vec![
        Create("a/one"),
        Write("a/one", 0, 5000, 1),
        Fsync("a/one"),
        Create("a/two"),
        Write("a/two", 0, 40 * BLOCK, 2),
        Fsync("a/two"),
        Write("a/one", 3000, 6000, 3),
        Rename("a/one", "b/one"),
        Fill("a"),
        SyncAll,
        Truncate("a/two", 9000),
        Create("b/three"),
        Write("b/three", 0, 20 * BLOCK, 4),
        Link("b/three", "a/link"),
        Rename("b/three", "a/two"),
        Fsync("a/two"),
        Unlink("b/one"),
        Create("b/far"),
        Write("b/far", (300 * BLOCK) as u64, 100, 5),
        Fsync("b/far"),
        Write("b/far", 10, 3000, 6),
        Fill("b"),
        Unlink("a/link"),
        Rename("a/two", "b/two"),
        SyncAll,
        Truncate("b/far", 100),
        Write("b/two", 5000, 3000, 7),
    ]
}

/// The expected state of a file.
struct File {
    ino: Ino,
    content: Vec<u8>,
    /// All contents since the last successful sync of the file, including the synced content.
    since_sync: Vec<Vec<u8>>,
    /// The names since that sync.
    names_since_sync: BTreeSet<String>,
    is_synced: bool,
    /// Whether the last name may have been removed since the sync.
    may_be_gone: bool,
}

impl File {
    fn set(&mut self, content: Vec<u8>) {
        self.since_sync.push(content.clone());
        self.content = content;
    }

    fn note_sync(&mut self, names: BTreeSet<String>) {
        self.is_synced = true;
        self.since_sync = vec![self.content.clone()];
        self.may_be_gone = names.is_empty();
        self.names_since_sync = names;
    }

    /// Whether the file may have this content after the engine ended. The size in an inode may be
    /// older than a pointer in an indirect block; a repair then rounds the size up to whole blocks.
    fn may_be(&self, found: &[u8]) -> std::result::Result<(), String> {
        let versions: Vec<&[u8]> = self.since_sync.iter().map(Vec::as_slice).collect();
        let sizes: Vec<usize> = versions.iter().map(|version| version.len()).collect();
        let is_rounded = found.len().is_multiple_of(BLOCK);
        let is_between = (sizes.iter().min()..=sizes.iter().max()).contains(&Some(&found.len()));
        let is_size = sizes.contains(&found.len()) || (is_rounded && is_between);
        match is_size {
            true => are_bytes_of(found, 0, &versions),
            false => Err(format!("{} bytes, not one of {sizes:?}", found.len())),
        }
    }
}

fn split(path: &str) -> (&str, &str) {
    path.split_once('/').unwrap()
}

fn find(client: &Client<'_>, path: &str) -> Result<Ino> {
    path.split('/').try_fold(Ino::ROOT, |at, name| Ok(client.lookup(at, name)?.ino))
}

/// The expected files, and descriptions of the deviations found.
#[derive(Default)]
struct Story {
    files: Vec<File>,
    names: BTreeMap<String, usize>,
    wrong: Vec<String>,
}

impl Story {
    fn names_of(&self, file: usize) -> BTreeSet<String> {
        let names = self.names.iter().filter(|(_, number)| **number == file);
        names.map(|(name, _)| name.clone()).collect()
    }

    fn step(&mut self, client: &Client<'_>, step: &Step) -> Result<()> {
        match *step {
            Step::Create(path) => self.create(client, path),
            Step::Write(path, offset, count, value) => self.change(
                client,
                path,
                &|content| {
                    let end = offset as usize + count;
                    content.resize(content.len().max(end), 0);
                    content[offset as usize..end].fill(value);
                },
                &|ino| {
                    let file = client.open(ino, OpenMode::READ_WRITE)?;
                    let written = file.write_all(offset, &vec![value; count]);
                    file.close().and(written)
                },
            ),
            Step::Truncate(path, size) => {
                self.change(client, path, &|content| content.resize(size as usize, 0), &|ino| {
                    client.truncate(ino, size).map(drop)
                })
            }
            Step::Rename(from, to) => self.rename(client, from, to),
            Step::Link(from, to) => self.link(client, from, to),
            Step::Unlink(path) => self.unlink(client, path),
            Step::Fill(directory) => (0..40).try_for_each(|number| {
                self.create(client, &format!("{directory}/{number}-{:x<30}", ""))
            }),
            Step::Fsync(path) => self.fsync(client, path),
            Step::SyncAll => self.sync_all(client),
        }
    }

    fn create(&mut self, client: &Client<'_>, path: &str) -> Result<()> {
        let (directory, name) = split(path);
        let directory = client.lookup(Ino::ROOT, directory)?.ino;
        let made = client.file(directory, name, b"");
        // A failed creation may have taken effect.
        let ino = made.as_ref().ok().copied().or_else(|| find(client, path).ok());
        if let Some(ino) = ino {
            self.names.insert(path.to_owned(), self.files.len());
            self.files.push(File {
                ino,
                content: Vec::new(),
                since_sync: vec![Vec::new()],
                names_since_sync: BTreeSet::from([path.to_owned()]),
                is_synced: false,
                may_be_gone: false,
            });
        }
        made.map(drop)
    }

    /// Changes the content of a file, if it exists. If the change fails, each byte may be the old
    /// or the new one.
    fn change(
        &mut self,
        client: &Client<'_>,
        path: &str,
        model: &dyn Fn(&mut Vec<u8>),
        subject: &dyn Fn(Ino) -> Result<()>,
    ) -> Result<()> {
        let Some(number) = self.names.get(path).copied() else { return Ok(()) };
        let file = &mut self.files[number];
        let mut after = file.content.clone();
        model(&mut after);
        let done = subject(file.ino);
        if done.is_ok() {
            file.set(after);
            return done;
        }
        let found = client.contents(file.ino)?;
        let mut sizes = [file.content.len(), after.len()];
        sizes.sort_unstable();
        let is_size = (sizes[0]..=sizes[1]).contains(&found.len());
        let checked = are_bytes_of(&found, 0, &[&file.content, &after]);
        if !is_size || checked.is_err() {
            self.wrong.push(format!("failed change of {path}: {} bytes, {checked:?}", found.len()));
        }
        file.since_sync.push(after);
        file.set(found);
        done
    }

    /// Records the file to which a path refers after a change of names.
    fn observe(&mut self, client: &Client<'_>, path: &str, before: Option<usize>) {
        let found = find(client, path).ok();
        let file = found.and_then(|ino| self.files.iter().position(|file| file.ino == ino));
        match file {
            Some(file) => {
                self.files[file].names_since_sync.insert(path.to_owned());
                self.names.insert(path.to_owned(), file);
            }
            None => {
                self.names.remove(path);
            }
        }
        if let Some(number) = before {
            let is_gone = self.names_of(number).is_empty();
            self.files[number].may_be_gone |= is_gone;
        }
    }

    fn rename(&mut self, client: &Client<'_>, from: &str, to: &str) -> Result<()> {
        let Some(file) = self.names.get(from).copied() else { return Ok(()) };
        let replaced = self.names.get(to).copied();
        let [old, new] = [from, to].map(split);
        let [parent, new_parent] =
            [old.0, new.0].map(|name| client.lookup(Ino::ROOT, name).map(|attr| attr.ino));
        let done = client.rename(parent?, old.1, new_parent?, new.1);
        // The engine may end during this rename, after the new name was written.
        self.files[file].names_since_sync.insert(to.to_owned());
        if let Some(replaced) = replaced {
            self.files[replaced].may_be_gone |= self.names_of(replaced).len() == 1;
        }
        self.observe(client, from, None);
        self.observe(client, to, replaced);
        let names = self.names_of(file);
        let expected = if done.is_ok() { to } else { from };
        if done.is_ok() != names.contains(to) || !names.contains(expected) {
            self.wrong.push(format!("{from} renamed to {to}, {done:?}: found as {names:?}"));
        }
        done
    }

    fn link(&mut self, client: &Client<'_>, from: &str, to: &str) -> Result<()> {
        let Some(file) = self.names.get(from).copied() else { return Ok(()) };
        let (directory, name) = split(to);
        let directory = client.lookup(Ino::ROOT, directory)?.ino;
        let done = client.link(self.files[file].ino, directory, name).map(drop);
        // A failed link may have taken effect.
        self.observe(client, to, None);
        if done.is_ok() && !self.names.contains_key(to) {
            self.wrong.push(format!("{to}: linked, but it does not exist"));
        }
        done
    }

    fn unlink(&mut self, client: &Client<'_>, path: &str) -> Result<()> {
        let Some(file) = self.names.get(path).copied() else { return Ok(()) };
        let (directory, name) = split(path);
        let directory = client.lookup(Ino::ROOT, directory)?.ino;
        self.files[file].may_be_gone |= self.names_of(file).len() == 1;
        let done = client.unlink(directory, name);
        self.observe(client, path, Some(file));
        if done.is_ok() == self.names.contains_key(path) {
            self.wrong.push(format!("unlink {path}: {done:?}"));
        }
        done
    }

    fn fsync(&mut self, client: &Client<'_>, path: &str) -> Result<()> {
        let Some(number) = self.names.get(path).copied() else { return Ok(()) };
        let file = client.open(self.files[number].ino, OpenMode::empty())?;
        let synced = file.fsync(false);
        file.close()?;
        if synced.is_ok() {
            let names = self.names_of(number);
            self.files[number].note_sync(names);
        }
        synced
    }

    fn sync_all(&mut self, client: &Client<'_>) -> Result<()> {
        client.subject().syncfs(&client.request(), Ino::ROOT)?;
        for number in 0..self.files.len() {
            let names = self.names_of(number);
            self.files[number].note_sync(names);
        }
        Ok(())
    }

    /// Checks that there are exactly the expected names and contents.
    fn check_all(&mut self, ext2: &Ext2, when: &str) {
        let client = Client::new(ext2);
        let mut found = BTreeSet::new();
        for directory in ["a", "b"] {
            let names = client.lookup(Ino::ROOT, directory).and_then(|it| client.names(it.ino));
            match names {
                Ok(names) => found.extend(names.iter().map(|name| format!("{directory}/{name}"))),
                Err(error) => self.wrong.push(format!("{when}: {directory}: {error}")),
            }
        }
        let expected: BTreeSet<String> = self.names.keys().cloned().collect();
        for name in found.symmetric_difference(&expected) {
            self.wrong.push(format!("{when}: {name}: expected {}", expected.contains(name)));
        }
        for (name, number) in &self.names {
            let content = find(&client, name).and_then(|ino| client.contents(ino));
            if content.as_ref().ok() != Some(&self.files[*number].content) {
                let told = content.map(|content| content.len());
                self.wrong.push(format!("{when}: {name}: other content: {told:?} bytes"));
            }
        }
    }

    /// Checks that files that were synced before the engine ended have a name and their content.
    fn check_synced(&mut self, ext2: &Ext2) {
        let client = Client::new(ext2);
        for file in self.files.iter().filter(|file| file.is_synced) {
            let found: Vec<_> = file
                .names_since_sync
                .iter()
                .filter_map(|name| Some((name, find(&client, name).ok()?)))
                .filter(|(_, ino)| *ino == file.ino)
                .collect();
            if found.is_empty() && !file.may_be_gone {
                self.wrong.push(format!("lost: {:?}", file.names_since_sync));
            }
            for (name, ino) in found {
                let content = client.contents(ino).map_err(|error| error.to_string());
                let checked = content.and_then(|content| file.may_be(&content));
                self.wrong.extend(checked.err().map(|what| format!("{name}: {what}")));
            }
        }
    }
}

/// Runs the script with a failure. Returns the kind of the failed call, if any, and descriptions of
/// the deviations.
fn outcome(volume: &VolumeOptions, failure: Failure) -> (Option<&'static str>, Vec<String>) {
    let device = Arc::new(Device { memory: MemoryDevice::new(BYTES), watch: Fails::default() });
    mkfs(&device.memory, &options(BLOCK as u32)).unwrap();
    let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as Arc<dyn BlockDevice>;
    let open = || Ext2::open(Arc::clone(&shared), volume.clone()).unwrap();
    let mut story = Story::default();
    let ext2 = open();
    let client = Client::new(&ext2);
    for name in ["a", "b"] {
        client.mkdir(Ino::ROOT, name).unwrap();
    }
    ext2.sync().unwrap();
    device.watch.begin(failure);
    for step in &script() {
        let is_done = story.step(&client, step).is_ok();
        if failure.then == Then::Ends && device.watch.failed().is_some() {
            device.watch.kill();
            break;
        }
        if !is_done && device.watch.failed().is_none() {
            story.wrong.push(format!("{step:?} failed although the device works"));
        }
    }
    drop(client);
    if failure.then == Then::Ends {
        drop(ext2);
        device.watch.heal();
        let left = repair(&shared, NOW).unwrap().left.findings;
        story.wrong.extend(left.first().map(|left| format!("not repaired: {left:?}")));
        story.check_synced(&open());
    } else {
        story.check_all(&ext2, "in the same mount");
        device.watch.heal();
        let synced = ext2.sync();
        story.wrong.extend(synced.err().map(|error| format!("the device works: sync: {error}")));
        story.check_all(&ext2, "after a sync");
        ext2.shutdown().unwrap();
        drop(ext2);
        // The error state remains, so that the next check reads everything.
        let findings = check(Arc::clone(&shared)).unwrap().findings;
        let finding = findings.iter().find(|finding| finding.problem != Problem::NotInOrder);
        story.wrong.extend(finding.map(|finding| format!("check: {finding:?}")));
        story.check_all(&open(), "in the next mount");
    }
    let failed = device.watch.failed();
    let told = |what| format!("{failure:?}, {failed:?}: {what}");
    (failed, story.wrong.into_iter().map(told).collect())
}

/// Three volumes: one flushes before each change, one keeps 8 blocks of changed metadata in memory,
/// and one flushes only in syncs.
fn volumes() -> [VolumeOptions; 3] {
    [0, 8 * BLOCK, 32 << 20]
        .map(|dirty_bytes_max| VolumeOptions { dirty_bytes_max, ..VolumeOptions::default() })
}

#[track_caller]
fn nothing_is_wrong(then: Then) {
    for volume in volumes() {
        let errno = Some(Errno::IO);
        let outcomes = failing::sweep(|first| outcome(&volume, Failure { errno, first, then }));
        assert!(outcomes.len() > 50, "{}", outcomes.len());
        let wrong: Vec<_> = outcomes.into_iter().flat_map(|(_, wrong)| wrong).collect();
        assert!(wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(20)]);
    }
}

#[test]
fn device_that_fails_one_call_loses_no_change() {
    nothing_is_wrong(Then::Heals);
}

#[test]
fn device_that_fails_from_one_call_on_loses_no_change() {
    nothing_is_wrong(Then::Stays);
}

#[test]
fn engine_that_ends_at_any_failed_call_keeps_synced_files() {
    nothing_is_wrong(Then::Ends);
}

/// Two directories, and a file in `early`. Changes of the block of `late` are written late.
struct Tree {
    early: Ino,
    late: Ino,
    file: Ino,
}

/// Performs `fails`, which fails in a flush and may leave a change in memory. Then performs
/// `follows`. The file `early/old` must keep a name, no matter which later write fails first.
#[track_caller]
fn file_has_a_name_after_each_write(
    fails: &dyn Fn(&Client<'_>, &Tree) -> Result<()>,
    follows: &dyn Fn(&Client<'_>, &Tree) -> Result<()>,
    names: [&str; 2],
) {
    let mut failures = 0;
    for writes in 0.. {
        let device = FaultyDevice::new(BYTES, &options(BLOCK as u32));
        let ext2 = device.open(VolumeOptions::default());
        let client = Client::new(&ext2);
        // Blocks that are written in the same step are written in the order of their numbers.
        let [early, other, late] =
            ["early", "other", "late"].map(|name| client.mkdir(Ino::ROOT, name).unwrap());
        client.file(late, "moved", b"").unwrap();
        let tree = Tree { early, late, file: client.file(early, "old", b"content").unwrap() };
        ext2.sync().unwrap();
        client.rename(late, "moved", other, "moved").unwrap();
        device.fail_after(Fault::Flush, 0);
        fails(&client, &tree).unwrap_err();
        device.mend(Fault::Flush);
        device.fail_after(Fault::Write, writes);
        let is_synced = follows(&client, &tree).is_ok() && ext2.sync().is_ok();
        drop(client);
        drop(ext2);
        device.mend(Fault::Write);
        let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as Arc<dyn BlockDevice>;
        assert!(repair(&shared, NOW).unwrap().left.findings.is_empty());
        let ext2 = device.open(VolumeOptions::default());
        let client = Client::new(&ext2);
        let found = names.map(|path| find(&client, path).is_ok());
        assert!(found.contains(&true), "after {writes} writes the file has no name");
        if is_synced {
            break;
        }
        failures += 1;
    }
    assert!(failures > 3, "{failures}");
}

#[test]
fn file_whose_second_link_failed_is_not_lost_when_the_first_is_removed() {
    file_has_a_name_after_each_write(
        &|client, tree| client.link(tree.file, tree.late, "new").map(drop),
        &|client, tree| client.unlink(tree.early, "old"),
        ["late/new", "early/old"],
    );
}

#[test]
fn file_moved_into_a_directory_whose_creation_failed_is_not_lost() {
    file_has_a_name_after_each_write(
        &|client, tree| client.mkdir(tree.late, "new").map(drop),
        &|client, tree| {
            let new = client.lookup(tree.late, "new")?.ino;
            client.rename(tree.early, "old", new, "file")
        },
        ["late/new/file", "early/old"],
    );
}

/// The checks detect a write that reports success without writing.
#[test]
fn checks_detect_writes_that_the_device_lost() {
    let volume = &volumes()[2];
    let lost = |first| outcome(volume, Failure { errno: None, first, then: Then::Heals });
    let swept = failing::sweep(lost);
    let seen = |kind| {
        let of_kind = swept.iter().filter(|(call, _)| *call == kind);
        let (seen, unseen): (Vec<_>, Vec<_>) = of_kind.partition(|(_, wrong)| !wrong.is_empty());
        (seen.len(), unseen.len())
    };
    let (data, metadata) = (seen("write of data"), seen("write of metadata"));
    // Most other lost writes have no effect, because a later sync of the script repeats them.
    assert!(data.0 >= 5 && metadata.0 >= 5, "seen and unseen: {data:?} {metadata:?}");
}
