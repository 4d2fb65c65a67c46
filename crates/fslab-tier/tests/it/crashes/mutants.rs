//! Planted bugs in the order in which a tier makes things durable: observers between the engine and
//! the tree below, which do what a forgotten line would.

use std::ffi::OsStr;
use std::sync::Arc;

use fslab_tier::stored::Residency;
use fslab_tier::stored::residency::FILE_XATTR;
use fslab_vfs::{
    Attr, FallocateMode, FileSystem, Handle, Ino, OpenMode, Opened, Request, Result, SetAttr,
    WriteOptions, XattrMode,
};
use parking_lot::Mutex;

/// A planted bug.
pub struct Mutant {
    pub bug: &'static str,
    /// The script that finds it, counted from the fixed seed.
    pub script: u64,
    pub plant: Plant,
}

/// Puts it between the engine and the tree below.
pub type Plant = fn(Arc<dyn FileSystem>) -> Arc<dyn FileSystem>;

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        bug: "bytes are not synced before the xattr says that they are here",
        script: 1,
        plant: |inner| forgetful(inner, Forgets::SyncBefore(|step| step.comes_here())),
    },
    Mutant {
        bug: "bytes are not synced before the xattr says that archives hold them",
        script: 0,
        plant: |inner| forgetful(inner, Forgets::SyncBefore(|step| step.is_archived())),
    },
    Mutant {
        bug: "the xattr that says 'changed' is not durable before the change",
        script: 0,
        plant: |inner| forgetful(inner, Forgets::SyncAfter(|step| step.is_changed())),
    },
    Mutant {
        bug: "the record before growth is not durable",
        script: 5,
        plant: |inner| forgetful(inner, Forgets::SyncAfter(|step| step.is_recorded())),
    },
    Mutant {
        bug: "blocks are punched before the xattr durably names them",
        script: 1,
        plant: |inner| forgetful(inner, Forgets::SyncAfter(|step| step.goes_away())),
    },
    Mutant {
        bug: "the xattr does not say that blocks are on their way",
        script: 1,
        plant: |inner| forgetful(inner, Forgets::Moving),
    },
];

/// What an xattr said before and says now.
struct Step {
    before: Option<Residency>,
    after: Residency,
}

impl Step {
    fn comes_here(&self) -> bool {
        let is_fewer = |before: &Residency| {
            before.offline.iter().flatten().any(|block| !self.after.offline.contains(block))
        };
        self.before.as_ref().is_some_and(is_fewer)
    }

    fn is_archived(&self) -> bool {
        let is_same = |before: &Residency| before.version.object == self.after.version.object;
        !self.before.as_ref().is_some_and(is_same)
    }

    fn is_changed(&self) -> bool {
        self.after.changed && self.before.as_ref().is_some_and(|before| !before.changed)
    }

    fn is_recorded(&self) -> bool {
        self.after.changed && self.comes_here()
    }

    fn goes_away(&self) -> bool {
        self.after.moving && !self.after.offline.is_empty()
    }
}

enum Forgets {
    /// A sync that is followed by such a step.
    SyncBefore(fn(&Step) -> bool),
    /// A sync that follows such a step.
    SyncAfter(fn(&Step) -> bool),
    /// To say that blocks are on their way.
    Moving,
}

/// Leaves out what a forgotten line would.
struct Forgetful {
    inner: Arc<dyn FileSystem>,
    forgets: Forgets,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    /// A sync that waits for what comes next.
    sync: Option<(Request, Ino, Handle, bool)>,
    /// The file whose xattr was just written in a way whose sync is forgotten.
    forgotten: Option<Ino>,
}

fn forgetful(inner: Arc<dyn FileSystem>, forgets: Forgets) -> Arc<dyn FileSystem> {
    Arc::new(Forgetful { inner, forgets, pending: Mutex::default() })
}

impl Forgetful {
    /// Something else comes: what waited is done.
    fn catch_up(&self) -> Result<()> {
        let pending = std::mem::take(&mut *self.pending.lock());
        match pending.sync {
            Some((request, ino, handle, data_only)) => {
                self.inner.fsync(&request, ino, handle, data_only)
            }
            None => Ok(()),
        }
    }

    fn step(&self, request: &Request, ino: Ino, value: &[u8]) -> Option<Step> {
        let before = self.inner.getxattr(request, ino, OsStr::new(FILE_XATTR)).ok();
        let before = before.and_then(|value| Residency::decode(&value).ok());
        Some(Step { before, after: Residency::decode(value).ok()? })
    }
}

impl FileSystem for Forgetful {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.inner)
    }

    fn fsync(&self, request: &Request, ino: Ino, handle: Handle, data_only: bool) -> Result<()> {
        if self.pending.lock().forgotten.take() == Some(ino) {
            return Ok(());
        }
        self.catch_up()?;
        if matches!(self.forgets, Forgets::SyncBefore(_)) {
            self.pending.lock().sync = Some((request.clone(), ino, handle, data_only));
            return Ok(());
        }
        self.inner.fsync(request, ino, handle, data_only)
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: Ino,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let step = self.step(request, ino, value).filter(|_| name == FILE_XATTR);
        match (&self.forgets, &step) {
            (Forgets::SyncBefore(is_such), Some(step)) if is_such(step) => {
                self.pending.lock().sync = None;
            }
            _ => self.catch_up()?,
        }
        if let (Forgets::Moving, Some(Step { after, .. })) = (&self.forgets, &step) {
            let value = Residency { moving: false, ..after.clone() }.encode().unwrap();
            return self.inner.setxattr(request, ino, name, &value, mode);
        }
        self.inner.setxattr(request, ino, name, value, mode)?;
        if let (Forgets::SyncAfter(is_such), Some(step)) = (&self.forgets, &step)
            && is_such(step)
        {
            self.pending.lock().forgotten = Some(ino);
        }
        Ok(())
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        // Between an xattr and its sync the engine may have to open the file first.
        let forgotten = self
            .pending
            .lock()
            .forgotten
            .filter(|_| mode.contains(OpenMode::READ_WRITE | OpenMode::NO_ACCESS_TIME));
        self.catch_up()?;
        self.pending.lock().forgotten = forgotten;
        self.inner.open(request, ino, mode)
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
        self.catch_up()?;
        self.inner.write(request, ino, handle, offset, data, options)
    }

    fn setattr(
        &self,
        request: &Request,
        ino: Ino,
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        self.catch_up()?;
        self.inner.setattr(request, ino, handle, changes)
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
        self.catch_up()?;
        self.inner.fallocate(request, ino, handle, offset, length, mode)
    }

    fn release(&self, request: &Request, ino: Ino, handle: Handle) -> Result<()> {
        self.catch_up()?;
        self.inner.release(request, ino, handle)
    }

    fn syncfs(&self, request: &Request, ino: Ino) -> Result<()> {
        self.catch_up()?;
        self.inner.syncfs(request, ino)
    }
}
