//! What a check finds: one sentence each, with the inode, block and path it is about.

use std::fmt;

use crate::flaw::{Flaw, kebab};
use crate::lazy_features::Feature;
use crate::types::{BlockNo, GroupNo, InodeNo};

/// A kind of damage, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Problem {
    /// A block or inode can't be read as what it is.
    #[error("{0}")]
    Unreadable(Flaw),
    /// The inode contradicts itself.
    #[error("the inode {0}")]
    BadInode(Flaw),
    /// A pointer leads to no block of a file.
    #[error("points to block {0}, which can't belong to a file")]
    BadPointer(u32),
    /// A block belongs to more than one file, or to one twice.
    #[error("shares block {0} with another owner")]
    SharedBlock(u32),
    /// The count of sectors is wrong.
    #[error("counts {stored} sectors and has {counted}")]
    Sectors {
        /// What the inode says.
        stored: u32,
        /// What there is.
        counted: u64,
    },
    /// The size contradicts the blocks.
    #[error("has {size} bytes, and blocks up to number {blocks}")]
    Size {
        /// What the inode says.
        size: u64,
        /// Blocks up to the last one mapped.
        blocks: u64,
    },
    /// A hole in a directory.
    #[error("is a directory with a hole at its block {0}")]
    Hole(u32),
    /// Something is wrong with a directory's block.
    #[error("its directory block {block}: {what}")]
    DirectoryBlock {
        /// Which block, counted within the directory.
        block: u32,
        /// What is wrong.
        what: Flaw,
    },
    /// An entry of a directory that can't be.
    #[error("has an entry for inode {target}, at byte {offset}, that {what}")]
    Entry {
        /// The inode it names.
        target: InodeNo,
        /// Where it is in its block, in bytes.
        offset: u32,
        /// What is wrong.
        what: Flaw,
    },
    /// `..` leads elsewhere.
    #[error("has inode {stored} as '..', and is in inode {parent}")]
    Parent {
        /// What `..` says.
        stored: InodeNo,
        /// The directory that has an entry for it.
        parent: InodeNo,
    },
    /// A directory or file in use that no path leads to.
    #[error("is in use, and no path leads to it")]
    Unattached,
    /// The count of names is wrong.
    #[error("counts {stored} names and has {counted}")]
    Links {
        /// What the inode says.
        stored: u32,
        /// What there are.
        counted: u32,
    },
    /// A bit of a bitmap of blocks is wrong.
    #[error("is {} in the bitmap of blocks", contradiction(*used))]
    BlockBit {
        /// Whether the block is in use.
        used: bool,
    },
    /// A bit of a bitmap of inodes is wrong.
    #[error("is {} in the bitmap of inodes", contradiction(*used))]
    InodeBit {
        /// Whether the inode is in use.
        used: bool,
    },
    /// Bits behind the end of a bitmap are not 1.
    #[error("has a bitmap whose padding is not all ones")]
    Padding,
    /// A count of a group or of the superblock is wrong.
    #[error("counts {stored} {what} and has {counted}")]
    Count {
        /// What is counted.
        what: &'static str,
        /// What is stored.
        stored: u32,
        /// What there are.
        counted: u32,
    },
    /// The superblock begins a list of removed files that were open.
    #[error("has inode {0} as the last file that was removed while it was open")]
    Orphans(InodeNo),
    /// The superblock says that the file system was not left in order.
    #[error("says that the file system was not unmounted in order, or that errors were seen")]
    NotInOrder,
    /// The superblock says where a journal is, and not that there is one.
    #[error("says where a journal is, and the file system has none")]
    StrayJournal,
    /// A feature is used that the superblock doesn't name.
    #[error("doesn't name the feature {0}, which is used")]
    UnnamedFeature(Feature),
    /// The block of extended attributes is shared by another number of inodes than it says.
    #[error("its attribute block counts {stored} owners and has {counted}")]
    AttributeOwners {
        /// What the block says.
        stored: u32,
        /// How many there are.
        counted: u32,
    },
}

impl Problem {
    /// A stable name in kebab-case: that of the flaw, where there is one.
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

/// Where a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The superblock.
    Superblock,
    /// A group.
    Group(GroupNo),
    /// An inode.
    Inode(InodeNo),
    /// A block that is no inode's.
    Block(BlockNo),
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub subject: Subject,
    /// What.
    pub problem: Problem,
    /// The block of the device that shows it, where it is one.
    pub block: Option<BlockNo>,
    /// A path to the inode, as far as there is one.
    pub path: Option<Vec<u8>>,
    /// What e2fsck does not look for or does not count against a file system.
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

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order of the passes; at most [`FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// How many findings are kept.
    limit: usize,
    /// More were found than are listed.
    pub more: bool,
    /// Inodes in use.
    pub inodes: u32,
    /// Directories among them.
    pub directories: u32,
    /// Blocks in use, those of the file system itself included.
    pub blocks: u32,
}

/// The most findings that are kept for a user.
pub const FINDINGS_MAX: usize = 1000;

impl Report {
    /// Whether e2fsck would call the file system clean.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.beyond_e2fsck)
    }

    /// An empty report that keeps so many findings.
    pub(crate) fn with_limit(findings_max: usize) -> Self {
        Self { limit: findings_max, ..Self::default() }
    }

    /// Keeps the first findings only.
    pub(crate) fn cut(&mut self, findings_max: usize) {
        self.more |= self.findings.len() > findings_max;
        self.findings.truncate(findings_max);
    }

    pub(crate) fn add(&mut self, subject: Subject, block: Option<BlockNo>, problem: Problem) {
        self.add_beyond(subject, block, problem, false);
    }

    /// Adds a finding; `beyond_e2fsck` where e2fsck does not count it.
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

/// What a bit says, against what is so.
fn contradiction(used: bool) -> &'static str {
    if used { "in use and free" } else { "unused and taken" }
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
