//! The index, which maps each chunk to its frame. It is a tree whose pages are loaded on demand.
//!
//! The tree is a radix tree with fan-out [`FAN_OUT`]. The next checkpoint writes changed pages and
//! the pages above them to new offsets. A page on disk is never changed. Clean pages are dropped
//! when many are loaded.

use fslab_vfs::Result;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::format::{FAN_OUT, LEVELS_MAX, PageRecord, ReferenceRecord};
use super::frame::{Entry, Reference};

/// Maximum number of clean pages kept in memory. They take half a megabyte.
pub const CLEAN_PAGES_MAX: usize = 128;

/// Loads the payload of a page, given its reference, level and first chunk.
pub type LoadPage<'a> = dyn Fn(Reference, u8, u64) -> Result<Vec<u8>> + 'a;

/// Writes a page, given its level, first chunk and payload; returns its reference.
pub type WritePage<'a> = dyn FnMut(u8, u64, &[u8]) -> Reference + 'a;

/// The index of one file.
#[derive(Debug)]
pub struct Index {
    levels: u8,
    root: Link,
    loaded: usize,
    /// Number of loaded pages that were changed since they were last written.
    changed: usize,
}

#[derive(Debug)]
enum Link {
    Absent,
    Stored(Reference),
    Loaded(Box<Page>),
}

#[derive(Debug)]
struct Page {
    /// The copy on disk that the page was loaded from or last written to. A dirty page differs from
    /// it.
    stored: Option<Reference>,
    dirty: bool,
    slots: Slots,
}

#[derive(Debug)]
enum Slots {
    Leaf(Sparse<Entry>),
    Inner(Sparse<Link>),
}

/// References to pages on disk that are no longer used.
pub type Retired = Vec<Reference>;

impl Default for Index {
    fn default() -> Self {
        Self { levels: 0, root: Link::Absent, loaded: 0, changed: 0 }
    }
}

/// Number of chunks that a tree of this many levels covers; `None` if it covers all.
fn capacity(levels: u8) -> Option<u64> {
    FAN_OUT.checked_pow(u32::from(levels))
}

/// The number of the slot for a chunk in a page at `level`.
fn slot(chunk: u64, level: u8) -> usize {
    (chunk >> (FAN_OUT.trailing_zeros() * u32::from(level)) & (FAN_OUT - 1)) as usize
}

/// Whether all chunks to which a page refers are at or before `chunk_max`. Returns `false` for a
/// truncated payload.
pub fn leads_at_most_to(payload: &[u8], level: u8, first: u64, chunk_max: u64) -> bool {
    let Ok((page, _)) = PageRecord::read_from_prefix(payload) else { return false };
    let last = u128::from_le_bytes(page.present).checked_ilog2();
    last.is_none_or(|last| first.saturating_add(u64::from(last) * span(level)) <= chunk_max)
}

/// Number of chunks that one slot of a page at `level` covers.
fn span(level: u8) -> u64 {
    1 << (FAN_OUT.trailing_zeros() * u32::from(level))
}

impl Index {
    /// An index whose root page is on disk.
    pub fn stored(levels: u8, root: Reference) -> Self {
        let root = if root.is_none() || levels == 0 { Link::Absent } else { Link::Stored(root) };
        let levels = if matches!(root, Link::Absent) { 0 } else { levels };
        Self { levels, root, loaded: 0, changed: 0 }
    }

    /// Returns the number of changed pages, which must be kept in memory until they are written.
    pub fn changed_pages(&self) -> usize {
        self.changed
    }

    /// Number of levels.
    pub fn levels(&self) -> u8 {
        self.levels
    }

    fn covers(&self, chunk: u64) -> bool {
        capacity(self.levels).is_none_or(|capacity| chunk < capacity) && self.levels > 0
    }

