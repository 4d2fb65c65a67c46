//! Released files show poison in the lower directory instead of zeros, if blocks can be shared.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fslab_tier::catalogue::Catalogue;
use fslab_tier::{Archived, Settings, own_request, poison};
use fslab_vfs::{Errno, FallocateMode, FileSystem, Ino, MemFs, OpenMode, SeekTo, SetAttr, SetTime};
use fslab_vfs_testing::client::File;

use crate::support::{Bench, Cloning, MIB, PAGE, TIER, noise, open};

const PUNCH: FallocateMode = FallocateMode::PUNCH_HOLE.union(FallocateMode::KEEP_SIZE);

fn bench() -> Bench {
    poisoning(Cloning::over(Arc::new(MemFs::default())))
}

fn poisoning(lower: Arc<dyn FileSystem>) -> Bench {
    Bench::with(lower, Settings { poison: true, ..Settings::of(TIER) }, 1)
}

fn text(length: u64) -> Vec<u8> {
    let mut bytes = vec![0; length as usize];
    poison::fill(0, &mut bytes);
    bytes
}

fn is_poisoned(bench: &Bench, ino: Ino) -> bool {
    bench.residency(ino).is_some_and(|known| known.is_poisoned())
}

fn overwritten(mut bytes: Vec<u8>, offset: u64, data: &[u8]) -> Vec<u8> {
    let offset = offset as usize;
    bytes.resize(bytes.len().max(offset + data.len()), 0);
    bytes[offset..offset + data.len()].copy_from_slice(data);
    bytes
}

