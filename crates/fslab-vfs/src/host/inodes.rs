//! Maps inode numbers to lower inodes, and reopens them.
//!
//! A lower inode is identified by device, inode number and generation; the generation is part of
//! its file handle. An entry uses at most 200 bytes and no descriptor. Exceptions are file systems
//! without file handles, and inodes in use whose last name was removed.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use fslab_sys::file_handle::FileHandle;
use parking_lot::RwLock;

use crate::error::{Error, Result};
use crate::types::{FileKind, Ino};

/// Index of a device among those found below the root; 0 is the root's.
pub(super) type DeviceIndex = u16;

/// The first number for inodes whose own number can't be shown.
const DISPLACED: u64 = 0xffff << 48;

/// The bit that marks numbers composed of a device index and an inode number.
pub(super) const OTHER_DEVICE: u64 = 1 << 63;

/// Whether a number may belong to an inode on the root's device that is shown under its own number.
pub(super) fn is_own_number(ino: Ino) -> bool {
    (2..OTHER_DEVICE).contains(&ino.0)
}

/// A lower inode as identified by `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    pub device: DeviceIndex,
    pub number: u64,
}

impl Identity {
    /// Returns the number to show: the lower inode number if possible, otherwise a number composed
    /// of the device index and the inode number. `None` if neither is possible.
    pub fn shown(self) -> Option<Ino> {
        match (self.device, self.number) {
            (0, 2..OTHER_DEVICE) => Some(Ino(self.number)),
            (1..0x7fff, 0..0x1_0000_0000_0000) => {
                Some(Ino(OTHER_DEVICE | u64::from(self.device) << 48 | self.number))
            }
            _ => None,
        }
    }
}

/// A way to open a lower inode.
#[derive(Clone, Debug)]
pub(super) enum Reference {
    /// A file handle, which needs no descriptor.
    Handle(FileHandle),
    /// An open `O_PATH` descriptor.
    Descriptor(Arc<OwnedFd>),
}

impl Reference {
    /// Returns a number that distinguishes successive uses of one inode number, if the lower file
    /// system has such numbers. The kernel uses only 32 bits of it.
    pub fn generation(&self) -> u64 {
        match self {
            Self::Handle(handle) => handle.tag().into(),
            Self::Descriptor(_) => 0,
        }
    }

    /// Returns the descriptor of a removed inode in place of this handle, if both refer to the same
    /// inode.
    fn or_removed(self, removed: Option<Arc<OwnedFd>>) -> Result<Self> {
        match (&self, removed) {
            (Self::Handle(handle), Some(removed)) if FileHandle::of(&removed)? == *handle => {
                Ok(Self::Descriptor(removed))
            }
            _ => Ok(self),
        }
    }

    /// Whether two references with equal device and number refer to the same inode. An open
    /// descriptor keeps its inode, so the number can't have been reused.
    fn is_same_generation(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Handle(one), Self::Handle(other)) => one == other,
            _ => true,
        }
    }
}

#[derive(Debug)]
struct Node {
    identity: Identity,
    kind: FileKind,
    lookups: u64,
    /// Whether an earlier process may have counted lookups of the inode.
    is_adopted: bool,
    reference: Reference,
    /// A descriptor of an inode with this number whose last name was removed. It may belong to
    /// another generation. This is checked only when the descriptor is used, because most removed
    /// inodes are forgotten immediately.
    removed: Option<Arc<OwnedFd>>,
}

impl Node {
    fn new(identity: Identity, kind: FileKind, reference: Reference) -> Self {
        Self { identity, kind, lookups: 1, is_adopted: false, reference, removed: None }
    }
}

/// The table of inodes in use.
#[derive(Debug)]
pub(super) struct Inodes {
    table: RwLock<Table>,
}

#[derive(Debug)]
struct Table {
    nodes: HashMap<Ino, Node>,
    /// The assigned numbers of inodes whose own number is in use by an earlier generation, or can't
    /// be shown.
    displaced: HashMap<Identity, Vec<Ino>>,
    displaced_count: u64,
    pinned_count: usize,
    pinned_max: usize,
}

impl Inodes {
    /// Makes a table with the root. The table keeps at most `pinned_max` descriptors of removed
    /// inodes.
    pub fn new(root: Identity, reference: Reference, pinned_max: usize) -> Self {
        let kind = FileKind::Directory;
        let root = Node::new(root, kind, reference);
        let table = Table {
            nodes: HashMap::from([(Ino::ROOT, root)]),
            displaced: HashMap::new(),
            displaced_count: 0,
            pinned_count: 0,
            pinned_max,
        };
        Self { table: RwLock::new(table) }
    }

    /// Counts one lookup of an inode and returns its number.
    pub fn remember(&self, identity: Identity, kind: FileKind, reference: Reference) -> Ino {
        self.table.write().remember(identity, kind, reference)
    }

