//! Tests that unreadable files are not treated as missing, so that their objects are kept.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fslab_tier::archive::{Archive, Key, Purpose};
use fslab_tier::catalogue::{ObjectRow, ObjectState};
use fslab_tier::home::{Home, TierDescription};
use fslab_tier::stored::Marks;
use fslab_tier::{Id, Program, Programs, own_request, rebuild};
use fslab_vfs::{Entry, Errno, FileSystem, Ino, MemFs, Name, Request};
use parking_lot::Mutex;

use crate::expiry::seen_by_no_scan;
use crate::support::{Bench, MIB, noise};

/// The parts of a tree that fail with EIO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// The xattrs of files.
    Xattrs,
    /// The lookup of names.
    Names,
}

/// A tree with a part that can't be read for a while.
#[derive(Default)]
struct Flaky {
    memory: MemFs,
    broken: Mutex<Option<Broken>>,
}

impl Flaky {
    fn check(&self, part: Broken) -> fslab_vfs::Result<()> {
        if *self.broken.lock() == Some(part) { Err(Errno::IO.into()) } else { Ok(()) }
    }
}

impl FileSystem for Flaky {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.memory)
    }

    fn lookup(&self, request: &Request, parent: Ino, name: Name<'_>) -> fslab_vfs::Result<Entry> {
        self.check(Broken::Names)?;
        self.memory.lookup(request, parent, name)
    }

    fn getxattr(&self, request: &Request, ino: Ino, name: &OsStr) -> fslab_vfs::Result<Vec<u8>> {
        self.check(Broken::Xattrs)?;
        self.memory.getxattr(request, ino, name)
    }
}

const CONTENTS: u64 = 71;

/// Makes an offline file that is recorded in the catalogue as removed long ago.
fn said_to_be_gone() -> (Arc<Flaky>, Bench, Ino) {
    let lower = Arc::new(Flaky::default());
    let bench = Bench::over(lower.clone());
    let ino = bench.offline(&bench.client(), "file", &noise(CONTENTS, MIB));
    // After this scan, the catalogue is no longer in doubt.
    bench.tier.scan(&own_request()).unwrap();
    let mut rows = Vec::new();
    let mut keep = |row: ObjectRow| {
        rows.push(ObjectRow { state: ObjectState::Removed, ..row });
        Ok(())
    };
    bench.tier.catalogue().for_each(&mut keep).unwrap();
    bench.tier.catalogue().put(&rows).unwrap();
    seen_by_no_scan(&bench);
    bench.dates.0.store(31 * 24 * 3600, Ordering::SeqCst);
    (lower, bench, ino)
}

#[test]
fn objects_that_an_unreadable_file_may_name_are_kept() {
    for broken in [Broken::Xattrs, Broken::Names] {
        let (lower, bench, ino) = said_to_be_gone();
        *lower.broken.lock() = Some(broken);
        let expired = bench.tier.expire(&own_request()).unwrap();
        *lower.broken.lock() = None;
        assert_eq!((expired.objects, expired.containers), (0, 0), "{broken:?}");
        assert!(bench.client().contents(ino).unwrap() == noise(CONTENTS, MIB), "{broken:?}");
    }
}

#[test]
fn objects_that_a_damaged_residency_may_name_are_kept() {
    let (_, bench, ino) = said_to_be_gone();
    let whole = bench.below().getxattr(ino, Marks::Trusted.residency_name()).unwrap();
    let mut damaged = whole.clone();
    damaged[20] ^= 1;
    bench.below().setxattr(ino, Marks::Trusted.residency_name(), &damaged).unwrap();
    assert_eq!(bench.tier.expire(&own_request()).unwrap().objects, 0);
    bench.below().setxattr(ino, Marks::Trusted.residency_name(), &whole).unwrap();
    assert!(bench.client().contents(ino).unwrap() == noise(CONTENTS, MIB));
}

/// An archived tree without the versions of files would in time replace the trees that have them.
#[test]
fn no_tree_is_archived_while_a_residency_is_unreadable() {
    let lower = Arc::new(Flaky::default());
    let bench = Bench::over(lower.clone());
    bench.offline(&bench.client(), "file", &noise(CONTENTS, MIB));
    *lower.broken.lock() = Some(Broken::Xattrs);
    let error = bench.tier.archive_tree(&own_request()).unwrap_err().to_string();
    assert!(error.starts_with("file: "), "{error}");
    let archive = Arc::clone(&bench.archives[0]) as Arc<dyn Archive>;
    assert_eq!(rebuild::trees(&archive).unwrap().len(), 0);
    *lower.broken.lock() = None;
    bench.tier.archive_tree(&own_request()).unwrap();
    assert_eq!(rebuild::trees(&archive).unwrap().len(), 1);
}

/// Users edit the settings file, for example to change the number of copies.
#[test]
fn invalid_settings_are_refused_with_a_line_number() {
    let scratch = tempfile::tempdir().unwrap();
    let home = scratch.path().join("home");
    let wish = TierDescription::usual(vec![scratch.path().join("archive").into()], None);
    Home::init(&home, &MemFs::default(), &wish, &Bench::new().around).unwrap();
    let path = home.join("tier.toml");
    let before = std::fs::read_to_string(&path).unwrap();
    for (key, value, said) in [
        ("version", "9", "line 1: version 9 is not supported"),
        ("copies", "0", "line 3: copies must be at least 1"),
        ("copies", "2", "line 3: copies is 2, but only 1 [[archive]] tables accept copies"),
        ("zstd_level", "20", "line 4: zstd_level must be from 0 (no compression) to 19"),
        ("zstd_level", "-1", "line 4: zstd_level must be from 0"),
        ("bundled_bytes", "2000000", "line 5: bundled_bytes must be at most 1 MiB"),
    ] {
        let with = |line: &str| match line.split_once(" = ") {
            Some((name, _)) if name == key => format!("{key} = {value}\n"),
            _ => format!("{line}\n"),
        };
        let after: String = before.lines().map(with).collect();
        std::fs::write(&path, after).unwrap();
        let refused = Home::read(&home).unwrap_err().to_string();
        assert!(refused.contains(said), "{refused}");
    }
    std::fs::write(&path, before).unwrap();
    Home::read(&home).unwrap();
}

