//! A tier whose archives are encrypted, each with its own key.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fslab_tier::archive::testing::MemoryArchive;
use fslab_tier::archive::{Archive, EncryptedArchive, Key, Purpose};
use fslab_tier::catalogue::Catalogue;
use fslab_tier::command::{Command, Event, execute};
use fslab_tier::home::{Home, SurvivingArchives, TierDescription};
use fslab_tier::stored::{Marks, TreeMark};
use fslab_tier::{Id, Settings, Tier, own_request, rebuild};
use fslab_vfs::{Errno, FileSystem, Ino, MemFs, OpenMode};
use fslab_vfs_testing::client::Client;

use crate::rebuilding::picture;
use crate::support::{Bench, MIB, TIER, noise, open_over};

/// Encrypts the archives of a bench, each with its own key.
pub fn sealed(bench: &Bench, archives: &[Arc<MemoryArchive>]) -> Vec<Arc<dyn Archive>> {
    let seal = |(archive, key): (&Arc<MemoryArchive>, u8)| {
        let identities = Arc::clone(&bench.around.identities);
        let inner: Arc<dyn Archive> = Arc::clone(archive) as Arc<dyn Archive>;
        Arc::new(EncryptedArchive::new(inner, Key::new([key; 32]), identities)) as Arc<dyn Archive>
    };
    archives.iter().zip(1..).map(seal).collect()
}

fn bench() -> (Bench, Arc<Tier>, Arc<fslab_tier::TierFs>) {
    let settings = Settings { copies: 2, ..Settings::of(TIER) };
    let bench = Bench::with(Arc::new(MemFs::default()), settings, 2);
    let archives = sealed(&bench, &bench.archives);
    let (settings, catalogue) = (bench.tier.settings(), Catalogue::in_memory().unwrap());
    let (tier, fs) = open_over(&bench.lower, settings, archives, catalogue, &bench.around);
    (bench, tier, fs)
}

fn do_all(tier: &Arc<Tier>, command: &Command) {
    let mut tell = |event| {
        assert!(!matches!(event, Event::Problem { .. }), "{event:?}");
        true
    };
    execute(tier, command, &own_request(), &mut tell).unwrap();
}

fn populate(client: &Client<'_>) {
    for number in 0..6 {
        let ino = client.file(Ino::ROOT, format!("small{number}"), &noise(number, 900)).unwrap();
        client.setxattr(ino, "user.colour", b"green").unwrap();
    }
    client.file(Ino::ROOT, "large", &noise(9, 3 * MIB + 5)).unwrap();
}

fn away(tier: &Arc<Tier>) {
    let all = || vec![Vec::new()];
    do_all(tier, &Command::Archive { paths: all(), rate: 0, bundled: None });
    do_all(tier, &Command::Tree);
    do_all(tier, &Command::Release { paths: all(), keep_bytes: 0 });
}

#[test]
fn encrypted_files_are_recalled_by_range() {
    let (bench, tier, fs) = bench();
    let client = Client::new(&*fs);
    populate(&client);
    let expected = picture(&*fs);
    away(&tier);
    let before = bench.bytes_recalled();
    let large = client.lookup(Ino::ROOT, "large").unwrap().ino;
    let file = client.open(large, OpenMode::empty()).unwrap();
    assert!(file.read(3 * MIB, 5).unwrap() == noise(9, 3 * MIB + 5)[3 * MIB as usize..]);
    file.close().unwrap();
    let read = bench.bytes_recalled() - before;
    assert!(read < MIB, "{read} bytes for the last block of five");
    assert_eq!(picture(&*fs), expected);
    let scrubbed = tier.scrub(&own_request()).unwrap();
    // 14 copies of files and 2 of the archived tree.
    assert_eq!((scrubbed.copies, scrubbed.repaired, scrubbed.damaged.len()), (14 + 2, 0, 0));
}

