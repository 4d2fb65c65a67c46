//! Tests the kernel's caches, and the notifications that invalidate them.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fslab_fuse::MountOptions;
use fslab_sys::io_ring::{Direction, Ring};
use fslab_vfs::{
    FileSystem, Handle, Ino, KernelCache, MemFs, Name, OpenMode, Opened, Request, Result,
    WriteOptions,
};
use fslab_vfs_testing::skip::skip;
use parking_lot::Mutex;
use rustix::fs::SeekFrom;

use crate::support::{Mounted, believing, find, make, rewrite, root, soon};

/// A memory file system. The test uses its `cache` to invalidate the kernel's cached data.
#[derive(Default)]
struct Told {
    inner: MemFs,
    cache: Mutex<Option<Arc<dyn KernelCache>>>,
}

impl FileSystem for Told {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn attach(&self, cache: Arc<dyn KernelCache>) {
        *self.cache.lock() = Some(cache);
    }
}

#[test]
fn invalidation_makes_changes_behind_the_mount_visible() {
    let told = Arc::new(Told::default());
    let test = "caching::invalidation_makes_changes_behind_the_mount_visible";
    let shared: Arc<dyn FileSystem> = told.clone();
    let Some(mounted) = Mounted::new(test, shared, &believing()) else { return };
    let path = mounted.path().join("file");
    fs::write(&path, "before").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "before");

    let ino = find(&told.inner, "file");
    rewrite(&told.inner, ino, b"behind").unwrap();
    let name = Name::new("file".as_ref()).unwrap();
    let new_name = Name::new("moved".as_ref()).unwrap();
    let cache = told.cache.lock().clone().unwrap();
    cache.invalidate_inode(ino);
    soon("the new bytes", || fs::read_to_string(&path).unwrap() == "behind");

    let mode = fslab_vfs::RenameMode::empty();
    told.inner.rename(&root(), Ino::ROOT, name, Ino::ROOT, new_name, mode).unwrap();
    assert!(path.exists(), "believed for an hour");
    cache.invalidate_entry(Ino::ROOT, name.as_os_str());
    soon("the name was removed", || !path.exists());
    cache.invalidate_entry(Ino::ROOT, "never-known".as_ref());
    assert_eq!(fs::read_to_string(mounted.path().join("moved")).unwrap(), "behind");
    mounted.end();
}

/// A file system in memory that keeps pages cached when a file is opened again, and counts reads.
#[derive(Default)]
struct Reread {
    inner: MemFs,
    reads: AtomicUsize,
}

impl FileSystem for Reread {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        Ok(Opened { keep_cache: true, ..self.inner.open(request, ino, mode)? })
    }

    fn read(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.inner.read(request, ino, handle, offset, buffer)
    }
}

/// A write through the mount changes the modification time. Unless the mount is exclusive, the
/// kernel treats this as a possible change by another program, and drops the written pages.
#[test]
fn written_pages_remain_cached_only_if_the_mount_is_exclusive() {
    let test = "caching::written_pages_remain_cached_only_if_the_mount_is_exclusive";
    for exclusive in [true, false] {
        let reread = Arc::new(Reread::default());
        let options = MountOptions { exclusive, ..MountOptions::default() };
        let shared: Arc<dyn FileSystem> = reread.clone();
        let Some(mounted) = Mounted::new(test, shared, &options) else { return };
        let path = mounted.path().join("file");
        fs::write(&path, vec![7; 16 << 10]).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 16 << 10);
        assert!(fs::read(&path).unwrap() == vec![7; 16 << 10]);
        let reads = reread.reads.load(Ordering::SeqCst);
        assert_eq!(reads == 0, exclusive, "{reads} reads");
        mounted.end();
    }
}

