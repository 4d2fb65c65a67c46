//! Rebuilds after the loss of the catalogue, the disk, or both.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fslab_tier::archive::Archive;
use fslab_tier::catalogue::{Catalogue, ObjectRow, ObjectState};
use fslab_tier::rebuild::Options;
use fslab_tier::{own_request, rebuild};
use fslab_vfs::rules::CAPABILITY;
use fslab_vfs::{FileSystem, Ino, MemFs, OpenMode};
use fslab_vfs_testing::client::Client;

use crate::parts::empty_tree;
use crate::support::{Bench, MIB, TIER, TRUST, noise};

#[test]
fn scan_restores_a_lost_catalogue_from_the_tree() {
    let mut bench = Bench::new();
    {
        let client = bench.client();
        bench.offline(&client, "one", &noise(30, MIB));
        let two = client.file(Ino::ROOT, "two", &noise(31, MIB)).unwrap();
        bench.archive(two, "two").unwrap();
        bench.offline(&client, "gone", &noise(32, MIB));
    }
    bench.restart();
    let client = bench.client();
    client.unlink(Ino::ROOT, "gone").unwrap();
    let scanned = bench.tier.scan(&own_request()).unwrap();
    assert_eq!((scanned.files, scanned.archived, scanned.offline), (2, 2, 1));
    assert_eq!((scanned.repaired, scanned.unneeded), (2, 1));
    assert_eq!(bench.tier.scan(&own_request()).unwrap().repaired, 0);
    bench.dates.0.store(31 * 24 * 3600, Ordering::SeqCst);
    assert_eq!(bench.tier.expire(&fslab_tier::own_request()).unwrap().objects, 1);
    let one = client.lookup(Ino::ROOT, "one").unwrap().ino;
    assert_eq!(client.contents(one).unwrap(), noise(30, MIB));
}

/// Describes the contents of a tree, without the properties that a rebuild can't restore.
pub fn picture(fs: &dyn FileSystem) -> Vec<String> {
    let client = Client::new(fs);
    let mut lines = Vec::new();
    let mut pending = vec![(Ino::ROOT, String::new())];
    while let Some((directory, path)) = pending.pop() {
        for name in client.names(directory).unwrap() {
            let attr = client.lookup(directory, &name).unwrap();
            let inner = format!("{path}/{name}");
            let mut names = client.listxattr(attr.ino).unwrap_or_default();
            names.retain(|name| !name.starts_with("user.fslab"));
            let xattrs: Vec<_> = names
                .iter()
                .map(|name| (name.clone(), client.getxattr(attr.ino, name).unwrap()))
                .collect();
            let contents = match attr.kind {
                fslab_vfs::FileKind::Regular => client.contents(attr.ino).unwrap(),
                _ => Vec::new(),
            };
            let target = client.readlink(attr.ino).unwrap_or_default();
            let hash = blake3_of(&contents);
            lines.push(format!(
                "{inner} {:?} {:o} {}:{} {} {} {:?} {:?} {xattrs:?} {target:?} {hash}",
                attr.kind,
                attr.permissions.bits(),
                attr.uid,
                attr.gid,
                attr.links,
                contents.len(),
                attr.modified,
                attr.device,
            ));
            if attr.kind == fslab_vfs::FileKind::Directory {
                pending.push((attr.ino, inner));
            }
        }
    }
    lines.sort();
    lines
}

fn blake3_of(bytes: &[u8]) -> u64 {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(bytes)
}

pub fn populate(bench: &Bench) {
    let client = bench.client();
    let directory = client.mkdir(Ino::ROOT, "dir").unwrap();
    let deep = client.mkdir_mode(directory, "deep", 0o750).unwrap().ino;
    for number in 0..20_u64 {
        let name = format!("file{number}");
        let data = noise(number, number * number * 7919 % (2 * MIB));
        let ino = client.file(deep, &name, &data).unwrap();
        client.chown(ino, number as u32, 7).unwrap();
        client.chmod(ino, 0o4640 + number as u32 % 8).unwrap();
        client.setxattr(ino, "user.number", name.as_bytes()).unwrap();
        if number % 5 == 0 {
            client.link(ino, Ino::ROOT, format!("link{number}")).unwrap();
        }
    }
    client.symlink(Ino::ROOT, "symlink", "dir/deep").unwrap();
    client.mknod(directory, "pipe", 0o010_600, 0).unwrap();
    client.file(directory, "sparse", &[]).unwrap();
    let sparse = client.lookup(directory, "sparse").unwrap().ino;
    client.truncate(sparse, 3 * MIB).unwrap();
}

