//! Renames and exchanges names. All checks come before the first change. Except in an exchange, the
//! new name is created before the old one is removed, both in memory and on the device.

use fslab_vfs::{Errno, FileKind, RenameMode, Request};

use crate::dir;
use crate::error::{Error, Place, Result};
use crate::flaw::Flaw;
use crate::namei::{NamePlace, New};
use crate::types::InodeNo;
use crate::volume::Volume;

/// Maximum depth of a directory; exceeding it means that the tree has a cycle.
const DEPTH_MAX: u32 = 1 << 20;

/// An inode involved in a rename.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Subject {
    no: InodeNo,
    kind: FileKind,
}

impl Subject {
    /// Returns the number of links that this inode adds to its parent: 1 for a directory, else 0.
    fn links_above(self) -> i32 {
        i32::from(self.kind == FileKind::Directory)
    }
}

/// The old name and its inode, the new name, and the inode that the new name refers to before the
/// rename, if it exists.
#[derive(Clone, Copy)]
struct Move<'a> {
    from: NamePlace<'a>,
    source: Subject,
    to: NamePlace<'a>,
    target: Option<Subject>,
}

impl Volume {
    /// Renames like `renameat2(2)`.
    pub(crate) fn rename(
        &mut self,
        request: &Request,
        from: NamePlace<'_>,
        to: NamePlace<'_>,
        mode: RenameMode,
    ) -> Result<()> {
        let replacing = RenameMode::NO_REPLACE | RenameMode::WHITEOUT;
        if !replacing.contains(mode) && mode != RenameMode::EXCHANGE {
            return Err(Errno::INVAL.into());
        }
        self.begin(request)?;
        let new_parent_links = self.directory(to.parent)?.inode.links;
        let source = self.subject(from)?.ok_or(Errno::NOENT)?;
        if new_parent_links == 0 {
            return Err(Errno::NOENT.into());
        }
        let target = self.subject(to)?;
        let moving = Move { from, source, to, target };
        self.check_rename(moving, mode)?;
        let replaced = target.map(|target| target.no);
        self.check_moves_name((from.parent, source.no), (to.parent, replaced))?;
        let answer = match target {
            Some(target) if target.no == source.no => Ok(()),
            Some(target) if mode.contains(RenameMode::EXCHANGE) => self.exchange(moving, target),
            _ if mode.contains(RenameMode::WHITEOUT) => {
                // Overlay file systems use a character device with number 0 to mark a removed name.
                let new = New::of_kind(FileKind::CharDevice, 0);
                let whiteout = self.make_inode(request, from.parent, &new, 1)?;
                self.replace(moving, Some(whiteout))
            }
            _ => self.replace(moving, None),
        };
        if source.kind == FileKind::Directory || mode.contains(RenameMode::EXCHANGE) {
            self.order.pending.is_unordered = true;
        }
        answer
    }

