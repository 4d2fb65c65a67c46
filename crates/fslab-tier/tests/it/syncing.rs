//! Syncs of files below that fail, and what is lost without one.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fslab_vfs::{
    Errno, FallocateMode, FileSystem, Handle, Ino, MemFs, OpenMode, Request, Result, SetAttr,
    SetTime, Timestamp, WriteOptions, XattrMode,
};
use parking_lot::Mutex;

use crate::support::{Bench, MIB, noise};

/// A file system with a disk that fails once: what was written since the last sync is gone, which
/// that sync alone tells, as kernels do.
#[derive(Default)]
struct Lossy {
    memory: MemFs,
    fails: AtomicBool,
    /// Files, offsets and lengths.
    written: Mutex<Vec<(Ino, u64, u64)>>,
    /// Xattrs as they were at the last sync of their file.
    synced: Mutex<HashMap<(Ino, OsString), Vec<u8>>>,
}

impl Lossy {
    fn lose(&self, request: &Request, ino: Ino) -> Result<()> {
        let opened = self.memory.open(request, ino, OpenMode::READ_WRITE)?;
        let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
        for (_, offset, length) in self.written.lock().extract_if(.., |(of, ..)| *of == ino) {
            self.memory.fallocate(request, ino, opened.handle, offset, length, mode)?;
        }
        self.memory.release(request, ino, opened.handle)
    }

    /// Bytes and xattrs of a file are as they were when it was synced.
    fn cut_power(&self, ino: Ino) {
        self.lose(&Request::default(), ino).unwrap();
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
        self.written.lock().push((ino, offset, data.len() as u64));
        self.memory.write(request, ino, handle, offset, data, options)
    }

    fn copy_file_range(
        &self,
        request: &Request,
        source: (Ino, Handle, u64),
        target: (Ino, Handle, u64),
        length: u64,
    ) -> Result<u64> {
        self.written.lock().push((target.0, target.2, length));
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
            self.lose(request, ino)?;
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

/// Whoever syncs, a program or the engine before it says what is here.
#[test]
fn what_was_recalled_and_a_failed_sync_lost_is_recalled_again() {
    for by_program in [true, false] {
        let (lower, mut bench) = lossy();
        let (data, other) = (noise(301, 4 * MIB), noise(302, MIB));
        let ino = bench.offline(&bench.client(), "file", &data);
        let client = bench.client();
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        assert!(file.read(0, 100).unwrap() == data[..100]);
        lower.fails.store(true, Ordering::SeqCst);
        let told = if by_program { file.fsync(false) } else { file.write_all(MIB, &other) };
        assert_eq!(told.unwrap_err().errno(), Errno::IO);
        assert!(file.read(0, 100).unwrap() == data[..100], "by a program: {by_program}");
        // Nothing is said to be here, or to be durable, that may not be.
        assert_eq!(file.write_all(2 * MIB, &other).unwrap_err().errno(), Errno::IO);
        assert_eq!(file.fsync(false).unwrap_err().errno(), Errno::IO);
        file.close().unwrap();
        drop(client);
        for is_anew in [false, true] {
            if is_anew {
                bench.restart();
            }
            let found = bench.client().contents(ino).unwrap();
            for (block, (found, data)) in
                found.chunks(1 << 20).zip(data.chunks(1 << 20)).enumerate()
            {
                let is_other = (1..3).contains(&block) && *found == other;
                assert!(found == data || is_other, "{block}, anew: {is_anew}, {by_program}");
            }
        }
    }
}

/// The next opening looks anew, and what it writes is durable when it says so.
#[test]
fn a_file_of_which_a_sync_failed_is_as_good_as_before_once_it_was_closed() {
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

/// A tail that was cut off, and synced so, stays away when the file grows.
#[test]
fn what_was_cut_off_does_not_come_back_behind_a_power_cut() {
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

/// What a program asked to be durable by the way in which it opened the file.
#[test]
fn holes_and_copies_of_who_writes_synchronously_are_durable() {
    for copies in [false, true] {
        let (lower, mut bench) = lossy();
        let (data, other) = (noise(307, 3 * MIB), noise(308, MIB));
        let ino = bench.offline(&bench.client(), "file", &data);
        let client = bench.client();
        let mode = OpenMode::READ_WRITE | OpenMode::DATA_SYNC | OpenMode::SYNC;
        let file = client.open(ino, mode).unwrap();
        if copies {
            // The first one brings the block here, which syncs the file in any case.
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

/// It tells of changes behind the mount while the file is in use.
#[test]
fn a_time_that_a_program_sets_hides_no_change_behind_the_mount() {
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
