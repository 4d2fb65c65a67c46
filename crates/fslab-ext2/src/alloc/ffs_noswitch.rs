//! FFS without the move to another group after the twelfth block: Smith and Seltzer's `NoSwitch`.
//!
//! Their slides say no more than that. Here the first indirect block follows the twelfth block and
//! the thirteenth block follows it; the later moves, one for each indirect block, stay.

use super::PolicySpec;
use super::ffs::Ffs;

/// How it is declared.
pub(crate) const SPEC: PolicySpec = PolicySpec {
    name: "ffs-noswitch",
    help: "as ffs, but the thirteenth block stays beside the twelfth",
    build: |geometry, _seed| Box::new(Ffs::new(geometry, false)),
};
