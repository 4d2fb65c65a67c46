//! What a file in use keeps in memory, and what is read to open it, is bounded, whatever is done to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_layers::LayerChoice;
use fslab_vfs::testing::client::Client;
use fslab_vfs::{FileSystem, Handle, Ino, MemFs, OpenMode, Request, Result};

const LAYER: &str = "copy:chunk=4KiB,threads=1,cache=0";

/// Bytes of the logical file that one page of the index covers.
const PAGE_COVERS: u64 = 128 * 4096;

/// Counts what is made durable, and bytes that are read.
#[derive(Default)]
struct Counting {
    inner: MemFs,
    syncs: AtomicU64,
    bytes_read: AtomicU64,
}

impl FileSystem for Counting {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn fsync(&self, request: &Request, ino: Ino, handle: Handle, data_only: bool) -> Result<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        self.inner.fsync(request, ino, handle, data_only)
    }

    fn read(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let count = self.inner.read(request, ino, handle, offset, buffer)?;
        self.bytes_read.fetch_add(count as u64, Ordering::SeqCst);
        Ok(count)
    }
}

/// A page of the index that was changed stays in memory until it is written. A few bytes at places
/// far from each other change thousands of pages long before 64 MiB were written.
#[test]
fn changes_far_apart_do_not_pile_up_in_memory() {
    let below = Arc::new(Counting::default());
    let layer: LayerChoice = LAYER.parse().unwrap();
    let fs = layer.build(Arc::clone(&below) as Arc<dyn FileSystem>).unwrap();
    let client = Client::new(&*fs);
    let (_, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::EXCLUSIVE).unwrap();
    let before = below.syncs.load(Ordering::SeqCst);
    let places = |range: std::ops::Range<u64>| range.map(|number| number * PAGE_COVERS);
    for place in places(0..3000) {
        file.write_all(place, &place.to_le_bytes()).unwrap();
    }
    assert_eq!(below.syncs.load(Ordering::SeqCst), before, "so few can wait");
    for place in places(3000..9000) {
        file.write_all(place, &place.to_le_bytes()).unwrap();
    }
    assert!(below.syncs.load(Ordering::SeqCst) > before, "9000 changed pages stay in memory");
    file.close().unwrap();
    // A kill: the next finds everything.
    let again = layer.build(below as Arc<dyn FileSystem>).unwrap();
    let client = Client::new(&*again);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::empty()).unwrap();
    for place in places(0..9000) {
        assert_eq!(file.read(place, 8).unwrap(), place.to_le_bytes(), "at {place}");
    }
    file.close().unwrap();
}

/// A line of a log takes a frame, and who appends the next one opens the file anew.
#[test]
fn a_log_of_many_lines_is_opened_without_reading_all_of_them() {
    const LINES: u64 = 6000;
    const LINE: &[u8] = b"ten bytes\n";
    let below = Arc::new(Counting::default());
    let layer: LayerChoice = "copy:threads=1,cache=0,pack=off".parse().unwrap();
    let fs = layer.build(Arc::clone(&below) as Arc<dyn FileSystem>).unwrap();
    let client = Client::new(&*fs);
    let (log, file) = client.create(Ino::ROOT, "log", 0o644, OpenMode::EXCLUSIVE).unwrap();
    file.close().unwrap();
    let before = below.syncs.load(Ordering::SeqCst);
    let mut most = 0;
    for line in 0..LINES {
        let read = below.bytes_read.swap(0, Ordering::SeqCst);
        most = most.max(read);
        let file = client.open(log.ino, OpenMode::READ_WRITE).unwrap();
        file.write_all(line * LINE.len() as u64, LINE).unwrap();
        file.close().unwrap();
    }
    // 1024 frames of 82 bytes, and a checkpoint with up to 768 pieces, looked at and read; of all lines
    // it would be half a megabyte.
    assert!(most < 256_000, "{most} bytes are read to open the log");
    let syncs = below.syncs.load(Ordering::SeqCst) - before;
    assert!(syncs <= 3 * LINES / 1024, "{syncs} times to the disk for {LINES} lines");
    let file = client.open(log.ino, OpenMode::empty()).unwrap();
    assert_eq!(file.read(LINE.len() as u64 * (LINES - 1), 20).unwrap(), LINE);
    file.close().unwrap();
}
