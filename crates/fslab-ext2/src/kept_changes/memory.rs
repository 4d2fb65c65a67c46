//! The shared memory with the records of a volume. It has two halves; one of them is active.
//!
//! A process may die after any write to the memory. Records become valid when the end of the active
//! half, or the number of the active half, is stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_sys::shared_memory::SharedMemory;

/// Version of the layout, the records and their size ([`super::KEPT_WORDS`]). Increase it with each
/// change of these, because another version of fslab may take over a mount.
pub const KEPT_LAYOUT: u64 = 1;

/// Words of the header.
#[derive(Clone, Copy)]
enum Head {
    Layout,
    /// Identifies the file system to which the records belong.
    Identity,
    /// Properties of the volume, as bits.
    Flags,
    /// 1 or 2 for the active half; 0 if there are no valid records.
    Active,
    /// Numbers of valid words in the two halves.
    FirstEnd,
    SecondEnd,
    /// Device and inode number of the image file; 0 if it is not known yet.
    ImageDevice,
    ImageInode,
    /// 1 if errors were found, perhaps by a reader. Only the writer changes the properties.
    Errors,
}

/// Returns the device and inode number of the image file to which the recorded changes belong;
/// `None` if no daemon has recorded them yet.
#[must_use]
pub fn image_of(changes: &SharedMemory) -> Option<(u64, u64)> {
    let get = |word| head_of(changes, word).map(|word| word.load(Ordering::Acquire));
    let image = (get(Head::ImageDevice)?, get(Head::ImageInode)?);
    Some(image).filter(|image| image.1 != 0)
}

/// Records the device and inode number of the image file. Called by the first daemon of a kept
/// mount, when it has opened the image.
pub fn note_image(changes: &SharedMemory, (device, inode): (u64, u64)) {
    for (word, value) in [(Head::ImageDevice, device), (Head::ImageInode, inode)] {
        head_of(changes, word).into_iter().for_each(|word| word.store(value, Ordering::Release));
    }
}

/// Records that errors were found in the file system.
pub(crate) fn note_errors(changes: &SharedMemory) {
    head_of(changes, Head::Errors).into_iter().for_each(|word| word.store(1, Ordering::Release));
}

fn head_of(memory: &SharedMemory, word: Head) -> Option<&AtomicU64> {
    memory.words().get(word as usize)
}

const HEADER_WORDS: usize = 64;

/// The two halves.
pub(super) struct Halves {
    memory: Arc<SharedMemory>,
    /// Number of words in a half.
    size: usize,
    /// Index of the half to which records are appended, and the number of words in it.
    active: usize,
    length: usize,
}

impl Halves {
    /// Uses the memory, which may contain records of an earlier process.
    pub fn new(memory: Arc<SharedMemory>) -> Self {
        let size = memory.words().len().saturating_sub(HEADER_WORDS) / 2;
        let mut halves = Self { memory, size, active: 0, length: 0 };
        // The first complete set of records must not overwrite the valid half, so make it the
        // active half.
        halves.active = halves.valid().unwrap_or(0);
        halves
    }

    /// Whether a process has written records to the memory.
    pub fn is_begun(&self) -> bool {
        self.head(Head::Layout).load(Ordering::Acquire) != 0
    }

    /// Whether errors were found in the file system.
    pub fn has_errors(&self) -> bool {
        self.head(Head::Errors).load(Ordering::Acquire) != 0
    }

    /// Returns the valid records and the flags. `None` if there are none, or if they belong to
    /// another file system or have another layout.
    pub fn read(&self, identity: u64) -> Option<(Vec<u64>, u64)> {
        let get = |word| self.head(word).load(Ordering::Acquire);
        let half = self.valid()?;
        if get(Head::Layout) != KEPT_LAYOUT || get(Head::Identity) != identity {
            return None;
        }
        let length = usize::try_from(get(Self::end_of(half))).ok();
        let words = self.half(half).get(..length?)?;
        Some((words.iter().map(|word| word.load(Ordering::Relaxed)).collect(), get(Head::Flags)))
    }

    /// Returns the index of the half with the valid records.
    fn valid(&self) -> Option<usize> {
        let number = self.head(Head::Active).load(Ordering::Acquire);
        number.checked_sub(1).filter(|half| *half < 2).map(|half| half as usize)
    }

