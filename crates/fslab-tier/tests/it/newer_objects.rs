//! Rebuilds with objects that the last archived tree does not refer to, into directories that
//! contain files, or with used catalogues.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fslab_tier::archive::Archive;
use fslab_tier::catalogue::{Catalogue, ObjectRow, ObjectState};
use fslab_tier::command::{Command, execute};
use fslab_tier::{Settings, own_request, rebuild};
use fslab_vfs::{
    Attr, Entry, Errno, FileSystem, Handle, Ino, MemFs, Name, OpenMode, Opened, Request, SetAttr,
};
use fslab_vfs_testing::client::Client;

use crate::bundles::{bundled, contents, expire, replace};
use crate::parts::{empty_tree, fresh_over, rebuild_in, rebuild_noted};
use crate::rebuilding::{archive_all, picture, populate};
use crate::support::{Bench, MIB, TIER, noise, open_over};

fn read(client: &Client<'_>, name: &str) -> Vec<u8> {
    client.contents(client.lookup(Ino::ROOT, name).unwrap().ino).unwrap()
}

/// Archives a file, and then another one that replaces it, as editors save files.
fn replaced(bench: &Bench, between: impl FnOnce()) {
    let client = bench.client();
    let old = client.file(Ino::ROOT, "f", &noise(1, MIB)).unwrap();
    bench.archive(old, "f").unwrap();
    between();
    let new = client.file(Ino::ROOT, "new", &noise(2, MIB)).unwrap();
    client.rename(Ino::ROOT, "new", Ino::ROOT, "f").unwrap();
    bench.archive(new, "f").unwrap();
}

/// The previous version can be restored too, as in a tier that was not lost.
#[test]
fn file_replaced_after_the_tree_is_rebuilt_as_last_archived() {
    let bench = Bench::new();
    replaced(&bench, || drop(bench.tier.archive_tree(&own_request()).unwrap()));
    let (lower, catalogue) = (empty_tree(), Catalogue::in_memory().unwrap());
    let report = rebuild_noted(&bench, &lower, &catalogue);
    assert_eq!((report.younger, report.earlier, report.kept), (1, 1, 0), "{report:?}");
    assert_eq!((report.problems.len(), report.unplaced.len()), (0, 0), "{report:?}");
    let mut earlier = Vec::new();
    let mut keep = |row: ObjectRow| {
        if row.state == ObjectState::Replaced {
            earlier.push(row);
        }
        Ok(())
    };
    catalogue.for_each(&mut keep).unwrap();
    let archives = bench.tier.archives();
    let (tier, fs) = open_over(&lower, &Settings::of(TIER), archives, catalogue, &bench.around);
    let client = Client::new(&*fs);
    assert!(read(&client, "f") == noise(2, MIB));
    let object = earlier.pop().unwrap().version.object;
    let command = Command::Undelete { object, path: b"before".to_vec() };
    execute(&tier, &command, &own_request(), &mut |_| true).unwrap();
    assert!(read(&client, "before") == noise(1, MIB));
}

#[test]
fn all_hard_links_of_a_changed_file_are_rebuilt_as_last_archived() {
    let bench = Bench::new();
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "f", &noise(3, 2 * MIB)).unwrap();
    client.link(ino, Ino::ROOT, "g").unwrap();
    bench.archive(ino, "f").unwrap();
    bench.tier.archive_tree(&own_request()).unwrap();
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, b"later").unwrap();
    file.truncate(MIB).unwrap();
    file.close().unwrap();
    bench.archive(ino, "f").unwrap();
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    let report = rebuild_in(&bench, &lower);
    assert_eq!((report.younger, report.problems.len()), (1, 0), "{report:?}");
    let fresh = fresh_over(&bench, lower);
    assert_eq!(picture(&*fresh.fs), picture(&*bench.fs));
    assert_eq!(read(&fresh.client(), "g")[..5], *b"later");
}

#[test]
fn rebuild_without_a_tree_uses_the_last_version_in_any_list_order() {
    let bench = Bench::new();
    replaced(&bench, || {});
    for is_backwards in [false, true] {
        bench.archives[0].faults().backwards.store(is_backwards, Ordering::SeqCst);
        let archive = Arc::clone(&bench.archives[0]) as Arc<dyn Archive>;
        let (lower, catalogue) = (empty_tree(), Catalogue::in_memory().unwrap());
        let (around, request) = (&bench.around, own_request());
        let report = rebuild::rebuild(
            rebuild::Options::default(),
            &lower,
            &[archive],
            &catalogue,
            (around, TIER),
            &request,
        );
        let report = report.unwrap();
        assert_eq!((report.younger, report.earlier), (1, 1), "{report:?}");
        assert!(read(&fresh_over(&bench, lower).client(), "f") == noise(2, MIB));
    }
}

