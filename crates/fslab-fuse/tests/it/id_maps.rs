//! Tests id-mapped mounts of a FUSE mount.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use fslab_fuse::MountOptions;
use fslab_vfs::{FileSystem, HostFs, HostOptions, MemFs};
use fslab_vfs_testing::id_map::{IdMap, mount_mapped};
use fslab_vfs_testing::skip::skip;

use crate::support::Mounted;

/// Stored ids from 1000 on are shown as ids from 5000 on.
const MAP: IdMap = IdMap { stored: 1000, shown: 5000, count: 1000 };

fn owner(path: &Path) -> (u32, u32) {
    let metadata = fs::symlink_metadata(path).unwrap();
    (metadata.uid(), metadata.gid())
}

fn run_as(id: u32, groups: &str, script: &str) {
    let (uid, gid) = (format!("--reuid={id}"), format!("--regid={id}"));
    let mut command = Command::new("setpriv");
    command.args([&uid, &gid, groups, "sh", "-c", script]);
    assert!(command.status().unwrap().success(), "{script}");
}

#[test]
fn id_mapped_mount_maps_owners() {
    let lower = tempfile::tempdir().unwrap();
    let host = || HostFs::open(lower.path(), &HostOptions::default()).unwrap();
    let leaves: [Arc<dyn FileSystem>; 2] = [Arc::new(MemFs::default()), Arc::new(host())];
    for leaf in leaves {
        let test = "id_maps::id_mapped_mount_maps_owners";
        let options = MountOptions { id_maps: true, ..MountOptions::default() };
        let Some(mounted) = Mounted::new(test, leaf, &options) else { return };
        if !mounted.session().granted().id_maps() {
            skip(test, "this kernel has no id-mapped FUSE mounts (Linux 6.12 has)");
            return mounted.end();
        }
        // Other users must reach this folder, so it is in the system's folder for temporary files.
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        check_owners(mounted.path(), place.path());
        mounted.end();
    }
}

fn check_owners(stored: &Path, place: &Path) {
    let directory = stored.join("home");
    fs::create_dir(&directory).unwrap();
    chown(&directory, Some(1000), Some(1001)).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o2770)).unwrap();
    let mapped = mount_mapped(stored, place, MAP).unwrap();
    let shown = place.join("home");
    assert_eq!(owner(&shown), (5000, 5001));

    // The shown owner has access, by user id and by supplementary group.
    run_as(5000, "--clear-groups", &format!("echo by-owner >{}/a", shown.display()));
    let groups = "--groups=5001";
    let set_gid = format!("umask 0; cd {}; : >b; chmod 2775 b; mkdir c", shown.display());
    run_as(5002, groups, &set_gid);
    assert_eq!(owner(&directory.join("a")), (1000, 1001));
    assert_eq!(owner(&shown.join("a")), (5000, 5001));
    assert_eq!(owner(&directory.join("b")), (1002, 1001));
    assert_eq!(fs::metadata(directory.join("b")).unwrap().mode() & 0o7777, 0o2775);
    assert_eq!(owner(&directory.join("c")), (1002, 1001));

    // Changes of owner are mapped to stored ids.
    chown(shown.join("a"), Some(5003), None).unwrap();
    assert_eq!(owner(&directory.join("a")), (1003, 1001));
    assert_eq!(fs::read_to_string(shown.join("a")).unwrap(), "by-owner\n");
    // Users outside the map can't own files there.
    assert!(fs::write(shown.join("by-root"), "").is_err());
    mapped.unmount().unwrap();
}

#[test]
fn id_mapped_mount_is_refused_without_the_option() {
    let test = "id_maps::id_mapped_mount_is_refused_without_the_option";
    let leaf = Arc::new(MemFs::default());
    let Some(mounted) = Mounted::new(test, leaf, &MountOptions::default()) else { return };
    let place = tempfile::tempdir().unwrap();
    let refused = mount_mapped(mounted.path(), place.path(), MAP).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::INVAL.raw_os_error()));
    mounted.end();
}
