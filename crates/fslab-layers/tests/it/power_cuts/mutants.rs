//! Planted bugs in the order in which a layer makes things durable: observers between the layer
//! and the double, so that any layer can be had with any of them.

use std::ffi::OsStr;
use std::sync::Arc;

use fslab_layers::observe::fault::{Fault, Program};
use fslab_vfs::{
    Attr, FallocateMode, FileSystem, Handle, Ino, Request, Result, SetAttr, WriteOptions, XattrMode,
};
use parking_lot::Mutex;

/// A planted bug.
pub struct Mutant {
    pub bug: &'static str,
    /// A layer that does at all what is done wrong here.
    pub layer: &'static str,
    /// Puts it between the layer and what is below.
    pub plant: fn(Arc<dyn FileSystem>) -> Arc<dyn FileSystem>,
}

const GZIP: &str = "gzip:chunk=4KiB,threads=1,level=1,cache=0";
/// Its frames hold whole blocks, which can be punched.
const COPY: &str = "copy:chunk=16KiB,threads=1,tails=off,cache=0";

/// Its files are packed at nearly every close.
const PACKED: &str = "gzip:chunk=4KiB,threads=1,level=1,cache=0,garbage=4KiB,pack=close";

pub const MUTANTS: &[Mutant] = &[
    Mutant { bug: "no fsync is done", layer: GZIP, plant: |inner| faulty(inner, "fsync skip") },
    Mutant {
        bug: "every third fsync is dropped",
        layer: GZIP,
        plant: |inner| faulty(inner, "fsync every 3 skip"),
    },
    Mutant { bug: "syncfs is dropped", layer: GZIP, plant: |inner| faulty(inner, "syncfs skip") },
    Mutant {
        bug: "directories are not synced",
        layer: GZIP,
        plant: |inner| faulty(inner, "fsyncdir skip"),
    },
    Mutant {
        bug: "the root slot is written before what it points to is durable",
        layer: GZIP,
        plant: |inner| {
            late_sync(inner, |next| matches!(next, Next::Write { offset } if *offset < HEAD_BYTES))
        },
    },
    Mutant {
        bug: "the slot of a packed file is written before the packed file is durable",
        layer: PACKED,
        plant: |inner| {
            late_sync(inner, |next| matches!(next, Next::Write { offset } if *offset < HEAD_BYTES))
        },
    },
    Mutant {
        bug: "what packing takes away goes before the slot that does not need it is durable",
        layer: PACKED,
        plant: |inner| {
            late_sync(inner, |next| matches!(next, Next::Cut | Next::Write { offset: HEAD_BYTES }))
        },
    },
    Mutant {
        bug: "dead frames are punched before the new ones are durable",
        layer: COPY,
        plant: |inner| Arc::new(PunchEarly { inner, kept: Mutex::new(Vec::new()) }),
    },
];

/// Shows only after two power cuts, and where frames fit together: see `leftovers`.
pub const NO_ZEROS: Mutant = Mutant {
    bug: "no zeros are written behind the checkpoint of a packed file",
    layer: COPY,
    plant: |inner| Arc::new(NoZeros { inner }),
};

/// Slots and identity are within these first bytes of a stored file.
const HEAD_BYTES: u64 = 1024;

fn faulty(inner: Arc<dyn FileSystem>, rules: &str) -> Arc<dyn FileSystem> {
    let program = Program::parse("planted", rules, 0).unwrap();
    Arc::new(Fault::new(inner, program, Box::new(|_, _| Ok(()))))
}

/// The operation that follows a sync.
enum Next {
    Write {
        offset: u64,
    },
    /// A new size.
    Cut,
    Other,
}

/// Does an fsync only when the next call comes, and behind that call where it is one of some kind.
struct LateSync {
    inner: Arc<dyn FileSystem>,
    is_overtaking: fn(&Next) -> bool,
    pending: Mutex<Option<(Request, Ino, Handle, bool)>>,
}

fn late_sync(inner: Arc<dyn FileSystem>, is_overtaking: fn(&Next) -> bool) -> Arc<dyn FileSystem> {
    Arc::new(LateSync { inner, is_overtaking, pending: Mutex::default() })
}

impl LateSync {
    fn around<T>(&self, next: &Next, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let pending = self.pending.lock().take();
        let sync = || match &pending {
            Some((request, ino, handle, data_only)) => {
                self.inner.fsync(request, *ino, *handle, *data_only)
            }
            None => Ok(()),
        };
        if (self.is_overtaking)(next) {
            let answer = work()?;
            if matches!(next, Next::Write { offset: HEAD_BYTES }) {
                *self.pending.lock() = pending;
                return Ok(answer);
            }
            sync()?;
            return Ok(answer);
        }
        sync()?;
        work()
    }
}

