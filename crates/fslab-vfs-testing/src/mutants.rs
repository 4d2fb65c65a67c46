//! File systems with one planted bug each, to show that the tests of this crate find it.
//!
//! Each of them wraps a correct file system and changes its behaviour. `caught_by` names the check
//! that must find the bug.

use fslab_vfs::FileSystem;

mod data;
mod meta;

/// The check that finds a planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaughtBy {
    /// The comparison with the model.
    Model,
    /// The conformance case of this name.
    Case(&'static str),
}

/// A planted bug.
#[derive(Clone, Copy)]
pub struct Mutant {
    /// The incorrect behaviour.
    pub bug: &'static str,
    /// The check that finds it.
    pub caught_by: CaughtBy,
    /// Wraps a correct file system.
    pub plant: fn(Box<dyn FileSystem>) -> Box<dyn FileSystem>,
}

/// All planted bugs.
pub const MUTANTS: &[Mutant] = &[
    data::STALE_BYTES_AFTER_SHRINKING,
    data::SHORT_READ_AT_CHUNK_BORDER,
    data::APPEND_OVERWRITES,
    data::TRUNCATING_OPEN_KEEPS_BYTES,
    data::PUNCH_ROUNDS_OUTWARDS,
    data::COPY_FORGETS_SOURCE_OFFSET,
    data::SET_ID_SURVIVES_WRITE,
    data::WRITE_LEAVES_TIMES,
    data::DATA_IS_REPORTED_LATE,
    meta::RENAME_REPLACES_ALWAYS,
    meta::EXCHANGE_REPLACES,
    meta::UNLINK_LEAVES_COUNT,
    meta::LISTING_LOSES_AN_ENTRY,
    meta::SETXATTR_OVERWRITES_ALWAYS,
    meta::CHMOD_FORGETS_SET_ID,
    meta::MKDIR_FORGETS_SET_GID,
    meta::RENAMED_FILE_GETS_XATTRS_LOST,
    meta::EXCLUSIVE_CREATION_RACES,
];