#[test]
fn invalid_deny_list_entry_is_refused_with_its_line_number() {
    struct NoPrograms;
    impl Programs for NoPrograms {
        fn of(&self, _: u32) -> Option<Program> {
            None
        }
    }
    let scratch = tempfile::tempdir().unwrap();
    let home = scratch.path().join("home");
    let wish = TierDescription::usual(vec![scratch.path().join("archive").into()], None);
    Home::init(&home, &MemFs::default(), &wish, &Bench::new().around).unwrap();
    let path = home.join("tier.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let comment = "# Programs to deny:";
    std::fs::write(&path, format!("{comment}\n\ndeny = ['bin/updatedb']\n{text}")).unwrap();
    let refused = Home::read(&home).unwrap().deny(Arc::new(NoPrograms)).unwrap_err().to_string();
    assert!(refused.contains("line 3: 'bin/updatedb'"), "{refused}");
}

/// TOML can't contain paths that are not UTF-8. A partly written settings file would be mistaken
/// for a home.
#[test]
fn settings_that_toml_cannot_hold_are_refused_before_any_change() {
    let scratch = tempfile::tempdir().unwrap();
    let of = |name: &[u8]| scratch.path().join(OsStr::from_bytes(name));
    let wish = |key| TierDescription::usual(vec![of(b"archive").into()], key);
    let around = Bench::new().around;
    let init = |key| Home::init(&of(b"home"), &MemFs::default(), &wish(key), &around);
    let key = Some(of(b"key\xff"));
    Key::new([1; 32]).write(&of(b"key\xff")).unwrap();
    let refused = init(key.clone()).unwrap_err().to_string();
    assert!(refused.contains("home/tier.toml: can't be written"), "{refused}");
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1, "the key");
    let mut home = init(None).unwrap();
    assert!(home.attach(&of(b"second").into(), Id([9; 16]), key).is_err());
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 3);
    // The existing settings are unchanged.
    assert_eq!(Home::read(&of(b"home")).unwrap().description.archives.len(), 1);
}

/// A URL is ASCII, so TOML can contain the URL of any path.
#[test]
fn home_stores_non_utf8_archive_paths_as_urls() {
    let scratch = tempfile::tempdir().unwrap();
    let of = |name: &[u8]| scratch.path().canonicalize().unwrap().join(OsStr::from_bytes(name));
    let (lower, around) = (MemFs::default(), Bench::new().around);
    let [first, second] = [b"fi rst\xff%41".as_slice(), b"second\n'\"\\"].map(&of);
    let wish = TierDescription::usual(vec![first.clone().into()], None);
    let mut home = Home::init(&of(b"home"), &lower, &wish, &around).unwrap();
    home.attach(&second.clone().into(), Id([9; 16]), None).unwrap();
    let text = std::fs::read_to_string(of(b"home").join("tier.toml")).unwrap();
    assert!(text.contains("/fi%20rst%FF%2541\""), "{text}");
    assert!(text.contains("/second%0A'%22%5C\""), "{text}");
    let home = Home::read(&of(b"home")).unwrap();
    let places = home.description.archives.iter().map(|one| one.address.local_path().unwrap());
    assert_eq!(places.collect::<Vec<_>>(), [first, second]);
    let archives = home.archives(&Purpose::Write(None), &around).unwrap();
    assert!(archives.iter().all(|archive| archive.why_unavailable().is_none()));
}

/// Homes made before archives had URLs contain a path, which is used literally.
#[test]
fn plain_path_of_an_earlier_home_is_read_literally() {
    let scratch = tempfile::tempdir().unwrap();
    let of = |name: &str| scratch.path().join(name);
    let (lower, around) = (MemFs::default(), Bench::new().around);
    let wish = TierDescription::usual(vec![of("a%20b").into()], None);
    Home::init(&of("home"), &lower, &wish, &around).unwrap();
    let settings = of("home").join("tier.toml");
    let text = std::fs::read_to_string(&settings).unwrap();
    let (url, path) = (format!("dir:{}", of("a%2520b").display()), of("a%20b"));
    let line = |name: &str, value: &str| format!("{name} = \"{value}\"\n");
    assert!(text.contains(&line("address", &url)), "{text}");
    for earlier in [line("path", path.to_str().unwrap()), line("address", path.to_str().unwrap())] {
        std::fs::write(&settings, text.replace(&line("address", &url), &earlier)).unwrap();
        let mut home = Home::read(&of("home")).unwrap();
        assert_eq!(home.description.archives[0].address.local_path().unwrap(), path);
        let archives = home.archives(&Purpose::Read, &around).unwrap();
        assert!(archives.iter().all(|archive| archive.why_unavailable().is_none()));
        drop(archives);
        // Once the settings are saved again, they contain the URL.
        home.ask_for_copies(1).unwrap();
        assert_eq!(std::fs::read_to_string(&settings).unwrap(), text);
    }
    std::fs::write(&settings, text.replace(&url, "s3://x")).unwrap();
    let refused = Home::read(&of("home")).unwrap_err().to_string();
    let told = "tier.toml, line 10: archive 's3://x': unknown kind of archive; known kinds: dir";
    assert!(refused.ends_with(told), "{refused}");
}