/// A mount behaves like ext4 (section 1 of docs/SEMANTICS.md): a copy of a file that is being
/// written contains all written data. At that time, the kernel still caches the data, and cp
/// searches the file for holes.
#[test]
fn copy_of_a_file_being_written_is_complete() {
    for writeback in [false, true] {
        let options = MountOptions { writeback, ..MountOptions::default() };
        let test = "caching::copy_of_a_file_being_written_is_complete";
        let memory = Arc::new(MemFs::default());
        let Some(mounted) = Mounted::new(test, memory, &options) else { return };
        assert_eq!(mounted.session().granted().writeback(), writeback);
        let path = mounted.path().join("being-written");
        let writer = File::create(&path).unwrap();
        writer.set_len(3 << 20).unwrap();
        for (offset, byte) in [(0, 1), (1 << 20, 2), ((2 << 20) + 5, 3)] {
            writer.write_all_at(&[byte; 70_000], offset).unwrap();
        }
        let copy = mounted.path().join("copy");
        let mut cp = Command::new("cp");
        cp.args(["--sparse=auto", "--reflink=never"]).arg(&path).arg(&copy);
        assert!(cp.status().unwrap().success());
        assert!(fs::read(&copy).unwrap() == fs::read(&path).unwrap(), "writeback: {writeback}");
        drop(writer);
        mounted.end();
    }
}

/// Writes through a shared mapping into the hole of a file, and searches for data while the file is
/// mapped.
const MAP_AND_SEEK: &str = "
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 3 << 20)
mapped = mmap.mmap(file, 3 << 20)
reader = os.open(sys.argv[1], os.O_RDONLY)
mapped[1 << 20:(1 << 20) + 5] = b'bytes'
start = os.lseek(reader, 0, os.SEEK_DATA)
if not start <= 1 << 20 < os.lseek(reader, start, os.SEEK_HOLE):
    sys.exit('data at %d only' % start)
";

/// A seek finds data written through a shared mapping. The kernel always writes such data back
/// later, even without writeback mode.
#[test]
fn seek_reports_mapped_writes_as_data() {
    for writeback in [false, true] {
        let options = MountOptions { writeback, ..MountOptions::default() };
        let test = "caching::seek_reports_mapped_writes_as_data";
        let Some(mounted) = Mounted::new(test, Arc::new(MemFs::default()), &options) else {
            return;
        };
        let mut python = Command::new("python3");
        let path = mounted.path().join("mapped");
        let Ok(output) = python.args(["-c", MAP_AND_SEEK]).arg(path).output() else {
            skip(test, "no python3");
            return;
        };
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "writeback: {writeback}: {told}");
        mounted.end();
    }
}

/// Writing pages back also drops them from the cache. So if a file has no dirty pages, a seek must
/// not write back any pages.
#[test]
fn seek_by_a_reader_keeps_cached_pages() {
    let test = "caching::seek_by_a_reader_keeps_cached_pages";
    for writeback in [false, true] {
        let options = MountOptions { writeback, ..believing() };
        let Some(mounted) = Mounted::new(test, Arc::new(MemFs::default()), &options) else {
            return;
        };
        let path = mounted.path().join("file");
        fs::write(&path, vec![1; 1 << 20]).unwrap();
        let file = File::open(&path).unwrap();
        file.read_exact_at(&mut vec![0; 1 << 20], 0).unwrap();
        rustix::fs::seek(&file, SeekFrom::Data(0)).unwrap();
        assert_eq!(fslab_sys::page_cache::mincore(&file, 1 << 20), Ok(256), "{writeback}");
        drop(file);
        mounted.end();
    }
}

/// A seek writes back and drops only the pages of holes, not all pages after the offset.
#[test]
fn seek_by_a_writer_keeps_cached_data_pages() {
    let test = "caching::seek_by_a_writer_keeps_cached_data_pages";
    for writeback in [false, true] {
        let options = MountOptions { writeback, ..believing() };
        let Some(mounted) = Mounted::new(test, Arc::new(MemFs::default()), &options) else {
            return;
        };
        let path = mounted.path().join("file");
        fs::write(&path, vec![1; 1 << 20]).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        file.read_exact_at(&mut vec![0; 1 << 20], 0).unwrap();
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(4096)), Ok(4096));
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(4096)), Ok(1 << 20));
        assert_eq!(fslab_sys::page_cache::mincore(&file, 1 << 20), Ok(256), "{writeback}");
        drop(file);
        mounted.end();
    }
}

