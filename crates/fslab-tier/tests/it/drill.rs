//! The drill: a tree with all kinds of files is archived twice, destroyed with its catalogue, and
//! rebuilt. Then files are changed, and only the catalogue is destroyed.
//!
//! `FSLAB_TIER_DRILL` sets the number of files: 10,000 take some minutes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use fslab_tier::archive::{Archive, DirectoryArchive};
use fslab_tier::catalogue::Catalogue;
use fslab_tier::command::{Command, Event, execute};
use fslab_tier::stored::{Marks, TreeMark};
use fslab_tier::{
    Environment, Id, Settings, Tier, TierFs, inode_by_number_and_birth, own_request, rebuild,
};
use fslab_vfs::{FileSystem, HostFs, HostOptions, Ino, MonotonicClock, OpenMode};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::environment::number;
use tempfile::TempDir;

use crate::rebuilding::picture;
use crate::support::{Counted, Dates, MIB, TIER, TRUST, noise};

/// The default number of files.
const FILES: u64 = 80;

/// The number of directories that contain the files.
const DIRECTORIES: u64 = 20;

/// Two archives, and the requirements of an engine over a tree.
struct Drill {
    scratch: TempDir,
    dates: Arc<Dates>,
    /// The number of engines so far, so that each uses other identities.
    lives: AtomicU64,
}

impl Drill {
    fn new() -> Self {
        let drill = Self {
            scratch: TempDir::new().unwrap(),
            dates: Arc::new(Dates(AtomicU64::new(0))),
            lives: AtomicU64::new(0),
        };
        for number in 1..=2 {
            DirectoryArchive::init(&drill.archive(number), Id([number; 16]), TIER, None).unwrap();
        }
        drill
    }

    fn archive(&self, number: u8) -> PathBuf {
        self.scratch.path().join(format!("archive{number}"))
    }

    fn archives(&self) -> Vec<Arc<dyn Archive>> {
        let open = |number| {
            let archive = DirectoryArchive::open(&self.archive(number), TIER).unwrap();
            Arc::new(archive) as Arc<dyn Archive>
        };
        vec![open(1), open(2)]
    }

    fn around(&self) -> Environment {
        let life = self.lives.fetch_add(1, Ordering::SeqCst);
        Environment {
            clock: Arc::new(MonotonicClock),
            calendar: self.dates.clone(),
            identities: Arc::new(Counted(AtomicU64::new(life << 32))),
            inode_identity: inode_by_number_and_birth,
            marks: Marks::Trusted,
        }
    }

    fn tree(&self, name: &str) -> Arc<dyn FileSystem> {
        let path = self.scratch.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Arc::new(HostFs::open(&path, &HostOptions::default()).unwrap())
    }

    fn catalogue(&self, name: &str) -> Catalogue {
        Catalogue::open(&self.scratch.path().join(name)).unwrap()
    }

    fn live(&self, tree: &Arc<dyn FileSystem>, catalogue: Catalogue) -> Arc<Tier> {
        let settings = Settings { copies: 2, ..Settings::of(TIER) };
        let (archives, around) = (self.archives(), self.around());
        Tier::open(Arc::clone(tree), settings, archives, catalogue, around).unwrap()
    }
}

#[test]
fn tree_survives_loss_of_its_disk_and_then_of_its_catalogue() {
    let files = number("FSLAB_TIER_DRILL").unwrap_or(FILES);
    let (drill, begun) = (Drill::new(), Instant::now());
    let said = |what: &str| eprintln!("{files} files: {what} after {:?}", begun.elapsed());
    let before = {
        let tree = drill.tree("tree");
        Marks::Trusted.write_tree(&*tree, &TreeMark::of(TIER)).unwrap();
        let tier = drill.live(&tree, drill.catalogue("catalogue"));
        let fs = TierFs::new(Arc::clone(&tier));
        populate(&fs, files);
        said("made");
        do_all(&tier, &Command::Archive { paths: vec![Vec::new()], rate: 0, bundled: None });
        do_all(&tier, &Command::Tree);
        said("archived twice");
        let before = picture(&fs);
        tier.shutdown().unwrap();
        before
    };
    std::fs::remove_dir_all(drill.scratch.path().join("tree")).unwrap();
    std::fs::remove_file(drill.scratch.path().join("catalogue")).unwrap();
    let tree = drill.tree("again");
    rebuilt(&drill, &tree);
    said("made again");
    let tier = drill.live(&tree, drill.catalogue("catalogue again"));
    assert_same(&picture(&TierFs::new(Arc::clone(&tier))), &before);
    said("read and compared");
    do_all(&tier, &Command::Release { paths: vec![Vec::new()], keep_bytes: 0 });
    let changed = change_some(&TierFs::new(Arc::clone(&tier)), files);
    tier.shutdown().unwrap();
    drop(tier);
    let tier = drill.live(&tree, drill.catalogue("catalogue of a scan"));
    do_all(&tier, &Command::Scan);
    do_all(&tier, &Command::Archive { paths: vec![Vec::new()], rate: 0, bundled: None });
    do_all(&tier, &Command::Release { paths: vec![Vec::new()], keep_bytes: 0 });
    // At this date, all unneeded objects expire at once.
    drill.dates.0.store(400 * 24 * 3600, Ordering::SeqCst);
    do_all(&tier, &Command::Expire);
    assert_same(&picture(&TierFs::new(tier)), &changed);
    said("changed, scanned and compared");
}

