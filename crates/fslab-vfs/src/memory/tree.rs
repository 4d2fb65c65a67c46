//! All inodes of a memory file system: finding, creating, naming and forgetting them.
//!
//! Invariant: an inode is in the table exactly while it has a name, an unreleased lookup or an open
//! handle. Numbers are reused only if [`MemFs::reusing_numbers`](super::MemFs::reusing_numbers) was
//! called.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;

use crate::access_times::AccessTimes;
use crate::error::{Errno, Error, Result};
use crate::rules::LINKS_MAX;
use crate::rules::acl;
use crate::rules::inherit::{Inherited, Parent};
use crate::types::{Attr, Entry, FileKind, Handle, Ino, Name, Permissions, Request, Timestamp};

use super::directory::{Directory, Slot};
use super::handles::{Handles, Open};
use super::node::{Content, Node};
use super::space::{Capacity, Space};

/// Generation of all inodes until a number is reused.
const FIRST_GENERATION: u64 = 1;

/// The state of a memory file system.
#[derive(Debug)]
pub(super) struct Tree {
    pub nodes: HashMap<Ino, Node>,
    pub handles: Handles,
    pub space: Space,
    last_ino: u64,
    /// Numbers of removed inodes, if they are reused; the last one is reused first.
    pub freed: Option<Vec<Ino>>,
    pub access_times: AccessTimes,
    generation: u64,
}

pub(super) struct NewNode {
    pub kind: FileKind,
    pub mode: u32,
    pub device: u32,
    pub content: Content,
}

impl Tree {
    pub fn new(capacity: Capacity) -> Self {
        let root = Node {
            kind: FileKind::Directory,
            permissions: Permissions::new(0o755),
            uid: 0,
            gid: 0,
            device: 0,
            links: 2,
            accessed: Timestamp::default(),
            modified: Timestamp::default(),
            changed: Timestamp::default(),
            created: Timestamp::default(),
            generation: FIRST_GENERATION,
            lookups: 0,
            opens: 0,
            linkable: false,
            xattrs: BTreeMap::new(),
            content: Content::Directory(Directory::new(Ino::ROOT)),
        };
        Self {
            nodes: HashMap::from([(Ino::ROOT, root)]),
            handles: Handles::default(),
            space: Space::new(capacity),
            last_ino: Ino::ROOT.0,
            freed: None,
            access_times: AccessTimes::default(),
            generation: FIRST_GENERATION,
        }
    }

    pub fn node(&self, ino: Ino) -> Result<&Node> {
        self.nodes.get(&ino).ok_or(Error::Stale { ino })
    }

    pub fn node_mut(&mut self, ino: Ino) -> Result<&mut Node> {
        self.nodes.get_mut(&ino).ok_or(Error::Stale { ino })
    }

    pub fn attr(&self, ino: Ino) -> Result<Attr> {
        Ok(self.node(ino)?.attr(ino))
    }

    /// Returns the entry of a name.
    pub fn child(&self, parent: Ino, name: Name<'_>) -> Result<&Slot> {
        let directory = self.node(parent)?.directory()?;
        directory.get(name.as_os_str()).ok_or_else(|| Errno::NOENT.into())
    }

    /// Counts one lookup and returns the entry of the inode.
    pub fn enter(&mut self, ino: Ino) -> Result<Entry> {
        let node = self.node_mut(ino)?;
        node.lookups += 1;
        Ok(Entry { attr: node.attr(ino), generation: node.generation })
    }

