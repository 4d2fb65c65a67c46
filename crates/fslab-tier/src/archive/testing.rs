//! An archive in memory with faults on demand, to test how the tier handles them.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::{
    Archive, Container, ContainerKind, Deletion, Later, Proof, Retained, Staged, Upload, cold_error,
};
use crate::id::Id;
use crate::stored::format::{HeadRecord, KIND_BUNDLE};

type Containers = BTreeMap<Container, Arc<Vec<u8>>>;

/// An archive in memory, with faults.
#[derive(Debug, Default)]
pub struct MemoryArchive {
    id: Id,
    label: String,
    containers: Arc<Mutex<Containers>>,
    /// The container that was written last.
    last: Arc<Mutex<Option<Container>>>,
    faults: Arc<Faults>,
}

/// The faults of a [`MemoryArchive`], which tests switch on and off.
#[derive(Debug, Default)]
pub struct Faults {
    /// Reads wait until this is false.
    pub stalled: Mutex<bool>,
    resumed: Condvar,
    /// All containers are in cold storage.
    pub is_cold: AtomicBool,
    /// Containers can be read as soon as one of them is to be staged.
    pub stages_at_once: AtomicBool,
    /// The archive refuses to stage containers.
    pub stages_nothing: AtomicBool,
    /// The containers that were to be staged, once for each call.
    pub staged: Mutex<Vec<Container>>,
    /// Number of reads that wait for the end of a stall or of the latency.
    pub blocked: AtomicU64,
    /// Reads and stagings fail because the archive is unavailable.
    pub gone: AtomicBool,
    /// Reads fail with EIO.
    pub reads_fail: AtomicBool,
    /// Writes fail with ENOSPC.
    pub full: AtomicBool,
    /// Each read returns one flipped bit.
    pub flips: AtomicBool,
    /// Deletions succeed but delete nothing.
    pub keeps: AtomicBool,
    /// Deleted containers are retained: they are hidden, but their bytes are kept.
    pub retains: AtomicBool,
    /// The numbers of retained containers and bytes.
    retained: Mutex<(u64, u64)>,
    /// Uploads are proved by a checksum.
    pub has_checksums: AtomicBool,
    /// Reads return half of the requested bytes.
    pub short: AtomicBool,
    /// [`MemoryArchive::fork`] loses the last container if it is a bundle.
    pub hasty: AtomicBool,
    /// Containers are listed from the last to the first.
    pub backwards: AtomicBool,
    /// Milliseconds that each read takes.
    pub latency_ms: AtomicU64,
    /// Reads so far.
    pub reads: AtomicU64,
    /// Bytes read so far.
    pub bytes_read: AtomicU64,
}

impl Faults {
    /// Ends a stall.
    pub fn resume(&self) {
        *self.stalled.lock() = false;
        self.resumed.notify_all();
    }

    fn fail_if_gone(&self) -> io::Result<()> {
        let is_gone = self.gone.load(Ordering::SeqCst);
        if is_gone { Err(io::ErrorKind::NotConnected.into()) } else { Ok(()) }
    }

    fn meet(&self) -> io::Result<()> {
        let mut stalled = self.stalled.lock();
        self.blocked.fetch_add(1, Ordering::SeqCst);
        while *stalled {
            self.resumed.wait(&mut stalled);
        }
        drop(stalled);
        std::thread::sleep(Duration::from_millis(self.latency_ms.load(Ordering::SeqCst)));
        self.blocked.fetch_sub(1, Ordering::SeqCst);
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.fail_if_gone()?;
        if self.reads_fail.load(Ordering::SeqCst) {
            return Err(rustix::io::Errno::IO.into());
        }
        if self.is_cold.load(Ordering::SeqCst) {
            return Err(cold_error("the container is in cold storage"));
        }
        Ok(())
    }
}

impl MemoryArchive {
    /// Makes an empty archive.
    #[must_use]
    pub fn new(id: Id, label: &str) -> Self {
        Self { id, label: label.to_owned(), ..Self::default() }
    }

    /// Returns the faults.
    #[must_use]
    pub fn faults(&self) -> Arc<Faults> {
        Arc::clone(&self.faults)
    }

    /// Returns an independent copy without faults, as found after a crash.
    #[must_use]
    pub fn fork(&self) -> Self {
        let mut containers = self.containers.lock().clone();
        let last = self.last.lock().filter(|_| self.faults.hasty.load(Ordering::SeqCst));
        if let Some(last) = last.filter(|last| containers.get(last).is_some_and(|of| is_bundle(of)))
        {
            containers.remove(&last);
        }
        let containers = Arc::new(Mutex::new(containers));
        Self { id: self.id, label: self.label.clone(), containers, ..Self::default() }
    }

    /// Stores a container with these bytes.
    pub fn put(&self, container: Container, bytes: Vec<u8>) {
        self.containers.lock().insert(container, Arc::new(bytes));
    }

    /// Returns the number of containers.
    #[must_use]
    pub fn containers(&self) -> usize {
        self.containers.lock().len()
    }

    /// Changes a byte of a container with files.
    pub fn damage_at(&self, container: Id, offset: u64) {
        self.flip((ContainerKind::Files, container), offset, 0x10);
    }

    /// Flips the bits of a mask in a byte of a container.
    pub fn flip(&self, container: Container, offset: u64, mask: u8) {
        if let Some(bytes) = self.containers.lock().get_mut(&container) {
            Arc::make_mut(bytes)[offset as usize] ^= mask;
        }
    }

