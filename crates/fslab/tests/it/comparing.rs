//! Tests `fslab compare` and `fslab report` as a user runs them: generated plans, dry runs, reports
//! in every format, interrupted and merged runs.

use std::fs;
use std::path::Path;

use crate::scratch::Scratch;
use crate::support::run;

const BAD_INPUT: i32 = 3;

const PLAN: &str = "name = \"small\"\nrounds = 3\n\
    [[target]]\nname = \"memory\"\nin_process = \"mem:\"\n\
    [[target]]\nname = \"memory under null\"\nin_process = \"null / mem:\"\n\
    [[workload]]\nname = \"stream\"\nsize = \"64 KiB\"\nrequest = \"4 KiB\"\n";

/// Makes a directory with a plan. The program has its own cache folder.
fn folder() -> Scratch {
    Scratch::with_plan(PLAN, ("FSLAB_CACHE", "cache"))
}

#[test]
fn init_writes_a_plan_once_and_a_dry_run_describes_it() {
    let scratch = folder();
    scratch.done(&["compare", "--init"]);
    let told = scratch.done(&["compare", "compare.toml", "--dry-run"]);
    assert!(told.contains("10 rounds, and up to 30 until every interval is within"), "{told}");
    assert!(told.contains("file-attributes"), "{told}");
    let (code, _, message) = scratch.fslab(&["compare", "--init", "compare.toml"]);
    assert_eq!(
        (code, message.as_str()),
        (BAD_INPUT, "fslab: compare.toml exists; choose another file\n")
    );
    assert!(!Path::new(&scratch.path("cache")).exists(), "nothing was run");
}

/// At first, the duration is unknown. A dry run with `--trial` measures and prints it, but only a
/// comparison records it for later estimates.
#[test]
fn dry_run_estimates_the_duration_after_a_first_run() {
    let scratch = folder();
    let dry = ["compare", "plan.toml", "--dry-run"];
    assert!(scratch.done(&dry).contains("9 runs, which have not been timed on this machine yet"));
    let trial = scratch.done(&[&dry[..], &["--trial"]].concat());
    assert!(trial.contains("9 runs take about "), "{trial}");
    assert!(!scratch.done(&dry).contains("take about"), "the durations of a trial are not kept");
    scratch.done(&["compare", "plan.toml", "--out", "out"]);
    assert!(scratch.done(&dry).contains("9 runs take about "));
    let chosen = scratch.done(&[&dry[..], &["--cells", "1/3"]].concat());
    assert!(chosen.contains("3 of 9 runs"), "{chosen}");
}

#[test]
fn dry_run_names_targets_that_cannot_be_made() {
    let scratch = folder();
    let plan = PLAN.replace("null / mem:", "nul / mem:");
    let plan =
        plan + "[[target]]\nname = \"on disk\"\nfilesystem = \"ext4\"\nlayers = [\"zstd:x=1\"]\n";
    fs::write(scratch.path("plan.toml"), plan).unwrap();
    let told = scratch.done(&["compare", "plan.toml", "--dry-run"]);
    let after = |target: &str| {
        told.lines().skip_while(|line| !line.starts_with(target)).nth(1).unwrap_or_default()
    };
    assert!(!after("  memory:").contains("will fail"), "{told}");
    assert!(after("  memory under null:").starts_with("    will fail: nul"), "{told}");
    assert!(after("  on disk:").starts_with("    will fail: zstd:x=1"), "{told}");
}

#[test]
fn failed_run_without_samples_does_not_block_the_next_one() {
    let scratch = folder();
    let compare = ["compare", "plan.toml", "--rounds", "1", "--out", "out"];
    let bad = PLAN.replace("null / mem:", "nul / mem:").replace("\"mem:\"", "\"nul / mem:\"");
    fs::write(scratch.path("plan.toml"), bad).unwrap();
    let (code, _, message) = scratch.fslab(&compare);
    assert!(code != 0 && message.contains("unknown layer 'nul'"), "{code} {message}");
    fs::write(scratch.path("plan.toml"), PLAN).unwrap();
    let told = scratch.done(&compare);
    assert!(told.contains("too few rounds: no ratio is shown"), "{told}");
    let (code, _, message) = scratch.fslab(&compare);
    assert!(code == BAD_INPUT && message.contains("never overwritten"), "{code} {message}");
}

#[test]
fn command_of_a_workload_keeps_its_quotes() {
    let scratch = folder();
    let compare = ["compare", "plan.toml", "--rounds", "1", "--out", "out", "--dry-run"];
    let told = scratch.done(&[&compare[..], &["--", "sh", "-c", "ls | wc -l"]].concat());
    assert!(told.contains("sh -c 'ls | wc -l'"), "{told}");
}

