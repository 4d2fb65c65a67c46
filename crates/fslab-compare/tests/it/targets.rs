//! Tests of kinds of targets with mounts of the kernel: read-only, overlay, tmpfs, filled,
//! recorded, with limited memory, and with a work directory in memory.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use fslab_compare::Outcome;
use fslab_report::sample::{NoteKind, Record, TargetRecord};
use fslab_sys::signals::Interrupt;

use crate::leaks::assert_nothing_left;
use crate::support::{
    Silent, TestHost, can_mount, directory_on_disk, has_program, run, samples, skip,
};

#[track_caller]
fn compare_in(directory: &Path, plan: &str) -> (Outcome, Vec<Record>) {
    let result = run(plan, directory, &TestHost, Interrupt::default(), &mut Silent).unwrap();
    assert_nothing_left(directory);
    result
}

#[track_caller]
fn compare(plan: &str) -> (Outcome, Vec<Record>) {
    compare_in(directory_on_disk().path(), plan)
}

fn plan(targets: &str, workloads: &str) -> String {
    let head = "name = \"targets\"\nrounds = 1\nnoise_floor = false\nimage_size = \"320 MiB\"\n";
    format!("{head}{targets}{workloads}")
}

fn target(name: &str, keys: &str) -> String {
    format!("[[target]]\nname = \"{name}\"\n{keys}\n")
}

fn record<'a>(records: &'a [Record], name: &str) -> &'a TargetRecord {
    let found = records.iter().find_map(|record| match record {
        Record::Target(target) if target.name == name => Some(target),
        _ => None,
    });
    found.unwrap()
}

/// The same tree is listed and read in six kinds of targets. Two of these are read-only.
#[test]
fn every_kind_of_target_contains_its_source_tree() {
    if !can_mount("targets with a source") {
        return;
    }
    let source = directory_on_disk();
    fs::create_dir(source.path().join("below")).unwrap();
    for number in 0..40 {
        let text = format!("{number} ").repeat(500);
        fs::write(source.path().join(format!("below/file-{number}")), text).unwrap();
    }
    let given = format!("source = \"{}\"", source.path().display());
    let kinds = [
        ("ext3", "filesystem = \"ext3\"", "mkfs.ext3"),
        ("squashfs", "filesystem = \"squashfs\"\nmkfs = [\"-comp\", \"gzip\"]", "mksquashfs"),
        ("erofs", "filesystem = \"erofs\"", "mkfs.erofs"),
        ("overlay", "filesystem = \"overlay\"\nover = \"ext4\"", "mkfs.ext4"),
        ("layers", "filesystem = \"ext4\"\nlayers = [\"stand-in\"]", "bindfs"),
        ("tmpfs", "filesystem = \"tmpfs\"", "mount"),
    ];
    let here = kinds.into_iter().filter(|(_, _, program)| has_program("a target", program));
    let names: Vec<_> = here.clone().map(|(name, ..)| name).collect();
    let targets: String =
        here.map(|(name, keys, _)| target(name, &format!("{keys}\n{given}"))).collect();
    let workloads = "[[workload]]\nname = \"file-attributes\"\ntree = \"given\"\n\
        [[workload]]\nname = \"hot-files\"\nlist = \"all\"\noverwrite = \"no\"\n\
        [[workload]]\nname = \"command\"\ncommand = [\"sh\", \"-c\", \"cat below/*\"]\n";
    let (outcome, records) = compare(&plan(&targets, workloads));
    assert_eq!(outcome.notes, [], "nothing to remark");
    for name in names {
        let own: Vec<_> = samples(&records).into_iter().filter(|s| s.target == name).collect();
        assert_eq!(own.len(), 2 + 1 + 2, "{name}");
        // The listing covers 40 files and the directory.
        assert!(own.iter().any(|s| s.phase == "list cold" && s.operations == 41), "{name}");
        let read = own.iter().find(|s| s.phase == "read").unwrap();
        assert_eq!(read.bytes, (10 * 2 + 30 * 3) * 500, "{name}");
        // tmpfs is never cold.
        assert_eq!(read.cache.proven, name != "tmpfs", "{name}: {:?}", read.cache);
    }
}

