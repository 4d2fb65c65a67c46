//! Tests that files are not released if they are open or mapped other than through the tier's
//! mount.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};

use fslab_sys::make_file_system::Kind;

use crate::support::{require_mounting, run, soon};
use crate::tiering::{Tiered, noise};

const MIB: usize = 1 << 20;

/// Maps a file, closes it, and reports this. Then waits for a line or the end of its input. Exits
/// with 0 if the mapping has the expected bytes.
const MAPS: &str = "
import hashlib, mmap, sys
with open(sys.argv[1], 'rb') as file:
    mapped = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
open(sys.argv[2], 'w').close()
sys.stdin.readline()
sys.exit(hashlib.sha256(mapped[:]).hexdigest() != sys.argv[3])
";

/// A program that has mapped a file and closed it.
struct Mapper(Child);

impl Mapper {
    fn start(tiered: &Tiered, file: &std::path::Path) -> Self {
        let sum = Command::new("sha256sum").arg(file).output().unwrap().stdout;
        let sum = String::from_utf8(sum).unwrap();
        let ready = tiered.beside("mapped");
        let child = Command::new("python3")
            .args(["-c", MAPS])
            .args([file, &ready])
            .arg(&sum[..64])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        soon("the file is mapped", || ready.exists());
        fs::remove_file(ready).unwrap();
        Self(child)
    }

    /// Ends the program. Returns whether its mapping still had the expected bytes.
    fn ends_well(mut self) -> bool {
        drop(self.0.stdin.take());
        self.0.wait().unwrap().success()
    }
}

fn release_fails(tiered: &Tiered, name: &str) -> bool {
    let (code, message) = run(&["tier", "release", tiered.path(name).to_str().unwrap()]);
    let is_used = ["is in use", "is open in the lower directory"];
    code == 1 && is_used.iter().any(|reason| message.contains(reason))
}

fn check(kind: Option<Kind>) {
    let tiered = Tiered::over(kind);
    let data = noise(21, 2 * MIB);
    for name in ["open", "mapped", "through"] {
        fs::write(tiered.tree().join(name), &data).unwrap();
    }
    let open = fs::File::open(tiered.tree().join("open")).unwrap();
    let mapped = Mapper::start(&tiered, &tiered.tree().join("mapped"));
    tiered.place().mount(&["-l", "tier"]);
    tiered.of("archive", "");
    let through = Mapper::start(&tiered, &tiered.path("through"));
    for name in ["open", "mapped", "through"] {
        assert!(release_fails(&tiered, name), "{name} over {kind:?}");
    }
    let mut found = vec![0; data.len()];
    open.read_exact_at(&mut found, 0).unwrap();
    assert!(found == data, "over {kind:?}");
    drop(open);
    for mapper in [mapped, through] {
        assert!(mapper.ends_well(), "over {kind:?}");
    }
    for name in ["open", "mapped", "through"] {
        tiered.of("release", name);
        assert!(tiered.of("state", name).starts_with("A offline "), "{name} over {kind:?}");
        assert!(fs::read(tiered.path(name)).unwrap() == data);
    }
    tiered.umount();
}

/// The mount can't see two kinds of use: files that were opened before it was mounted, and mappings
/// of passed-through files whose descriptor was closed. Such files must not be released.
#[test]
fn files_open_or_mapped_behind_the_mount_are_not_released() {
    require_mounting!();
    for kind in [None, Some(Kind::Ext4), Some(Kind::Xfs), Some(Kind::Btrfs)] {
        check(kind);
    }
}