/// A repaired copy is encrypted again, with the key of the archive that it is written to.
#[test]
fn a_damaged_copy_is_repaired_from_an_archive_with_another_key() {
    let (bench, tier, fs) = bench();
    let client = Client::new(&*fs);
    populate(&client);
    let expected = picture(&*fs);
    away(&tier);
    bench.archives[0].damage(1);
    bench.archives[0].damage(MIB as usize);
    let scrubbed = tier.scrub(&own_request()).unwrap();
    // Damaged copies of the archived tree are only reported.
    assert_eq!(scrubbed.damaged.len(), 1, "{scrubbed:?}");
    assert!(scrubbed.damaged[0].starts_with("an archived tree: "), "{scrubbed:?}");
    assert!(scrubbed.repaired > 0);
    bench.archives[1].faults().reads_fail.store(true, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(picture(&*fs), expected);
}

/// Archives files of 20 KiB in one bundle of several chunks; returns its container.
fn large_bundle(bench: &Bench, tier: &Arc<Tier>, fs: &dyn FileSystem) -> Id {
    let client = Client::new(fs);
    for number in 0..11 {
        client.file(Ino::ROOT, format!("file{number}"), &noise(number, 20 << 10)).unwrap();
    }
    do_all(tier, &Command::Archive { paths: vec![Vec::new()], rate: 0, bundled: None });
    let ino = client.lookup(Ino::ROOT, "file0").unwrap().ino;
    let known = Marks::Trusted.read(&*bench.lower, ino).unwrap().unwrap();
    known.location().container
}

/// Returns an offset within a chunk of an encrypted container.
pub fn in_chunk(number: u64) -> u64 {
    56 + number * ((64 << 10) + 16) + 1000
}

/// Whole chunks are damaged, and each is intact in one of the archives.
#[test]
fn each_chunk_is_repaired_from_an_intact_copy() {
    let (bench, tier, fs) = bench();
    let container = large_bundle(&bench, &tier, &*fs);
    bench.archives[0].damage_at(container, in_chunk(0));
    bench.archives[1].damage_at(container, in_chunk(2));
    let scrubbed = tier.scrub(&own_request()).unwrap();
    assert_eq!(scrubbed.damaged, Vec::<String>::new());
    assert_eq!(
        scrubbed.repaired, 2,
        "repairing one file of a chunk also repairs the other files in it"
    );
    assert_eq!(tier.scrub(&own_request()).unwrap().repaired, 0);
}

/// A damaged head makes the whole container unreadable. It is repaired except for the parts that
/// the other copy lacks.
#[test]
fn parts_intact_in_one_archive_are_repaired_although_others_are_lost() {
    let (bench, tier, fs) = bench();
    let container = large_bundle(&bench, &tier, &*fs);
    bench.archives[0].damage_at(container, 30);
    bench.archives[1].damage_at(container, in_chunk(1));
    tier.scrub(&own_request()).unwrap();
    let scrubbed = tier.scrub(&own_request()).unwrap();
    assert_eq!(scrubbed.repaired, 0);
    // In each archive, the lost 64 KiB overlap three to five files of 20 KiB.
    let count = scrubbed.damaged.len();
    assert!((2 * 3..=2 * 5).contains(&count), "{:?}", scrubbed.damaged);
}

#[test]
fn flipped_bytes_are_never_shown() {
    let (bench, tier, fs) = bench();
    let client = Client::new(&*fs);
    populate(&client);
    away(&tier);
    for archive in &bench.archives {
        archive.faults().flips.store(true, std::sync::atomic::Ordering::SeqCst);
    }
    let large = client.lookup(Ino::ROOT, "large").unwrap().ino;
    assert_eq!(client.contents(large).unwrap_err().errno(), Errno::IO);
    for archive in &bench.archives {
        archive.faults().flips.store(false, std::sync::atomic::Ordering::SeqCst);
    }
    assert!(client.contents(large).unwrap() == noise(9, 3 * MIB + 5));
}

#[test]
fn tree_is_rebuilt_from_an_encrypted_archive_and_its_key() {
    let (bench, tier, fs) = bench();
    populate(&Client::new(&*fs));
    let expected = picture(&*fs);
    away(&tier);
    Client::new(&*fs).file(Ino::ROOT, "late", b"after the tree").unwrap();
    do_all(&tier, &Command::Archive { paths: vec![Vec::new()], rate: 0, bundled: None });
    let rebuilt = |archives: Vec<Arc<dyn Archive>>| {
        let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
        Marks::Trusted.write_tree(&*lower, &TreeMark::of(TIER)).unwrap();
        let (catalogue, request) = (Catalogue::in_memory().unwrap(), own_request());
        let around = &bench.around;
        let report = rebuild::rebuild(
            rebuild::Options::default(),
            &lower,
            &archives,
            &catalogue,
            (around, TIER),
            &request,
        );
        let (_tier, fs) =
            open_over(&lower, &Settings::of(TIER), archives, catalogue, &bench.around);
        (report.unwrap(), picture(&*fs))
    };
    let copies: Vec<_> = bench.archives.iter().map(|archive| Arc::new(archive.fork())).collect();
    let (report, found) = rebuilt(sealed(&bench, &copies[..1]));
    assert_eq!((report.files, report.younger, &report.problems[..]), (7, 1, &[][..]));
    let old: Vec<_> = found.into_iter().filter(|line| !line.starts_with("/late ")).collect();
    assert_eq!(old, expected);
    // Without a key nothing is readable.
    let raw = copies.iter().map(|archive| Arc::clone(archive) as Arc<dyn Archive>).collect();
    let (report, found) = rebuilt(raw);
    assert_eq!((report.files, report.younger, found.len()), (0, 0, 0));
}

/// Each archive may have its own key. A given key is used only for archives that it fits.
#[test]
fn given_key_replaces_only_the_key_file_of_its_own_archive() {
    let scratch = tempfile::tempdir().unwrap();
    let of = |name: &str| scratch.path().join(name);
    for (name, byte) in [("one.key", 1), ("two.key", 2)] {
        Key::new([byte; 32]).write(&of(name)).unwrap();
    }
    let bench = Bench::new();
    let tree = MemFs::default();
    let mut home = home_of(&tree, &of("home"), &of("one"), Some(of("one.key")), &bench).unwrap();
    home.attach(&of("two").into(), Id([9; 16]), Some(of("two.key"))).unwrap();
    std::fs::rename(of("one.key"), of("moved.key")).unwrap();
    let opened = |home: &Home| {
        let archives = home.archives(&Purpose::Write(None), &bench.around).unwrap();
        archives.iter().filter(|archive| archive.why_unavailable().is_none()).count()
    };
    assert_eq!(opened(&home), 1);
    home.key = Some(of("moved.key"));
    assert_eq!(opened(&home), 2);
}

/// Somebody with write access to an encrypted archive must not be able to replace it unnoticed by
/// an unencrypted one.
#[test]
fn rebuild_with_a_key_requires_an_encrypted_archive() {
    let scratch = tempfile::tempdir().unwrap();
    let of = |name: &str| scratch.path().join(name);
    Key::new([1; 32]).write(&of("key")).unwrap();
    let bench = Bench::new();
    home_of(&MemFs::default(), &of("home"), &of("plain"), None, &bench).unwrap();
    let again = |keys: &[PathBuf]| {
        let remains =
            SurvivingArchives::open(&[of("plain").into()], keys, None, &bench.around.identities)?;
        Home::again(&of("again"), &MemFs::default(), &remains, &bench.around)
    };
    let refused = again(&[of("key")]).unwrap_err().to_string();
    assert!(refused.contains("no archive is marked as encrypted"), "{refused}");
    again(&[]).unwrap();
}

fn wish(archive: &Path, key: Option<PathBuf>) -> TierDescription {
    std::fs::create_dir_all(archive).unwrap();
    let archives = vec![archive.into()];
    TierDescription { bundled_bytes: 0, keep_seconds: 0, ..TierDescription::usual(archives, key) }
}

fn home_of(
    tree: &MemFs,
    home: &Path,
    archive: &Path,
    key: Option<PathBuf>,
    bench: &Bench,
) -> fslab_tier::Result<Home> {
    Home::init(home, tree, &wish(archive, key), &bench.around)
}
