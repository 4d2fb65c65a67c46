//! Tests of packing, which rewrites the frames of a file in the order of their content, within the
//! same file.

use fslab_vfs_testing::scratch;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fslab_layers::observe::fault::{Fault, Program};
use fslab_sca::{self, Depth, Packed, Tool};
use fslab_vfs::{FallocateMode, FileSystem, Ino, MemFs, OpenMode, Request, Result, StatFs};
use fslab_vfs_testing::client::Client;
use tempfile::TempDir;

use super::below::{Below, CODECS, mixed, random, read_file, text, write_file};
use super::piped;

/// Overwrites parts of a file and closes it.
fn rewrite(fs: &dyn FileSystem, data: &mut [u8], rounds: Range<u64>) {
    let client = Client::new(fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    for round in rounds {
        let offset = (round * 7919 * 31 % (data.len() as u64 - 3000)) as usize;
        let piece = random(round, 3000);
        file.write_all(offset as u64, &piece).unwrap();
        data[offset..offset + 3000].copy_from_slice(&piece);
    }
    file.close().unwrap();
}

fn rewritten(layer: &str) -> (Below, Vec<u8>) {
    let below = Below::new();
    let fs = below.mount(layer);
    let data = write_and_rewrite(&*fs, 60);
    (below, data)
}

fn write_and_rewrite(fs: &dyn FileSystem, rounds: u64) -> Vec<u8> {
    let mut data = mixed(600_000);
    write_file(fs, "file", &data);
    rewrite(fs, &mut data, 0..rounds);
    data
}

#[test]
fn packed_files_are_small_and_readable_after_a_kill() {
    for codec in CODECS {
        let layer = format!("{codec}:chunk=16KiB,pack=close");
        let (below, data) = rewritten(&layer);
        let fresh = Below::new();
        write_file(&*fresh.mount(&layer), "file", &data);
        let (packed, least) = (below.bytes("file"), fresh.bytes("file").len());
        assert!(packed.len() < least + least / 16 + 8192, "{codec}: {} {least}", packed.len());
        // The content is found after the daemon is killed, and then also if the slots are
        // destroyed.
        assert!(read_file(&*below.mount(&layer), "file").unwrap() == data, "{codec}");
        below.overwrite("file", 128, &[0xEE; 800]);
        assert!(read_file(&*below.mount(&layer), "file").unwrap() == data, "{codec}: no slots");
        if ["gzip", "zstd", "lz4"].contains(&codec)
            && let Some(decoded) = piped(codec, &["-dc", "-"], &packed)
        {
            assert!(decoded == data, "{codec}: {} bytes", decoded.len());
        }
    }
}

/// Small holes are filled with zeros, so that tools decode the file; large ones remain holes.
#[test]
fn packing_fills_small_holes_and_keeps_large_ones() {
    const MIB: u64 = 1 << 20;
    for (hole, is_filled) in [(300_000, true), (40 * MIB, false)] {
        let below = Below::new();
        let layer = "gzip:chunk=16KiB,level=1,pack=close,garbage=4KiB";
        let fs = below.mount(layer);
        write_file(&*fs, "file", &text(100_000));
        let client = Client::new(&*fs);
        let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        file.write_all(100_000 + hole, &random(4, 100_000)).unwrap();
        let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
        file.fallocate(40_000, 20_000, punch).unwrap();
        for round in 0..200 {
            file.write_all(round * 97, b"again").unwrap();
        }
        file.truncate(hole + 210_000).unwrap();
        let expected = client.contents(ino).unwrap();
        file.close().unwrap();
        let found = read_file(&*below.mount(layer), "file").unwrap();
        assert!(found == expected, "{hole}");
        let packed = below.bytes("file");
        assert!(packed.len() < 140_000, "{hole}: {} bytes", packed.len());
        if let Some(decoded) = piped("gzip", &["-dc"], &packed) {
            assert_eq!(decoded == expected, is_filled, "{hole}: {} bytes", decoded.len());
        }
    }
}

/// After packing, content that was decoded before is not returned for another frame at the same
/// offset.
#[test]
fn nothing_stale_is_read_after_packing() {
    let below = Below::new();
    let fs = below.mount("copy:chunk=4KiB,pack=close,garbage=4KiB");
    let mut data = random(1, 200_000);
    write_file(&*fs, "file", &data);
    for round in 0..4 {
        assert!(read_pieces(&*fs) == data);
        rewrite(&*fs, &mut data, round * 40..round * 40 + 40);
        assert!(read_pieces(&*fs) == data);
    }
}

/// Reads parts of chunks, which are then cached in decoded form.
fn read_pieces(fs: &dyn FileSystem) -> Vec<u8> {
    let client = Client::new(fs);
    let attr = client.lookup(Ino::ROOT, "file").unwrap();
    let file = client.open(attr.ino, OpenMode::empty()).unwrap();
    let mut all = Vec::new();
    while (all.len() as u64) < attr.size {
        all.extend(file.read(all.len() as u64, 1000).unwrap());
    }
    file.close().unwrap();
    all
}

/// A reader that has the file open during packing reads the correct bytes.
#[test]
fn packing_an_open_file_does_not_disturb_its_reader() {
    let below = Below::new();
    let fs = below.mount("zstd:chunk=4KiB,level=1,pack=close,garbage=4KiB");
    let mut data = mixed(100_000);
    write_file(&*fs, "file", &data);
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let reader = client.open(ino, OpenMode::empty()).unwrap();
    let lengths: Vec<_> = (0..6)
        .map(|_| {
            let writer = client.open(ino, OpenMode::READ_WRITE).unwrap();
            for round in 0..40 {
                let piece = random(round, 2000);
                writer.write_all(round * 2111, &piece).unwrap();
                data[(round * 2111) as usize..][..2000].copy_from_slice(&piece);
            }
            client.subject().flush(&client.request(), ino, writer.handle).unwrap();
            writer.close().unwrap();
            assert!(reader.read(0, data.len()).unwrap() == data);
            below.bytes("file").len()
        })
        .collect();
    assert!(lengths.iter().all(|length| *length < 160_000), "{lengths:?}");
    reader.close().unwrap();
}

/// The tool packs a file with several names in place; names, rights, times and xattrs are kept.
#[test]
fn pack_tool_keeps_names_modes_times_and_xattrs() {
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let stack = |layer: &str| -> Arc<dyn FileSystem> {
        let stack = format!("{layer} / {}", scratch.path().display());
        crate::stack(&stack).build().unwrap()
    };
    let fs = stack("gzip:chunk=16KiB,level=1,pack=off");
    let mut data = mixed(600_000);
    write_file(&*fs, "file", &data);
    rewrite(&*fs, &mut data, 0..60);
    let path = scratch.path().join("file");
    let busy = fslab_sca::pack(&path, &|_| ()).unwrap_err().to_string();
    assert!(busy.contains("using it"), "{busy}");
    fs.shutdown().unwrap();
    drop(fs);
    std::fs::hard_link(&path, scratch.path().join("other")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4751)).unwrap();
    let before = std::fs::metadata(&path).unwrap();
    assert_eq!(Tool::open(&path).unwrap().figures().unwrap().form, "log");
    let done = fslab_sca::pack(&path, &|_| ()).unwrap();
    assert_eq!(done.outcome, Packed::Now);
    assert!(done.after_bytes < done.before_bytes, "{done:?}");
    let after = std::fs::metadata(&path).unwrap();
    let kept = |found: &std::fs::Metadata| {
        (found.ino(), found.mode(), found.mtime(), found.mtime_nsec(), found.nlink(), found.uid())
    };
    assert_eq!(kept(&after), kept(&before));
    assert!(after.len() < before.len());
    let tool = Tool::open(&path).unwrap();
    assert_eq!(tool.figures().unwrap().form, "packed");
    assert_eq!(tool.check(Depth::Everything).unwrap(), []);
    drop(tool);
    assert_eq!(fslab_sca::pack(&path, &|_| ()).unwrap().outcome, Packed::Already);
    assert!(read_file(&*stack("gzip"), "other").unwrap() == data);
    refuses_others(scratch.path());
}

