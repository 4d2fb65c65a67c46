//! Tests of comparisons on real file systems: images on loop devices, as root.

use std::fs;
use std::path::Path;
use std::process::Command;

use fslab_report::sample::{CacheState, NoteKind, Record, Sample};
use fslab_report::{Choice, Recording};
use fslab_sys::signals::Interrupt;

use crate::leaks::assert_nothing_left;
use crate::support::{
    Silent, TestHost, can_mount, directory_on_disk, has_program, run, run_chosen, samples,
};

const WORKLOADS: &str = r#"
[[workload]]
name = "file-attributes"
files = 30
[[workload]]
name = "file-copy"
largest = "64 KiB"
most_files = 1
[[workload]]
name = "names"
files = 20
"#;

fn plan(targets: &str) -> String {
    format!("name = \"images\"\nrounds = 1\nimage_size = \"320 MiB\"\n{targets}{WORKLOADS}")
}

fn target(name: &str, keys: &str) -> String {
    format!("[[target]]\nname = \"{name}\"\n{keys}\n")
}

#[track_caller]
fn compare(directory: &Path, plan: &str) -> (fslab_compare::Outcome, Vec<Record>) {
    let result = run(plan, directory, &TestHost, Interrupt::default(), &mut Silent).unwrap();
    assert_nothing_left(directory);
    result
}

/// Maximum number of attempts of a comparison, because other processes may disturb it.
const RUNS_MAX: usize = 3;

/// Returns, for each sample that requested this cache state, whether the state is proven.
fn proven(samples: &[&Sample], asked: CacheState) -> impl Iterator<Item = bool> {
    samples.iter().filter(move |s| s.cache.asked == asked).map(|s| s.cache.proven)
}

/// Returns the cold phases that must be proven cold on every file system, because they read from
/// the device. These are the first cold listing and the cold read of the largest file.
fn must_be_cold<'a>(samples: &[&'a Sample]) -> impl Iterator<Item = &'a Sample> + Clone {
    samples
        .iter()
        .copied()
        .filter(|s| s.phase == "list cold" || s.size_bytes == Some(65536) && s.phase == "read cold")
}

#[test]
fn cold_and_warm_are_proven_on_images() {
    if !can_mount("comparison on images") {
        return;
    }
    let kinds = [
        ("ext4", "mkfs.ext4"),
        ("ext2", "mkfs.ext2"),
        ("xfs", "mkfs.xfs"),
        ("btrfs", "mkfs.btrfs"),
    ];
    let targets: String = kinds
        .into_iter()
        .filter(|(_, program)| has_program("a file system on an image", program))
        .map(|(kind, _)| target(kind, &format!("filesystem = \"{kind}\"\nmount = \"noatime\"")))
        .collect();
    // A run can be disturbed in two ways. ext4 reads its block bitmaps in the first seconds of a
    // mount, also during a warm phase. A process that unshares its mount namespace keeps the
    // unmounted file system and its cached pages alive until the next mount.
    let undisturbed = |outcome: &fslab_compare::Outcome, records: &[Record]| {
        let samples = samples(records);
        outcome.notes.is_empty()
            && proven(&samples, CacheState::Warm).all(|proven| proven)
            && must_be_cold(&samples).all(|sample| sample.cache.proven)
    };
    let mut runs = (0..RUNS_MAX).map(|_| compare(directory_on_disk().path(), &plan(&targets)));
    let (_, records) = runs
        .find(|(outcome, records)| undisturbed(outcome, records))
        .expect("in no run all cold and warm phases are proven");
    let samples = samples(&records);
    let cold = must_be_cold(&samples);
    for sample in cold.clone() {
        assert_eq!(sample.cache.asked, CacheState::Cold);
        assert!(sample.cache.proven, "{sample:?}");
        assert_eq!(sample.cache.device_pages, Some(0), "{sample:?}");
    }
    assert!(cold.count() >= 2);
    assert!(proven(&samples, CacheState::Warm).count() >= 2);
    let written = samples.iter().filter(|s| s.phase == "build");
    assert!(written.clone().all(|s| s.device.unwrap().sectors_written > 0 && s.flush_ns > 0));
    let Some(Record::Target(first)) = records.iter().find(|r| matches!(r, Record::Target(_)))
    else {
        panic!("no target record");
    };
    assert!(first.mkfs.as_ref().is_some_and(|mkfs| mkfs.contains("/dev/loop")), "{first:?}");
    assert!(first.loop_direct_io.is_some() && first.scheduler.is_some());
}