    /// The entry of a chunk.
    pub fn get(&mut self, chunk: u64, load: &LoadPage<'_>) -> Result<Option<Entry>> {
        if !self.covers(chunk) {
            return Ok(None);
        }
        let mut level = self.levels - 1;
        let mut link = &mut self.root;
        loop {
            let first = chunk & !(span(level) * FAN_OUT).wrapping_sub(1);
            let Some(page) = link.load(level, first, load, &mut self.loaded)? else {
                return Ok(None);
            };
            match &mut page.slots {
                Slots::Leaf(entries) => return Ok(entries.get(slot(chunk, 0)).copied()),
                Slots::Inner(links) => match links.get_mut(slot(chunk, level)) {
                    Some(below) => link = below,
                    None => return Ok(None),
                },
            }
            level -= 1;
        }
    }

    /// Sets the entry of a chunk and returns the old one.
    pub fn set(
        &mut self,
        chunk: u64,
        entry: Option<Entry>,
        load: &LoadPage<'_>,
    ) -> Result<Option<Entry>> {
        if entry.is_none() && !self.covers(chunk) {
            return Ok(None);
        }
        // The path is loaded first, so that a failure leaves the tree unchanged.
        let before = self.get(chunk, load)?;
        if before == entry {
            return Ok(before);
        }
        self.grow_to(chunk);
        let mut level = self.levels - 1;
        let mut link = &mut self.root;
        loop {
            let page = link.loaded_or_new(level, &mut self.loaded);
            self.changed += usize::from(!std::mem::replace(&mut page.dirty, true));
            match &mut page.slots {
                Slots::Leaf(entries) => {
                    entries.set(slot(chunk, 0), entry);
                    return Ok(before);
                }
                Slots::Inner(links) => link = links.get_or_insert(slot(chunk, level), Link::Absent),
            }
            level -= 1;
        }
    }

    /// Adds levels on top until the tree covers a chunk.
    fn grow_to(&mut self, chunk: u64) {
        if self.levels == 0 {
            self.levels = 1;
        }
        while !self.covers(chunk) && self.levels < LEVELS_MAX + 1 {
            if !matches!(self.root, Link::Absent) {
                let mut page = Page::empty(self.levels);
                page.dirty = true;
                if let Slots::Inner(links) = &mut page.slots {
                    links.set(0, Some(std::mem::replace(&mut self.root, Link::Absent)));
                }
                self.loaded += 1;
                self.changed += 1;
                self.root = Link::Loaded(Box::new(page));
            }
            self.levels += 1;
        }
    }

    /// Returns the first chunk that has an entry, at or after `chunk`.
    pub fn next_present(
        &mut self,
        chunk: u64,
        load: &LoadPage<'_>,
    ) -> Result<Option<(u64, Entry)>> {
        if !self.covers(chunk) {
            return Ok(None);
        }
        let level = self.levels - 1;
        next_in(&mut self.root, level, 0, chunk, load, &mut self.loaded)
    }

    /// Writes every changed page, the lower ones first, and returns the new root page. Replaced
    /// pages are added to `retired`.
    pub fn write(&mut self, write: &mut WritePage<'_>, retired: &mut Retired) -> Reference {
        match self.levels {
            0 => Reference::NONE,
            levels => {
                self.root.write(levels - 1, 0, write, retired);
                // Pages that became empty were dropped.
                (self.loaded, self.changed) = (self.root.loaded_pages(), 0);
                self.root.reference()
            }
        }
    }

    /// Reverts a [`write`](Self::write) that did not reach the disk.
    pub fn unwrite(&mut self) {
        self.root.unwrite();
        self.changed = self.loaded;
    }

    /// Drops clean pages if too many are loaded.
    pub fn trim(&mut self) {
        if self.loaded > CLEAN_PAGES_MAX {
            self.root.drop_clean(&mut self.loaded);
        }
    }
}

