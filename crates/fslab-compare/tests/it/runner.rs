//! Tests of the runner: resumed, divided and merged runs, choices of cells, rounds until intervals
//! are narrow, repeated blocks, and targets that crash or hang.

use std::path::Path;

use fslab_compare::plan::Form;
use fslab_compare::{Error, Observer, Outcome, Plan, Result, RunOptions};
use fslab_report::Report;
use fslab_report::sample::{self, EndReason, Note, NoteKind, Record, Sample};
use fslab_report::{Cells, Choice, Share};
use fslab_sys::signals::Interrupt;

use crate::support::{Silent, TestHost, can_mount, directory_on_disk, has_program, samples};

const PLAN: &str = r#"
name = "small"
rounds = 4
[[target]]
name = "a"
in_process = "mem:"
[[target]]
name = "b"
in_process = "mem:"
[[workload]]
name = "stream"
size = "64 KiB"
request = "4 KiB"
[[workload]]
name = "stream"
label = "again"
size = "64 KiB"
request = "4 KiB"
"#;

/// The options of a run, with defaults.
struct Run<'a> {
    plan: &'a str,
    directory: &'a Path,
    file: &'a str,
    cells: Cells,
    resume: bool,
    reruns_max: u32,
    seed: u64,
    interrupt: Interrupt,
}

impl<'a> Run<'a> {
    fn new(plan: &'a str, directory: &'a Path) -> Self {
        Self {
            plan,
            directory,
            file: "samples.jsonl",
            cells: Cells::default(),
            resume: false,
            reruns_max: 0,
            seed: 5,
            interrupt: Interrupt::default(),
        }
    }

    fn go(&self, observer: &mut dyn Observer) -> Result<(Outcome, Vec<Record>)> {
        let plan = Plan::parse("test", self.plan, Form::Full)?;
        let samples = self.directory.join(self.file);
        let options = RunOptions {
            plan: &plan,
            seed: self.seed,
            choice: Choice {
                cells: self.cells.clone(),
                reruns_max: self.reruns_max,
                work_parent: Choice::kept(self.directory, &samples),
                ..Choice::default()
            },
            samples: &samples,
            resume: self.resume,
            command: "fslab compare test",
            host: &TestHost,
            interrupt: self.interrupt.clone(),
            remarks: Vec::new(),
        };
        let outcome = fslab_compare::run(options, observer)?;
        Ok((outcome, sample::read(&samples)?))
    }
}

fn blocks(records: &[Record]) -> Vec<(String, u32, u32)> {
    let mut blocks = Vec::new();
    for record in records {
        if let Record::Block(block) = record {
            blocks.push((block.workload.clone(), block.round, block.attempt));
        }
    }
    blocks
}

/// Returns a sample's cell, position and seed, which must be the same in every run of a plan.
fn place(sample: &Sample) -> (String, u32, String, String, u32, u64) {
    let Sample { workload, round, target, phase, position, seed, .. } = sample.clone();
    (workload, round, target, phase, position, seed)
}