pub fn archive_all(bench: &Bench, directory: Ino, path: &str) {
    let client = bench.client();
    for name in client.names(directory).unwrap() {
        let attr = client.lookup(directory, &name).unwrap();
        let inner = if path.is_empty() { name } else { format!("{path}/{name}") };
        match attr.kind {
            fslab_vfs::FileKind::Regular => {
                bench.archive(attr.ino, &inner).unwrap();
            }
            fslab_vfs::FileKind::Directory => archive_all(bench, attr.ino, &inner),
            _ => {}
        }
    }
}

fn rebuilt(bench: &Bench, lower: &Arc<dyn FileSystem>) -> rebuild::Rebuilt {
    let archives: Vec<Arc<dyn Archive>> =
        bench.archives.iter().map(|archive| Arc::clone(archive) as Arc<dyn Archive>).collect();
    let catalogue = Catalogue::in_memory().unwrap();
    rebuild::rebuild(TRUST, lower, &archives, &catalogue, (&bench.around, TIER), &own_request())
        .unwrap()
}

/// Anybody who can write to an unencrypted archive could plant set-id bits, capabilities or devices
/// for the next rebuild.
#[test]
fn rebuild_omits_privileges_recorded_in_an_unencrypted_archive() {
    const DEVICE: u32 = 0x0103;
    let bench = Bench::new();
    let client = bench.client();
    let program = |name: &str| {
        let ino = client.file(Ino::ROOT, name, b"code").unwrap();
        client.chmod(ino, 0o6755).unwrap();
        client.setxattr(ino, CAPABILITY, b"may").unwrap();
    };
    program("program");
    client.mknod(Ino::ROOT, "device", 0o020_600, DEVICE).unwrap();
    archive_all(&bench, Ino::ROOT, "");
    bench.tier.archive_tree(&own_request()).unwrap();
    program("younger");
    archive_all(&bench, Ino::ROOT, "");
    let archives = bench.tier.archives();
    for trust in [false, true] {
        let (lower, catalogue) = (empty_tree(), Catalogue::in_memory().unwrap());
        let (options, of) = (Options { trust, ..Options::default() }, (&bench.around, TIER));
        let request = own_request();
        let made = rebuild::rebuild(options, &lower, &archives, &catalogue, of, &request);
        let made = made.unwrap();
        let again = Client::new(&*lower);
        for name in ["program", "younger"] {
            let attr = again.lookup(Ino::ROOT, name).unwrap();
            let bits = if trust { 0o6755 } else { 0o755 };
            assert_eq!(attr.permissions.bits(), bits, "{name}");
            assert_eq!(again.getxattr(attr.ino, CAPABILITY).is_ok(), trust, "{name}");
        }
        assert_eq!(again.exists(Ino::ROOT, "device").unwrap(), trust);
        assert_eq!(made.left_out.len(), if trust { 0 } else { 3 }, "{made:?}");
        assert_eq!((made.files, made.added, made.problems.len()), (1, 1, 0), "{made:?}");
    }
}

#[test]
fn tree_is_rebuilt_from_an_archive_alone() {
    let bench = Bench::new();
    populate(&bench);
    archive_all(&bench, Ino::ROOT, "");
    let archived = bench.tier.archive_tree(&own_request()).unwrap();
    assert!(archived.entries > 25 && archived.problems.is_empty(), "{archived:?}");
    let before = picture(&*bench.fs);
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    let report = rebuilt(&bench, &lower);
    assert_eq!((report.lost.len(), report.problems.len(), report.older.len()), (0, 0, 0));
    assert_eq!((report.files, report.links, report.directories), (21, 4, 2), "{report:?}");
    let fresh = Bench { ..Bench::over(lower) };
    // The archives of the lost disk are used for the new one.
    bench.archives.iter().for_each(|archive| {
        fresh.tier.attach(Arc::clone(archive) as Arc<dyn Archive>);
    });
    assert_eq!(picture(&*fresh.fs), before);
}

#[test]
fn files_newer_than_the_tree_are_rebuilt_and_existing_ones_kept() {
    let bench = Bench::new();
    let client = bench.client();
    let old = client.file(Ino::ROOT, "old", &noise(40, MIB)).unwrap();
    bench.archive(old, "old").unwrap();
    bench.tier.archive_tree(&own_request()).unwrap();
    let file = client.open(old, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, b"younger").unwrap();
    file.close().unwrap();
    bench.archive(old, "old").unwrap();
    let young = client.file(Ino::ROOT, "young", &noise(41, MIB)).unwrap();
    bench.archive(young, "young").unwrap();
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    Client::new(&*lower).file(Ino::ROOT, "young", b"newer on the disk").unwrap();
    let report = rebuilt(&bench, &lower);
    assert_eq!((report.younger, report.kept), (1, 1), "{report:?}");
    assert_eq!(report.unplaced, ["young"], "what stays is told, as it is not what was archived");
    let fresh = Bench::over(lower);
    fresh.tier.attach(Arc::clone(&bench.archives[0]) as Arc<dyn Archive>);
    let client = fresh.client();
    let read = |name| client.contents(client.lookup(Ino::ROOT, name).unwrap().ino).unwrap();
    assert_eq!(read("old")[..7], *b"younger");
    assert_eq!(read("young"), b"newer on the disk");
}

