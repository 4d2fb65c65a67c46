//! The open files and directories of a kept mount, under numbers that outlive a daemon.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fslab_vfs::{Errno, Handle, Ino, OpenMode, Result};
use parking_lot::RwLock;
use slab::Slab;

use super::state::{HANDLES_MAX, KeptState};

/// Parts of a handle's first word; the mode of opening is in its upper half.
const IN_USE: u64 = 1;
const DIRECTORY: u64 = 2;

/// A file or directory that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    pub ino: Ino,
    /// `None` for a directory.
    pub mode: Option<OpenMode>,
}

/// One that an earlier daemon had open, and how the kernel reads and writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Restored {
    pub open: Open,
    pub handle: Handle,
    /// The number of its backing file.
    pub backing: Option<i32>,
}

/// What the kernel's numbers of open files stand for.
#[derive(Debug)]
pub(crate) struct OpenHandles {
    state: Arc<KeptState>,
    open: RwLock<Slab<Handle>>,
}

/// Stands for a file that could not be opened again: no file system gives it out.
const LOST: Handle = Handle(u64::MAX);

impl OpenHandles {
    /// None is open.
    pub fn new(state: &Arc<KeptState>) -> Self {
        Self { state: Arc::clone(state), open: RwLock::default() }
    }

    /// Opens all again that an earlier daemon had open. Those of requests that were not answered
    /// (`is_unanswered`, by their numbers) are nobody's.
    pub fn taken_over(
        state: &Arc<KeptState>,
        is_unanswered: impl Fn(u64) -> bool,
        reopen: &mut dyn FnMut(&Open) -> Result<Handle>,
    ) -> (Self, Vec<Restored>) {
        let (mut items, mut restored) = (Vec::new(), Vec::new());
        for number in 0..state.handles_end() {
            let words = state.handle(number);
            let first = words[0].load(Ordering::Acquire);
            if first & IN_USE == 0 {
                continue;
            }
            if is_unanswered(words[2].load(Ordering::Relaxed)) {
                words[0].store(0, Ordering::Release);
                continue;
            }
            let open = Open {
                ino: Ino(words[1].load(Ordering::Relaxed)),
                mode: (first & DIRECTORY == 0)
                    .then(|| OpenMode::from_bits_retain((first >> 32) as u32)),
            };
            let backing = i32::try_from(words[3].load(Ordering::Relaxed)).ok();
            let handle = reopen(&open).unwrap_or_else(|error| {
                tracing::error!(%error, ?open, "can't be opened again; its users get EBADF");
                LOST
            });
            items.push((number, handle));
            restored.push(Restored { open, handle, backing: backing.filter(|id| *id > 0) });
        }
        let open = RwLock::new(items.into_iter().collect());
        (Self { state: Arc::clone(state), open }, restored)
    }

    /// Gives a number to what a request has opened.
    ///
    /// # Errors
    /// `ENFILE` where there is no room.
    pub fn add(&self, open: &Open, handle: Handle, unique: u64) -> Result<u64> {
        let mut all = self.open.write();
        if all.len() >= HANDLES_MAX {
            return Err(Errno::NFILE.into());
        }
        let number = all.insert(handle);
        drop(all);
        self.state.use_handle(number);
        let words = self.state.handle(number);
        let mode = open.mode.map_or(0, |mode| u64::from(mode.bits()) << 32);
        let kind = if open.mode.is_none() { DIRECTORY } else { 0 };
        words[1].store(open.ino.0, Ordering::Relaxed);
        words[2].store(unique & !super::SENT_AGAIN, Ordering::Relaxed);
        words[3].store(0, Ordering::Relaxed);
        words[0].store(IN_USE | kind | mode, Ordering::Release);
        Ok(number as u64)
    }

    /// Notes the backing file through which the kernel reads and writes.
    pub fn note_backing(&self, number: u64, backing: Option<i32>) {
        let backing = backing.and_then(|id| u64::try_from(id).ok()).unwrap_or(0);
        self.state.handle(number as usize)[3].store(backing, Ordering::Relaxed);
    }

    /// What a number stands for; no open file for one that is not in use.
    pub fn get(&self, number: u64) -> Handle {
        let all = self.open.read();
        usize::try_from(number).ok().and_then(|number| all.get(number).copied()).unwrap_or(LOST)
    }

    /// Takes a number back whose file is closed.
    pub fn remove(&self, number: u64) {
        let Ok(number) = usize::try_from(number) else { return };
        let mut all = self.open.write();
        if all.contains(number) {
            self.state.handle(number)[0].store(0, Ordering::Release);
            all.remove(number);
        }
    }

    /// Whether a number is in use.
    pub fn contains(&self, number: u64) -> bool {
        usize::try_from(number).is_ok_and(|number| self.open.read().contains(number))
    }
}
