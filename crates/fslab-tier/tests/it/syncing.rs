//! Failed syncs of lower files, and losses in a power cut before a sync.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fslab_vfs::{
    Errno, FallocateMode, FileSystem, Handle, Ino, MemFs, OpenMode, Request, Result, SetAttr,
    SetTime, Timestamp, WriteOptions, XattrMode,
};
use fslab_vfs_testing::client::File;
use parking_lot::Mutex;

use crate::support::{Bench, MIB, noise};

/// A file system with a disk that fails during one sync. The bytes written since the previous sync
/// are lost. That sync returns an error; later ones do not. As in kernels, the lost bytes can still
/// be read until their pages are dropped.
#[derive(Default)]
struct Lossy {
    memory: MemFs,
    fails: AtomicBool,
    /// Files, offsets and lengths of the bytes written since the last sync.
    written: Mutex<Vec<(Ino, u64, u64)>>,
    /// Bytes that the disk has lost. Later syncs do not report this.
    lost: Mutex<Vec<(Ino, u64, u64)>>,
    /// Xattrs at the last sync of their file.
    synced: Mutex<HashMap<(Ino, OsString), Vec<u8>>>,
}

impl Lossy {
    /// Drops the pages, so that reads return the bytes on the disk.
    fn evict(&self, ino: Ino) {
        let request = Request::default();
        let opened = self.memory.open(&request, ino, OpenMode::READ_WRITE).unwrap();
        let (handle, mode) = (opened.handle, FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE);
        for (_, offset, length) in self.lost.lock().extract_if(.., |(of, ..)| *of == ino) {
            self.memory.fallocate(&request, ino, handle, offset, length, mode).unwrap();
        }
        self.memory.release(&request, ino, handle).unwrap();
    }

    fn wrote(&self, ino: Ino, offset: u64, length: u64) {
        let covers =
            |from: u64, length_of: u64| offset <= from && from + length_of <= offset + length;
        self.lost.lock().retain(|(of, from, length)| *of != ino || !covers(*from, *length));
        self.written.lock().push((ino, offset, length));
    }

    /// Restores bytes and xattrs of a file to those at its last sync.
    fn cut_power(&self, ino: Ino) {
        self.lost.lock().append(&mut self.written.lock());
        self.evict(ino);
        let synced = std::mem::take(&mut *self.synced.lock());
        for ((_, name), value) in synced.into_iter().filter(|((of, _), _)| *of == ino) {
            let request = Request::default();
            self.memory.setxattr(&request, ino, &name, &value, XattrMode::empty()).unwrap();
        }
    }
}

impl FileSystem for Lossy {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.memory)
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
        self.wrote(ino, offset, data.len() as u64);
        self.memory.write(request, ino, handle, offset, data, options)
    }

    fn drop_pages(&self, ino: Ino, _: Handle, _: Range<u64>) {
        self.evict(ino);
    }

    fn copy_file_range(
        &self,
        request: &Request,
        source: (Ino, Handle, u64),
        target: (Ino, Handle, u64),
        length: u64,
    ) -> Result<u64> {
        self.wrote(target.0, target.2, length);
        self.memory.copy_file_range(request, source, target, length)
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: Ino,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        if let Ok(before) = self.memory.getxattr(request, ino, name) {
            self.synced.lock().entry((ino, name.to_owned())).or_insert(before);
        }
        self.memory.setxattr(request, ino, name, value, mode)
    }

    fn fsync(&self, request: &Request, ino: Ino, handle: Handle, data_only: bool) -> Result<()> {
        if self.fails.swap(false, Ordering::SeqCst) {
            self.lost.lock().append(&mut self.written.lock());
            return Err(Errno::IO.into());
        }
        self.written.lock().retain(|(of, ..)| *of != ino);
        self.synced.lock().retain(|(of, _), _| *of != ino);
        self.memory.fsync(request, ino, handle, data_only)
    }
}

fn lossy() -> (Arc<Lossy>, Bench) {
    let lower = Arc::new(Lossy::default());
    let bench = Bench::over(Arc::clone(&lower) as Arc<dyn FileSystem>);
    (lower, bench)
}

/// Checks that the bytes are the archived ones, or in overwritten blocks the written ones.
fn check(found: &[u8], data: &[u8], other: &[u8], written: Range<usize>) {
    let block = MIB as usize;
    for (number, (found, data)) in found.chunks(block).zip(data.chunks(block)).enumerate() {
        let is_other = written.contains(&number) && found == other;
        assert!(found == data || is_other, "block {number}");
    }
    assert_eq!(found.len(), data.len());
}

