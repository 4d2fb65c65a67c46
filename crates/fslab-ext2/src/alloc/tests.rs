//! Tests that each policy allocates no block twice, and that it produces its characteristic layout.

use std::collections::HashSet;

use fslab_vfs_testing::environment::seed;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::volume::{Grown, Volume};
use super::*;
use crate::geometry::Geometry;
use crate::types::{BlockNo, BlockSize, GroupNo, InodeNo};

pub(super) fn geometry(groups: u32, blocks_per_group: u32) -> Geometry {
    Geometry {
        block_size: BlockSize::MIN,
        blocks: 1 + groups * blocks_per_group,
        first_data_block: 1,
        blocks_per_group,
        inodes_per_group: 256,
        inode_size: 128,
        first_inode: InodeNo::FIRST_FREE,
        groups,
        sparse_super: true,
        sparse_super2: false,
        reserved_descriptor_blocks: 0,
    }
}

const OVERHEAD: u32 = 40;

fn volume(spec: &PolicySpec, clustering: Clustering, geometry: Geometry, seed: u64) -> Volume {
    let space = MemorySpace::new(geometry, OVERHEAD, 10);
    Volume::new(space, (spec.build)(&geometry, seed), clustering)
}

fn file_in(parent: InodeNo) -> InodeRequest {
    InodeRequest { parent, directory: false, top_level: false }
}

fn directory_in(parent: InodeNo) -> InodeRequest {
    InodeRequest { parent, directory: true, top_level: parent == InodeNo::ROOT }
}

pub(super) fn indirect_blocks(volume: &Volume, inode: InodeNo) -> Vec<BlockNo> {
    let asked = volume.read_order(inode);
    asked.iter().filter(|asked| asked.is_indirect).map(|asked| asked.block).collect()
}

/// A volume, with the expected length of each file.
struct Account {
    volume: Volume,
    files: Vec<(InodeNo, u32)>,
    free_at_first: Counts,
}

impl Account {
    fn new(volume: Volume) -> Self {
        let free_at_first = volume.space().totals();
        Self { volume, files: Vec::new(), free_at_first }
    }

    /// Checks that each block belongs to at most one file, that no file contains metadata blocks,
    /// and that the free counts are right.
    fn check(&mut self) {
        let mut owned = HashSet::new();
        let geometry = *self.volume.space().geometry();
        for &(inode, length) in &self.files {
            let blocks = self.volume.blocks(inode);
            assert_eq!(blocks.len() as u32, length);
            for block in blocks.iter().copied().chain(indirect_blocks(&self.volume, inode)) {
                assert!(owned.insert(block), "block {block} has two owners");
                assert!(geometry.bit_of(block) >= OVERHEAD, "block {block} is metadata");
                assert!(block.0 < geometry.blocks, "block {block} does not exist");
            }
        }
        let inodes: HashSet<_> = self.files.iter().map(|(inode, _)| inode).collect();
        assert_eq!(inodes.len(), self.files.len());
        let now = self.volume.space().totals();
        assert_eq!(now.blocks as usize + owned.len(), self.free_at_first.blocks as usize);
        assert_eq!(now.inodes as usize + inodes.len(), self.free_at_first.inodes as usize);
        let by_group: u32 = (0..geometry.groups)
            .map(|group| self.volume.space().counts(GroupNo(group)).blocks)
            .sum();
        assert_eq!(by_group, now.blocks);
    }

    fn step(&mut self, random: &mut Pcg64) {
        let pick = |files: &Vec<_>, random: &mut Pcg64| random.random_range(0..files.len());
        match random.random_range(0..100) {
            0..30 => {
                let parent = self.files.first().map_or(InodeNo::ROOT, |(inode, _)| *inode);
                let request =
                    if random.random_bool(0.1) { directory_in(parent) } else { file_in(parent) };
                if let Some(inode) = self.volume.create(&request).unwrap() {
                    self.files.push((inode, 0));
                }
            }
            _ if self.files.is_empty() => {}
            30..75 => {
                let at = pick(&self.files, random);
                let count = match random.random_range(0..10) {
                    0 => random.random_range(1..900),
                    _ => random.random_range(1..20),
                };
                let inode = self.files[at].0;
                let full = random.random_bool(0.8);
                let grown = self.volume.append(inode, count, full).unwrap();
                let length = self.volume.blocks(inode).len() as u32;
                assert!(grown == Grown::NoSpace || length == self.files[at].1 + count);
                self.files[at].1 = length;
            }
            75..85 => {
                let at = pick(&self.files, random);
                let length = random.random_range(0..=self.files[at].1);
                self.volume.truncate(self.files[at].0, length);
                self.files[at].1 = length;
            }
            85..90 => self.volume.close(self.files[pick(&self.files, random)].0),
            _ => {
                let (inode, _) = self.files.swap_remove(pick(&self.files, random));
                self.volume.remove(inode);
            }
        }
    }
}

