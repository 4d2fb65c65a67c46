//! Starts and ends uses of files: the first user opens the lower file, the last one closes it.

use std::sync::Arc;

use fslab_vfs::{Errno, FileSystem, Ino, OpenMode, Request, Result};

use super::context::Settings;
use super::open_files::OpenFiles;
use super::pack::Packed;
use super::size_xattr;
use super::stored_file::{OpenBelow, StoredFile};

/// Opens and closes lower files, for requests and for the reclaimer.
pub struct Access {
    lower: Arc<dyn FileSystem>,
    settings: Arc<Settings>,
    pub files: OpenFiles,
}

impl Access {
    pub fn new(lower: Arc<dyn FileSystem>, settings: Arc<Settings>) -> Self {
        Self { lower, settings, files: OpenFiles::default() }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Starts a use of a file; opens the lower file with `mode` if the file is not in use.
    pub fn enter(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Arc<StoredFile>> {
        let writes = mode.writes();
        let file = self.files.enter(request, ino, || {
            let opened = self.lower.open(request, ino, mode)?;
            let handle = opened.handle;
            self.take_over(request, OpenBelow { ino, handle, is_writable: writes, is_new: false })
        })?;
        if writes && let Err(error) = file.make_writable(request) {
            self.files.leave(request, ino)?;
            return Err(error);
        }
        Ok(file)
    }

    /// Starts a use of a file, and empties it.
    pub fn enter_emptied(
        &self,
        request: &Request,
        ino: Ino,
        kill_set_id: bool,
    ) -> Result<Arc<StoredFile>> {
        let mut was_used = true;
        let file = self.files.enter(request, ino, || {
            was_used = false;
            let handle = self.lower.open(request, ino, size_xattr::lower_mode(true))?.handle;
            let opened = OpenBelow { ino, handle, is_writable: true, is_new: false };
            self.or_closed(request, opened, |fs, settings| {
                StoredFile::open_emptied(fs, settings, request, opened, kill_set_id)
            })
        })?;
        if was_used {
            let emptied =
                file.make_writable(request).and_then(|()| file.set_size(request, 0, kill_set_id));
            if let Err(error) = emptied {
                self.files.leave(request, ino)?;
                return Err(error);
            }
        }
        Ok(file)
    }

    /// Takes over an open lower file; closes it on failure.
    pub fn take_over(&self, request: &Request, opened: OpenBelow) -> Result<StoredFile> {
        self.or_closed(request, opened, |fs, settings| {
            StoredFile::open(fs, settings, request, opened)
        })
    }

    fn or_closed(
        &self,
        request: &Request,
        opened: OpenBelow,
        open: impl FnOnce(&Arc<dyn FileSystem>, &Arc<Settings>) -> Result<StoredFile>,
    ) -> Result<StoredFile> {
        match open(&self.lower, &self.settings) {
            Ok(file) => Ok(file),
            Err(error) => {
                self.lower.release(request, opened.ino, opened.handle)?;
                Err(error)
            }
        }
    }

    /// Commits a file or collects its garbage if that is due and the file is in use.
    pub fn tend(&self, request: &Request, ino: Ino) -> Result<()> {
        self.holding(ino, || {
            let Some(file) = self.files.enter_used(request, ino)? else { return Ok(()) };
            file.tend(request);
            self.files.leave(request, ino)
        })
    }

    /// Ends staging in a file, if it is in use.
    pub fn end_staging(&self, request: &Request, ino: Ino) -> Result<()> {
        self.holding(ino, || {
            let Some(file) = self.files.enter_used(request, ino)? else { return Ok(()) };
            let ended = file.end_staging(request);
            let left = self.files.leave(request, ino);
            ended.and(left)
        })
    }

    /// Packs a file without changing its access time. For `goes_on`, see [`StoredFile::pack`].
    pub fn pack(
        &self,
        request: &Request,
        ino: Ino,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Packed> {
        self.holding(ino, || {
            let mode = size_xattr::lower_mode(true);
            let file = match self.enter(request, ino, mode | OpenMode::NO_ACCESS_TIME) {
                // Only the owner of a file may open it without updating the access time.
                Err(error) if error.errno() == Errno::PERM => self.enter(request, ino, mode)?,
                file => file?,
            };
            let packed = file.pack(request, goes_on);
            let left = self.files.leave(request, ino);
            packed.and_then(|packed| left.map(|()| packed))
        })
    }

    /// Runs `work` on a file while keeping its inode valid, even if the kernel forgets it.
    fn holding<T>(&self, ino: Ino, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.lower.hold(ino)?;
        let done = work();
        self.lower.let_go(ino);
        done
    }
}
