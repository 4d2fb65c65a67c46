//! Offline files, as programs see them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_tier::stored::Marks;
use fslab_tier::{Archived, Settings};
use fslab_vfs::{
    Cancellation, Errno, FallocateMode, FileSystem, Ino, MemFs, OpenMode, Request, SeekTo,
};

use crate::support::{Bench, MIB, TIER, noise};

#[test]
fn released_file_is_recalled_by_range() {
    let bench = Bench::new();
    let client = bench.client();
    let data = noise(1, 9 * MIB + 12_345);
    let before = client.file(Ino::ROOT, "file", &data).unwrap();
    let stat = client.attr(before).unwrap();
    let ino = {
        assert!(matches!(bench.archive(before, "file").unwrap(), Archived::Now { .. }));
        bench.release(before, "file").unwrap();
        before
    };
    assert_eq!(bench.offline_blocks(ino), (0..10).collect::<Vec<_>>());
    let shown = client.attr(ino).unwrap();
    assert_eq!((shown.size, shown.modified), (stat.size, stat.modified));
    assert_eq!(shown.blocks, 1, "an archiver must not take it for a hole");
    let file = client.open(ino, OpenMode::empty()).unwrap();
    let already = bench.bytes_recalled();
    assert_eq!(file.read(5 * MIB + 7, 100).unwrap(), data[5 * MIB as usize + 7..][..100]);
    let recalled = bench.bytes_recalled() - already;
    assert!(recalled < 2 * MIB, "one block and its table, not {recalled} bytes");
    file.close().unwrap();
    assert_eq!(bench.offline_blocks(ino).len(), 9);
    assert_eq!(client.contents(ino).unwrap(), data);
    assert_eq!(client.attr(ino).unwrap().modified, stat.modified);
    assert_eq!(bench.offline_blocks(ino), [0_u64; 0]);
    assert_eq!(bench.archive(ino, "file").unwrap(), Archived::Before);
    assert!(bench.release(ino, "file").unwrap().bytes >= data.len() as u64);
    assert_eq!(client.contents(ino).unwrap(), data);
}

#[test]
fn a_write_recalls_the_blocks_at_its_edges_only() {
    let bench = Bench::new();
    let client = bench.client();
    let mut data = noise(2, 16 * MIB);
    let ino = bench.offline(&client, "file", &data);
    let patch = noise(3, 10 * MIB);
    let start = (2 * MIB + 5) as usize;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    let already = bench.bytes_recalled();
    file.write_all(start as u64, &patch).unwrap();
    data[start..start + patch.len()].copy_from_slice(&patch);
    let recalled = bench.bytes_recalled() - already;
    assert!(recalled < 3 * MIB + MIB / 2, "{recalled}");
    file.close().unwrap();
    assert_eq!(bench.offline_blocks(ino), [0, 1, 13, 14, 15]);
    assert_eq!(client.contents(ino).unwrap(), data);
}

#[test]
fn resizing_keeps_offline_blocks_and_reads_zeros_past_the_old_end() {
    let bench = Bench::new();
    let client = bench.client();
    let mut data = noise(4, 5 * MIB + 100);
    let ino = bench.offline(&client, "file", &data);
    client.truncate(ino, 3 * MIB + 9).unwrap();
    client.truncate(ino, 5 * MIB).unwrap();
    data.truncate((3 * MIB + 9) as usize);
    data.resize((5 * MIB) as usize, 0);
    assert_eq!(bench.offline_blocks(ino), [0, 1, 2]);
    assert_eq!(client.contents(ino).unwrap(), data);
    let ino = bench.offline(&client, "other", &data[..(2 * MIB + 7) as usize]);
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(4 * MIB, b"far").unwrap();
    let mut grown = data[..(2 * MIB + 7) as usize].to_vec();
    grown.resize((4 * MIB) as usize, 0);
    grown.extend(b"far");
    assert_eq!(client.contents(ino).unwrap(), grown);
}

#[test]
fn truncation_at_a_block_border_recalls_nothing_and_drops_old_bytes() {
    let mut bench = Bench::new();
    let ino;
    {
        let client = bench.client();
        ino = bench.offline(&client, "file", &noise(5, 4 * MIB));
        let already = bench.bytes_recalled();
        client.truncate(ino, 2 * MIB).unwrap();
        client.truncate(ino, 4 * MIB).unwrap();
        assert_eq!(bench.bytes_recalled(), already);
    }
    bench.restart();
    let client = bench.client();
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let contents = client.contents(ino).unwrap();
    assert_eq!(contents[..2 * MIB as usize], noise(5, 4 * MIB)[..2 * MIB as usize]);
    assert!(contents[2 * MIB as usize..].iter().all(|byte| *byte == 0));
}

