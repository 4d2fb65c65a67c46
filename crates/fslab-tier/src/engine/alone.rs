//! Having a file alone while its bytes are freed. Programs may have had it open or mapped since
//! before the mount, and a map outlasts the descriptor that it was made from: neither is counted
//! among the openings of the mount, and both would find zeros.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

use fslab_vfs::{Errno, FileSystem, Handle, Ino};

use super::Tier;
use super::file::{FileState, TieredFile};
use crate::error::{Error, Result};
use crate::lower::OwnFile;

/// Pauses in which whoever closes the file just now is waited for, each twice as long as the one
/// before: 255 ms in all. The kernel lets go of what was open a moment after it said so, and a
/// program that is being started has what its parent had.
const PAUSES: u32 = 8;

/// A file that nobody else has open, or opens; dropped, others may.
pub(super) struct Alone {
    fs: Arc<dyn FileSystem>,
    ino: Ino,
    handle: Handle,
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.fs.end_lease(self.ino, self.handle);
    }
}

impl Alone {
    fn of(own: &OwnFile) -> fslab_vfs::Result<Self> {
        let (fs, ino, handle) = own.place();
        fs.take_lease(ino, handle)?;
        Ok(Self { fs: Arc::clone(fs), ino, handle })
    }
}

impl Tier {
    /// Has a file alone, by the descriptor that the engine has of it; nothing where files can't be
    /// leased, which is said once.
    ///
    /// # Errors
    /// Where somebody else has it open.
    pub(super) fn have_alone(
        &self,
        file: &TieredFile,
        state: &mut FileState,
        path: &[u8],
    ) -> Result<Option<Alone>> {
        let own = state.own(self, file.ino()).map_err(Error::below(path))?;
        let mut pauses = (0..PAUSES).map(|times| Duration::from_millis(1 << times));
        let had = loop {
            match Alone::of(own) {
                Err(error) if error.errno() == Errno::AGAIN => match pauses.next() {
                    Some(pause) => sleep(pause),
                    None => return Err(Error::busy(path, "is in use behind the mount")),
                },
                had => break had,
            }
        };
        match had {
            Ok(alone) => Ok(Some(alone)),
            Err(error) => match error.errno() {
                Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::ACCESS => {
                    self.tell_of_no_leases(&error);
                    Ok(None)
                }
                _ => Err(Error::below(path)(error)),
            },
        }
    }

    fn tell_of_no_leases(&self, error: &fslab_vfs::Error) {
        if !self.lacks_leases.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %error,
                "files below can't be leased: a program that has one open since before the mount, \
                 or mapped, finds zeros in it once it is released"
            );
        }
    }
}