/// Checks a file whose recalled blocks are lost by a failed sync. `fail` causes the sync.
fn lose_recalled(size: u64, fail: impl FnOnce(&File<'_>) -> Result<()>) {
    let (lower, mut bench) = lossy();
    let (data, other) = (noise(301, size), noise(302, MIB));
    let ino = bench.offline(&bench.client(), "file", &data);
    let client = bench.client();
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    let parts = || [0, size - 100].map(|offset| file.read(offset, 100).unwrap());
    let expected = [&data[..100], &data[data.len() - 100..]];
    assert!(parts() == expected);
    lower.fails.store(true, Ordering::SeqCst);
    assert_eq!(fail(&file).unwrap_err().errno(), Errno::IO);
    assert!(parts() == expected);
    lower.evict(ino);
    assert!(parts() == expected);
    // A block that may be lost must be neither recorded as resident nor reported as durable.
    assert_eq!(file.fsync(false).unwrap_err().errno(), Errno::IO);
    if size > 3 * MIB {
        assert_eq!(file.write_all(2 * MIB, &other).unwrap_err().errno(), Errno::IO);
    }
    file.close().unwrap();
    drop(client);
    for is_anew in [false, true] {
        if is_anew {
            bench.restart();
        }
        check(&bench.client().contents(ino).unwrap(), &data, &other, 1..3);
        lower.evict(ino);
        check(&bench.client().contents(ino).unwrap(), &data, &other, 1..3);
    }
}

#[test]
fn blocks_lost_by_a_failed_sync_are_recalled_again() {
    for size in [100_000, 4 * MIB, 4 * MIB + 100_000] {
        lose_recalled(size, |file| file.fsync(false));
    }
    // The engine syncs before it records which blocks are resident.
    lose_recalled(4 * MIB + 100_000, |file| file.write_all(MIB, &noise(302, MIB)));
}

/// Only the log reports the failed sync, because the last user has closed the file.
#[test]
fn blocks_lost_by_a_failed_last_sync_are_recalled_again() {
    let (lower, mut bench) = lossy();
    let data = noise(311, MIB + 100_000);
    let ino = bench.offline(&bench.client(), "file", &data);
    lower.fails.store(true, Ordering::SeqCst);
    assert!(bench.client().contents(ino).unwrap() == data);
    assert!(!lower.fails.load(Ordering::SeqCst));
    assert!(bench.client().contents(ino).unwrap() == data);
    lower.evict(ino);
    assert!(bench.client().contents(ino).unwrap() == data);
    bench.restart();
    assert!(bench.client().contents(ino).unwrap() == data);
}

/// The next open examines the file again, and later syncs are reliable.
#[test]
fn file_can_be_synced_again_after_a_failed_sync_and_a_close() {
    let (lower, mut bench) = lossy();
    let (mut data, other) = (noise(303, 2 * MIB), noise(304, MIB));
    let ino = bench.offline(&bench.client(), "file", &data);
    let client = bench.client();
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    lower.fails.store(true, Ordering::SeqCst);
    file.write_all(0, &other).unwrap_err();
    file.close().unwrap();
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, &other).unwrap();
    file.fsync(false).unwrap();
    file.close().unwrap();
    drop(client);
    data[..other.len()].copy_from_slice(&other);
    lower.cut_power(ino);
    bench.restart();
    assert!(bench.client().contents(ino).unwrap() == data);
}

/// After a truncation was synced, the removed blocks do not return when the file grows.
#[test]
fn truncated_blocks_stay_gone_after_a_power_cut() {
    let (lower, mut bench) = lossy();
    let (data, other) = (noise(305, 3 * MIB), noise(306, MIB));
    let ino = bench.offline(&bench.client(), "file", &data);
    let client = bench.client();
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.truncate(MIB).unwrap();
    file.fsync(false).unwrap();
    file.write_all(0, &other).unwrap();
    file.truncate(3 * MIB).unwrap();
    lower.cut_power(ino);
    file.close().unwrap();
    drop(client);
    bench.restart();
    assert!(bench.client().contents(ino).unwrap()[MIB as usize..].iter().all(|byte| *byte == 0));
}

/// A program opened the file for synchronous writes.
#[test]
fn synchronous_hole_punches_and_copies_are_durable() {
    for copies in [false, true] {
        let (lower, mut bench) = lossy();
        let (data, other) = (noise(307, 3 * MIB), noise(308, MIB));
        let ino = bench.offline(&bench.client(), "file", &data);
        let client = bench.client();
        let mode = OpenMode::READ_WRITE | OpenMode::DATA_SYNC | OpenMode::SYNC;
        let file = client.open(ino, mode).unwrap();
        if copies {
            // The first copy recalls the block, which syncs the file in any case.
            for (name, data) in [("one", &data), ("other", &other)] {
                let from = client.file(Ino::ROOT, name, data).unwrap();
                let from = client.open(from, OpenMode::empty()).unwrap();
                assert_eq!(from.copy_to(0, &file, MIB, MIB).unwrap(), MIB);
                from.close().unwrap();
            }
        } else {
            let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
            file.fallocate(MIB, MIB, mode).unwrap();
        }
        lower.cut_power(ino);
        file.close().unwrap();
        drop(client);
        bench.restart();
        let expected = if copies { other } else { vec![0; MIB as usize] };
        let found = bench.client().contents(ino).unwrap();
        assert!(found[MIB as usize..][..MIB as usize] == expected, "copies: {copies}");
    }
}

/// While the file is in use, its modification time reveals changes in the lower directory.
#[test]
fn setting_a_time_does_not_hide_a_change_made_below_the_mount() {
    let (_, bench) = lossy();
    let ino = bench.client().file(Ino::ROOT, "file", &noise(309, 2 * MIB)).unwrap();
    bench.archive(ino, "file").unwrap();
    let client = bench.client();
    let reader = client.open(ino, OpenMode::empty()).unwrap();
    reader.read(0, 1).unwrap();
    client.tick();
    let (below, other) = (bench.below(), noise(310, MIB));
    let writer = below.open(ino, OpenMode::READ_WRITE).unwrap();
    writer.write_all(MIB, &other).unwrap();
    writer.close().unwrap();
    let time = SetTime::To(Timestamp { seconds: 1_000_000, nanoseconds: 0 });
    client.set(ino, &SetAttr { modified: Some(time), ..SetAttr::default() }).unwrap();
    reader.close().unwrap();
    bench.release(ino, "file").unwrap_err();
    assert!(bench.client().contents(ino).unwrap()[MIB as usize..] == other);
}
