//! Lists a directory in several calls while other callers insert and remove names.
//!
//! A directory is listed in hash order if it is indexed, or if it has one block and could be
//! indexed. The position in such a listing is the hash of an entry, so splits, merges and moves of
//! leaves do not affect it. Every entry that is not removed is listed exactly once, even if the
//! directory becomes linear during the listing. A linear directory is listed by offset, as is one
//! whose index has a damaged root. Entries of such directories are never moved.

use fslab_vfs::Errno;

use super::entry::{Entry, EntryKind};
use super::hash::Hasher;
use super::path::{LeafBudget, Path};
use super::{DirectoryBlocks, Form, dots, has_usable_index, names, placed, read_checked};
use crate::error::Result;
use crate::flaw::Checked;
use crate::types::{FileBlock, InodeNo};

/// A position in a listing; [`Cookie::START`] is the beginning. Cookies are below 2^63, so that
/// they are valid for `telldir`.
///
/// ```text
/// by offset   0 and multiples of 4 below 2^62: offset of a record in the directory
/// by hash     1: after "."
///             2^62 | hash, 31 bits | tie, 23 bits | rank, 8 bits: from this entry on
/// ```
///
/// The tie is a second hash; the rank orders names with equal hash and tie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cookie(pub u64);

impl Cookie {
    /// The beginning of a listing.
    pub const START: Self = Self(0);
    const BEHIND_DOT: Self = Self(1);
    const HASHED: u64 = 1 << 62;
    const RANKS: u64 = 1 << 8;
    const TIE_BITS: u32 = 23;

    /// Returns the cookie of the first name that has the same hash and tie as `name`.
    fn of_name(hasher: Hasher, name: &[u8]) -> Self {
        let hash = hasher.hash(name);
        let tie = u64::from((hash.minor ^ fold(name)) >> (32 - Self::TIE_BITS));
        Self(Self::of_hash(hash.major).0 | (tie * Self::RANKS))
    }

    fn of_hash(major: u32) -> Self {
        Self(Self::HASHED | (u64::from(major >> 1) << (Self::TIE_BITS + 8)))
    }

    fn is_hashed(self) -> bool {
        self.0 >= Self::HASHED
    }

    /// Returns the hash at which a search of the index starts.
    fn major(self) -> u32 {
        (((self.0 - Self::HASHED) >> (Self::TIE_BITS + 8)) << 1) as u32
    }

    fn rank(self) -> u64 {
        self.0 % Self::RANKS
    }

    fn without_rank(self) -> Self {
        Self(self.0 - self.rank())
    }

    /// Returns the position after all names with the same hash and tie.
    fn behind(self) -> Self {
        Self(self.without_rank().0 + Self::RANKS)
    }
}

/// Hashes a name to 32 bits (FNV-1a), because the legacy hash function has no minor hash.
fn fold(name: &[u8]) -> u32 {
    name.iter().fold(0x811c_9dc5, |sum, &byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// A listed entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The inode.
    pub inode: InodeNo,
    /// The kind of the inode according to the entry.
    pub kind: EntryKind,
    /// The name; `.` and `..` are listed first.
    pub name: &'a [u8],
    /// The position in the listing after this entry.
    pub next: Cookie,
}

/// Receives entries. Returns `false` if it has no room for an entry; the next call lists that entry
/// again.
pub type Sink<'a> = dyn FnMut(Listed<'_>) -> bool + 'a;

/// Lists entries from a cookie on until the sink is full or the directory ends.
///
/// # Errors
/// [`crate::Error::Damaged`]. `EOVERFLOW` if more than 256 names have equal hashes and the sink
/// does not accept all of them in one call.
pub fn list<B: DirectoryBlocks>(blocks: &B, from: Cookie, sink: &mut Sink<'_>) -> Result<()> {
    let one_block = blocks.count() == 1 && blocks.rules().form == Form::Indexed;
    let by_index = has_usable_index(blocks)?;
    match from {
        Cookie::START if by_index || one_block => list_dots(blocks, from, sink),
        Cookie::BEHIND_DOT => list_dots(blocks, from, sink),
        _ if from.is_hashed() && by_index => list_indexed(blocks, from, sink),
        _ if from.is_hashed() => list_by_hash(blocks, from, sink),
        _ => list_linear(blocks, from, sink),
    }
}

