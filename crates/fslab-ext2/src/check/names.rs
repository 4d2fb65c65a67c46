//! The second pass checks directories, entry by entry; the third checks the parent of each
//! directory.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hasher as _};

use fslab_vfs::FileKind;

use super::finding::{Problem, Subject};
use super::image::{Blocks, Directory, Image};
use crate::dir::entry::{Entries, Entry, EntryKind, HEADER};
use crate::dir::{Rules, verify};
use crate::error::Result;
use crate::flaw::Flaw;
use crate::types::{BlockNo, InodeNo};

pub(super) fn check(image: &mut Image) -> Result<()> {
    let rules = image.rules();
    let numbers: Vec<InodeNo> = image.directories.keys().copied().collect();
    for no in numbers {
        let mut directory = image.directories.remove(&no).unwrap_or_default();
        let mut all = AllNames::default();
        for (index, &block) in (0..).zip(&directory.blocks) {
            let bytes = image.cache.read(block)?;
            let mut page = Page { no, block, index, rules: &rules, names: HashSet::new() };
            for (number, entry) in Entries::of(&bytes).enumerate() {
                match entry {
                    Ok(entry) if index == 0 && number < 2 => {
                        let dotdot = page.check_dot(image, number, &entry, &bytes);
                        directory.dotdot = directory.dotdot.or(dotdot);
                    }
                    Ok(entry) => {
                        if page.check_entry(image, &entry) {
                            all.add(entry.name);
                        }
                    }
                    Err(what) => page.complain(image, what),
                }
            }
        }
        if !all.repeated.is_empty() {
            check_repeated(image, no, &directory, &all.repeated)?;
        }
        // A directory without blocks has a wrong size, which has already been reported.
        if directory.indexed && !directory.blocks.is_empty() {
            check_index(image, no, &directory)?;
        }
        image.directories.insert(no, directory);
    }
    resolve_parents(image);
    Ok(())
}

/// Hashes of the names in a directory. They need a fixed number of bytes per name, regardless of
/// its length.
#[derive(Default)]
struct AllNames {
    seen: HashSet<u64>,
    /// Hashes that occurred more than once, because a name is repeated or several names share a
    /// hash.
    repeated: HashSet<u64>,
}

impl AllNames {
    fn hash(name: &[u8]) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(name);
        hasher.finish()
    }

    fn add(&mut self, name: &[u8]) {
        let hash = Self::hash(name);
        if !self.seen.insert(hash) {
            self.repeated.insert(hash);
        }
    }
}

/// Reports names with these hashes that occur in two blocks. e2fsck overlooks them, because it
/// checks each block separately.
fn check_repeated(
    image: &mut Image,
    no: InodeNo,
    directory: &Directory,
    hashes: &HashSet<u64>,
) -> Result<()> {
    let mut places: HashMap<Vec<u8>, BlockNo> = HashMap::new();
    for (index, &block) in directory.blocks.iter().enumerate() {
        let bytes = image.cache.read(block)?;
        let skipped = if index == 0 { 2 } else { 0 };
        for entry in Entries::of(&bytes).skip(skipped).flatten() {
            let Some(target) = entry.inode.filter(|target| image.kind(*target).is_some()) else {
                continue;
            };
            if !hashes.contains(&AllNames::hash(entry.name)) {
                continue;
            }
            // A name that occurs twice in one block has already been reported.
            let first = *places.entry(entry.name.to_vec()).or_insert(block);
            if first != block {
                let offset = entry.offset as u32;
                image.report.add_beyond(
                    Subject::Inode(no),
                    Some(block),
                    Problem::Entry { target, offset, what: Flaw::NameTwice },
                    true,
                );
            }
        }
    }
    Ok(())
}

fn check_index(image: &mut Image, no: InodeNo, directory: &Directory) -> Result<()> {
    for flaw in verify::verify(&Blocks { image, no, directory })? {
        let block = flaw.block.0;
        image.report.add_beyond(
            Subject::Inode(no),
            directory.blocks.get(block as usize).copied(),
            Problem::DirectoryBlock { block, what: flaw.what },
            // e2fsck overlooks this flaw, although the kernel does not find all names in such an
            // index.
            flaw.what == Flaw::HashUnreachable,
        );
    }
    Ok(())
}

/// One block of a directory.
struct Page<'a> {
    no: InodeNo,
    block: BlockNo,
    /// The index of the block in the directory.
    index: u32,
    rules: &'a Rules,
    names: HashSet<Vec<u8>>,
}

