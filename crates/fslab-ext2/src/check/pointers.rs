//! Pointers of inodes and indirect blocks, for repair.
//!
//! Those that lead where they can't become holes. Of those that lead where another file is, the
//! later owner gets a block of its own with the same bytes.

use std::collections::{HashMap, HashSet};

use fslab_vfs::FileKind;

use super::finding::{Finding, Problem, Subject};
use super::image::Image;
use crate::cache::Role;
use crate::error::Result;
use crate::format::{DIRECT_BLOCKS, MAP_ENTRIES};
use crate::types::{BlockNo, InodeNo};

/// Where a pointer is kept.
#[derive(Clone, Copy)]
pub(super) enum Slot {
    Inode(usize),
    Table(BlockNo, usize),
}

/// Where pointers that are to be mended are kept: of one inode at a time and found in one search,
/// because damage can give a file thousands of them.
pub(super) struct Places {
    wanted: HashMap<InodeNo, HashSet<u32>>,
    of: Option<InodeNo>,
    found: HashMap<u32, Vec<Slot>>,
}

impl Places {
    /// Those of what was found.
    pub(super) fn of(findings: &[Finding]) -> Self {
        let mut wanted: HashMap<InodeNo, HashSet<u32>> = HashMap::new();
        for finding in findings {
            if let (
                Subject::Inode(no),
                Problem::BadPointer(pointer) | Problem::SharedBlock(pointer),
            ) = (finding.subject, &finding.problem)
            {
                wanted.entry(no).or_default().insert(*pointer);
            }
        }
        Self { wanted, of: None, found: HashMap::new() }
    }

    /// Makes a hole of every pointer of an inode that has a value; `false` where there is none.
    pub(super) fn clear(&mut self, image: &mut Image, no: InodeNo, pointer: u32) -> Result<bool> {
        let slots = std::mem::take(self.slots(image, no, pointer)?);
        for slot in &slots {
            set(image, no, *slot, 0)?;
        }
        Ok(!slots.is_empty())
    }

    /// Gives an inode a copy of a block that others have too; `false` where there is no room.
    pub(super) fn copy_shared(
        &mut self,
        image: &mut Image,
        no: InodeNo,
        pointer: u32,
    ) -> Result<bool> {
        // What was found earlier in the order of the map is the rightful one.
        let Some(slot) = self.slots(image, no, pointer)?.pop() else { return Ok(false) };
        let is_symlink = image.kind(no) == Some(FileKind::Symlink);
        if is_symlink && !matches!(slot, Slot::Inode(0)) {
            // Its target is in the first block.
            return set(image, no, slot, 0);
        }
        let Some(copy) = image.take_unclaimed() else { return Ok(false) };
        let bytes = image.cache.read(BlockNo(pointer))?;
        image.cache.modify(copy, Role::Map, |target| target.copy_from_slice(&bytes))?;
        if image.tables.contains_key(&BlockNo(pointer)) {
            // What it led to may be led to no more.
            self.of = None;
        }
        set(image, no, slot, copy.0)
    }

    /// The places of a pointer, in the order of the map.
    fn slots(&mut self, image: &Image, no: InodeNo, pointer: u32) -> Result<&mut Vec<Slot>> {
        if self.of != Some(no) {
            let wanted = self.wanted.get(&no).cloned().unwrap_or_default();
            self.found = search(image, no, wanted)?;
            self.of = Some(no);
        }
        Ok(self.found.entry(pointer).or_default())
    }
}

/// The value of a pointer; 0 where there is none.
pub(super) fn get(image: &Image, no: InodeNo, slot: Slot) -> Result<u32> {
    match slot {
        Slot::Inode(index) => {
            let raw = image.raw_inode(no)?;
            Ok(raw.and_then(|raw| Some(raw.i_block.get(index)?.get())).unwrap_or(0))
        }
        Slot::Table(table, index) => {
            let bytes = image.cache.read(table)?;
            let word = bytes.get(index * 4..).and_then(<[u8]>::first_chunk);
            Ok(word.map_or(0, |word| u32::from_le_bytes(*word)))
        }
    }
}

/// Changes a pointer; `false` where there is none.
pub(super) fn set(image: &mut Image, no: InodeNo, slot: Slot, value: u32) -> Result<bool> {
    match slot {
        Slot::Inode(index) => image.change_inode(no, |raw| raw.i_block[index] = value.into()),
        Slot::Table(table, index) => image.cache.modify(table, Role::Map, |bytes| {
            bytes[index * 4..][..4].copy_from_slice(&value.to_le_bytes());
            true
        }),
    }
}

/// A search through an inode's pointers, in the indirect blocks that belong to it: damage can make
/// others lead to the blocks of other files and of the file system, which are not to be changed.
/// Each is looked at once: damage can make their tree a circle.
struct Search<'a> {
    image: &'a Image,
    no: InodeNo,
    wanted: HashSet<u32>,
    seen: HashSet<u32>,
    found: HashMap<u32, Vec<Slot>>,
}

fn search(image: &Image, no: InodeNo, wanted: HashSet<u32>) -> Result<HashMap<u32, Vec<Slot>>> {
    let (seen, found) = (HashSet::new(), HashMap::new());
    let mut search = Search { image, no, wanted, seen, found };
    let Some(raw) = image.raw_inode(no)? else { return Ok(search.found) };
    for index in 0..MAP_ENTRIES {
        let level = index.saturating_sub(DIRECT_BLOCKS - 1);
        search.look(Slot::Inode(index), raw.i_block[index].get(), level)?;
    }
    Ok(search.found)
}

impl Search<'_> {
    fn look(&mut self, slot: Slot, value: u32, level: usize) -> Result<()> {
        if value == 0 {
            return Ok(());
        }
        if self.wanted.contains(&value) {
            self.found.entry(value).or_default().push(slot);
        }
        if level == 0 {
            return Ok(());
        }
        let is_own = self.image.tables.get(&BlockNo(value)) == Some(&self.no);
        if !is_own || !self.seen.insert(value) {
            return Ok(());
        }
        let bytes = self.image.cache.read(BlockNo(value))?;
        for (index, word) in bytes.as_chunks::<4>().0.iter().enumerate() {
            let below = Slot::Table(BlockNo(value), index);
            self.look(below, u32::from_le_bytes(*word), level - 1)?;
        }
        Ok(())
    }
}
