//! Limits for reading and writing archives, with a clock that the tests move.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fslab_tier::command::{Command, execute};
use fslab_tier::queue::{Class, Order, Position};
use fslab_tier::rate_limit::RateLimit;
use fslab_tier::{Settings, own_request};
use fslab_vfs::{Clock, Ino, MemFs};
use parking_lot::Mutex;

use crate::support::{Bench, Hands, MIB, TIER, noise};

const SECOND: Duration = Duration::from_secs(1);

fn bench(settings: Settings) -> (Bench, Arc<Hands>) {
    let hands = Arc::new(Hands::default());
    let settings = Settings { movers: 1, ..settings };
    (Bench::by_clock(Arc::new(MemFs::default()), settings, 1, hands.clone()), hands)
}

#[test]
fn rate_limit_delays_each_piece_until_earlier_ones_fit_the_rate() {
    let hands = Arc::new(Hands::default());
    let clock: Arc<dyn Clock> = hands.clone();
    assert!(RateLimit::new(0, &clock).is_none());
    let limit = RateLimit::new(1000, &clock).unwrap();
    hands.turn(60 * SECOND);
    limit.pass(2500, &own_request()).unwrap();
    hands.turn(Duration::from_millis(2499));
    assert!(!limit.is_open(), "an idle minute is not saved up");
    hands.turn(Duration::from_millis(1));
    assert!(limit.is_open());
    limit.charge(u64::MAX);
    assert!(!limit.is_open());
}

/// A program requests a block after many others were requested in bulk. The next block that the
/// limit allows is the program's.
#[test]
fn waiting_programs_come_before_bulk_recalls() {
    let (bench, hands) = bench(Settings { recall_rate: MIB, ..Settings::of(TIER) });
    let client = bench.client();
    let (all, one) = (noise(90, 4 * MIB), noise(91, MIB));
    let bulk = bench.offline(&client, "bulk", &all);
    let wanted = bench.offline(&client, "wanted", &one);
    let recalled = || bench.counted("tier_recalled_bytes");
    std::thread::scope(|scope| {
        let (paths, range, rate) = (vec![b"bulk".to_vec()], None, 0);
        let command = Command::Recall { paths, range, rate };
        let tier = &bench.tier;
        let asked =
            scope.spawn(move || execute(tier, &command, &own_request(), &mut |_| true).unwrap());
        while recalled() < MIB {
            std::thread::yield_now();
        }
        let reader = scope.spawn(|| bench.client().contents(wanted).unwrap());
        let waits =
            || bench.tier.queue().list().iter().any(|recall| recall.class() == Class::Waiting);
        while !waits() {
            std::thread::yield_now();
        }
        hands.turn(SECOND);
        assert!(reader.join().unwrap() == one);
        assert_eq!(recalled(), 2 * MIB, "nothing else came through");
        while !asked.is_finished() {
            hands.turn(SECOND / 10);
            std::thread::yield_now();
        }
    });
    assert_eq!(bench.offline_blocks(bulk), [0_u64; 0]);
    assert!(client.contents(bulk).unwrap() == all);
}

/// An order that serves the last position first, and notes the positions of its keys.
#[derive(Debug, Default)]
struct Backwards(Mutex<Vec<u64>>);

impl Order for Backwards {
    fn key(&self, position: Position) -> Position {
        self.0.lock().push(position.place);
        Position { place: u64::MAX - position.place, ..position }
    }
}

#[test]
fn recalls_follow_a_custom_order_of_archive_positions() {
    let order = Arc::new(Backwards::default());
    let (bench, _) = bench(Settings { order: order.clone(), ..Settings::of(TIER) });
    let client = bench.client();
    let ino = bench.offline(&client, "file", &noise(93, 5 * MIB));
    let faults = bench.archives[0].faults();
    *faults.stalled.lock() = true;
    std::thread::scope(|scope| {
        let command = Command::Recall { paths: vec![b"file".to_vec()], range: None, rate: 0 };
        let tier = &bench.tier;
        scope.spawn(move || execute(tier, &command, &own_request(), &mut |_| true).unwrap());
        // One recall is running, and all others are waiting to be chosen.
        while faults.blocked.load(Ordering::SeqCst) == 0 || tier.queue().list().len() < 4 {
            std::thread::yield_now();
        }
        order.0.lock().clear();
        faults.resume();
    });
    assert_eq!(bench.offline_blocks(ino), [0_u64; 0]);
    // The queue asks for the key of a served recall when it removes this recall, and again to
    // choose the next one.
    let mut asked = std::mem::take(&mut *order.0.lock());
    asked.dedup();
    let chosen = asked.split_off(1);
    assert_eq!(chosen.len(), 4);
    assert!(chosen.iter().all(|place| place.is_multiple_of(MIB)), "{chosen:?}");
    // The first recall may have begun when others were already queued. The order continues
    // downwards from its position, and then from the highest position.
    let mut rest = chosen.clone();
    rest.sort_unstable_by_key(|place| (*place > asked[0], std::cmp::Reverse(*place)));
    assert_eq!(chosen, rest);
}

#[test]
fn archiving_and_bulk_recalls_respect_their_rate_limits() {
    let (bench, hands) = bench(Settings { archive_rate: 2 * MIB, ..Settings::of(TIER) });
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "file", &noise(92, 3 * MIB)).unwrap();
    let paths = || vec![b"file".to_vec()];
    // Bytes are counted when they are written and when they are read back. Only the last piece
    // causes no wait.
    let taken =
        time_of(&bench, &hands, Command::Archive { paths: paths(), rate: 0, bundled: None });
    assert!(taken >= Duration::from_millis(2400), "{taken:?}");
    client.truncate(ino, 2 * MIB).unwrap();
    let taken =
        time_of(&bench, &hands, Command::Archive { paths: paths(), rate: MIB, bundled: None });
    assert!(taken >= Duration::from_millis(2900), "{taken:?}");
    bench.release(ino, "file").unwrap();
    let recall = Command::Recall { paths: paths(), range: None, rate: MIB };
    let taken = time_of(&bench, &hands, recall);
    assert!(taken >= Duration::from_millis(900), "{taken:?}");
    assert!(client.contents(ino).unwrap() == noise(92, 3 * MIB)[..2 * MIB as usize]);
}

/// Returns how far the clock must be moved before a command ends.
fn time_of(bench: &Bench, hands: &Hands, command: Command) -> Duration {
    let begun_ns = hands.now_ns();
    std::thread::scope(|scope| {
        let tier = &bench.tier;
        let done =
            scope.spawn(move || execute(tier, &command, &own_request(), &mut |_| true).unwrap());
        while !done.is_finished() {
            hands.turn(SECOND / 100);
            std::thread::yield_now();
        }
    });
    Duration::from_nanos(hands.now_ns() - begun_ns)
}
