//! Tests that blocks are recalled ahead of sequential readers only.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fslab_tier::Settings;
use fslab_tier::command::Command;
use fslab_vfs::{Ino, MemFs, OpenMode};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::environment::seed;
use rand::{RngExt, SeedableRng};

use crate::support::{Bench, MIB, TIER, noise, state, told};

const BLOCKS: u64 = 24;
const AHEAD: u64 = 4;

/// Returns the number of requested blocks of the file: those being recalled, and those resident.
fn asked(bench: &Bench) -> u64 {
    // Waiting blocks are counted first, so that a block recalled meanwhile is not missed.
    let waiting = told(bench, &Command::Queue).len() as u64;
    waiting + state(bench, "file").resident_bytes / MIB
}

/// Waits until no recalls are left.
fn settle(bench: &Bench) {
    let until = Instant::now() + Duration::from_secs(60);
    while !told(bench, &Command::Queue).is_empty() {
        assert!(Instant::now() < until, "recalls do not end");
        std::thread::yield_now();
    }
}

fn slow() -> Bench {
    let bench = Bench::new();
    bench.archives[0].faults().latency_ms.store(2, Ordering::SeqCst);
    bench
}

/// The result is the same whether the reader waited for blocks or found them resident.
#[test]
fn blocks_are_requested_ahead_of_a_sequential_reader() {
    let bench = slow();
    let client = bench.client();
    let data = noise(1, BLOCKS * MIB);
    let ino = bench.offline(&client, "file", &data);
    let file = client.open(ino, OpenMode::empty()).unwrap();
    const PIECE: u64 = MIB / 4;
    for piece in 0..BLOCKS * 4 {
        let start = (piece * PIECE) as usize;
        assert!(
            file.read(piece * PIECE, PIECE as usize).unwrap() == data[start..][..PIECE as usize]
        );
        let most = (piece / 4 + 1 + AHEAD).min(BLOCKS);
        assert!(asked(&bench) >= most, "piece {piece}: {} of {most}", asked(&bench));
        if piece % 5 == 0 {
            settle(&bench);
            assert_eq!(asked(&bench), most, "piece {piece}: the window is bounded");
        }
    }
}

/// Each reader has its own position.
#[test]
fn two_readers_of_a_file_do_not_disturb_each_other() {
    let bench = slow();
    let client = bench.client();
    let ino = bench.offline(&client, "file", &noise(2, BLOCKS * MIB));
    let [first, second] = [0, 1].map(|_| client.open(ino, OpenMode::empty()).unwrap());
    let half = BLOCKS / 2;
    second.read(half * MIB, 1000).unwrap();
    second.read(half * MIB + 1000, 1000).unwrap();
    for block in 0..half - AHEAD {
        first.read(block * MIB, MIB as usize).unwrap();
        second.read(half * MIB + 2000 + block, 1).unwrap();
        let of_the_first = (block + 1 + AHEAD).min(half);
        assert!(asked(&bench) > of_the_first + AHEAD, "block {block}");
    }
}

#[test]
fn random_reader_recalls_only_the_blocks_that_it_reads() {
    let seed = seed();
    let bench = slow();
    let client = bench.client();
    let ino = bench.offline(&client, "file", &noise(3, BLOCKS * MIB));
    let file = client.open(ino, OpenMode::empty()).unwrap();
    let mut random = rand_pcg::Pcg64::seed_from_u64(seed);
    let mut read = std::collections::HashSet::new();
    for _ in 0..BLOCKS / 2 {
        // The offset is not at the beginning, where a sequential reader would begin.
        let place = random.random_range(1..BLOCKS * MIB - 1000);
        let end = place + 999;
        read.extend([place / MIB, end / MIB]);
        file.read(place, 1000).unwrap();
    }
    settle(&bench);
    assert_eq!(asked(&bench), read.len() as u64);
}

/// Only reads are considered: a program that writes at various offsets is not a sequential reader.
#[test]
fn no_blocks_are_recalled_ahead_of_a_writer() {
    let bench = slow();
    let client = bench.client();
    let ino = bench.offline(&client, "file", &noise(4, BLOCKS * MIB));
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(5, b"edge").unwrap();
    file.write_all(MIB + 5, b"edge").unwrap();
    settle(&bench);
    assert_eq!(asked(&bench), 2);
}

/// Reads a whole file with a pause before each piece. Returns the seconds, and the number of reads
/// that had to wait.
fn read_in_order(client: &Client<'_>, ino: Ino, pause: Duration) -> (f64, usize) {
    const PIECE: u64 = MIB / 8;
    let begun = Instant::now();
    let file = client.open(ino, OpenMode::empty()).unwrap();
    let has_waited = |piece: &u64| {
        std::thread::sleep(pause);
        let begun = Instant::now();
        assert_eq!(file.read(piece * PIECE, PIECE as usize).unwrap().len() as u64, PIECE);
        begun.elapsed() > Duration::from_millis(5)
    };
    let waits = (0..64 * MIB / PIECE).filter(has_waited).count();
    (begun.elapsed().as_secs_f64(), waits)
}

#[test]
#[ignore = "a measurement: 64 MiB from an archive that takes 20 ms for each read"]
fn measure_sequential_reads_from_a_slow_archive() {
    for (ahead, pause_ms) in [(0, 0), (4, 0), (16, 0), (0, 4), (4, 4)] {
        let settings = Settings { ahead, ..Settings::of(TIER) };
        let bench = Bench::with(Arc::new(MemFs::default()), settings, 1);
        let client = bench.client();
        let ino = bench.offline(&client, "file", &noise(5, 64 * MIB));
        bench.archives[0].faults().latency_ms.store(20, Ordering::SeqCst);
        let (seconds, waits) = read_in_order(&client, ino, Duration::from_millis(pause_ms));
        println!("{ahead} ahead, {pause_ms} ms between reads: {seconds:.2} s, {waits} waits");
    }
}
