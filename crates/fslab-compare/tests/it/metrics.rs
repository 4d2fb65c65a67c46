//! Tests of metrics printed by commands and measured by fio, in whole comparisons.

use std::path::Path;

use fslab_report::Report;
use fslab_report::sample::{Better, NoteKind, OwnMetric, Record, Sample};
use fslab_sys::signals::Interrupt;

use crate::support::{Silent, TestHost, directory_on_disk, has_program, run, samples};

/// Runs one round of a workload in a directory. Returns the notes about failures, and the records.
fn compare(workload: &str) -> (Vec<String>, Vec<Record>) {
    let (given, out) = (directory_on_disk(), directory_on_disk());
    let plan = format!(
        "name = \"m\"\nrounds = 1\nnoise_floor = false\n\
         [[target]]\nname = \"directory\"\ndirectory = \"{}\"\n[[workload]]\n{workload}",
        given.path().display()
    );
    let (outcome, records) =
        run(&plan, out.path(), &TestHost, Interrupt::default(), &mut Silent).unwrap();
    let failed = outcome.notes.into_iter().filter(|note| note.kind != NoteKind::Remark);
    (failed.map(|note| note.text).collect(), records)
}

fn metric<'a>(sample: &'a Sample, name: &str) -> &'a OwnMetric {
    let found = sample.metrics.iter().find(|metric| metric.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {:?}", sample.metrics))
}

#[test]
fn metrics_of_a_command_are_in_its_samples_and_reports() {
    let command = "name = \"command\"\ncache = \"as is\"\n\
         command = [\"sh\", \"-c\", \"echo tps = 12.5; echo '{\\\"n\\\": [1, 7]}'\"]\n\
         metrics = { tps = { regex = 'tps = ([0-9.]+)', unit = \"1/s\", better = \"more\" }, \
         n = { json = \"/n/1\" } }\n";
    let (failed, records) = compare(command);
    assert_eq!(failed, [""; 0]);
    let sample = samples(&records)[0];
    let tps = metric(sample, "tps");
    assert_eq!((tps.value, &*tps.unit, tps.better), (12.5, "1/s", Better::More));
    assert_eq!(metric(sample, "n").value, 7.0);
    let text = fslab_report::terminal(&Report::new(&records));
    assert!(text.contains("command, run") && text.contains("12.5 1/s"), "{text}");
}

#[test]
fn command_without_its_metric_fails() {
    let (failed, records) = compare(
        "name = \"command\"\ncache = \"as is\"\ncommand = [\"echo\", \"nothing\"]\n\
         metrics = { tps = { regex = 'tps = ([0-9.]+)' } }\n",
    );
    assert_eq!(failed.len(), 1);
    assert!(failed[0].contains("metric `tps`: the output does not match"), "{failed:?}");
    assert_eq!(samples(&records).len(), 0);
}

fn job_file(directory: &Path, text: &str) -> String {
    let path = directory.join("job.fio");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

const JOBS: &str = "[global]\nsize=1m\n[random]\nrw=randrw\nbs=4k\n[sequential]\nrw=read\nbs=64k\n";

#[test]
fn fio_gives_bandwidth_and_latencies_by_job_and_direction() {
    if !has_program("fio as a workload", "fio") {
        return;
    }
    let given = directory_on_disk();
    let job = job_file(given.path(), JOBS);
    let (failed, records) = compare(&format!("name = \"fio\"\njob = \"{job}\"\n"));
    assert_eq!(failed, [""; 0]);
    let sample = samples(&records)[0];
    // The random job reads or writes each of its 256 blocks once; the sequential job reads 16.
    assert_eq!((sample.operations, sample.bytes), (256 + 16, 2 << 20));
    let bandwidth = metric(sample, "sequential-read-bandwidth");
    assert_eq!((&*bandwidth.unit, bandwidth.better), ("bytes/s", Better::More));
    assert!(bandwidth.value > 0.0);
    let [p50, p99] = ["p50", "p99"].map(|p| metric(sample, &format!("random-read-latency-{p}")));
    assert!(0.0 < p50.value && p50.value <= p99.value && p99.value < 10.0, "{p50:?} {p99:?}");
    assert!(!sample.metrics.iter().any(|one| one.name.starts_with("sequential-write")));
}

/// The seed determines which blocks are read and written. Each round has its own seed.
#[test]
fn fio_does_the_same_on_every_target_of_a_round() {
    if !has_program("the seed of fio", "fio") {
        return;
    }
    let given = directory_on_disk();
    let job = job_file(given.path(), "[j]\nsize=1m\nrw=randrw\nbs=4k\n");
    let (one, other, out) = (directory_on_disk(), directory_on_disk(), directory_on_disk());
    let target = |name: &str, path: &Path| {
        format!("[[target]]\nname = \"{name}\"\ndirectory = \"{}\"\n", path.display())
    };
    let plan = format!(
        "name = \"m\"\nrounds = 3\nnoise_floor = false\n{}{}[[workload]]\nname = \"fio\"\n\
         job = \"{job}\"\n",
        target("one", one.path()),
        target("other", other.path())
    );
    let interrupt = Interrupt::default();
    let (_, records) = run(&plan, out.path(), &TestHost, interrupt, &mut Silent).unwrap();
    let shares = |target: &str| -> Vec<f64> {
        let of_target = samples(&records).into_iter().filter(|sample| sample.target == target);
        let share = |sample: &Sample| {
            metric(sample, "read-iops").value / metric(sample, "write-iops").value
        };
        of_target.map(share).collect()
    };
    let (one, other) = (shares("one"), shares("other"));
    assert_eq!(one.len(), 3);
    for (one, other) in one.iter().zip(&other) {
        assert!((one / other - 1.0).abs() < 0.01, "reads to writes: {one} and {other}");
    }
    assert!(one.iter().any(|share| (share / one[0] - 1.0).abs() > 1e-6), "{one:?}");
}

#[test]
fn job_files_that_can_not_be_run_in_a_target_are_refused() {
    if !has_program("wrong job files", "fio") {
        return;
    }
    let given = directory_on_disk();
    let refused = |text: &str, keys: &str| {
        let job = job_file(given.path(), text);
        let plan = format!(
            "name = \"m\"\nrounds = 1\n[[target]]\nname = \"directory\"\ndirectory = \"{}\"\n\
             [[workload]]\nname = \"fio\"\njob = \"{job}\"\n{keys}",
            given.path().display()
        );
        let out = directory_on_disk();
        let interrupt = Interrupt::default();
        run(&plan, out.path(), &TestHost, interrupt, &mut Silent).unwrap_err().to_string()
    };
    let outside = |line: &str| refused(&format!("[j]\nsize=1m\n{line}\n"), "");
    for line in ["filename=/dev/sda", "directory = /tmp", "filename=a:../b"] {
        let error = outside(line);
        assert!(error.contains(&format!("`{line}` sets a path outside the target")), "{error}");
    }
    let error = refused("[j]\nrw=sideways\n", "");
    assert!(error.contains("job.fio") && error.contains("sideways"), "{error}");
    let error = refused("[j]\nsize=1m\n", "program = \"echo\"\n");
    assert!(error.contains("fio 3.0 or later is needed"), "{error}");
    let error = refused("[j]\nsize=1m\n", "program = \"no-such-fio\"\n");
    assert!(error.contains("no-such-fio") && error.contains("No such file"), "{error}");
}