#[test]
fn overlay_and_tmpfs_targets_can_be_written() {
    if !can_mount("writing to overlay and tmpfs") {
        return;
    }
    let targets = target("overlay", "filesystem = \"overlay\"\nover = \"xfs\"")
        + &target("tmpfs", "filesystem = \"tmpfs\"\nmount = \"huge=never\"");
    let workloads = "[[workload]]\nname = \"stream\"\nsize = \"2 MiB\"\n\
        [[workload]]\nname = \"names\"\nfiles = 20\n";
    let (outcome, records) = compare(&plan(&targets, workloads));
    assert_eq!(outcome.notes, [], "nothing to remark");
    assert_eq!(samples(&records).len(), 2 * (4 + 6));
    assert!(record(&records, "overlay").over.as_ref().unwrap().contains("lowerdir="));
    assert!(record(&records, "tmpfs").mount.as_ref().unwrap().contains("size=335544320"));
}

/// The filled share is the one that statfs reports. The file systems include one that can't
/// allocate space without writing data (ext2).
#[test]
fn targets_are_filled_to_the_requested_share() {
    if !can_mount("filling targets") {
        return;
    }
    let targets: String = ["ext2", "ext4", "xfs", "btrfs", "tmpfs"]
        .map(|kind| target(kind, &format!("filesystem = \"{kind}\"\nfill = \"60 %\"")))
        .concat();
    let (outcome, records) =
        compare(&plan(&targets, "[[workload]]\nname = \"names\"\nfiles = 9\n"));
    assert_eq!(outcome.notes, [], "nothing to remark");
    for kind in ["ext2", "ext4", "xfs", "btrfs", "tmpfs"] {
        let filled = record(&records, kind).filled_percent.unwrap();
        assert!((59.0..=61.0).contains(&filled), "{kind}: {filled}");
    }
}

/// The copy contains the files of the recorded image, and the image itself does not change.
#[test]
fn a_recorded_image_is_copied_for_each_run() {
    if !can_mount("a recorded image") {
        return;
    }
    let directory = directory_on_disk();
    let image = directory.path().join("aged.img");
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let source = directory_on_disk();
    fs::write(source.path().join("old"), "aged").unwrap();
    let mut mkfs = Command::new("mkfs.ext4");
    mkfs.args(["-q", "-d"]).arg(source.path()).arg(&image);
    assert!(mkfs.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").status().unwrap().success());
    let before = fs::read(&image).unwrap();
    let keys = format!("filesystem = \"ext4\"\naged = \"{}\"", image.display());
    let list = directory.path().join("list");
    fs::write(&list, "./old\n").unwrap();
    let workloads = format!("[[workload]]\nname = \"hot-files\"\nlist = \"{}\"\n", list.display());
    let (outcome, records) = compare(&plan(&target("aged", &keys), &workloads));
    assert_eq!(outcome.notes, [], "nothing to remark");
    assert!(samples(&records).iter().all(|sample| sample.bytes == 4), "{records:?}");
    assert!(record(&records, "aged").mkfs.as_ref().unwrap().starts_with("copied from"));
    assert_eq!(fs::read(&image).unwrap(), before, "the recorded image was changed");
}

#[test]
fn missing_requirements_of_targets_are_noted() {
    let targets = target("memory", "in_process = \"mem:\"")
        + &target("engine", "in_process = \"ext2:x\"\nneeds = \"the ext2 engine\"")
        + &target("aged", "filesystem = \"ext4\"\naged = \"no.img\"\nneeds = \"an image\"");
    let (outcome, records) =
        compare(&plan(&targets, "[[workload]]\nname = \"names\"\nfiles = 9\n"));
    for (name, what) in [
        ("engine", "needs the ext2 engine, which is missing"),
        ("aged", "needs an image, which is missing: no.img"),
    ] {
        let note = outcome.notes.iter().find(|n| n.target.as_deref() == Some(name)).unwrap();
        assert_eq!(note.kind, NoteKind::LeftOut);
        assert!(note.text.contains(what), "{}", note.text);
    }
    assert!(samples(&records).iter().all(|sample| sample.target == "memory"));
}

/// The image is in memory, so reads do not use a disk. Cold phases are proven cold in this case,
/// too.
#[test]
fn images_in_memory_are_made_cold() {
    if !can_mount("a work directory in memory") {
        return;
    }
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        skip("a work directory in memory", "no /dev/shm");
        return;
    };
    let workloads = "[[workload]]\nname = \"stream\"\nsize = \"4 MiB\"\n";
    let plan = plan(&target("ext4", "filesystem = \"ext4\""), workloads);
    let (outcome, records) = compare_in(directory.path(), &plan);
    assert_eq!(outcome.notes, [], "nothing to remark");
    let cold = samples(&records).into_iter().find(|s| s.phase == "read cold").unwrap();
    assert!(cold.cache.proven, "{:?}", cold.cache);
}