#[test]
fn seek_reports_offline_blocks_as_data_and_holes_as_holes() {
    let bench = Bench::new();
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "file", &noise(6, MIB)).unwrap();
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(5 * MIB, &noise(7, MIB)).unwrap();
    file.truncate(8 * MIB).unwrap();
    file.close().unwrap();
    bench.archive(ino, "file").unwrap();
    bench.release(ino, "file").unwrap();
    assert_eq!(bench.offline_blocks(ino), [0, 5]);
    let file = client.open(ino, OpenMode::empty()).unwrap();
    assert_eq!(file.seek(0, SeekTo::Data).unwrap(), 0);
    assert_eq!(file.seek(3, SeekTo::Data).unwrap(), 3);
    assert_eq!(file.seek(0, SeekTo::Hole).unwrap(), MIB);
    assert_eq!(file.seek(MIB, SeekTo::Data).unwrap(), 5 * MIB);
    assert_eq!(file.seek(5 * MIB + 1, SeekTo::Hole).unwrap(), 6 * MIB);
    assert_eq!(file.seek(6 * MIB, SeekTo::Data).unwrap_err().errno(), Errno::NXIO);
    assert_eq!(file.seek(7 * MIB, SeekTo::Hole).unwrap(), 7 * MIB);
}

#[test]
fn punching_recalls_edges_and_leaves_zeros() {
    let bench = Bench::new();
    let client = bench.client();
    let mut data = noise(8, 6 * MIB);
    let ino = bench.offline(&client, "file", &data);
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    file.fallocate(MIB + 10, 3 * MIB, punch).unwrap();
    file.close().unwrap();
    data[(MIB + 10) as usize..(4 * MIB + 10) as usize].fill(0);
    assert_eq!(bench.offline_blocks(ino), [0, 5]);
    assert_eq!(client.contents(ino).unwrap(), data);
}

#[test]
fn collapse_range_recalls_the_whole_file_first() {
    let bench = Bench::new();
    let client = bench.client();
    let data = noise(18, 3 * MIB);
    let ino = bench.offline(&client, "file", &data);
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    let refused = file.fallocate(0, MIB, FallocateMode::COLLAPSE_RANGE).unwrap_err();
    assert_eq!(refused.errno(), Errno::OPNOTSUPP, "memory can't");
    file.close().unwrap();
    assert_eq!(bench.offline_blocks(ino), [0_u64; 0]);
    assert_eq!(client.contents(ino).unwrap(), data);
}

#[test]
fn copy_between_two_offline_files_is_correct() {
    let bench = Bench::new();
    let client = bench.client();
    let (from, mut to) = (noise(9, 4 * MIB), noise(10, 6 * MIB));
    let source = bench.offline(&client, "source", &from);
    let target = bench.offline(&client, "target", &to);
    let source = client.open(source, OpenMode::empty()).unwrap();
    let file = client.open(target, OpenMode::READ_WRITE).unwrap();
    let count = source.copy_to(7, &file, MIB + 3, 2 * MIB).unwrap() as usize;
    to[(MIB + 3) as usize..][..count].copy_from_slice(&from[7..][..count]);
    file.close().unwrap();
    assert_eq!(count as u64, 2 * MIB);
    assert_eq!(client.contents(target).unwrap(), to);
}

#[test]
fn a_file_in_use_or_changed_is_not_released() {
    let bench = Bench::new();
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "file", &noise(11, MIB)).unwrap();
    let why = |result: fslab_tier::Result<fslab_tier::Released>| result.unwrap_err().to_string();
    assert_eq!(why(bench.release(ino, "file")), "file: was never archived");
    bench.archive(ino, "file").unwrap();
    let reader = client.open(ino, OpenMode::empty()).unwrap();
    assert_eq!(why(bench.release(ino, "file")), "file: is in use");
    reader.close().unwrap();
    let writer = client.open(ino, OpenMode::READ_WRITE).unwrap();
    writer.write_all(0, b"new").unwrap();
    let refused = bench.archive(ino, "file").unwrap_err().to_string();
    assert_eq!(refused, "file: is open for writing");
    writer.close().unwrap();
    assert_eq!(why(bench.release(ino, "file")), "file: was changed since it was archived");
    bench.archive(ino, "file").unwrap();
    assert!(bench.release(ino, "file").unwrap().bytes > 0);
    assert_eq!(client.contents(ino).unwrap()[..3], *b"new");
}

#[test]
fn edit_below_the_mount_is_kept() {
    let mut bench = Bench::new();
    {
        let client = bench.client();
        let ino = client.file(Ino::ROOT, "file", &noise(12, MIB)).unwrap();
        bench.archive(ino, "file").unwrap();
        client.tick();
        let below = bench.below();
        let ino = below.lookup(Ino::ROOT, "file").unwrap().ino;
        let file = below.open(ino, OpenMode::READ_WRITE).unwrap();
        file.write_all(0, b"behind").unwrap();
        file.close().unwrap();
        let refused = bench.release(ino, "file").unwrap_err().to_string();
        assert!(refused.contains("was changed"), "{refused}");
    }
    bench.restart();
    let client = bench.client();
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let refused = bench.release(ino, "file").unwrap_err().to_string();
    assert!(refused.contains("was changed"), "{refused}");
    assert_eq!(client.contents(ino).unwrap()[..6], *b"behind");
}