impl FileSystem for LateSync {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.inner)
    }

    fn fsync(&self, request: &Request, ino: Ino, handle: Handle, data_only: bool) -> Result<()> {
        // One that waits already is done with this one.
        *self.pending.lock() = Some((request.clone(), ino, handle, data_only));
        Ok(())
    }

    fn write(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<usize> {
        self.around(&Next::Write { offset }, || {
            self.inner.write(request, ino, handle, offset, data, options)
        })
    }

    fn setattr(
        &self,
        request: &Request,
        ino: Ino,
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        let next = if changes.size.is_some() { Next::Cut } else { Next::Other };
        self.around(&next, || self.inner.setattr(request, ino, handle, changes))
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        length: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        self.around(&Next::Other, || {
            self.inner.fallocate(request, ino, handle, offset, length, mode)
        })
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: Ino,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.around(&Next::Other, || self.inner.setxattr(request, ino, name, value, mode))
    }

    fn release(&self, request: &Request, ino: Ino, handle: Handle) -> Result<()> {
        self.around(&Next::Other, || self.inner.release(request, ino, handle))
    }

    fn syncfs(&self, request: &Request, ino: Ino) -> Result<()> {
        self.around(&Next::Other, || self.inner.syncfs(request, ino))
    }

    /// Asked after each step of a script.
    fn statfs(&self, request: &Request, ino: Ino) -> Result<fslab_vfs::StatFs> {
        self.around(&Next::Other, || self.inner.statfs(request, ino))
    }
}

/// A sync, and the slot that is written after it, wait for the first call that is no punch: only
/// punches overtake them.
struct PunchEarly {
    inner: Arc<dyn FileSystem>,
    kept: Mutex<Vec<Kept>>,
}

enum Kept {
    Sync { request: Request, ino: Ino, handle: Handle, data_only: bool },
    Slot { request: Request, ino: Ino, handle: Handle, offset: u64, data: Vec<u8> },
}

impl PunchEarly {
    fn catch_up(&self) -> Result<()> {
        for kept in std::mem::take(&mut *self.kept.lock()) {
            match kept {
                Kept::Sync { request, ino, handle, data_only } => {
                    self.inner.fsync(&request, ino, handle, data_only)?;
                }
                Kept::Slot { request, ino, handle, offset, data } => {
                    let options = WriteOptions::default();
                    self.inner.write(&request, ino, handle, offset, &data, options)?;
                }
            }
        }
        Ok(())
    }
}

impl FileSystem for PunchEarly {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.inner)
    }

    fn fsync(&self, request: &Request, ino: Ino, handle: Handle, data_only: bool) -> Result<()> {
        self.catch_up()?;
        self.kept.lock().push(Kept::Sync { request: request.clone(), ino, handle, data_only });
        Ok(())
    }

    fn write(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<usize> {
        let mut kept = self.kept.lock();
        if offset < HEAD_BYTES && !kept.is_empty() {
            let (request, data) = (request.clone(), data.to_vec());
            let length = data.len();
            kept.push(Kept::Slot { request, ino, handle, offset, data });
            return Ok(length);
        }
        drop(kept);
        self.catch_up()?;
        self.inner.write(request, ino, handle, offset, data, options)
    }

    fn read(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        self.catch_up()?;
        self.inner.read(request, ino, handle, offset, buffer)
    }

    fn release(&self, request: &Request, ino: Ino, handle: Handle) -> Result<()> {
        self.catch_up()?;
        self.inner.release(request, ino, handle)
    }

    fn syncfs(&self, request: &Request, ino: Ino) -> Result<()> {
        self.catch_up()?;
        self.inner.syncfs(request, ino)
    }

    fn statfs(&self, request: &Request, ino: Ino) -> Result<fslab_vfs::StatFs> {
        self.catch_up()?;
        self.inner.statfs(request, ino)
    }
}

/// Leaves out what would write only zeros behind the head.
struct NoZeros {
    inner: Arc<dyn FileSystem>,
}

impl FileSystem for NoZeros {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.inner)
    }

    fn write(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<usize> {
        if offset >= HEAD_BYTES && data.iter().all(|byte| *byte == 0) {
            return Ok(data.len());
        }
        self.inner.write(request, ino, handle, offset, data, options)
    }
}
