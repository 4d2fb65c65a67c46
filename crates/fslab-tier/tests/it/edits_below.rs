//! Writes to released files in the lower directory, while no engine archives, releases or recalls
//! them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fslab_tier::command::Residence;
use fslab_tier::stored::Residency;
use fslab_tier::{Archived, Settings, own_request};
use fslab_vfs::{
    Errno, FallocateMode, FileSystem, Handle, Ino, MemFs, OpenMode, Request, Result, SeekTo,
};
use fslab_vfs_testing::client::File;

use crate::support::{Bench, Cloning, MIB, TIER, noise, state};

/// A change of the lower file, and the expected contents.
struct Deed {
    what: &'static str,
    size: u64,
    below: fn(&File<'_>),
    expected: fn(Vec<u8>) -> Vec<u8>,
}

fn overwritten(mut bytes: Vec<u8>, offset: usize, data: &[u8]) -> Vec<u8> {
    bytes.resize(bytes.len().max(offset + data.len()), 0);
    bytes[offset..offset + data.len()].copy_from_slice(data);
    bytes
}

/// Contents with zeros at both ends and in between.
fn record() -> Vec<u8> {
    [vec![0; 100], noise(3, 5000), vec![0; 9000], noise(4, 100), vec![0; 7]].concat()
}

const DEEDS: [Deed; 9] = [
    Deed {
        what: "writes in the middle of a page",
        size: 3 * MIB + 10,
        below: |file| file.write_all(MIB + 1000, b"here").unwrap(),
        expected: |bytes| overwritten(bytes, MIB as usize + 1000, b"here"),
    },
    Deed {
        what: "appends",
        size: 2 * MIB + 5000,
        below: |file| file.write_all(2 * MIB + 5000, &record()).unwrap(),
        expected: |bytes| overwritten(bytes, 2 * MIB as usize + 5000, &record()),
    },
    Deed {
        what: "appends to a page",
        size: 100,
        below: |file| file.write_all(100, b"more\n").unwrap(),
        expected: |bytes| overwritten(bytes, 100, b"more\n"),
    },
    Deed {
        what: "writes into a page",
        size: 100,
        below: |file| file.write_all(10, b"here").unwrap(),
        expected: |bytes| overwritten(bytes, 10, b"here"),
    },
    Deed {
        what: "appends blocks",
        size: MIB + 1,
        below: |file| file.write_all(MIB + 1, &noise(5, 2 * MIB)).unwrap(),
        expected: |bytes| overwritten(bytes, MIB as usize + 1, &noise(5, 2 * MIB)),
    },
    Deed {
        what: "writes zeros, which could be those of a reservation or of a power cut",
        size: 2 * MIB,
        below: |file| file.write_all(8192, &[0; 4096]).unwrap(),
        expected: |bytes| bytes,
    },
    Deed {
        what: "writes where two blocks meet",
        size: 2 * MIB,
        below: |file| file.write_all(MIB - 5200, &noise(6, 14_000)).unwrap(),
        expected: |bytes| overwritten(bytes, MIB as usize - 5200, &noise(6, 14_000)),
    },
    Deed { what: "writes it anew", size: 2 * MIB, below: rewrite, expected: |_| record() },
    Deed {
        what: "makes it longer",
        size: MIB + 10,
        below: |file| file.truncate(2 * MIB + 5).map(drop).unwrap(),
        expected: |mut bytes| {
            bytes.resize(2 * MIB as usize + 5, 0);
            bytes
        },
    },
];

fn rewrite(file: &File<'_>) {
    file.truncate(0).unwrap();
    file.write_all(0, &record()).unwrap();
}

/// Changes a released file while no engine runs.
fn behind(bench: &mut Bench, ino: Ino, deed: fn(&File<'_>)) {
    bench.tier.shutdown().unwrap();
    bench.client().tick();
    change(bench, ino, deed);
    bench.restart();
}

fn change(bench: &Bench, ino: Ino, deed: impl FnOnce(&File<'_>)) {
    let below = bench.below();
    let file = below.open(ino, OpenMode::READ_WRITE).unwrap();
    deed(&file);
    file.close().unwrap();
}

#[test]
fn edit_below_the_mount_of_a_released_file_stays() {
    for Deed { what, size, below, expected } in DEEDS {
        let mut bench = Bench::new();
        let data = noise(80, size);
        let ino = bench.offline(&bench.client(), "file", &data);
        behind(&mut bench, ino, below);
        // After this scan, the catalogue is no longer in doubt, as after a clean shutdown.
        bench.tier.scan(&own_request()).unwrap();
        let (client, expected) = (bench.client(), expected(data));
        // Reads the end first, and then everything with another handle.
        let file = client.open(ino, OpenMode::empty()).unwrap();
        let tail = file.read(expected.len() as u64 - 5, 5).unwrap();
        assert!(tail == expected[expected.len() - 5..], "{what}: {tail:?}");
        file.close().unwrap();
        let found = client.contents(ino).unwrap();
        let differs = found.iter().zip(&expected).position(|(one, two)| one != two);
        assert!(found == expected, "{what}: {}, {differs:?}", found.len());
        assert!(bench.is_changed(ino), "{what}");
        assert!(matches!(bench.archive(ino, "file").unwrap(), Archived::Now { .. }));
        bench.release(ino, "file").unwrap();
        assert!(client.contents(ino).unwrap() == expected, "{what}, once more");
    }
}

/// A request for the state of a file neither opens it in the tier nor changes it. A poisoned file
/// has the same states as a file with holes.
#[test]
fn state_of_a_released_file_includes_edits_below_the_mount() {
    type Edit = fn(&File<'_>);
    let edit: Edit = |file| file.write_all(MIB + 1000, b"here").unwrap();
    let append: Edit = |file| file.write_all(2 * MIB, &noise(5, MIB)).unwrap();
    let replace: Edit = |file| file.write_all(0, &noise(9, 2 * MIB)).unwrap();
    let truncate: Edit = |file| file.truncate(0).map(drop).unwrap();
    let cases: [(Edit, Residence, u64); 6] = [
        (|_| {}, Residence::Offline, 0),
        (edit, Residence::PartlyResident, 4),
        (append, Residence::PartlyResident, MIB),
        (rewrite, Residence::Changed, record().len() as u64),
        (replace, Residence::Changed, 2 * MIB),
        (truncate, Residence::Changed, 0),
    ];
    for (number, (below, expected, resident_bytes)) in cases.into_iter().enumerate() {
        for poison in [false, true] {
            let lower = Cloning::over(Arc::new(MemFs::default()));
            let settings = Settings { poison, ..Settings::of(TIER) };
            let mut bench = Bench::with(lower, settings, 1);
            let ino = bench.offline(&bench.client(), "file", &noise(85, 2 * MIB));
            behind(&mut bench, ino, below);
            let known = || bench.residency(ino);
            let before = known();
            let found = state(&bench, "file");
            let found = (found.state, found.resident_bytes);
            assert_eq!(found, (expected, resident_bytes), "case {number}, poison: {poison}");
            assert!(known() == before, "case {number}, poison: {poison}");
        }
    }
}

/// One block is recalled first, so its bytes lie next to the edited page of the other block. The
/// zeros in that page must nevertheless be replaced by archived bytes.
#[test]
fn edit_across_a_block_border_survives_recalls_in_any_order() {
    for first in [MIB / 2, MIB + MIB / 2] {
        let mut bench = Bench::new();
        let data = noise(84, 2 * MIB);
        let ino = bench.offline(&bench.client(), "file", &data);
        behind(&mut bench, ino, |file| {
            file.write_all(MIB - 3000, b"here").unwrap();
            file.write_all(MIB + 1000, b"YYYY").unwrap();
        });
        let data = overwritten(data, MIB as usize - 3000, b"here");
        let expected = overwritten(data, MIB as usize + 1000, b"YYYY");
        let client = bench.client();
        let file = client.open(ino, OpenMode::empty()).unwrap();
        file.read(first, 1).unwrap();
        file.close().unwrap();
        assert!(client.contents(ino).unwrap() == expected, "{first} first");
    }
}

/// Time and size are unchanged, so only the contents of the block reveal the edit.
#[test]
fn edit_below_the_mount_stays_despite_an_old_mtime() {
    let mut bench = Bench::new();
    let data = noise(81, 2 * MIB);
    let ino = bench.offline(&bench.client(), "file", &data);
    let modified = bench.below().attr(ino).unwrap().modified;
    behind(&mut bench, ino, |file| file.write_all(1000, b"here").unwrap());
    let to = fslab_vfs::SetTime::To(modified);
    let changes = fslab_vfs::SetAttr { modified: Some(to), ..Default::default() };
    bench.below().set(ino, &changes).unwrap();
    assert!(bench.client().contents(ino).unwrap() == overwritten(data, 1000, b"here"));
    assert!(bench.is_changed(ino));
}

/// After a power cut during the recall of a block, only some of its sectors were written.
#[test]
fn recall_torn_by_a_power_cut_is_read_from_the_archive() {
    let mut bench = Bench::new();
    let data = noise(82, 2 * MIB);
    let ino = bench.offline(&bench.client(), "file", &data);
    let known = bench.residency(ino).unwrap();
    let killed = Residency { moving: true, ..known };
    bench.write_residency(ino, killed);
    change(&bench, ino, |file| {
        for sector in [0, 3, 4, 9, 20, 2049] {
            let at = sector * 512;
            file.write_all(at, &data[at as usize..at as usize + 512]).unwrap();
        }
        file.write_all(MIB + 70_000, b"behind").unwrap();
    });
    bench.restart();
    // Scans the tree, as the first maintenance round of a mount does.
    bench.tier.scan(&own_request()).unwrap();
    let expected = overwritten(data, MIB as usize + 70_000, b"behind");
    assert!(bench.client().contents(ino).unwrap() == expected);
}

/// Preallocation writes no bytes, even if the lower file system reports the blocks as data.
#[test]
fn preallocated_blocks_of_a_released_file_are_recalled() {
    let mut bench = Bench::new();
    let data = noise(83, 2 * MIB);
    let ino = bench.offline(&bench.client(), "file", &data);
    {
        let client = bench.client();
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        file.fallocate(0, 2 * MIB, FallocateMode::empty()).unwrap();
        file.close().unwrap();
    }
    change(&bench, ino, |file| file.write_all(0, &vec![0; 2 * MIB as usize]).unwrap());
    bench.restart();
    bench.tier.scan(&own_request()).unwrap();
    assert!(bench.client().contents(ino).unwrap() == data);
}

/// A file system that can't distinguish holes from data. It returns an error or reports everything
/// as data.
#[derive(Default)]
struct Blind {
    memory: MemFs,
    says_so: AtomicBool,
}

impl FileSystem for Blind {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.memory)
    }

    fn lseek(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        to: SeekTo,
    ) -> Result<u64> {
        if self.says_so.load(Ordering::SeqCst) {
            return Err(Errno::OPNOTSUPP.into());
        }
        let size = self.memory.getattr(request, ino, Some(handle))?.size;
        match to {
            _ if offset >= size => Err(Errno::NXIO.into()),
            SeekTo::Data => Ok(offset),
            SeekTo::Hole => Ok(size),
        }
    }
}

#[test]
fn edits_are_not_overwritten_where_holes_are_unknown() {
    for says_so in [true, false] {
        let lower = Arc::new(Blind::default());
        lower.says_so.store(says_so, Ordering::SeqCst);
        let mut bench = Bench::over(lower);
        let data = noise(83, 2 * MIB);
        let ino = bench.offline(&bench.client(), "file", &data);
        assert!(bench.client().contents(ino).unwrap() == data, "nobody wrote to it");
        assert!(bench.release(ino, "file").unwrap().bytes > 0);
        behind(&mut bench, ino, |file| file.write_all(1000, b"here").unwrap());
        for _ in 0..2 {
            let refused = bench.client().open(ino, OpenMode::empty()).map(drop);
            assert_eq!(refused.unwrap_err().errno(), Errno::IO, "says so: {says_so}");
            bench.restart();
        }
        assert_eq!(bench.below().contents(ino).unwrap()[1000..1004], *b"here");
    }
}

/// A file system on which one call of fsync fails.
#[derive(Default)]
struct Unsure {
    memory: MemFs,
    /// The number of calls up to and including the failing one; 0 for no failure.
    fails_after: AtomicU64,
}

impl FileSystem for Unsure {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.memory)
    }

    fn fsync(&self, request: &Request, ino: Ino, handle: Handle, data_only: bool) -> Result<()> {
        let left = |left: u64| left.checked_sub(1);
        match self.fails_after.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left) {
            Ok(1) => Err(Errno::IO.into()),
            _ => self.memory.fsync(request, ino, handle, data_only),
        }
    }
}

/// The residency of a rewritten file is changed in several steps. If any of the steps fails, no
/// archived bytes return to the file.
#[test]
fn rewritten_file_is_kept_if_its_xattr_cannot_be_written() {
    for call in 1..5 {
        let lower = Arc::new(Unsure::default());
        let mut bench = Bench::over(Arc::clone(&lower) as Arc<dyn FileSystem>);
        let ino = bench.offline(&bench.client(), "file", &noise(84, 2 * MIB));
        behind(&mut bench, ino, rewrite);
        lower.fails_after.store(call, Ordering::SeqCst);
        let opened = bench.client().contents(ino);
        lower.fails_after.store(0, Ordering::SeqCst);
        assert!(opened.is_err() || call > 2, "call {call} is not made");
        bench.restart();
        assert!(bench.client().contents(ino).unwrap() == record(), "call {call}");
    }
}