const BOUNDED: &str = "FSLAB_TEST_BOUNDED";

/// Runs a comparison with limited memory, if started by the test below. It needs its own process,
/// because the limit would otherwise apply to all tests.
#[test]
fn bounded_run() {
    let Some(directory) = std::env::var_os(BOUNDED) else { return };
    let targets = target("bounded", "filesystem = \"ext4\"\nmemory = \"48 MiB\"")
        + &target("unbounded", "filesystem = \"ext4\"");
    let workloads = "[[workload]]\nname = \"stream\"\nsize = \"96 MiB\"\n";
    let (outcome, records) = compare_in(Path::new(&directory), &plan(&targets, workloads));
    assert_eq!(outcome.notes, [], "nothing to remark");
    assert_eq!(record(&records, "bounded").memory_limit, Some(48 << 20));
    let again = |target: &str| {
        let mut all = samples(&records).into_iter();
        let warm = all.find(|s| s.target == target && s.phase == "read warm").unwrap();
        warm.device.unwrap().sectors_read * 512
    };
    // Ext4 reads its block bitmaps some seconds after a mount.
    assert!(again("unbounded") < 1 << 20, "{} bytes were read", again("unbounded"));
    assert!(again("bounded") > 80 << 20, "{} bytes were read again", again("bounded"));
}

/// If a file is twice as large as the limit, its second read reads from the device again. Without
/// the limit, the second read is served from memory.
#[test]
fn file_above_the_memory_limit_is_read_from_the_device_again() {
    if !can_mount("a bounded run") {
        return;
    }
    if let Err(error) = fslab_sys::memory_bound::MemoryBound::available() {
        skip("a bounded run", &error.to_string());
        return;
    }
    let run = || {
        let directory = directory_on_disk();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "targets::bounded_run", "--nocapture"]);
        command.env(BOUNDED, directory.path()).output().unwrap()
    };
    // Memory groups of version 1 do not slow down writers. On a loaded machine, the dirty pages of
    // the image may therefore fill the group, and the kernel kills the process.
    let is_killed = |output: &Output| output.status.signal() == Some(9);
    let mut runs = (0..5).map(|_| run()).skip_while(is_killed);
    let output = runs.next().expect("a run that the kernel does not kill");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {said}", output.status);
}

/// With `cold`, phases that open files are proven cold, and the report states the method. Without
/// it, no phase is cold.
#[test]
fn directory_is_made_cold_by_dropping_pages() {
    for (key, cold) in [("cold = true\n", true), ("", false)] {
        let directory = directory_on_disk();
        let keys = format!("directory = \"{}\"\n{key}", directory.path().display());
        let workloads = "[[workload]]\nname = \"stream\"\nsize = \"2 MiB\"\n\
            [[workload]]\nname = \"file-attributes\"\nfiles = 20\n";
        let (outcome, records) = compare(&plan(&target("here", &keys), workloads));
        let [note] = &outcome.notes[..] else { panic!("{:?}", outcome.notes) };
        assert_eq!(note.text.contains("drops the cached pages"), cold, "{note:?}");
        let samples = samples(&records);
        let read = samples.iter().find(|sample| sample.phase == "read cold").unwrap();
        assert_eq!((read.cache.proven, read.cache.evicted), (cold, cold), "{:?}", read.cache);
        assert_eq!(read.cache.resident_pages == Some(0), cold, "{:?}", read.cache);
        assert!(!read.cache.remounted);
        // Names are dropped too, but this can't be proven.
        let list = samples.iter().find(|sample| sample.phase == "list cold").unwrap();
        assert!(!list.cache.proven && list.cache.doubt.is_some(), "{:?}", list.cache);
    }
}

/// Files on tmpfs can't be dropped from memory, so the target fails before anything is measured.
#[test]
fn directory_in_memory_is_refused_if_it_must_be_cold() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let keys = format!("directory = \"{}\"\ncold = true\n", directory.path().display());
    let both = target("memory", &keys) + &target("process", "in_process = \"mem:\"");
    let (outcome, records) = compare(&plan(&both, "[[workload]]\nname = \"names\"\nfiles = 2\n"));
    let refused = outcome.notes.iter().find(|note| note.kind == NoteKind::Failed).unwrap();
    assert!(refused.text.contains("can't be made cold; remove `cold`"), "{refused:?}");
    assert!(!refused.text.contains('\n'));
    assert!(samples(&records).iter().all(|sample| sample.target == "process"));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "something was left behind");
}
