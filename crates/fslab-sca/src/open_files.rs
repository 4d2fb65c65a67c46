//! Which files are in use, and by how many. Whoever comes first opens a file below.
//!
//! Opening may mean recovery, a walk over a whole stored file, and closing writes. Invariant: only
//! who wants the same file waits for that; the lock over all files is held for a moment only.

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

struct OpenCount {
    opening: Arc<Opening>,
    users: usize,
}

/// A file, once it is open below. The lock is held while somebody opens it.
type Opening = Mutex<Option<Arc<StoredFile>>>;

impl OpenFiles {
    /// Begins a use of a file; `open` opens it if nobody has it open.
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
                self.part(request, ino)?;
                Err(error)
            }
        }
    }

    /// Begins a use of a file that somebody uses already.
    pub fn enter_used(&self, request: &Request, ino: Ino) -> Result<Option<Arc<StoredFile>>> {
        let mut files = self.files.lock();
        let Some(known) = files.get_mut(&ino) else { return Ok(None) };
        known.users += 1;
        let opening = Arc::clone(&known.opening);
        drop(files);
        let file = opening.lock().clone();
        if file.is_none() {
            self.part(request, ino)?;
        }
        Ok(file)
    }

    /// Ends a use of a file. The last one leaves it in order and closes it below.
    pub fn leave(&self, request: &Request, ino: Ino, file: &StoredFile) -> Result<()> {
        // Who comes while the file is being left in order finds it still in use.
        let is_last = self.files.lock().get(&ino).is_some_and(|known| known.users == 1);
        let settled = if is_last { file.settle(request) } else { Ok(()) };
        let parted = self.part(request, ino);
        settled.and(parted)
    }

    /// Gives up a use. Nobody keeps open what has no user: who comes meanwhile opens it anew.
    fn part(&self, request: &Request, ino: Ino) -> Result<()> {
        let Some(opening) = self.last_opening(ino) else { return Ok(()) };
        let mut open = opening.lock();
        if self.files.lock().get(&ino).is_none_or(|known| known.users > 0) {
            return Ok(());
        }
        let closed = open.take().map_or(Ok(()), |file| {
            // Of several who leave at once, none was alone when it left the file in order.
            let settled = file.settle(request);
            let closed = file.close(request);
            settled.and(closed)
        });
        let mut files = self.files.lock();
        if files.get(&ino).is_some_and(|known| known.users == 0) {
            files.remove(&ino);
        }
        closed
    }

    /// The file, if somebody uses it.
    pub fn get(&self, ino: Ino) -> Option<Arc<StoredFile>> {
        let opening = Arc::clone(&self.files.lock().get(&ino)?.opening);
        let file = opening.lock();
        file.clone()
    }

    /// Every file in use.
    pub fn all(&self) -> Vec<Arc<StoredFile>> {
        let files = self.files.lock();
        let openings: Vec<_> = files.values().map(|known| Arc::clone(&known.opening)).collect();
        drop(files);
        openings.iter().filter_map(|opening| opening.lock().clone()).collect()
    }

    /// Asks the file if somebody has it open. Else does `unused`, and nobody can begin to use the
    /// file meanwhile.
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
            self.leave(request, ino, &known)?;
            return Ok(found);
        }
        let found = unused();
        drop(file);
        self.part(request, ino)?;
        found
    }

    fn join(&self, ino: Ino) -> Arc<Opening> {
        let mut files = self.files.lock();
        let known = files
            .entry(ino)
            .or_insert_with(|| OpenCount { opening: Arc::new(Opening::default()), users: 0 });
        known.users += 1;
        Arc::clone(&known.opening)
    }

    /// Counts one user less; answers what the last one leaves, which is still known.
    fn last_opening(&self, ino: Ino) -> Option<Arc<Opening>> {
        let mut files = self.files.lock();
        let known = files.get_mut(&ino)?;
        known.users -= 1;
        (known.users == 0).then(|| Arc::clone(&known.opening))
    }
}

#[cfg(test)]
mod tests {
    use fslab_vfs::{FileSystem, MemFs, WriteOptions};

    use super::super::stored_file::{OpenBelow, Place};
    use super::super::testing::logs::file_in;
    use super::super::{codec, options};
    use super::*;

    /// Each of two who leave at once sees that it is not alone, and leaves the order to the other.
    #[test]
    fn of_two_who_leave_at_once_one_leaves_the_file_in_order() {
        let fs: Arc<dyn FileSystem> = Arc::new(MemFs::default());
        let lower = file_in(Arc::clone(&fs));
        let settings = Arc::new(options::of_packing(&codec::zstd::SPEC, false).unwrap());
        let (request, files) = (Request::default(), OpenFiles::default());
        let opened =
            OpenBelow { ino: lower.ino, handle: lower.handle, is_writable: true, is_new: true };
        let open = || StoredFile::open(&fs, &settings, &request, opened);
        let file = files.enter(&request, lower.ino, open).unwrap();
        files.enter(&request, lower.ino, open).unwrap();
        file.write(&request, Place::At(0), &[7; 5000], WriteOptions::default()).unwrap();
        let before = lower.attr(&request).unwrap().size;
        // What `leave` does once it has found two users.
        files.part(&request, lower.ino).unwrap();
        files.part(&request, lower.ino).unwrap();
        assert!(files.get(lower.ino).is_none());
        let after = fs.getattr(&request, lower.ino, None).unwrap().size;
        assert!(after > before, "no seek table behind {before} bytes");
    }
}
