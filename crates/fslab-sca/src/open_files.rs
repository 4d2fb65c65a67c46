//! Records which files are in use, and by how many users. The first user opens the lower file.
//!
//! Opening a file may take long, because recovery may walk over the whole stored file. Closing a
//! file may write to it. Invariant: opening or closing a file blocks only users of the same file.
//! The lock of the table of all files is held only briefly.

use std::collections::HashMap;
use std::sync::Arc;

use fslab_vfs::{Ino, Request, Result};
use parking_lot::Mutex;

use super::stored_file::StoredFile;

/// The files in use.
#[derive(Default)]
pub struct OpenFiles {
    files: Mutex<HashMap<Ino, OpenCount>>,
}

#[derive(Default)]
struct OpenCount {
    opening: Arc<Opening>,
    users: usize,
    /// Number of uses begun so far.
    uses: u64,
}

/// An open file; `None` until its lower file is open. The lock is held while it is being opened or
/// closed.
type Opening = Mutex<Option<Arc<StoredFile>>>;

impl OpenCount {
    fn begin_use(&mut self) -> Arc<Opening> {
        self.users += 1;
        self.uses += 1;
        Arc::clone(&self.opening)
    }
}

impl OpenFiles {
    /// Starts a use of a file; calls `open` if the file is not in use.
    pub fn enter(
        &self,
        request: &Request,
        ino: Ino,
        open: impl FnOnce() -> Result<StoredFile>,
    ) -> Result<Arc<StoredFile>> {
        let opening = self.join(ino);
        let mut file = opening.lock();
        if let Some(known) = &*file {
            return Ok(Arc::clone(known));
        }
        match open() {
            Ok(opened) => Ok(Arc::clone(file.insert(Arc::new(opened)))),
            Err(error) => {
                drop(file);
                self.leave(request, ino)?;
                Err(error)
            }
        }
    }

    /// Starts a use of a file, if it is in use already.
    pub fn enter_used(&self, request: &Request, ino: Ino) -> Result<Option<Arc<StoredFile>>> {
        let mut files = self.files.lock();
        let Some(known) = files.get_mut(&ino) else { return Ok(None) };
        let opening = known.begin_use();
        drop(files);
        let file = opening.lock().clone();
        if file.is_none() {
            self.leave(request, ino)?;
        }
        Ok(file)
    }

    /// Ends a use of a file. The end of the last use prepares the file for a fast open (see
    /// [`StoredFile::settle`]) and closes the lower file. A later use reopens it.
    pub fn leave(&self, request: &Request, ino: Ino) -> Result<()> {
        let (mut settled, mut settled_at) = (Ok(()), None);
        let opening = loop {
            let mut files = self.files.lock();
            let Some(known) = files.get_mut(&ino) else { return settled };
            let (is_last, is_settled) = (known.users == 1, settled_at == Some(known.uses));
            if !is_last || is_settled {
                known.users -= 1;
            }
            if !is_last {
                return settled;
            }
            let opening = Arc::clone(&known.opening);
            if is_settled {
                break opening;
            }
            settled_at = Some(known.uses);
            drop(files);
            // `settle` may wait for the disk. No lock is held, so that other threads can use the
            // file.
            let file = opening.lock().clone();
            settled = settled.and(file.map_or(Ok(()), |file| file.settle(request)));
        };
        settled.and(self.close(request, ino, &opening))
    }

    /// Closes a file if it has no users any more.
    fn close(&self, request: &Request, ino: Ino, opening: &Arc<Opening>) -> Result<()> {
        let mut open = opening.lock();
        let is_unused = |files: &HashMap<Ino, OpenCount>| {
            files
                .get(&ino)
                .is_some_and(|known| known.users == 0 && Arc::ptr_eq(&known.opening, opening))
        };
        if !is_unused(&self.files.lock()) {
            return Ok(());
        }
        let closed = open.take().map_or(Ok(()), |file| file.close(request));
        let mut files = self.files.lock();
        if is_unused(&files) {
            files.remove(&ino);
        }
        closed
    }

    /// Returns the file, if it is in use.
    pub fn get(&self, ino: Ino) -> Option<Arc<StoredFile>> {
        let opening = Arc::clone(&self.files.lock().get(&ino)?.opening);
        let file = opening.lock();
        file.clone()
    }

    /// Returns every file in use.
    pub fn all(&self) -> Vec<Arc<StoredFile>> {
        let files = self.files.lock();
        let openings: Vec<_> = files.values().map(|known| Arc::clone(&known.opening)).collect();
        drop(files);
        openings.iter().filter_map(|opening| opening.lock().clone()).collect()
    }