fn change(bench: &Bench, ino: Ino, deed: impl FnOnce(&File<'_>)) {
    let below = bench.below();
    let file = below.open(ino, OpenMode::READ_WRITE).unwrap();
    deed(&file);
    file.close().unwrap();
}

/// Sizes close to multiples of pages, blocks and sources of poison.
const SIZES: [u64; 11] = [
    1,
    511,
    PAGE - 1,
    PAGE,
    PAGE + 1,
    MIB - 1,
    MIB,
    MIB + 5000,
    3 * MIB + PAGE,
    16 * MIB + 1,
    33 * MIB + 7,
];

#[test]
fn released_file_is_poison_below_to_its_last_byte() {
    for size in SIZES {
        let bench = bench();
        let (client, data) = (bench.client(), noise(10, size));
        let ino = bench.offline(&client, "file", &data);
        let modified = client.attr(ino).unwrap().modified;
        assert!(bench.below().contents(ino).unwrap() == text(size), "{size} bytes");
        assert!(is_poisoned(&bench, ino));
        assert!(client.contents(ino).unwrap() == data, "{size} bytes");
        assert_eq!(bench.below().attr(ino).unwrap().modified, modified);
        bench.tier.shutdown().unwrap();
        assert!(bench.below().contents(ino).unwrap() == data, "{size} bytes");
        assert!(!is_poisoned(&bench, ino) && !bench.is_changed(ino));
    }
}

/// The partial last block of a file is shared with a source of the same length. If the file system
/// refuses this, the block is written.
#[test]
fn release_frees_all_bytes_except_an_unshareable_tail() {
    for (size, clones, tail) in [
        (10 * MIB, u64::MAX, 0),
        (10 * MIB + 100, u64::MAX, 0),
        (100, u64::MAX, 0),
        // One successful call shows that this file system can share blocks.
        (100, 1, 100),
        (PAGE + 100, 2, 100),
    ] {
        let lower = Cloning::refusing(Arc::new(MemFs::default()), clones, Errno::OPNOTSUPP);
        let bench = poisoning(lower);
        let data = noise(11, size);
        let ino = bench.client().file(Ino::ROOT, "file", &data).unwrap();
        bench.archive(ino, "file").unwrap();
        let released = bench.release(ino, "file").unwrap();
        assert_eq!((released.bytes, released.freed), (size, size - tail), "{size} bytes");
        assert!(bench.below().contents(ino).unwrap() == text(size), "{size} bytes");
        assert!(bench.client().contents(ino).unwrap() == data, "{size} bytes");
    }
}

/// If blocks can't be shared, the setting has no effect.
#[test]
fn poison_takes_no_space_where_blocks_cannot_be_shared() {
    let free_bytes = [false, true].map(|poison| {
        let lower = Cloning::refusing(Arc::new(MemFs::default()), 0, Errno::OPNOTSUPP);
        let bench = Bench::with(lower, Settings { poison, ..Settings::of(TIER) }, 1);
        for (number, size) in [MIB, 3 * MIB, 100].into_iter().enumerate() {
            let ino = bench.offline(&bench.client(), &format!("file{number}"), &noise(20, size));
            assert!(!is_poisoned(&bench, ino));
        }
        bench.lower.statfs(&own_request(), Ino::ROOT).unwrap().blocks_free
    });
    assert_eq!(free_bytes[0], free_bytes[1]);
}

/// A change of the lower file, and the expected contents.
struct Deed {
    what: &'static str,
    size: u64,
    below: fn(&File<'_>),
    expected: fn(Vec<u8>) -> Vec<u8>,
}

const DEEDS: [Deed; 12] = [
    Deed { what: "nothing", size: 2 * MIB + 5, below: |_| (), expected: |bytes| bytes },
    Deed {
        what: "writes in the middle of a page",
        size: 3 * MIB + 10,
        below: |file| file.write_all(MIB + 1000, b"HERE").unwrap(),
        expected: |bytes| overwritten(bytes, MIB + 1000, b"HERE"),
    },
    Deed {
        what: "writes a page of zeros",
        size: 2 * MIB,
        below: |file| file.write_all(8192, &[0; 4096]).unwrap(),
        expected: |bytes| overwritten(bytes, 8192, &[0; 4096]),
    },
    Deed {
        what: "writes some zeros",
        size: 2 * MIB,
        below: |file| file.write_all(9000, &[0; 3]).unwrap(),
        expected: |bytes| overwritten(bytes, 9000, &[0; 3]),
    },
    Deed {
        what: "punches a hole",
        size: 2 * MIB,
        below: |file| file.fallocate(MIB - PAGE, 2 * PAGE, PUNCH).unwrap(),
        expected: |bytes| overwritten(bytes, MIB - PAGE, &[0; 2 * PAGE as usize]),
    },
    Deed {
        what: "writes zeros all over",
        size: MIB + 77,
        below: |file| file.write_all(0, &[0; (MIB + 77) as usize]).unwrap(),
        expected: |_| vec![0; (MIB + 77) as usize],
    },
    Deed {
        what: "writes it anew",
        size: 2 * MIB,
        below: |file| {
            file.truncate(0).unwrap();
            file.write_all(0, &[7; 5000]).unwrap();
        },
        expected: |_| vec![7; 5000],
    },
    Deed {
        what: "makes it longer",
        size: MIB + 10,
        below: |file| file.truncate(2 * MIB + 5).map(drop).unwrap(),
        expected: |bytes| overwritten(bytes, 2 * MIB + 4, &[0]),
    },
    Deed {
        what: "makes it shorter and longer",
        size: 2 * MIB,
        below: |file| {
            file.truncate(MIB - 100).unwrap();
            file.truncate(2 * MIB).unwrap();
        },
        expected: |bytes| overwritten(bytes, MIB - 100, &[0; MIB as usize + 100]),
    },
    Deed {
        what: "makes it shorter",
        size: 2 * MIB + 10,
        below: |file| file.truncate(MIB + 1001).map(drop).unwrap(),
        expected: |mut bytes| {
            bytes.truncate(MIB as usize + 1001);
            bytes
        },
    },
    Deed {
        what: "appends",
        size: MIB + 100,
        below: |file| file.write_all(MIB + 100, &[0, 0, 1, 0]).unwrap(),
        expected: |bytes| overwritten(bytes, MIB + 100, &[0, 0, 1, 0]),
    },
    Deed {
        what: "writes where two blocks meet",
        size: 2 * MIB,
        below: |file| file.write_all(MIB - 5200, &[9; 14_000]).unwrap(),
        expected: |bytes| overwritten(bytes, MIB - 5200, &[9; 14_000]),
    },
];

#[test]
fn changes_below_are_distinguished_from_poison_and_kept() {
    for (Deed { what, size, below, expected }, archives_first) in
        DEEDS.into_iter().flat_map(|deed| [(deed.copied(), false), (deed, true)])
    {
        let mut bench = bench();
        let data = noise(12, size);
        let ino = bench.offline(&bench.client(), "file", &data);
        bench.tier.shutdown().unwrap();
        bench.client().tick();
        change(&bench, ino, below);
        bench.restart();
        bench.tier.scan(&own_request()).unwrap();
        let expected = expected(data);
        if archives_first {
            bench.client().contents(ino).map(drop).unwrap();
            bench.archive(ino, "file").unwrap();
            bench.release(ino, "file").unwrap();
            // A block that is a hole is not released.
            let blocks = bench.below().contents(ino).unwrap();
            let mut blocks = blocks.chunks(MIB as usize).zip(expected.chunks(MIB as usize));
            let is_right = |(below, data): (&[u8], &[u8])| {
                below == text(data.len() as u64)
                    || (below == data && data.iter().all(|byte| *byte == 0))
            };
            assert!(blocks.all(is_right), "{what}: released anew");
        }
        assert!(bench.client().contents(ino).unwrap() == expected, "{what}");
        bench.tier.shutdown().unwrap();
        assert!(bench.below().contents(ino).unwrap() == expected, "{what}");
        assert_eq!(bench.is_changed(ino), what != "nothing" && !archives_first, "{what}");
    }
}

impl Deed {
    fn copied(&self) -> Self {
        Self { ..*self }
    }
}

/// A change whose time was set back is found by its bytes.
#[test]
fn change_below_with_its_time_set_back_stays() {
    let mut bench = bench();
    let data = noise(13, 2 * MIB);
    let ino = bench.offline(&bench.client(), "file", &data);
    let modified = bench.below().attr(ino).unwrap().modified;
    bench.tier.shutdown().unwrap();
    change(&bench, ino, |file| file.write_all(PAGE, &[0; 512]).unwrap());
    let back = Some(SetTime::To(modified));
    bench.below().set(ino, &SetAttr { modified: back, ..SetAttr::default() }).unwrap();
    bench.restart();
    assert!(bench.client().contents(ino).unwrap() == overwritten(data, PAGE, &[0; 512]));
    assert!(bench.is_changed(ino));
}

#[test]
fn offline_file_is_changed_and_archived_without_a_recall() {
    let bench = bench();
    let (client, mut data) = (bench.client(), noise(14, 8 * MIB + 10));
    let ino = bench.offline(&client, "file", &data);
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    for (offset, bytes) in [(3 * MIB, vec![0; MIB as usize]), (5 * MIB + 7, b"here".to_vec())] {
        file.write_all(offset, &bytes).unwrap();
        data = overwritten(data, offset, &bytes);
    }
    file.fallocate(6 * MIB, MIB, PUNCH).unwrap();
    data = overwritten(data, 6 * MIB, &[0; MIB as usize]);
    file.close().unwrap();
    assert_eq!(bench.offline_blocks(ino), [0, 1, 2, 4, 7, 8]);
    assert!(matches!(bench.archive(ino, "file").unwrap(), Archived::Now { .. }));
    assert_eq!(bench.offline_blocks(ino), [0, 1, 2, 4, 7, 8]);
    assert!(is_poisoned(&bench, ino));
    bench.release(ino, "file").unwrap();
    assert!(bench.below().contents(ino).unwrap()[..6 * MIB as usize] == text(6 * MIB));
    assert!(client.contents(ino).unwrap() == data);
}

#[test]
fn poison_is_data_to_programs_and_recalled_zeros_are_holes_again() {
    let bench = bench();
    let (client, mut data) = (bench.client(), noise(15, 3 * MIB));
    data[MIB as usize + 8192..2 * MIB as usize].fill(0);
    let ino = client.file(Ino::ROOT, "file", &data).unwrap();
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.fallocate(MIB + 8192, MIB - 8192, PUNCH).unwrap();
    file.close().unwrap();
    bench.archive(ino, "file").unwrap();
    bench.release(ino, "file").unwrap();
    assert!(bench.below().contents(ino).unwrap() == text(3 * MIB));
    let file = client.open(ino, OpenMode::empty()).unwrap();
    assert_eq!(file.seek(0, SeekTo::Hole).unwrap(), 3 * MIB);
    assert!(file.read(MIB, MIB as usize).unwrap() == data[MIB as usize..2 * MIB as usize]);
    assert_eq!(file.seek(MIB, SeekTo::Hole).unwrap(), MIB + 8192);
    assert_eq!(file.seek(MIB + 8192, SeekTo::Data).unwrap(), 2 * MIB);
    file.close().unwrap();
    assert!(client.contents(ino).unwrap() == data);
}

/// Bytes in the archive that equal poison are data.
#[test]
fn file_that_contains_poison_text_survives_release_and_recall() {
    let bench = bench();
    let data = [text(MIB), vec![0; MIB as usize], text(700)].concat();
    let ino = bench.offline(&bench.client(), "file", &data);
    assert!(bench.client().contents(ino).unwrap() == data);
    assert!(!bench.is_changed(ino));
}

#[test]
fn files_released_as_holes_and_as_poison_coexist() {
    let lower = Cloning::refusing(Arc::new(MemFs::default()), 0, Errno::OPNOTSUPP);
    let mut bench = poisoning(lower.clone());
    let data = noise(16, 4 * MIB + 100);
    let holes = bench.offline(&bench.client(), "holes", &data);
    assert!(bench.below().contents(holes).unwrap() == vec![0; data.len()]);
    assert!(!is_poisoned(&bench, holes));
    bench.tier.shutdown().unwrap();
    lower.left.store(u64::MAX, Ordering::SeqCst);
    bench.restart();
    let client = bench.client();
    let poison = bench.offline(&client, "poison", &data);
    assert!(is_poisoned(&bench, poison));
    // Offline blocks remain holes or poison, as before, until the file is completely resident.
    for (ino, name) in [(holes, "holes"), (poison, "poison")] {
        let file = client.open(ino, OpenMode::empty()).unwrap();
        assert!(file.read(MIB, MIB as usize).unwrap() == data[MIB as usize..2 * MIB as usize]);
        file.close().unwrap();
        bench.release(ino, name).unwrap();
        assert_eq!(is_poisoned(&bench, ino), ino == poison);
        assert!(client.contents(ino).unwrap() == data);
        bench.release(ino, name).unwrap();
        assert!(is_poisoned(&bench, ino));
        assert!(bench.below().contents(ino).unwrap() == text(data.len() as u64));
        assert!(client.contents(ino).unwrap() == data);
        assert!(!bench.is_changed(ino));
    }
}

/// The error occurs at the first trial, at the first file, or in the middle of a file.
#[test]
fn refused_clone_leaves_holes_or_the_bytes() {
    for refusal in [Errno::OPNOTSUPP, Errno::XDEV, Errno::INVAL, Errno::NOSPC, Errno::IO] {
        for left in 0..4 {
            let memory: Arc<dyn FileSystem> = Arc::new(MemFs::default());
            let lower = Cloning::refusing(memory, left, refusal);
            let mut bench = poisoning(lower.clone());
            let data = noise(17, 70 * MIB + 5);
            let ino = bench.client().file(Ino::ROOT, "file", &data).unwrap();
            bench.archive(ino, "file").unwrap();
            let released = bench.release(ino, "file");
            let falls_back = left == 0 || (left == 1 && refusal != Errno::IO);
            assert_eq!(released.is_ok(), falls_back, "{refusal:?} after {left}: {released:?}");
            assert_eq!(is_poisoned(&bench, ino), !falls_back);
            bench.tier.shutdown().unwrap();
            bench.restart();
            assert!(bench.client().contents(ino).unwrap() == data, "{refusal:?} after {left}");
            assert!(!bench.is_changed(ino), "{refusal:?} after {left}");
        }
    }
}

#[test]
fn poison_can_be_turned_off() {
    let lower = Cloning::over(Arc::new(MemFs::default()));
    let bench = Bench::with(lower, Settings { poison: false, ..Settings::of(TIER) }, 1);
    let data = noise(18, MIB + 10);
    let ino = bench.offline(&bench.client(), "file", &data);
    assert!(bench.below().contents(ino).unwrap() == vec![0; data.len()]);
    assert!(!is_poisoned(&bench, ino));
    assert!(bench.client().contents(ino).unwrap() == data);
}

/// Readers of a read-only tree see changes made in the lower directory, including zeros.
#[test]
fn read_only_tier_distinguishes_changes_from_poison() {
    let mut bench = bench();
    let data = noise(19, 2 * MIB + 9);
    let ino = bench.offline(&bench.client(), "file", &data);
    bench.tier.shutdown().unwrap();
    change(&bench, ino, |file| file.write_all(2 * PAGE, &[0; PAGE as usize]).unwrap());
    let settings = Settings { read_only: true, poison: true, ..Settings::of(TIER) };
    let catalogue = Catalogue::in_memory().unwrap();
    (bench.tier, bench.fs) =
        open(&bench.lower, &settings, &bench.archives, catalogue, &bench.around);
    let before = bench.below().contents(ino).unwrap();
    let expected = overwritten(data, 2 * PAGE, &[0; PAGE as usize]);
    assert!(bench.client().contents(ino).unwrap() == expected);
    assert!(bench.below().contents(ino).unwrap() == before);
}
