//! The open files and directories of a kept mount, with numbers that remain valid when another
//! daemon takes over.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fslab_vfs::{Errno, Handle, Ino, Result};
use parking_lot::RwLock;
use slab::Slab;

use super::state::{HANDLES_MAX, KeptState};

/// Bits of a handle's first word; the open flags are in its upper half.
const IN_USE: u64 = 1;
const DIRECTORY: u64 = 2;

/// An open file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    pub ino: Ino,
    /// The open flags sent by the kernel; `None` for a directory.
    pub flags: Option<u32>,
}

/// An open file of an earlier daemon, after it was opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Restored {
    pub open: Open,
    pub handle: Handle,
    /// The kernel's id of its backing file, if reads and writes bypass the daemon.
    pub backing: Option<i32>,
}

/// The open files of an earlier daemon.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub open: Vec<Restored>,
    /// Ids of the backing files of opens that were never answered.
    pub cut_short: Vec<i32>,
}

/// Maps the numbers by which the kernel identifies open files to handles of this daemon.
#[derive(Debug)]
pub(crate) struct OpenHandles {
    state: Arc<KeptState>,
    open: RwLock<Slab<Numbered>>,
}

/// The open file in a row of the table. The tag distinguishes it from earlier files in the row.
#[derive(Clone, Copy, Debug)]
struct Numbered {
    handle: Handle,
    tag: u32,
}

impl Numbered {
    /// Makes the row of a file that was opened by the request `unique`.
    fn by(unique: u64, handle: Handle) -> Self {
        Self { handle, tag: unique as u32 }
    }

    fn number(self, row: usize) -> u64 {
        u64::from(self.tag) << 32 | row as u64
    }
}

fn row_of(number: u64) -> usize {
    (number & u64::from(u32::MAX)) as usize
}

/// The handle of a file that could not be opened again. No file system uses this value.
const LOST: Handle = Handle(u64::MAX);

impl OpenHandles {
    /// Makes a table without open files.
    pub fn new(state: &Arc<KeptState>) -> Self {
        Self { state: Arc::clone(state), open: RwLock::default() }
    }

    /// Opens the files of an earlier daemon again. A file is not opened if `is_unanswered` reports
    /// that its open was never answered, because then no process uses it.
    pub fn taken_over(
        state: &Arc<KeptState>,
        is_unanswered: impl Fn(u64) -> bool,
        reopen: &mut dyn FnMut(&Open) -> Result<Handle>,
    ) -> (Self, Found) {
        let (mut items, mut found) = (Vec::new(), Found::default());
        for number in 0..state.handles_end() {
            let words = state.handle(number);
            let first = words[0].load(Ordering::Acquire);
            if first & IN_USE == 0 {
                continue;
            }
            let unique = words[2].load(Ordering::Relaxed);
            let backing = i32::try_from(words[3].load(Ordering::Relaxed)).ok();
            let backing = backing.filter(|id| *id > 0);
            if is_unanswered(unique) {
                found.cut_short.extend(backing);
                words[0].store(0, Ordering::Release);
                continue;
            }
            let open = Open {
                ino: Ino(words[1].load(Ordering::Relaxed)),
                flags: (first & DIRECTORY == 0).then_some((first >> 32) as u32),
            };
            let handle = reopen(&open).unwrap_or_else(|error| {
                tracing::error!(%error, ?open, "can't reopen a file; its handles get EBADF");
                LOST
            });
            items.push((number, Numbered::by(unique, handle)));
            found.open.push(Restored { open, handle, backing });
        }
        let open = RwLock::new(items.into_iter().collect());
        (Self { state: Arc::clone(state), open }, found)
    }

    /// Assigns a number to a file opened by a request.
    ///
    /// # Errors
    /// `ENFILE` if all numbers are in use.
    pub fn add(&self, open: &Open, handle: Handle, unique: u64) -> Result<u64> {
        let mut all = self.open.write();
        if all.len() >= HANDLES_MAX {
            return Err(Errno::NFILE.into());
        }
        let numbered = Numbered::by(unique, handle);
        let row = all.insert(numbered);
        drop(all);
        self.state.use_handle(row);
        let words = self.state.handle(row);
        let flags = open.flags.map_or(0, |flags| u64::from(flags) << 32);
        let kind = if open.flags.is_none() { DIRECTORY } else { 0 };
        words[1].store(open.ino.0, Ordering::Relaxed);
        words[2].store(unique & !super::SENT_AGAIN, Ordering::Relaxed);
        words[3].store(0, Ordering::Relaxed);
        words[0].store(IN_USE | kind | flags, Ordering::Release);
        Ok(numbered.number(row))
    }

    /// Records the backing file of an open file, or that it has none.
    pub fn note_backing(&self, number: u64, backing: Option<i32>) {
        let backing = backing.and_then(|id| u64::try_from(id).ok()).unwrap_or(0);
        self.state.handle(row_of(number))[3].store(backing, Ordering::Relaxed);
    }

    /// Returns the handle of the file with this number; `LOST` for an unused number.
    pub fn get(&self, number: u64) -> Handle {
        self.find(number).map_or(LOST, |numbered| numbered.handle)
    }

    fn find(&self, number: u64) -> Option<Numbered> {
        let row = row_of(number);
        let numbered = self.open.read().get(row).copied()?;
        (numbered.number(row) == number).then_some(numbered)
    }

    /// Frees the number of a closed file.
    pub fn remove(&self, number: u64) {
        if self.contains(number) {
            let mut all = self.open.write();
            self.state.handle(row_of(number))[0].store(0, Ordering::Release);
            all.remove(row_of(number));
        }
    }

    /// Whether a number is in use.
    pub fn contains(&self, number: u64) -> bool {
        self.find(number).is_some()
    }
}

#[cfg(test)]
mod tests {
    use fslab_vfs::OpenMode;

    use super::*;

    #[test]
    fn open_fails_when_the_handle_table_is_full() {
        let state = Arc::new(KeptState::new(0).unwrap());
        let handles = OpenHandles::new(&state);
        let open = Open { ino: Ino(7), flags: Some(OpenMode::READ_WRITE.bits()) };
        let add = |unique| handles.add(&open, Handle(unique), unique);
        let first = add(0).unwrap();
        assert!((1..HANDLES_MAX as u64).all(|unique| add(unique).is_ok()));
        assert_eq!(add(u64::MAX >> 1).unwrap_err().errno(), Errno::NFILE);
        handles.remove(first);
        // The next file gets the same row with another number.
        let again = add(1 << 30).unwrap();
        assert_eq!((row_of(again), handles.get(first)), (row_of(first), LOST));
        assert_eq!(handles.get(again), Handle(1 << 30));
    }
}
