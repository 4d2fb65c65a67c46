//! Tests appending through mounts. A write appends if O_APPEND is set at the time of the write;
//! fcntl(2) may change the flag after opening. Pages of shared mappings are written at their offset
//! even with O_APPEND.

use std::path::Path;
use std::process::Command;

use fslab_vfs_testing::skip::skip;

use crate::support::{Place, require_mounting, run};

/// Opens a file for appending, writes it in several ways, and checks its content.
const WRITES: &str = "
import fcntl, mmap, os, sys
path = sys.argv[1]

def holds(what, wanted):
    found = open(path, 'rb').read()
    if found != wanted:
        sys.exit('%s: %d bytes, %r' % (what, len(found), found[:20]))

page = b'o' * 4096
with open(path, 'wb') as file:
    file.write(page)
file = os.open(path, os.O_RDWR | os.O_APPEND)
with mmap.mmap(file, 4096) as mapped:
    mapped[0:3] = b'map'
    mapped.flush()
holds('a map', b'map' + page[3:])
os.pwrite(file, b'end', 0)
holds('an append', b'map' + page[3:] + b'end')
if sys.argv[2] == 'at opening':
    sys.exit(0)
fcntl.fcntl(file, fcntl.F_SETFL, 0)
os.pwrite(file, b'place', 0)
holds('no append any more', b'place' + page[5:] + b'end')
fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
os.pwrite(file, b'again', 1)
holds('an append again', b'place' + page[5:] + b'endagain')
os.close(file)
plain = os.open(path, os.O_RDWR)
fcntl.fcntl(plain, fcntl.F_SETFL, os.O_APPEND)
os.truncate(path, 3)
os.pwrite(plain, b'!', 100)
holds('an append that began later', b'pla!')
os.close(plain)

# The daemon gets the pieces of a direct write at the same time.
pieces = b''.join(bytes([number]) * (1 << 20) for number in range(8))
try:
    direct = os.open(path + '.direct', os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_DIRECT)
except OSError:
    sys.exit(0)
with mmap.mmap(-1, len(pieces)) as aligned:
    aligned.write(pieces)
    for turn in range(4):
        os.write(direct, aligned)
os.close(direct)
found = open(path + '.direct', 'rb').read()
if found != pieces * 4:
    sys.exit('a direct append: %r' % [found[at] for at in range(0, len(found), 1 << 20)])
";

/// Returns whether appending depends only on the flags of the open call. With passthrough, the
/// kernel opens the lower file with these flags, and does not check them again at a write (Linux
/// 6.18).
fn is_settled_at_opening(stack: &str) -> bool {
    stack == "null" || stack == "tier"
}

fn appends_rightly(directory: &Path, what: &str) {
    let path = directory.join("file");
    let until = if is_settled_at_opening(what) { "at opening" } else { "at any time" };
    let mut python = Command::new("python3");
    let Ok(output) = python.arg("-c").arg(WRITES).arg(path).arg(until).output() else {
        skip("appends through a mount", "no python3");
        return;
    };
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {told}");
}

#[test]
fn appends_through_a_mount_go_to_the_end_of_the_file() {
    require_mounting!();
    let plain = Place::new();
    appends_rightly(&plain.lower, "the lower file system");
    for stack in ["null", "null:passthrough=off", "gzip", "zstd:tails=off"] {
        let place = Place::mounted(&["-l", stack]);
        appends_rightly(&place.point, stack);
        place.umount();
        let place = Place::mounted(&["-o", "writeback", "-l", stack]);
        appends_rightly(&place.point, &format!("{stack}, writeback"));
        place.umount();
    }
    for leaf in ["mem:", "ext2:memory"] {
        let mut place = Place::new();
        place.lower = leaf.into();
        place.mount(&[]);
        appends_rightly(&place.point, leaf);
        place.umount();
    }
}

#[test]
fn appends_through_a_tier_go_to_the_end_of_the_file() {
    require_mounting!();
    let place = Place::new();
    let [lower, home, archive] =
        ["lower", "home", "archive"].map(|name| place.lower.with_file_name(name));
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (home, archive) = (text(&home), text(&archive));
    let made = run(&["tier", "init", "--archive", &archive, "--home", &home, &text(&lower)]);
    assert_eq!(made.0, 0, "{}", made.1);
    place.mount(&["-l", "tier"]);
    appends_rightly(&place.point, "tier");
    place.umount();
    place.mount(&["-o", "writeback", "-l", "tier"]);
    appends_rightly(&place.point, "tier, writeback");
    place.umount();
}
