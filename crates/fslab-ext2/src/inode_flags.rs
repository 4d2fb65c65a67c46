//! Inode flags: what `lsattr` shows and `chattr` changes, what new inodes inherit, and what the
//! flags forbid.
//!
//! Immutable (`+i`) and append-only (`+a`) files are refused changes with `EPERM`, for root too:
//! the kernel checks this for mounts of its own, and does not know the flags of FUSE mounts.

use fslab_vfs::{Errno, FallocateMode, FileAttr, FileAttrForm, FileKind, OpenMode, Request};

use crate::error::Result;
use crate::format::{
    INODE_APPEND, INODE_DIRECTORY_SYNC, INODE_IMMUTABLE, INODE_NO_ACCESS_TIME, INODE_NO_DUMP,
    INODE_SYNC, INODE_TOP_DIRECTORY,
};
use crate::inode::Inode;
use crate::types::InodeNo;
use crate::volume::Volume;

/// What `lsattr` shows; the kernel's `EXT2_FL_USER_VISIBLE`.
const VISIBLE: u32 = 0x3_dfff;
/// What `chattr` may change: the kernel's `EXT2_FL_USER_MODIFIABLE` without the flags that ask for
/// synchronous writes, which the engine does not make.
const CHANGEABLE: u32 = 0x3_80ff & !(INODE_SYNC | INODE_DIRECTORY_SYNC);
/// What a new inode takes over from its directory; the kernel's `EXT2_FL_INHERITED`.
const INHERITED: u32 = 0x1_c6cf;

/// The flags of a new inode in a directory that has `flags`.
pub(crate) fn inherited(flags: u32, kind: FileKind) -> u32 {
    flags & INHERITED & possible(kind)
}

/// The flags that an inode of this kind may have.
fn possible(kind: FileKind) -> u32 {
    match kind {
        FileKind::Directory => u32::MAX,
        FileKind::Regular => !(INODE_DIRECTORY_SYNC | INODE_TOP_DIRECTORY),
        _ => INODE_NO_DUMP | INODE_NO_ACCESS_TIME,
    }
}

impl Volume {
    /// The flags of a file or directory that users may see.
    pub(crate) fn file_attr(&self, no: InodeNo, form: FileAttrForm) -> Result<FileAttr> {
        let inode = self.inode(no)?;
        check_has_flags(&inode)?;
        Ok(FileAttr::from_flags(inode.flags & VISIBLE, form))
    }

    /// Sets the flags of a file or directory that users may change.
    ///
    /// `EOPNOTSUPP` for a change of others, and for hints and projects, which ext2 does not have.
    pub(crate) fn set_file_attr(
        &mut self,
        request: &Request,
        no: InodeNo,
        attr: &FileAttr,
    ) -> Result<()> {
        self.begin(request)?;
        let mut inode = self.inode(no)?;
        check_has_flags(&inode)?;
        // What the form can't express stays as it is.
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