/// The rows of the old catalogue describe the lost tree.
#[test]
fn old_catalogue_hides_no_file_from_a_rebuild() {
    let bench = Bench::new();
    populate(&bench);
    archive_all(&bench, Ino::ROOT, "");
    bench.tier.archive_tree(&own_request()).unwrap();
    replaced(&bench, || {});
    let whole = rebuild_in(&bench, &empty_tree());
    let left = bench.tier.catalogue();
    // Rebuilds twice, as if the first rebuild was into the wrong directory.
    for _ in 0..2 {
        let lower = empty_tree();
        assert_eq!(rebuild_noted(&bench, &lower, left), whole);
        let fresh = fresh_over(&bench, lower);
        assert_eq!(picture(&*fresh.fs), picture(&*bench.fs));
    }
    assert_eq!((whole.problems.len(), whole.unplaced.len(), whole.lost.len()), (0, 0, 0));
    left.begin_use().unwrap();
    assert!(left.is_in_doubt().unwrap(), "nothing expires before a scan looks at the new tree");
}

#[test]
fn second_rebuild_restores_removed_hard_links() {
    let bench = Bench::new();
    populate(&bench);
    archive_all(&bench, Ino::ROOT, "");
    bench.tier.archive_tree(&own_request()).unwrap();
    let lower = empty_tree();
    rebuild_in(&bench, &lower);
    let (below, deep) = (Client::new(&*lower), b"dir/deep");
    let deep = fslab_tier::Found::at(&lower, deep).unwrap().ino();
    // Removes one name of each hard-linked file: of some the first name in the archived tree, of
    // others the last.
    below.unlink(deep, "file5").unwrap();
    below.unlink(Ino::ROOT, "link10").unwrap();
    below.unlink(deep, "file1").unwrap();
    let report = rebuild_in(&bench, &lower);
    assert_eq!((report.files, report.links, report.problems.len()), (1, 2, 0), "{report:?}");
    assert_eq!(picture(&*fresh_over(&bench, Arc::clone(&lower)).fs), picture(&*bench.fs));
}

/// The second rebuild finds the renamed file, so it makes no second file for the same object.
#[test]
fn file_renamed_between_two_rebuilds_is_not_duplicated() {
    let bench = Bench::new();
    let ino = bench.client().file(Ino::ROOT, "f", &noise(4, MIB)).unwrap();
    bench.archive(ino, "f").unwrap();
    let request = own_request();
    for has_tree in [false, true] {
        if has_tree {
            bench.tier.archive_tree(&request).unwrap();
        }
        let lower = empty_tree();
        rebuild_in(&bench, &lower);
        let below = Client::new(&*lower);
        below.rename(Ino::ROOT, "f", Ino::ROOT, "g").unwrap();
        let report = rebuild_in(&bench, &lower);
        assert_eq!((report.files, report.younger, report.kept), (0, 0, 1), "{report:?}");
        assert_eq!(below.names(Ino::ROOT).unwrap(), ["g"]);
    }
}

/// After a rebuild, two files may be versions of one file: the file that was renamed and changed,
/// and the file in the archived tree. Here the objects of both are then moved to another bundle.
#[test]
fn two_versions_of_one_file_are_rebuilt_as_two_files() {
    let bench = Bench::new();
    bundled(&bench, 10);
    let request = own_request();
    bench.tier.archive_tree(&request).unwrap();
    let client = bench.client();
    client.rename(Ino::ROOT, "file9", Ino::ROOT, "renamed").unwrap();
    let ino = client.lookup(Ino::ROOT, "renamed").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, b"later").unwrap();
    file.close().unwrap();
    bench.archive(ino, "renamed").unwrap();
    let later = read(&client, "renamed");
    let (lower, catalogue) = (empty_tree(), Catalogue::in_memory().unwrap());
    rebuild_noted(&bench, &lower, &catalogue);
    let (settings, archives) = (Settings::of(TIER), bench.tier.archives());
    let (tier, fs) = open_over(&lower, &settings, archives, catalogue, &bench.around);
    let (dates, around) = (Arc::clone(&bench.dates), bench.around.clone());
    let fresh = Bench { lower, archives: bench.archives.clone(), dates, around, tier, fs };
    fresh.tier.scan(&request).unwrap();
    fresh.tier.archive_tree(&request).unwrap();
    replace(&fresh, 0..8);
    assert_eq!(expire(&fresh).repacked, 1);
    let again = empty_tree();
    let report = rebuild_in(&fresh, &again);
    assert_eq!((report.lost.len(), report.problems.len()), (0, 0), "{report:?}");
    let last = fresh_over(&fresh, again);
    assert!(read(&last.client(), "file9") == contents(9));
    assert!(read(&last.client(), "renamed") == later);
}