fn rebuilt(drill: &Drill, tree: &Arc<dyn FileSystem>) {
    Marks::Trusted.write_tree(&**tree, &TreeMark::of(TIER)).unwrap();
    let (archives, catalogue) = (drill.archives(), drill.catalogue("catalogue again"));
    let request = own_request();
    let report =
        rebuild::rebuild(TRUST, tree, &archives, &catalogue, (&drill.around(), TIER), &request)
            .unwrap();
    let nothing: [String; 0] = [];
    assert_eq!((&report.lost[..], &report.problems[..]), (&nothing[..], &nothing[..]));
}

/// Runs a command. It must succeed for all files.
#[track_caller]
fn do_all(tier: &Arc<Tier>, command: &Command) {
    let mut problems = Vec::new();
    let mut tell = |event| {
        if let Event::Problem { what } = event {
            problems.push(what);
        }
        true
    };
    execute(tier, command, &own_request(), &mut tell).unwrap();
    assert_eq!(problems, Vec::<String>::new());
}

#[track_caller]
fn assert_same(found: &[String], expected: &[String]) {
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
}

fn populate(fs: &TierFs, files: u64) {
    let client = Client::new(fs);
    let directories: Vec<Ino> = (0..DIRECTORIES)
        .map(|number| client.mkdir(Ino::ROOT, format!("directory{number}")).unwrap())
        .collect();
    for number in 0..files {
        let directory = directories[(number % DIRECTORIES) as usize];
        let name = format!("file{number}");
        if make_other(&client, directory, &name, number) {
            continue;
        }
        let ino = client.file(directory, &name, &contents(number)).unwrap();
        client.chown(ino, number as u32 % 1000, 7).unwrap();
        client.chmod(ino, 0o4600 + number as u32 % 64).unwrap();
        if number % 7 == 0 {
            client.setxattr(ino, "user.number", name.as_bytes()).unwrap();
        }
        if number % 11 == 0 {
            client.link(ino, Ino::ROOT, format!("link{number}")).unwrap();
        }
        if number % 13 == 0 {
            client.truncate(ino, 3 * MIB + number).unwrap();
        }
    }
}

/// Makes a file that is not a regular file; returns whether it was made.
fn make_other(client: &Client<'_>, directory: Ino, name: &str, number: u64) -> bool {
    match number % 40 {
        3 => drop(client.symlink(directory, name, "file0").unwrap()),
        5 => drop(client.mknod(directory, name, 0o010_640, 0).unwrap()),
        9 => drop(client.mkdir_mode(directory, name, 0o751).unwrap()),
        _ => return false,
    }
    true
}

/// Contents that are mostly small, and sometimes empty or some blocks long.
fn contents(number: u64) -> Vec<u8> {
    let length = match number % 50 {
        0 => 0,
        1 => 2 * MIB + number,
        _ => number * 7919 % 20_000,
    };
    noise(number, length)
}

/// Changes some of the files, which are all offline; returns the new contents of the tree.
fn change_some(fs: &TierFs, files: u64) -> Vec<String> {
    let client = Client::new(fs);
    for number in (0..files).filter(|number| number % 10 == 7) {
        let directory = client.lookup(Ino::ROOT, format!("directory{}", number % DIRECTORIES));
        let directory = directory.unwrap().ino;
        let Ok(attr) = client.lookup(directory, format!("file{number}")) else { continue };
        let file = client.open(attr.ino, OpenMode::READ_WRITE).unwrap();
        file.write_all(attr.size / 2, b"newer than the archives").unwrap();
        file.close().unwrap();
    }
    let gone = client.lookup(Ino::ROOT, "directory2").unwrap().ino;
    client.unlink(gone, "file2").unwrap();
    picture(fs)
}