    pub fn forget(&mut self, ino: Ino, lookups: u64) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.lookups = node.lookups.saturating_sub(lookups);
        }
        self.drop_unreachable(ino);
    }

    /// Opens a handle that keeps its inode alive.
    pub fn add_handle(&mut self, open: Open) -> Result<Handle> {
        self.node_mut(open.ino())?.opens += 1;
        Ok(self.handles.add(open))
    }

    pub fn release(&mut self, handle: Handle) -> Result<()> {
        let ino = self.handles.remove(handle)?.ino();
        self.node_mut(ino)?.opens -= 1;
        self.drop_unreachable(ino);
        Ok(())
    }

    fn drop_unreachable(&mut self, ino: Ino) {
        if ino != Ino::ROOT && self.nodes.get(&ino).is_some_and(Node::is_unreachable) {
            let pages = self.nodes.remove(&ino).map_or(0, |node| node.pages());
            self.space.give(pages);
            self.freed.iter_mut().for_each(|freed| freed.push(ino));
        }
    }

    fn free_number(&mut self) -> Ino {
        if let Some(ino) = self.freed.as_mut().and_then(Vec::pop) {
            self.generation += 1;
            return ino;
        }
        self.last_ino += 1;
        Ino(self.last_ino)
    }

    /// Creates an inode under a new name.
    pub fn create_named(
        &mut self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        new: NewNode,
    ) -> Result<Ino> {
        self.check_free(parent, name)?;
        let kind = new.kind;
        let links = if kind == FileKind::Directory { 2 } else { 1 };
        let ino = self.create_unnamed(request, parent, new, links)?;
        self.set_name(parent, name.as_os_str(), ino, kind, request.now)?;
        if kind == FileKind::Directory {
            self.node_mut(parent)?.links += 1;
        }
        Ok(ino)
    }

    /// Checks that a name can be created.
    pub fn check_free(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        let node = self.node(parent)?;
        if node.directory()?.get(name.as_os_str()).is_some() {
            return Err(Errno::EXIST.into());
        }
        if node.links == 0 { Err(Errno::NOENT.into()) } else { Ok(()) }
    }

    /// Creates an inode without a name, which inherits properties from the directory `parent`.
    pub fn create_unnamed(
        &mut self,
        request: &Request,
        parent: Ino,
        new: NewNode,
        links: u32,
    ) -> Result<Ino> {
        if self.nodes.len() as u64 >= self.space.inodes_all() {
            return Err(Errno::NOSPC.into());
        }
        let inherited = self.inherited(request, parent, new.kind, new.mode)?;
        let mut node = Node {
            kind: new.kind,
            permissions: inherited.permissions,
            uid: request.credentials.uid,
            gid: inherited.gid,
            device: new.device,
            links,
            accessed: request.now,
            modified: request.now,
            changed: request.now,
            created: request.now,
            generation: self.generation,
            lookups: 0,
            opens: 0,
            linkable: false,
            xattrs: [(acl::ACCESS, inherited.access_acl), (acl::DEFAULT, inherited.default_acl)]
                .into_iter()
                .filter_map(|(name, value)| Some((name.into(), value?)))
                .collect(),
            content: new.content,
        };
        node.label(&request.creation.labels)?;
        let ino = self.free_number();
        node.generation = self.generation;
        self.nodes.insert(ino, node);
        Ok(ino)
    }

    fn inherited(
        &self,
        request: &Request,
        parent: Ino,
        kind: FileKind,
        mode: u32,
    ) -> Result<Inherited> {
        let node = self.node(parent)?;
        let parent = Parent {
            permissions: node.permissions,
            gid: node.gid,
            default_acl: node.xattrs.get(OsStr::new(acl::DEFAULT)).map(Vec::as_slice),
        };
        Ok(Inherited::new(&parent, request, kind, mode))
    }

    /// Sets the inode of a name and updates the times of the directory.
    pub fn set_name(
        &mut self,
        parent: Ino,
        name: &OsStr,
        ino: Ino,
        kind: FileKind,
        now: Timestamp,
    ) -> Result<()> {
        let node = self.node_mut(parent)?;
        node.directory_mut()?.set(name, ino, kind);
        node.touch_contents(now);
        Ok(())
    }

    /// Removes a name and updates the times of the directory.
    pub fn clear_name(&mut self, parent: Ino, name: &OsStr, now: Timestamp) -> Result<()> {
        let node = self.node_mut(parent)?;
        node.directory_mut()?.remove(name);
        node.touch_contents(now);
        Ok(())
    }

    pub fn link(
        &mut self,
        request: &Request,
        ino: Ino,
        new_parent: Ino,
        new_name: Name<'_>,
    ) -> Result<Entry> {
        self.check_free(new_parent, new_name)?;
        let node = self.node_mut(ino)?;
        match node.kind {
            FileKind::Directory => return Err(Errno::PERM.into()),
            _ if node.links == 0 && !node.linkable => return Err(Errno::NOENT.into()),
            _ if node.links >= LINKS_MAX => return Err(Errno::MLINK.into()),
            _ => {}
        }
        node.links += 1;
        node.linkable = false;
        node.changed = request.now;
        let kind = node.kind;
        self.set_name(new_parent, new_name.as_os_str(), ino, kind, request.now)?;
        self.enter(ino)
    }

    /// Removes a name of anything except a directory.
    pub fn unlink(&mut self, request: &Request, parent: Ino, name: Name<'_>) -> Result<()> {
        let slot = self.child(parent, name)?.clone();
        if slot.kind == FileKind::Directory {
            return Err(Errno::ISDIR.into());
        }
        self.clear_name(parent, name.as_os_str(), request.now)?;
        self.drop_link(slot.ino, request.now)
    }

    pub fn rmdir(&mut self, request: &Request, parent: Ino, name: Name<'_>) -> Result<()> {
        let ino = self.child(parent, name)?.ino;
        if !self.node(ino)?.directory()?.is_empty() {
            return Err(Errno::NOTEMPTY.into());
        }
        self.clear_name(parent, name.as_os_str(), request.now)?;
        self.node_mut(parent)?.links -= 1;
        self.drop_link(ino, request.now)
    }

    /// Updates an inode that lost a name; a directory has only one.
    pub fn drop_link(&mut self, ino: Ino, now: Timestamp) -> Result<()> {
        let node = self.node_mut(ino)?;
        node.links = if node.kind == FileKind::Directory { 0 } else { node.links - 1 };
        node.changed = now;
        self.drop_unreachable(ino);
        Ok(())
    }
}
