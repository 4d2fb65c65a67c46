//! The files and directories that existed before a trace. A replay needs them before it can repeat
//! the operations.
//!
//! If a lookup succeeds for a name that no earlier record made or removed, the file existed before
//! the trace. A file that was only listed, but never looked up, is not found. Contents are not
//! recorded, so each file gets its recorded size and arbitrary contents.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fslab_vfs::{
    Credentials, FileKind, FileSystem, Ino, Name, OpenMode, Operation, Request, WriteOptions,
};

use crate::error::{Error, Result};
use crate::escape::escape;
use crate::record::Record;

/// Files are written in pieces of this many bytes.
const PIECE_BYTES: u64 = 1 << 20;

/// Index of the root in the list of nodes.
const ROOT: usize = 0;

/// The files and directories that existed before a trace.
#[derive(Debug)]
pub struct Inventory {
    nodes: Vec<Node>,
    /// Node and lookup count of each inode that the kernel references.
    inodes: HashMap<u64, (usize, u64)>,
    /// For each directory and name, the node of the file; `None` if the trace shows that the name
    /// does not exist.
    names: HashMap<(usize, Vec<u8>), Option<usize>>,
}

/// A file of the traced tree.
#[derive(Debug, Default)]
struct Node {
    /// The file's names before the trace; none for a file that was created during the trace.
    names: Vec<(usize, Vec<u8>)>,
    mode: u32,
    size: u64,
    /// Target of a symbolic link, if the trace contains it.
    target: Option<Vec<u8>>,
}

impl Default for Inventory {
    fn default() -> Self {
        Self {
            nodes: vec![Node::default()],
            inodes: HashMap::from([(Ino::ROOT.0, (ROOT, 1))]),
            names: HashMap::new(),
        }
    }
}

impl Inventory {
    /// Updates the inventory from a record. Must be called with every record of a trace, in order.
    pub fn learn(&mut self, record: &Record) {
        if record.errno != 0 {
            return self.learn_absence(record);
        }
        match record.operation {
            Operation::Lookup => self.learn_lookup(record),
            Operation::Create | Operation::Mknod | Operation::Mkdir | Operation::Symlink => {
                let node = self.add(Node::default());
                self.bind(record.parent, record.name.as_ref(), node);
                self.remember(record, node);
            }
            Operation::Tmpfile => {
                let node = self.add(Node::default());
                self.remember(record, node);
            }
            Operation::Link => {
                let node = record.inode.and_then(|ino| self.inodes.get(&ino)).map(|found| found.0);
                if let Some(node) = node {
                    self.bind(record.new_parent, record.new_name.as_ref(), node);
                    self.remember(record, node);
                }
            }
            Operation::Unlink | Operation::Rmdir => {
                self.unbind(record.parent, record.name.as_ref());
            }
            Operation::Rename => self.learn_rename(record),
            Operation::Readlink => self.learn_target(record),
            Operation::Forget => self.learn_forget(record),
            _ => {}
        }
    }

