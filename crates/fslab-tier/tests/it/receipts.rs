//! Receipts: how each copy was proved, and when it was last read.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fslab_tier::command::{Command, Event, VersionCopy};
use fslab_tier::{Settings, own_request};
use fslab_vfs::{Ino, MemFs};

use crate::support::{Bench, MIB, TIER, noise, told};

/// A tier whose first archive proves its copies by a checksum. Its second archive does not.
fn bench() -> Bench {
    let settings = Settings { copies: 2, ..Settings::of(TIER) };
    let bench = Bench::with(Arc::new(MemFs::default()), settings, 2);
    bench.archives[0].faults().has_checksums.store(true, Ordering::SeqCst);
    bench
}

/// Returns the copies of the only version, in the order of the archives.
fn copies(bench: &Bench) -> [VersionCopy; 2] {
    let told = told(bench, &Command::Versions { path: Vec::new() });
    let [Event::Version { copies, .. }] = &told[..] else { panic!("{told:?}") };
    let mut copies = copies.clone();
    copies.sort_by(|a, b| a.archive.cmp(&b.archive));
    copies.try_into().unwrap()
}

fn proof_of(copy: &VersionCopy) -> (Option<&str>, bool, bool) {
    (copy.proof.as_deref(), copy.proved.is_some(), copy.read.is_some())
}

#[test]
fn copies_show_their_proof_and_their_last_read() {
    for bundled in [None, Some(2 * MIB)] {
        let bench = bench();
        bench.client().file(Ino::ROOT, "file", &noise(1, MIB)).unwrap();
        let paths = vec![Vec::new()];
        told(&bench, &Command::Archive { paths, rate: 0, bundled });
        let [first, second] = copies(&bench);
        assert_eq!(proof_of(&first), (Some("checksum"), true, false), "was never read");
        assert_eq!(proof_of(&second), (Some("read-back"), true, true), "was read back");

        bench.dates.0.store(1000, Ordering::SeqCst);
        let scrubbed = bench.tier.scrub(&own_request()).unwrap();
        assert_eq!(scrubbed.copies, 2);
        let [later, second_later] = copies(&bench);
        assert_eq!((&later.proof, later.proved), (&first.proof, first.proved));
        assert!(later.read.unwrap() >= first.proved.unwrap() + 1000);
        assert_eq!(second_later.proved, second.proved);
        assert!(second_later.read.unwrap() >= second.read.unwrap() + 1000);
    }
}

#[test]
fn repaired_copy_has_a_new_receipt_and_a_damaged_one_keeps_its_last_read() {
    let bench = bench();
    bench.client().file(Ino::ROOT, "file", &noise(1, MIB)).unwrap();
    told(&bench, &Command::Archive { paths: vec![Vec::new()], rate: 0, bundled: None });
    let before = copies(&bench);
    let faults = bench.archives[1].faults();
    bench.dates.0.store(1000, Ordering::SeqCst);
    faults.reads_fail.store(true, Ordering::SeqCst);
    bench.tier.scrub(&own_request()).unwrap();
    let [first, second] = copies(&bench);
    assert!(first.read > before[1].read);
    assert_eq!(second, before[1], "it could not be read");
    faults.reads_fail.store(false, Ordering::SeqCst);
    bench.archives[0].damage(MIB as usize / 2);
    let scrubbed = bench.tier.scrub(&own_request()).unwrap();
    assert_eq!(scrubbed.repaired, 1);
    let [first, _] = copies(&bench);
    assert_eq!(proof_of(&first), (Some("read-back"), true, true), "it was read back");
    assert!(first.proved > before[0].proved);
}

#[test]
fn receipts_are_unknown_after_the_loss_of_the_catalogue() {
    let mut bench = bench();
    let ino = bench.client().file(Ino::ROOT, "file", &noise(1, MIB)).unwrap();
    bench.archive(ino, "file").unwrap();
    assert_eq!(proof_of(&copies(&bench)[0]), (Some("checksum"), true, false));
    bench.restart();
    bench.tier.scan(&own_request()).unwrap();
    for copy in copies(&bench) {
        assert_eq!(proof_of(&copy), (None, false, false));
    }
    bench.tier.scrub(&own_request()).unwrap();
    for copy in copies(&bench) {
        assert_eq!(proof_of(&copy), (None, false, true));
    }
}
