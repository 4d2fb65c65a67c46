//! Long commands report results at once, and their progress.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fslab_tier::command::{Command, Event, execute};
use fslab_tier::stored::Marks;
use fslab_tier::{Error, Result, Settings, own_request};
use fslab_vfs::{Ino, MemFs, XattrMode};
use fslab_vfs_testing::client::Client;

use crate::bundles::do_all;
use crate::support::{Bench, Hands, MIB, TIER, noise};

const MINUTE: Duration = Duration::from_secs(60);

/// Makes five offline files, with a clock that the test moves.
fn bench() -> (Bench, Arc<Hands>) {
    let hands = Arc::new(Hands::default());
    let bench = Bench::by_clock(Arc::new(MemFs::default()), Settings::of(TIER), 1, hands.clone());
    for number in 0..5 {
        bench.offline(&bench.client(), &format!("file{number}"), &noise(800 + number, MIB));
    }
    (bench, hands)
}

fn told(
    bench: &Bench,
    command: &Command,
    tell: &mut dyn FnMut(&Event) -> bool,
) -> (Result<()>, Vec<Event>) {
    let mut events = Vec::new();
    let mut note = |event| {
        let goes_on = tell(&event);
        events.push(event);
        goes_on
    };
    let done = execute(&bench.tier, command, &own_request(), &mut note);
    (done, events)
}

fn is_problem(event: &Event) -> bool {
    matches!(event, Event::Problem { .. })
}

#[test]
fn scrub_reports_damage_before_it_continues() {
    let (bench, hands) = bench();
    let faults = bench.archives[0].faults();
    faults.flips.store(true, Ordering::SeqCst);
    let mut reads = Vec::new();
    let (done, events) = told(&bench, &Command::Scrub { rate: 0 }, &mut |event| {
        if is_problem(event) {
            reads.push(faults.reads.load(Ordering::SeqCst));
            hands.turn(MINUTE);
        }
        true
    });
    done.unwrap();
    assert!(reads[..5].is_sorted_by(|one, next| one < next), "{reads:?}");
    let so_far = |event: &Event| match event {
        Event::Progress { figures } => Some(figures[0].clone()),
        _ => None,
    };
    let figures: Vec<_> = events.iter().filter_map(so_far).collect();
    assert_eq!((figures.len(), &figures[0]), (5, &("copies_verified".to_owned(), 1)), "{events:?}");
    let Some(Event::Total { figures }) = events.last() else { panic!("{events:?}") };
    assert_eq!(figures[2], ("damaged".to_owned(), 5));

    let before = faults.reads.load(Ordering::SeqCst);
    let (done, events) = told(&bench, &Command::Scrub { rate: 0 }, &mut |_| false);
    assert!(matches!(done, Err(Error::Interrupted)) && events.len() == 1);
    assert!(faults.reads.load(Ordering::SeqCst) - before < reads[1], "nobody listens any more");
}

#[test]
fn a_scrub_keeps_to_its_rate() {
    let (bench, hands) = bench();
    std::thread::scope(|scope| {
        let scrub = Command::Scrub { rate: MIB };
        let bench = &bench;
        let scrubbing = scope.spawn(move || told(bench, &scrub, &mut |_| true).0.unwrap());
        let mut turned = Duration::ZERO;
        while !scrubbing.is_finished() {
            std::thread::sleep(Duration::from_millis(10));
            hands.turn(Duration::from_millis(250));
            turned += Duration::from_millis(250);
        }
        // The first piece passes at once.
        assert!(turned >= Duration::from_secs(4), "{turned:?}");
    });
}

#[test]
fn scan_reports_damage_while_it_walks() {
    let (bench, _hands) = bench();
    let below = Client::new(&*bench.lower);
    for name in ["file1", "file2"] {
        let ino = below.lookup(Ino::ROOT, name).unwrap().ino;
        let mark = Marks::Trusted.residency_name();
        let mode = XattrMode::empty();
        bench.lower.setxattr(&own_request(), ino, mark.as_ref(), b"no mark", mode).unwrap();
    }
    let (done, events) = told(&bench, &Command::Scan, &mut |event| !is_problem(event));
    assert!(matches!(done, Err(Error::Interrupted)), "{events:?}");
    assert_eq!(events.len(), 1);
    assert!(
        bench.tier.catalogue().is_in_doubt().unwrap(),
        "the interrupted scan counts as complete"
    );
}

#[test]
fn scan_finds_any_number_of_removed_files() {
    let bench = Bench::new();
    let client = bench.client();
    for number in 0..1200 {
        client.file(Ino::ROOT, format!("{number}"), b"small").unwrap();
    }
    do_all(&bench.tier, &mut |_| {});
    let below = Client::new(&*bench.lower);
    for number in 0..1200 {
        below.unlink(Ino::ROOT, format!("{number}")).unwrap();
    }
    assert_eq!(bench.tier.scan(&own_request()).unwrap().unneeded, 1200);
    assert_eq!(bench.tier.scan(&own_request()).unwrap().unneeded, 0);
}