    /// Returns the number of files and directories found.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.iter().filter(|node| !node.names.is_empty()).count()
    }

    /// Returns whether nothing was found: the trace made every file and directory that it used.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes all files and directories on a target and returns their number.
    ///
    /// # Errors
    /// [`Error::Populate`] with the name that could not be made.
    pub fn make(
        &self,
        target: &dyn FileSystem,
        owner: Option<Credentials>,
        fill: &mut dyn FnMut(&Record, &mut [u8]),
    ) -> Result<usize> {
        let request = request(owner.unwrap_or_default());
        let mut maker = Maker { target, request, fill, made: HashMap::new() };
        maker.made.insert(ROOT, Ino::ROOT);
        let result = self.nodes.iter().enumerate().try_for_each(|(id, node)| maker.make(id, node));
        let count = maker.made.len() - 1;
        for (_, ino) in maker.made.iter().filter(|(id, _)| **id != ROOT) {
            target.forget(*ino, 1);
        }
        result.map(|()| count)
    }

    fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn directory(&self, ino: Option<u64>) -> Option<usize> {
        self.inodes.get(&ino?).map(|(node, _)| *node)
    }

    fn bind(&mut self, parent: Option<u64>, name: Option<&Vec<u8>>, node: usize) {
        if let (Some(parent), Some(name)) = (self.directory(parent), name) {
            self.names.insert((parent, name.clone()), Some(node));
        }
    }

    fn unbind(&mut self, parent: Option<u64>, name: Option<&Vec<u8>>) -> Option<usize> {
        let (parent, name) = (self.directory(parent)?, name?);
        self.names.insert((parent, name.clone()), None).flatten()
    }

    /// Counts one more lookup of the inode that the operation returned.
    fn remember(&mut self, record: &Record, node: usize) {
        if let Some(ino) = record.result_inode {
            let remembered = self.inodes.entry(ino).or_insert((node, 0));
            remembered.0 = node;
            remembered.1 += 1;
        }
    }

    /// Updates the inventory from a failed lookup. If a name does not exist now, it did not exist
    /// before the trace either, unless the trace removed it.
    fn learn_absence(&mut self, record: &Record) {
        let absent = fslab_vfs::Errno::NOENT.raw_os_error().cast_unsigned();
        if record.operation == Operation::Lookup
            && record.errno == absent
            && let (Some(parent), Some(name)) = (self.directory(record.parent), &record.name)
        {
            self.names.entry((parent, name.clone())).or_insert(None);
        }
    }

    fn learn_lookup(&mut self, record: &Record) {
        let (Some(parent), Some(name)) = (self.directory(record.parent), &record.name) else {
            return;
        };
        let place = (parent, name.clone());
        let remembered = record.result_inode.and_then(|ino| self.inodes.get(&ino)).copied();
        let node = match (self.names.get(&place), remembered) {
            (Some(Some(node)), _) => *node,
            // The name was created by an operation that the trace did not record.
            (Some(None), _) => self.add(Node::default()),
            (None, Some((node, _))) => node,
            (None, None) => self.add(Node {
                mode: record.result_mode.unwrap_or_default(),
                size: record.result_size.unwrap_or_default(),
                ..Node::default()
            }),
        };
        let is_new = !self.names.contains_key(&place);
        if is_new && self.nodes[node].mode != 0 {
            self.nodes[node].names.push(place.clone());
        }
        self.names.insert(place, Some(node));
        self.remember(record, node);
    }

    fn learn_rename(&mut self, record: &Record) {
        let moved = self.unbind(record.parent, record.name.as_ref());
        let replaced = self.unbind(record.new_parent, record.new_name.as_ref());
        if let Some(node) = moved {
            self.bind(record.new_parent, record.new_name.as_ref(), node);
        }
        let exchange = fslab_vfs::RenameMode::EXCHANGE.bits();
        let exchanged = record.flags.is_some_and(|flags| flags & exchange != 0);
        if let Some(node) = replaced.filter(|_| exchanged) {
            self.bind(record.parent, record.name.as_ref(), node);
        }
    }

    fn learn_target(&mut self, record: &Record) {
        if let Some(node) = self.directory(record.inode) {
            self.nodes[node].target.get_or_insert_with(|| record.text.clone().unwrap_or_default());
        }
    }

    fn learn_forget(&mut self, record: &Record) {
        let (Some(ino), Some(lookups)) = (record.inode, record.size) else { return };
        if let Some((node, held)) = self.inodes.get_mut(&ino) {
            *held = held.saturating_sub(lookups);
            if *held == 0 && *node != ROOT {
                self.inodes.remove(&ino);
            }
        }
    }
}

fn request(credentials: Credentials) -> Request {
    Request { credentials, ..Request::default() }
}

/// Makes nodes on a target.
struct Maker<'a> {
    target: &'a dyn FileSystem,
    request: Request,
    fill: &'a mut dyn FnMut(&Record, &mut [u8]),
    made: HashMap<usize, Ino>,
}