    /// Adds an inode under its own number, unless the number is taken. The kernel may also hold
    /// lookups that an earlier process counted. So the inode is forgotten only when the kernel
    /// releases more lookups than this table has counted.
    pub fn adopt(&self, ino: Ino, identity: Identity, kind: FileKind, reference: Reference) {
        let node = Node { lookups: 0, is_adopted: true, ..Node::new(identity, kind, reference) };
        self.table.write().nodes.entry(ino).or_insert(node);
    }

    /// Counts one more lookup of an inode in use.
    pub fn hold(&self, ino: Ino) -> Result<()> {
        let mut table = self.table.write();
        table.nodes.get_mut(&ino).ok_or(Error::Stale { ino })?.lookups += 1;
        Ok(())
    }

    /// Releases lookups; returns `true` if the inode is forgotten.
    pub fn forget(&self, ino: Ino, lookups: u64) -> bool {
        ino != Ino::ROOT && self.table.write().forget(ino, lookups)
    }

    /// Returns the identity of an inode and a way to open it.
    pub fn get(&self, ino: Ino) -> Result<(Identity, Reference)> {
        let (identity, reference, removed) = {
            let table = self.table.read();
            let node = table.nodes.get(&ino).ok_or(Error::Stale { ino })?;
            (node.identity, node.reference.clone(), node.removed.clone())
        };
        Ok((identity, reference.or_removed(removed)?))
    }

    /// Returns the identity of an inode and its original reference, even if a descriptor keeps the
    /// inode usable after its last name was removed.
    pub fn handle_of(&self, ino: Ino) -> Result<(Identity, Reference)> {
        let table = self.table.read();
        let node = table.nodes.get(&ino).ok_or(Error::Stale { ino })?;
        Ok((node.identity, node.reference.clone()))
    }

    pub fn kind(&self, ino: Ino) -> Result<FileKind> {
        let table = self.table.read();
        Ok(table.nodes.get(&ino).ok_or(Error::Stale { ino })?.kind)
    }

    /// Keeps an inode usable after its last name was removed. Beyond the limit, the inode is not
    /// kept. Requests for it fail with `ESTALE` once no process has it open.
    pub fn pin(&self, identity: Identity, descriptor: &Arc<OwnedFd>) {
        self.table.write().pin(identity, descriptor);
    }

    pub fn knows(&self, ino: Ino) -> bool {
        self.table.read().nodes.contains_key(&ino)
    }

    /// Number of inodes in use, including the root.
    pub fn len(&self) -> usize {
        self.table.read().nodes.len()
    }
}

impl Table {
    fn remember(&mut self, identity: Identity, kind: FileKind, reference: Reference) -> Ino {
        if let Some(ino) = self.find(identity, &reference) {
            if let Some(node) = self.nodes.get_mut(&ino) {
                node.lookups += 1;
            }
            return ino;
        }
        let ino = self.free_number(identity);
        self.nodes.insert(ino, Node::new(identity, kind, reference));
        ino
    }

    fn find(&self, identity: Identity, reference: &Reference) -> Option<Ino> {
        self.all_of(identity).find(|ino| {
            self.nodes.get(ino).is_some_and(|node| node.reference.is_same_generation(reference))
        })
    }

    /// The numbers of all inodes in use with this identity, which differ in their generation.
    fn all_of(&self, identity: Identity) -> impl Iterator<Item = Ino> {
        let displaced = self.displaced.get(&identity).into_iter().flatten().copied();
        let known =
            move |ino: &Ino| self.nodes.get(ino).is_some_and(|node| node.identity == identity);
        identity.shown().into_iter().chain(displaced).filter(known)
    }

    fn free_number(&mut self, identity: Identity) -> Ino {
        if let Some(ino) = identity.shown().filter(|ino| !self.nodes.contains_key(ino)) {
            return ino;
        }
        let ino = Ino(DISPLACED + self.displaced_count);
        self.displaced_count += 1;
        self.displaced.entry(identity).or_default().push(ino);
        ino
    }

    fn forget(&mut self, ino: Ino, lookups: u64) -> bool {
        let MapEntry::Occupied(mut entry) = self.nodes.entry(ino) else { return false };
        let node = entry.get_mut();
        let is_known_from_before = node.is_adopted && lookups <= node.lookups;
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups > 0 || is_known_from_before {
            return false;
        }
        let node = entry.remove();
        self.pinned_count -= usize::from(node.removed.is_some());
        self.release_displaced(node.identity, ino);
        self.give_memory_back();
        true
    }

    /// Shrinks a large table after most of its inodes were forgotten.
    fn give_memory_back(&mut self) {
        const WORTH_WHILE: usize = 4096;
        let (used, room) = (self.nodes.len(), self.nodes.capacity());
        if room > WORTH_WHILE && used < room / 8 {
            self.nodes.shrink_to(room / 4);
        }
    }

    fn release_displaced(&mut self, identity: Identity, ino: Ino) {
        if let MapEntry::Occupied(mut entry) = self.displaced.entry(identity) {
            entry.get_mut().retain(|displaced| *displaced != ino);
            if entry.get().is_empty() {
                entry.remove();
            }
        }
    }