/// Interrupts the comparison before a cell whose description starts with this text.
struct StopAt(&'static str, Interrupt);

impl Observer for StopAt {
    fn progress(&mut self, _done: u64, _total: u64, next: &str) {
        if next.starts_with(self.0) {
            self.1.raise();
        }
    }
    fn note(&mut self, _note: &Note) {}
}

/// A run is interrupted in a block, its samples file is truncated in the middle of a line, and the
/// run is resumed. Then each block is complete once; the interrupted block is complete in its
/// second attempt. The report equals that of an uninterrupted run.
#[test]
fn an_interrupted_run_is_resumed() {
    let directory = directory_on_disk();
    let mut run = Run::new(PLAN, directory.path());
    let (_, whole) = run.go(&mut Silent).unwrap();
    run.file = "interrupted.jsonl";
    let mut stop = StopAt("round 2, again on", run.interrupt.clone());
    let (outcome, records) = run.go(&mut stop).unwrap();
    assert_eq!(outcome.end.reason, EndReason::Interrupted);
    let before = blocks(&records).len();
    assert_eq!(before, 3, "two of round 1, one of round 2");
    // Simulates that the run was killed while it wrote a sample.
    let path = directory.path().join(run.file);
    let text = std::fs::read_to_string(&path).unwrap();
    let cut = records.iter().rev().find_map(|record| match record {
        Record::Sample(sample) => Some(sample.clone()),
        _ => None,
    });
    let cut = Sample { workload: "again".to_owned(), round: 1, ..cut.unwrap() };
    let line = serde_json::to_string(&Record::Sample(cut)).unwrap();
    std::fs::write(&path, format!("{text}{line}\n{}", &line[..line.len() / 2])).unwrap();

    run.resume = true;
    run.interrupt = Interrupt::default();
    let (outcome, records) = run.go(&mut Silent).unwrap();
    assert_eq!((outcome.end.reason, outcome.end.rounds), (EndReason::Finished, 4));
    let mut done = blocks(&records);
    assert!(done.contains(&("again".to_owned(), 1, 1)), "{done:?}");
    done.sort();
    done.dedup_by_key(|(workload, round, _)| (workload.clone(), *round));
    assert_eq!(done.len(), 8, "each block once: {done:?}");
    let report = Report::new(&records);
    assert_eq!((report.samples, report.superseded), (Report::new(&whole).samples, 1));
    let places = |report: &Report| {
        let mut places: Vec<_> = report.raw.iter().map(place).collect();
        places.sort();
        places
    };
    assert_eq!(places(&report), places(&Report::new(&whole)), "the same seeds and orders");
    // Resuming the complete run adds no samples.
    let (_, again) = run.go(&mut Silent).unwrap();
    assert_eq!(samples(&again).len(), samples(&records).len());
}

#[test]
fn run_is_resumed_only_with_equal_settings() {
    let directory = directory_on_disk();
    let mut run = Run::new(PLAN, directory.path());
    run.go(&mut Silent).unwrap();
    run.resume = true;
    run.seed = 6;
    let refused = |run: &Run<'_>| run.go(&mut Silent).unwrap_err().to_string();
    assert!(refused(&run).contains("its seed differs"));
    run.seed = 5;
    let other = PLAN.replace("rounds = 4", "rounds = 5");
    assert!(
        refused(&Run { plan: &other, resume: true, ..Run::new(PLAN, directory.path()) })
            .contains("its plan differs")
    );
    let begun = || Run { resume: true, ..Run::new(PLAN, directory.path()) };
    let cells = Cells { targets: vec!["a".to_owned()], ..Cells::default() };
    assert!(refused(&Run { cells, ..begun() }).contains("its choice of cells differs"));
    assert!(refused(&Run { reruns_max: 1, ..begun() }).contains("its number of reruns differs"));
    let elsewhere = directory_on_disk();
    let samples = directory.path().join("samples.jsonl").canonicalize().unwrap();
    let file = samples.to_str().unwrap();
    let moved = Run { file, directory: elsewhere.path(), ..begun() };
    assert!(refused(&moved).contains("its work directory differs"));
    begun().go(&mut Silent).unwrap();
    // Two runs never write to the same file.
    let file = std::fs::File::open(directory.path().join(run.file)).unwrap();
    file.lock().unwrap();
    assert!(matches!(
        run.go(&mut Silent),
        Err(Error::Report(fslab_report::Error::SamplesInUse { .. }))
    ));
}

/// The samples of three shares equal those of an undivided run, and give one report.
#[test]
fn merged_shares_equal_a_whole_run() {
    let directory = directory_on_disk();
    let mut run = Run::new(PLAN, directory.path());
    let (_, whole) = run.go(&mut Silent).unwrap();
    let mut merged = Vec::new();
    for (number, file) in [(1, "1.jsonl"), (2, "2.jsonl"), (3, "3.jsonl")] {
        run.file = file;
        run.cells.share = Some(Share { number, of: 3 });
        merged.extend(run.go(&mut Silent).unwrap().1);
    }
    let sorted = |records: &[Record]| {
        let mut places: Vec<_> = samples(records).into_iter().map(place).collect();
        places.sort();
        places
    };
    assert_eq!(sorted(&merged), sorted(&whole));
    let report = Report::new(&merged);
    assert_eq!(report.further_runs.len(), 2);
    assert!(report.groups.iter().all(|group| group.rows[1].against[0].ratio.unwrap().rounds == 4));
    // Remarks would list differences between the runs.
    let remarks = report.notes.iter().filter(|note| note.target.is_none());
    assert_eq!(remarks.count(), 0, "{:?}", report.notes);
}

#[test]
fn cells_are_chosen_by_name_and_round() {
    let directory = directory_on_disk();
    let mut run = Run::new(PLAN, directory.path());
    run.cells = Cells {
        targets: vec!["b".to_owned()],
        workloads: vec!["again".to_owned()],
        rounds: Some(2..=3),
        ..Cells::default()
    };
    let (_, records) = run.go(&mut Silent).unwrap();
    let found = samples(&records);
    assert!(found.iter().all(|s| s.target == "b" && s.workload == "again"));
    assert_eq!(blocks(&records).len(), 2);
    run.cells.targets = vec!["c".to_owned()];
    run.file = "other.jsonl";
    let error = run.go(&mut Silent).unwrap_err().to_string();
    assert!(error.contains("no target is named `c`"), "{error}");
}

/// If every interval is narrow enough, only the minimum number of rounds is run. If all intervals
/// are too wide, the maximum number is run, and notes list these intervals.
#[test]
fn rounds_are_added_until_intervals_are_narrow() {
    let directory = directory_on_disk();
    let plan = |width: &str| {
        PLAN.replace(
            "rounds = 4",
            &format!("rounds = 3\nrounds_max = 6\nhalf_width_percent = {width}"),
        )
    };
    let narrow = plan("100.0");
    let run = Run::new(&narrow, directory.path());
    let (outcome, records) = run.go(&mut Silent).unwrap();
    if outcome.end.reason == EndReason::Narrow {
        let rounds = samples(&records).iter().map(|sample| sample.round + 1).max();
        assert_eq!(rounds, Some(outcome.end.rounds));
        assert!((3..6).contains(&outcome.end.rounds));
    } else {
        // The machine is so busy that even these wide limits are exceeded.
        assert_eq!(outcome.end.rounds, 6);
    }
    let wide = plan("0.0001");
    let run = Run { file: "wide.jsonl", ..Run::new(&wide, directory.path()) };
    let (outcome, _) = run.go(&mut Silent).unwrap();
    assert_eq!((outcome.end.reason, outcome.end.rounds), (EndReason::Finished, 6));
    let told = outcome.notes.iter().filter(|note| note.text.contains("wider than"));
    assert_eq!(told.count(), 2, "{:?}", outcome.notes);
}

/// A process that keeps a processor busy until dropped.
struct Load(std::process::Child);

impl Load {
    fn start() -> Self {
        let child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
        Self(child.unwrap())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).unwrap();
    }
}

