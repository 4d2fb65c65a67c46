//! Maintenance of a mount, with a clock that the tests move.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fslab_tier::archive::{Archive, ContainerKind};
use fslab_tier::{Settings, own_request};
use fslab_vfs::{FileSystem, Handle, Ino, MemFs, Request, Result};

use crate::support::{Bench, Hands, MIB, TIER, noise, until};

const HOUR: Duration = Duration::from_secs(3600);
const DAY_SECONDS: u64 = 24 * 3600;

fn bench(policy: &Path, hands: &Arc<Hands>) -> Bench {
    let settings = Settings { policy: Some(policy.to_owned()), ..Settings::of(TIER) };
    Bench::by_clock(Arc::new(MemFs::default()), settings, 1, hands.clone())
}

/// Waits for a number of rounds. Only the test moves the clock, so no further rounds begin.
fn wait_for_rounds(bench: &Bench, count: u64) {
    while bench.counted("tier_rounds") < count {
        std::thread::yield_now();
    }
    assert_eq!(bench.counted("tier_rounds"), count);
}

/// Returns the number of containers of a kind in the archive.
fn kept(bench: &Bench, kind: ContainerKind) -> usize {
    let mut count = 0;
    bench.archives[0].list(kind, &mut |_, _| count += 1).unwrap();
    count
}

fn gauge(bench: &Bench, name: &str) -> Option<u64> {
    let gauges = bench.tier.gauges().unwrap();
    gauges.iter().find(|(found, ..)| *found == name).map(|(.., value)| *value)
}

#[test]
fn maintenance_applies_the_policy_and_deletes_expired_versions() {
    let scratch = tempfile::tempdir().unwrap();
    let policy = scratch.path().join("policy.toml");
    std::fs::write(&policy, "[[rule]]\naction = 'release'\n").unwrap();
    let hands = Arc::new(Hands::default());
    let bench = bench(&policy, &hands);
    bench.tier.start_maintenance(HOUR).unwrap();
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "file", &noise(80, 2 * MIB)).unwrap();
    assert_eq!(gauge(&bench, "tier_tree_age_seconds"), None);
    hands.turn(HOUR);
    wait_for_rounds(&bench, 1);
    assert_eq!(bench.offline_blocks(ino), [0, 1]);
    assert_eq!(kept(&bench, ContainerKind::Tree), 1, "its names, for a rebuild");
    client.unlink(Ino::ROOT, "file").unwrap();
    bench.dates.0.fetch_add(29 * DAY_SECONDS, Ordering::SeqCst);
    assert!(gauge(&bench, "tier_tree_age_seconds").unwrap() >= 29 * DAY_SECONDS);
    hands.turn(HOUR);
    wait_for_rounds(&bench, 2);
    assert_eq!((kept(&bench, ContainerKind::Files), bench.counted("tier_expired_objects")), (1, 0));
    bench.dates.0.fetch_add(DAY_SECONDS, Ordering::SeqCst);
    hands.turn(HOUR);
    wait_for_rounds(&bench, 3);
    assert_eq!((kept(&bench, ContainerKind::Files), bench.counted("tier_expired_objects")), (0, 1));
    assert_eq!(bench.counted("tier_round_problems"), 0);
    bench.tier.shutdown().unwrap();
    hands.turn(HOUR);
    wait_for_rounds(&bench, 3);
}

/// An invalid policy does not prevent the deletion of expired versions. A missing policy is not a
/// problem.
#[test]
fn maintenance_counts_failures_and_does_the_remaining_work() {
    let scratch = tempfile::tempdir().unwrap();
    let policy = scratch.path().join("policy.toml");
    let bench = bench(&policy, &Arc::default());
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "file", &noise(81, MIB)).unwrap();
    bench.archive(ino, "file").unwrap();
    client.unlink(Ino::ROOT, "file").unwrap();
    bench.tier.round(&own_request());
    assert_eq!(bench.counted("tier_round_problems"), 0);
    bench.dates.0.fetch_add(31 * DAY_SECONDS, Ordering::SeqCst);
    std::fs::write(&policy, "[[rule]]\naction = 'burn'\n").unwrap();
    bench.tier.round(&own_request());
    assert_eq!(bench.counted("tier_round_problems"), 1);
    assert_eq!(kept(&bench, ContainerKind::Files), 0);
}

/// A tree that panics on demand when its root directory is listed.
#[derive(Default)]
struct Panicking {
    memory: MemFs,
    panics: AtomicBool,
}

impl FileSystem for Panicking {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.memory)
    }

    fn opendir(&self, request: &Request, ino: Ino) -> Result<Handle> {
        assert!(!self.panics.load(Ordering::SeqCst), "planted by a test");
        self.memory.opendir(request, ino)
    }
}

#[test]
fn panicking_round_counts_as_a_problem_and_later_rounds_run() {
    let (lower, hands) = (Arc::new(Panicking::default()), Arc::new(Hands::default()));
    let bench = Bench::by_clock(lower.clone(), Settings::of(TIER), 1, hands.clone());
    bench.tier.start_maintenance(HOUR).unwrap();
    for (round, panics) in [(1, true), (2, false)] {
        lower.panics.store(panics, Ordering::SeqCst);
        hands.turn(HOUR);
        until(|| bench.counted("tier_rounds") == round);
        assert_eq!(bench.counted("tier_round_problems"), 1);
    }
    assert_eq!(kept(&bench, ContainerKind::Tree), 1);
    bench.tier.shutdown().unwrap();
}