fn list_linear<B: DirectoryBlocks>(blocks: &B, from: Cookie, sink: &mut Sink<'_>) -> Result<()> {
    let size = blocks.block_size().bytes_u64();
    for block in (from.0 / size..u64::from(blocks.count())).map(|block| FileBlock(block as u32)) {
        let start = u64::from(block.0) * size;
        let go_on = read_checked(blocks, block, |bytes| {
            for entry in super::Entries::of(bytes) {
                let entry = entry?;
                let next = Cookie(start + (entry.offset + entry.length) as u64);
                let wanted = start + entry.offset as u64 >= from.0 && entry.is_live();
                if let (true, Some(inode)) = (wanted, entry.inode)
                    && !sink(Listed { inode, kind: entry.kind, name: entry.name, next })
                {
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
        if !go_on {
            break;
        }
    }
    Ok(())
}

/// Lists `.` and `..`, which come before all hashes, then the other entries.
fn list_dots<B: DirectoryBlocks>(blocks: &B, from: Cookie, sink: &mut Sink<'_>) -> Result<()> {
    let [own, parent] = read_checked(blocks, FileBlock(0), dots)?;
    let kind = blocks.rules().told(EntryKind::DIRECTORY);
    let first = Cookie::of_hash(0);
    let dot = Listed { inode: own, kind, name: b".", next: Cookie::BEHIND_DOT };
    if from == Cookie::START && !sink(dot) {
        return Ok(());
    }
    if !sink(Listed { inode: parent, kind, name: b"..", next: first }) {
        return Ok(());
    }
    list(blocks, first, sink)
}

/// Lists a directory without an index by the hashes of its names. Such a directory either has one
/// block and may become indexed during the listing, or lost its index during the listing.
fn list_by_hash<B: DirectoryBlocks>(
    blocks: &B,
    mut from: Cookie,
    sink: &mut Sink<'_>,
) -> Result<()> {
    loop {
        let mut gathered = Gathered::default();
        let mut cut = false;
        for block in (0..blocks.count()).map(FileBlock) {
            let answer = blocks.read(block, |bytes| {
                names(block, bytes).try_for_each(|entry| {
                    gathered.add(blocks.rules().hasher, &entry?, from, |_| true);
                    Ok(())
                })
            })?;
            placed(blocks, block, answer)?;
            if gathered.items.len() > 2 * Gathered::MOST {
                cut |= gathered.sort();
                gathered.drop_unused_text();
            }
        }
        cut |= gathered.sort();
        if !gathered.deliver(from, sink)? || !cut {
            return Ok(());
        }
        from = gathered.end().unwrap_or(from).max(from);
    }
}

fn list_indexed<B: DirectoryBlocks>(
    blocks: &B,
    mut from: Cookie,
    sink: &mut Sink<'_>,
) -> Result<()> {
    let mut gathered = Gathered::default();
    let mut path = Path::to_hash(blocks, from.major())?;
    let mut budget = LeafBudget::new(blocks);
    loop {
        budget.spend(blocks)?;
        gathered.clear();
        gathered.add_leaf(blocks, &path, from)?;
        let cut = gathered.sort();
        if !gathered.deliver(from, sink)? {
            return Ok(());
        }
        from = gathered.end().unwrap_or(from).max(from);
        if cut {
            path = Path::to_hash(blocks, from.major())?;
            budget = LeafBudget::new(blocks);
        } else if !path.advance(blocks)? {
            return Ok(());
        }
    }
}

/// Names of one or more leaves, in listing order.
#[derive(Default)]
struct Gathered {
    items: Vec<Item>,
    /// The bytes of the names, concatenated.
    text: Vec<u8>,
}

struct Item {
    key: Cookie,
    inode: InodeNo,
    kind: EntryKind,
    start: u32,
    length: u8,
}

impl Gathered {
    /// Number of names that are kept after sorting. Names with the same hash as the last of them
    /// are kept too. Every leaf contains fewer names.
    const MOST: usize = 1 << 15;

    fn clear(&mut self) {
        self.items.clear();
        self.text.clear();
    }

    /// Adds the names of a leaf. If names with its last hash continue in the following leaves, adds
    /// these, too, because names with the same hash must be sorted together.
    fn add_leaf<B: DirectoryBlocks>(
        &mut self,
        blocks: &B,
        path: &Path,
        from: Cookie,
    ) -> Result<()> {
        let hasher = blocks.rules().hasher.with_version(path.info().version);
        read_checked(blocks, path.leaf(), |bytes| self.add_all(hasher, bytes, from, |_| true))?;
        let Some(border) = path.next_hash().filter(|next| next & 1 == 1) else { return Ok(()) };
        let border = Cookie::of_hash(border & !1).major();
        let mut path = *path;
        let mut budget = LeafBudget::new(blocks);
        while path.continues(border) && path.advance(blocks)? {
            budget.spend(blocks)?;
            read_checked(blocks, path.leaf(), |bytes| {
                self.add_all(hasher, bytes, from, |key| key.major() == border)
            })?;
            if self.items.len() > 2 * Self::MOST {
                self.sort();
            }
        }
        Ok(())
    }

    fn add_all(
        &mut self,
        hasher: Hasher,
        bytes: &[u8],
        from: Cookie,
        wanted: impl Fn(Cookie) -> bool,
    ) -> Checked<()> {
        for entry in super::Entries::of(bytes) {
            let entry = entry?;
            if entry.is_live() {
                self.add(hasher, &entry, from, &wanted);
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        hasher: Hasher,
        entry: &Entry<'_>,
        from: Cookie,
        wanted: impl Fn(Cookie) -> bool,
    ) {
        let key = Cookie::of_name(hasher, entry.name);
        let Some(inode) = entry.inode else { return };
        if key >= from.without_rank() && wanted(key) {
            let start = self.text.len() as u32;
            let length = entry.name.len() as u8;
            self.text.extend_from_slice(entry.name);
            self.items.push(Item { key, inode, kind: entry.kind, start, length });
        }
    }

    /// Sorts the names; if there are too many, keeps only the first ones. Returns whether names
    /// were dropped, to be listed later.
    fn sort(&mut self) -> bool {
        let text = &self.text;
        self.items.sort_unstable_by(|one, other| {
            (one.key, one.name(text)).cmp(&(other.key, other.name(text)))
        });
        if self.items.len() <= Self::MOST {
            return false;
        }
        // Names with equal hashes are kept or dropped together.
        let last = self.items[Self::MOST - 1].key;
        let keep = self.items.partition_point(|item| item.key <= last);
        let all = keep == self.items.len();
        self.items.truncate(keep);
        !all
    }

    /// Frees the text of dropped names.
    fn drop_unused_text(&mut self) {
        let mut text = Vec::new();
        for item in &mut self.items {
            let start = text.len() as u32;
            text.extend_from_slice(item.name(&self.text));
            item.start = start;
        }
        self.text = text;
    }

    /// Returns the position after the last name.
    fn end(&self) -> Option<Cookie> {
        self.items.last().map(|item| item.key.behind())
    }

    /// Passes the names to the sink; returns `false` when it is full.
    fn deliver(&self, from: Cookie, sink: &mut Sink<'_>) -> Result<bool> {
        for alike in self.items.chunk_by(|one, other| one.key == other.key) {
            let first = alike[0].key;
            let skip = if first == from.without_rank() { from.rank() as usize } else { 0 };
            for (rank, item) in alike.iter().enumerate().skip(skip) {
                let next = match rank + 1 {
                    behind if behind == alike.len() => first.behind(),
                    behind if (behind as u64) < Cookie::RANKS => Cookie(first.0 + behind as u64),
                    _ => return Err(Errno::OVERFLOW.into()),
                };
                let name = item.name(&self.text);
                if !sink(Listed { inode: item.inode, kind: item.kind, name, next }) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

impl Item {
    fn name<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        &text[self.start as usize..][..usize::from(self.length)]
    }
}

/// A listing in inode order, for one open directory handle. A program that then opens the files
/// reads the inode table sequentially, without seeks.
///
/// Names are read and sorted in batches, which bounds the memory. Names that are added or removed
/// during the listing may or may not be listed, as POSIX allows.
#[derive(Debug)]
pub struct InodeOrder {
    batch: usize,
    /// The start of each batch.
    starts: Vec<Cookie>,
    /// The index of the batch whose names are in `names`.
    loaded: Option<usize>,
    names: Vec<Owned>,
}

#[derive(Debug)]
struct Owned {
    inode: InodeNo,
    kind: EntryKind,
    name: Box<[u8]>,
}

impl InodeOrder {
    /// Default batch size in names: about 4 MiB.
    pub const BATCH: usize = 1 << 16;

    /// Makes a listing that sorts `batch` names at a time.
    #[must_use]
    pub fn new(batch: usize) -> Self {
        let (starts, names) = (vec![Cookie::START], Vec::new());
        Self { batch: batch.max(1), starts, loaded: None, names }
    }

    /// Does the same as [`list`], but in inode order. A cookie is a position in this order. It
    /// stays valid during this listing. In another listing it is valid only if the directory has
    /// not changed.
    ///
    /// # Errors
    /// The same as [`list`].
    pub fn list<B: DirectoryBlocks>(
        &mut self,
        blocks: &B,
        from: Cookie,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let mut position = from.0 as usize;
        if position == 0 {
            // The listing starts again, so the batch starts may be out of date.
            *self = Self::new(self.batch);
        }
        loop {
            let number = position / self.batch;
            // If the position comes from another listing, find the starts of the earlier batches
            // first.
            while number >= self.starts.len() {
                let last = self.starts.len() - 1;
                if self.loaded == Some(last) {
                    return Ok(());
                }
                self.load(blocks, last)?;
            }
            if self.loaded != Some(number) {
                self.load(blocks, number)?;
            }
            for owned in self.names.iter().skip(position % self.batch) {
                position += 1;
                let next = Cookie(position as u64);
                let Owned { inode, kind, name } = owned;
                if !sink(Listed { inode: *inode, kind: *kind, name, next }) {
                    return Ok(());
                }
            }
            position = (number + 1) * self.batch;
        }
    }

    fn load<B: DirectoryBlocks>(&mut self, blocks: &B, number: usize) -> Result<()> {
        let (names, batch) = (&mut self.names, self.batch);
        names.clear();
        let mut next = None;
        let mut refused = false;
        list(blocks, self.starts[number], &mut |listed| {
            refused = names.len() == batch;
            if !refused {
                let Listed { inode, kind, name, .. } = listed;
                names.push(Owned { inode, kind, name: name.into() });
                next = Some(listed.next);
            }
            !refused
        })?;
        names.sort_by_key(|owned| (owned.rank(), owned.inode));
        self.loaded = Some(number);
        if let (true, Some(next), true) = (refused, next, number + 1 == self.starts.len()) {
            self.starts.push(next);
        }
        Ok(())
    }
}

impl Owned {
    /// Returns 0 for `.`, 1 for `..` and 2 for all others, to list them in this order.
    fn rank(&self) -> u8 {
        match &*self.name {
            b"." => 0,
            b".." => 1,
            _ => 2,
        }
    }
}
