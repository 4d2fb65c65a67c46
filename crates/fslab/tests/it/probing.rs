//! Tests `fslab probe`: its answers, refused arguments, and that no files are left.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use fslab_sys::memory_bound::MemoryBound;
use fslab_vfs_testing::scratch;
use fslab_vfs_testing::skip::skip;
use serde_json::Value;

use crate::support::{copy_program, require_mounting, run};

const BAD_INPUT: i32 = 3;

#[test]
fn probe_prints_json_and_leaves_no_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fslab"))
        .args(["probe", path, "--json", "--only", "name-length-max,case"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answers: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let attribute = &answers["attributes"][0];
    assert_eq!(attribute["name"], "name-length-max");
    assert_eq!(attribute["answer"], serde_json::json!({ "kind": "bytes", "value": 255 }));
    assert_eq!(attribute["confidence"], "agreed");
    assert_eq!(answers["attributes"][1]["answer"]["value"], "sensitive");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn invalid_probe_arguments_are_named_in_the_error() {
    let refused = |arguments: &[&str], part: &str| {
        let (code, message) = run(arguments);
        assert_eq!(code, BAD_INPUT, "{message}");
        assert!(message.contains(part), "{message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    };
    refused(&["probe", "/no/such"], "/no/such is not a directory");
    refused(&["probe", "/", "--only", "colour"], "no attribute 'colour' (`fslab list attributes`");
    refused(&["probe", "/", "--budget", "1MiB"], "must be at least 16 MiB");
}

/// Returns the findings of one run: attribute, answer, and answer by timing.
fn answers(program: &Path, arguments: &[&str], user: Option<u32>) -> Vec<[Value; 3]> {
    let mut command = Command::new(program);
    command.arg("probe").args(arguments).arg("--json");
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let attributes = all["attributes"].as_array().unwrap();
    attributes
        .iter()
        .map(|one| [&one["name"], &one["answer"], &one["timing"]["answer"]].map(Clone::clone))
        .collect()
}

/// An ordinary user gets almost all answers in a directory that the user owns, and no files are
/// left there.
#[test]
fn ordinary_users_get_most_probe_answers() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        return skip(
            "ordinary_users_get_most_probe_answers",
            "not root, so it can't run as another user",
        );
    }
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let program = directory.path().join("fslab");
    copy_program(env!("CARGO_BIN_EXE_fslab").as_ref(), &program);
    std::os::unix::fs::chown(directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let path = directory.path().to_str().unwrap();
    let answers = answers(&program, &[path], Some(NOBODY));
    let mut command = Command::new(&program);
    let refused = command.args(["probe", path, "--timing", "--drop-caches"]).uid(NOBODY).output();
    let refused = refused.unwrap();
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(4) && message.contains("only root may"), "{message}");
    let known = |name: &str| {
        answers.iter().any(|[attribute, answer, _]| attribute == name && !answer.is_null())
    };
    for name in ["block-size", "allocation-unit", "sparse-granularity", "inline-data"] {
        assert!(known(name), "{name} is not answered");
    }
    for name in ["directory-index", "name-length-max", "path-length-max", "access-time"] {
        assert!(known(name), "{name} is not answered");
    }
    let count = answers.iter().filter(|[_, answer, _]| !answer.is_null()).count();
    assert!(count >= 25, "{count} answers");
    let names: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "only the program is left: {names:?}");
}

/// Two processes that keep processors busy. They are killed on drop.
struct Load(Vec<Child>);

impl Load {
    fn new() -> Self {
        let busy = || {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]).spawn().unwrap()
        };
        Self(vec![busy(), busy()])
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for busy in &mut self.0 {
            busy.kill().unwrap();
            busy.wait().unwrap();
        }
    }
}

/// Answers by counting are the same under load. If the machine is idle at first, answers by timing
/// are the same or missing. `FSLAB_REPEATS=10` selects the long form, with all attributes and
/// timing. `FSLAB_PROBE_DIR` is the directory of the long form. No other program may write to its
/// disk, because some attributes are found by counting writes to the disk.
#[test]
fn probe_answers_do_not_change_under_load() {
    let repeats = std::env::var("FSLAB_REPEATS").ok().and_then(|text| text.parse::<u32>().ok());
    let parent = std::env::var_os("FSLAB_PROBE_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = tempfile::tempdir_in(parent).unwrap();
    let path = directory.path().to_str().unwrap();
    let few = "block-size,direct-pointers,read-ahead-random,inline-data,sparse-granularity";
    let mut arguments = vec![path];
    match repeats {
        Some(_) => arguments.push("--timing"),
        None => arguments.extend(["--only", few]),
    }
    let program = Path::new(env!("CARGO_BIN_EXE_fslab"));
    let quiet = answers(program, &arguments, None);
    let _load = Load::new();
    for _ in 0..repeats.unwrap_or(2) {
        let loaded = answers(program, &arguments, None);
        for (before, now) in quiet.iter().zip(&loaded) {
            assert_eq!(before[..2], now[..2]);
            // A null value means that timing found no answer.
            let values = [&before[2], &now[2]];
            assert!(
                values[0] == values[1] || values.iter().any(|value| value.is_null()),
                "{now:?}"
            );
        }
        eprintln!("{} answers are the same", loaded.len());
    }
}

/// Unmounts all mounts below a folder, which a killed program may have left.
fn unmount_below(folder: &Path) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(Path::new);
    let points: Vec<_> = points.filter(|point| point.starts_with(folder)).collect();
    for point in points.into_iter().rev() {
        assert!(Command::new("umount").arg(point).status().unwrap().success(), "{point:?}");
    }
}

/// Checks the answers on the file systems of the short matrix that need this program: stacks of
/// layers, the engine, and file systems probed with a memory limit.
#[test]
fn probe_answers_are_correct_on_stacks_and_the_engine() {
    require_mounting!();
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        return skip(
            "probe_answers_are_correct_on_stacks_and_the_engine",
            "no loop devices, or not root",
        );
    }
    let mut kinds = vec![" on "];
    match MemoryBound::available() {
        Ok(()) => kinds.push("memory 40"),
        Err(error) => skip("answers under a memory limit", &error.to_string()),
    }
    for cells in kinds {
        let place = tempfile::tempdir_in(scratch::on_disk()).unwrap();
        let verify = || {
            unmount_below(place.path());
            Command::new(env!("CARGO_BIN_EXE_fslab"))
                .args(["probe", "--verify-matrix", "--short", "--cells", cells])
                .env("TMPDIR", place.path())
                .output()
                .unwrap()
        };
        // On a busy disk, the pages are written back too late for the memory limit, and the kernel
        // kills the program. This does not mean that an answer is wrong.
        let is_killed = |output: &Output| output.status.signal() == Some(9);
        let output = std::iter::repeat_with(verify).take(3).find(|output| !is_killed(output));
        unmount_below(place.path());
        let output = output.expect("the kernel killed the program three times");
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {text}{errors}", output.status);
        assert!(text.ends_with("0 wrong, 0 not found\n"), "{text}");
    }
}

/// The plot is one SVG without external references.
#[test]
fn plot_draws_the_evidence_as_one_svg() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("evidence.svg");
    let (code, message) = run(&[
        "probe",
        directory.path().to_str().unwrap(),
        "--only",
        "allocation-unit",
        "--plot",
        file.to_str().unwrap(),
    ]);
    assert_eq!(code, 0, "{message}");
    let svg = std::fs::read_to_string(&file).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("allocation-unit"));
    assert_eq!(svg.matches("http").count(), 1, "only the SVG namespace");
}