fn refuses_others(directory: &Path) {
    let plain = directory.join("plain");
    std::fs::write(&plain, b"no stored file").unwrap();
    let refused = fslab_sca::pack(&plain, &|_| ()).unwrap_err().to_string();
    assert!(refused.contains("not a stored file"), "{refused}");
    assert_eq!(std::fs::read(&plain).unwrap(), b"no stored file");
}

/// A file with unreadable content is not packed, and the content is kept for a repair.
#[test]
fn damaged_files_are_not_packed() {
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let (below, data) = rewritten("copy:chunk=16KiB,pack=off");
    let path = scratch.path().join("file");
    let mut stored = below.bytes("file");
    let damages = |place: &usize| {
        let mut damaged = stored.clone();
        damaged[*place] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let found = Tool::open(&path).unwrap().check(Depth::Everything).unwrap();
        found.iter().any(|finding| finding.chunk.is_some())
    };
    // Finds a byte in the body of a live frame, and damages it.
    let place = (5000..stored.len()).step_by(7000).find(damages).unwrap();
    stored[place] ^= 1;
    assert_eq!(fslab_sca::pack(&path, &|_| ()).unwrap().outcome, Packed::GivenUp);
    let mut now = std::fs::read(&path).unwrap();
    assert_eq!(now[place], stored[place]);
    now[place] ^= 1;
    std::fs::write(&path, &now).unwrap();
    let mut found = Vec::new();
    Tool::open(&path).unwrap().cat(&mut found).unwrap();
    assert!(found == data);
}

