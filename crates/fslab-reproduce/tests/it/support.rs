//! Runs a plan in memory.

use std::ffi::OsString;
use std::path::Path;

use fslab_compare::plan::Form;
use fslab_compare::{Host, HostError, Observer, Plan, RunOptions};
use fslab_report::Choice;
use fslab_report::sample::{self, Note, Record};
use fslab_sys::signals::Interrupt;
use fslab_vfs::{FileSystem, MemFs};

struct InMemory;

impl Host for InMemory {
    fn mount_command(&self, _layers: &[String], _: &Path, _: &Path) -> Vec<OsString> {
        Vec::new()
    }

    fn file_system(&self, specification: &str) -> Result<Box<dyn FileSystem>, HostError> {
        match specification {
            "mem:" => Ok(Box::new(MemFs::default())),
            other => Err(format!("no such file system: {other}").into()),
        }
    }
}

struct Silent;

impl Observer for Silent {
    fn progress(&mut self, _done: u64, _total: u64, _next: &str) {}
    fn note(&mut self, _note: &Note) {}
}

/// Runs a plan in `directory` and returns the records.
pub fn run(plan: &str, directory: &Path) -> Vec<Record> {
    let plan = Plan::parse("test", plan, Form::Full).unwrap();
    let samples = fslab_compare::samples_path(directory);
    let options = RunOptions {
        plan: &plan,
        seed: 11,
        choice: Choice::default(),
        samples: &samples,
        resume: false,
        command: "fslab compare test",
        host: &InMemory,
        interrupt: Interrupt::default(),
        remarks: Vec::new(),
    };
    fslab_compare::run(options, &mut Silent).unwrap();
    sample::read(&samples).unwrap()
}
