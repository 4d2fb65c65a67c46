//! Shared parts of the tests: a host that compares file systems in memory, campaigns that run on
//! it, and their cells.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use fslab_campaign::{Campaign, Done, Freeze, HostLock, Program, Result, ShareRun, State, Summary};
use fslab_compare::plan::Form;
use fslab_compare::{Host, HostError, Observer, Plan, RunOptions};
use fslab_report::sample::{self, Note, Record};
use fslab_report::{Choice, Share};
use fslab_sys::signals::Interrupt;
use fslab_vfs::{FileSystem, MemFs};

/// Two targets, two workloads, four rounds: 8 blocks of 2 cells.
pub const PLAN: &str = r#"
name = "small"
seed = 11
rounds = 4
noise_floor = false
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

/// The number of cells of [`PLAN`].
pub const CELLS: usize = 16;

/// A host that offers only an in-process memory file system.
pub struct Memory;

impl Host for Memory {
    fn mount_command(&self, _: &[String], _: &Path, _: &Path) -> Vec<OsString> {
        Vec::new()
    }

    fn file_system(&self, name: &str) -> std::result::Result<Box<dyn FileSystem>, HostError> {
        match name {
            "mem:" => Ok(Box::new(MemFs::default())),
            other => Err(format!("no such file system: {other}").into()),
        }
    }
}

/// An observer that ignores everything.
pub struct Silent;

impl Observer for Silent {
    fn progress(&mut self, _done: u64, _total: u64, _next: &str) {}
    fn note(&mut self, _note: &Note) {}
}

pub fn parse(text: &str) -> Plan {
    Plan::parse("test", text, Form::Full).unwrap()
}

/// The build that creates all campaigns of the tests.
pub fn build() -> Program {
    Program { version: "1".to_owned(), blake3: "ab".repeat(32) }
}

/// Creates a campaign from the text of a plan.
pub fn create(directory: &Path, text: &str) -> Result<Campaign> {
    let plan = parse(text);
    let freeze = Freeze {
        plan: &plan,
        seed: 11,
        reruns_max: 0,
        program: build(),
        now: "2026-11-28T12:00:00Z".parse().unwrap(),
    };
    Campaign::create(directory, freeze)
}

/// Acquires a lock that only this test uses.
pub fn lock(scratch: &Path) -> HostLock {
    HostLock::take(Some(&scratch.join("host.lock")), None).unwrap()
}

/// Returns a share of a campaign.
pub fn share<'a>(
    campaign: &'a Campaign,
    text: &str,
    scratch: &Path,
    lock: &'a HostLock,
) -> ShareRun<'a> {
    ShareRun {
        campaign,
        share: text.parse::<Share>().unwrap(),
        retry: false,
        work_parent: scratch.to_owned(),
        program: build(),
        allow_other_build: false,
        erasable: scratch.join("no-erasable"),
        lock,
        command: format!("fslab campaign run DIR --share {text}"),
        host: &Memory,
        interrupt: Interrupt::default(),
        remarks: Vec::new(),
    }
}

/// Runs a share. Returns its samples file, or `None` if all its blocks were done.
pub fn run(campaign: &Campaign, text: &str, scratch: &Path) -> Result<Option<PathBuf>> {
    Ok(match share(campaign, text, scratch, &lock(scratch)).run(&mut Silent)? {
        Done::Nothing => None,
        Done::Ran { file, .. } => Some(file),
    })
}

pub fn summary(campaign: &Campaign) -> Summary {
    State::of(campaign).unwrap().summary()
}

/// Samples by target, workload, phase and round, with their values that do not depend on time.
pub type Places = BTreeMap<(String, String, String, u32), Vec<(u64, u32, u64, u64)>>;

/// Returns the seed, position, operations and bytes of each sample, by target, workload, phase and
/// round. A duplicate sample appears twice.
pub fn places(records: &[Record]) -> Places {
    let mut found = Places::new();
    for record in records {
        let Record::Sample(sample) = record else { continue };
        let place = (&sample.target, &sample.workload, &sample.phase);
        let (target, workload, phase) = (place.0.clone(), place.1.clone(), place.2.clone());
        let counts = (sample.seed, sample.position, sample.operations, sample.bytes);
        found.entry((target, workload, phase, sample.round)).or_default().push(counts);
    }
    found
}

/// Runs the plan as an ordinary comparison and returns its samples.
pub fn serial(text: &str, scratch: &Path) -> Places {
    let samples = scratch.join("serial.jsonl");
    let plan = parse(text);
    let options = RunOptions {
        plan: &plan,
        seed: 11,
        choice: Choice::default(),
        samples: &samples,
        resume: false,
        command: "fslab compare test",
        host: &Memory,
        interrupt: Interrupt::default(),
        remarks: Vec::new(),
    };
    fslab_compare::run(options, &mut Silent).unwrap();
    places(&sample::read(&samples).unwrap())
}

/// Returns the samples that a campaign uses.
pub fn counted(campaign: &Campaign) -> Places {
    places(&State::of(campaign).unwrap().records().unwrap())
}
