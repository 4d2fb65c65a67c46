//! Tests that only callers which requested durability wait for the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

use fslab_vfs::{Errno, FileSystem, Handle, Ino, MemFs, OpenMode, Request, Result};
use fslab_vfs_testing::client::Client;
use parking_lot::{Condvar, Mutex};

use super::below::{Below, Failing, random, read_file, text, write_file};

/// A slow disk: syncs or releases block until the gate is opened.
#[derive(Default)]
struct Slow {
    inner: MemFs,
    holds_syncs: AtomicBool,
    holds_releases: AtomicBool,
    /// Name of the thread whose reads block.
    holds_reads_of: Mutex<Option<&'static str>>,
    /// Reads of fewer bytes do not block.
    held_bytes_min: AtomicU64,
    /// Number of calls that pass before a call blocks.
    passes: AtomicU64,
    waiting: AtomicU64,
    gate: Mutex<bool>,
    opened: Condvar,
}

impl Slow {
    fn pass(&self, holds: &AtomicBool) {
        if holds.load(Ordering::SeqCst) {
            self.wait();
        }
    }

    fn wait(&self) {
        let one_less = |left: u64| left.checked_sub(1);
        if self.passes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
            return;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut is_open = self.gate.lock();
        while !*is_open {
            self.opened.wait(&mut is_open);
        }
    }

