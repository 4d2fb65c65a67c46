//! Malicious archives: no access leaves their directory, no call waits for a pipe, and every read
//! is bounded.

use std::fs;
use std::io::Result;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use fslab_tier::archive::{Archive, ArchiveAddress, ContainerKind, DirectoryArchive, Writer};
use fslab_tier::catalogue::Catalogue;
use fslab_tier::stored::{Marks, TreeMark, WriterMark};
use fslab_tier::{Id, own_request, rebuild};
use fslab_vfs::{FileSystem, MemFs};

use crate::support::{Bench, TIER};

const KIND: ContainerKind = ContainerKind::Files;
const CONTAINER: Id = Id([7; 16]);
const WHOLE: Id = Id([8; 16]);

/// An archive with an intact container, and next to the archive a directory that does not belong to
/// it.
struct Scratch {
    root: PathBuf,
    outside: PathBuf,
    _scratch: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let (root, outside) = (scratch.path().join("archive"), scratch.path().join("outside"));
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join(CONTAINER.to_string()), "not the archive's").unwrap();
        DirectoryArchive::init(&root, Id([1; 16]), TIER, None).unwrap();
        write(&DirectoryArchive::open(&root, TIER).unwrap(), WHOLE).unwrap();
        Self { root, outside, _scratch: scratch }
    }

    fn victim(&self) -> PathBuf {
        self.outside.join(CONTAINER.to_string())
    }

    fn place(&self, kind: ContainerKind) -> PathBuf {
        match kind {
            ContainerKind::Files => self.root.join("files/07"),
            ContainerKind::Tree => self.root.join("trees"),
        }
    }

    #[track_caller]
    fn check_outside(&self) {
        let names: Vec<_> = fs::read_dir(&self.outside).unwrap().map(Result::unwrap).collect();
        assert_eq!(names.len(), 1, "{names:?}");
        assert_eq!(fs::read(self.victim()).unwrap(), b"not the archive's");
    }
}

fn write(archive: &dyn Archive, container: Id) -> Result<()> {
    let mut upload = archive.begin((KIND, container))?;
    upload.write(b"hello")?;
    upload.finish().map(drop)
}

fn pipe(path: &Path) {
    let (mode, kind) = (rustix::fs::Mode::from_raw_mode(0o600), rustix::fs::FileType::Fifo);
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
}

/// Returns the result of a call that must not block.
#[track_caller]
fn at_once<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (answer, answered) = mpsc::channel();
    std::thread::spawn(move || answer.send(call()).ok());
    answered.recv_timeout(Duration::from_secs(20)).unwrap()
}

/// A function that puts a file of another type at the path of a container.
type Planted = fn(&Scratch, &Path);

const PLANTED: [(&str, Planted); 5] = [
    ("a pipe", |_, path| pipe(path)),
    ("a link", |scratch, path| symlink(scratch.victim(), path).unwrap()),
    ("a link to a pipe", |_, path| {
        pipe(&path.with_extension("pipe"));
        symlink(path.with_extension("pipe"), path).unwrap();
    }),
    ("a socket", |_, path| drop(UnixListener::bind(path).unwrap())),
    ("a directory", |_, path| fs::create_dir(path).unwrap()),
];

#[test]
fn only_regular_files_are_containers() {
    for (what, plant) in PLANTED {
        let scratch = Scratch::new();
        let place = scratch.place(KIND);
        fs::create_dir(&place).unwrap();
        plant(&scratch, &place.join(CONTAINER.to_string()));
        let archive = Arc::new(DirectoryArchive::open(&scratch.root, TIER).unwrap());
        let asked = archive.clone();
        let answers = at_once(move || {
            asked.forget((KIND, CONTAINER));
            let mut found = Vec::new();
            asked.list(KIND, &mut |id, length| found.push((id, length))).unwrap();
            let read = asked.read((KIND, CONTAINER), 0, &mut [0; 9]);
            (read.is_err(), asked.length((KIND, CONTAINER)).is_err(), found)
        });
        let (reads_fail, lengths_fail, mut found) = answers;
        assert!(reads_fail && lengths_fail, "{what}");
        found.sort();
        assert_eq!(found, [(CONTAINER, 0), (WHOLE, 5)], "{what}");
        let is_directory = what == "a directory";
        assert_eq!(write(&*archive, CONTAINER).is_err(), is_directory, "{what}");
        assert_eq!(archive.delete((KIND, CONTAINER)).is_err(), is_directory, "{what}");
        scratch.check_outside();
    }
}

