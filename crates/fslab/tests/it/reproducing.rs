//! Tests `fslab reproduce` from a user's point of view.

use std::fs;
use std::process::Stdio;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::mounting::send;
use crate::support::{fslab, run, soon};

const BAD_INPUT: i32 = 3;

#[track_caller]
pub fn done(place: &TempDir, arguments: &[&str]) -> String {
    let mut command = fslab(arguments);
    command.current_dir(place.path()).env("FSLAB_CACHE", place.path());
    let output = command.output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {messages}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn dry_run_lists_plans_claims_and_missing_requirements() {
    let place = TempDir::new().unwrap();
    let told = done(&place, &["reproduce", "--dry-run", "--verbose", "--quick"]);
    for part in [
        "\nfast-indexing: Fast Indexing",
        "  names: Names: directories of many files;",
        "compile-elapsed-wrapfs (7.3.1, figure 5) = 2.4 % more: fast-indexing:",
        "MISSING: there are no tapes",
        "  command simulation: fslab age simulate --profile smith97",
        "hot-score-noswitch (slide 30) = 0.931 of 1: command simulation: [policy=ffs-noswitch,",
        "command prototype: fslab ext2 capacity --levels 1",
        "one-level-full (chart indexed.vs.classic.10x10000.create) = 93000 files within 5 %:",
        "growth of the cost of ext2 htree",
        "not reproduced: ",
    ] {
        assert!(told.contains(part), "{part:?} is not in\n{told}");
    }
    assert!(fs::read_dir(place.path()).unwrap().next().is_none(), "a dry run leaves nothing");
}

#[test]
fn invalid_choices_are_named_in_the_error() {
    let place = TempDir::new().unwrap();
    let (code, message) = run(&["reproduce", "htre"]);
    assert!(code == BAD_INPUT && message.contains("'htree'"), "{message}");
    let empty = place.path().to_str().unwrap();
    let (code, message) = run(&["reproduce", "--samples", empty]);
    assert!(code == BAD_INPUT && message.contains("no samples of any plan"), "{message}");
}

/// `fslab reproduce` accepts samples of `fslab compare`. Cells that were not run are reported as
/// missing.
#[test]
fn reproduce_accepts_samples_of_an_ordinary_comparison() {
    let place = TempDir::new().unwrap();
    let plan = std::path::absolute("../../plans/names.toml").unwrap();
    let plan = plan.to_str().unwrap();
    done(
        &place,
        &[
            "compare",
            plan,
            "--quick",
            "--rounds",
            "2",
            "--seed",
            "7",
            "--reruns",
            "0",
            "--only-target",
            "engine, linear",
            "--only-target",
            "engine, htree",
            "--only-workload",
            "100 names x 100",
            "--out",
            "names",
        ],
    );
    let told = done(&place, &["reproduce", "htree", "--samples", "."]);
    assert!(told.starts_with("htree: 50 claims: "), "{told}");
    let text = fs::read(place.path().join("htree.json")).unwrap();
    let found: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let rows = found["rows"].as_array().unwrap();
    let row = |id: &str| rows.iter().find(|row| row["id"] == id).unwrap();
    let figure = &row("create-small-engine")["outcome"]["figures"][0];
    assert!(figure["rounds"] == 2 && figure["value"].as_f64().unwrap() > 0.0, "{figure}");
    let missing = row("create-10000")["sentence"].as_str().unwrap();
    assert!(missing.starts_with("Missing: the quick form of the plan skips"), "{missing}");
    assert!(row("create-2000000-engine")["sentence"].as_str().unwrap().contains("there is no"));
    let page = fs::read_to_string(place.path().join("htree.html")).unwrap();
    assert!(page.contains("<a href=\"names/report.html\">"), "the plan's own report is not linked");
    assert!(fs::read_to_string(place.path().join("index.html")).unwrap().contains("htree.html"));
    assert!(!told.contains("marked"), "{told}");
    figures_from_failed_runs_are_marked(&place);
}

/// Plants three errors: a target that failed after some samples, an aborted run, and unreadable
/// samples of another plan. The figures from such runs must be marked, and the exit code must be 1.
#[track_caller]
fn figures_from_failed_runs_are_marked(place: &TempDir) {
    let samples = place.path().join("names/samples.jsonl");
    let text = fs::read_to_string(&samples).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    assert!(lines.pop().unwrap().contains(r#""record":"end""#));
    let note = serde_json::json!({
        "record": "note", "kind": "failed", "target": "engine, htree",
        "workload": "100 names x 100", "text": "in round 2: 99 names, expected 100",
    });
    let note = note.to_string();
    lines.push(&note);
    fs::write(&samples, lines.join("\n") + "\n").unwrap();
    let other = place.path().join("names-millions");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("samples.jsonl"), "no record\n").unwrap();
    let mut command = fslab(&["reproduce", "htree", "--samples", "."]);
    let output = command.current_dir(place.path()).output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{messages}");
    assert!(messages.contains("fslab: failed: plan names, plan names-millions;"), "{messages}");
    let found = fs::read(place.path().join("htree.json")).unwrap();
    let found: serde_json::Value = serde_json::from_slice(&found).unwrap();
    let rows = found["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["id"] == "create-small-engine").unwrap();
    assert!(row["measured"].as_str().unwrap().ends_with(" (marked)"), "{row}");
    let marks = row["marks"].as_array().unwrap();
    let failed = "engine, htree failed at 100 names x 100 in round 2: 99 names, expected 100";
    assert_eq!(marks[0], failed);
    assert!(marks[1].as_str().unwrap().starts_with("the run of plan names was aborted: "), "{row}");
    for page in ["htree.html", "htree.md"] {
        let page = fs::read_to_string(place.path().join(page)).unwrap();
        assert!(page.contains("99 names, expected 100"), "{page}");
        assert!(
            page.contains("the first line is not"),
            "the reason why the other plan has no samples: {page}"
        );
    }
}

/// If a plan can't be run, the command fails and the page states the reason.
#[test]
fn reproduction_fails_if_its_plans_fail() {
    let place = TempDir::new().unwrap();
    let mut command = fslab(&["reproduce", "htree", "--quick", "--out", "papers"]);
    command.args(["--work-dir", "/proc"]).current_dir(place.path());
    let output = command.env("FSLAB_CACHE", place.path()).output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{messages}");
    assert!(
        messages.contains("fslab: failed: plan names, plan names-sizes, plan names-millions;"),
        "{messages}"
    );
    let page = fs::read_to_string(place.path().join("papers/htree.html")).unwrap();
    assert!(page.contains("not run: ") && page.contains("/proc"), "{page}");
}

/// Returns the row of a claim, from the JSON page of a paper.
#[track_caller]
pub fn row(place: &TempDir, paper: &str, id: &str) -> serde_json::Value {
    let text = fs::read(place.path().join(format!("{paper}.json"))).unwrap();
    let found: serde_json::Value = serde_json::from_slice(&text).unwrap();
    found["rows"].as_array().unwrap().iter().find(|row| row["id"] == id).unwrap().clone()
}

/// The claim on the number of names in a one-level index agrees with the output of `ext2 capacity`.
/// With a wrong number, it must differ.
#[test]
fn the_index_with_one_level_is_compared_with_the_prototype() {
    let place = TempDir::new().unwrap();
    let arguments =
        ["ext2", "capacity", "--levels", "1", "--hash", "legacy", "--prefix", "foo", "--json"];
    let answer: serde_json::Value = serde_json::from_str(&done(&place, &arguments)).unwrap();
    assert_eq!(answer["leaves"], 508);
    let stands = |answer: &serde_json::Value| {
        let answers = serde_json::json!({ "prototype": { "Ok": answer } });
        fs::write(place.path().join("answers.json"), answers.to_string()).unwrap();
        done(&place, &["reproduce", "htree", "--samples", "."]);
        let row = row(&place, "htree", "one-level-full");
        assert_eq!(row["published"], "93000 files within 5 %");
        row["agreement"].as_str().unwrap().to_owned()
    };
    assert_eq!(stands(&answer), "agrees");
    assert_eq!(stands(&serde_json::json!({ "names": 80_000 })), "differs");
}

/// A claim over several numbers of files is judged separately for each number that has samples.
#[test]
fn claim_over_file_counts_is_judged_at_each_count() {
    let place = TempDir::new().unwrap();
    let plan = std::path::absolute("../../plans/names-sizes.toml").unwrap();
    let mut arguments = vec!["compare", plan.to_str().unwrap(), "--quick", "--rounds", "2"];
    arguments.extend(["--seed", "7", "--reruns", "0", "--out", "names-sizes"]);
    for target in ["engine, linear", "engine, htree"] {
        arguments.extend(["--only-target", target]);
    }
    for workload in ["1000 names in 10 directories", "2000 names in 10 directories"] {
        arguments.extend(["--only-workload", workload]);
    }
    done(&place, &arguments);
    done(&place, &["reproduce", "htree", "--samples", "."]);
    let row = row(&place, "htree", "create-small-sizes-engine");
    let figures = row["outcome"]["figures"].as_array().unwrap();
    let places: Vec<_> = figures.iter().map(|figure| figure["at"]["value"].clone()).collect();
    assert_eq!(places, [1000.0, 2000.0], "{row}");
    assert_eq!(row["points"].as_array().unwrap().len(), 2, "{row}");
    assert!(row["sentence"].as_str().unwrap().contains("of 2 points"), "{row}");
}

#[test]
fn interrupted_recovery_measurement_leaves_no_file() {
    let place = TempDir::new().unwrap();
    let mut command =
        fslab(&["sca", "recovery", "--layer", "copy", "--size", "1GiB", "--dir", "."]);
    let working = command.current_dir(place.path()).stderr(Stdio::piped()).spawn().unwrap();
    let written = || {
        let found = fs::read_dir(place.path()).unwrap().next()?.unwrap().path().join("file");
        Some(found.metadata().ok()?.len())
    };
    soon("the file has data", || written().is_some_and(|bytes| bytes > 0));
    send(working.id(), Signal::TERM);
    let ended = working.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "fslab: interrupted; no files are left\n");
    assert_eq!(written(), None, "the file is left");
}

/// The claims find their figures in the output of `sca recovery`. The command leaves no files.
#[test]
fn claims_on_recovery_find_their_figures() {
    let place = TempDir::new().unwrap();
    let arguments = ["sca", "recovery", "--size", "3MB", "--rounds", "2", "--dir", ".", "--json"];
    let answer: serde_json::Value = serde_json::from_str(&done(&place, &arguments)).unwrap();
    assert!(fs::read_dir(place.path()).unwrap().next().is_none(), "the file was left");
    assert_eq!(answer["size_bytes"], 3_000_000);
    assert!(answer["stored_bytes"].as_u64().unwrap() < 1_500_000, "{answer}");
    let answers = serde_json::json!({ "recovery": { "Ok": answer } });
    fs::write(place.path().join("answers.json"), answers.to_string()).unwrap();
    done(&place, &["reproduce", "fast-indexing", "--samples", "."]);
    let text = fs::read(place.path().join("fast-indexing.json")).unwrap();
    let found: serde_json::Value = serde_json::from_slice(&text).unwrap();
    for id in ["recovery", "recovery-after-kill"] {
        let row = found["rows"].as_array().unwrap().iter().find(|row| row["id"] == id).unwrap();
        let figure = &row["outcome"]["figures"][0];
        assert!(figure["value"].as_f64().unwrap() > 0.0, "{row}");
        assert!(figure["interval"].is_array(), "{row}");
    }
}
