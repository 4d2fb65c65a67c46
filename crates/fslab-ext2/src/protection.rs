//! What `chattr +i` (immutable) and `+a` (append only) forbid, for root too: `EPERM`. The kernel
//! checks this for mounts of its own, and doesn't know of it for others.

use fslab_vfs::{Errno, FallocateMode, OpenMode};

use crate::error::Result;
use crate::format::{INODE_APPEND, INODE_IMMUTABLE};
use crate::inode::Inode;
use crate::numbers::InodeNo;
use crate::volume::Volume;

/// Refuses what has one of the flags.
pub(crate) fn check_changeable(inode: &Inode) -> Result<()> {
    refuse(inode, INODE_IMMUTABLE | INODE_APPEND)
}

/// A directory that is append only gets new names.
pub(crate) fn check_gains_name(directory: &Inode) -> Result<()> {
    refuse(directory, INODE_IMMUTABLE)
}

/// A file that is append only is opened for writing at its end alone, and never emptied.
pub(crate) fn check_opening(inode: &Inode, mode: OpenMode) -> Result<()> {
    let empties = mode.contains(OpenMode::TRUNCATE);
    match mode.writes() || empties {
        true if mode.contains(OpenMode::APPEND) && !empties => refuse(inode, INODE_IMMUTABLE),
        true => check_changeable(inode),
        false => Ok(()),
    }
}

/// A file that is append only gets more space, and nothing else.
pub(crate) fn check_allocation(inode: &Inode, mode: FallocateMode) -> Result<()> {
    let only_adds = FallocateMode::KEEP_SIZE.contains(mode);
    refuse(inode, if only_adds { INODE_IMMUTABLE } else { INODE_IMMUTABLE | INODE_APPEND })
}

fn refuse(inode: &Inode, flags: u32) -> Result<()> {
    if inode.flags & flags == 0 { Ok(()) } else { Err(Errno::PERM.into()) }
}

impl Volume {
    /// A name for an inode is to leave a directory.
    pub(crate) fn check_loses_name(&self, directory: InodeNo, no: InodeNo) -> Result<()> {
        check_changeable(&self.inode(directory)?)?;
        check_changeable(&self.named_inode(no)?)
    }

    /// A name is to move from one directory to another, where `target` has it now.
    pub(crate) fn check_moves_name(
        &self,
        (from, source): (InodeNo, InodeNo),
        (to, target): (InodeNo, Option<InodeNo>),
    ) -> Result<()> {
        if target == Some(source) {
            return Ok(());
        }
        self.check_loses_name(from, source)?;
        match target {
            Some(target) => self.check_loses_name(to, target),
            None => check_gains_name(&self.inode(to)?),
        }
    }
}
