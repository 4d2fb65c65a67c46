//! Tests that the memory needed for a simulated volume depends on its files, not on its size.

use fslab_ext2::alloc::volume::{Grown, Volume};
use fslab_ext2::alloc::{Clustering, InodeRequest, MemorySpace, POLICIES, PolicySpec, Space};
use fslab_ext2::{BlockSize, Geometry, GroupNo, InodeNo};

use crate::support::ran_within;

/// Maximum memory of a process that simulates a volume, in bytes. The bitmaps of all groups would
/// need ten times this amount; a pointer for each inode would need a hundred times this amount.
const MEMORY_MAX: u64 = 64 << 20;
/// Number of groups in 16 TiB.
const GROUPS: u32 = 131_071;
const OVERHEAD: u32 = 40;

fn simulate(spec: &PolicySpec) {
    let geometry = Geometry {
        block_size: BlockSize::new(4096).unwrap(),
        blocks: GROUPS * 32_768,
        first_data_block: 0,
        blocks_per_group: 32_768,
        inodes_per_group: 8192,
        inode_size: 128,
        first_inode: InodeNo(11),
        groups: GROUPS,
        sparse_super: true,
        sparse_super2: false,
        reserved_descriptor_blocks: 0,
    };
    let space = MemorySpace::new(geometry, OVERHEAD, 10);
    let mut volume = Volume::new(space, (spec.build)(&geometry, 1), Clustering::Smart);
    let request = InodeRequest { parent: InodeNo::ROOT, directory: true, top_level: true };
    let parent = volume.create(&request).unwrap().unwrap();
    for _ in 0..50 {
        let request = InodeRequest { parent, directory: false, top_level: false };
        let file = volume.create(&request).unwrap().unwrap();
        assert_eq!(volume.append(file, 30, true).unwrap(), Grown::Whole);
    }
    let free: u64 =
        (0..GROUPS).map(|it| u64::from(volume.space().counts(GroupNo(it)).blocks)).sum();
    assert_eq!(free, u64::from(volume.space().totals().blocks));
    let mut runs = volume.space().free_runs(GroupNo(GROUPS - 1));
    assert_eq!((runs.next(), runs.next()), (Some(OVERHEAD..32_768), None), "an unused group");
}

#[test]
fn memory_of_a_simulated_volume_follows_its_files() {
    if !ran_within(MEMORY_MAX, "memory::memory_of_a_simulated_volume_follows_its_files") {
        POLICIES.iter().for_each(simulate);
    }
}
