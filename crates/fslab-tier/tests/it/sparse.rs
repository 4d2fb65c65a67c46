//! Files that are large and consist mostly of holes.

use fslab_tier::Archived;
use fslab_vfs::{Ino, OpenMode};

use crate::support::{Bench, MIB, noise};

const GIB: u64 = 1 << 30;

/// Makes a file of this size, with data at its end only.
fn sparse(bench: &Bench, size: u64, data: &[u8]) -> Ino {
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "file", &[]).unwrap();
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(size - data.len() as u64, data).unwrap();
    file.close().unwrap();
    ino
}

/// Holes need no space, so any user may make such a file.
#[test]
fn file_with_too_many_holes_is_not_archived() {
    let bench = Bench::new();
    let ino = sparse(&bench, 400 * GIB, b"end");
    let refused = bench.archive(ino, "file").unwrap_err().to_string();
    assert!(refused.starts_with("file: has so many holes"), "{refused}");
    assert_eq!(bench.archives[0].containers(), 0);
    bench.client().truncate(ino, 4).unwrap();
    assert_eq!(bench.archive(ino, "file").unwrap(), Archived::Now { bytes: 4 });
}

/// The table of the object is longer than the part that is kept in memory.
#[test]
fn file_of_many_blocks_is_released_and_recalled() {
    let bench = Bench::new();
    let data = noise(99, 2 * MIB + 5);
    let ino = sparse(&bench, 40 * GIB, &data);
    bench.archive(ino, "file").unwrap();
    assert_eq!(bench.release(ino, "file").unwrap().bytes, 3 * MIB);
    let client = bench.client();
    let file = client.open(ino, OpenMode::empty()).unwrap();
    assert!(file.read(40 * GIB - data.len() as u64, data.len()).unwrap() == data);
    assert_eq!(file.read(GIB, 4).unwrap(), [0; 4]);
    file.close().unwrap();
}
