//! Which files are in use, and by how many. Whoever comes first opens a file below.
//!
//! Opening may mean recovery, a walk over a whole stored file. Invariant: only who wants the same
//! file waits for that; the lock over all files is held for a moment only.

use std::collections::HashMap;
use std::sync::Arc;

use fslab_vfs::{Ino, Request, Result};
use parking_lot::Mutex;

use super::stored_file::StoredFile;

/// The files in use.
#[derive(Default)]
pub struct FilesInUse {
    files: Mutex<HashMap<Ino, InUse>>,
}

struct InUse {
    opening: Arc<Opening>,
    users: usize,
}

/// A file, once it is open below. The lock is held while somebody opens it.
type Opening = Mutex<Option<Arc<StoredFile>>>;

impl FilesInUse {
    /// Begins a use of a file; `open` opens it if nobody has it open.
    pub fn enter(
        &self,
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
                self.part(ino);
                Err(error)
            }
        }
    }

    /// Ends a use of a file. The last one leaves it in order and closes it below.
    pub fn leave(&self, request: &Request, ino: Ino, file: &StoredFile) -> Result<()> {
        // Who comes while the file is being left in order finds it still in use.
        let is_last = self.files.lock().get(&ino).is_some_and(|known| known.users == 1);
        let settled = if is_last { file.settle(request) } else { Ok(()) };
        let mut files = self.files.lock();
        if part(&mut files, ino) {
            // Under the lock: whoever opens it next must find the claim on it given up.
            file.close(request)?;
        }
        settled
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
        self.part(ino);
        found
    }

    fn join(&self, ino: Ino) -> Arc<Opening> {
        let mut files = self.files.lock();
        let known = files
            .entry(ino)
            .or_insert_with(|| InUse { opening: Arc::new(Opening::default()), users: 0 });
        known.users += 1;
        Arc::clone(&known.opening)
    }

    fn part(&self, ino: Ino) {
        part(&mut self.files.lock(), ino);
    }
}

/// Answers whether that was the last user.
fn part(files: &mut HashMap<Ino, InUse>, ino: Ino) -> bool {
    let Some(known) = files.get_mut(&ino) else { return false };
    known.users -= 1;
    known.users == 0 && files.remove(&ino).is_some()
}
