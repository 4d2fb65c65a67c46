//! Converts arbitrary bytes to operations or snapshot entries, and checks how they are processed.

use fslab_ext2::alloc::Clustering;
use fslab_vfs::MemFs;

use super::within;
use crate::derive::{Model, Options, ShortLived, derive};
use crate::replay::{Replayer, Settings};
use crate::score::tree_checksum;
use crate::simulate::{DISKS, Settings as Simulated, Simulator, Variant};
use crate::snapshot::{Entry, EntryKind, SnapshotWriter, Taken};
use crate::workload::{Operation, OperationKind, Population, WorkloadReader};
use crate::{DAY_NS, Error, Result};

/// Number of input bytes per row.
const ROW: usize = 8;

/// Maximum size of files in a replay, in bytes; the limit is needed because they are stored in
/// memory.
const REPLAYED_BYTES_MAX: u64 = 1 << 16;

/// Numbers of files and directories are chosen from about this many values, so that they collide.
const NUMBERS: u64 = 16;

/// Converts bytes to operations. If a population accepts the operations, their replay must produce
/// the same tree. The simulator may refuse operations, but it must not panic, and its used space
/// must be from 0 to 100 %.
///
/// # Panics
/// Panics if one of these conditions does not hold.
pub fn check_operations(bytes: &[u8]) {
    let mut population = Population::default();
    let all: Vec<_> = operations(bytes).collect();
    let taken: Vec<_> =
        all.iter().take_while(|operation| population.apply(operation).is_ok()).cloned().collect();
    simulate(&all);
    if taken.iter().all(|operation| operation.offset + operation.length < REPLAYED_BYTES_MAX) {
        replay(&taken);
    }
}

fn replay(operations: &[Operation]) {
    let memory = MemFs::default();
    let settings = Settings { threads: 2, ..Settings::default() };
    let mut replayer = Replayer::new(&memory, settings);
    let done = replayer.run(operations.iter().cloned().map(Ok), &mut ());
    match done {
        // Two files have the same name. A population accepts this, but the target does not.
        Err(Error::Target { .. }) => return,
        done => assert!(done.unwrap_or_else(|error| panic!("{error}")), "a replay ended early"),
    }
    let (found, expected) = (tree_checksum(&memory, true), replayer.population().checksum());
    assert_eq!(found.ok(), expected.ok(), "the replayed tree differs from the workload's");
}

fn simulate(operations: &[Operation]) {
    let settings = Simulated { volume_bytes: 16 << 20, ..Simulated::default() };
    let variant = Variant { policy: "ffs", clustering: Clustering::Smart };
    let mut simulator = match Simulator::new(settings, variant, 1) {
        Ok(simulator) => simulator,
        Err(error) => panic!("{error}"),
    };
    for operation in operations {
        if simulator.apply(operation).is_err() {
            break;
        }
    }
    let aged = simulator.finish(&DISKS[0]);
    assert!((0.0..=1.0).contains(&aged.used), "{} in use", aged.used);
}

/// Converts bytes to entries of two snapshots. The derived workload must be consistent and must
/// produce the files of the second snapshot. As an exception, it may remove a directory that is not
/// empty. Snapshots with directories that contain themselves must be refused.
///
/// # Panics
/// Panics if one of these conditions does not hold.
pub fn check_entries(bytes: &[u8]) {
    within(&[], |_file, scratch| {
        let paths = ["before", "after"].map(|name| scratch.join(name));
        let half = bytes.len() / 2;
        let mut files = 0;
        let parts = [(0, &bytes[..half]), (1, &bytes[half..])];
        for (path, (number, bytes)) in paths.iter().zip(parts) {
            let mut writer = SnapshotWriter::new(path);
            entries(bytes).try_for_each(|entry| writer.push(entry))?;
            let taken_ns = number * DAY_NS.cast_signed();
            writer.finish(&Taken { taken_ns, ..Taken::default() })?;
        }
        for entry in crate::snapshot::SnapshotReader::open(&paths[1])? {
            files += u64::from(matches!(entry?.kind, EntryKind::File));
        }
        let output = scratch.join("workload");
        derive(&paths, &output, &options(bytes))?;
        let population = match made(&output) {
            // The second snapshot contains a file but not the file's directory. A diff does not
            // detect this, because it does not look up the directories of unchanged files.
            Err(Error::Operation { what, .. }) if what.contains("not empty") => return Ok(()),
            made => made.unwrap_or_else(|error| panic!("inconsistent derived workload: {error}")),
        };
        let of_files = |(_, member): &(u64, &_)| is_file(member);
        assert_eq!(population.members().filter(of_files).count() as u64, files);
        Ok(())
    });
}

fn is_file(member: &crate::workload::Member) -> bool {
    member.kind == OperationKind::Create
}

fn made(path: &std::path::Path) -> Result<Population> {
    let mut population = Population::default();
    WorkloadReader::open(path)?.try_for_each(|operation| population.apply(&operation?))?;
    population.checksum().map(|_checksum| population)
}

fn options(bytes: &[u8]) -> Options {
    let how = bytes.first().copied().unwrap_or_default();
    let short = Model { per_day: 20.0, mean_bytes: 5000.0, sigma: 1.0, largest: 1 << 20 };
    Options {
        seed: how.into(),
        rewrite_all: how & 1 != 0,
        inodes_per_directory: std::num::NonZeroU64::new(u64::from(how & 6)),
        short_lived: (how & 8 != 0).then_some(ShortLived::Drawn(short)),
        volume_bytes: 0,
    }
}

/// Converts each row of bytes to an operation. The bytes determine the kind, file, directory,
/// offset, length, time and name.
fn operations(bytes: &[u8]) -> impl Iterator<Item = Operation> {
    let mut time_ns = 0_u64;
    bytes.chunks_exact(ROW).map(move |row| {
        // Most operations are a little later than the previous one; some have the highest possible
        // time.
        time_ns = time_ns.saturating_add(1 << (row[5] % 65).min(63));
        let kind = OperationKind::ALL[usize::from(row[0]) % OperationKind::ALL.len()];
        let size = |byte: u8| (u64::from(byte) << (byte % 55)).min(i64::MAX as u64 / 2);
        let length = match kind {
            OperationKind::Symlink => u64::from(row[4]) + 1,
            _ => size(row[4]),
        };
        let name = [b'a' + row[6] % 3, b'a' + row[7] % 26];
        Operation {
            time_ns,
            kind,
            file: u64::from(row[1]) % NUMBERS + 1,
            directory: u64::from(row[2]) % NUMBERS,
            offset: size(row[3]),
            length,
            mode: u32::from(row[6]),
            name: name[..usize::from(row[7] % 3)].to_vec().into(),
            ..Operation::default()
        }
    })
}

/// Converts each row of bytes to an entry. The bytes determine the inode, directory, kind, size,
/// times and name.
fn entries(bytes: &[u8]) -> impl Iterator<Item = Entry> {
    let kinds = [EntryKind::Directory, EntryKind::File, EntryKind::Symlink, EntryKind::Other];
    bytes.chunks_exact(ROW).map(move |row| Entry {
        inode: u64::from(row[0]) % NUMBERS + 1,
        directory: u64::from(row[1]) % (NUMBERS + 2),
        kind: kinds[usize::from(row[2]) % kinds.len()],
        size: u64::from(row[3]) << (row[3] % 50),
        modified_ns: i64::from(row[4]).pow(7),
        changed_ns: -i64::from(row[5]).pow(5),
        born_ns: i64::from(row[6] % 3),
        name: vec![row[7]; usize::from(row[7])].into(),
        ..Entry::default()
    })
}
