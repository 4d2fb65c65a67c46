//! What `fslab tier` answers: refusals, messages, exit codes and names.

use std::fs;

use crate::support::{require_mounting, run};
use crate::tiering::Tiered;

/// Nothing that users see of the tree changes; bytes go and come.
#[test]
fn a_read_only_mount_keeps_names_and_pins() {
    require_mounting!();
    let tiered = Tiered::mounted();
    for name in ["file", "removed"] {
        fs::write(tiered.path(name), "data").unwrap();
        tiered.of("archive", name);
    }
    fs::remove_file(tiered.path("removed")).unwrap();
    tiered.umount();
    tiered.place().mount(&["-o", "ro", "-l", "tier"]);
    let [point, file, again] = ["", "file", "again"].map(|name| tiered.path(name));
    let [point, file, again] = [&point, &file, &again].map(|path| path.to_str().unwrap());
    let versions = tiered.of("versions", "removed");
    let object = versions.split(' ').next().unwrap();
    for arguments in [
        &["undelete", "-r", point][..],
        &["undelete", object, again],
        &["pin", file],
        &["unpin", file],
    ] {
        let (code, message) = run(&[&["tier"], arguments].concat());
        assert!(code == 3 && message.contains("is mounted read-only"), "{arguments:?}: {message}");
    }
    assert_eq!(fs::read_dir(point).unwrap().count(), 1);
    tiered.of("release", "file");
    assert_eq!(fs::read_to_string(file).unwrap(), "data");
    tiered.umount();
}