    /// In every container, changes the byte that is `from_end` bytes before the container's end.
    pub fn damage(&self, from_end: usize) {
        for bytes in self.containers.lock().values_mut() {
            let bytes = Arc::make_mut(bytes);
            if let Some(index) = bytes.len().checked_sub(from_end) {
                bytes[index] ^= 0x10;
            }
        }
    }

    fn get(&self, container: Container) -> io::Result<Arc<Vec<u8>>> {
        let containers = self.containers.lock();
        containers.get(&container).cloned().ok_or(io::ErrorKind::NotFound.into())
    }
}

impl Archive for MemoryArchive {
    fn id(&self) -> Id {
        self.id
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn begin(&self, container: Container) -> io::Result<Box<dyn Upload>> {
        let (containers, faults) = (Arc::clone(&self.containers), Arc::clone(&self.faults));
        let (key, last) = (container, Arc::clone(&self.last));
        Ok(Box::new(MemoryUpload { key, bytes: Vec::new(), containers, last, faults }))
    }

    fn read(&self, container: Container, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.faults.meet()?;
        let bytes = self.get(container)?;
        let start = usize::try_from(offset).map_or(bytes.len(), |offset| offset.min(bytes.len()));
        let wanted = if self.faults.short.load(Ordering::SeqCst) {
            buffer.len().div_ceil(2)
        } else {
            buffer.len()
        };
        let length = wanted.min(bytes.len() - start);
        buffer[..length].copy_from_slice(&bytes[start..start + length]);
        if self.faults.flips.load(Ordering::SeqCst) && length > 0 {
            buffer[length / 2] ^= 4;
        }
        self.faults.bytes_read.fetch_add(length as u64, Ordering::SeqCst);
        Ok(length)
    }

    fn stage(&self, container: Container) -> io::Result<Staged> {
        self.faults.fail_if_gone()?;
        self.faults.staged.lock().push(container);
        if self.faults.stages_nothing.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if self.faults.stages_at_once.load(Ordering::SeqCst) {
            self.faults.is_cold.store(false, Ordering::SeqCst);
        }
        if !self.faults.is_cold.load(Ordering::SeqCst) {
            return Ok(Staged::Ready);
        }
        let reason = "the archive is restoring it".to_owned();
        Ok(Staged::Later(Later { reason, expected: Some(1_900_000_000) }))
    }

    fn length(&self, container: Container) -> io::Result<u64> {
        Ok(self.get(container)?.len() as u64)
    }

    fn list(&self, kind: ContainerKind, visit: &mut dyn FnMut(Id, u64)) -> io::Result<()> {
        let containers = self.containers.lock().clone();
        let wanted = containers.iter().filter(|((found, _), _)| *found == kind);
        let mut wanted: Vec<_> = wanted.map(|((_, id), bytes)| (*id, bytes.len() as u64)).collect();
        if self.faults.backwards.load(Ordering::SeqCst) {
            wanted.reverse();
        }
        wanted.into_iter().for_each(|(id, length)| visit(id, length));
        Ok(())
    }

    fn delete(&self, container: Container) -> io::Result<Deletion> {
        if self.faults.keeps.load(Ordering::SeqCst) {
            return Ok(Deletion::Done);
        }
        let deleted = self.containers.lock().remove(&container);
        let Some(deleted) = deleted.filter(|_| self.faults.retains.load(Ordering::SeqCst)) else {
            return Ok(Deletion::Done);
        };
        let mut retained = self.faults.retained.lock();
        *retained = (retained.0 + 1, retained.1 + deleted.len() as u64);
        Ok(Deletion::Retained)
    }

    fn retained(&self) -> Option<Retained> {
        let (objects, bytes) = *self.faults.retained.lock();
        let reason = "the test retains them".to_owned();
        (objects > 0).then_some(Retained { objects, bytes, is_partial: false, reason })
    }

    /// Deletes the retained containers, if retention has ended.
    fn retry_deletions(&self) -> io::Result<()> {
        if !self.faults.retains.load(Ordering::SeqCst) {
            *self.faults.retained.lock() = (0, 0);
        }
        Ok(())
    }

    fn proof(&self) -> Proof {
        match self.faults.has_checksums.load(Ordering::SeqCst) {
            true => Proof::Checksum,
            false => Proof::ReadBack,
        }
    }
}

struct MemoryUpload {
    key: Container,
    bytes: Vec<u8>,
    containers: Arc<Mutex<Containers>>,
    last: Arc<Mutex<Option<Container>>>,
    faults: Arc<Faults>,
}

impl Upload for MemoryUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.faults.full.load(Ordering::SeqCst) {
            return Err(rustix::io::Errno::NOSPC.into());
        }
        self.bytes.extend(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> io::Result<Proof> {
        self.containers.lock().insert(self.key, Arc::new(self.bytes));
        *self.last.lock() = Some(self.key);
        match self.faults.has_checksums.load(Ordering::SeqCst) {
            true => Ok(Proof::Checksum),
            false => Ok(Proof::ReadBack),
        }
    }
}

fn is_bundle(container: &[u8]) -> bool {
    container.get(std::mem::offset_of!(HeadRecord, kind)) == Some(&KIND_BUNDLE)
}