    /// Calls `used` if the file is open. Otherwise calls `unused`; the file can't be opened during
    /// that call.
    pub fn look<T>(
        &self,
        request: &Request,
        ino: Ino,
        used: impl FnOnce(&StoredFile) -> T,
        unused: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let opening = self.join(ino);
        let file = opening.lock();
        if let Some(known) = file.clone() {
            drop(file);
            let found = used(&known);
            self.leave(request, ino)?;
            return Ok(found);
        }
        let found = unused();
        drop(file);
        self.leave(request, ino)?;
        found
    }

    fn join(&self, ino: Ino) -> Arc<Opening> {
        let mut files = self.files.lock();
        let known = files.entry(ino).or_default();
        known.begin_use()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use fslab_vfs::{FileSystem, Handle, MemFs, WriteOptions};
    use parking_lot::Condvar;

    use super::super::context::Settings;
    use super::super::stored_file::{OpenBelow, Place};
    use super::super::testing::logs::file_in;
    use super::super::{codec, options};
    use super::*;

    /// If two users leave at once, each of them could assume that the other settles the file.
    #[test]
    fn last_of_two_concurrent_closes_settles_the_file() {
        let fs: Arc<dyn FileSystem> = Arc::new(MemFs::default());
        let lower = file_in(Arc::clone(&fs));
        let settings = Arc::new(options::of_packing(&codec::zstd::SPEC, false).unwrap());
        let (request, files) = (Request::default(), OpenFiles::default());
        let opened =
            OpenBelow { ino: lower.ino, handle: lower.handle, is_writable: true, is_new: true };
        let open = || StoredFile::open(&fs, &settings, &request, opened);
        let file = files.enter(&request, lower.ino, open).unwrap();
        files.enter(&request, lower.ino, open).unwrap();
        // The file has two chunks, because a file of one chunk has no seek table.
        let data = vec![7; settings.encoding().chunk_bytes as usize + 1];
        file.write(&request, Place::At(0), &data, WriteOptions::default()).unwrap();
        let before = lower.attr(&request).unwrap().size;
        files.leave(&request, lower.ino).unwrap();
        files.leave(&request, lower.ino).unwrap();
        assert!(files.get(lower.ino).is_none());
        let after = fs.getattr(&request, lower.ino, None).unwrap().size;
        assert!(after > before, "no seek table behind {before} bytes");
    }

    /// A file system whose syncs wait until the gate is opened.
    #[derive(Default)]
    struct Gated {
        inner: MemFs,
        waiting: AtomicBool,
        is_open: Mutex<bool>,
        opened: Condvar,
    }

    impl FileSystem for Gated {
        fn fallback(&self) -> Option<&dyn FileSystem> {
            Some(&self.inner)
        }

        fn fsync(&self, request: &Request, ino: Ino, handle: Handle, data: bool) -> Result<()> {
            self.waiting.store(true, Ordering::SeqCst);
            let mut is_open = self.is_open.lock();
            self.opened.wait_while(&mut is_open, |is_open| !*is_open);
            self.inner.fsync(request, ino, handle, data)
        }
    }

    /// A close that frees garbage waits for the disk. If two users leave at once, only the last of
    /// them settles the file (see [`StoredFile::settle`]).
    #[test]
    fn other_users_do_not_wait_while_a_file_is_settled() {
        let gated = Arc::new(Gated::default());
        let fs: Arc<dyn FileSystem> = gated.clone();
        let lower = file_in(Arc::clone(&fs));
        let packing = options::of_packing(&codec::zstd::SPEC, false).unwrap();
        let settings = Arc::new(Settings { garbage_bytes_max: 4096, ..packing });
        let (request, files) = (Request::default(), OpenFiles::default());
        let opened =
            OpenBelow { ino: lower.ino, handle: lower.handle, is_writable: true, is_new: true };
        let open = || StoredFile::open(&fs, &settings, &request, opened);
        let file = files.enter(&request, lower.ino, open).unwrap();
        files.enter(&request, lower.ino, open).unwrap();
        for byte in 0..20 {
            let data: Vec<u8> = (0..5000_u32).map(|at| ((at * at) >> 3) as u8 ^ byte).collect();
            file.write(&request, Place::At(0), &data, WriteOptions::default()).unwrap();
        }
        files.leave(&request, lower.ino).unwrap();
        let found = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| files.leave(&request, lower.ino).unwrap());
            let until = |is_so: &AtomicBool| {
                (0..10_000).any(|_| {
                    std::thread::sleep(Duration::from_millis(1));
                    is_so.load(Ordering::SeqCst)
                })
            };
            assert!(until(&gated.waiting), "nothing was synced");
            scope.spawn(|| {
                found.store(files.get(lower.ino).is_some(), Ordering::SeqCst);
            });
            let was_found = until(&found);
            *gated.is_open.lock() = true;
            gated.opened.notify_all();
            assert!(was_found, "a look at the file waited for the disk");
        });
        assert!(files.get(lower.ino).is_none());
    }
}
