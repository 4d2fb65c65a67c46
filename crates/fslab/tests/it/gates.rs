//! Tests `fslab compare` with `--fail-if` and `--ab`: exit codes, files for other programs, and the
//! comparison of two builds.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

use crate::support::{fslab, require_mounting};

/// Returns a plan with two directories as targets. Its command prints a score: 20 in the directory
/// "slow", 10 in the other directory.
fn plan(place: &Path) -> String {
    let target = |name: &str| {
        let directory = place.join(name);
        fs::create_dir(&directory).unwrap();
        format!("[[target]]\nname = \"{name}\"\ndirectory = \"{}\"\n", directory.display())
    };
    format!(
        "name = \"scores\"\nrounds = 3\nnoise_floor = false\n{}{}[[workload]]\nname = \"command\"\n\
         cache = \"as is\"\n\
         command = [\"sh\", \"-c\", \"case $PWD in */slow/*) echo score 20;; *) echo score 10;; \
         esac\"]\n\
         metrics = {{ score = {{ regex = 'score ([0-9]+)', unit = \"points\" }} }}\n",
        target("fast"),
        target("slow")
    )
}

/// Returns the exit code, standard output and standard error.
fn run(place: &TempDir, arguments: &[&str]) -> (i32, String, String) {
    let mut command = fslab(arguments);
    command.current_dir(place.path()).env("FSLAB_CACHE", place.path().join("cache"));
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[test]
fn failed_gate_has_its_own_exit_code() {
    let place = TempDir::new().unwrap();
    fs::write(place.path().join("plan.toml"), plan(place.path())).unwrap();
    let compare = ["compare", "plan.toml", "--reruns", "0", "--out", "out"];
    let gate =
        ["--fail-if", "score worse 50%", "--junit", "j.xml", "--smaller-is-better", "s.json"];
    let (code, output, messages) = run(&place, &[&compare[..], &gate].concat());
    assert_eq!(code, 5, "{messages}");
    assert!(output.contains("20.0 points"), "{output}");
    let failed = "gate FAILED: command, run on slow: score: 2.000 [2.000, 2.000] times fast";
    assert!(messages.contains(failed), "{messages}");
    assert!(messages.ends_with("fslab: gates: 1 of 1 rows failed\n"), "{messages}");
    let junit = fs::read_to_string(place.path().join("j.xml")).unwrap();
    assert!(junit.contains("failures=\"1\""), "{junit}");
    let list: serde_json::Value =
        serde_json::from_slice(&fs::read(place.path().join("s.json")).unwrap()).unwrap();
    let names: Vec<_> = list.as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert!(names.iter().any(|name| **name == "command, run on slow: score"), "{names:?}");
    for (gate, expected) in [
        ("score worse 150%", 0),
        ("run.score more 50% ", 5),
        ("command.run.score on slow more 50%", 5),
        ("score less 50%", 0),
        ("scor worse 50%", 3),
        ("score on slw worse 50%", 3),
        ("score worse", 3),
    ] {
        let (code, _, messages) = run(&place, &["report", "out/samples.jsonl", "--fail-if", gate]);
        assert_eq!(code, expected, "{gate}: {messages}");
    }
    let report = ["report", "out/samples.jsonl"];
    let (code, output, _) = run(&place, &[&report[..], &["--metric", "score"]].concat());
    assert!(code == 0 && output.contains("more: worse"), "{output}");
    let (code, _, message) = run(&place, &[&report[..], &["--metric", "scores"]].concat());
    assert_eq!(code, 3);
    assert!(message.contains("--metric scores: the report has no such metric; nearest: `score`"));
}

/// A gate can't be decided after a single round. It then fails only with `--fail-undecided`.
#[test]
fn undecided_gate_fails_only_with_fail_undecided() {
    let place = TempDir::new().unwrap();
    fs::write(place.path().join("plan.toml"), plan(place.path())).unwrap();
    let compare = ["compare", "plan.toml", "--rounds", "1", "--reruns", "0", "--out", "out"];
    let gate = ["--fail-if", "score worse 50%"];
    let (code, _, messages) = run(&place, &[&compare[..], &gate].concat());
    assert_eq!(code, 0, "{messages}");
    assert!(messages.contains("gate not measured: command, run on slow: score"), "{messages}");
    let report = ["report", "out/samples.jsonl", "--fail-undecided"];
    let (code, _, messages) = run(&place, &[&report[..], &gate].concat());
    assert_eq!(code, 5);
    assert!(messages.ends_with("fslab: gates: 1 of 1 rows are not decided\n"), "{messages}");
}

/// A comparison may take hours, so a gate that can't match is refused before the run.
#[test]
fn gate_on_an_unknown_phase_is_refused_before_the_run() {
    let place = TempDir::new().unwrap();
    fs::write(place.path().join("plan.toml"), plan(place.path())).unwrap();
    for (gate, named) in [
        ("rum.elapsed slower 5%", "nearest: `command.run.elapsed`"),
        ("run.elapsed on slo slower 5%", "nearest: `slow`"),
    ] {
        let compare = ["compare", "plan.toml", "--out", "out", "--fail-if", gate];
        let (code, _, messages) = run(&place, &compare);
        assert_eq!(code, 3, "{messages}");
        assert!(messages.contains(named), "{messages}");
        assert!(!place.path().join("out").exists());
    }
}

#[test]
fn ab_comparison_mounts_with_each_build() {
    require_mounting!();
    let place = TempDir::new_in("/var/tmp").unwrap();
    let script = place.path().join("old build");
    let log = place.path().join("log");
    let (shown, program) = (log.display(), env!("CARGO_BIN_EXE_fslab"));
    let text = format!("#!/bin/sh\necho \"$@\" >> '{shown}'\nexec '{program}' \"$@\"\n");
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let plan = "name = \"p\"\nrounds = 1\nimage_size = \"320 MiB\"\nnoise_floor = false\n\
         [[target]]\nname = \"ext4\"\nfilesystem = \"ext4\"\n\
         [[target]]\nname = \"null\"\nfilesystem = \"ext4\"\nlayers = [\"null\"]\n\
         [[workload]]\nname = \"stream\"\nsize = \"1 MiB\"\n";
    fs::write(place.path().join("plan.toml"), plan).unwrap();
    let ab = ["--ab", "old build", program];
    let compare = ["compare", "plan.toml", "--reruns", "0", "--out", "out"];
    let (code, output, messages) = run(&place, &[&compare[..], &ab].concat());
    assert_eq!(code, 0, "{messages}");
    assert!(output.contains("against old") && output.contains("new"), "{output}");
    let log = fs::read_to_string(log).unwrap();
    let mounts = log.lines().filter(|line| line.starts_with("mount -l null")).count();
    assert!(mounts >= 2, "once to try it and once for each run:\n{log}");
    let samples = fs::read_to_string(place.path().join("out/samples.jsonl")).unwrap();
    let first: serde_json::Value = serde_json::from_str(samples.lines().next().unwrap()).unwrap();
    assert_eq!(first["programs"].as_array().unwrap().len(), 2);
    assert_eq!(first["targets"], serde_json::json!(["old", "new"]));
    let (code, _, message) = run(&place, &["compare", "plan.toml", "--ab", "plan.toml", program]);
    assert_eq!(code, 3);
    assert_eq!(message, "fslab: --ab plan.toml: not an executable program\n");
}