/// A plan with one phase of fixed duration that takes no processor time. In half a second, the
/// processor time of other programs is far above the resolution of /proc/stat.
const IDLE_PLAN: &str = r#"
name = "idle"
rounds = 1
[[target]]
name = "directory"
directory = "{directory}"
[[workload]]
name = "command"
command = ["sleep", "0.5"]
cache = "as is"
"#;

/// While another program keeps a processor busy, samples are marked, and their blocks are repeated
/// as often as allowed. Reports use only the last attempt.
#[test]
fn disturbed_blocks_are_marked_and_run_again() {
    // The processor time of exited children of parallel tests is counted as this program's own. It
    // may hide the load in a run.
    const RUNS_MAX: usize = 8;
    let load = Load::start();
    let mut runs = (0..RUNS_MAX).map(|_| run_idle());
    let records = runs.find(|records| samples(records).iter().any(|s| has_load(s)));
    drop(load);
    let records = records.expect("a busy processor is never noticed");
    assert!(blocks(&records).iter().any(|(_, _, attempt)| *attempt > 0), "{:?}", blocks(&records));
    let report = Report::new(&records);
    assert!(report.superseded > 0);
    assert!(report.groups.iter().flat_map(|g| &g.rows).all(|row| row.points.len() == 1));
}

fn run_idle() -> Vec<Record> {
    let directory = directory_on_disk();
    let target = directory.path().display().to_string();
    let plan = IDLE_PLAN.replace("{directory}", &target);
    let mut run = Run::new(&plan, directory.path());
    run.reruns_max = 2;
    run.go(&mut Silent).unwrap().1
}

