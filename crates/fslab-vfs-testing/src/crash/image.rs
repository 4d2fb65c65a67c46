//! The stored content of a file system: effects change it, and it can be restored elsewhere.
//!
//! Images of different states share nodes and sectors.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::FileSystem;
use fslab_vfs::Result;
use fslab_vfs::{
    Attr, FileKind, Ino, Name, OpenMode, Permissions, Request, SetAttr, SetTime, Timestamp,
    WriteOptions, XattrMode,
};

use super::effect::{Change, SECTOR_BYTES};

type Sector = Arc<[u8; SECTOR_BYTES as usize]>;

/// All inodes. Inodes that can't be reached from the root are lost.
#[derive(Clone, Debug)]
pub(super) struct Image {
    nodes: HashMap<Ino, Arc<Node>>,
}

/// A stored inode.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub kind: FileKind,
    pub permissions: Permissions,
    pub uid: u32,
    pub gid: u32,
    pub device: u32,
    pub size: u64,
    pub target: OsString,
    /// `None` if times are not recorded.
    pub modified: Option<Timestamp>,
    pub sectors: BTreeMap<u64, Sector>,
    pub names: BTreeMap<OsString, Ino>,
    pub xattrs: BTreeMap<OsString, Vec<u8>>,
}

impl Node {
    /// An inode without contents that has the attributes of an existing one.
    pub fn new(attr: &Attr, target: OsString, xattrs: BTreeMap<OsString, Vec<u8>>) -> Self {
        Self {
            kind: attr.kind,
            permissions: attr.permissions,
            uid: attr.uid,
            gid: attr.gid,
            device: attr.device,
            size: 0,
            target,
            modified: None,
            sectors: BTreeMap::new(),
            names: BTreeMap::new(),
            xattrs,
        }
    }

    fn resize(&mut self, size: u64) {
        self.clear(size..u64::MAX);
        self.size = size;
    }

    /// Removes the whole sectors of a range and zeroes the rest of the sector in which it starts.
    fn clear(&mut self, range: Range<u64>) {
        let first = range.start.div_ceil(SECTOR_BYTES);
        let last = range.end / SECTOR_BYTES;
        let emptied: Vec<u64> =
            self.sectors.range(first..last.max(first)).map(|(n, _)| *n).collect();
        for number in emptied {
            self.sectors.remove(&number);
        }
        let kept = (range.start % SECTOR_BYTES) as usize;
        if kept > 0
            && let Some(sector) = self.sectors.get_mut(&(range.start / SECTOR_BYTES))
        {
            Arc::make_mut(sector)[kept..].fill(0);
        }
    }
}

impl Image {
    pub fn new(root: Node) -> Self {
        Self { nodes: HashMap::from([(Ino::ROOT, Arc::new(root))]) }
    }

    /// Adds an inode that has no name yet.
    pub fn add(&mut self, ino: Ino, node: Arc<Node>) {
        self.nodes.insert(ino, node);
    }

    pub fn apply(&mut self, change: &Change) {
        if let Change::Names(bindings) = change {
            for binding in bindings {
                self.change(binding.directory, |directory| {
                    match binding.ino {
                        Some(ino) => directory.names.insert(binding.name.clone(), ino),
                        None => directory.names.remove(&binding.name),
                    };
                });
            }
        } else if let Some(ino) = change.ino() {
            self.change(ino, |node| apply_to(node, change));
        }
    }

    /// Empties a range of a file: the rest of one sector, or whole sectors.
    pub fn clear(&mut self, ino: Ino, range: Range<u64>) {
        if range.start < range.end {
            self.change(ino, |node| node.clear(range));
        }
    }

    fn change(&mut self, ino: Ino, work: impl FnOnce(&mut Node)) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            work(Arc::make_mut(node));
        }
    }

    /// Creates the same files in an empty file system, which assigns its own inode numbers.
    pub fn restore(&self, empty: &dyn FileSystem) -> Result<()> {
        let mut restorer = Restorer {
            image: self,
            memory: empty,
            request: Request::default(),
            made: HashMap::new(),
        };
        restorer.attributes(Ino::ROOT, Ino::ROOT)?;
        restorer.directory(Ino::ROOT, Ino::ROOT)
    }
}