/// Checks layers and a foreign mount command: they are remounted for cold phases, and the processor
/// time of their daemons is measured.
#[test]
fn file_systems_in_user_space_are_mounted_over_images() {
    if !can_mount("bindfs over an image") || !has_program("bindfs over an image", "bindfs") {
        return;
    }
    let directory = directory_on_disk();
    let targets = target("ext4", "filesystem = \"ext4\"")
        + &target("layers", "filesystem = \"ext4\"\nlayers = [\"stand-in\"]")
        + &target(
            "foreign",
            "over = \"ext4\"\n\
             mount_command = [\"bindfs\", \"-f\", \"{lower}\", \"{mountpoint}\"]\n\
             unmount_command = [\"umount\", \"{mountpoint}\"]",
        );
    let (outcome, records) = compare(directory.path(), &plan(&targets));
    assert_eq!(outcome.notes, [], "nothing to remark");
    for name in ["layers", "foreign"] {
        let own: Vec<_> = samples(&records).into_iter().filter(|s| s.target == name).collect();
        assert!(own.iter().all(|s| s.daemon_cpu_ns.is_some()), "{name}: no daemon");
        assert!(own.iter().any(|s| s.daemon_cpu_ns > Some(0)), "{name}: an idle daemon");
        // Requests can be counted only with a privilege and a tracepoint. If they can, the count
        // must include all of them.
        let counted =
            own.iter().filter(|s| s.phase == "build").map(|s| (s.fuse_requests, s.operations));
        for (requests, operations) in counted {
            assert!(requests.is_none_or(|requests| requests >= operations), "{name}: {requests:?}");
        }
        for sample in own.iter().filter(|sample| sample.phase == "create") {
            check_requests(sample);
        }
        check_threads(&own);
        let cold: Vec<_> =
            own.iter().filter(|s| s.phase == "list cold").map(|s| s.cache.doubt).collect();
        assert_eq!(cold, [None], "{name}: the listing is not proven cold");
    }
}

/// Checks that a `create` or `mknod` request was counted for each created file, and that the counts
/// of all kinds sum to all requests.
fn check_requests(sample: &Sample) {
    let Some(all) = sample.fuse_requests else { return };
    assert_eq!(sample.requests.iter().map(|one| one.count).sum::<u64>(), all, "{sample:?}");
    let of_kind = |kind: &str| sample.requests.iter().find(|one| one.kind == kind);
    let created = of_kind("create").or(of_kind("mknod")).map(|one| one.count);
    assert_eq!(created, Some(sample.operations), "{:?}", sample.requests);
}

/// Checks that samples distinguish the threads of the daemon, the threads of the kernel and the
/// measuring thread.
fn check_threads(samples: &[&Sample]) {
    let running = |kind: &str| -> u64 {
        let times = samples.iter().flat_map(|sample| &sample.thread_times);
        times.filter(|one| one.kind.starts_with(kind)).map(|one| one.running_ns).sum()
    };
    for kind in ["workload", "daemon ", "kernel kworker"] {
        assert!(running(kind) > 0, "{kind} did not run: {samples:?}");
    }
    let daemon: u64 = samples.iter().filter_map(|sample| sample.daemon_cpu_ns).sum();
    assert!(running("daemon ") <= daemon + 10_000_000, "{} of {daemon}", running("daemon "));
}

const RECORDED: &str = "name = \"recorded\"\nrounds = 1\nimage_size = \"320 MiB\"\n\
    noise_floor = false\n\
    [[target]]\nname = \"ext4\"\nfilesystem = \"ext4\"\n\
    [[target]]\nname = \"foreign\"\nover = \"ext4\"\n\
    mount_command = [\"bindfs\", \"-f\", \"{lower}\", \"{mountpoint}\"]\n\
    unmount_command = [\"umount\", \"{mountpoint}\"]\n\
    [[target]]\nname = \"memory\"\nin_process = \"mem:\"\n\
    [[workload]]\nname = \"stream\"\nsize = \"4 MiB\"\n";

/// perf(1) can read the recorded call stacks, and the block events contain the writes that the
/// sample counts.
#[test]
fn phases_are_recorded_beside_their_samples() {
    let programs = ["perf", "bindfs"];
    if !can_mount("recordings") || !programs.iter().all(|name| has_program("recordings", name)) {
        return;
    }
    let directory = directory_on_disk();
    let choice =
        Choice { recordings: vec![Recording::Perf, Recording::Block], ..Choice::default() };
    let (outcome, records) = run_chosen(RECORDED, directory.path(), choice).unwrap();
    assert_nothing_left(directory.path());
    let texts: Vec<_> = outcome.notes.iter().map(|note| note.text.as_str()).collect();
    let expected = [
        "phases were recorded (perf, block), which takes time",
        "it has no block device of its own, so no requests were recorded",
        "this target ran inside the fslab process, without a mount. So none of its phases was \
         cold, and its times can't be compared with those of mounted targets",
    ];
    assert_eq!(texts, expected);
    let recordings = directory.path().join("recordings");
    for sample in samples(&records) {
        let phase = sample.phase.replace(' ', "-");
        let name = format!("stream.{phase}.{}.round-1-1", sample.target);
        let read = Command::new("perf")
            .args(["script", "--fields", "comm", "--input"])
            .arg(recordings.join(format!("{name}.perf")))
            .output()
            .unwrap();
        assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
        let events = fs::read_to_string(recordings.join(format!("{name}.block.txt")));
        if sample.target == "memory" {
            assert!(events.is_err(), "{name} has no device");
            continue;
        }
        let events = events.unwrap();
        let issued = |kind: &str| {
            let is_it = |line: &&str| line.contains("block_rq_issue") && line.contains(kind);
            events.lines().filter(is_it).count() as u64
        };
        if sample.phase == "write" {
            let device = sample.device.unwrap();
            assert!(device.writes > 0);
            assert!(issued(" W") >= device.writes.div_ceil(2), "{events}");
            // During a recording, requests are still counted if the kernel has bpf(2).
            let has_bpf = Path::new("/proc/sys/kernel/unprivileged_bpf_disabled").exists();
            let is_served = sample.target == "foreign";
            assert_eq!(sample.fuse_requests.is_some(), has_bpf && is_served, "{sample:?}");
        }
    }
}