impl Maker<'_> {
    fn make(&mut self, id: usize, node: &Node) -> Result<()> {
        for (parent, name) in &node.names {
            let Some(parent) = self.made.get(parent).copied() else { continue };
            let made = self.make_name(id, node, parent, name);
            made.map_err(|source| Error::Populate { name: escape(name), source })?;
        }
        Ok(())
    }

    fn make_name(
        &mut self,
        id: usize,
        node: &Node,
        parent: Ino,
        name: &[u8],
    ) -> fslab_vfs::Result<()> {
        let (target, request) = (self.target, self.request.clone());
        let name = Name::new(OsStr::from_bytes(name))?;
        if let Some(ino) = self.made.get(&id) {
            let linked = target.link(&request, *ino, parent, name)?;
            target.forget(linked.attr.ino, 1);
            return Ok(());
        }
        let entry = match FileKind::from_mode(node.mode) {
            Some(FileKind::Directory) => target.mkdir(&request, parent, name, node.mode)?,
            Some(FileKind::Symlink) => {
                let to = node.target.as_deref().unwrap_or(b"unknown");
                target.symlink(&request, parent, name, OsStr::from_bytes(to))?
            }
            Some(FileKind::Regular) => return self.make_file(id, node, parent, name),
            _ => target.mknod(&request, parent, name, node.mode, 0)?,
        };
        self.made.insert(id, entry.attr.ino);
        Ok(())
    }

    fn make_file(
        &mut self,
        id: usize,
        node: &Node,
        parent: Ino,
        name: Name<'_>,
    ) -> fslab_vfs::Result<()> {
        let (target, request) = (self.target, self.request.clone());
        let flags = OpenMode::WRITE_ONLY | OpenMode::EXCLUSIVE;
        let (entry, opened) = target.create(&request, parent, name, node.mode, flags)?;
        let ino = entry.attr.ino;
        self.made.insert(id, ino);
        let mut record = Record::new(Operation::Write);
        record.sequence = id as u64;
        let mut offset = 0;
        let mut written = Ok(());
        while offset < node.size && written.is_ok() {
            let mut piece = vec![0; (node.size - offset).min(PIECE_BYTES) as usize];
            (self.fill)(&record, &mut piece);
            let options = WriteOptions::default();
            let taken = target.write(&request, ino, opened.handle, offset, &piece, options);
            written = taken.map(|taken| offset += taken as u64);
        }
        let flushed = target.flush(&request, ino, opened.handle);
        let released = target.release(&request, ino, opened.handle);
        written.and(flushed).and(released)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(parent: u64, name: &str, found: Option<(u64, u32, u64)>) -> Record {
        let mut record = Record::new(Operation::Lookup);
        (record.parent, record.name) = (Some(parent), Some(name.as_bytes().to_vec()));
        match found {
            Some((ino, mode, size)) => {
                record.result_inode = Some(ino);
                record.result_mode = Some(mode);
                record.result_size = Some(size);
            }
            None => record.errno = 2,
        }
        record
    }

    fn learnt(records: &[Record]) -> Inventory {
        let mut inventory = Inventory::default();
        records.iter().for_each(|record| inventory.learn(record));
        inventory
    }

    #[test]
    fn inventory_contains_files_looked_up_before_any_create() {
        let mut created = lookup(1, "new", Some((9, 0o100_644, 0)));
        created.operation = Operation::Create;
        let inventory = learnt(&[
            lookup(1, "dir", Some((5, 0o040_755, 0))),
            lookup(5, "file", Some((6, 0o100_640, 3_000_000))),
            lookup(1, "other-name", Some((6, 0o100_640, 3_000_000))),
            lookup(1, "new", None),
            created,
            lookup(1, "new", Some((9, 0o100_644, 0))),
        ]);
        assert_eq!(inventory.len(), 2);
        let target = fslab_vfs::MemFs::default();
        let mut fill = |_: &Record, buffer: &mut [u8]| buffer.fill(7);
        assert_eq!(inventory.make(&target, None, &mut fill).unwrap(), 2);
        let request = request(Credentials::default());
        let name = |name: &'static str| Name::new(OsStr::new(name)).unwrap();
        let directory = target.lookup(&request, Ino::ROOT, name("dir")).unwrap().attr;
        let file = target.lookup(&request, directory.ino, name("file")).unwrap().attr;
        let linked = target.lookup(&request, Ino::ROOT, name("other-name")).unwrap().attr;
        assert_eq!((file.size, file.links, linked.ino), (3_000_000, 2, file.ino));
        assert_eq!(file.permissions.bits(), 0o640);
        assert!(target.lookup(&request, Ino::ROOT, name("new")).is_err());
    }

    #[test]
    fn removed_and_remade_file_is_in_the_inventory_once() {
        let mut unlink = Record::new(Operation::Unlink);
        (unlink.parent, unlink.name) = (Some(1), Some(b"file".to_vec()));
        let first = lookup(1, "file", Some((6, 0o100_644, 0)));
        let mut forget = Record::new(Operation::Forget);
        (forget.inode, forget.size) = (Some(6), Some(1));
        let again = lookup(1, "file", Some((6, 0o100_644, 0)));
        assert_eq!(learnt(&[first, unlink, forget, again]).len(), 1);
    }
}
