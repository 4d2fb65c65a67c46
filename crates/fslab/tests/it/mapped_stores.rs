//! Tests the times of files that are changed through shared mappings, and holes between dirty
//! pages.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

use rustix::fs::SeekFrom;

use crate::support::{Place, require_mounting};

/// Stores into a mapped file, and prints whether its times changed after msync and after munmap.
/// The times are requested just before the file is opened and after it is closed, so the kernel may
/// have the old times in its cache. The module `mmap` is not used, because it keeps the file open.
const STORE: &str = r"
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
path = sys.argv[1]
tick = 0.025
def times():
    found = os.stat(path)
    return found.st_mtime_ns, found.st_ctime_ns
def differ(before):
    return all(after != one for after, one in zip(times(), before))
time.sleep(tick)
times()
file = os.open(path, os.O_RDWR)
READ_WRITE, SHARED, SYNC = 3, 1, 4
zero = ctypes.c_long(0)
address = ctypes.c_void_p(libc.mmap(zero, ctypes.c_size_t(8192), READ_WRITE, SHARED, file, zero))
os.close(file)
mapped = (ctypes.c_char * 8192).from_address(address.value)
time.sleep(tick)
before = times()
time.sleep(tick)
mapped[0] = b'1'
assert libc.msync(address, ctypes.c_size_t(8192), SYNC) == 0
print('msync', differ(before))
before = times()
time.sleep(tick)
mapped[5000] = b'1'
assert libc.munmap(address, ctypes.c_size_t(8192)) == 0
print('munmap', differ(before))
";

/// Seeking must find the holes between dirty pages that are not written back yet, although the
/// lower file may still be empty.
#[test]
fn seek_finds_holes_between_dirty_pages() {
    require_mounting!();
    for layer in ["null", "zstd"] {
        let place = Place::on_disk();
        place.mount(&["-o", "writeback", "-l", layer]);
        let file = fs::File::create_new(place.point.join("sparse")).unwrap();
        let megabyte = vec![7; 1 << 20];
        [0, 2, 4].iter().for_each(|at| file.write_all_at(&megabyte, at << 20).unwrap());
        let seek = |to| rustix::fs::seek(&file, to).map(|found| found >> 20);
        assert_eq!(seek(SeekFrom::Hole(0)), Ok(1), "{layer}");
        file.write_all_at(&megabyte, 8 << 20).unwrap();
        assert_eq!(seek(SeekFrom::Data(5 << 20)), Ok(8), "{layer}");
        assert_eq!(seek(SeekFrom::Hole(8 << 20)), Ok(9), "{layer}");
        assert_eq!(seek(SeekFrom::Hole(9 << 20)), Err(rustix::io::Errno::NXIO), "{layer}");
        drop(file);
        place.umount();
    }
}

#[test]
fn stores_through_shared_mappings_update_mtime_and_ctime() {
    require_mounting!();
    for options in ["attr_timeout=1h", "writeback,attr_timeout=1h"] {
        for layer in ["null", "null:passthrough=off", "zstd"] {
            let place = Place::mounted(&["-o", options, "-l", layer]);
            let path = place.point.join("file");
            fs::write(&path, [0; 8192]).unwrap();
            let output = Command::new("python3").args(["-c", STORE]).arg(&path).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(said, "msync True\nmunmap True\n", "{layer}, {options}: {errors}");
            place.umount();
        }
    }
}