#[test]
fn every_policy_keeps_the_account_of_blocks() {
    let mut random = Pcg64::seed_from_u64(seed());
    for spec in POLICIES {
        for clustering in Clustering::ALL {
            let geometry = geometry(random.random_range(1..12), 8 * random.random_range(30..150));
            let volume = volume(spec, clustering, geometry, random.next_u64());
            let mut account = Account::new(volume);
            for step in 0..6000 {
                account.step(&mut random);
                if step % 50 == 0 {
                    account.check();
                }
            }
            while let Some((inode, _)) = account.files.pop() {
                account.volume.remove(inode);
            }
            account.check();
            assert_eq!(account.volume.space().totals(), account.free_at_first);
        }
    }
}

#[test]
fn the_last_block_and_inode_of_a_volume_can_be_allocated() {
    for spec in POLICIES {
        let geometry = geometry(3, 400);
        let mut volume = volume(spec, Clustering::Dumb, geometry, 1);
        let mut made = Vec::new();
        while let Some(inode) = volume.create(&file_in(InodeNo::ROOT)).unwrap() {
            made.push(inode);
        }
        assert_eq!(made.len() as u32, 3 * 256 - 10, "{}", spec.name);
        for inode in made {
            let grown = volume.append(inode, 3, true).unwrap();
            assert!(grown == Grown::Whole || volume.space().totals().blocks == 0, "{}", spec.name);
        }
        assert_eq!(volume.space().totals().blocks, 0, "{}", spec.name);
    }
}

/// The `ext2` policy skips groups that it recorded as full. Freeing an inode must discard that
/// record.
#[test]
fn freed_inodes_of_a_full_volume_are_reused() {
    for spec in POLICIES {
        let mut volume = volume(spec, Clustering::Dumb, geometry(8, 400), 1);
        let mut made = Vec::new();
        while let Some(inode) = volume.create(&file_in(InodeNo::ROOT)).unwrap() {
            made.push(inode);
        }
        for freed in made.iter().step_by(100) {
            volume.remove(*freed);
            let again = volume.create(&file_in(InodeNo::ROOT)).unwrap();
            assert_eq!(again, Some(*freed), "{}", spec.name);
        }
    }
}

#[test]
fn equal_seeds_give_equal_layouts() {
    for spec in POLICIES {
        let run = |seed| {
            let mut account = Account::new(volume(spec, Clustering::Smart, geometry(9, 800), seed));
            let mut random = Pcg64::seed_from_u64(7);
            for _ in 0..2000 {
                account.step(&mut random);
            }
            let blocks = |inode: InodeNo| account.volume.blocks(inode).to_vec();
            account.files.iter().map(|(inode, _)| (*inode, blocks(*inode))).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1), "{}", spec.name);
    }
}

/// Returns the groups of a file's blocks, without consecutive repetitions.
fn groups_of(volume: &Volume, inode: InodeNo) -> Vec<u32> {
    let geometry = volume.space().geometry();
    let mut groups: Vec<_> =
        volume.blocks(inode).iter().map(|block| geometry.group_of(*block).0).collect();
    groups.dedup();
    groups
}

#[track_caller]
fn one_file(name: &str, blocks: u32) -> (Volume, InodeNo) {
    let mut volume = volume(policy(name).unwrap(), Clustering::Dumb, geometry(8, 2048), 1);
    let inode = volume.create(&file_in(InodeNo::ROOT)).unwrap().unwrap();
    assert_eq!(volume.append(inode, blocks, true).unwrap(), Grown::Whole);
    (volume, inode)
}

