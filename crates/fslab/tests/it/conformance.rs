//! The conformance suite and the model through real mounts: the mount point in a leaf of its own.

use fslab_vfs::testing::conformance::{Allowed, run_all};
use fslab_vfs::{FileSystem, HostFs, HostOptions};

use crate::support::{Place, require_mounting};

const NO_TMPFILE: &str = "the fuser crate at this version serves no TMPFILE request";

/// What no mount does with the present adapter, whatever is mounted.
const ALLOWED: &[Allowed<'static>] = &[
    ("files/unnamed_file_is_in_no_listing", NO_TMPFILE),
    ("files/unnamed_file_can_be_named", NO_TMPFILE),
    ("files/exclusive_unnamed_file_can_not_be_named", NO_TMPFILE),
    ("attributes/umask_takes_bits_away", NO_TMPFILE),
    ("ownership/set_gid_directory_gives_its_group", NO_TMPFILE),
    ("ownership/unnamed_file_belongs_to_its_creator", NO_TMPFILE),
    ("acl/unnamed_file_inherits", NO_TMPFILE),
    ("handles/every_kind_of_handle_syncs", NO_TMPFILE),
];

/// What the kernel's writeback cache takes out of the daemon's sight.
const WRITEBACK: &[Allowed<'static>] = &[
    ("attributes/data_takes_space", "space is taken when the kernel writes back"),
    ("holes/sparse_file_takes_little_space", "space is taken when the kernel writes back"),
    ("holes/punching_gives_space_back", "space is taken when the kernel writes back"),
    ("times/read_after_a_change_is_recorded", "reads from the kernel's cache are not seen"),
];

#[track_caller]
fn conforms(place: &Place, allowed: &[Allowed<'_>]) {
    // Set-id bits and device nodes are subjects of the suite.
    let make = || {
        Box::new(HostFs::open(&place.point, &HostOptions::default()).unwrap())
            as Box<dyn FileSystem>
    };
    let report = run_all(&make, &[ALLOWED, allowed].concat());
    eprintln!("{report}");
    assert!(report.is_success());
    place.umount();
}

#[test]
fn a_mounted_null_stack_conforms() {
    require_mounting!();
    conforms(&Place::mounted(&["-l", "null", "-o", "suid,dev"]), &[]);
}

#[test]
fn a_mounted_null_stack_without_passthrough_conforms() {
    require_mounting!();
    conforms(&Place::mounted(&["-l", "null:passthrough=off", "-o", "suid,dev"]), &[]);
}

#[test]
fn a_mount_with_writeback_conforms() {
    require_mounting!();
    conforms(&Place::mounted(&["-o", "suid,dev,writeback"]), WRITEBACK);
}

#[test]
fn mounted_memory_conforms() {
    require_mounting!();
    let mut place = Place::new();
    place.lower = "mem:".into();
    place.mount(&["-o", "suid,dev"]);
    conforms(&place, &[]);
}
