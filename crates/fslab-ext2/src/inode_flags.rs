//! Inode flags: functions to show (`lsattr`), change (`chattr`), inherit and enforce them.
//!
//! Changes of immutable (`+i`) and append-only (`+a`) files fail with `EPERM`, even for root. The
//! kernel checks these flags only for its own file systems; it does not see the flags of files in
//! FUSE mounts.

use fslab_vfs::{Errno, FallocateMode, FileAttr, FileAttrForm, FileKind, OpenMode, Request};

use crate::error::Result;
use crate::format::{
    INODE_APPEND, INODE_DIRECTORY_SYNC, INODE_IMMUTABLE, INODE_NO_ACCESS_TIME, INODE_NO_DUMP,
    INODE_SYNC, INODE_TOP_DIRECTORY,
};
use crate::inode::Inode;
use crate::types::InodeNo;
use crate::volume::Volume;

/// Flags that `lsattr` shows; the kernel's `EXT2_FL_USER_VISIBLE`.
const VISIBLE: u32 = 0x3_dfff;
/// Flags that `chattr` may change. These are the kernel's `EXT2_FL_USER_MODIFIABLE` without the
/// flags for synchronous writes, which the engine does not support.
const CHANGEABLE: u32 = 0x3_80ff & !(INODE_SYNC | INODE_DIRECTORY_SYNC);
/// Flags that a new inode inherits from its directory; the kernel's `EXT2_FL_INHERITED`.
const INHERITED: u32 = 0x1_c6cf;

/// Returns the flags of a new inode in a directory with `flags`.
pub(crate) fn inherited(flags: u32, kind: FileKind) -> u32 {
    flags & INHERITED & possible(kind)
}

/// Returns the flags that are allowed for an inode of this kind.
fn possible(kind: FileKind) -> u32 {
    match kind {
        FileKind::Directory => u32::MAX,
        FileKind::Regular => !(INODE_DIRECTORY_SYNC | INODE_TOP_DIRECTORY),
        _ => INODE_NO_DUMP | INODE_NO_ACCESS_TIME,
    }
}

impl Volume {
    /// Returns the user-visible flags of a file or directory.
    pub(crate) fn file_attr(&self, no: InodeNo, form: FileAttrForm) -> Result<FileAttr> {
        let inode = self.inode(no)?;
        check_has_flags(&inode)?;
        Ok(FileAttr::from_flags(inode.flags & VISIBLE, form))
    }

    /// Sets the user-changeable flags of a file or directory.
    ///
    /// Fails with `EOPNOTSUPP` if other flags would change. Also fails with this error if extent
    /// size hints or project IDs are set, which ext2 does not support.
    pub(crate) fn set_file_attr(
        &mut self,
        request: &Request,
        no: InodeNo,
        attr: &FileAttr,
    ) -> Result<()> {
        self.begin(request)?;
        let mut inode = self.inode(no)?;
        check_has_flags(&inode)?;
        // Flags that `attr` cannot express keep their values.
        let expressed = FileAttr::from_flags(u32::MAX, attr.form()).flags() & VISIBLE;
        let changed = (inode.flags ^ attr.flags()) & expressed;
        let asks_for_more = match attr {
            FileAttr::Flags(flags) => flags & !VISIBLE != 0,
            FileAttr::Extended(_) => *attr != FileAttr::from_flags(attr.flags(), attr.form()),
        };
        if asks_for_more || changed & !(CHANGEABLE & possible(inode.kind)) != 0 {
            return Err(Errno::OPNOTSUPP.into());
        }
        inode.flags ^= changed;
        inode.changed = request.now;
        self.store_inode(&inode)
    }
}

fn check_has_flags(inode: &Inode) -> Result<()> {
    match inode.kind {
        FileKind::Regular | FileKind::Directory => Ok(()),
        _ => Err(Errno::NOTTY.into()),
    }
}

/// Fails if the inode is immutable or append-only.
pub(crate) fn check_changeable(inode: &Inode) -> Result<()> {
    refuse(inode, INODE_IMMUTABLE | INODE_APPEND)
}

/// Fails if the directory is immutable; names may be added to an append-only directory.
pub(crate) fn check_gains_name(directory: &Inode) -> Result<()> {
    refuse(directory, INODE_IMMUTABLE)
}

/// Fails if an immutable file is opened for writing. An append-only file can be opened for writing
/// only with `O_APPEND` and without truncation.
pub(crate) fn check_opening(inode: &Inode, mode: OpenMode) -> Result<()> {
    let empties = mode.contains(OpenMode::TRUNCATE);
    match mode.writes() || empties {
        true if mode.contains(OpenMode::APPEND) && !empties => refuse(inode, INODE_IMMUTABLE),
        true => check_changeable(inode),
        false => Ok(()),
    }
}

/// Fails if the file is immutable, or if it is append-only and the allocation does more than add
/// space.
pub(crate) fn check_allocation(inode: &Inode, mode: FallocateMode) -> Result<()> {
    let only_adds = FallocateMode::KEEP_SIZE.contains(mode);
    refuse(inode, if only_adds { INODE_IMMUTABLE } else { INODE_IMMUTABLE | INODE_APPEND })
}

fn refuse(inode: &Inode, flags: u32) -> Result<()> {
    if inode.flags & flags == 0 { Ok(()) } else { Err(Errno::PERM.into()) }
}

impl Volume {
    /// Checks that a name of an inode may be removed from a directory.
    pub(crate) fn check_loses_name(&self, directory: InodeNo, no: InodeNo) -> Result<()> {
        check_changeable(&self.inode(directory)?)?;
        check_changeable(&self.named_inode(no)?)
    }

    /// Checks that a name may be moved between directories. `target` is the inode that the new name
    /// refers to before the move, if it exists.
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
