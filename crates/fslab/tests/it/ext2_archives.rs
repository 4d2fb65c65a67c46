//! Tests `fslab ext2 import` with tar archives that GNU tar makes, and with archives that are
//! refused.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::ext2::{check, fails, image, text, works};
use crate::support::Place;

fn shell(directory: &Path, script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Makes files of all kinds, one with a name longer than the 100 bytes of the oldest tar header.
const FILES: &str = "\
    mkdir -p s/deep/deeper && cd s && echo bytes > deep/deeper/file &&
    ln deep/deeper/file 'second name' && ln -s /etc/passwd link && mkfifo pipe &&
    mknod null c 1 3 && truncate -s 3M sparse && printf end >> sparse && chmod 750 deep &&
    chmod 6711 pipe && touch -d 1969-12-31T23:59:58.25Z old &&
    echo long > $(printf 'n%.0s' $(seq 150)) && head -c 2500000 /dev/urandom > large &&
    setfattr -n user.colour -v blue deep/deeper/file && touch -d 2001-02-03T04:05:06.789Z deep";

/// Lists all attributes of every file, except for the entries that every image has.
const LISTING: &str = "\
    find . -mindepth 1 -path ./lost+found -prune -o -printf '%P %y %m %U %G %n %T@ %l\n' | sort
    find . -type f -exec md5sum {} + | sort; getfattr -d deep/deeper/file";

/// Tests archives in each format of GNU tar.
#[test]
fn import_unpacks_archives_like_gnu_tar() {
    if !rustix::process::geteuid().is_root() {
        return fslab_vfs_testing::skip::skip(
            "import_unpacks_archives_like_gnu_tar",
            "not root: no devices",
        );
    }
    let place = Place::new();
    shell(&place.lower, FILES);
    // The format ustar supports neither long names nor times before 1970.
    for how in ["pax --xattrs", "gnu --sparse", "ustar --exclude=n*n --exclude=old"] {
        shell(&place.lower, &format!("tar --format={how} -C s -cf archive.tar ."));
        shell(&place.lower, "rm -rf a b && mkdir a b && tar --xattrs -C b -xpf archive.tar");
        let path = image(&place, "32MiB");
        let (image, archive) = (path.to_str().unwrap(), place.lower.join("archive.tar"));
        works(&["ext2", "import", image, archive.to_str().unwrap()]);
        check(&path);
        let unpacked = place.lower.join("a");
        works(&["ext2", "export", image, unpacked.to_str().unwrap()]);
        std::fs::remove_file(&path).unwrap();
        let [ours, theirs] = ["a", "b"].map(|name| shell(&place.lower.join(name), LISTING));
        assert_eq!(ours, theirs, "{how}");
        assert!(ours.contains("deep/deeper/file f 644"), "{ours}");
        if how.contains("sparse") {
            let sectors = unpacked.join("sparse").metadata().unwrap().blocks();
            assert!(sectors < 64, "{sectors}");
        }
    }
}

/// Makes four bad archives. The first contains a path out of the target directory (`..`). The
/// second uses an earlier symbolic link as a directory. The third has an unsupported format, and
/// the fourth is truncated.
const BAD_ARCHIVES: &str = "\
    echo x > x; : > empty; tar -cPf up.tar --transform 's,^x,../x,' x; mkdir d; ln -s /etc d/l
    tar -cf out.tar -C d l; rm d/l; mkdir d/l; echo y > d/l/y; tar -rf out.tar -C d l/y
    truncate -s 100K d/s; echo z >> d/s; tar -cSf pax.tar --format=pax -C d s
    head -c 5M /dev/urandom > d/big; tar -cf whole.tar -C d big; head -c 3M whole.tar > cut.tar";

#[test]
fn bad_archives_are_refused() {
    let place = Place::new();
    let path = image(&place, "16MiB");
    let image = path.to_str().unwrap();
    let archive = place.lower.join("twice.tar");
    shell(&place.lower, BAD_ARCHIVES);
    shell(&place.lower, "echo one > f; tar -cf twice.tar f; echo two > f; tar -rf twice.tar f");
    for (name, part) in [
        ("up.tar", "leads out of the target directory"),
        ("out.tar", "l/y: l: Not a directory"),
        ("pax.tar", "--format=gnu"),
        ("cut.tar", "cut off"),
        ("x", "neither a directory nor a tar archive"),
        ("empty", "neither a directory nor a tar archive"),
    ] {
        let archive = place.lower.join(name);
        let (_, told) = fails(&["ext2", "import", image, archive.to_str().unwrap()]);
        assert!(told.contains(part) && told.contains(name), "{name}: {told}");
        assert_eq!(told.trim_end().lines().count(), 1, "{told}");
        check(&path);
    }
    works(&["ext2", "import", image, archive.to_str().unwrap()]);
    assert_eq!(
        text(&["ext2", "cat", image, "/f"]),
        "two\n",
        "the later member of this name is used"
    );
    let (_, told) = fails(&["ext2", "import", image, archive.to_str().unwrap()]);
    assert!(
        told.contains("f: ") && told.contains("xists"),
        "an existing file is not replaced: {told}"
    );
}