fn next_in(
    link: &mut Link,
    level: u8,
    first: u64,
    from: u64,
    load: &LoadPage<'_>,
    loaded: &mut usize,
) -> Result<Option<(u64, Entry)>> {
    let Some(page) = link.load(level, first, load, loaded)? else { return Ok(None) };
    let start = if from > first { ((from - first) / span(level)) as usize } else { 0 };
    let begins = |index: usize| first + index as u64 * span(level);
    match &mut page.slots {
        Slots::Leaf(entries) => {
            let next = entries.iter_mut_from(start).next();
            Ok(next.map(|(index, entry)| (begins(index), *entry)))
        }
        Slots::Inner(links) => {
            for (index, link) in links.iter_mut_from(start) {
                let found = next_in(link, level - 1, begins(index), from, load, loaded)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            Ok(None)
        }
    }
}

impl Link {
    fn load(
        &mut self,
        level: u8,
        first: u64,
        load: &LoadPage<'_>,
        loaded: &mut usize,
    ) -> Result<Option<&mut Page>> {
        if let Self::Stored(reference) = *self {
            let payload = load(reference, level, first)?;
            let slots = Slots::decode(&payload, level).ok_or(fslab_vfs::Errno::IO)?;
            *self = Self::Loaded(Box::new(Page { stored: Some(reference), dirty: false, slots }));
            *loaded += 1;
        }
        match self {
            Self::Loaded(page) => Ok(Some(page)),
            _ => Ok(None),
        }
    }

    /// Returns the page, or a new page if there is none. A page on disk must have been loaded
    /// before.
    fn loaded_or_new(&mut self, level: u8, loaded: &mut usize) -> &mut Page {
        if !matches!(self, Self::Loaded(_)) {
            *loaded += 1;
            *self = Self::Loaded(Box::new(Page::empty(level)));
        }
        match self {
            Self::Loaded(page) => page,
            _ => unreachable!("it was made just now"),
        }
    }

    fn reference(&self) -> Reference {
        match self {
            Self::Absent => Reference::NONE,
            Self::Stored(reference) => *reference,
            Self::Loaded(page) => page.stored.unwrap_or(Reference::NONE),
        }
    }

    fn write(&mut self, level: u8, first: u64, write: &mut WritePage<'_>, retired: &mut Retired) {
        let Self::Loaded(page) = self else { return };
        if !page.dirty {
            return;
        }
        if let Slots::Inner(links) = &mut page.slots {
            for (index, link) in links.iter_mut_from(0) {
                link.write(level - 1, first + index as u64 * span(level), write, retired);
            }
            links.retain(|link| !matches!(link, Self::Absent));
        }
        retired.extend(page.stored.take());
        if page.is_empty() {
            *self = Self::Absent;
            return;
        }
        page.stored = Some(write(level, first, &page.slots.encode(level)));
        page.dirty = false;
    }

    fn loaded_pages(&self) -> usize {
        let Self::Loaded(page) = self else { return 0 };
        let below = match &page.slots {
            Slots::Inner(links) => links.items.iter().map(Self::loaded_pages).sum(),
            Slots::Leaf(_) => 0,
        };
        1 + below
    }

    fn unwrite(&mut self) {
        let Self::Loaded(page) = self else { return };
        page.dirty = true;
        page.stored = None;
        if let Slots::Inner(links) = &mut page.slots {
            links.items.iter_mut().for_each(Self::unwrite);
        }
    }

    /// Replaces clean child pages by their references; returns whether this page is clean.
    fn drop_clean(&mut self, loaded: &mut usize) {
        let Self::Loaded(page) = self else { return };
        if let Slots::Inner(links) = &mut page.slots {
            links.items.iter_mut().for_each(|link| link.drop_clean(loaded));
            if links.items.iter().any(|link| matches!(link, Self::Loaded(_))) {
                return;
            }
        }
        if let (false, Some(reference)) = (page.dirty, page.stored) {
            *self = Self::Stored(reference);
            *loaded -= 1;
        }
    }
}

impl Page {
    fn empty(level: u8) -> Self {
        let slots = match level {
            0 => Slots::Leaf(Sparse::default()),
            _ => Slots::Inner(Sparse::default()),
        };
        Self { stored: None, dirty: false, slots }
    }

    fn is_empty(&self) -> bool {
        match &self.slots {
            Slots::Leaf(entries) => entries.items.is_empty(),
            Slots::Inner(links) => links.items.is_empty(),
        }
    }
}

impl Slots {
    fn encode(&self, level: u8) -> Vec<u8> {
        let (present, records) = match self {
            Self::Leaf(entries) => entries.to_records(|entry| entry.to_record()),
            Self::Inner(links) => links.to_records(|link| link.reference().to_record()),
        };
        let page = PageRecord { level, zero: [0; 7], present: present.to_le_bytes() };
        [page.as_bytes(), &records].concat()
    }

    fn decode(payload: &[u8], level: u8) -> Option<Self> {
        let (page, rest) = PageRecord::read_from_prefix(payload).ok()?;
        if page.level != level {
            return None;
        }
        let present = u128::from_le_bytes(page.present);
        let link = |record: &ReferenceRecord| {
            let reference = Reference::from_record(record);
            reference.is_sound().then_some(Link::Stored(reference))
        };
        Some(match level {
            0 => Self::Leaf(Sparse::from_records(present, rest, Entry::from_record)?),
            _ => Self::Inner(Sparse::from_records(present, rest, link)?),
        })
    }
}

/// The occupied slots of a page, in ascending order. A page with one entry does not reserve memory
/// for all slots. Otherwise a crafted file with one small frame for each page could use much
/// memory.
#[derive(Debug)]
struct Sparse<T> {
    present: u128,
    items: Vec<T>,
}

impl<T> Default for Sparse<T> {
    fn default() -> Self {
        Self { present: 0, items: Vec::new() }
    }
}

impl<T> Sparse<T> {
    /// Makes the slots from exactly as many records as there are set bits.
    fn from_records<R: FromBytes + Immutable + KnownLayout + Unaligned>(
        present: u128,
        records: &[u8],
        item: impl Fn(&R) -> Option<T>,
    ) -> Option<Self> {
        let records = <[R]>::ref_from_bytes(records).ok()?;
        let items = records.iter().map(item).collect::<Option<Vec<T>>>()?;
        (items.len() == present.count_ones() as usize).then_some(Self { present, items })
    }

    fn to_records<R: IntoBytes + Immutable>(&self, record: impl Fn(&T) -> R) -> (u128, Vec<u8>) {
        let records: Vec<R> = self.items.iter().map(record).collect();
        (self.present, records.as_bytes().to_vec())
    }

    /// The position of a slot's item, or `Err` with the position where it would be inserted.
    fn place(&self, index: usize) -> std::result::Result<usize, usize> {
        let bit = 1_u128 << index;
        let before = (self.present & (bit - 1)).count_ones() as usize;
        if self.present & bit == 0 { Err(before) } else { Ok(before) }
    }

    fn get(&self, index: usize) -> Option<&T> {
        self.place(index).ok().map(|place| &self.items[place])
    }

    fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.place(index).ok().map(|place| &mut self.items[place])
    }

    fn get_or_insert(&mut self, index: usize, item: T) -> &mut T {
        let place = self.place(index).unwrap_or_else(|place| {
            // Most pages of a crafted file have one item. From the second item on, the capacity
            // doubles.
            if self.items.len() == self.items.capacity() {
                self.items.reserve_exact(self.items.len().max(1));
            }
            self.items.insert(place, item);
            self.present |= 1 << index;
            place
        });
        &mut self.items[place]
    }

    fn set(&mut self, index: usize, item: Option<T>) {
        match (item, self.place(index)) {
            (Some(item), Ok(place)) => self.items[place] = item,
            (Some(item), Err(_)) => drop(self.get_or_insert(index, item)),
            (None, Ok(place)) => {
                self.items.remove(place);
                self.present &= !(1 << index);
            }
            (None, Err(_)) => {}
        }
    }

    /// Returns the items from slot `start` on.
    fn iter_mut_from(&mut self, start: usize) -> impl Iterator<Item = (usize, &mut T)> {
        let (Ok(place) | Err(place)) = self.place(start);
        let present = self.present;
        let slots = (start..FAN_OUT as usize).filter(move |index| present >> index & 1 == 1);
        slots.zip(&mut self.items[place..])
    }

    fn retain(&mut self, is_kept: impl Fn(&T) -> bool) {
        let kept = self.iter_mut_from(0).filter(|(_, item)| is_kept(item));
        self.present = kept.fold(0, |present, (index, _)| present | 1 << index);
        self.items.retain(is_kept);
    }
}

#[cfg(test)]
mod tests;
