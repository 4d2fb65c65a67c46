//! Tests that each operation uses bounded memory for a file in use, and opens a file with a bounded
//! number of reads.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_vfs::{
    Call, Cancellation, Entry, Errno, FallocateMode, FileSystem, Handle, Ino, Intercepted, MemFs,
    Name, OpenMode, Opened, Operation, Outcome, Request, Result, SeekTo, Watch, WriteOptions,
};
use fslab_vfs_testing::client::Client;
use parking_lot::Mutex;

use super::below::{read_file, write_file};

const LAYER: &str = "copy:chunk=4KiB,threads=1,cache=0";

/// Bytes of the logical file that one page of the index covers.
const PAGE_COVERS: u64 = 128 * 4096;

/// A file system that counts syncs and writes, and the reads at each offset.
#[derive(Default)]
struct Counting {
    inner: MemFs,
    syncs: AtomicU64,
    writes: AtomicU64,
    bytes_read: AtomicU64,
    reads: Mutex<HashMap<u64, u64>>,
    /// Offsets that can't be read.
    bad: Mutex<Range<u64>>,
}

impl FileSystem for Counting {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn fsync(&self, request: &Request, ino: Ino, handle: Handle, data_only: bool) -> Result<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        self.inner.fsync(request, ino, handle, data_only)
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
        self.writes.fetch_add(1, Ordering::SeqCst);
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
        *self.reads.lock().entry(offset).or_default() += 1;
        let bad = self.bad.lock().clone();
        if offset < bad.end && bad.start < offset + buffer.len() as u64 {
            return Err(Errno::IO.into());
        }
        let count = self.inner.read(request, ino, handle, offset, buffer)?;
        self.bytes_read.fetch_add(count as u64, Ordering::SeqCst);
        Ok(count)
    }
}

/// A changed index page is kept in memory until it is written. A few bytes at distant offsets
/// change thousands of pages long before 64 MiB are written.
#[test]
fn scattered_writes_keep_the_index_in_memory_bounded() {
    let below = Arc::new(Counting::default());
    let layer = crate::layer(LAYER);
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
    // If the daemon is killed, the next mount finds everything.
    let again = layer.build(below as Arc<dyn FileSystem>).unwrap();
    let client = Client::new(&*again);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::empty()).unwrap();
    for place in places(0..9000) {
        assert_eq!(file.read(place, 8).unwrap(), place.to_le_bytes(), "at {place}");
    }
    file.close().unwrap();
}

/// The files have different numbers of chunks. One file has as many chunks as a file of 8 GiB with
/// the default chunk size.
#[test]
fn opening_a_closed_file_takes_at_most_eight_reads() {
    for (layer, size) in [
        ("copy:chunk=128KiB", 60 << 20),
        ("lz4:chunk=4KiB", 256 << 20),
        ("zstd:chunk=64KiB", 100_000),
        ("gzip:chunk=4KiB", 150 << 10),
    ] {
        for is_mounted_anew in [false, true] {
            let below = Arc::new(Counting::default());
            let layer = crate::layer(&format!("{layer},pack=off"));
            let mount = || layer.build(Arc::clone(&below) as Arc<dyn FileSystem>).unwrap();
            let mut fs = mount();
            write_zeros(&*fs, size);
            if is_mounted_anew {
                fs.shutdown().unwrap();
                fs = mount();
            }
            let client = Client::new(&*fs);
            let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
            below.reads.lock().clear();
            let file = client.open(ino, OpenMode::empty()).unwrap();
            let to_open: u64 = below.reads.lock().values().sum();
            assert!(to_open <= 8, "{layer:?}, {size} bytes, {is_mounted_anew}: {to_open} reads");
            assert_eq!(file.read(size - 10, 10).unwrap(), [7; 10]);
            file.close().unwrap();
            assert_eq!(below.syncs.load(Ordering::SeqCst), 0, "closing waits for the disk");
        }
    }
}

fn write_zeros(fs: &dyn FileSystem, size: u64) {
    let client = Client::new(fs);
    let (_, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::EXCLUSIVE).unwrap();
    let piece = vec![7; 1 << 20];
    for start in (0..size).step_by(piece.len()) {
        let length = (size - start).min(piece.len() as u64) as usize;
        file.write_all(start, &piece[..length]).unwrap();
    }
    file.close().unwrap();
}

