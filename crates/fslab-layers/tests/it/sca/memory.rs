//! What a file in use keeps in memory is bounded, whatever is done to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_layers::LayerChoice;
use fslab_vfs::testing::client::Client;
use fslab_vfs::{FileSystem, Handle, Ino, MemFs, OpenMode, Request, Result};

const LAYER: &str = "copy:chunk=4KiB,threads=1,cache=0";

/// Bytes of the logical file that one page of the index covers.
const PAGE_COVERS: u64 = 128 * 4096;

/// Counts what is made durable.
#[derive(Default)]
struct Counting {
    inner: MemFs,
    syncs: AtomicU64,
}

impl FileSystem for Counting {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn fsync(&self, request: &Request, ino: Ino, handle: Handle, data_only: bool) -> Result<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        self.inner.fsync(request, ino, handle, data_only)
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