    /// Waits until some thread is blocked by this disk.
    fn wait_for_a_waiter(&self) {
        let start = Instant::now();
        while self.waiting.load(Ordering::SeqCst) == 0 {
            assert!(start.elapsed() < Duration::from_secs(60), "nothing waits for the disk");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn open_gate(&self) {
        *self.gate.lock() = true;
        self.opened.notify_all();
    }
}

impl FileSystem for Slow {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn fsync(&self, request: &Request, ino: Ino, handle: Handle, data_only: bool) -> Result<()> {
        self.pass(&self.holds_syncs);
        self.inner.fsync(request, ino, handle, data_only)
    }

    fn release(&self, request: &Request, ino: Ino, handle: Handle) -> Result<()> {
        self.pass(&self.holds_releases);
        self.inner.release(request, ino, handle)
    }

    fn read(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let held = *self.holds_reads_of.lock();
        let is_large = buffer.len() as u64 >= self.held_bytes_min.load(Ordering::SeqCst);
        if is_large && held.is_some() && held == std::thread::current().name() {
            self.wait();
        }
        self.inner.read(request, ino, handle, offset, buffer)
    }
}

/// Name of the thread that waits for the disk.
const SLOW: &str = "slow";

fn mounted(layer: &str) -> (Arc<Slow>, Arc<dyn FileSystem>) {
    let below = Arc::new(Slow::default());
    let layer = crate::layer(layer);
    let fs = layer.build(Arc::clone(&below) as Arc<dyn FileSystem>).unwrap();
    (below, fs)
}

/// Runs `slow`, which waits for the disk, and in parallel `quick`, which must not.
fn beside(below: &Slow, slow: impl FnOnce() + Send, quick: impl FnOnce() + Send) {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        Builder::new().name(SLOW.to_owned()).spawn_scoped(scope, slow).unwrap();
        below.wait_for_a_waiter();
        let quick = scope.spawn(|| {
            quick();
            is_done.store(true, Ordering::SeqCst);
        });
        for _ in 0..10_000 {
            if is_done.load(Ordering::SeqCst) || quick.is_finished() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let was_done = is_done.load(Ordering::SeqCst);
        below.open_gate();
        assert!(was_done, "a caller that requested no durability waited for the disk");
    });
}

/// Performs operations of other callers on a file in use and on its name.
fn use_otherwise(fs: &dyn FileSystem, name: &str, expected: &[u8]) {
    let client = Client::new(fs);
    let attr = client.lookup(Ino::ROOT, name).unwrap();
    assert_eq!(client.attr(attr.ino).unwrap().size, expected.len() as u64);
    let file = client.open(attr.ino, OpenMode::empty()).unwrap();
    assert!(file.read(0, expected.len()).unwrap() == expected);
    file.close().unwrap();
    let writer = client.open(attr.ino, OpenMode::READ_WRITE).unwrap();
    writer.close().unwrap();
    client.unlink(Ino::ROOT, name).unwrap();
}

#[test]
fn fsync_does_not_block_other_operations() {
    for codec in ["copy", "gzip", "zstd"] {
        let (below, fs) = mounted(&format!("{codec}:chunk=4KiB"));
        let data = random(3, 200_000);
        write_file(&*fs, "file", &data);
        let client = Client::new(&*fs);
        let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        file.write_all(0, &data[..10]).unwrap();
        below.holds_syncs.store(true, Ordering::SeqCst);
        let slow = || file.fsync(false).unwrap();
        beside(&below, slow, || use_otherwise(&*fs, "file", &data));
        file.close().unwrap();
    }
}

/// A write during an fsync does not wait, and the fsync does not make it durable.
#[test]
fn write_during_an_fsync_neither_waits_nor_becomes_durable() {
    let (below, fs) = mounted("copy:chunk=4KiB");
    let client = Client::new(&*fs);
    let (attr, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::EXCLUSIVE).unwrap();
    file.write_all(0, &text(9000)).unwrap();
    below.holds_syncs.store(true, Ordering::SeqCst);
    let slow = || file.fsync(false).unwrap();
    beside(&below, slow, || file.write_all(0, b"beside").unwrap());
    let syncs = below.waiting.load(Ordering::SeqCst);
    file.fsync(false).unwrap();
    assert!(below.waiting.load(Ordering::SeqCst) > syncs, "taken for durable");
    assert_eq!(&client.contents(attr.ino).unwrap()[..8], b"beside t");
    file.close().unwrap();
}

#[test]
fn packing_does_not_block_other_operations() {
    let (below, fs) = mounted("zstd:chunk=4KiB,garbage=4KiB,pack-after=1ms");
    let data = text(400_000);
    write_file(&*fs, "file", &data);
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    for start in (0..data.len()).step_by(7000) {
        file.write_all(start as u64, &data[start..start + 100]).unwrap();
    }
    below.holds_syncs.store(true, Ordering::SeqCst);
    beside(&below, || file.close().unwrap(), || use_otherwise(&*fs, "file", &data));
    fs.shutdown().unwrap();
}

/// Each run blocks another sync of packing, or of the garbage collection that a writer runs.
#[test]
fn no_caller_waits_for_a_sync_of_packing_or_garbage_collection() {
    for (layer, syncs) in [
        ("zstd:chunk=4KiB,garbage=4KiB,pack-after=1ms", 6),
        ("copy:chunk=4KiB,garbage=4KiB,pack=off", 5),
    ] {
        for passes in 0..syncs {
            let (below, fs) = mounted(layer);
            let data = text(400_000);
            write_file(&*fs, "file", &data);
            let client = Client::new(&*fs);
            let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
            let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
            below.passes.store(passes, Ordering::SeqCst);
            below.holds_syncs.store(true, Ordering::SeqCst);
            let slow = || {
                for round in 0..4 {
                    for start in (0..data.len()).step_by(7000 - round) {
                        let end = data.len().min(start + 100);
                        file.write_all(start as u64, &data[start..end]).unwrap();
                    }
                }
                file.close().unwrap();
            };
            let opened = Mutex::new(None);
            let look = || {
                *opened.lock() = Some(look_at(&*fs, data.len()));
                let client = Client::new(&*fs);
                let reader = client.open(ino, OpenMode::empty()).unwrap();
                assert!(reader.read(0, data.len()).unwrap() == data);
                reader.close().unwrap();
                client.unlink(Ino::ROOT, "file").unwrap();
            };
            beside(&below, slow, look);
            // The file is closed only now, because closing a changed file may free space, which
            // waits for the disk.
            let handle = opened.into_inner().unwrap();
            fs.release(&client.request(), ino, handle).unwrap();
            fs.shutdown().unwrap();
        }
    }
}

/// Uses a large file while another thread reads its index or frames. Returns an open handle.
fn look_at(fs: &dyn FileSystem, size: usize) -> Handle {
    let client = Client::new(fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let writer = fs.open(&client.request(), ino, OpenMode::READ_WRITE).unwrap();
    assert_eq!(client.attr(ino).unwrap().size, size as u64);
    writer.handle
}

/// Runs `slow`, which reads, and in parallel [`look_at`].
fn look_beside(
    below: &Slow,
    slow: impl FnOnce() + Send,
    (fs, ino, size): (&dyn FileSystem, Ino, usize),
) {
    let handle = Mutex::new(None);
    beside(below, slow, || *handle.lock() = Some(look_at(fs, size)));
    *below.holds_reads_of.lock() = None;
    // The file is closed only now, because closing a changed file writes to it.
    let client = Client::new(fs);
    client.subject().release(&client.request(), ino, handle.into_inner().unwrap()).unwrap();
}

/// Packing first reads the whole layout of a file, which takes long for a large file.
#[test]
fn no_caller_waits_while_packing_reads_the_layout_of_a_file() {
    // Commits and garbage collection do not read this file; only packing does. The file has more
    // index pages than are kept in memory (128 pages, each for 512 KiB of content).
    let (below, fs) = mounted("copy:chunk=4KiB,garbage=1GiB,pack-after=1ms");
    let data = text(80 << 20);
    write_file(&*fs, "file", &data);
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    // Keeps the file open while it is packed.
    let reader = client.open(ino, OpenMode::empty()).unwrap();
    let writer = client.open(ino, OpenMode::READ_WRITE).unwrap();
    writer.write_all(0, &data[..40 << 20]).unwrap();
    // After this, no maintenance is due, and the frames to be joined have been read.
    (0..2).for_each(|_| writer.fsync(false).unwrap());
    *below.holds_reads_of.lock() = Some("reclaimer");
    look_beside(&below, || writer.close().unwrap(), (&*fs, ino, data.len()));
    reader.close().unwrap();
    fs.shutdown().unwrap();
}

/// Making the seek table of a large file takes long, because the table lists all frames.
#[test]
fn no_caller_waits_while_a_seek_table_is_made() {
    let (below, fs) = mounted("zstd:chunk=4KiB,pack=off");
    // The content is incompressible, because a table is limited to a fraction of the written bytes.
    let data = random(5, 80 << 20);
    let client = Client::new(&*fs);
    let (attr, writer) = client.create(Ino::ROOT, "file", 0o644, OpenMode::EXCLUSIVE).unwrap();
    for (number, piece) in data.chunks(1 << 20).enumerate() {
        writer.write_all((number as u64) << 20, piece).unwrap();
    }
    writer.fsync(false).unwrap();
    let reader = client.open(attr.ino, OpenMode::empty()).unwrap();
    *below.holds_reads_of.lock() = Some(SLOW);
    let flush = || client.subject().flush(&client.request(), attr.ino, writer.handle).unwrap();
    look_beside(&below, flush, (&*fs, attr.ino, data.len()));
    reader.close().unwrap();
    writer.close().unwrap();
    fs.shutdown().unwrap();
    assert!(read_file(&*fs, "file").unwrap() == data);
}

/// A walk over all frames rebuilds the damaged index. This takes long.
#[test]
fn no_caller_waits_while_an_index_is_rebuilt() {
    let (below, fs) = mounted("copy:chunk=4KiB,cache=0,pack=off");
    let data = text(4 << 20);
    write_file(&*fs, "file", &data);
    fs.shutdown().unwrap();
    let raw = Client::new(&below.inner);
    let ino = raw.lookup(Ino::ROOT, "file").unwrap().ino;
    let page = 1024 + 1024 * (72 + 4096);
    raw.open(ino, OpenMode::READ_WRITE).unwrap().write_all(page + 200, &[0x55; 99]).unwrap();
    let layer = crate::layer("copy:chunk=4KiB,cache=0,pack=off");
    let fs = layer.build(Arc::clone(&below) as Arc<dyn FileSystem>).unwrap();
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let reader = client.open(ino, OpenMode::READ_WRITE).unwrap();
    *below.holds_reads_of.lock() = Some(SLOW);
    // Only the walk reads at least 100,000 bytes at once.
    let read = || assert!(reader.read(0, 4096).unwrap() == data[..4096]);
    below.held_bytes_min.store(100_000, Ordering::SeqCst);
    look_beside(&below, read, (&*fs, ino, data.len()));
    assert!(read_file(&*fs, "file").unwrap() == data);
}

/// The first write to an emptied foreign file makes durable that the file is no longer foreign,
/// before it writes data.
#[test]
fn no_caller_waits_while_a_foreign_mark_is_replaced() {
    let (below, fs) = mounted("copy:chunk=4KiB");
    write_file(&below.inner, "file", &text(5000));
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(4990, b"changed").unwrap();
    file.truncate(0).unwrap();
    below.holds_syncs.store(true, Ordering::SeqCst);
    let look = || {
        let client = Client::new(&*fs);
        assert_eq!(client.attr(ino).unwrap().size, 0);
        client.open(ino, OpenMode::READ_WRITE).unwrap().close().unwrap();
        client.unlink(Ino::ROOT, "file").unwrap();
    };
    beside(&below, || file.write_all(0, b"new").unwrap(), look);
    assert_eq!(file.read(0, 10).unwrap(), b"new");
    file.close().unwrap();
}

/// Only users of the same file wait while it is being closed.
#[test]
fn closing_a_file_does_not_block_users_of_other_files() {
    let (below, fs) = mounted("copy:chunk=4KiB");
    let data = text(5000);
    write_file(&*fs, "one", &data);
    write_file(&*fs, "other", &data);
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "one").unwrap().ino;
    let file = client.open(ino, OpenMode::empty()).unwrap();
    below.holds_releases.store(true, Ordering::SeqCst);
    let client = Client::new(&*fs);
    let look = || {
        let attr = client.lookup(Ino::ROOT, "other").unwrap();
        assert_eq!(client.attr(attr.ino).unwrap().size, 5000);
    };
    beside(&below, || file.close().unwrap(), look);
}

/// Packing holds a reference to the inode. Otherwise the kernel could forget the inode, and the
/// layer could not restore the file's times and capabilities.
#[test]
fn packing_keeps_an_inode_reference() {
    let below = Arc::new(Holding::default());
    let layer = crate::layer("zstd:chunk=4KiB,garbage=4KiB,pack-after=1ms");
    let fs = layer.build(Arc::clone(&below) as Arc<dyn FileSystem>).unwrap();
    let data = text(400_000);
    write_file(&*fs, "file", &data);
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    for start in (0..data.len()).step_by(7000) {
        file.write_all(start as u64, &data[start..start + 100]).unwrap();
    }
    file.close().unwrap();
    while below.syncs.load(Ordering::SeqCst) < 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    fs.shutdown().unwrap();
    assert_eq!(below.unheld_syncs.load(Ordering::SeqCst), 0);
    assert_eq!(below.held.load(Ordering::SeqCst), 0, "held forever");
}

/// A commit that a write makes due runs in the background, so neither this write nor others wait
/// for the disk.
#[test]
fn freeing_space_does_not_block_reads_and_writes() {
    let (below, fs) = mounted("copy:chunk=16KiB,pack-after=1h");
    let data = random(4, 4 << 20);
    write_file(&*fs, "file", &data);
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    below.holds_syncs.store(true, Ordering::SeqCst);
    let is_written = AtomicBool::new(false);
    let slow = || {
        // Twice the dead bytes that are worth a commit.
        file.write_all(0, &data[..2 << 20]).unwrap();
        is_written.store(true, Ordering::SeqCst);
    };
    let quick = || {
        while !is_written.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        file.write_all(0, &data[..1000]).unwrap();
        assert!(file.read(0, data.len()).unwrap() == data);
    };
    beside(&below, slow, quick);
    file.close().unwrap();
}

/// A file system that counts references to inodes, and the syncs with and without a reference.
#[derive(Default)]
struct Holding {
    inner: MemFs,
    held: AtomicU64,
    syncs: AtomicU64,
    unheld_syncs: AtomicU64,
}

impl FileSystem for Holding {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn hold(&self, ino: Ino) -> Result<()> {
        self.held.fetch_add(1, Ordering::SeqCst);
        self.inner.hold(ino)
    }

