//! Runs the conformance suite on images in memory.

use std::sync::Arc;

use fslab_ext2::{Ext2, MkfsOptions, VolumeOptions, mkfs};
use fslab_vfs::{FileSystem, MemoryDevice};
use fslab_vfs_testing::conformance::{Allowed, cases, run_one};

use crate::support::options;

const RESERVED: &str = "a checker can't distinguish blocks past the end of a file from damage";
const SMALL_MAP: &str = "pointers of small blocks reach 16 or 256 GiB";
const SMALL_BLOCK: &str = "extended attributes have at most one block";

const ALWAYS: &[Allowed<'_>] = &[
    ("holes/reserving_can_keep_the_size", RESERVED),
    ("holes/reserved_space_past_the_end_reads_as_zeros", RESERVED),
];
const SMALL: &[Allowed<'_>] = &[
    ("limits/bytes_a_tebibyte_away_are_kept", SMALL_MAP),
    ("limits/size_of_a_tebibyte_is_kept", SMALL_MAP),
];
const SMALLEST: &[Allowed<'_>] =
    &[("xattrs/kilobyte_value_is_kept", SMALL_BLOCK), ("xattrs/many_attributes_work", SMALL_BLOCK)];

#[track_caller]
fn conforms(options: &MkfsOptions, allowed: &[&[Allowed<'_>]]) {
    let mut failures = Vec::new();
    let is_allowed = |name: &str| allowed.iter().flat_map(|list| *list).any(|one| one.0 == name);
    for case in cases().filter(|case| !is_allowed(case.name)) {
        let device = Arc::new(MemoryDevice::new(512 << 20));
        mkfs(&*device, options).unwrap();
        let ext2 = Ext2::open(device.clone(), VolumeOptions::default()).unwrap();
        let free = |ext2: &Ext2| {
            let groups = ext2.groups();
            let sum = |count: fn(&fslab_ext2::Group) -> u32| groups.iter().map(count).sum::<u32>();
            (sum(|group| group.free_blocks), sum(|group| group.free_inodes))
        };
        let before = free(&ext2);
        if let Err(stop) = run_one(case, &ext2) {
            failures.push(format!("{}: {stop}", case.name));
            continue;
        }
        ext2.shutdown().unwrap();
        if ext2.uses() != (0, 0) || before.1 != free(&ext2).1 {
            failures.push(format!("{}: left {:?} {:?}", case.name, ext2.uses(), free(&ext2)));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn blocks_of_4_kib_conform() {
    conforms(&options(4096), &[ALWAYS]);
}

#[test]
fn blocks_of_2_kib_conform() {
    let long_value = [("xattrs/kilobyte_value_is_kept", SMALL_BLOCK)];
    conforms(&options(2048), &[ALWAYS, SMALL, &long_value]);
}

#[test]
fn blocks_of_1_kib_and_linear_directories_conform() {
    let linear = MkfsOptions { index: None, ..options(1024) };
    conforms(&linear, &[ALWAYS, SMALL, SMALLEST]);
}

#[test]
fn blocks_of_64_kib_conform() {
    conforms(&options(65_536), &[ALWAYS]);
}
