//! FFS without the switch to another group after the twelfth block: `NoSwitch` of Smith and
//! Seltzer.
//!
//! Their slides contain no more details. In this implementation, the first indirect block follows
//! the twelfth block, and the thirteenth block follows the indirect block. The later switches, one
//! per indirect block, are kept.

use super::PolicySpec;
use super::ffs::Ffs;

pub(crate) const SPEC: PolicySpec = PolicySpec {
    name: "ffs-noswitch",
    help: "like ffs, but a file does not switch groups after 12 blocks",
    build: |geometry, _seed| Box::new(Ffs::new(geometry, false)),
};
