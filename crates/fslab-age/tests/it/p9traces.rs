//! Imports traces of Plan 9 file servers, which are generated here according to the description of
//! the format.

use std::fs;
use std::path::Path;

use fslab_age::derive::{Options, derive};
use fslab_age::snapshot::{Entry, EntryKind, P9Dumps, P9Written, SnapshotReader};
use fslab_age::workload::{Population, WorkloadReader};
use libdeflater::{CompressionLvl, Compressor};

const DIRECTORY: u16 = 0x4000;

/// A file or directory: its path, version, mode, size, time in seconds, and first blocks.
struct Node<'a>(u32, u32, u16, u32, u32, &'a [u32]);

fn common(tag: u8, path: u32, address: u32) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend(path.to_be_bytes());
    bytes.extend(address.to_be_bytes());
    bytes.extend([0; 26]);
    bytes
}

/// Builds a record with its header. With `deflated`, its content is compressed with deflate.
fn record(bytes: &[u8], deflated: bool) -> Vec<u8> {
    let stored = match deflated {
        false => bytes.to_vec(),
        true => {
            let mut compressor = Compressor::new(CompressionLvl::default());
            let mut out = vec![0; compressor.deflate_compress_bound(bytes.len())];
            let length = compressor.deflate_compress(bytes, &mut out).unwrap();
            out.truncate(length);
            out
        }
    };
    let head = stored.len() as u16 | if deflated { 0x8000 } else { 0 };
    [head.to_be_bytes().to_vec(), stored].concat()
}

fn superblock(address: u32, root: u32) -> Vec<u8> {
    let mut bytes = common(1, 0, address);
    for number in [root, 0, 0, 0] {
        bytes.extend(number.to_be_bytes());
    }
    record(&bytes, false)
}

