//! Files that version 1 wrote remain readable forever. `tests/golden` has an archive in a
//! directory, a file's xattr in both forms, the catalogue, a bundle, and a bundle in an encrypted
//! archive. Version 2 of objects wrote an archive with an object that has sources.
//! `FSLAB_BLESS=archive`, `FSLAB_BLESS=compact-residency`, `FSLAB_BLESS=bundle`,
//! `FSLAB_BLESS=sealed` and `FSLAB_BLESS=sources` write them again. Do this only for a new version,
//! and keep the old files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use fslab_tier::archive::{Archive, ContainerKind, DirectoryArchive, EncryptedArchive, Key};
use fslab_tier::catalogue::{Catalogue, ObjectState};
use fslab_tier::command::{Command, execute};
use fslab_tier::object::bundle::contents_of;
use fslab_tier::object::reader::ObjectReader;
use fslab_tier::stored::{CompactResidency, Marks, Residency, TreeMark};
use fslab_tier::{Environment, Id, Settings, Tier, TierFs, own_request, rebuild};
use fslab_vfs::{FileSystem, Ino, MemFs, MonotonicClock, OpenMode, SetAttr, SetTime, Timestamp};
use fslab_vfs_testing::client::Client;

use crate::support::{Counted, Dates, MIB, TIER, noise};

const ARCHIVE: Id = Id([1; 16]);
const MODIFIED: Timestamp = Timestamp { seconds: 1_234_567_890, nanoseconds: 987_654_321 };

fn golden(name: &str) -> PathBuf {
    Path::new("tests/golden").join(name)
}

fn around() -> Environment {
    Environment {
        clock: Arc::new(MonotonicClock),
        calendar: Arc::new(Dates(AtomicU64::new(0))),
        identities: Arc::new(Counted(AtomicU64::new(0))),
        inode_identity: |_| Id([5; 16]),
        marks: Marks::Trusted,
    }
}

/// A block of text, a block of zeros, and a short incompressible one.
fn contents() -> Vec<u8> {
    let mut bytes: Vec<u8> =
        b"a line of a file\n".iter().copied().cycle().take(MIB as usize).collect();
    bytes.resize(2 * MIB as usize, 0);
    bytes.extend(noise(1, 3000));
    bytes
}

fn is_blessed(what: &str) -> bool {
    std::env::var_os("FSLAB_BLESS").is_some_and(|blessed| blessed == what)
}

fn bless() {
    let root = golden("archive-1");
    std::fs::remove_dir_all(&root).ok();
    DirectoryArchive::init(&root, ARCHIVE, TIER, None).unwrap();
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    Marks::Trusted.write_tree(&*lower, &TreeMark::of(TIER)).unwrap();
    let archive: Arc<dyn Archive> = Arc::new(DirectoryArchive::open(&root, TIER).unwrap());
    let catalogue = Catalogue::open(&golden("catalogue-1.redb")).unwrap();
    let settings = Settings::of(TIER);
    let tier =
        Tier::open(Arc::clone(&lower), settings, vec![archive], catalogue, around()).unwrap();
    let fs = TierFs::new(Arc::clone(&tier));
    let client = Client::new(&fs);
    let directory = client.mkdir_mode(Ino::ROOT, "directory", 0o750).unwrap().ino;
    let file = client.file(directory, "file", &contents()).unwrap();
    client.chmod(file, 0o640).unwrap();
    client.chown(file, 7, 8).unwrap();
    client.setxattr(file, "user.colour", b"green").unwrap();
    client.link(file, Ino::ROOT, "link").unwrap();
    client.symlink(Ino::ROOT, "symlink", "directory/file").unwrap();
    let modified = Some(SetTime::To(MODIFIED));
    client.set(file, &SetAttr { modified, ..SetAttr::default() }).unwrap();
    tier.archive(file, b"directory/file", &own_request()).unwrap();
    tier.release(file, b"directory/file", 0).unwrap();
    tier.archive_tree(&own_request()).unwrap();
    let value = tier.residency_below(file).unwrap().unwrap().encode().unwrap();
    std::fs::write(golden("residency-1"), value).unwrap();
    tier.shutdown().unwrap();
    drop(client);
    drop(fs);
    drop(tier);
    // The catalogue consists almost completely of zeros.
    let catalogue = std::fs::read(golden("catalogue-1.redb")).unwrap();
    let small = zstd::bulk::compress(&catalogue, 19).unwrap();
    std::fs::write(golden("catalogue-1.redb.zst"), small).unwrap();
    std::fs::remove_file(golden("catalogue-1.redb")).unwrap();
}

