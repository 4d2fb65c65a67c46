//! Runs the model test on images in memory.

use fslab_ext2::MkfsOptions;
use fslab_vfs::{FallocateMode, FileSystem};
use fslab_vfs_testing::model::{LeftOut, ModelConfig, Operation, check_against_model};

use crate::support::{in_memory, options};

#[track_caller]
fn agrees(options: &MkfsOptions) {
    let make = || Box::new(in_memory(64 << 20, options)) as Box<dyn FileSystem>;
    let mut config = ModelConfig::from_environment(150);
    config.left_out.push(LeftOut {
        reason: "a checker can't distinguish blocks past the end of a file from damage",
        covers: |operation| {
            matches!(operation, Operation::Fallocate { mode, .. }
                if mode.contains(FallocateMode::KEEP_SIZE)
                    && !mode.contains(FallocateMode::PUNCH_HOLE))
        },
    });
    let answer = check_against_model(&make, &config);
    assert!(answer.is_ok(), "{}", answer.unwrap_err());
}

#[test]
fn images_of_4_kib_blocks_agree_with_memory() {
    agrees(&options(4096));
}

#[test]
fn images_of_1_kib_blocks_agree_with_memory() {
    agrees(&options(1024));
}
