//! What archives report about written and deleted containers: proofs by checksum, and containers
//! whose bytes a store retains.

use std::sync::atomic::Ordering;

use fslab_tier::archive::{Proof, Retained};
use fslab_tier::command::{Command, Event};
use fslab_tier::own_request;
use fslab_vfs::Ino;

use crate::bundles::{all_are_right, bundled, expire, release_all, replace};
use crate::support::{Bench, MIB, noise, told};

fn set_checksums(bench: &Bench, are_verified: bool) {
    bench.archives[0].faults().has_checksums.store(are_verified, Ordering::SeqCst);
}

fn set_retention(bench: &Bench, retains: bool) {
    bench.archives[0].faults().retains.store(retains, Ordering::SeqCst);
}

/// Returns the proof and the retained objects that `fslab tier archives` shows.
fn shown(bench: &Bench) -> (Option<Proof>, Option<Retained>) {
    let states = bench.tier.archive_states().unwrap();
    (states[0].proof, states[0].retained.clone())
}

/// A file, a bundle and an archived tree are read back, unless the archive proves them by a
/// checksum. A scrub reads every copy in any case.
#[test]
fn copies_proved_by_a_checksum_are_not_read_back() {
    for (are_verified, expected) in [(true, Proof::Checksum), (false, Proof::ReadBack)] {
        let bench = Bench::new();
        set_checksums(&bench, are_verified);
        assert_eq!(shown(&bench).0, Some(expected));
        let large = bench.client().file(Ino::ROOT, "large", &noise(1, 3 * MIB)).unwrap();
        bench.archive(large, "large").unwrap();
        let read = bench.bytes_recalled();
        assert_eq!(read == 0, are_verified, "{read} bytes of a file");
        bundled(&bench, 10);
        let read = bench.bytes_recalled() - read;
        assert_eq!(read == 0, are_verified, "{read} bytes of a bundle");
        let before = bench.bytes_recalled();
        bench.tier.archive_tree(&own_request()).unwrap();
        let read = bench.bytes_recalled() - before;
        // The headings of archived trees are read in any case.
        assert_eq!(read < 2000, are_verified, "{read} bytes of a tree");
        let before = bench.bytes_recalled();
        told(&bench, &Command::Scrub { rate: 0 });
        let read = bench.bytes_recalled() - before;
        assert!(read > 3 * MIB, "{read} bytes of a scrub");
        release_all(&bench);
        assert!(bench.client().contents(large).unwrap() == noise(1, 3 * MIB));
        all_are_right(&bench, 0..10);
    }
}

/// Returns the figures at the end of a command.
fn figures(events: &[Event]) -> Vec<(String, u64)> {
    let total = events.iter().find_map(|event| match event {
        Event::Total { figures } => Some(figures.clone()),
        _ => None,
    });
    total.unwrap_or_default()
}

/// A retained container counts neither as deleted nor as an error, and its objects do not count as
/// expired. It is deleted later.
#[test]
fn retained_containers_do_not_count_as_deleted() {
    let bench = Bench::new();
    bundled(&bench, 3);
    set_retention(&bench, true);
    replace(&bench, 0..3);
    let expired = expire(&bench);
    assert_eq!((expired.objects, expired.containers, expired.retained), (0, 0, 1));
    assert_eq!(bench.counted("tier_expired_objects"), 0);
    let retained = shown(&bench).1.unwrap();
    assert!(retained.objects == 1 && retained.bytes > 15_000, "{retained:?}");
    // Later expiries neither fail nor count the container again.
    let events = told(&bench, &Command::Expire);
    let expected = [("objects", 0), ("containers", 0), ("retained", 0), ("repacked", 0)];
    assert_eq!(figures(&events), expected.map(|(name, count)| (name.to_owned(), count)));
    assert_eq!(shown(&bench).1.unwrap().objects, 1);
    set_retention(&bench, false);
    expire(&bench);
    assert_eq!(shown(&bench).1, None);
    release_all(&bench);
    all_are_right(&bench, 0..3);
}