/// A hole that turns out to be data is skipped, and the next real hole is found.
#[test]
fn seek_finds_holes_behind_dirty_pages() {
    let test = "caching::seek_finds_holes_behind_dirty_pages";
    let options = MountOptions { writeback: true, ..believing() };
    let Some(mounted) = Mounted::new(test, Arc::new(MemFs::default()), &options) else { return };
    let path = mounted.path().join("file");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.set_len(64 << 10).unwrap();
    for offset in [0, 8 << 10, 16 << 10] {
        file.write_all_at(&[1; 4096], offset).unwrap();
    }
    file.sync_all().unwrap();
    for offset in [4 << 10, 12 << 10] {
        file.write_all_at(&[2; 4096], offset).unwrap();
    }
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(0)), Ok(20 << 10));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(20 << 10)), Err(rustix::io::Errno::NXIO));
    file.write_all_at(&[3; 4096], 32 << 10).unwrap();
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(20 << 10)), Ok(32 << 10));
    drop(file);
    mounted.end();
}

#[test]
fn birth_times_and_unnamed_files_are_served() {
    let test = "caching::birth_times_and_unnamed_files_are_served";
    let memory = Arc::new(MemFs::default());
    let Some(mounted) = Mounted::new(test, memory, &MountOptions::default()) else { return };
    let path = mounted.path().join("file");
    fs::write(&path, "x").unwrap();
    assert!(fs::metadata(&path).unwrap().created().is_ok());
    let unnamed = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(rustix::fs::OFlags::TMPFILE.bits().cast_signed())
        .open(mounted.path())
        .unwrap();
    unnamed.write_all_at(b"nameless", 0).unwrap();
    let mut buffer = [0; 8];
    unnamed.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"nameless");
    drop(unnamed);
    mounted.end();
}

/// A file system whose writes block until the test lets them end.
#[derive(Default)]
struct Served {
    inner: MemFs,
    has_begun: AtomicBool,
    may_end: AtomicBool,
}

impl FileSystem for Served {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    /// Keeps pages in the kernel's cache when a file is opened again.
    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        Ok(Opened { keep_cache: true, ..self.inner.open(request, ino, mode)? })
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
        self.has_begun.store(true, Ordering::SeqCst);
        soon("the write may end", || self.may_end.load(Ordering::SeqCst));
        self.inner.write(request, ino, handle, offset, data, options)
    }
}

/// The kernel drops the pages of a range before it sends an asynchronous direct write, and not
/// again when the write ends. A page that is read during the write has the old bytes, so it must be
/// dropped before the write returns.
#[test]
fn no_page_is_older_than_an_asynchronous_direct_write_that_returned() {
    let test = "caching::no_page_is_older_than_an_asynchronous_direct_write_that_returned";
    for (writeback, reader_stays) in [(false, true), (true, true), (false, false), (true, false)] {
        let served = Arc::new(Served::default());
        let options = MountOptions { writeback, ..believing() };
        let Some(mounted) = Mounted::new(test, served.clone(), &options) else { return };
        make(&served.inner, Ino::ROOT, "file", &[1; 8192]).unwrap();
        let path = mounted.path().join("file");
        let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
        let writer = OpenOptions::new().write(true).custom_flags(direct).open(&path).unwrap();
        let reader = File::open(&path).unwrap();
        let mut ring = Ring::new(1, 4096).unwrap();
        ring.buffer(0).unwrap().fill(2);
        ring.submit(0, writer.as_fd(), Direction::Write, 0).unwrap();
        soon("the write is served", || served.has_begun.load(Ordering::SeqCst));
        let mut pages = [0; 8192];
        reader.read_exact_at(&mut pages, 0).unwrap();
        assert!(pages == [1; 8192], "writeback: {writeback}");
        let reader = reader_stays.then_some(reader);
        served.may_end.store(true, Ordering::SeqCst);
        ring.wait(None).unwrap();
        assert_eq!(ring.take().unwrap().result.unwrap(), 4096);
        let reader = reader.unwrap_or_else(|| File::open(&path).unwrap());
        reader.read_exact_at(&mut pages, 0).unwrap();
        let case = format!("writeback: {writeback}, reader stays: {reader_stays}");
        assert!(pages[..4096] == [2; 4096], "{case}: older than a write");
        assert!(pages[4096..] == [1; 4096], "{case}");
        drop((writer, reader));
        mounted.end();
    }
}