fn has_load(sample: &Sample) -> bool {
    sample.contaminated.as_ref().is_some_and(|what| what.contains("other programs"))
}

/// Compares ext4 with bindfs over ext4. The script that starts the bindfs daemon also runs the
/// commands `harm`, which stop or kill it. Checks that only the target with bindfs fails. Returns
/// the note about the failure, and the samples.
fn harmed(directory: &Path, keys: &str, harm: &str, workload: &str) -> (String, Vec<Sample>) {
    let plan = format!(
        r#"
name = "harm"
image_size = "320 MiB"
{keys}
[[target]]
name = "good"
filesystem = "ext4"
[[target]]
name = "harmed"
over = "ext4"
mount_command = [
    "sh", "-c", "bindfs -f {{lower}} {{mountpoint}} & daemon=$!; {harm}", "{{mountpoint}}",
]
[[workload]]
{workload}
"#
    );
    let run = Run::new(&plan, directory);
    let (outcome, records) = run.go(&mut Silent).unwrap();
    let mut failures = outcome.notes.iter().filter(|note| note.kind == NoteKind::Failed);
    let of_harmed = |note: &&Note| note.target.as_deref() == Some("harmed");
    assert!(failures.clone().all(|note| of_harmed(&note)), "{:?}", outcome.notes);
    let failed = failures.next().unwrap();
    crate::leaks::assert_nothing_left(directory);
    (failed.text.clone(), samples(&records).into_iter().cloned().collect())
}

/// If the daemon of a target is killed during a run, only the samples of this target are lost.
#[test]
fn a_target_that_crashes_does_not_lose_the_samples_of_others() {
    if !can_mount("a crashing target") || !has_program("a crashing target", "bindfs") {
        return;
    }
    let directory = directory_on_disk();
    let workload = "name = \"file-attributes\"\nfiles = 20_000";
    let harm = "sleep 0.7; kill -9 $daemon; wait";
    let (_, samples) = harmed(directory.path(), "rounds = 3", harm, workload);
    let of = |target: &str| samples.iter().filter(|s| s.target == target).count();
    assert!(of("good") >= 3 * 2, "{}", of("good"));
    let in_round = |round| samples.iter().any(|s| s.target == "good" && s.round == round);
    assert!((0..3).all(in_round));
    assert!(of("harmed") < of("good"));
}

/// Returns a script that stops the daemon when a condition holds, and exits with the daemon.
fn stop_when(condition: &str) -> String {
    let wait = format!("until {condition}; do sleep 0.02; done");
    format!("({wait}; kill -STOP $daemon) & waiter=$!; wait $daemon; kill $waiter")
}

/// Tests a daemon that is stopped, so that it no longer replies. It is stopped when a condition
/// holds, not after a delay. The condition is that a file exists below the mount, or that the mount
/// exists.
fn hangs(condition: &str) {
    if !can_mount("a hanging target") || !has_program("a hanging target", "bindfs") {
        return;
    }
    let directory = directory_on_disk();
    let keys = "rounds = 1\nrun_limit_seconds = 15";
    // On the target whose daemon is to be stopped, requests are repeated until the daemon has
    // stopped.
    let script = "touch go; ! test -e armed || while stat .; do sleep 0.02; done; true";
    let workload =
        format!("name = \"command\"\ncommand = [\"sh\", \"-c\", \"{script}\"]\ncache = \"as is\"");
    let harm = format!("touch {{lower}}/armed; {}", stop_when(condition));
    let (said, samples) = harmed(directory.path(), keys, &harm, &workload);
    assert!(samples.iter().any(|s| s.target == "good"));
    assert!(said.contains("longer than 15 s"), "{said}");
}

#[test]
fn target_that_hangs_during_a_run_is_aborted() {
    hangs("test -e {lower}/go");
}

#[test]
fn target_that_hangs_from_its_mount_is_aborted() {
    hangs("grep -q ' {mountpoint} ' /proc/mounts");
}