impl Page<'_> {
    fn complain(&self, image: &mut Image, what: Flaw) {
        let problem = Problem::DirectoryBlock { block: self.index, what };
        image.report.add(Subject::Inode(self.no), Some(self.block), problem);
    }

    fn wrong(&self, image: &mut Image, entry: &Entry<'_>, what: Flaw, beyond_e2fsck: bool) {
        let Some(target) = entry.inode else { return };
        let problem = Problem::Entry { target, offset: entry.offset as u32, what };
        let subject = Subject::Inode(self.no);
        image.report.add_beyond(subject, Some(self.block), problem, beyond_e2fsck);
    }

    /// Checks the kind of an entry. e2fsck silently fills in a missing kind.
    fn check_kind(&self, image: &mut Image, entry: &Entry<'_>, right: EntryKind) {
        if entry.kind != right {
            self.wrong(image, entry, Flaw::WrongKind, entry.kind == EntryKind::UNKNOWN);
        }
    }

    /// Checks one of the first two entries; returns the inode that `..` refers to.
    fn check_dot(
        &self,
        image: &mut Image,
        number: usize,
        entry: &Entry<'_>,
        bytes: &[u8],
    ) -> Option<InodeNo> {
        let expected: &[u8] = if number == 0 { b"." } else { b".." };
        let Some(target) = entry.inode.filter(|_| entry.name == expected) else {
            self.complain(image, Flaw::NoDots);
            return None;
        };
        if number == 0 && target != self.no {
            self.wrong(image, entry, Flaw::WrongDot, false);
        }
        let told = self.rules.told(EntryKind::DIRECTORY);
        self.check_kind(image, entry, told);
        if bytes.get(entry.offset + HEADER + entry.name.len()) != Some(&0) {
            self.wrong(image, entry, Flaw::DotNotEnded, false);
        }
        if let Some(known) = image.inodes.get_mut(target.0 as usize) {
            known.counted += 1;
        }
        (number == 1).then_some(target)
    }

    /// Checks an entry other than the first two of a directory. Returns whether it is in use and
    /// has no flaw.
    fn check_entry(&mut self, image: &mut Image, entry: &Entry<'_>) -> bool {
        let Some(target) = entry.inode else { return false };
        let flaw = self.flaw_of_entry(image, entry, target);
        match flaw {
            Some(what) => self.wrong(image, entry, what, false),
            None => image.inodes[target.0 as usize].counted += 1,
        }
        flaw.is_none()
    }

    fn flaw_of_entry(
        &mut self,
        image: &mut Image,
        entry: &Entry<'_>,
        target: InodeNo,
    ) -> Option<Flaw> {
        if let Some(what) = self.flaw_of_name(entry.name) {
            return Some(what);
        }
        if target != InodeNo::ROOT && image.is_reserved(target)
            || target.0 > image.geometry().inodes()
        {
            return Some(Flaw::NamesReserved);
        }
        let Some(kind) = image.kind(target) else { return Some(Flaw::NamesUnused) };
        if target == InodeNo::ROOT {
            return Some(Flaw::NamesRoot);
        }
        self.check_kind(image, entry, self.rules.told(kind.into()));
        let is_another = kind == FileKind::Directory && !self.adopt(image, target);
        is_another.then_some(Flaw::DirectoryTwice)
    }

    fn flaw_of_name(&mut self, name: &[u8]) -> Option<Flaw> {
        if name.is_empty() {
            Some(Flaw::NoName)
        } else if matches!(name, b"." | b"..") {
            Some(Flaw::ExtraDot)
        } else if name.contains(&b'/') || name.contains(&0) {
            Some(Flaw::BadName)
        } else if !self.names.insert(name.to_vec()) {
            Some(Flaw::NameTwice)
        } else {
            None
        }
    }

    /// Records the parent of a directory; returns `false` if it already has a parent.
    fn adopt(&self, image: &mut Image, child: InodeNo) -> bool {
        // The directory whose entries are being checked is not in the map, so it can't become its
        // own parent.
        match image.directories.get_mut(&child) {
            Some(directory) if directory.parent.is_none() => {
                directory.parent = Some(self.no);
                true
            }
            _ => false,
        }
    }
}

/// Checks that each directory can be reached from the root and that its `..` refers to its parent.
fn resolve_parents(image: &mut Image) {
    let mut reached: HashMap<InodeNo, bool> = HashMap::from([(InodeNo::ROOT, true)]);
    if !image.directories.contains_key(&InodeNo::ROOT) {
        let problem = Problem::BadInode(Flaw::RootNotDirectory);
        image.report.add(Subject::Inode(InodeNo::ROOT), None, problem);
    }
    let places = image.directories.iter().map(|(no, one)| (*no, one.parent, one.dotdot));
    let all: Vec<_> = places.collect();
    for (no, parent, dotdot) in all {
        let parent = if no == InodeNo::ROOT { Some(no) } else { parent };
        if let (Some(parent), Some(stored)) = (parent, dotdot)
            && parent != stored
        {
            let problem = Problem::Parent { stored, parent };
            image.report.add(Subject::Inode(no), None, problem);
        }
        if !reaches_root(image, no, &mut reached) && parent.is_some() {
            // A directory without a parent is reported by the check of link counts.
            image.report.add(Subject::Inode(no), None, Problem::Unattached);
        }
    }
}

fn reaches_root(image: &Image, no: InodeNo, reached: &mut HashMap<InodeNo, bool>) -> bool {
    let mut way = Vec::new();
    let mut at = no;
    let answer = loop {
        if let Some(&known) = reached.get(&at) {
            break known;
        }
        // If this directory is met again on the way up, its parents form a cycle that does not
        // reach the root.
        reached.insert(at, false);
        way.push(at);
        match image.directories.get(&at).and_then(|directory| directory.parent) {
            Some(parent) => at = parent,
            None => break false,
        }
    };
    way.into_iter().for_each(|no| {
        reached.insert(no, answer);
    });
    answer
}
