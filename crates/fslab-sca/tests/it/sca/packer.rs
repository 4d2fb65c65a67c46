//! Tests of the time at which files are packed, and that small sequential writes give the same
//! result as large ones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fslab_layers::StackContext;
use fslab_vfs::{Ino, OpenMode, SteppingClock};
use fslab_vfs_testing::client::Client;

use super::below::{Below, mixed, read_file, text, write_file, write_file_in_pieces};
use super::piped;

/// Usual size of a program's writes.
const PIECE: usize = 8192;

/// Returns the approximate length of a file that is written in large pieces.
fn least_bytes(layer: &str, data: &[u8]) -> usize {
    let fresh = Below::new();
    write_file(&*fresh.mount(layer), "file", data);
    let least = fresh.bytes("file").len();
    least + least / 16 + 1024
}

/// Files written in small pieces are packed before the daemon exits, even if the mount was never
/// idle.
#[test]
fn waiting_files_are_packed_at_unmount() {
    for (codec, length) in ["gzip", "zstd", "lz4"].into_iter().zip([700_000, 300_000, 30_000]) {
        let layer = format!("{codec}:pack-after=1h");
        let (below, data) = (Below::new(), mixed(length));
        let fs = below.mount(&layer);
        write_file_in_pieces(&*fs, "file", &data, PIECE);
        fs.shutdown().unwrap();
        drop(fs);
        let stored = below.bytes("file");
        assert!(stored.len() <= least_bytes(&layer, &data), "{codec}: {} bytes", stored.len());
        if let Some(decoded) = piped(codec, &["-dc", "-"], &stored) {
            assert!(decoded == data, "{codec}: {} bytes", decoded.len());
        }
        assert!(read_file(&*below.mount(&layer), "file").unwrap() == data, "{codec}");
    }
}

/// On unmount the kernel drops the RELEASE request of a file that was closed just before.
#[test]
fn unreleased_files_are_packed_at_unmount() {
    let layer = "gzip:pack-after=1h";
    let (below, data) = (Below::new(), mixed(300_000));
    let fs = below.mount(layer);
    {
        let client = Client::new(&*fs);
        let (_, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::READ_WRITE).unwrap();
        for (number, piece) in data.chunks(PIECE).enumerate() {
            file.write_all((number * PIECE) as u64, piece).unwrap();
        }
        fs.shutdown().unwrap();
        let stored = below.bytes("file");
        assert!(stored.len() <= least_bytes(layer, &data), "{} bytes", stored.len());
    }
    assert!(read_file(&*below.mount(layer), "file").unwrap() == data);
}

/// Packing at unmount stops after ten seconds. The clock of this test advances six seconds at each
/// reading. The remaining files are still valid.
#[test]
fn unmount_packs_for_at_most_ten_seconds() {
    let (below, data) = (Below::new(), mixed(300_000));
    let context = StackContext::new(Arc::new(SteppingClock::new(6_000_000_000)));
    let layer = crate::layer("zstd:pack-after=1h");
    let fs = layer.build_in(Arc::clone(&below.fs), &context).unwrap();
    write_file_in_pieces(&*fs, "file", &data, PIECE);
    let before = below.bytes("file").len();
    fs.shutdown().unwrap();
    drop(fs);
    assert!(below.bytes("file").len() >= before, "it was given up");
    assert!(read_file(&*below.mount("zstd"), "file").unwrap() == data);
}

/// A file of less than a chunk consists only of a tail. Without packing, it would remain unencoded.
#[test]
fn long_tails_are_packed() {
    let layer = "gzip:pack-after=1ms";
    let (below, data) = (Below::new(), text(60_000));
    let fs = below.mount(layer);
    write_file_in_pieces(&*fs, "file", &data, PIECE);
    let least = least_bytes(layer, &data);
    wait_until(|| below.bytes("file").len() <= least);
    assert!(read_file(&*fs, "file").unwrap() == data);
}

/// Short tails are not packed, because a program that appends a line a minute would cause a rewrite
/// each time.
#[test]
fn short_tails_are_not_packed() {
    let (below, data) = (Below::new(), mixed(300_000));
    let fs = below.mount("gzip:pack-after=1h");
    write_file_in_pieces(&*fs, "file", &data, data.len() - 1000);
    let before = below.bytes("file");
    fs.shutdown().unwrap();
    assert!(below.bytes("file").starts_with(&before), "nothing was to be packed");
}

/// Once the mount is idle, all waiting files are packed after a single wait.
#[test]
fn an_idle_mount_packs_all_waiting_files() {
    const FILES: usize = 100;
    let after = Duration::from_millis(500);
    let (below, data) = (Below::new(), text(60_000));
    let fs = below.mount("lz4:pack-after=500ms");
    let names: Vec<_> = (0..FILES).map(|number| format!("file{number}")).collect();
    for name in &names {
        write_file_in_pieces(&*fs, name, &data, PIECE);
    }
    let (start, least) = (Instant::now(), least_bytes("lz4", &data));
    wait_until(|| names.iter().all(|name| below.bytes(name).len() <= least));
    let elapsed = start.elapsed();
    assert!(elapsed < after * FILES as u32 / 2, "{FILES} files took {elapsed:?}");
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < deadline, "not packed");
        std::thread::sleep(Duration::from_millis(1));
    }
}
