//! A file system in memory that records its requests, and can make a request wait for another one.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fslab_vfs::{
    DirectorySink, Entry, FileSystem, Handle, Ino, KernelCache, MemFs, Name, OpenMode, Opened,
    Request, Result, WriteOptions,
};
use parking_lot::{Condvar, Mutex};

use crate::support::PATIENCE;

thread_local! {
    /// Whether this thread serves a listing, during which the file system itself looks up names.
    static LISTING: Cell<bool> = const { Cell::new(false) };
}

/// The file system, with its counters and other records.
#[derive(Default)]
pub struct Watched {
    pub inner: MemFs,
    /// Number of lookups requested by the kernel.
    pub lookups: AtomicUsize,
    /// Number of lookups that were part of a listing.
    pub listed: AtomicUsize,
    /// Number of requests for parts of listings.
    pub listings: AtomicUsize,
    pub links_read: AtomicUsize,
    /// Number of requests for the capabilities of a file (`security.capability`).
    pub capabilities_read: AtomicUsize,
    /// Length of each write in bytes.
    pub writes: Mutex<Vec<usize>>,
    /// Requested length of each copy in bytes.
    pub copies: Mutex<Vec<u64>>,
    /// The groups in each creating request.
    pub groups: Mutex<Vec<Option<Vec<u32>>>>,
    /// The point at which reads wait for each other.
    pub reads_meet: Option<Meeting>,
    /// The point at which lookups wait for each other.
    pub lookups_meet: Option<Meeting>,
    /// Whether files are opened for direct I/O.
    pub direct: bool,
    pub cache: Mutex<Option<Arc<dyn KernelCache>>>,
}

impl Watched {
    pub fn count(&self, counter: impl Fn(&Self) -> &AtomicUsize) -> usize {
        counter(self).load(Ordering::SeqCst)
    }
}

impl FileSystem for Watched {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn attach(&self, cache: Arc<dyn KernelCache>) {
        *self.cache.lock() = Some(cache);
    }

    fn lookup(&self, request: &Request, parent: Ino, name: Name<'_>) -> Result<Entry> {
        let counter = if LISTING.get() { &self.listed } else { &self.lookups };
        counter.fetch_add(1, Ordering::SeqCst);
        self.lookups_meet.iter().for_each(Meeting::attend);
        self.inner.lookup(request, parent, name)
    }

    fn readdir(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        sink: &mut DirectorySink<'_>,
    ) -> Result<()> {
        self.listings.fetch_add(1, Ordering::SeqCst);
        LISTING.set(true);
        let listed = self.inner.readdir(request, ino, handle, offset, sink);
        LISTING.set(false);
        listed
    }

    fn readlink(&self, request: &Request, ino: Ino) -> Result<OsString> {
        self.links_read.fetch_add(1, Ordering::SeqCst);
        self.inner.readlink(request, ino)
    }

    fn getxattr(&self, request: &Request, ino: Ino, name: &OsStr) -> Result<Vec<u8>> {
        self.capabilities_read.fetch_add((name == "security.capability").into(), Ordering::SeqCst);
        self.inner.getxattr(request, ino, name)
    }

    fn create(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        self.groups.lock().push(request.creation.groups.clone());
        let (entry, opened) = self.inner.create(request, parent, name, mode, flags)?;
        Ok((entry, Opened { direct: self.direct, ..opened }))
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        let opened = self.inner.open(request, ino, mode)?;
        Ok(Opened { direct: self.direct, ..opened })
    }

    fn read(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        self.reads_meet.iter().for_each(Meeting::attend);
        self.inner.read(request, ino, handle, offset, buffer)
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
        self.writes.lock().push(data.len());
        self.inner.write(request, ino, handle, offset, data, options)
    }

    fn copy_file_range(
        &self,
        request: &Request,
        source: (Ino, Handle, u64),
        target: (Ino, Handle, u64),
        length: u64,
    ) -> Result<u64> {
        self.copies.lock().push(length);
        self.inner.copy_file_range(request, source, target, length)
    }
}

/// A point where a request waits, for a limited time, until another one arrives.
#[derive(Default)]
pub struct Meeting {
    present: Mutex<usize>,
    changed: Condvar,
    met: AtomicUsize,
}

impl Meeting {
    pub fn attend(&self) {
        let mut present = self.present.lock();
        *present += 1;
        if *present >= 2 {
            self.met.fetch_add(1, Ordering::SeqCst);
            self.changed.notify_all();
        } else if !self.has_met() {
            self.changed.wait_while_for(&mut present, |_| !self.has_met(), PATIENCE);
        }
        *present -= 1;
    }

    /// Whether two requests were waiting at this point at the same time.
    pub fn has_met(&self) -> bool {
        self.met.load(Ordering::SeqCst) > 0
    }
}