    fn pin(&mut self, identity: Identity, descriptor: &Arc<OwnedFd>) {
        for ino in self.all_of(identity).collect::<Vec<_>>() {
            let has_room = self.pinned_count < self.pinned_max;
            let Some(node) = self.nodes.get_mut(&ino).filter(|_| has_room) else { return };
            if matches!(node.reference, Reference::Handle(_)) {
                self.pinned_count += usize::from(node.removed.is_none());
                node.removed = Some(Arc::clone(descriptor));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    fn handle_of(file: impl AsFd) -> Reference {
        Reference::Handle(FileHandle::of(file).unwrap())
    }

    fn two_files() -> (File, File) {
        let directory = tempfile::tempdir_in(".").unwrap();
        let one = File::create(directory.path().join("one")).unwrap();
        let other = File::create(directory.path().join("other")).unwrap();
        (one, other)
    }

    fn two_references() -> (Reference, Reference) {
        let (one, other) = two_files();
        (handle_of(one), handle_of(other))
    }

    fn table() -> Inodes {
        let root = Reference::Descriptor(Arc::new(File::open("/").unwrap().into()));
        Inodes::new(Identity { device: 0, number: 2 }, root, 8)
    }

    /// The lookups counted here do not include those that the kernel made through the earlier
    /// process.
    #[test]
    fn an_adopted_inode_is_forgotten_with_its_earlier_lookups() {
        let (file, _) = two_references();
        let (inodes, identity) = (table(), Identity { device: 0, number: 77 });
        inodes.adopt(Ino(77), identity, FileKind::Regular, file.clone());
        for lookups in 1..3 {
            for _ in 0..lookups {
                assert_eq!(inodes.remember(identity, FileKind::Regular, file.clone()), Ino(77));
            }
            assert!(!inodes.forget(Ino(77), lookups) && inodes.knows(Ino(77)));
        }
        inodes.hold(Ino(77)).unwrap();
        assert!(inodes.forget(Ino(77), 2) && !inodes.knows(Ino(77)));
    }

    #[test]
    fn reused_lower_number_gets_another_ino() {
        let (old, new) = two_references();
        let inodes = table();
        let identity = Identity { device: 0, number: 77 };
        let first = inodes.remember(identity, FileKind::Regular, old);
        let second = inodes.remember(identity, FileKind::Regular, new.clone());
        assert_eq!(first, Ino(77));
        assert_ne!(first, second);
        assert!(inodes.forget(first, 1));
        assert_eq!(
            inodes.remember(identity, FileKind::Regular, new),
            second,
            "a remembered inode keeps its number"
        );
        assert!(!inodes.forget(second, 1));
        assert!(inodes.forget(second, 1));
        assert_eq!(inodes.len(), 1);
    }

    /// A removed name may have belonged to a different file than the kernel believes.
    #[test]
    fn pinning_another_file_does_not_replace_the_reference() {
        let (old_file, new_file) = two_files();
        let inodes = table();
        let identity = Identity { device: 0, number: 77 };
        let ino = inodes.remember(identity, FileKind::Regular, handle_of(&old_file));
        inodes.pin(identity, &Arc::new(new_file.into()));
        assert!(matches!(inodes.get(ino).unwrap().1, Reference::Handle(_)));
        inodes.pin(identity, &Arc::new(old_file.into()));
        assert!(matches!(inodes.get(ino).unwrap().1, Reference::Descriptor(_)));
    }

    #[test]
    fn memory_of_forgotten_inodes_is_given_back() {
        let (reference, _) = two_references();
        let inodes = table();
        let numbers = 10..60_010;
        for number in numbers.clone() {
            let identity = Identity { device: 0, number };
            inodes.remember(identity, FileKind::Regular, reference.clone());
        }
        assert!(inodes.table.read().nodes.capacity() >= 60_000);
        for number in numbers {
            assert!(inodes.forget(Ino(number), 1));
        }
        let room = inodes.table.read().nodes.capacity();
        assert!(room < 10_000, "room for {room}");
    }

    #[test]
    fn equal_numbers_on_two_devices_get_different_inos() {
        let (reference, _) = two_references();
        let inodes = table();
        let number = 77;
        let one =
            inodes.remember(Identity { device: 0, number }, FileKind::Regular, reference.clone());
        let other = inodes.remember(Identity { device: 1, number }, FileKind::Regular, reference);
        assert_ne!(one, other);
    }

    #[test]
    fn the_root_is_never_forgotten() {
        let inodes = table();
        assert!(!inodes.forget(Ino::ROOT, u64::MAX));
        assert!(inodes.get(Ino::ROOT).is_ok());
    }

    #[test]
    fn an_entry_takes_at_most_200_bytes() {
        // A hash map doubles when it is seven eighths full. Just after that, it has 16/7 slots for
        // each entry.
        let slot = size_of::<(Ino, Node)>() + 1;
        assert!(slot * 16 / 7 <= 200, "{slot} bytes a slot");
    }
}