pub type Deed = Box<dyn FnOnce() + Send>;

/// A tree whose listing lets a test move a file from a directory not yet walked to one already
/// walked.
#[derive(Default)]
pub struct Moving {
    memory: MemFs,
    /// Called once, when the directory that is walked last is opened.
    pub moves: parking_lot::Mutex<Option<(Ino, Deed)>>,
}

impl Moving {
    /// Returns the path of an inode, by a walk over a directory.
    fn path_in(&self, directory: Ino, path: &Path, wanted: Ino) -> Option<PathBuf> {
        let client = Client::new(&self.memory);
        client.names(directory).unwrap().into_iter().find_map(|name| {
            let (attr, inner) = (client.lookup(directory, &name).unwrap(), path.join(&name));
            let is_directory = attr.kind == fslab_vfs::FileKind::Directory;
            match attr.ino == wanted {
                true => Some(inner),
                false if is_directory => self.path_in(attr.ino, &inner, wanted),
                false => None,
            }
        })
    }
}

impl FileSystem for Moving {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.memory)
    }

    fn path_below(&self, ino: Ino) -> Option<PathBuf> {
        let root = Path::new("/");
        if ino == Ino::ROOT { Some(root.into()) } else { self.path_in(Ino::ROOT, root, ino) }
    }

    fn opendir(
        &self,
        request: &fslab_vfs::Request,
        ino: Ino,
    ) -> fslab_vfs::Result<fslab_vfs::Handle> {
        let due = self.moves.lock().take_if(|(wanted, _)| *wanted == ino);
        if let Some((_, moves)) = due {
            moves();
        }
        self.memory.opendir(request, ino)
    }
}

#[test]
fn file_moved_during_a_scan_is_not_recorded_as_removed() {
    let lower = Arc::new(Moving::default());
    let bench = Bench::over(lower.clone());
    let client = bench.client();
    let first = client.mkdir(Ino::ROOT, "first").unwrap();
    let last = client.mkdir(Ino::ROOT, "last").unwrap();
    let data = noise(50, MIB);
    for name in ["file", "linked"] {
        let ino = client.file(last, name, &data).unwrap();
        bench.archive(ino, &format!("last/{name}")).unwrap();
        bench.release(ino, &format!("last/{name}")).unwrap();
    }
    let fs = Arc::clone(&bench.fs);
    let moves = move || {
        let client = Client::new(&*fs);
        client.rename(last, "file", first, "file").unwrap();
        let linked = client.lookup(last, "linked").unwrap().ino;
        client.link(linked, first, "linked").unwrap();
        client.unlink(last, "linked").unwrap();
    };
    *lower.moves.lock() = Some((last, Box::new(moves)));
    assert_eq!(bench.tier.scan(&own_request()).unwrap().unneeded, 0);
    bench.dates.0.store(31 * 24 * 3600, Ordering::SeqCst);
    assert_eq!(bench.tier.expire(&own_request()).unwrap().objects, 0);
    for name in ["file", "linked"] {
        let ino = client.lookup(first, name).unwrap().ino;
        assert!(client.contents(ino).unwrap() == data);
    }
}

/// An object that is being written during the walk may be recorded on its file only after the walk
/// has passed the file. So the archived tree gets a lower sequence number than the object.
#[test]
fn archived_tree_is_older_than_pending_objects() {
    let bench = Bench::new();
    let client = bench.client();
    bench.offline(&client, "file", &noise(60, MIB));
    let mut rows = Vec::new();
    let mut keep = |row: ObjectRow| {
        rows.push(ObjectRow { state: ObjectState::Pending, ..row });
        Ok(())
    };
    bench.tier.catalogue().for_each(&mut keep).unwrap();
    bench.tier.catalogue().put(&rows).unwrap();
    bench.tier.archive_tree(&own_request()).unwrap();
    let archive = Arc::clone(&bench.archives[0]) as Arc<dyn Archive>;
    let trees = rebuild::trees(&archive).unwrap();
    assert!(trees[0].1.sequence < rows[0].version.sequence);
}