/// The rebuild reports the conflict and makes the other files.
#[test]
fn rebuild_keeps_a_file_in_place_of_a_directory() {
    let bench = Bench::new();
    let client = bench.client();
    let directory = client.mkdir(Ino::ROOT, "d").unwrap();
    let inner = client.file(directory, "inner", &noise(5, MIB)).unwrap();
    let other = client.file(Ino::ROOT, "other", &noise(6, MIB)).unwrap();
    bench.archive(inner, "d/inner").unwrap();
    bench.archive(other, "other").unwrap();
    bench.tier.archive_tree(&own_request()).unwrap();
    let lower = empty_tree();
    let below = Client::new(&*lower);
    let file = below.file(Ino::ROOT, "d", b"somebody's").unwrap();
    let modified = below.attr(file).unwrap().modified;
    let report = rebuild_in(&bench, &lower);
    assert!(report.files == 1 && !report.problems.is_empty(), "{report:?}");
    assert_eq!(below.contents(file).unwrap(), b"somebody's");
    assert_eq!(below.attr(file).unwrap().modified, modified);
    let fresh = fresh_over(&bench, Arc::clone(&lower));
    assert!(read(&fresh.client(), "other") == noise(6, MIB));
}

/// A tree in memory that refuses to create files in directories without write permission, as for an
/// ordinary user.
#[derive(Default)]
struct Closed(MemFs);

impl Closed {
    fn check(&self, request: &Request, parent: Ino) -> fslab_vfs::Result<()> {
        let permissions = self.0.getattr(request, parent, None)?.permissions;
        if permissions.bits() & 0o200 == 0 { Err(Errno::ACCESS.into()) } else { Ok(()) }
    }
}

impl FileSystem for Closed {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.0)
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
    ) -> fslab_vfs::Result<Entry> {
        self.check(request, parent)?;
        self.0.mkdir(request, parent, name, mode)
    }

    fn tmpfile(
        &self,
        _request: &Request,
        _parent: Ino,
        _mode: u32,
        _flags: OpenMode,
    ) -> fslab_vfs::Result<(Entry, Opened)> {
        Err(Errno::OPNOTSUPP.into())
    }

    fn create(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        flags: OpenMode,
    ) -> fslab_vfs::Result<(Entry, Opened)> {
        self.check(request, parent)?;
        self.0.create(request, parent, name, mode, flags)
    }
}

#[test]
fn files_in_read_only_directories_are_rebuilt() {
    let bench = Bench::new();
    let client = bench.client();
    let outer = client.mkdir(Ino::ROOT, "outer").unwrap();
    let inner = client.mkdir(outer, "inner").unwrap();
    let file = client.file(inner, "file", &noise(7, MIB)).unwrap();
    bench.archive(file, "outer/inner/file").unwrap();
    client.chmod(inner, 0o555).unwrap();
    client.chmod(outer, 0o500).unwrap();
    bench.tier.archive_tree(&own_request()).unwrap();
    let lower: Arc<dyn FileSystem> = Arc::new(Closed::default());
    let report = rebuild_in(&bench, &lower);
    assert_eq!((report.files, report.problems.len()), (1, 0), "{report:?}");
    assert_eq!(picture(&*fresh_over(&bench, lower).fs), picture(&*bench.fs));
}

/// A tree in memory that records at each operation on a file whether the name `again` exists.
#[derive(Default)]
struct Watched {
    memory: MemFs,
    seen: parking_lot::Mutex<Vec<bool>>,
}

impl Watched {
    fn look(&self) {
        let there = Client::new(&self.memory).exists(Ino::ROOT, "again").unwrap();
        self.seen.lock().push(there);
    }
}

impl FileSystem for Watched {
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
        self.look();
        self.memory.setattr(request, ino, handle, changes)
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: Ino,
        name: &std::ffi::OsStr,
        value: &[u8],
        mode: fslab_vfs::XattrMode,
    ) -> fslab_vfs::Result<()> {
        self.look();
        self.memory.setxattr(request, ino, name, value, mode)
    }
}

/// A program that opened the file earlier would read zeros as long as it keeps the file open.
#[test]
fn undeleted_file_is_invisible_until_complete() {
    let lower = Arc::new(Watched::default());
    let bench = Bench::over(lower.clone());
    let client = bench.client();
    bench.offline(&client, "file", &noise(8, MIB));
    client.unlink(Ino::ROOT, "file").unwrap();
    let mut objects = Vec::new();
    let mut keep = |row: ObjectRow| {
        objects.push(row.version.object);
        Ok(())
    };
    bench.tier.catalogue().for_each(&mut keep).unwrap();
    lower.seen.lock().clear();
    let command = Command::Undelete { object: objects[0], path: b"again".to_vec() };
    execute(&bench.tier, &command, &own_request(), &mut |_| true).unwrap();
    let seen = std::mem::take(&mut *lower.seen.lock());
    assert!(seen.len() >= 3 && seen.iter().all(|there| !there), "{seen:?}");
    assert!(read(&client, "again") == noise(8, MIB));
}
