//! Renames files: the only operation that may change two directories and two other inodes.
//!
//! All checks precede the first change, so a refused rename changes nothing.

use crate::error::{Errno, Result};
use crate::types::{FileKind, Ino, Name, RenameMode, Request, Timestamp};

use super::directory::Slot;
use super::tree::Tree;

/// A name in a directory.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub parent: Ino,
    pub name: Name<'a>,
}

impl Tree {
    /// Renames a file as `renameat2(2)` does; whiteouts are not supported (`EINVAL`).
    pub fn rename(
        &mut self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        new_parent: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Result<()> {
        let (from, to) = (Place { parent, name }, Place { parent: new_parent, name: new_name });
        let now = request.now;
        let known = RenameMode::NO_REPLACE | RenameMode::EXCHANGE;
        if !known.contains(mode) || mode == known {
            return Err(Errno::INVAL.into());
        }
        let new_parent = self.node(to.parent)?;
        new_parent.directory()?;
        let new_parent_is_removed = new_parent.links == 0;
        let source = self.child(from.parent, from.name)?.clone();
        if new_parent_is_removed {
            return Err(Errno::NOENT.into());
        }
        let target = self.child(to.parent, to.name).ok().cloned();
        self.check_ancestors(&source, target.as_ref(), from, to, mode)?;
        match target {
            Some(target) if target.ino == source.ino => Ok(()),
            Some(target) if mode.contains(RenameMode::EXCHANGE) => {
                self.exchange(from, &source, to, &target, now)
            }
            target => self.replace(from, &source, to, target.as_ref(), now),
        }
    }

    /// Checks that the target exists if the mode requires it, and does not exist if the mode
    /// forbids it. Also checks that no directory is moved into itself, and that no target contains
    /// its source.
    fn check_ancestors(
        &self,
        source: &Slot,
        target: Option<&Slot>,
        from: Place<'_>,
        to: Place<'_>,
        mode: RenameMode,
    ) -> Result<()> {
        if mode.contains(RenameMode::NO_REPLACE) && target.is_some() {
            return Err(Errno::EXIST.into());
        }
        if mode.contains(RenameMode::EXCHANGE) && target.is_none() {
            return Err(Errno::NOENT.into());
        }
        if self.is_within(to.parent, source.ino)? {
            return Err(Errno::INVAL.into());
        }
        let holds_source = match target {
            Some(target) => self.is_within(from.parent, target.ino)?,
            None => false,
        };
        match holds_source {
            true if mode.contains(RenameMode::EXCHANGE) => Err(Errno::INVAL.into()),
            true => Err(Errno::NOTEMPTY.into()),
            false => Ok(()),
        }
    }

    /// Whether a directory is `ancestor` or below it.
    fn is_within(&self, directory: Ino, ancestor: Ino) -> Result<bool> {
        let mut at = directory;
        while at != ancestor {
            if at == Ino::ROOT {
                return Ok(false);
            }
            // The parent of a removed directory may no longer exist. Such a directory is not below
            // any other one.
            let Some(node) = self.nodes.get(&at) else { return Ok(false) };
            at = node.directory()?.parent;
        }
        Ok(true)
    }

    fn replace(
        &mut self,
        from: Place<'_>,
        source: &Slot,
        to: Place<'_>,
        target: Option<&Slot>,
        now: Timestamp,
    ) -> Result<()> {
        match target {
            Some(target) => self.check_replaceable(source, target)?,
            None => self.check_free(to.parent, to.name)?,
        }
        self.clear_name(from.parent, from.name.as_os_str(), now)?;
        self.set_name(to.parent, to.name.as_os_str(), source.ino, source.kind, now)?;
        if let Some(target) = target {
            self.drop_link(target.ino, now)?;
            self.count_subdirectory(target.kind, to.parent, -1)?;
        }
        self.moved(source, from.parent, to.parent, now)
    }

    fn check_replaceable(&self, source: &Slot, target: &Slot) -> Result<()> {
        match (source.kind, target.kind) {
            (FileKind::Directory, FileKind::Directory) => {
                let empty = self.node(target.ino)?.directory()?.is_empty();
                if empty { Ok(()) } else { Err(Errno::NOTEMPTY.into()) }
            }
            (FileKind::Directory, _) => Err(Errno::NOTDIR.into()),
            (_, FileKind::Directory) => Err(Errno::ISDIR.into()),
            _ => Ok(()),
        }
    }

    fn exchange(
        &mut self,
        from: Place<'_>,
        source: &Slot,
        to: Place<'_>,
        target: &Slot,
        now: Timestamp,
    ) -> Result<()> {
        self.set_name(from.parent, from.name.as_os_str(), target.ino, target.kind, now)?;
        self.set_name(to.parent, to.name.as_os_str(), source.ino, source.kind, now)?;
        self.moved(source, from.parent, to.parent, now)?;
        self.moved(target, to.parent, from.parent, now)
    }

    /// Updates an inode whose name was moved to another directory or changed in the same one.
    fn moved(&mut self, slot: &Slot, from: Ino, to: Ino, now: Timestamp) -> Result<()> {
        let node = self.node_mut(slot.ino)?;
        node.changed = now;
        if slot.kind == FileKind::Directory {
            node.directory_mut()?.parent = to;
        }
        self.count_subdirectory(slot.kind, from, -1)?;
        self.count_subdirectory(slot.kind, to, 1)
    }

    /// Updates a parent's link count: the `..` of a subdirectory is a link to it.
    fn count_subdirectory(&mut self, kind: FileKind, parent: Ino, change: i32) -> Result<()> {
        if kind == FileKind::Directory {
            let node = self.node_mut(parent)?;
            node.links = node.links.saturating_add_signed(change);
        }
        Ok(())
    }
}
