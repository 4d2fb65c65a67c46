//! What becomes of writes for which the file system below has no room, or room for a part.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use fslab_sys::descriptor::close;
use fslab_sys::mounts::Mount;
use fslab_vfs::testing::skip::skip;
use rustix::io::Errno;

use crate::support::{Place, require_mounting};

/// A place over a file system of 1 MiB.
fn small_place() -> (Place, Mount) {
    let place = Place::new();
    let lower = Mount::new(Path::new("tmpfs"), &place.lower, "tmpfs", "size=1m").unwrap();
    (place, lower)
}

/// Promises 2 and 4: with whatever takes the writes, the error comes at a write or at close.
#[test]
fn a_full_disk_is_reported_and_earlier_data_stays() {
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

/// Writes most of a file, which the kernel takes for written, and syncs it: by write(2), or through
/// a map that is shared. Answers the number of the error.
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

/// One request of the kernel's writes all that it held, and there is room for a part of it: the
/// rest must not pass for written.
#[test]
fn pages_that_were_written_in_part_are_reported() {
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
            skip("full_disk::pages_that_were_written_in_part_are_reported", "no python3");
            return;
        };
        let told = String::from_utf8_lossy(&output.stdout);
        let no_space = Errno::NOSPC.raw_os_error().to_string();
        assert_eq!(told.trim(), no_space, "{arguments:?}: {output:?}");
        place.umount();
        lower.unmount().unwrap();
    }
}
