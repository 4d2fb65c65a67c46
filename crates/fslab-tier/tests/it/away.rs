//! Archives that are away for a while: not there yet, or gone while they are used.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fslab_tier::archive::away::{LOOK_EVERY, Opener};
use fslab_tier::archive::memory::MemoryArchive;
use fslab_tier::archive::{Archive, AwayArchive};
use fslab_tier::catalogue::Catalogue;
use fslab_tier::{Archived, Error, Id, Settings, Tier, TierFs, own_request};
use fslab_vfs::testing::client::Client;
use fslab_vfs::{Ino, MemFs, OpenMode};

use crate::support::{Bench, Hands, MIB, TIER, noise, open_over};

/// A tier whose first archive is not there when it begins, and whose second one is.
struct Late {
    bench: Bench,
    hands: Arc<Hands>,
    is_there: Arc<AtomicBool>,
    tier: Arc<Tier>,
    fs: Arc<TierFs>,
}

impl Late {
    /// Made while both archives are there, which `fill` fills.
    fn new(settings: Settings, fill: impl FnOnce(&Bench)) -> Self {
        let hands = Arc::new(Hands::default());
        let bench = Bench::by_clock(Arc::new(MemFs::default()), settings, 2, hands.clone());
        fill(&bench);
        bench.tier.shutdown().unwrap();
        let is_there = Arc::new(AtomicBool::new(false));
        let opener = opener(&bench.archives[0], &is_there);
        let known = (Id([1; 16]), "a0".to_owned());
        let (late, problem) = AwayArchive::new(known, opener, hands.clone());
        assert!(problem.is_some());
        let archives: Vec<Arc<dyn Archive>> = vec![Arc::new(late), bench.archives[1].clone()];
        let (settings, catalogue) = (bench.tier.settings(), Catalogue::in_memory().unwrap());
        let (tier, fs) = open_over(&bench.lower, settings, archives, catalogue, &bench.around);
        Self { bench, hands, is_there, tier, fs }
    }

    /// One in which `file` is in the first archive alone.
    fn with_a_file(settings: Settings) -> (Self, Ino) {
        let mut ino = Ino::ROOT;
        let late = Self::new(settings, |bench| {
            ino = bench.offline(&bench.client(), "file", &noise(1, 2 * MIB));
        });
        (late, ino)
    }

    fn client(&self) -> Client<'_> {
        Client::new(&*self.fs)
    }

    fn comes(&self) {
        self.is_there.store(true, Ordering::SeqCst);
        self.hands.turn(LOOK_EVERY);
    }

    fn archive(&self, ino: Ino) -> fslab_tier::Result<Archived> {
        self.tier.archive(ino, b"file", &own_request())
    }

    fn write(&self, ino: Ino, data: &[u8]) {
        let client = self.client();
        client.open(ino, OpenMode::WRITE_ONLY).unwrap().write_all(0, data).unwrap();
    }

    fn containers(&self) -> [usize; 2] {
        [0, 1].map(|number| self.bench.archives[number].containers())
    }
}

fn opener(archive: &Arc<MemoryArchive>, is_there: &Arc<AtomicBool>) -> Opener {
    let (archive, is_there) = (Arc::clone(archive), Arc::clone(is_there));
    Box::new(move || {
        if is_there.load(Ordering::SeqCst) {
            return Ok(archive.clone());
        }
        Err(Error::NoArchive { path: PathBuf::from("/a0"), what: "is not there".to_owned() })
    })
}

fn usual() -> Settings {
    Settings { ahead: 0, ..Settings::of(TIER) }
}

#[test]
fn an_archive_that_comes_later_is_used_without_another_mount() {
    let (late, ino) = Late::with_a_file(usual());
    let states = late.tier.archive_states().unwrap();
    assert_eq!(states[0].away.as_deref(), Some("/a0: is not there"));
    assert_eq!((states[0].is_attached, states[1].is_attached), (false, true));
    late.is_there.store(true, Ordering::SeqCst);
    late.hands.turn(LOOK_EVERY.checked_sub(Duration::from_millis(1)).unwrap());
    assert_eq!(late.tier.archives().len(), 1, "not looked for at every call");
    late.hands.turn(Duration::from_millis(1));
    assert_eq!(late.client().contents(ino).unwrap(), noise(1, 2 * MIB));
    assert!(late.tier.archive_states().unwrap()[0].is_attached);
    // It stays, whatever its place says.
    late.is_there.store(false, Ordering::SeqCst);
    late.hands.turn(LOOK_EVERY);
    assert_eq!(late.tier.archives().len(), 2);
}