#[test]
fn copied_stub_cannot_be_opened() {
    let bench = Bench::new();
    let client = bench.client();
    let ino = bench.offline(&client, "file", &noise(13, 2 * MIB));
    let below = bench.below();
    let copy = below.file(Ino::ROOT, "copy", &[]).unwrap();
    below.truncate(copy, 2 * MIB).unwrap();
    let mark = below.getxattr(ino, Marks::Trusted.residency_name()).unwrap();
    below.setxattr(copy, Marks::Trusted.residency_name(), &mark).unwrap();
    let copy = client.lookup(Ino::ROOT, "copy").unwrap().ino;
    let refused = client.open(copy, OpenMode::empty()).map(drop).unwrap_err();
    assert_eq!(refused.errno(), Errno::IO);
    assert_eq!(client.contents(ino).unwrap(), noise(13, 2 * MIB));
}

#[test]
fn residency_xattr_is_hidden_and_protected_in_the_mount() {
    let bench = Bench::new();
    let client = bench.client();
    let ino = bench.offline(&client, "file", &noise(14, MIB));
    assert_eq!(client.listxattr(ino).unwrap(), Vec::<String>::new());
    let name = Marks::Trusted.residency_name();
    assert_eq!(client.getxattr(ino, name).unwrap_err().errno(), Errno::NODATA);
    assert_eq!(client.setxattr(ino, name, b"x").unwrap_err().errno(), Errno::PERM);
    assert_eq!(client.removexattr(ino, name).unwrap_err().errno(), Errno::NODATA);
}

#[test]
fn setting_the_modification_time_does_not_mark_a_file_changed() {
    let mut bench = Bench::new();
    {
        let client = bench.client();
        let ino = bench.offline(&client, "file", &noise(15, MIB));
        let to = fslab_vfs::Timestamp { seconds: 1_000_000, nanoseconds: 5 };
        let modified = Some(fslab_vfs::SetTime::To(to));
        let changes = fslab_vfs::SetAttr { modified, ..fslab_vfs::SetAttr::default() };
        client.set(ino, &changes).unwrap();
    }
    bench.restart();
    let client = bench.client();
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    assert_eq!(bench.archive(ino, "file").unwrap(), Archived::Before);
    assert_eq!(client.contents(ino).unwrap(), noise(15, MIB));
    assert_eq!(client.attr(ino).unwrap().modified.seconds, 1_000_000);
}

#[test]
fn waiting_for_a_stalled_archive_is_interruptible() {
    let bench = Bench::new();
    let client = bench.client();
    let data = noise(16, 2 * MIB);
    let ino = bench.offline(&client, "file", &data);
    let faults = bench.archives[0].faults();
    *faults.stalled.lock() = true;
    let cancelled = Arc::new(AtomicU64::new(0));
    let waiting = Request {
        cancellation: Cancellation::new(Arc::clone(&cancelled), 7),
        ..Request::default()
    };
    let handle = bench.fs.open(&waiting, ino, OpenMode::empty()).unwrap().handle;
    std::thread::scope(|scope| {
        let (fs, waiting) = (&bench.fs, &waiting);
        let reader = scope.spawn(move || fs.read(waiting, ino, handle, 0, &mut [0; 100]));
        while faults.blocked.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        cancelled.store(7, Ordering::SeqCst);
        assert_eq!(reader.join().unwrap().unwrap_err().errno(), Errno::INTR);
    });
    faults.resume();
    let mut buffer = [0; 100];
    bench.fs.read(&Request::default(), ino, handle, 0, &mut buffer).unwrap();
    assert_eq!(buffer[..], data[..100]);
    bench.fs.release(&Request::default(), ino, handle).unwrap();
}

#[test]
fn recall_timeout_returns_the_configured_error() {
    let settings = Settings {
        patience: Some(std::time::Duration::from_millis(20)),
        late: Errno::AGAIN,
        ..Settings::of(TIER)
    };
    let bench = Bench::with(Arc::new(MemFs::default()), settings, 1);
    let client = bench.client();
    let ino = bench.offline(&client, "file", &noise(17, MIB));
    let faults = bench.archives[0].faults();
    *faults.stalled.lock() = true;
    let file = client.open(ino, OpenMode::empty()).unwrap();
    assert_eq!(file.read(0, 10).unwrap_err().errno(), Errno::AGAIN);
    faults.resume();
    file.close().unwrap();
}