    /// Appends records, which become valid all at once. Returns `false` if there is not enough
    /// room.
    pub fn append(&mut self, records: &[u64], flags: u64) -> bool {
        let end = self.length + records.len();
        if end > self.size {
            return false;
        }
        put(&self.half(self.active)[self.length..end], records);
        self.length = end;
        self.head(Head::Flags).store(flags, Ordering::Relaxed);
        self.head(Self::end_of(self.active)).store(end as u64, Ordering::Release);
        true
    }

    /// Replaces all records by these. If there is not enough room, returns `false` and leaves no
    /// valid records.
    pub fn begin_again(&mut self, identity: u64, records: &[u64], flags: u64) -> bool {
        let has_room = records.len() <= self.size;
        let store = |word, value: u64| self.head(word).store(value, Ordering::Relaxed);
        store(Head::Layout, KEPT_LAYOUT);
        store(Head::Identity, identity);
        store(Head::Flags, flags);
        let half = 1 - self.active;
        if has_room {
            put(self.half(half), records);
            store(Self::end_of(half), records.len() as u64);
        }
        let number = if has_room { half as u64 + 1 } else { 0 };
        self.head(Head::Active).store(number, Ordering::Release);
        (self.active, self.length) = (half, records.len());
        has_room
    }

    /// Makes all records invalid.
    pub fn end(&self) {
        self.head(Head::Active).store(0, Ordering::Release);
    }

    fn end_of(half: usize) -> Head {
        if half == 0 { Head::FirstEnd } else { Head::SecondEnd }
    }

    fn head(&self, word: Head) -> &AtomicU64 {
        &self.memory.words()[word as usize]
    }

    fn half(&self, half: usize) -> &[AtomicU64] {
        &self.memory.words()[HEADER_WORDS + half * self.size..][..self.size]
    }
}

fn put(words: &[AtomicU64], records: &[u64]) {
    words.iter().zip(records).for_each(|(word, record)| word.store(*record, Ordering::Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Arc<SharedMemory> {
        Arc::new(SharedMemory::new("test", HEADER_WORDS + 20).unwrap())
    }

    #[test]
    fn next_process_reads_the_records_that_became_valid() {
        let memory = memory();
        let mut halves = Halves::new(Arc::clone(&memory));
        let next = || Halves::new(Arc::clone(&memory)).read(7);
        assert!(!halves.is_begun() && next().is_none());
        assert!(halves.begin_again(7, &[1, 2, 3], 0));
        assert!(halves.append(&[4, 5], 9));
        assert_eq!(next(), Some((vec![1, 2, 3, 4, 5], 9)));
        assert!(!halves.append(&[0; 6], 0), "a half has ten words");
        assert_eq!(next(), Some((vec![1, 2, 3, 4, 5], 9)));
        assert!(halves.begin_again(7, &[6], 9));
        assert_eq!(next(), Some((vec![6], 9)));
        for _ in 0..3 {
            // The next process also writes a complete set, and must not overwrite the valid half.
            let mut halves = Halves::new(Arc::clone(&memory));
            assert_ne!(halves.valid(), Some(1 - halves.active));
            assert!(halves.begin_again(7, &[6], 9));
        }
        assert!(Halves::new(Arc::clone(&memory)).read(8).is_none(), "another file system");
        assert!(!halves.begin_again(7, &[0; 11], 9));
        assert!(halves.is_begun() && next().is_none());
        assert!(halves.begin_again(7, &[1], 9));
        assert_eq!(next(), Some((vec![1], 9)));
    }

    #[test]
    fn damaged_header_yields_no_records() {
        for (word, value) in [
            (Head::Layout, KEPT_LAYOUT + 1),
            (Head::Active, 3),
            (Head::Active, 0),
            (Head::SecondEnd, 11),
            (Head::SecondEnd, u64::MAX),
        ] {
            let memory = memory();
            assert!(Halves::new(Arc::clone(&memory)).begin_again(7, &[1, 2], 0));
            let halves = Halves::new(memory);
            assert!(halves.read(7).is_some());
            halves.head(word).store(value, Ordering::Relaxed);
            assert!(halves.read(7).is_none(), "{} {value}", word as usize);
        }
    }
}