#[test]
fn another_archive_in_the_place_of_one_that_is_away_is_not_taken_for_it() {
    let hands = Arc::new(Hands::default());
    let (other, is_there) = (MemoryArchive::new(Id([9; 16]), "other"), Arc::default());
    let opener = opener(&Arc::new(other), &is_there);
    let known = (Id([1; 16]), "a0".to_owned());
    let (archive, _) = AwayArchive::new(known, opener, hands.clone());
    is_there.store(true, Ordering::SeqCst);
    hands.turn(LOOK_EVERY);
    assert!(!archive.look());
    let why = archive.why_away().unwrap();
    assert!(why.starts_with("a0 has archive 0909"), "{why}");
}

#[test]
fn an_archive_that_is_away_takes_no_copies_and_the_next_one_does() {
    let late = Late::new(usual(), |_| {});
    let ino = late.client().file(Ino::ROOT, "file", &noise(1, MIB)).unwrap();
    assert!(matches!(late.archive(ino).unwrap(), Archived::Now { .. }));
    assert_eq!(late.containers(), [0, 1]);
    late.comes();
    late.write(ino, b"new");
    assert!(matches!(late.archive(ino).unwrap(), Archived::Now { .. }));
    assert_eq!(late.containers(), [1, 1]);
}

#[test]
fn where_too_many_archives_are_away_nothing_is_begun() {
    let late = Late::new(Settings { copies: 2, ..usual() }, |_| {});
    let ino = late.client().file(Ino::ROOT, "file", &noise(1, MIB)).unwrap();
    let refused = late.archive(ino).unwrap_err().to_string();
    assert!(refused.contains("there are 1; away for now: 0101"), "{refused}");
    assert_eq!(late.containers(), [0, 0]);
    assert!(late.tier.catalogue().pending().unwrap().is_empty());
    late.comes();
    assert!(matches!(late.archive(ino).unwrap(), Archived::Now { .. }));
    assert_eq!(late.containers(), [1, 1]);
}

#[test]
fn what_an_archive_holds_that_is_away_is_neither_damaged_nor_archived_again_nor_released() {
    let fill = |bench: &Bench| {
        let ino = bench.client().file(Ino::ROOT, "file", &noise(1, MIB)).unwrap();
        bench.archive(ino, "file").unwrap();
    };
    let late = Late::new(usual(), fill);
    let ino = late.client().lookup(Ino::ROOT, "file").unwrap().ino;
    let scanned = late.tier.scan(&own_request()).unwrap();
    assert_eq!((scanned.damaged.len(), scanned.unneeded, scanned.missing.len()), (0, 0, 1));
    assert_eq!(late.archive(ino).unwrap(), Archived::Before);
    let refused = late.tier.release(ino, b"file", 0).unwrap_err();
    assert!(matches!(refused, Error::TooFewCopies { found: 0, .. }), "{refused}");
    let scrubbed = late.tier.scrub(&own_request()).unwrap();
    assert_eq!((scrubbed.copies, scrubbed.damaged.len(), scrubbed.missing.len()), (0, 0, 1));
    assert_eq!(late.containers(), [1, 0]);
    late.comes();
    assert_eq!(late.tier.release(ino, b"file", 0).unwrap().bytes, MIB);
    assert_eq!(late.tier.scrub(&own_request()).unwrap().copies, 1);
}

#[test]
fn what_cant_be_removed_from_an_archive_that_is_away_stays_in_the_catalogue() {
    let (late, _) = Late::with_a_file(Settings { keep: Duration::ZERO, ..usual() });
    late.tier.scan(&own_request()).unwrap();
    late.client().unlink(Ino::ROOT, "file").unwrap();
    assert_eq!(late.tier.expire(&own_request()).unwrap().objects, 0);
    late.comes();
    assert_eq!(late.tier.expire(&own_request()).unwrap().objects, 1);
    assert_eq!(late.containers(), [0, 0]);
}

#[test]
fn a_changed_file_whose_other_bytes_are_away_holds_up_no_other() {
    let (late, ino) = Late::with_a_file(usual());
    late.write(ino, &noise(3, MIB));
    assert!(matches!(late.archive(ino), Err(Error::NoCopy { .. })));
}
