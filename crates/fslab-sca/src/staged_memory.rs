//! Memory of the staged chunks of a mount: how much they take, and buffers that are used again.
//!
//! The allocator gets each new buffer of a chunk from the kernel, because the buffer is large. The
//! kernel clears it page by page, which takes longer than filling it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Number of bytes in memory above which no further chunk is staged in a mount.
pub const BYTES_MAX: usize = 8 << 20;

/// Maximum number of bytes in buffers that are kept to be used again.
const UNUSED_BYTES_MAX: usize = 2 << 20;

/// The memory that staged chunks use in all files of a mount.
#[derive(Default)]
pub struct StagedMemory {
    bytes: AtomicUsize,
    unused: Mutex<Vec<Vec<u8>>>,
}

impl StagedMemory {
    /// Whether a further chunk may be staged.
    pub fn has_room(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) < BYTES_MAX
    }

    /// Returns an empty buffer with room for `length` bytes.
    pub fn buffer(self: &Arc<Self>, length: usize) -> Buffer {
        let unused = self.unused.lock().pop();
        // The buffer may come from a file with larger chunks.
        let mut bytes = unused.filter(|bytes| bytes.capacity() <= 2 * length).unwrap_or_default();
        bytes.reserve_exact(length);
        Buffer { counted: self.count(bytes.capacity()), bytes }
    }

    /// Counts bytes until the result is dropped.
    pub fn count(self: &Arc<Self>, bytes: usize) -> Counted {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Counted { bytes, memory: Arc::clone(self) }
    }

    /// Number of bytes in use.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn take_back(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        let mut unused = self.unused.lock();
        let kept: usize = unused.iter().map(Vec::capacity).sum();
        if kept + bytes.capacity() <= UNUSED_BYTES_MAX {
            unused.push(bytes);
        }
    }
}

/// A buffer that is used again after it is dropped.
pub struct Buffer {
    pub bytes: Vec<u8>,
    counted: Counted,
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.counted.memory.take_back(std::mem::take(&mut self.bytes));
    }
}

/// Bytes that count as memory of staged chunks.
pub struct Counted {
    bytes: usize,
    memory: Arc<StagedMemory>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.memory.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_counted_until_they_are_dropped_and_then_used_again() {
        let memory = Arc::new(StagedMemory::default());
        let mut buffers: Vec<Buffer> = (0..7).map(|_| memory.buffer(1 << 20)).collect();
        assert!(memory.has_room());
        let counted = memory.count(1 << 20);
        assert!(!memory.has_room());
        drop(counted);
        let address = buffers.pop().map(|buffer| buffer.as_ptr());
        let again = memory.buffer(1 << 20);
        assert_eq!((Some(again.as_ptr()), again.len()), (address, 0));
        drop((buffers, again));
        assert_eq!(memory.bytes(), 0);
        let kept = memory.unused.lock().len();
        assert_eq!(kept, UNUSED_BYTES_MAX >> 20, "buffers that are kept");
    }
}
