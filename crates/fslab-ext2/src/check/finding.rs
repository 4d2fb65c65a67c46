//! The findings of a check: one sentence each, with the inode, block and path.

use std::fmt;

use crate::flaw::{Flaw, kebab};
use crate::lazy_features::Feature;
use crate::types::{BlockNo, GroupNo, InodeNo};

/// A kind of damage, described in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Problem {
    /// A block or inode can't be parsed.
    #[error("{0}")]
    Unreadable(Flaw),
    /// Fields of the inode are invalid or inconsistent.
    #[error("the inode {0}")]
    BadInode(Flaw),
    /// A pointer refers to a block that can't belong to a file.
    #[error("points to block {0}, which can't belong to a file")]
    BadPointer(u32),
    /// A block belongs to several files, or to one file twice.
    #[error("shares block {0} with another file or structure")]
    SharedBlock(u32),
    /// The sector count is wrong.
    #[error("has a sector count of {stored} instead of {counted}")]
    Sectors {
        /// The count stored in the inode.
        stored: u32,
        /// The actual count.
        counted: u64,
    },
    /// The size does not match the mapped blocks.
    #[error("has a size of {size} bytes, but {blocks} blocks up to the last mapped one")]
    Size {
        /// The size stored in the inode.
        size: u64,
        /// Number of blocks up to the last mapped one.
        blocks: u64,
    },
    /// A hole in a directory.
    #[error("is a directory with a hole at its block {0}")]
    Hole(u32),
    /// A directory block is damaged.
    #[error("its directory block {block}: {what}")]
    DirectoryBlock {
        /// The index of the block in the directory.
        block: u32,
        /// The flaw.
        what: Flaw,
    },
    /// An entry of a directory is invalid.
    #[error("the entry at byte {offset}, for inode {target}, {what}")]
    Entry {
        /// The inode that the entry refers to.
        target: InodeNo,
        /// The offset of the entry in the block, in bytes.
        offset: u32,
        /// The flaw.
        what: Flaw,
    },
    /// `..` does not refer to the parent.
    #[error("has a '..' that refers to inode {stored}, but its parent is inode {parent}")]
    Parent {
        /// The inode that `..` refers to.
        stored: InodeNo,
        /// The directory that contains the entry of the affected directory.
        parent: InodeNo,
    },
    /// A file or directory is in use but has no path.
    #[error("is in use, but has no path")]
    Unattached,
    /// The link count is wrong.
    #[error("has a link count of {stored} instead of {counted}")]
    Links {
        /// The count stored in the inode.
        stored: u32,
        /// The number of names found.
        counted: u32,
    },
    /// A bit of a block bitmap is wrong.
    #[error("is {} in the block bitmap", contradiction(*used))]
    BlockBit {
        /// Whether the block is in use.
        used: bool,
    },
    /// A bit of an inode bitmap is wrong.
    #[error("is {} in the inode bitmap", contradiction(*used))]
    InodeBit {
        /// Whether the inode is in use.
        used: bool,
    },
    /// The padding bits of a bitmap are not all 1.
    #[error("has a bitmap whose padding is not all ones")]
    Padding,
    /// A count of a group or of the superblock is wrong.
    #[error("has a count of {stored} {what} instead of {counted}")]
    Count {
        /// The name of the count.
        what: &'static str,
        /// The stored count.
        stored: u32,
        /// The actual count.
        counted: u32,
    },
    /// The superblock has an orphan list, which contains inodes removed while they were open.
    #[error("has an orphan list that begins with inode {0} (removed while open)")]
    Orphans(InodeNo),
    /// The superblock does not mark the file system as clean.
    #[error("is not marked as cleanly unmounted, or has recorded errors")]
    NotInOrder,
    /// The superblock refers to a journal, but its features do not include a journal.
    #[error("refers to a journal, but the file system has none")]
    StrayJournal,
    /// A feature is used that the superblock does not declare.
    #[error("does not declare the feature {0}, which is used")]
    UnnamedFeature(Feature),
    /// The owner count of an extended attribute block is wrong.
    #[error("its attribute block has an owner count of {stored} instead of {counted}")]
    AttributeOwners {
        /// The count stored in the block.
        stored: u32,
        /// The number of inodes that use the block.
        counted: u32,
    },
}

