//! Tests writes that need more space than the lower file system has.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use fslab_sys::descriptor::close;
use fslab_sys::make_file_system::Kind;
use fslab_sys::mounts::Mount;
use fslab_vfs_testing::skip::skip;
use rustix::io::Errno;

use crate::aging::Fresh;
use crate::support::{Place, require_mounting, soon};
use crate::tiering::noise;

const MIB: usize = 1 << 20;

/// Returns a place whose lower directory is a file system of 1 MiB.
fn small_place() -> (Place, Mount) {
    let place = Place::new();
    let lower = Mount::new(Path::new("tmpfs"), &place.lower, "tmpfs", "size=1m").unwrap();
    (place, lower)
}

/// In every kind of mount, write or close reports a full disk, as docs/SEMANTICS.md promises in
/// sections 2 and 4.
#[test]
fn full_disk_is_reported_and_earlier_data_is_kept() {
    require_mounting!();
    let stacks = [["-l", "null"], ["-l", "null:passthrough=off"], ["-l", "copy"]];
    for arguments in stacks.into_iter().chain([["-o", "writeback"]]) {
        let (place, lower) = small_place();
        place.mount(&arguments);
        fs::write(place.point.join("earlier"), vec![1; 100_000]).unwrap();
        let mut file = File::create(place.point.join("large")).unwrap();
        let written = file.write_all(&vec![2; 4 << 20]).map_err(|error| error.raw_os_error());
        let closed = close(file.into()).map_err(|errno| Some(errno.raw_os_error()));
        let no_space = Some(Errno::NOSPC.raw_os_error());
        assert_eq!(written.and(closed), Err(no_space), "{arguments:?}");
        assert_eq!(fs::read(place.point.join("earlier")).unwrap(), vec![1; 100_000]);
        place.umount();
        lower.unmount().unwrap();
    }
}

/// Writes 800,000 bytes with write(2) or a shared mapping, and syncs them. The kernel first accepts
/// the data into its cache. Prints the errno of the sync.
const WRITE_AND_SYNC: &str = "
import mmap, os, sys
path, way, length = sys.argv[1], sys.argv[2], 800000
file = os.open(path, os.O_RDWR | os.O_CREAT)
data = os.urandom(length)
if way == 'write':
    os.write(file, data)
    sync = lambda: os.fsync(file)
else:
    os.ftruncate(file, length)
    mapped = mmap.mmap(file, length)
    mapped[:] = data
    sync = mapped.flush
try:
    sync()
    print(0)
except OSError as error:
    print(error.errno)
";

/// The kernel writes all dirty pages of a file in one request, but there is space for only some of
/// them. The other pages must not count as written.
#[test]
fn partly_written_back_pages_report_enospc() {
    require_mounting!();
    let cases: [(&[&str], &str); 4] = [
        (&["-o", "writeback"], "write"),
        (&["-o", "writeback", "-l", "copy"], "write"),
        (&["-l", "null:passthrough=off"], "map"),
        (&["-l", "copy"], "map"),
    ];
    for (arguments, way) in cases {
        let (place, lower) = small_place();
        place.mount(arguments);
        fs::write(place.point.join("earlier"), vec![1; 500_000]).unwrap();
        let path = place.point.join("part");
        let mut python = Command::new("python3");
        let Ok(output) = python.args(["-c", WRITE_AND_SYNC]).arg(path).arg(way).output() else {
            skip("full_disk::partly_written_back_pages_report_enospc", "no python3");
            return;
        };
        let told = String::from_utf8_lossy(&output.stdout);
        let no_space = Errno::NOSPC.raw_os_error().to_string();
        assert_eq!(told.trim(), no_space, "{arguments:?}: {output:?}");
        place.umount();
        lower.unmount().unwrap();
    }
}

