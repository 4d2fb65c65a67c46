//! The attributes, in the order in which they are probed and listed.

use std::io;

use super::finding::Finding;
use super::ground::Ground;

mod access_time;
pub(super) mod allocation_unit;
mod block_size;
mod cache_size;
mod delayed_allocation;
mod direct_input_output;
mod direct_pointers;
mod directory_index;
mod extents;
mod fan_out;
mod inline_data;
mod journal;
mod limits;
mod names;
mod operations;
mod preallocation;
mod read_ahead;
mod replacement;
mod sparse;
mod sync_cost;
mod timestamps;

/// A property of a file system that can be probed.
#[derive(Debug)]
pub struct Attribute {
    /// The name on the command line and in reports.
    pub name: &'static str,
    /// The meaning of the value, in one line.
    pub help: &'static str,
    /// Requirements of the methods in addition to a writable directory. If a requirement is not
    /// met, fewer methods apply.
    pub wants: Wants,
    /// Probes the attribute. Returns an error only if all methods are impossible.
    pub(super) find: fn(&Ground) -> io::Result<Finding>,
}

/// Makes an attribute that requires only a directory.
const fn in_directory(
    name: &'static str,
    help: &'static str,
    find: fn(&Ground) -> io::Result<Finding>,
) -> Attribute {
    Attribute { name, help, wants: Wants::Directory, find }
}

/// Requirements of an attribute's methods in addition to a writable directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// Only a writable directory.
    Directory,
    /// The right to limit the memory of this process: root, and a memory control group.
    MemoryBound,
    /// A block device that counts its requests, and that no other program uses during the probe.
    QuietDevice,
}

impl Wants {
    /// Returns a short description.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Directory => "a directory",
            Self::MemoryBound => "root, a control group",
            Self::QuietDevice => "an idle device",
        }
    }
}

/// All attributes.
pub static ATTRIBUTES: &[&Attribute] = &[
    &block_size::SPEC,
    &allocation_unit::SPEC,
    &sparse::SPEC,
    &direct_pointers::SPEC,
    &fan_out::FAN_OUT,
    &fan_out::DEPTH,
    &extents::IN_INODE,
    &extents::IN_BLOCK,
    &inline_data::SPEC,
    &delayed_allocation::SPEC,
    &preallocation::SPEC,
    &read_ahead::INITIAL,
    &read_ahead::MAXIMAL,
    &read_ahead::RANDOM,
    &cache_size::SIZE,
    &cache_size::BOUND,
    &replacement::SPEC,
    &direct_input_output::OFFSET,
    &direct_input_output::MEMORY,
    &sync_cost::SPEC,
    &journal::SPEC,
    &directory_index::SPEC,
    &limits::FILE_SIZE,
    &limits::LINKS,
    &names::LENGTH,
    &names::PATH,
    &names::CASE,
    &names::NORMALISATION,
    &timestamps::GRANULARITY,
    &timestamps::RANGE,
    &access_time::SPEC,
    &operations::REFLINK,
    &operations::PUNCH,
    &operations::ZERO_RANGE,
    &operations::COLLAPSE,
    &operations::INSERT,
    &operations::EXCHANGE,
    &operations::EXCHANGE_RANGE,
    &operations::VERITY,
    &operations::UNNAMED,
    &operations::USER_XATTR,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_different_names() {
        let mut names: Vec<_> = ATTRIBUTES.iter().map(|attribute| attribute.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ATTRIBUTES.len());
    }
}
