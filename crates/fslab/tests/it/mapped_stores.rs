//! Times of files that are changed through shared mappings.

use std::fs;
use std::process::Command;

use crate::support::{Place, require_mounting};

/// Prints after which steps the times of a file differ from those before its store. The kernel may
/// believe times for long that it was told shortly before the file was opened.
const STORE: &str = r"
import mmap, os, sys, time
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
mapped = mmap.mmap(file, 8192)
os.close(file)
before = times()
time.sleep(tick)
mapped[0] = 1
mapped.flush()
print('msync', differ(before))
before = times()
time.sleep(tick)
mapped[5000] = 1
mapped.close()
print('munmap', differ(before))
";

#[test]
fn stores_through_shared_mappings_change_both_times() {
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