#[test]
fn plans_are_not_accepted_as_samples() {
    let scratch = folder();
    let (code, _, message) = scratch.fslab(&["report", "plan.toml"]);
    assert_eq!(code, BAD_INPUT);
    assert!(message.starts_with("fslab: plan.toml: the first line is not"), "{message}");
}

#[test]
fn report_is_written_in_every_format() {
    let scratch = folder();
    scratch.done(&["compare", "plan.toml", "--out", "out", "--seed", "5", "--reruns", "0"]);
    let samples = "out/samples.jsonl";
    let files = ["page.html", "tables.md", "samples.csv", "samples.parquet"];
    let options = ["--html", "--markdown", "--csv", "--parquet"];
    let mut arguments = vec!["report", samples, "--baseline", "memory under null"];
    for (option, file) in options.into_iter().zip(files) {
        arguments.extend([option, file]);
    }
    let text = scratch.done(&arguments);
    assert!(text.contains("against memory under null"), "{text}");
    let begin = |file: &str| fs::read(scratch.path(file)).unwrap()[..4].to_vec();
    assert_eq!(files.map(begin), [b"<!do", b"# sm", b"run,", b"PAR1"].map(|b| b.to_vec()));
    let json: serde_json::Value =
        serde_json::from_str(&scratch.done(&["report", samples, "--json"])).unwrap();
    assert_eq!(json["baselines"], serde_json::json!(["memory"]));
    let (code, _, message) = scratch.fslab(&["report", samples, "--baseline", "memry"]);
    assert_eq!(code, BAD_INPUT);
    assert_eq!(message, "fslab: no target is named `memry`; nearest: `memory`\n");
}

/// The samples of both halves of a comparison can be merged into one report. Resuming a complete
/// half runs nothing.
#[test]
fn comparison_shares_are_merged_and_resumed() {
    let scratch = folder();
    let half = |cells: &str, out: &str| {
        let arguments = ["compare", "plan.toml", "--seed", "7", "--reruns", "0"];
        scratch.done(&[&arguments[..], &["--cells", cells, "--out", out]].concat());
    };
    half("1/2", "a");
    half("2/2", "b");
    let text = scratch.done(&["report", "a/samples.jsonl", "b/samples.jsonl"]);
    assert!(text.contains("2 runs together, 36 samples"), "{text}");
    let text = scratch.done(&["report", "--history", "a/samples.jsonl", "b/samples.jsonl"]);
    assert!(text.starts_with("2 runs, ") && text.contains("too few to find"), "{text}");
    let before = fs::read_to_string(scratch.path("a/samples.jsonl")).unwrap();
    // This run was started as one half, so it resumes as the same half.
    let text = scratch.done(&["compare", "--resume", "a", "--cells", "1/2", "--reruns", "0"]);
    assert!(text.contains("24 samples"), "{text}");
    for (option, value, begun) in [
        ("--cells", "2/2", "--cells 1/2"),
        ("--only-target", "memory", "no --only-target"),
        ("--reruns", "1", "--reruns 0"),
        ("--work-dir", "elsewhere", "no --work-dir"),
    ] {
        let (code, _, message) = scratch.fslab(&["compare", "--resume", "a", option, value]);
        assert_eq!(code, BAD_INPUT);
        assert!(
            message.contains(&format!("this run began with {begun}, and a resumed run")),
            "{message}"
        );
        assert!(message.contains(&format!("Leave out {option},")), "{message}");
    }
    let after = fs::read_to_string(scratch.path("a/samples.jsonl")).unwrap();
    assert!(after.starts_with(&before), "the earlier samples are kept");
    // Samples of an older fslab do not record the chosen part of the plan. So the other half counts
    // as missing and is run.
    let line = before.lines().next().unwrap();
    let mut first: serde_json::Value = serde_json::from_str(line).unwrap();
    first.as_object_mut().unwrap().remove("choice").unwrap();
    fs::write(scratch.path("a/samples.jsonl"), before.replace(line, &first.to_string())).unwrap();
    let text = scratch.done(&["compare", "--resume", "a"]);
    assert!(text.contains("36 samples"), "{text}");
    let (code, _, message) = scratch.fslab(&["compare", "--resume", "nothing"]);
    assert_eq!(code, BAD_INPUT);
    assert!(message.contains("nothing to resume"), "{message}");
    let (code, _, message) = scratch.fslab(&["compare", "plan.toml", "--out", "a"]);
    assert_eq!(code, BAD_INPUT);
    assert!(message.contains("resume with --resume a"), "{message}");
}