    fn subject(&self, place: NamePlace<'_>) -> Result<Option<Subject>> {
        match self.child(place) {
            Ok(no) => Ok(Some(Subject { no, kind: self.named_inode(no)?.kind })),
            Err(error) if error.is(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Checks that the mode permits the target. Also checks that no directory is moved into itself
    /// and that the target does not contain the source.
    fn check_rename(&self, moving: Move<'_>, mode: RenameMode) -> Result<()> {
        let Move { from, source, to, target } = moving;
        let exchange = mode.contains(RenameMode::EXCHANGE);
        if mode.contains(RenameMode::NO_REPLACE) && target.is_some() {
            return Err(Errno::EXIST.into());
        }
        if exchange && target.is_none() {
            return Err(Errno::NOENT.into());
        }
        if source.kind == FileKind::Directory && self.is_within(to.parent, source.no)? {
            return Err(Errno::INVAL.into());
        }
        let holds_source = match target {
            Some(target) if target.kind == FileKind::Directory => {
                self.is_within(from.parent, target.no)?
            }
            _ => false,
        };
        match holds_source {
            true if exchange => Err(Errno::INVAL.into()),
            true => Err(Errno::NOTEMPTY.into()),
            false => Ok(()),
        }
    }

    /// Whether a directory is `ancestor` or is inside it.
    fn is_within(&self, directory: InodeNo, ancestor: InodeNo) -> Result<bool> {
        let mut at = directory;
        for _ in 0..DEPTH_MAX {
            if at == ancestor || at == InodeNo::ROOT {
                return Ok(at == ancestor);
            }
            let inode = self.inode(at)?;
            // A removed directory that is still open may outlive its parent, so its `..` is not
            // followed.
            if inode.links == 0 {
                return Ok(false);
            }
            at = dir::parent(&self.directory(at)?)?;
        }
        Err(Error::damaged(Place::Inode(directory), Flaw::DirectoryCircle))
    }

    fn replace(&mut self, moving: Move<'_>, whiteout: Option<InodeNo>) -> Result<()> {
        let Move { from, source, to, target } = moving;
        let moved = self.move_name(moving, whiteout);
        moved.inspect_err(|_| whiteout.into_iter().for_each(|no| self.abandon(no)))?;
        let (gains, loses) = (source.links_above(), target.map_or(0, Subject::links_above));
        let answer = self
            .touch_directory(from.parent, -gains)
            .and_then(|()| self.touch_directory(to.parent, gains - loses))
            .and_then(|()| target.map_or(Ok(()), |target| self.drop_link(target.no)))
            .and_then(|()| self.moved(source, from.parent, to.parent));
        let no = source.no;
        answer.inspect_err(|error| {
            self.trouble.log(&format!("can't complete the rename of inode {no}"), error)
        })
    }

    /// Creates the new name and removes the old one, or makes the old one refer to a whiteout. On
    /// failure, both names are as before.
    fn move_name(&mut self, moving: Move<'_>, whiteout: Option<InodeNo>) -> Result<()> {
        let Move { from, source, to, target } = moving;
        if let Some(target) = target {
            self.check_replaceable(source, target)?;
        }
        let loses = target.map_or(0, Subject::links_above);
        if from.parent != to.parent && source.links_above() > loses {
            self.check_links(to.parent)?;
        }
        match target {
            Some(target) => {
                if loses > 0 {
                    self.order_removal(target.no)?;
                }
                self.replace_name(to, source.no, source.kind)?;
            }
            None => {
                let vacancy = self.vacancy(to)?;
                self.add_name(to, &vacancy, source.no, source.kind)?;
            }
        }
        let left = self.leave_old_name(from, to, whiteout);
        self.order.pending.renamed(source.no);
        left.inspect_err(|_| self.take_back(to, target))
    }

    /// Removes a new name again, because the old name could not be removed. Otherwise the inode
    /// would have two names but a link count of one. After the removal of one name, the other would
    /// refer to a free or reused inode.
    fn take_back(&mut self, to: NamePlace<'_>, target: Option<Subject>) {
        let answer = match target {
            Some(target) => self.replace_name(to, target.no, target.kind),
            None => self.remove_name(to),
        };
        if let Err(error) = answer {
            self.trouble.log("a renamed file has both its old and its new name", &error);
        }
    }

    fn check_replaceable(&self, source: Subject, target: Subject) -> Result<()> {
        match (source.kind, target.kind) {
            (FileKind::Directory, FileKind::Directory) => self.check_empty(target.no),
            (FileKind::Directory, _) => Err(Errno::NOTDIR.into()),
            (_, FileKind::Directory) => Err(Errno::ISDIR.into()),
            _ => Ok(()),
        }
    }

    fn check_links(&self, parent: InodeNo) -> Result<()> {
        let links = self.inode(parent)?.links;
        if links < fslab_vfs::rules::LINKS_MAX { Ok(()) } else { Err(Errno::MLINK.into()) }
    }

    /// Removes the old name or makes it refer to a whiteout, in an order such that a power cut
    /// never loses both names.
    fn leave_old_name(
        &mut self,
        from: NamePlace<'_>,
        to: NamePlace<'_>,
        whiteout: Option<InodeNo>,
    ) -> Result<()> {
        let old = self.block_of_name(from)?;
        let new = self.block_of_name(to)?;
        let (Some(old), Some(new)) = (old, new) else { return Err(Errno::NOENT.into()) };
        if old != new {
            self.order_move(from.parent, old, new)?;
        }
        match whiteout {
            Some(no) => self.replace_name(from, no, FileKind::CharDevice),
            None => self.remove_name(from),
        }
    }

    /// Exchanges two names. Their order on the device is not defined (see
    /// [`crate::write_order::dependencies`]).
    fn exchange(&mut self, moving: Move<'_>, target: Subject) -> Result<()> {
        let Move { from, source, to, .. } = moving;
        let gains = source.links_above() - target.links_above();
        if from.parent != to.parent && gains != 0 {
            self.check_links(if gains > 0 { to.parent } else { from.parent })?;
        }
        self.replace_name(from, target.no, target.kind)?;
        let answer = self
            .replace_name(to, source.no, source.kind)
            .and_then(|()| self.touch_directory(from.parent, -gains))
            .and_then(|()| self.touch_directory(to.parent, gains))
            .and_then(|()| self.moved(source, from.parent, to.parent))
            .and_then(|()| self.moved(target, to.parent, from.parent));
        answer.inspect_err(|error| {
            self.trouble.log("can't complete the exchange of two names", error)
        })
    }

    /// Updates the change time of a renamed inode, and the `..` of a directory that has a new
    /// parent.
    fn moved(&mut self, subject: Subject, from: InodeNo, to: InodeNo) -> Result<()> {
        let mut inode = self.inode(subject.no)?;
        inode.changed = self.now;
        self.store_inode(&inode)?;
        if subject.kind != FileKind::Directory || from == to {
            return Ok(());
        }
        dir::set_parent(&mut self.directory_mut(subject.no)?, to)
    }
}
