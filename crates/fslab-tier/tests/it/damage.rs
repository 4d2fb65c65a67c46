//! One bit of an archive is flipped. No read returns wrong bytes, and the next scrub reports the
//! damage. All bytes are readable once the bit is flipped back.

use std::collections::BTreeMap;
use std::sync::Arc;

use fslab_tier::archive::{Archive, Container, ContainerKind};
use fslab_tier::catalogue::Catalogue;
use fslab_tier::command::{Command, Event, execute};
use fslab_tier::{Settings, Tier, TierFs, own_request};
use fslab_vfs::{Errno, Ino, MemFs};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::environment::{number, seed};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::encryption::sealed;
use crate::support::{Bench, TIER, noise, open_over};

/// Default number of flipped bits; the environment variable `FSLAB_FLIPS` overrides it.
const FLIPS: u64 = 120;
const KIB: u64 = 1 << 10;

fn do_all(tier: &Arc<Tier>, command: &Command) {
    let mut tell = |event| {
        assert!(!matches!(event, Event::Problem { .. }), "{event:?}");
        true
    };
    execute(tier, command, &own_request(), &mut tell).unwrap();
}

fn release_all(tier: &Arc<Tier>) {
    do_all(tier, &Command::Release { paths: vec![Vec::new()], keep_bytes: 0 });
}

/// Small files, which are bundled, and larger ones with incompressible bytes, text and a hole.
fn populate(client: &Client<'_>) -> BTreeMap<Ino, Vec<u8>> {
    let small = (0..12).map(|number| (format!("small{number}"), noise(number, 5 * KIB)));
    let text = b"the same line in each place\n".repeat(12_000);
    let sparse = [noise(20, 70 * KIB), vec![0; 400 << 10], noise(21, 70 * KIB)].concat();
    let large = [("noise", noise(22, 600 * KIB)), ("text", text), ("sparse", sparse)];
    let large = large.into_iter().map(|(name, content)| (name.to_owned(), content));
    let make = |(name, content): (String, Vec<u8>)| {
        (client.file(Ino::ROOT, name, &content).unwrap(), content)
    };
    small.chain(large).map(make).collect()
}

/// Reads all files while a bit is flipped. Returns how many could not be read.
fn unreadable(client: &Client<'_>, files: &BTreeMap<Ino, Vec<u8>>, told: &str) -> usize {
    let is_unreadable = |(ino, expected): &(&Ino, &Vec<u8>)| match client.contents(**ino) {
        Ok(found) => {
            assert!(found == **expected, "{told}: {ino:?}: wrong bytes");
            false
        }
        Err(error) => {
            assert_eq!(error.errno(), Errno::IO, "{told}: {ino:?}");
            true
        }
    };
    files.iter().filter(is_unreadable).count()
}

fn flipped_bits_are_found(bench: &Bench, tier: &Arc<Tier>, fs: &Arc<TierFs>) {
    let client = Client::new(&**fs);
    let files = populate(&client);
    do_all(tier, &Command::Archive { paths: vec![Vec::new()], rate: 0, bundled: None });
    release_all(tier);
    let archive = &bench.archives[0];
    let mut containers: Vec<(Container, u64)> = Vec::new();
    let mut add = |id, length| containers.push(((ContainerKind::Files, id), length));
    archive.list(ContainerKind::Files, &mut add).unwrap();
    assert!(containers.len() >= 4, "a bundle and three larger files");
    let (flips, seed) = (number("FSLAB_FLIPS").unwrap_or(FLIPS), seed());
    let mut random = Pcg64::seed_from_u64(seed);
    let (mut by_reads, mut repaired) = (0, 0);
    for _ in 0..flips {
        let (container, length) = containers[random.random_range(0..containers.len())];
        let (offset, mask) = (random.random_range(0..length), 1 << random.random_range(0..8));
        let told = format!("FSLAB_SEED={seed}, {container:?}, byte {offset}, mask {mask:#x}");
        archive.flip(container, offset, mask);
        let scrubbed = tier.scrub(&own_request()).unwrap();
        let failed = unreadable(&client, &files, &told);
        // There is one archive, so a scrub can repair only a list of a bundle, from the bundle's
        // other list.
        let is_repaired = scrubbed.repaired > 0;
        assert!(is_repaired || !scrubbed.damaged.is_empty(), "{told}: not found by a scrub");
        if !is_repaired {
            archive.flip(container, offset, mask);
        }
        by_reads += u64::from(failed > 0);
        repaired += u64::from(is_repaired);
        assert_eq!(unreadable(&client, &files, &told), 0, "{told}: after the repair");
        release_all(tier);
    }
    println!("{flips} flips: {by_reads} made reads fail, {repaired} were repaired");
    // Not every flip makes a read fail, because small objects that were read before are cached.
    assert!(by_reads > flips / 3, "{by_reads} of {flips} flips made a read fail");
}

fn settings() -> Settings {
    Settings { bundled: 64 << 10, ..Settings::of(TIER) }
}

#[test]
fn flipped_bit_in_an_archive_is_never_shown_and_found_by_a_scrub() {
    let bench = Bench::with(Arc::new(MemFs::default()), settings(), 1);
    flipped_bits_are_found(&bench, &bench.tier, &bench.fs);
}

#[test]
fn flipped_bit_in_an_encrypted_archive_is_never_shown_and_found_by_a_scrub() {
    let bench = Bench::with(Arc::new(MemFs::default()), settings(), 1);
    let archives = sealed(&bench, &bench.archives);
    let catalogue = Catalogue::in_memory().unwrap();
    let (tier, fs) =
        open_over(&bench.lower, bench.tier.settings(), archives, catalogue, &bench.around);
    flipped_bits_are_found(&bench, &tier, &fs);
}
