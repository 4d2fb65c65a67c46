//! The operations that create files. Each creates an inode and counts one lookup. All except
//! `tmpfile` also create a name.

use std::ffi::OsStr;

use crate::error::{Errno, Result};
use crate::rules;
use crate::types::{Entry, FileKind, Ino, Name, OpenMode, Opened, Request};

use super::directory::Directory;
use super::node::Content;
use super::tree::{NewNode, Tree};

impl Tree {
    pub fn mknod(
        &mut self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        device: u32,
    ) -> Result<Entry> {
        let kind = rules::special_kind(mode)?;
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        let device = if is_device { device } else { 0 };
        let new = NewNode { kind, mode, device, content: Content::of_kind(kind) };
        let ino = self.create_named(request, parent, name, new)?;
        self.enter(ino)
    }

    pub fn mkdir(
        &mut self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
    ) -> Result<Entry> {
        // Linux takes the sticky bit from the caller, and the set-id bits only from the parent
        // directory.
        let mode = mode & 0o1777;
        let content = Content::Directory(Directory::new(parent));
        let new = NewNode { kind: FileKind::Directory, mode, device: 0, content };
        let ino = self.create_named(request, parent, name, new)?;
        self.enter(ino)
    }

    pub fn symlink(
        &mut self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        target: &OsStr,
    ) -> Result<Entry> {
        rules::check_target(target)?;
        let content = Content::Symlink(target.to_owned());
        let new = NewNode { kind: FileKind::Symlink, mode: 0o777, device: 0, content };
        let ino = self.create_named(request, parent, name, new)?;
        self.enter(ino)
    }

    /// Creates and opens a file, or opens the existing one.
    pub fn create(
        &mut self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        let existing = self.node(parent)?.directory()?.get(name.as_os_str()).map(|slot| slot.ino);
        let (ino, opened) = match existing {
            Some(_) if flags.contains(OpenMode::EXCLUSIVE) => return Err(Errno::EXIST.into()),
            Some(ino) => (ino, self.open(request, ino, flags)?),
            None => {
                let ino = self.create_named(request, parent, name, new_file(mode))?;
                (ino, self.open(request, ino, flags - OpenMode::TRUNCATE)?)
            }
        };
        Ok((self.enter(ino)?, opened))
    }

    pub fn tmpfile(
        &mut self,
        request: &Request,
        parent: Ino,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        let directory = self.node(parent)?;
        directory.directory()?;
        if directory.links == 0 {
            return Err(Errno::NOENT.into());
        }
        let ino = self.create_unnamed(request, parent, new_file(mode), 0)?;
        self.node_mut(ino)?.linkable = !flags.contains(OpenMode::EXCLUSIVE);
        let opened = self.open(request, ino, flags - OpenMode::TRUNCATE)?;
        Ok((self.enter(ino)?, opened))
    }
}

fn new_file(mode: u32) -> NewNode {
    let kind = FileKind::Regular;
    NewNode { kind, mode, device: 0, content: Content::of_kind(kind) }
}
