//! Features that the superblock declares when they are first used.
//!
//! A feature in use must be declared, or other programs treat it as damage. For example, e2fsck
//! clears an inode's attribute block if the superblock does not declare the feature. As in the
//! kernel, copies of the superblock are not updated.

use std::fmt;

use fslab_vfs::FileKind;

use crate::error::Result;
use crate::format::{
    INODE_BYTES, REVISION_DYNAMIC, STATE_CLEAN, SUPERBLOCK_OFFSET, compat, ro_compat,
};
use crate::geometry::Geometry;
use crate::inode::Inode;
use crate::superblock::Superblock;
use crate::volume::Volume;

/// Minimum size of a file that needs [`Feature::LargeFile`], in bytes.
const LARGE_FILE_BYTES: u64 = 1 << 31;

/// A feature that is declared when it is first used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// Inodes have extended attribute blocks.
    ExtAttr,
    /// Files may have 2 GiB or more.
    LargeFile,
}

impl Feature {
    /// All features that are declared at their first use.
    pub(crate) const ALL: [Self; 2] = [Self::ExtAttr, Self::LargeFile];

    pub(crate) fn is_used_by(self, inode: &Inode) -> bool {
        match self {
            Self::ExtAttr => inode.xattr_block.is_some(),
            Self::LargeFile => inode.kind == FileKind::Regular && inode.size >= LARGE_FILE_BYTES,
        }
    }

    /// Whether a superblock declares the feature.
    pub(crate) fn is_named_by(self, superblock: &Superblock) -> bool {
        let raw = superblock.raw();
        match self {
            Self::ExtAttr => raw.s_feature_compat.get() & compat::EXT_ATTR != 0,
            Self::LargeFile => raw.s_feature_ro_compat.get() & ro_compat::LARGE_FILE != 0,
        }
    }

    /// Declares the feature in a superblock. A superblock of revision 0 has no feature flags. It is
    /// converted to revision 1, with the sizes that revision 0 implies.
    pub(crate) fn name_in(self, superblock: &mut Superblock) {
        let Geometry { first_inode, .. } = *superblock.geometry();
        let raw = superblock.raw_mut();
        if raw.s_rev_level.get() < REVISION_DYNAMIC {
            raw.s_rev_level = REVISION_DYNAMIC.into();
            raw.s_first_ino = first_inode.0.into();
            raw.s_inode_size = (INODE_BYTES as u16).into();
        }
        match self {
            Self::ExtAttr => raw.s_feature_compat |= compat::EXT_ATTR,
            Self::LargeFile => raw.s_feature_ro_compat |= ro_compat::LARGE_FILE,
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::ExtAttr => "ext_attr",
            Self::LargeFile => "large_file",
        })
    }
}

impl Volume {
    /// Declares the features that an inode uses. The superblock is durable before the inode is
    /// written, because the next flush begins with a barrier.
    pub(crate) fn name_features_of(&mut self, inode: &Inode) -> Result<()> {
        let is_missing =
            |feature: &Feature| feature.is_used_by(inode) && !feature.is_named_by(&self.superblock);
        let missing: Vec<_> = Feature::ALL.into_iter().filter(is_missing).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut named = self.superblock.clone();
        missing.iter().for_each(|feature| feature.name_in(&mut named));
        // Nothing else on the device has changed, so the clean mark is kept.
        let state = named.raw().s_state.get() & !STATE_CLEAN;
        let clean = if self.says_clean { STATE_CLEAN } else { 0 };
        named.raw_mut().s_state = (state | clean).into();
        self.cache.device().write_at(SUPERBLOCK_OFFSET, named.as_bytes())?;
        self.data_written = true;
        self.superblock = named;
        Ok(())
    }
}