fn apply_to(node: &mut Node, change: &Change) {
    match change {
        Change::Resize { size, .. } => node.resize(*size),
        Change::Clear { range, .. } => node.clear(range.clone()),
        Change::Sector { number, bytes, .. } => {
            node.sectors.insert(*number, Arc::clone(bytes));
        }
        Change::Attributes { permissions, uid, gid, .. } => {
            (node.permissions, node.uid, node.gid) = (*permissions, *uid, *gid);
        }
        Change::Time { modified, .. } => node.modified = Some(*modified),
        Change::Xattr { name, value: Some(value), .. } => {
            node.xattrs.insert(name.clone(), value.clone());
        }
        Change::Xattr { name, value: None, .. } => {
            node.xattrs.remove(name);
        }
        Change::Names(_) => {}
    }
}

/// Creates the files of an image in an empty file system.
struct Restorer<'a> {
    image: &'a Image,
    memory: &'a dyn FileSystem,
    request: Request,
    /// New inodes by old ones, for files with several names.
    made: HashMap<Ino, Ino>,
}

impl Restorer<'_> {
    fn directory(&mut self, old: Ino, new: Ino) -> Result<()> {
        let Some(node) = self.image.nodes.get(&old) else { return Ok(()) };
        for (name, child) in &node.names {
            self.entry(new, name, *child)?;
        }
        Ok(())
    }

    fn entry(&mut self, parent: Ino, name: &OsStr, old: Ino) -> Result<()> {
        let Some(node) = self.image.nodes.get(&old) else { return Ok(()) };
        let name = Name::new(name)?;
        if let Some(new) = self.made.get(&old) {
            self.memory.link(&self.request, *new, parent, name)?;
            self.memory.forget(*new, 1);
            return Ok(());
        }
        let mode = node.kind.mode_bits() | node.permissions.bits();
        let (memory, request) = (self.memory, &self.request);
        let entry = match node.kind {
            FileKind::Directory => memory.mkdir(request, parent, name, node.permissions.bits()),
            FileKind::Symlink => memory.symlink(request, parent, name, &node.target),
            _ => memory.mknod(request, parent, name, mode, node.device),
        }?;
        let new = entry.attr.ino;
        self.made.insert(old, new);
        self.attributes(old, new)?;
        self.contents(old, new)?;
        self.memory.forget(new, 1);
        Ok(())
    }

    fn attributes(&self, old: Ino, new: Ino) -> Result<()> {
        let Some(node) = self.image.nodes.get(&old) else { return Ok(()) };
        let changes = SetAttr { uid: Some(node.uid), gid: Some(node.gid), ..SetAttr::default() };
        self.memory.setattr(&self.request, new, None, &changes)?;
        if node.kind != FileKind::Symlink {
            let permissions = Some(node.permissions);
            let changes = SetAttr { permissions, ..SetAttr::default() };
            self.memory.setattr(&self.request, new, None, &changes)?;
        }
        for (name, value) in &node.xattrs {
            self.memory.setxattr(&self.request, new, name, value, XattrMode::empty())?;
        }
        Ok(())
    }

    fn contents(&mut self, old: Ino, new: Ino) -> Result<()> {
        let Some(node) = self.image.nodes.get(&old) else { return Ok(()) };
        match node.kind {
            FileKind::Directory => self.directory(old, new),
            FileKind::Regular => self.data(node, new),
            _ => Ok(()),
        }
    }

    fn data(&self, node: &Node, new: Ino) -> Result<()> {
        let (memory, request) = (self.memory, &self.request);
        let handle = memory.open(request, new, OpenMode::READ_WRITE)?.handle;
        for (number, bytes) in &node.sectors {
            let offset = number * SECTOR_BYTES;
            let visible = node.size.saturating_sub(offset).min(SECTOR_BYTES) as usize;
            let options = WriteOptions::default();
            memory.write(request, new, handle, offset, &bytes[..visible], options)?;
        }
        let size = SetAttr { size: Some(node.size), ..SetAttr::default() };
        memory.setattr(request, new, Some(handle), &size)?;
        if let Some(modified) = node.modified {
            let modified = Some(SetTime::To(modified));
            let changes = SetAttr { modified, ..SetAttr::default() };
            memory.setattr(request, new, Some(handle), &changes)?;
        }
        memory.release(request, new, handle)
    }
}