/// Opens the archive read-only, so that the golden files do not change.
fn archive() -> Arc<dyn Archive> {
    if is_blessed("archive") {
        bless();
    }
    Arc::new(DirectoryArchive::open_to_read(&golden("archive-1"), TIER).unwrap())
}

fn mounted(lower: &Arc<dyn FileSystem>, archive: Arc<dyn Archive>) -> TierFs {
    let catalogue = Catalogue::in_memory().unwrap();
    let settings = Settings::of(TIER);
    TierFs::new(
        Tier::open(Arc::clone(lower), settings, vec![archive], catalogue, around()).unwrap(),
    )
}

#[test]
fn version_1_stays_readable() {
    let archive = archive();
    a_tree_is_made_of_an_archive(&archive);
    a_stub_is_read(&archive, "residency-1");
    a_catalogue_is_read();
}

/// The catalogue is empty, so the other facts about the object are read from the archive.
#[test]
fn compact_residency_stays_readable() {
    if is_blessed("compact-residency") {
        let full = std::fs::read(golden("residency-1")).unwrap();
        let compact = CompactResidency::of(&Residency::decode(&full).unwrap()).unwrap();
        std::fs::write(golden("compact-residency-1"), compact.encode()).unwrap();
    }
    a_stub_is_read(&archive(), "compact-residency-1");
}

fn a_tree_is_made_of_an_archive(archive: &Arc<dyn Archive>) {
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    Marks::Trusted.write_tree(&*lower, &TreeMark::of(TIER)).unwrap();
    let (archives, catalogue) = ([Arc::clone(archive)], Catalogue::in_memory().unwrap());
    let report = rebuild::rebuild(
        rebuild::Options::default(),
        &lower,
        &archives,
        &catalogue,
        (&around(), TIER),
        &own_request(),
    )
    .unwrap();
    let made = (report.directories, report.files, report.links, report.others);
    assert_eq!((made, report.problems), ((1, 1, 1, 1), Vec::new()));
    let fs = mounted(&lower, Arc::clone(archive));
    let client = Client::new(&fs);
    let directory = client.lookup(Ino::ROOT, "directory").unwrap();
    assert_eq!(directory.permissions.bits(), 0o750);
    let file = client.lookup(directory.ino, "file").unwrap();
    let (mode, links) = (file.permissions.bits(), file.links);
    assert_eq!((mode, file.uid, file.gid, links, file.modified), (0o640, 7, 8, 2, MODIFIED));
    assert_eq!(client.getxattr(file.ino, "user.colour").unwrap(), b"green");
    assert_eq!(client.lookup(Ino::ROOT, "link").unwrap().ino, file.ino);
    let symlink = client.lookup(Ino::ROOT, "symlink").unwrap();
    assert_eq!(client.readlink(symlink.ino).unwrap(), "directory/file");
    assert!(client.contents(file.ino).unwrap() == contents());
}

/// Checks a released file as it is on the disk, with the right size and the xattr.
fn a_stub_is_read(archive: &Arc<dyn Archive>, residency: &str) {
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    Marks::Trusted.write_tree(&*lower, &TreeMark::of(TIER)).unwrap();
    let below = Client::new(&*lower);
    let ino = below.file(Ino::ROOT, "stub", b"").unwrap();
    below.truncate(ino, contents().len() as u64).unwrap();
    below
        .setxattr(ino, Marks::Trusted.residency_name(), &std::fs::read(golden(residency)).unwrap())
        .unwrap();
    let modified = Some(SetTime::To(MODIFIED));
    below.set(ino, &SetAttr { modified, ..SetAttr::default() }).unwrap();
    let fs = mounted(&lower, Arc::clone(archive));
    let client = Client::new(&fs);
    let file = client.open(ino, OpenMode::empty()).unwrap();
    assert_eq!(file.read(2 * MIB, 3000).unwrap(), noise(1, 3000));
    file.close().unwrap();
    assert!(client.contents(ino).unwrap() == contents());
    assert_eq!(client.attr(ino).unwrap().modified, MODIFIED);
}