#[test]
fn resumed_comparison_keeps_its_original_options() {
    let scratch = folder();
    let choice = ["--only-target", "memory", "--work-dir", "work", "--reruns", "0"];
    let begin = ["compare", "plan.toml", "--out", "out", "--rounds", "2"];
    fs::create_dir(scratch.path("work")).unwrap();
    scratch.done(&[&begin[..], &choice[..]].concat());
    let file = scratch.path("out/samples.jsonl");
    let whole = fs::read_to_string(&file).unwrap();
    let record = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
    // This is the samples file of a comparison that was killed after its first block.
    let block = |line: &str| record(line)["record"] == "block";
    let end = whole.lines().position(block).unwrap() + 1;
    let cut: Vec<&str> = whole.lines().take(end).collect();
    fs::write(&file, cut.join("\n") + "\n").unwrap();
    scratch.done(&["compare", "--resume", "out"]);
    let text = fs::read_to_string(&file).unwrap();
    let records: Vec<_> = text.lines().map(record).collect();
    let of = |kind: &str| records.iter().filter(|r| r["record"] == kind).collect::<Vec<_>>();
    let is_baseline = |name: &serde_json::Value| name == "memory" || name == "memory, second copy";
    assert!(of("sample").iter().all(|sample| is_baseline(&sample["target"])), "{text}");
    assert_eq!(of("block").len(), 2, "{text}");
    let sessions = of("provenance");
    let [first, again] = sessions.as_slice() else { panic!("{text}") };
    assert_eq!(first["choice"], again["choice"]);
    assert_eq!(first["command"], again["command"]);
    assert_eq!(first["rounds"], again["rounds"]);
    let work = fs::canonicalize(scratch.path("work")).unwrap();
    assert_eq!(first["choice"]["work_parent"], work.to_str().unwrap());
}

#[test]
fn invalid_choices_are_named_in_the_error() {
    let scratch = folder();
    let plan = scratch.path("plan.toml");
    let (code, message) = run(&["compare", &plan, "--cells", "5/4"]);
    assert!(code == BAD_INPUT && message.contains("written K/N"), "{message}");
    let (code, message) = run(&["compare", &plan, "--only-rounds", "0-3"]);
    assert!(code == BAD_INPUT && message.contains("counted from 1"), "{message}");
    let (code, _, message) =
        scratch.fslab(&["compare", "plan.toml", "--dry-run", "--only-workload", "straem"]);
    assert_eq!(code, BAD_INPUT);
    assert!(message.contains("no workload is named `straem`; nearest: `stream`"), "{message}");
}

#[test]
fn missing_work_directories_and_foreign_report_directories_are_refused() {
    let scratch = folder();
    fs::create_dir(scratch.path("mine")).unwrap();
    fs::write(scratch.path("mine/report.html"), "mine").unwrap();
    fs::create_dir(scratch.path("empty")).unwrap();
    let compare = ["compare", "plan.toml", "--out"];
    let reproduce = ["reproduce", "htree", "--quick", "--out"];
    for command in [compare.as_slice(), &reproduce] {
        for (places, part) in [
            (["new", "--work-dir", "nope"].as_slice(), "--work-dir nope: there is no such"),
            (&["new", "--work-dir", "plan.toml"], "--work-dir plan.toml: it is not a directory"),
            (&["mine"], "--out mine: it contains report.html, which no report wrote"),
            (&["plan.toml"], "--out plan.toml: it is not a directory"),
        ] {
            let (code, _, message) = scratch.fslab(&[command, places].concat());
            assert_eq!(code, BAD_INPUT, "{message}");
            assert!(message.contains(part), "{message}");
        }
    }
    let names = fs::read_dir(scratch.folder()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["empty", "mine", "plan.toml"], "a refused run made a file");
    assert_eq!(fs::read_to_string(scratch.path("mine/report.html")).unwrap(), "mine");
    assert_eq!(fs::read_dir(scratch.path("mine")).unwrap().count(), 1);
    scratch.done(&["compare", "plan.toml", "--rounds", "1", "--out", "empty"]);
}

/// If one target fails, the comparison fails, but the other targets are still measured.
#[test]
fn comparison_fails_if_a_target_fails() {
    let scratch = folder();
    let failing = "[[target]]\nname = \"broken\"\n\
                   in_process = \"fault:rules=write error EIO / mem:\"\n";
    fs::write(scratch.path("plan.toml"), format!("{PLAN}{failing}")).unwrap();
    let (code, told, message) =
        scratch.fslab(&["compare", "plan.toml", "--rounds", "1", "--out", "out"]);
    assert_eq!(code, 1, "{message}");
    assert!(message.ends_with(
        "fslab: failed: broken; the report contains the other measurements and the reasons\n"
    ));
    assert!(told.contains("memory under null"), "{told}");
    assert!(Path::new(&scratch.path("out/report.html")).exists());
}
