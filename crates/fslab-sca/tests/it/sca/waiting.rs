//! Blocking: only callers that asked for durability wait for the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fslab_vfs::{Errno, FileSystem, Handle, Ino, MemFs, OpenMode, Request, Result};
use fslab_vfs_testing::client::Client;
use parking_lot::{Condvar, Mutex};

use super::below::{Below, Failing, random, text, write_file};

/// A slow disk: syncs or releases block until the gate is opened.
#[derive(Default)]
struct Slow {
    inner: MemFs,
    holds_syncs: AtomicBool,
    holds_releases: AtomicBool,
    waiting: AtomicU64,
    gate: Mutex<bool>,
    opened: Condvar,
}

impl Slow {
    fn pass(&self, holds: &AtomicBool) {
        if !holds.load(Ordering::SeqCst) {
            return;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut is_open = self.gate.lock();
        while !*is_open {
            self.opened.wait(&mut is_open);
        }
    }

    /// Waits until a thread waits for the disk.
    fn wait_for_a_waiter(&self) {
        while self.waiting.load(Ordering::SeqCst) == 0 {
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
}

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
        scope.spawn(slow);
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
        assert!(was_done, "something waited for the disk that did not ask for it");
    });
}

/// Operations of other callers on a file in use and on its name.
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
fn nobody_waits_for_the_fsync_of_another() {
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

/// A write during an fsync neither waits nor counts as durable by it.
#[test]
fn a_write_goes_on_beside_an_fsync() {
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
fn nobody_waits_for_packing() {
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

/// Only users of the same file wait for its closing.
#[test]
fn nobody_waits_for_another_file_to_be_closed() {
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

/// When the kernel forgets an inode, the layer loses it, and with it the file's times and
/// capabilities that packing restores.
#[test]
fn packing_holds_the_inode() {
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
    assert_eq!(below.held.load(Ordering::SeqCst), 0, "held for ever");
}

/// A commit that a write makes due runs in the background: neither this write nor others wait for
/// the disk.
#[test]
fn nobody_waits_for_space_to_be_given_back() {
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

/// Counts how often an inode is held, and the syncs with and without holding it.
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

/// A write takes effect although the commit that it made due fails. Readers see it, and fsync
/// fails.
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
    // Closing would free space, which needs a sync.
    assert_eq!(file.close().unwrap_err().errno(), Errno::IO);
}