    fn let_go(&self, ino: Ino) {
        self.held.fetch_sub(1, Ordering::SeqCst);
        self.inner.let_go(ino);
    }

    fn fsync(&self, request: &Request, ino: Ino, handle: Handle, data_only: bool) -> Result<()> {
        if std::thread::current().name() == Some("reclaimer") {
            self.syncs.fetch_add(1, Ordering::SeqCst);
            let is_held = self.held.load(Ordering::SeqCst) > 0;
            self.unheld_syncs.fetch_add(u64::from(!is_held), Ordering::SeqCst);
        }
        self.inner.fsync(request, ino, handle, data_only)
    }
}

/// A write takes effect even if the commit that it triggers fails. Readers see the new bytes, and
/// fsync fails.
#[test]
fn failed_commit_after_a_write_shows_no_old_bytes() {
    let below = Below::new();
    let failing = Failing::over(&below, "copy:chunk=128KiB,pack=off", "");
    let client = Client::new(&*failing.fs);
    let (attr, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::EXCLUSIVE).unwrap();
    file.write_all(0, b"old").unwrap();
    let piece = vec![1; 1 << 20];
    for number in 1..64 {
        file.write_all(number << 20, &piece).unwrap();
    }
    failing.by("fsync error EIO");
    for _ in 0..20 {
        file.write_all(0, b"new").unwrap();
        file.write_all(64 << 20, &piece).unwrap();
    }
    assert_eq!(&client.contents(attr.ino).unwrap()[..3], b"new");
    failing.by("");
    assert_eq!(file.fsync(false).unwrap_err().errno(), Errno::IO);
    // Closing frees space, which needs a sync. After a failed sync, all later syncs fail too.
    assert_eq!(file.close().unwrap_err().errno(), Errno::IO);
}