/// Returns a place over a separate ext4 file system. The place is the last element, because
/// variables are dropped in reverse order and the place must be dropped first.
fn on_ext4(size: usize) -> Option<(Fresh, Place)> {
    let disk = Fresh::of_size(Kind::Ext4, size as u64)?;
    let mut place = Place::new();
    place.lower = disk.root();
    Some((disk, place))
}

/// Writes until the file system is full. Returns the number of bytes that write(2) accepted.
fn fill(file: &File, mut offset: u64, data: &[u8]) -> u64 {
    let start = offset;
    loop {
        for block in data.chunks(64 << 10) {
            match file.write_at(block, offset) {
                Ok(count) => offset += count as u64,
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
                    return offset - start;
                }
            }
        }
    }
}

#[test]
fn a_write_only_descriptor_is_refused_after_a_failed_write_back() {
    require_mounting!();
    let no_space = Some(Errno::NOSPC.raw_os_error());
    for layer in ["null", "zstd"] {
        let Some((_disk, place)) = on_ext4(32 * MIB) else { return };
        place.mount(&["-l", layer, "-o", "writeback"]);
        let (earlier, path) = (place.point.join("earlier"), place.point.join("large"));
        fs::write(&earlier, noise(1, 8 * MIB)).unwrap();
        File::open(&earlier).unwrap().sync_all().unwrap();
        let data = noise(2, MIB);
        let mut file = File::create(&path).unwrap();
        // The kernel accepts more data than fits on the disk. Writing it back fails later.
        for _ in 0..48 {
            if file.write_all(&data).is_err() {
                break;
            }
        }
        // syncfs does not consume the file's error, which a later fsync must report.
        let _written_back_in_part = rustix::fs::syncfs(&file);
        for _ in 0..3 {
            // Other requests for the file must not make the kernel accept more writes.
            fs::metadata(&path).unwrap();
            assert!(fs::read_dir(&place.point).unwrap().count() >= 2);
            let written = file.write(&data).map_err(|error| error.raw_os_error());
            assert_eq!(written, Err(no_space), "{layer}");
        }
        let synced = file.sync_all().map_err(|error| error.raw_os_error());
        assert_eq!(synced, Err(no_space), "{layer}");
        let both = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert!(fill(&both, 64 << 20, &data) < 4 * MIB as u64, "{layer}: written through");
        assert_eq!(both.read_at(&mut [0; 10], 0).unwrap(), 10);
        fs::remove_file(&earlier).unwrap();
        soon("writes are accepted again", || file.write_at(&data, 64 << 20).is_ok());
        file.sync_all().unwrap();
        drop((file, both));
        place.umount();
    }
}

/// Returns the bytes of random data that a new ext4 file system of 64 MiB accepts, through a layer
/// or without one. Each write has 64 KiB.
fn accepted(layer: Option<&str>) -> Option<u64> {
    let (_disk, place) = on_ext4(64 * MIB)?;
    let directory = if layer.is_some() { &place.point } else { &place.lower };
    if let Some(layer) = layer {
        place.mount(&["-l", layer]);
    }
    let file = File::create(directory.join("file")).unwrap();
    let count = fill(&file, 0, &noise(3, 64 * MIB));
    drop(file);
    if layer.is_some() {
        place.umount();
    }
    Some(count)
}

/// Through a codec, a full disk holds at least the share of data that docs/SEMANTICS.md states in
/// the section "Known differences".
#[test]
fn codecs_reach_their_documented_share_of_a_full_disk() {
    require_mounting!();
    let Some(plain) = accepted(None) else { return };
    let percents =
        [("null", 99), ("copy", 95), ("gzip", 95), ("zstd", 95), ("lz4", 95), ("uuencode", 68)];
    for (layer, percent_min) in percents {
        let Some(count) = accepted(Some(layer)) else { return };
        let percent = 100 * count / plain;
        eprintln!("{layer}: {count} bytes, {percent} %");
        assert!(percent >= percent_min, "{layer}: {percent} % of {plain} bytes");
    }
}
