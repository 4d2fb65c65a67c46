//! Copies that are all damaged, but together contain all bytes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fslab_tier::archive::testing::MemoryArchive;
use fslab_tier::catalogue::Catalogue;
use fslab_tier::stored::{Location, Marks};
use fslab_tier::{Settings, Tier, TierFs, own_request};
use fslab_vfs::{Errno, FileSystem, Ino, MemFs, OpenMode};
use fslab_vfs_testing::client::Client;

use crate::encryption::{in_chunk, sealed};
use crate::support::{Bench, MIB, TIER, copied, noise, open, open_over};

/// Makes a bench with this number of archives, each of which receives a copy.
fn bench_of(copies: u8) -> Bench {
    let settings = Settings { copies: copies.into(), ..Settings::of(TIER) };
    Bench::with(Arc::new(MemFs::default()), settings, copies)
}

/// Reopens the tier of a bench with encrypted archives, each with its own key.
fn encrypted(bench: &Bench, known: &Catalogue) -> (Arc<Tier>, Arc<TierFs>) {
    let (archives, catalogue) = (sealed(bench, &bench.archives), copied(known));
    open_over(&bench.lower, bench.tier.settings(), archives, catalogue, &bench.around)
}

fn contents() -> Vec<u8> {
    noise(300, 3 * MIB + 5)
}

/// Makes an offline file, and returns the location of its object in the archives.
fn away(tier: &Arc<Tier>, fs: &dyn FileSystem) -> (Ino, Location) {
    let ino = Client::new(fs).file(Ino::ROOT, "file", &contents()).unwrap();
    tier.archive(ino, b"file", &own_request()).unwrap();
    tier.release(ino, b"file", 0).unwrap();
    let known = Marks::Trusted.read(&**tier.lower(), ino).unwrap().unwrap();
    (ino, known.location())
}

/// Checks that each archive is sufficient to return the whole file, with an engine that has no
/// cached state.
#[track_caller]
fn each_is_whole(bench: &Bench, known: &Catalogue, is_encrypted: bool) {
    for only in 0..bench.archives.len() {
        let failing = |archive: &Arc<MemoryArchive>, fails| {
            archive.faults().reads_fail.store(fails, Ordering::SeqCst);
        };
        let (tier, fs) = if is_encrypted {
            encrypted(bench, known)
        } else {
            let settings = bench.tier.settings();
            open(&bench.lower, settings, &bench.archives, copied(known), &bench.around)
        };
        for (number, archive) in bench.archives.iter().enumerate() {
            failing(archive, number != only);
        }
        let client = Client::new(&*fs);
        let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
        assert!(client.contents(ino).unwrap() == contents(), "archive {only} alone");
        bench.archives.iter().for_each(|archive| failing(archive, false));
        assert!(tier.release(ino, b"file", 0).unwrap().bytes > 0);
    }
}

/// No copy of the first block is intact. In each copy, two chunks of this block are damaged.
#[test]
fn encrypted_object_is_read_from_chunks_of_several_damaged_copies() {
    let bench = bench_of(3);
    let (tier, fs) = encrypted(&bench, bench.tier.catalogue());
    let (ino, at) = away(&tier, &*fs);
    for (copy, chunks) in [[1, 5, 20], [1, 6, 33], [5, 6, 46]].into_iter().enumerate() {
        for chunk in chunks {
            bench.archives[copy].damage_at(at.container, in_chunk(chunk));
        }
    }
    // Readers need not wait for a scrub.
    let client = Client::new(&*fs);
    assert!(client.contents(ino).unwrap() == contents());
    tier.release(ino, b"file", 0).unwrap();
    let scrubbed = tier.scrub(&own_request()).unwrap();
    assert_eq!((scrubbed.repaired, &scrubbed.damaged[..]), (3, &[][..]));
    let again = tier.scrub(&own_request()).unwrap();
    assert_eq!((again.copies, again.repaired, again.damaged.len()), (3, 0, 0));
    each_is_whole(&bench, tier.catalogue(), true);
}

#[test]
fn chunk_damaged_in_all_copies_is_reported_and_costs_only_its_block() {
    let bench = bench_of(3);
    let (tier, fs) = encrypted(&bench, bench.tier.catalogue());
    let (ino, at) = away(&tier, &*fs);
    for (copy, archive) in bench.archives.iter().enumerate() {
        archive.damage_at(at.container, in_chunk(3));
        archive.damage_at(at.container, in_chunk(20 + copy as u64));
    }
    let scrubbed = tier.scrub(&own_request()).unwrap();
    assert_eq!((scrubbed.repaired, scrubbed.damaged.len()), (0, 3));
    assert!(scrubbed.damaged[0].starts_with("file: archive a0, "), "{:?}", scrubbed.damaged);
    let client = Client::new(&*fs);
    let file = client.open(ino, OpenMode::empty()).unwrap();
    assert_eq!(file.read(MIB - 1, 1).map(drop).unwrap_err().errno(), Errno::IO);
    assert!(file.read(MIB, 2 * MIB as usize).unwrap() == contents()[MIB as usize..][..2 << 20]);
    file.close().unwrap();
}

/// In each copy, different parts are damaged: head, attributes, table, hashes, tail or blocks.
#[test]
fn each_part_of_an_object_is_read_from_an_intact_copy() {
    let bench = bench_of(2);
    let (ino, at) = away(&bench.tier, &*bench.fs);
    let from_end = |bytes: u64| at.offset + at.length - bytes;
    for (copy, places) in [
        [20, 100_000, from_end(72 + 10), from_end(72 + 32 + 30)],
        [100, 2 * MIB + 100_000, 3 * MIB, from_end(20)],
    ]
    .into_iter()
    .enumerate()
    {
        for place in places {
            bench.archives[copy].damage_at(at.container, place);
        }
    }
    assert!(bench.client().contents(ino).unwrap() == contents());
    let scrubbed = bench.tier.scrub(&own_request()).unwrap();
    assert_eq!((scrubbed.repaired, &scrubbed.damaged[..]), (2, &[][..]));
    assert!(bench.tier.release(ino, b"file", 0).unwrap().bytes > 0);
    each_is_whole(&bench, bench.tier.catalogue(), false);
}

/// The cached head of a container does not prove that the head is still intact.
#[test]
fn damage_to_an_already_cached_head_is_detected() {
    let bench = bench_of(2);
    let (tier, fs) = encrypted(&bench, bench.tier.catalogue());
    let (ino, at) = away(&tier, &*fs);
    assert!(Client::new(&*fs).contents(ino).unwrap() == contents());
    bench.archives[0].damage_at(at.container, 30);
    let refused = tier.release(ino, b"file", 0).unwrap_err().to_string();
    assert!(
        refused.contains("archive a0") && refused.contains("head of an encrypted container"),
        "{refused}"
    );
    let scrubbed = tier.scrub(&own_request()).unwrap();
    assert_eq!((scrubbed.repaired, &scrubbed.damaged[..]), (1, &[][..]));
    assert!(tier.release(ino, b"file", 0).unwrap().bytes > 0);
    each_is_whole(&bench, tier.catalogue(), true);
}