fn a_catalogue_is_read() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("catalogue.redb");
    let small = std::fs::read(golden("catalogue-1.redb.zst")).unwrap();
    std::fs::write(&path, zstd::bulk::decompress(&small, 16 * MIB as usize).unwrap()).unwrap();
    let catalogue = Catalogue::open(&path).unwrap();
    let mut rows = Vec::new();
    let mut keep = |row| {
        rows.push(row);
        Ok(())
    };
    catalogue.for_each(&mut keep).unwrap();
    assert_eq!(rows.len(), 1);
    let (row, residency) = (&rows[0], std::fs::read(golden("residency-1")).unwrap());
    let known = Residency::decode(&residency).unwrap();
    assert_eq!(
        (row.state, &row.version, row.file),
        (ObjectState::Live, &known.version, known.file)
    );
    assert_eq!((&row.path[..], row.inode), (&b"directory/file"[..], Id([5; 16])));
}

/// Returns the names and contents of two files.
fn small() -> [(&'static str, Vec<u8>); 2] {
    [("one", noise(2, 1000)), ("two", b"a line of a file\n".repeat(100))]
}

/// Opens the archive of a golden bundle, encrypted if a key is given. Writes it again first if
/// requested.
fn bundle(name: &str, key: Option<Key>) -> Arc<dyn Archive> {
    let root = golden(&format!("{name}-1"));
    if is_blessed(name) {
        std::fs::remove_dir_all(&root).ok();
        match &key {
            Some(key) => DirectoryArchive::init(&root, ARCHIVE, TIER, Some(key)).unwrap(),
            None => DirectoryArchive::init(&root, ARCHIVE, TIER, None).unwrap(),
        }
    }
    let opened = match is_blessed(name) {
        true => DirectoryArchive::open(&root, TIER),
        false => DirectoryArchive::open_to_read(&root, TIER),
    };
    let archive: Arc<dyn Archive> = Arc::new(opened.unwrap());
    let archive = match key {
        Some(key) => Arc::new(EncryptedArchive::new(archive, key, around().identities)),
        None => archive,
    };
    if is_blessed(name) {
        bless_bundle(Arc::clone(&archive));
    }
    archive
}

fn bless_bundle(archive: Arc<dyn Archive>) {
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    Marks::Trusted.write_tree(&*lower, &TreeMark::of(TIER)).unwrap();
    let catalogue = Catalogue::in_memory().unwrap();
    let settings = Settings::of(TIER);
    let tier =
        Tier::open(Arc::clone(&lower), settings, vec![archive], catalogue, around()).unwrap();
    let fs = TierFs::new(Arc::clone(&tier));
    let client = Client::new(&fs);
    for (name, contents) in small() {
        let file = client.file(Ino::ROOT, name, &contents).unwrap();
        client.setxattr(file, "user.name", name.as_bytes()).unwrap();
        let modified = Some(SetTime::To(MODIFIED));
        client.set(file, &SetAttr { modified, ..SetAttr::default() }).unwrap();
    }
    let command = Command::Archive { paths: vec![Vec::new()], rate: 0, bundled: None };
    execute(&tier, &command, &own_request(), &mut |_| true).unwrap();
}

/// Returns the contents of the second version of a file. The first version is [`contents`].
fn changed_contents() -> Vec<u8> {
    let mut bytes = contents();
    bytes[MIB as usize..][..7].copy_from_slice(b"changed");
    bytes
}

fn bless_sources(root: &Path) {
    std::fs::remove_dir_all(root).ok();
    DirectoryArchive::init(root, ARCHIVE, TIER, None).unwrap();
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    Marks::Trusted.write_tree(&*lower, &TreeMark::of(TIER)).unwrap();
    let archive: Arc<dyn Archive> = Arc::new(DirectoryArchive::open(root, TIER).unwrap());
    let catalogue = Catalogue::in_memory().unwrap();
    let settings = Settings { deltas: true, ..Settings::of(TIER) };
    let tier =
        Tier::open(Arc::clone(&lower), settings, vec![archive], catalogue, around()).unwrap();
    let fs = TierFs::new(Arc::clone(&tier));
    let client = Client::new(&fs);
    let ino = client.file(Ino::ROOT, "file", &contents()).unwrap();
    let modified = Some(SetTime::To(MODIFIED));
    let archive = || {
        client.set(ino, &SetAttr { modified, ..SetAttr::default() }).unwrap();
        tier.archive(ino, b"file", &own_request()).unwrap();
    };
    archive();
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(MIB, b"changed").unwrap();
    file.close().unwrap();
    archive();
}

#[test]
fn an_object_with_sources_stays_readable() {
    let root = golden("sources-2");
    if is_blessed("sources") {
        bless_sources(&root);
    }
    let archive: Arc<dyn Archive> = Arc::new(DirectoryArchive::open_to_read(&root, TIER).unwrap());
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    Marks::Trusted.write_tree(&*lower, &TreeMark::of(TIER)).unwrap();
    let (archives, catalogue) = ([Arc::clone(&archive)], Catalogue::in_memory().unwrap());
    let (options, of) = (rebuild::Options::default(), (&around(), TIER));
    let report =
        rebuild::rebuild(options, &lower, &archives, &catalogue, of, &own_request()).unwrap();
    assert_eq!((report.added, report.problems), (1, Vec::new()));
    let fs = mounted(&lower, archive);
    let client = Client::new(&fs);
    let file = client.lookup(Ino::ROOT, "file").unwrap();
    assert_eq!(file.modified, MODIFIED);
    assert!(client.contents(file.ino).unwrap() == changed_contents());
}

#[test]
fn a_bundle_of_version_1_stays_readable() {
    is_readable(bundle("bundle", None));
}

#[test]
fn an_encrypted_archive_of_version_1_stays_readable() {
    is_readable(bundle("sealed", Some(Key::new([9; 32]))));
}

fn is_readable(archive: Arc<dyn Archive>) {
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    Marks::Trusted.write_tree(&*lower, &TreeMark::of(TIER)).unwrap();
    let (archives, catalogue) = ([Arc::clone(&archive)], Catalogue::in_memory().unwrap());
    let report = rebuild::rebuild(
        rebuild::Options::default(),
        &lower,
        &archives,
        &catalogue,
        (&around(), TIER),
        &own_request(),
    )
    .unwrap();
    assert_eq!((report.younger, &report.problems[..]), (2, &[][..]));
    let mut containers = Vec::new();
    let mut note = |container, length| containers.push((container, length));
    archive.list(ContainerKind::Files, &mut note).unwrap();
    let (container, length) = containers.pop().unwrap();
    assert_eq!(containers, []);
    let bundle = contents_of(&archive, container, length).unwrap();
    assert_eq!((bundle.members.len(), bundle.list_bytes), (2, 396));
    let objects = bundle.members.into_iter().map(|location| {
        let object = ObjectReader::open_any(&archive, ContainerKind::Files, location).unwrap();
        (object.attributes().path.clone(), object.heading().size, object.blocks())
    });
    assert!(objects.into_iter().any(|object| object == (b"one".to_vec(), 1000, 1)));
    let fs = mounted(&lower, archive);
    let client = Client::new(&fs);
    for (name, contents) in small() {
        let file = client.lookup(Ino::ROOT, name).unwrap();
        assert_eq!(file.modified, MODIFIED);
        assert_eq!(client.getxattr(file.ino, "user.name").unwrap(), name.as_bytes());
        assert!(client.contents(file.ino).unwrap() == contents, "{name}");
    }
}