impl Problem {
    /// Returns a stable name in kebab-case: the name of the problem, or of the flaw that it
    /// contains.
    #[must_use]
    pub fn code(&self) -> String {
        match self {
            Self::Unreadable(flaw) | Self::BadInode(flaw) => flaw.code(),
            Self::DirectoryBlock { what, .. } | Self::Entry { what, .. } => what.code(),
            other => {
                let shown = format!("{other:?}");
                kebab(shown.split(|one: char| !one.is_alphanumeric()).next().unwrap_or(&shown))
            }
        }
    }
}

/// The part of the file system that a problem affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The superblock.
    Superblock,
    /// A group.
    Group(GroupNo),
    /// An inode.
    Inode(InodeNo),
    /// A block that belongs to no inode.
    Block(BlockNo),
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The affected part of the file system.
    pub subject: Subject,
    /// The problem.
    pub problem: Problem,
    /// The affected device block, if there is exactly one.
    pub block: Option<BlockNo>,
    /// A path to the inode, if one exists.
    pub path: Option<Vec<u8>>,
    /// Whether e2fsck overlooks this problem or does not report it as an error.
    pub beyond_e2fsck: bool,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.subject {
            Subject::Superblock => formatter.write_str("superblock")?,
            Subject::Group(group) => write!(formatter, "group {group}")?,
            Subject::Inode(inode) => write!(formatter, "inode {inode}")?,
            Subject::Block(block) => write!(formatter, "block {block}")?,
        }
        if let Some(path) = &self.path {
            write!(formatter, " ({})", path.escape_ascii())?;
        }
        if let Some(block) = self.block {
            write!(formatter, ", at block {block}")?;
        }
        write!(formatter, ": {} [{}]", self.problem, self.problem.code())
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The findings in the order of the passes. A report for users contains at most
    /// [`FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// Maximum number of findings kept.
    limit: usize,
    /// Whether more problems were found than are listed.
    pub more: bool,
    /// Number of inodes in use.
    pub inodes: u32,
    /// Number of these inodes that are directories.
    pub directories: u32,
    /// Number of blocks in use, including metadata.
    pub blocks: u32,
}

/// Maximum number of findings in a report for users.
pub const FINDINGS_MAX: usize = 1000;

impl Report {
    /// Whether e2fsck would report the file system as clean.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.beyond_e2fsck)
    }

    /// Makes an empty report that keeps at most `findings_max` findings.
    pub(crate) fn with_limit(findings_max: usize) -> Self {
        Self { limit: findings_max, ..Self::default() }
    }

    /// Keeps only the first `findings_max` findings.
    pub(crate) fn cut(&mut self, findings_max: usize) {
        self.more |= self.findings.len() > findings_max;
        self.findings.truncate(findings_max);
    }

    pub(crate) fn add(&mut self, subject: Subject, block: Option<BlockNo>, problem: Problem) {
        self.add_beyond(subject, block, problem, false);
    }

    /// Adds a finding; `beyond_e2fsck` marks one that e2fsck does not report as an error.
    pub(crate) fn add_beyond(
        &mut self,
        subject: Subject,
        block: Option<BlockNo>,
        problem: Problem,
        beyond_e2fsck: bool,
    ) {
        if self.findings.len() < self.limit {
            self.findings.push(Finding { subject, problem, block, path: None, beyond_e2fsck });
        } else {
            self.more = true;
        }
    }
}

/// Describes a wrong bit: the actual use of the block or inode, and how the bitmap marks it.
fn contradiction(used: bool) -> &'static str {
    if used { "in use but marked as free" } else { "unused but marked as used" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_document_lists_every_problem() {
        let document = include_str!("../../../../docs/formats/ext2.md");
        let (stored, counted, no) = (1, 2, InodeNo::ROOT);
        let all = [
            Problem::BadPointer(1),
            Problem::SharedBlock(1),
            Problem::Sectors { stored, counted: 2 },
            Problem::Size { size: 1, blocks: 0 },
            Problem::Hole(0),
            Problem::Parent { stored: no, parent: no },
            Problem::Unattached,
            Problem::Links { stored, counted },
            Problem::BlockBit { used: true },
            Problem::InodeBit { used: true },
            Problem::Padding,
            Problem::Count { what: "free blocks", stored, counted },
            Problem::Orphans(no),
            Problem::NotInOrder,
            Problem::StrayJournal,
            Problem::UnnamedFeature(Feature::ALL[0]),
            Problem::AttributeOwners { stored, counted },
        ];
        for problem in all {
            let start = format!("{:<29} ", problem.code());
            assert!(document.lines().any(|line| line.starts_with(&start)), "missing: {start}");
        }
        assert_eq!(Problem::BadInode(Flaw::BadMode).code(), "bad-mode");
    }
}
