//! Records which files are in use, and by how many users. The first user opens a file below.
//!
//! Opening may need recovery, a walk over a whole stored file, and closing writes. Invariant: only
//! users of the same file wait for that. The lock over all files is held only briefly.

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

/// A file, once it is open below. Its lock is held while it is being opened.
type Opening = Mutex<Option<Arc<StoredFile>>>;

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
                self.part(request, ino)?;
                Err(error)
            }
        }
    }

    /// Starts a use of a file, if it is in use already.
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

    /// Ends a use of a file. The last user settles the file and closes it below.
    pub fn leave(&self, request: &Request, ino: Ino, file: &StoredFile) -> Result<()> {
        // A user who arrives during the settling finds the file still in use.
        let is_last = self.files.lock().get(&ino).is_some_and(|known| known.users == 1);
        let settled = if is_last { file.settle(request) } else { Ok(()) };
        let parted = self.part(request, ino);
        settled.and(parted)
    }

    /// Ends a use without settling first. A file without users is closed; later users reopen it.
    fn part(&self, request: &Request, ino: Ino) -> Result<()> {
        let Some(opening) = self.last_opening(ino) else { return Ok(()) };
        let mut open = opening.lock();
        if self.files.lock().get(&ino).is_none_or(|known| known.users > 0) {
            return Ok(());
        }
        let closed = open.take().map_or(Ok(()), |file| {
            // Several users may leave at once, and then none of them settled the file as the last
            // one.
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

    /// The file, if it is in use.
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

    /// Calls `used` if the file is open. Otherwise calls `unused`, and no use can start meanwhile.
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

    /// Decrements the number of users; returns the opening if it was the last, and keeps the entry.
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

    /// Two users who leave at once each see the other and leave the settling to it.
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
        // Two chunks: a file of one has no seek table.
        let data = vec![7; settings.shape().chunk_bytes as usize + 1];
        file.write(&request, Place::At(0), &data, WriteOptions::default()).unwrap();
        let before = lower.attr(&request).unwrap().size;
        // The part of `leave` that follows when it has found two users.
        files.part(&request, lower.ino).unwrap();
        files.part(&request, lower.ino).unwrap();
        assert!(files.get(lower.ino).is_none());
        let after = fs.getattr(&request, lower.ino, None).unwrap().size;
        assert!(after > before, "no seek table behind {before} bytes");
    }
}