#[test]
fn ffs_leaves_a_group_with_less_than_average_free_space() {
    // At block 12, ffs searches for a group, starting with the inode's own. That group has twelve
    // free blocks fewer than the others, so it is below average.
    let (volume, inode) = one_file("ffs", 12 + 256 + 256);
    assert_eq!(groups_of(&volume, inode), [0, 1, 2]);
    let first = volume.blocks(inode)[0];
    assert_eq!(volume.blocks(inode)[11].0, first.0 + 11);
    // The indirect block is the first block in the new group; its data blocks follow.
    let indirect = indirect_blocks(&volume, inode)[0];
    assert_eq!(volume.blocks(inode)[12].0, indirect.0 + 1);
}

#[test]
fn ffs_noswitch_puts_the_indirect_block_in_line() {
    let (volume, inode) = one_file("ffs-noswitch", 12 + 256 + 256);
    assert_eq!(groups_of(&volume, inode), [0, 1]);
    let blocks = volume.blocks(inode);
    assert_eq!(blocks[12].0, blocks[11].0 + 2);
    assert_eq!(indirect_blocks(&volume, inode)[0].0, blocks[11].0 + 1);
}

/// The cluster that spans the indirect block is not moved, so the whole file stays contiguous.
#[test]
fn clusters_are_not_moved_across_an_indirect_block_in_line() {
    let spec = policy("ffs-noswitch").unwrap();
    let mut volume = volume(spec, Clustering::Smart, geometry(8, 2048), 1);
    let inode = volume.create(&file_in(InodeNo::ROOT)).unwrap().unwrap();
    for _ in 0..40 {
        volume.append(inode, 1, true).unwrap();
    }
    let blocks = volume.blocks(inode);
    assert_eq!(indirect_blocks(&volume, inode)[0].0, blocks[11].0 + 1);
    assert_eq!(blocks[12].0, blocks[11].0 + 2);
    let asked: Vec<_> = volume.read_order(inode).iter().map(|asked| asked.block.0).collect();
    assert!(asked.windows(2).all(|pair| pair[1] == pair[0] + 1), "{asked:?}");
}

#[test]
fn ext2_stays_in_its_group_with_indirect_blocks_before_data() {
    let (volume, inode) = one_file("ext2", 12 + 256 + 256);
    assert_eq!(groups_of(&volume, inode), [0]);
    let blocks = volume.blocks(inode);
    let breaks = blocks.windows(2).filter(|pair| pair[1].0 != pair[0].0 + 1).count();
    assert_eq!(breaks, 2, "one before the data of each indirect block");
    assert_eq!(blocks[12].0, blocks[11].0 + 2);
    assert_eq!(blocks[12 + 256].0, blocks[12 + 255].0 + 3);
}

#[test]
fn ext2_keeps_concurrently_written_files_contiguous() {
    let breaks = |name: &str| {
        let mut volume = volume(policy(name).unwrap(), Clustering::Dumb, geometry(8, 2048), 1);
        let files: Vec<_> =
            (0..4).map(|_| volume.create(&file_in(InodeNo::ROOT)).unwrap().unwrap()).collect();
        for _ in 0..12 {
            for file in &files {
                assert_eq!(volume.append(*file, 1, true).unwrap(), Grown::Whole);
            }
        }
        let breaks = |blocks: &[BlockNo]| {
            blocks.windows(2).filter(|pair| pair[1].0 != pair[0].0 + 1).count()
        };
        files.iter().map(|file| breaks(volume.blocks(*file))).sum::<usize>()
    };
    assert!(breaks("ext2") <= 4, "{}", breaks("ext2"));
    assert!(breaks("ffs") > 20, "{}", breaks("ffs"));
}