#[test]
fn symlink_in_place_of_a_directory_is_not_followed() {
    let scratch = Scratch::new();
    symlink(&scratch.outside, scratch.place(KIND)).unwrap();
    let archive = DirectoryArchive::open(&scratch.root, TIER).unwrap();
    let answers = [
        archive.read((KIND, CONTAINER), 0, &mut [0; 9]).map(drop),
        archive.length((KIND, CONTAINER)).map(drop),
        archive.list(KIND, &mut |_, _| {}),
        archive.delete((KIND, CONTAINER)).map(drop),
        write(&archive, CONTAINER),
        write(&archive, Id([7, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1])),
    ];
    for answer in answers {
        let told = answer.unwrap_err().to_string();
        assert!(told.contains("`files/07` is not a directory") || told.contains("link"), "{told}");
    }
    scratch.check_outside();
    assert_eq!(archive.length((KIND, WHOLE)).unwrap(), 5);
    drop(archive);
    for name in ["files", "trees", "incoming"] {
        fs::rename(scratch.root.join(name), scratch.root.join("aside")).unwrap();
        symlink(&scratch.outside, scratch.root.join(name)).unwrap();
        for opened in [
            DirectoryArchive::open(&scratch.root, TIER),
            DirectoryArchive::open_to_read(&scratch.root, TIER),
        ] {
            let told = opened.unwrap_err().to_string();
            assert!(told.contains(&format!("its `{name}` is not a directory")), "{told}");
        }
        fs::remove_file(scratch.root.join(name)).unwrap();
        fs::rename(scratch.root.join("aside"), scratch.root.join(name)).unwrap();
        scratch.check_outside();
    }
}

#[test]
fn archive_settings_must_be_a_regular_file_of_bounded_length() {
    let scratch = Scratch::new();
    let (path, told) = (scratch.root.join("archive.toml"), scratch.outside.join("settings"));
    let text = fs::read_to_string(&path).unwrap();
    let says = |root: &Path| {
        let root = root.to_owned();
        at_once(move || ArchiveAddress::from(root).describe().unwrap_err().to_string())
    };
    fs::write(&path, format!("{text}{}", "#".repeat(64 << 10))).unwrap();
    assert!(says(&scratch.root).contains("too long"));
    fs::remove_file(&path).unwrap();
    pipe(&path);
    assert!(says(&scratch.root).contains("is not a regular file"));
    fs::remove_file(&path).unwrap();
    fs::write(&told, &text).unwrap();
    symlink(&told, &path).unwrap();
    assert!(says(&scratch.root).contains("its path contains a symbolic link"));
    fs::remove_file(&path).unwrap();
    fs::rename(&told, &path).unwrap();
    assert!(ArchiveAddress::from(scratch.root.as_path()).describe().is_ok());
}

/// A damaged record makes the archive read-only. A tree that takes over the archive writes only
/// inside it.
#[test]
fn writer_record_must_be_a_file_inside_the_archive() {
    let scratch = Scratch::new();
    let (record, lease) = (scratch.root.join("writer.toml"), scratch.root.join("lease"));
    pipe(&record);
    let root = scratch.root.clone();
    let archive = at_once(move || DirectoryArchive::open(&root, TIER).unwrap());
    assert!(archive.refusal().unwrap().contains("damaged writer.toml"));
    drop(archive);
    symlink(scratch.victim(), scratch.root.join("writer.new")).unwrap();
    let mark = WriterMark { id: Id([5; 16]), is_rebuilt: false, root: Id([9; 16]) };
    let writer = Writer { mark, tree: None, since: Default::default(), openings: None };
    let (root, taker) = (scratch.root.clone(), writer.clone());
    at_once(move || DirectoryArchive::take_over(&root, TIER, &taker).unwrap());
    assert!(fs::symlink_metadata(&record).unwrap().is_file());
    scratch.check_outside();
    fs::remove_file(&lease).unwrap();
    pipe(&lease);
    let root = scratch.root.clone();
    let opened = at_once(move || {
        let read = DirectoryArchive::open_to_read(&root, TIER).map(drop);
        [read, DirectoryArchive::open_for(&root, TIER, Some(&writer)).map(drop)]
    });
    for opened in opened {
        assert!(opened.unwrap_err().to_string().contains("lease: is not a regular file"));
    }
}

#[test]
fn rebuild_reports_invalid_containers() {
    for (what, plant) in PLANTED {
        let scratch = Scratch::new();
        fs::create_dir(scratch.place(KIND)).unwrap();
        for kind in [KIND, ContainerKind::Tree] {
            plant(&scratch, &scratch.place(kind).join(CONTAINER.to_string()));
        }
        let archive = DirectoryArchive::open_to_read(&scratch.root, TIER).unwrap();
        let problems = at_once(move || problems(Arc::new(archive)));
        // An invalid container, an invalid archived tree, and a container that contains only
        // "hello".
        assert_eq!(problems.len(), 3, "{what}: {problems:?}");
        scratch.check_outside();
    }
}

/// Returns the problems that a rebuild from one archive reports.
fn problems(archive: Arc<dyn Archive>) -> Vec<String> {
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    Marks::Trusted.write_tree(&*lower, &TreeMark::of(TIER)).unwrap();
    let (archives, catalogue) = ([archive], Catalogue::in_memory().unwrap());
    let around = Bench::new().around;
    let made = rebuild::rebuild(
        rebuild::Options::default(),
        &lower,
        &archives,
        &catalogue,
        (&around, TIER),
        &own_request(),
    );
    made.unwrap().problems
}