fn directory(address: u32, nodes: &[Node<'_>]) -> Vec<u8> {
    let mut bytes = common(2, 1, address);
    bytes.extend((nodes.len() as u16).to_be_bytes());
    for Node(path, version, mode, size, seconds, blocks) in nodes {
        bytes.extend(0_u16.to_be_bytes());
        bytes.extend(path.to_be_bytes());
        bytes.extend(version.to_be_bytes());
        bytes.extend(mode.to_be_bytes());
        bytes.extend(size.to_be_bytes());
        // Six direct blocks, the indirect block and the double-indirect block.
        for place in 0..8 {
            bytes.extend(blocks.get(place).copied().unwrap_or_default().to_be_bytes());
        }
        bytes.extend(seconds.to_be_bytes());
        bytes.extend([0; 4]);
        for user in [3_u16, 4, 5] {
            bytes.extend(user.to_be_bytes());
        }
    }
    record(&bytes, address.is_multiple_of(2))
}

fn pointers(address: u32, tag: u8, to: &[u32]) -> Vec<u8> {
    let mut bytes = common(tag, 1, address);
    bytes.extend((to.len() as u16).to_be_bytes());
    to.iter().for_each(|address| bytes.extend(address.to_be_bytes()));
    record(&bytes, true)
}

/// Returns a trace of two days. On the second day, a file changes without a new time, one file is
/// removed, and one is added. The directory of some files has blocks that are reached through
/// pointer blocks.
pub fn trace() -> Vec<u8> {
    let day = 86_400;
    let first = [
        superblock(1, 10),
        directory(10, &[Node(1, 0, DIRECTORY | 0o755, 0, day, &[11])]),
        directory(
            11,
            &[
                Node(2, 1, 0o644, 5000, day, &[]),
                Node(3, 1, 0o600, 70_000, day + 5, &[]),
                Node(4, 0, DIRECTORY | 0o700, 0, day, &[12, 0, 0, 0, 0, 0, 13, 14]),
            ],
        ),
        directory(12, &[Node(5, 0, 0o644, 1, day, &[])]),
        pointers(13, 3, &[15]),
        directory(15, &[Node(6, 0, 0o644, 2, day, &[])]),
        pointers(14, 4, &[16, 99]),
        pointers(16, 3, &[17, 0]),
        directory(17, &[Node(7, 0, 0o644, 3, day, &[])]),
        record(&common(5, 2, 18), true),
        record(&common(0, 0, 19), false),
    ];
    let second = [
        superblock(20, 21),
        directory(21, &[Node(1, 0, DIRECTORY | 0o755, 0, 2 * day, &[22])]),
        directory(
            22,
            &[Node(2, 2, 0o644, 5000, day, &[]), Node(4, 0, DIRECTORY | 0o700, 0, 2 * day, &[23])],
        ),
        directory(23, &[Node(5, 0, 0o644, 1, day, &[]), Node(8, 0, 0o644, 9, 2 * day, &[])]),
        // The root of this dump is missing, as if it were in another trace.
        superblock(30, 31),
    ];
    first.concat().into_iter().chain(second.concat()).collect()
}

fn import(scratch: &Path, bytes: &[u8]) -> fslab_age::Result<(usize, P9Written)> {
    let (path, output) = (scratch.join("trace"), scratch.join("snapshots"));
    fs::write(&path, bytes).unwrap();
    fs::create_dir_all(&output).unwrap();
    let dumps = P9Dumps::read(&[path], scratch)?;
    Ok((dumps.dumps(), dumps.write(&output)?))
}

fn read(path: impl AsRef<Path>) -> Vec<Entry> {
    SnapshotReader::open(path.as_ref()).unwrap().map(|entry| entry.unwrap()).collect()
}

#[test]
fn dumps_become_snapshots_and_a_workload() {
    let scratch = tempfile::tempdir().unwrap();
    let (dumps, written) = import(scratch.path(), &trace()).unwrap();
    assert_eq!((dumps, written.rootless, written.missing_blocks), (3, 1, 1));
    let [first, second] = [&written.snapshots[0], &written.snapshots[1]].map(read);
    let told = |entries: &[Entry]| -> Vec<(u64, u64, u64)> {
        entries.iter().map(|entry| (entry.inode, entry.directory, entry.size)).collect()
    };
    assert_eq!(
        told(&first),
        [(5, 0, 0), (3, 0, 5000), (4, 0, 70_000), (6, 5, 1), (7, 5, 2), (8, 5, 3)]
    );
    assert_eq!(told(&second), [(5, 0, 0), (3, 0, 5000), (6, 5, 1), (9, 5, 9)]);
    assert_eq!((first[0].kind, first[2].mode, first[2].uid), (EntryKind::Directory, 0o600, 3));
    let taken = SnapshotReader::open(&written.snapshots[1]).unwrap().taken().taken_ns;
    assert_eq!(taken / 1_000_000_000, 2 * 86_400);
    let output = scratch.path().join("workload");
    let options = Options {
        seed: 1,
        rewrite_all: true,
        inodes_per_directory: None,
        short_lived: None,
        volume_bytes: 1 << 30,
    };
    let derived = derive(&written.snapshots, &output, &options).unwrap();
    let summary = derived.summary;
    // The first snapshot creates six entries.
    assert_eq!((summary.created, summary.deleted, summary.modified), (6 + 1, 3, 1));
    let mut population = Population::default();
    for operation in WorkloadReader::open(&output).unwrap() {
        population.apply(&operation.unwrap()).unwrap();
    }
    assert_eq!(population.len(), 4);
}

#[test]
fn directory_cycles_do_not_cause_endless_walks() {
    let scratch = tempfile::tempdir().unwrap();
    let trace = [
        superblock(1, 10),
        directory(10, &[Node(1, 0, DIRECTORY, 0, 1, &[10, 11, 10, 0, 0, 0, 12, 12])]),
        directory(11, &[Node(2, 0, DIRECTORY, 0, 1, &[11, 10]), Node(3, 0, 0, 7, 1, &[])]),
        pointers(12, 3, &[12, 11, 10]),
    ];
    let (_, written) = import(scratch.path(), &trace.concat()).unwrap();
    assert_eq!(read(&written.snapshots[0]).len(), 3);
}

/// Damages each byte of a trace, one at a time, and once removes the last byte. The result is an
/// error that states the position, or different snapshots, but never a panic.
#[test]
fn damaged_traces_are_errors() {
    let scratch = tempfile::tempdir().unwrap();
    let good = trace();
    let mut refused = 0;
    for place in 0..good.len() {
        let mut bytes = good.clone();
        bytes[place] ^= 0x83;
        if let Err(error) = import(scratch.path(), &bytes) {
            let message = error.to_string();
            assert!(message.lines().count() == 1 && message.contains("record at"), "{message}");
            refused += 1;
        }
    }
    assert!(refused > good.len() / 10, "{refused} of {}", good.len());
    let message = import(scratch.path(), &good[..good.len() - 1]).unwrap_err().to_string();
    assert!(message.contains("ends within it"), "{message}");
    let message = import(scratch.path(), b"no trace at all, but a text").unwrap_err().to_string();
    assert!(message.contains("record at byte 0"), "{message}");
}