#[test]
fn ffs_spreads_directories_and_keeps_files_beside_them() {
    let mut volume = volume(policy("ffs").unwrap(), Clustering::Dumb, geometry(8, 2048), 1);
    let geometry = *volume.space().geometry();
    let mut groups = Vec::new();
    for _ in 0..8 {
        let directory = volume.create(&directory_in(InodeNo::ROOT)).unwrap().unwrap();
        groups.push(geometry.group_of_inode(directory).0);
        let file = volume.create(&file_in(directory)).unwrap().unwrap();
        assert_eq!(geometry.group_of_inode(file), geometry.group_of_inode(directory));
    }
    // Group 0 has fewer free inodes than average, because ten are reserved for the file system.
    assert_eq!(groups[..7], [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn ext2_spreads_top_directories_and_keeps_others_near_parents() {
    let mut volume = volume(policy("ext2").unwrap(), Clustering::Dumb, geometry(16, 2048), 1);
    let geometry = *volume.space().geometry();
    let group = |inode| geometry.group_of_inode(inode).0;
    let tops: Vec<_> =
        (0..8).map(|_| volume.create(&directory_in(InodeNo::ROOT)).unwrap().unwrap()).collect();
    let groups: HashSet<_> = tops.iter().map(|inode| group(*inode)).collect();
    assert!(groups.len() >= 6, "{groups:?}");
    let below = volume.create(&directory_in(tops[0])).unwrap().unwrap();
    assert_eq!(group(below), group(tops[0]));
}

/// Fills a volume with small files, removes every other one, and writes a file into the gaps.
/// Returns the number of blocks of that file that do not follow their predecessor.
fn breaks_in_gaps(name: &str, clustering: Clustering) -> usize {
    let mut volume = volume(policy(name).unwrap(), clustering, geometry(1, 4000), 1);
    let mut small = Vec::new();
    for number in 0.. {
        let Some(inode) = volume.create(&file_in(InodeNo::ROOT)).unwrap() else { break };
        let count = if number % 10 == 4 { 63 } else { 3 };
        let grown = volume.append(inode, count, false).unwrap();
        volume.close(inode);
        small.push(inode);
        if grown == Grown::NoSpace {
            break;
        }
    }
    small.iter().step_by(2).for_each(|inode| volume.remove(*inode));
    let file = volume.create(&file_in(InodeNo::ROOT)).unwrap().unwrap();
    for _ in 0..12 {
        assert_eq!(volume.append(file, 1, true).unwrap(), Grown::Whole);
    }
    volume.blocks(file).windows(2).filter(|pair| pair[1].0 != pair[0].0 + 1).count()
}

#[test]
fn smart_clustering_reduces_breaks() {
    for name in ["ffs", "ffs-noswitch"] {
        let dumb = breaks_in_gaps(name, Clustering::Dumb);
        let smart = breaks_in_gaps(name, Clustering::Smart);
        assert!(smart < dumb, "{name}: {smart} breaks against {dumb}");
    }
}

/// If the home group has at least average free space, FFS puts block 12 there, after its indirect
/// block. Smart clustering treats the blocks as scattered and moves blocks 8 to 12, the end of the
/// cluster, past the indirect block. Reading the file then needs three seeks; with dumb clustering
/// it needs none.
#[test]
fn smart_clustering_moves_the_blocks_around_an_indirect_block() {
    let geometry = Geometry { block_size: BlockSize::new(8192).unwrap(), ..geometry(2, 2048) };
    let jumps = |name: &str, clustering| {
        let mut volume = volume(policy(name).unwrap(), clustering, geometry, 1);
        let mut directory = || volume.create(&directory_in(InodeNo::ROOT)).unwrap().unwrap();
        let other = [directory(), directory()][1];
        assert_eq!(geometry.group_of_inode(other), GroupNo(1));
        for _ in 0..12 {
            let small = volume.create(&file_in(other)).unwrap().unwrap();
            volume.append(small, 12, true).unwrap();
        }
        let file = volume.create(&file_in(InodeNo::ROOT)).unwrap().unwrap();
        for _ in 0..13 {
            volume.append(file, 1, true).unwrap();
        }
        assert_eq!(groups_of(&volume, file), [0], "{name} stays");
        let asked = volume.read_order(file);
        let places = 0..asked.len() - 1;
        let apart = places.filter(|at| asked[at + 1].block.0 != asked[*at].block.0 + 1);
        apart.collect::<Vec<_>>()
    };
    // The seeks are after block 7, before the indirect block, and after the indirect block.
    assert_eq!(jumps("ffs", Clustering::Smart), [7, 11, 12]);
    assert_eq!(jumps("ffs", Clustering::Dumb), [0; 0]);
    assert_eq!(jumps("ffs-noswitch", Clustering::Smart), [0; 0]);
}

#[test]
fn every_policy_is_found_by_its_name() {
    for spec in POLICIES {
        assert_eq!(policy(spec.name).map(|found| found.help), Some(spec.help));
    }
    assert!(policy("nothing").is_none());
}