/// If the frame of a chunk and the index are damaged, the chunk can't be read. The whole file is
/// searched for it once, not for each reader.
#[test]
fn unrecoverable_chunk_is_searched_for_only_once() {
    let below = Arc::new(Counting::default());
    let layer = crate::layer("copy:chunk=4KiB,threads=1,cache=0,pack=off");
    let fs = layer.build(Arc::clone(&below) as Arc<dyn FileSystem>).unwrap();
    write_zeros(&*fs, 4 << 20);
    fs.shutdown().unwrap();
    let raw = Client::new(&below.inner);
    let ino = raw.lookup(Ino::ROOT, "file").unwrap().ino;
    let mut bytes = raw.contents(ino).unwrap();
    let header_bytes = 72;
    let frame = |chunk: usize| 1024 + chunk * (header_bytes + 4096);
    // Only the root page of the index and the checkpoint after it remain intact.
    let pages = frame(1024)..bytes.len() - 424;
    bytes[pages].iter_mut().step_by(64).for_each(|byte| *byte ^= 0xff);
    let of_a_frame = frame(900) + 8..frame(900) + 40;
    bytes[of_a_frame].iter_mut().for_each(|byte| *byte ^= 0x55);
    let file = raw.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, &bytes).unwrap();
    file.close().unwrap();
    let fs = layer.build(Arc::clone(&below) as Arc<dyn FileSystem>).unwrap();
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::empty()).unwrap();
    let mut reads = Vec::new();
    for _ in 0..3 {
        below.bytes_read.store(0, Ordering::SeqCst);
        file.read(950 * 4096, 10).unwrap_err();
        reads.push(below.bytes_read.load(Ordering::SeqCst));
    }
    assert!(reads[0] > 1 << 20, "nothing was searched: {reads:?}");
    assert!(reads[1] < 100_000 && reads[2] < 100_000, "bytes read by each: {reads:?}");
}

/// Makes a file whose walk over the frames ends at a sector that can't be read.
fn with_a_bad_sector(below: &Arc<Counting>) -> Arc<dyn FileSystem> {
    let layer = crate::layer("copy:chunk=4KiB,threads=1,cache=0,pack=off");
    let mount = || layer.build(Arc::clone(below) as Arc<dyn FileSystem>).unwrap();
    let fs = mount();
    write_zeros(&*fs, 4 << 20);
    fs.shutdown().unwrap();
    // The first index page follows the last of 1024 chunks.
    let page = 1024 + 1024 * (72 + 4096);
    *below.bad.lock() = page..page + 512;
    mount()
}

#[test]
fn search_that_fails_with_a_disk_error_is_not_repeated() {
    let below = Arc::new(Counting::default());
    let fs = with_a_bad_sector(&below);
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::empty()).unwrap();
    let reads = [(); 3].map(|()| {
        below.bytes_read.store(0, Ordering::SeqCst);
        file.read(0, 10).unwrap_err();
        below.bytes_read.load(Ordering::SeqCst)
    });
    assert!(reads[0] > 1 << 20, "nothing was searched: {reads:?}");
    assert!(reads[1] < 100_000 && reads[2] < 100_000, "bytes read by each: {reads:?}");
}

/// A program such as `cat` opens the damaged file again for each read. So the result of the search
/// must outlast a close.
#[test]
fn a_failed_search_is_remembered_when_the_file_is_opened_again() {
    let below = Arc::new(Counting::default());
    let fs = with_a_bad_sector(&below);
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let read = || {
        below.bytes_read.store(0, Ordering::SeqCst);
        let file = client.open(ino, OpenMode::empty()).unwrap();
        file.read(0, 10).unwrap_err();
        file.close().unwrap();
        below.bytes_read.load(Ordering::SeqCst)
    };
    let reads = [read(), read(), read()];
    assert!(reads[0] > 1 << 20, "nothing was searched: {reads:?}");
    assert!(reads[1] < 100_000 && reads[2] < 100_000, "bytes read by each: {reads:?}");
    // A changed file is searched again.
    *below.bad.lock() = 0..0;
    let writer = client.open(ino, OpenMode::READ_WRITE).unwrap();
    writer.write_all(4 << 20, b"more").unwrap();
    writer.close().unwrap();
    assert_eq!(read_file(&*fs, "file").unwrap().len(), (4 << 20) + 4);
}

/// A signal to the reader ends its search of a large file; the next reader repeats the search.
#[test]
fn a_search_ends_when_its_reader_is_signalled() {
    let below = Arc::new(Counting::default());
    let fs = with_a_bad_sector(&below);
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::empty()).unwrap();
    let signalled = Cancellation::new(Arc::new(AtomicU64::new(1)), 1);
    let request = Request { cancellation: signalled, ..client.request() };
    below.bytes_read.store(0, Ordering::SeqCst);
    let answer = fs.read(&request, ino, file.handle, 0, &mut [0; 10]);
    assert_eq!(answer.unwrap_err().errno(), Errno::INTR);
    assert!(below.bytes_read.swap(0, Ordering::SeqCst) < 1 << 20, "all of it was searched");
    assert_eq!(file.read(0, 10).unwrap_err().errno(), Errno::IO);
    assert!(below.bytes_read.load(Ordering::SeqCst) > 1 << 20, "taken for a failed search");
}

/// Each line of the log is a separate frame, and the program opens the file again for each line.
#[test]
fn a_log_of_many_lines_is_opened_without_reading_all_of_them() {
    const LINES: u64 = 6000;
    const LINE: &[u8] = b"ten bytes\n";
    let below = Arc::new(Counting::default());
    let layer = crate::layer("copy:threads=1,cache=0,pack=off");
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
    // An open reads at most 256 frames of 82 bytes, and a checkpoint with up to 768 pieces. Reading
    // all lines would take half a megabyte.
    assert!(most < 160_000, "{most} bytes are read to open the log");
    let syncs = below.syncs.load(Ordering::SeqCst) - before;
    assert_eq!(syncs, 0, "times to the disk for {LINES} lines");
    let file = client.open(log.ino, OpenMode::empty()).unwrap();
    assert_eq!(file.read(LINE.len() as u64 * (LINES - 1), 20).unwrap(), LINE);
    file.close().unwrap();
}