/// If the machine can't make a requested recording, the error names the recording, and nothing is
/// written.
#[test]
fn impossible_recordings_are_refused_before_anything_is_written() {
    if !can_mount("recordings") {
        return;
    }
    let directory = directory_on_disk();
    // perf creates a pipe in the work directory. Here, the path of the work directory is too long
    // for perf's option.
    let long = directory.path().join("fifo,".repeat(3));
    fs::create_dir(&long).unwrap();
    let choice =
        Choice { recordings: vec![Recording::Perf], work_parent: Some(long), ..Choice::default() };
    let error = run_chosen(RECORDED, directory.path(), choice).unwrap_err().to_string();
    assert!(error.starts_with("--record perf: "), "{error}");
    assert!(!directory.path().join("samples.jsonl").exists());
    assert!(!directory.path().join("recordings").exists());
}

/// The command fails once with status 32, as umount(8) does while another process uses the mount.
#[test]
fn an_unmount_command_that_fails_once_is_tried_again() {
    if !can_mount("unmounting again") || !has_program("unmounting again", "bindfs") {
        return;
    }
    let directory = directory_on_disk();
    let beside = tempfile::tempdir().unwrap();
    let tried = beside.path().join("tried");
    let targets = target(
        "foreign",
        &format!(
            "over = \"ext4\"\n\
             mount_command = [\"bindfs\", \"-f\", \"{{lower}}\", \"{{mountpoint}}\"]\n\
             unmount_command = [\"sh\", \"-c\", \"test -e {0} || {{ touch {0}; exit 32; }}; \
             umount {{mountpoint}}\"]",
            tried.display()
        ),
    );
    let (outcome, _) = compare(directory.path(), &plan(&targets));
    assert_eq!(outcome.notes, [], "nothing to remark");
    assert!(tried.exists(), "the command has failed once");
}

/// The targets fail in several ways: a failing command, a command that fails after mounting, wrong
/// options of mkfs and mount, and a missing program. Each is reported in one line, and the other
/// target is measured.
#[test]
fn targets_that_fail_are_reported_and_leave_nothing() {
    if !can_mount("failing targets") || !has_program("failing targets", "bindfs") {
        return;
    }
    let directory = directory_on_disk();
    let targets = target("good", "filesystem = \"ext4\"")
        + &target(
            "refused",
            "over = \"ext4\"\nmount_command = [\"ls\", \"--wrong\", \"{lower}\", \"{mountpoint}\"]",
        )
        + &target(
            "missing",
            "over = \"ext4\"\nmount_command = [\"no-such-fs\", \"{lower}\", \"{mountpoint}\"]",
        )
        + &target(
            "half done",
            "over = \"ext4\"\n\
             mount_command = [\"sh\", \"-c\", \"bindfs {lower} {mountpoint}; exit 3\", \
             \"{mountpoint}\"]",
        )
        + &target("bad mkfs", "filesystem = \"ext4\"\nmkfs = [\"-O\", \"nonsense\"]")
        + &target("bad mount", "filesystem = \"ext4\"\nmount = \"nonsense\"");
    let (outcome, records) = compare(directory.path(), &plan(&targets));
    let note = |name: &str| {
        outcome.notes.iter().find(|note| note.target.as_deref() == Some(name)).unwrap()
    };
    assert_eq!(note("missing").kind, NoteKind::LeftOut);
    assert!(note("missing").text.contains("no-such-fs"));
    for (name, text) in [
        ("half done", "exit 3"),
        ("refused", "ls --wrong"),
        ("bad mkfs", "nonsense"),
        ("bad mount", "nonsense"),
    ] {
        assert_eq!(note(name).kind, NoteKind::Failed, "{name}");
        let found = &note(name).text;
        assert!(name == "bad mount" || found.contains(text), "{name}: {found}");
        assert_eq!(found.lines().count(), 1, "{name}: {found}");
    }
    assert!(samples(&records).iter().all(|s| s.target == "good"));
    assert!(!samples(&records).is_empty());
}
