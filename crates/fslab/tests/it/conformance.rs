//! Runs the conformance suite on real mounts. The suite uses each mount point as a host directory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fslab_layers::testing::with_each_option;
use fslab_sys::make_file_system::Kind;
use fslab_vfs::{FileSystem, HostFs, HostOptions};
use fslab_vfs_testing::conformance::{Allowed, run_all};
use fslab_vfs_testing::environment::number;

use crate::kept::kill_daemon;
use crate::support::{Place, Transport, require_mounting, umount_unused};
use crate::tiering::Tiered;

/// Cases that may fail with writeback, because the kernel's cache hides operations from the daemon.
const WRITEBACK: &[Allowed<'static>] = &[
    ("attributes/data_takes_space", "space is taken when the kernel writes back"),
    ("holes/sparse_file_takes_little_space", "space is taken when the kernel writes back"),
    ("holes/punching_frees_space", "space is taken when the kernel writes back"),
    (
        "times/read_after_a_change_is_recorded",
        "the daemon does not see reads from the kernel's cache",
    ),
];

fn on(place: &Place) -> Box<dyn FileSystem> {
    Box::new(HostFs::open(&place.point, &HostOptions::default()).unwrap())
}

#[track_caller]
fn conforms(place: &Place, allowed: &[Allowed<'_>]) {
    // The mount needs `-o suid,dev`, because the suite tests set-id bits and device nodes.
    let report = run_all(&|| on(place), allowed);
    eprintln!("{report}");
    assert!(report.is_success());
    place.umount();
}

#[test]
fn a_mounted_null_stack_without_passthrough_conforms() {
    require_mounting!();
    conforms(&Place::mounted(&["-l", "null:passthrough=off", "-o", "suid,dev"]), &[]);
}

/// In the second stack, the daemon receives only requests about names.
#[test]
fn mounted_null_stacks_conform_over_io_uring() {
    require_mounting!(Transport::Uring);
    for layer in ["null:passthrough=off", "null"] {
        let arguments = ["-l", layer, "-o", "suid,dev"];
        conforms(&Place::mounted_over(Transport::Uring, &arguments), &[]);
    }
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

#[test]
fn a_mounted_sca_stack_with_writeback_conforms() {
    require_mounting!();
    conforms(&Place::mounted(&["-l", "zstd", "-o", "suid,dev,writeback"]), WRITEBACK);
}

/// Runs the suite on a mount with `-o keep`. The daemon is killed at most once in each case: a
/// request that is interrupted by four kills fails with EIO.
fn conforms_while_daemons_are_killed(place: &Place, layer: &str, allowed: &[Allowed<'_>]) {
    place.mount(&["-l", layer, "-o", "suid,dev,keep=250"]);
    let (is_over, begun, kills) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut killed_in = 0;
            while !is_over.load(Ordering::Relaxed) && kills.load(Ordering::Relaxed) < 240 {
                if begun.load(Ordering::Relaxed) > killed_in {
                    kill_daemon(place);
                    kills.fetch_add(1, Ordering::Relaxed);
                    killed_in = begun.load(Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(40));
            }
        });
        let begin = || {
            begun.fetch_add(1, Ordering::Relaxed);
            on(place)
        };
        let report = run_all(&begin, allowed);
        is_over.store(true, Ordering::Relaxed);
        eprintln!("{report}");
        assert!(report.is_success());
    });
    eprintln!("{} kills", kills.load(Ordering::Relaxed));
    assert!(kills.into_inner() > 2);
    assert_eq!(umount_unused(&place.point).0, 0);
}

#[test]
fn a_kept_mount_conforms_while_daemons_are_killed() {
    require_mounting!();
    conforms_while_daemons_are_killed(&Place::on_disk(), "null:passthrough=off", &[]);
}

#[test]
fn a_kept_sca_stack_conforms_while_daemons_are_killed() {
    require_mounting!();
    conforms_while_daemons_are_killed(&Place::on_disk(), "zstd", WRITEBACK);
}

/// Cases that the ext2 engine does not support.
const IMAGE: &[Allowed<'static>] = &[
    ("holes/reserving_can_keep_the_size", RESERVED),
    ("holes/reserved_space_past_the_end_reads_as_zeros", RESERVED),
];
const RESERVED: &str = "a checker can't distinguish blocks past the end of a file from damage";

#[test]
fn a_kept_image_conforms_while_daemons_are_killed() {
    require_mounting!();
    let mut place = Place::on_disk();
    let image = crate::ext2::image(&place, "512MiB");
    place.lower = format!("ext2:{}", image.display()).into();
    conforms_while_daemons_are_killed(&place, "null", IMAGE);
}

/// Runs the suite on a tier over one of the file systems that tiers support. Device nodes and
/// set-id bits are allowed, as in the other tests.
fn a_mounted_tier_conforms_over(kind: Kind) {
    require_mounting!();
    let tiered = Tiered::over(Some(kind));
    tiered.place().mount(&["-l", "tier", "-o", "suid,dev"]);
    conforms(tiered.place(), &[]);
}

#[test]
fn a_mounted_tier_conforms_over_ext4() {
    a_mounted_tier_conforms_over(Kind::Ext4);
}

#[test]
fn a_mounted_tier_conforms_over_xfs() {
    a_mounted_tier_conforms_over(Kind::Xfs);
}

#[test]
fn a_mounted_tier_conforms_over_btrfs() {
    a_mounted_tier_conforms_over(Kind::Btrfs);
}

/// Returns all layers with their default options. The files that layers write are below `scratch`.
fn every_layer(scratch: &std::path::Path) -> impl Iterator<Item = String> {
    let of = |layers| with_each_option(layers, |_, _| false, scratch);
    of(fslab_layers::LAYERS).into_iter().chain(of(fslab_sca::LAYERS))
}

/// One layer of each kind, for runs without `FSLAB_EVERY_LAYER=1`. Other tests run the suite on all
/// layers without mounting them.
const KINDS: &[&str] = &["null", "trace", "zstd"];

#[test]
fn every_layer_conforms_mounted() {
    require_mounting!();
    let scratch = tempfile::TempDir::new().unwrap();
    let all = number("FSLAB_EVERY_LAYER").is_some_and(|number| number != 0);
    let name = |layer: &String| layer.split(':').next().map(str::to_owned).unwrap_or_default();
    let is_wanted = |layer: &String| all || KINDS.contains(&name(layer).as_str());
    let layers: Vec<_> = every_layer(scratch.path()).filter(is_wanted).collect();
    assert!(layers.len() >= KINDS.len(), "{layers:?}");
    for layer in layers {
        eprintln!("{layer}");
        conforms(&Place::mounted(&["-l", &layer, "-o", "suid,dev"]), &[]);
    }
}