/// A range with thousands of index pages is emptied in parts; pages are written in between.
#[test]
fn punching_and_truncating_keep_the_index_in_memory_bounded() {
    let below = Arc::new(Counting::default());
    let layer = crate::layer(LAYER);
    let fs = layer.build(Arc::clone(&below) as Arc<dyn FileSystem>).unwrap();
    let client = Client::new(&*fs);
    let (_, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::EXCLUSIVE).unwrap();
    let last = 9999 * PAGE_COVERS;
    let fill = || {
        for number in 0..10_000 {
            file.write_all(number * PAGE_COVERS, b"something").unwrap();
        }
        file.fsync(false).unwrap();
        below.writes.load(Ordering::SeqCst)
    };
    let before = fill();
    let punching = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    file.fallocate(PAGE_COVERS, last - PAGE_COVERS, punching).unwrap();
    assert!(below.writes.load(Ordering::SeqCst) > before + 2, "punched at once");
    assert_eq!(file.seek(10, SeekTo::Data).unwrap(), last);
    assert_eq!(file.read(last, 20).unwrap(), b"something");
    let before = fill();
    file.truncate(PAGE_COVERS + 4).unwrap();
    assert!(below.writes.load(Ordering::SeqCst) > before + 2, "cut at once");
    file.close().unwrap();
    // After a kill, the next mount finds the same.
    let again = layer.build(below as Arc<dyn FileSystem>).unwrap();
    let mut expected = vec![0; PAGE_COVERS as usize + 4];
    expected[..9].copy_from_slice(b"something");
    expected[PAGE_COVERS as usize..].copy_from_slice(b"some");
    assert!(read_file(&*again, "file").unwrap() == expected);
}

/// A search for a hole in a file without holes visits every index page. Pages are dropped during
/// the search, so the upper ones are read more than once.
#[test]
fn seek_hole_does_not_keep_index_pages_in_memory() {
    let below = Arc::new(Counting::default());
    let layer = crate::layer("lz4:chunk=4KiB,threads=1,cache=0");
    let fs = layer.build(Arc::clone(&below) as Arc<dyn FileSystem>).unwrap();
    let size = 200 * PAGE_COVERS;
    write_file(&*fs, "file", &vec![7; size as usize]);
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, b"to be synced").unwrap();
    file.fsync(false).unwrap();
    file.close().unwrap();
    fs.shutdown().unwrap();
    let fs = layer.build(Arc::clone(&below) as Arc<dyn FileSystem>).unwrap();
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::empty()).unwrap();
    below.reads.lock().clear();
    assert_eq!(file.seek(0, SeekTo::Hole).unwrap(), size);
    let most = below.reads.lock().values().copied().max();
    assert!(most > Some(1), "every page was read once, and kept");
    file.close().unwrap();
}

/// An observer that counts calls.
struct Calls(Arc<AtomicU64>);

impl Watch for Calls {
    type Begun = ();

    fn begin(&self, call: &Call<'_>) {
        self.0.fetch_add(u64::from(call.operation() != Operation::Forget), Ordering::SeqCst);
    }

    fn end(&self, (): (), _: Option<&Request>, _: &Call<'_>, _: &Outcome<'_>) {}

    fn opened(&self, _: &mut Opened) {}
}

/// Returns the number of lower calls that a layer makes to create a file, write two bytes and close
/// it, as a kernel requests it.
fn calls_to_create(layer: &str) -> u64 {
    let count = Arc::new(AtomicU64::new(0));
    let interceptor = Calls(Arc::clone(&count));
    let below = Intercepted { inner: Arc::new(MemFs::default()), interceptor };
    let fs = crate::layer(layer).build(Arc::new(below)).unwrap();
    let client = Client::new(&*fs);
    count.store(0, Ordering::SeqCst);
    let request = client.request();
    let name = Name::new("file".as_ref()).unwrap();
    let mode = OpenMode::READ_WRITE | OpenMode::EXCLUSIVE;
    let made = fs.create(&request, Ino::ROOT, name, 0o644, mode);
    let (Entry { attr, .. }, Opened { handle, .. }) = made.unwrap();
    fs.write(&request, attr.ino, handle, 0, b"a\n", WriteOptions::default()).unwrap();
    // The layer `null` does not implement flush.
    if layer != "null" {
        fs.flush(&request, attr.ino, handle).unwrap();
    }
    fs.release(&request, attr.ino, handle).unwrap();
    count.load(Ordering::SeqCst)
}

#[test]
fn a_small_file_takes_at_most_twice_the_calls_of_null() {
    let null = calls_to_create("null");
    for codec in super::below::CODECS {
        let calls = calls_to_create(codec);
        assert!(calls <= 2 * null, "{codec}: {calls} calls, null {null}");
    }
}
