//! FFS without the switch to another group after the twelfth block: `NoSwitch` of Smith and
//! Seltzer.
//!
//! Their slides give no more detail. Here the first indirect block follows the twelfth block, and
//! the thirteenth block follows the indirect block. The later switches, one per indirect block,
//! remain.

use super::PolicySpec;
use super::ffs::Ffs;

/// The policy's declaration.
pub(crate) const SPEC: PolicySpec = PolicySpec {
    name: "ffs-noswitch",
    help: "as ffs, but the thirteenth block stays beside the twelfth",
    build: |geometry, _seed| Box::new(Ffs::new(geometry, false)),
};