/// Files are packed while the mount is idle, and reads during and after packing return the correct
/// bytes.
#[test]
fn idle_mounts_pack() {
    let below = Below::new();
    let layer = "zstd:chunk=16KiB,level=1,pack-after=1ms";
    let fs = below.mount(layer);
    let mut data = mixed(600_000);
    write_file(&*fs, "file", &data);
    rewrite(&*fs, &mut data, 0..100);
    wait_until_packed(&below, layer, &data);
    assert!(read_file(&*fs, "file").unwrap() == data);
    drop(fs);
    assert!(read_file(&*below.mount(layer), "file").unwrap() == data);
}

/// Waits until the file is about as long as one that was written sequentially.
fn wait_until_packed(below: &Below, layer: &str, data: &[u8]) {
    let fresh = Below::new();
    write_file(&*fresh.mount(layer), "file", data);
    let least = fresh.bytes("file").len();
    let deadline = Instant::now() + Duration::from_secs(120);
    while below.bytes("file").len() > least + least / 16 + 8192 {
        assert!(Instant::now() < deadline, "not packed: {} bytes", below.bytes("file").len());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Packing moves all content past the end of the file and back, and pauses after each step to keep
/// to its rate. At least 200 KB, the incompressible part of the content, are moved twice.
#[test]
fn packing_keeps_to_its_rate() {
    let below = Below::new();
    let layer = "zstd:chunk=16KiB,level=1,pack-after=1ms,pack-rate=512KiB";
    let fs = below.mount(layer);
    let mut data = mixed(600_000);
    write_file(&*fs, "file", &data);
    let start = Instant::now();
    rewrite(&*fs, &mut data, 0..100);
    wait_until_packed(&below, layer, &data);
    let (elapsed, least) = (start.elapsed(), Duration::from_secs_f64(400_000.0 / 524_288.0));
    assert!(elapsed >= least, "packed in {elapsed:?}, where {least:?} is the least");
    assert!(read_file(&*fs, "file").unwrap() == data);
}

/// A writer during background packing reads back the data that it wrote.
#[test]
fn writes_during_packing_are_read_back_correctly() {
    let below = Below::new();
    let layer = "zstd:chunk=4KiB,level=1,pack-after=0s,pack-rate=1GiB,garbage=4KiB,cache=64KiB";
    let fs = below.mount(layer);
    let mut data = mixed(200_000);
    write_file(&*fs, "file", &data);
    for round in 0..60 {
        rewrite(&*fs, &mut data, round * 50..round * 50 + 5 + round % 40);
        assert!(read_file(&*fs, "file").unwrap() == data, "round {round}");
    }
    // The layer is dropped without a shutdown, which interrupts packing like a kill.
    drop(fs);
    assert!(read_file(&*below.mount(layer), "file").unwrap() == data);
}

/// If any call fails while a file is packed, no data written before or after is lost. The open
/// handle, a new handle and a new mount return all data.
#[test]
fn failed_call_during_packing_loses_no_data() {
    for (operation, least) in [("write", 5), ("fsync", 8), ("setattr", 3), ("fallocate", 1)] {
        let calls = (1..).take_while(|call| fails_while_packing(operation, *call)).count();
        assert!(calls >= least, "{operation}: only {calls} calls could fail");
    }
}

/// Makes one call of an operation fail during packing; returns whether the layer made that many
/// calls of this operation.
fn fails_while_packing(operation: &str, call: u64) -> bool {
    let (below, mut data) = rewritten("copy:chunk=4KiB,pack=off");
    let rule = format!("{operation} nth {call} error EIO");
    let program = Program::parse("failing", &rule, 0).unwrap();
    let fault = Arc::new(Fault::new(Arc::clone(&below.fs), program, Box::new(|_, _| Ok(()))));
    let layer = crate::layer("copy:chunk=4KiB,pack=close,garbage=4KiB");
    let fs = layer.build(fault.clone()).unwrap();
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    let mut write = |offset: usize, bytes: &[u8]| {
        if file.write_all(offset as u64, bytes).is_ok() {
            data[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
    };
    write(5000, b"before");
    // Packing fails, or it repeats the failed call later and succeeds.
    client.subject().flush(&client.request(), ino, file.handle).ok();
    write(70_000, b"afterwards");
    assert!(file.read(0, data.len()).unwrap() == data, "{operation} {call}: of the open file");
    file.close().ok();
    let found = read_file(&*fs, "file");
    assert!(found.is_ok_and(|found| found == data), "{operation} {call}: opened again");
    // The first layer makes no further calls, as if its daemon had been killed.
    let found = read_file(&*below.mount("copy:chunk=4KiB,pack=off"), "file");
    assert!(found.is_ok_and(|found| found == data), "{operation} {call}: by the next daemon");
    fault.counts().iter().any(|rule| rule.struck > 0)
}

/// After a failed sync it is unknown which data is durable. So the next open reads the frames and
/// does not trust the size xattr.
#[test]
fn failed_fsync_leaves_no_trusted_mark() {
    const STATE: usize = 2;
    for (failing, is_durable) in [(1, false), (100, true)] {
        let below = Below::new();
        let rule = format!("fsync nth {failing} error EIO");
        let program = Program::parse("failing", &rule, 0).unwrap();
        let fault = Arc::new(Fault::new(Arc::clone(&below.fs), program, Box::new(|_, _| Ok(()))));
        let layer = crate::layer("copy:chunk=4KiB,pack=off");
        let fs = layer.build(fault).unwrap();
        let client = Client::new(&*fs);
        let (_, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::EXCLUSIVE).unwrap();
        file.write_all(0, &text(10_000)).unwrap();
        assert_eq!(file.fsync(false).is_ok(), is_durable);
        file.close().unwrap();
        let beneath = Client::new(&*below.fs);
        let ino = beneath.lookup(Ino::ROOT, "file").unwrap().ino;
        let mark = beneath.getxattr(ino, "user.fslab.sca");
        assert_eq!(mark.is_ok_and(|mark| mark[STATE] != 0), is_durable);
        assert!(read_file(&*fs, "file").unwrap() == text(10_000));
    }
}

/// A file system that panics once, as a bug would, when the background thread requests the free
/// space.
#[derive(Default)]
struct PanicsOnce {
    inner: MemFs,
    is_done: AtomicBool,
}

impl FileSystem for PanicsOnce {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn statfs(&self, request: &Request, ino: Ino) -> Result<StatFs> {
        let is_packer = std::thread::current().name() == Some("reclaimer");
        let panics = is_packer && !self.is_done.swap(true, Ordering::SeqCst);
        assert!(!panics, "meant: packing fails as a bug would");
        self.inner.statfs(request, ino)
    }
}

/// If the panic ended the packing thread, no file would be packed until the next mount.
#[test]
fn packing_continues_after_a_panic() {
    let below = Arc::new(PanicsOnce::default());
    let layer = "zstd:chunk=16KiB,level=1,pack-after=1ms";
    let fs = crate::layer(layer).build(below.clone()).unwrap();
    let mut data = mixed(600_000);
    write_file(&*fs, "file", &data);
    rewrite(&*fs, &mut data, 0..100);
    let deadline = Instant::now() + Duration::from_secs(120);
    while !below.is_done.load(Ordering::SeqCst) {
        assert!(Instant::now() < deadline, "nothing was to be packed");
        std::thread::sleep(Duration::from_millis(1));
    }
    rewrite(&*fs, &mut data, 100..110);
    wait_until_packed(&Below { fs: below }, layer, &data);
    assert!(read_file(&*fs, "file").unwrap() == data);
}

/// Ordinary tools still decode the data that truncation removed, even if the file grows to its old
/// size again.
#[test]
fn truncated_file_counts_as_packed_only_after_packing() {
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let path = scratch.path().join("file");
    for codec in ["gzip", "zstd", "lz4"] {
        for (end, appended) in [(300_000, &b""[..]), (300_500, &[7; 500])] {
            let (stored, expected) = cut_and_grown(codec, end, appended);
            std::fs::write(&path, &stored).unwrap();
            let form = Tool::open(&path).unwrap().figures().unwrap().form;
            assert_eq!(form, "log", "{codec}, {end}");
            assert_eq!(
                fslab_sca::pack(&path, &|_| ()).unwrap().outcome,
                Packed::Now,
                "{codec}, {end}"
            );
            let form = Tool::open(&path).unwrap().figures().unwrap().form;
            assert_eq!(form, "packed", "{codec}, {end}");
            if let Some(decoded) = piped(codec, &["-dc"], &std::fs::read(&path).unwrap()) {
                assert!(decoded == expected, "{codec}, {end}: {} bytes", decoded.len());
            }
        }
    }
}

/// A mount does not pack an overwritten file with little garbage. But ordinary tools would print
/// the file's old content too, so `fslab_sca::pack` packs it.
#[test]
fn overwritten_small_file_is_packed_by_the_tool() {
    const LARGE_HOLE: u64 = 64 << 20;
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let path = scratch.path().join("file");
    for (codec, hole) in ["gzip", "zstd", "lz4"].into_iter().flat_map(|c| [(c, false), (c, true)]) {
        let below = Below::new();
        let fs = below.mount(&format!("{codec}:chunk=128KiB"));
        let form = || {
            std::fs::write(&path, below.bytes("file")).unwrap();
            Tool::open(&path).unwrap().figures().unwrap().form
        };
        let mut content = random(9, 9000);
        write_file(&*fs, "file", &content);
        if hole {
            let client = Client::new(&*fs);
            let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
            let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
            file.write_all(LARGE_HOLE, &content).unwrap();
            file.close().unwrap();
        }
        assert_eq!(form(), if hole { "packed, sparse" } else { "packed" }, "{codec}");
        rewrite(&*fs, &mut content, 0..5);
        fs.shutdown().unwrap();
        assert_eq!(form(), "log", "{codec}, hole: {hole}");
        assert!(Tool::open(&path).unwrap().gains_by_packing().unwrap());
        assert_eq!(fslab_sca::pack(&path, &|_| {}).unwrap().outcome, Packed::Now);
        let tool = Tool::open(&path).unwrap();
        let packed = if hole { "packed, sparse" } else { "packed" };
        assert_eq!(tool.figures().unwrap().form, packed);
        assert!(!tool.gains_by_packing().unwrap());
        drop(tool);
        assert_eq!(fslab_sca::pack(&path, &|_| {}).unwrap().outcome, Packed::Already);
        if let Some(decoded) = piped(codec, &["-dc", "-"], &std::fs::read(&path).unwrap()) {
            let copies = if hole { 2 } else { 1 };
            assert!(decoded.len() == copies * content.len() && decoded.starts_with(&content));
        }
    }
}

/// Writes 300,000 bytes, truncates the file to 100,000 bytes, writes `appended` at 300,000, and
/// sets the size to `end`. Returns the stored file and its content.
fn cut_and_grown(codec: &str, end: u64, appended: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let below = Below::new();
    let fs = below.mount(&format!("{codec}:chunk=4KiB,pack=off"));
    let mut content = random(9, 300_000);
    write_file(&*fs, "file", &content);
    let client = Client::new(&*fs);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.truncate(100_000).unwrap();
    file.write_all(300_000, appended).unwrap();
    file.truncate(end).unwrap();
    file.close().unwrap();
    content[100_000..].fill(0);
    content.extend(appended);
    (below.bytes("file"), content)
}
