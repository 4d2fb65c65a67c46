//! Tests how long an fsync blocks readers. The measure is the number of blocks and inodes that it
//! marks during each exclusive hold of the lock.

use std::cell::RefCell;
use std::ops::{Add, Sub};

use fslab_vfs::MemoryDevice;
use fslab_vfs_testing::client::Client;

use super::*;
use crate::mkfs::{MkfsOptions, mkfs};
use crate::types::BlockSize;
use crate::write_order::order::PendingInodes;

const BLOCK: u32 = 1024;

/// Numbers of changed blocks and pending inodes, which an fsync marks as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Waiting {
    blocks: usize,
    inodes: usize,
}

impl Waiting {
    fn of(volume: &Volume) -> Self {
        let mut one = PendingInodes::default();
        one.taken(InodeNo::ROOT);
        let inodes = volume.order.pending.bytes() / one.bytes();
        Self { blocks: volume.cache.dirty_bytes() / BLOCK as usize, inodes }
    }
}

impl Add for Waiting {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { blocks: self.blocks + other.blocks, inodes: self.inodes + other.inodes }
    }
}

impl Sub for Waiting {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { blocks: self.blocks - other.blocks, inodes: self.inodes - other.inodes }
    }
}

thread_local! {
    /// For each exclusive hold of the lock by this thread, the numbers of marked blocks and inodes.
    static HOLDS: RefCell<Vec<Waiting>> = const { RefCell::new(Vec::new()) };
}

/// Wraps a change to count the blocks and inodes that it marks.
pub(super) fn counted(change: impl FnOnce(&mut Volume)) -> impl FnOnce(&mut Volume) {
    |volume| {
        let before = Waiting::of(volume);
        change(volume);
        let marked = before - Waiting::of(volume);
        HOLDS.with_borrow_mut(|holds| holds.push(marked));
    }
}

/// The test makes a directory of many blocks. Its names refer to inodes in many blocks of the inode
/// table.
#[test]
fn fsync_marks_at_most_64_blocks_and_inodes_per_lock_hold() {
    const NAMES: u32 = 600;
    const MARKS_MAX: usize = 64;
    let device = Arc::new(MemoryDevice::new(8 << 20));
    let made = MkfsOptions {
        block_size: BlockSize::new(BLOCK).unwrap(),
        bytes_per_inode: 4096,
        ..MkfsOptions::default()
    };
    mkfs(&*device, &made).unwrap();
    let ext2 = Ext2::open(device, VolumeOptions::default()).unwrap();
    let client = Client::new(&ext2);
    let directory = client.mkdir(Ino::ROOT, "directory").unwrap();
    for number in 0..NAMES {
        client.file(directory, format!("{number:0>200}"), b"").unwrap();
    }
    let waiting = || Waiting::of(&ext2.volume.read());
    let before = waiting();
    HOLDS.take();
    client.sync_directory(directory).unwrap();
    let (holds, marked) = (HOLDS.take(), before - waiting());
    assert!(marked.blocks > 4 * MARKS_MAX && marked.inodes > 4 * MARKS_MAX, "{marked:?}");
    let counted = holds.iter().fold(Waiting::default(), |sum, hold| sum + *hold);
    assert_eq!(counted, marked, "marks of other holds");
    for hold in holds {
        assert!(hold.blocks + hold.inodes <= MARKS_MAX, "{hold:?}");
    }
}
