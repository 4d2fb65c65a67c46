//! Functions for the tests: a host, running plans, and skipping tests.

use std::ffi::OsString;
use std::path::Path;

use fslab_compare::plan::Form;
use fslab_compare::{Host, HostError, Observer, Outcome, Plan, Result, RunOptions};
use fslab_report::Choice;
use fslab_report::sample::{self, Note, Record, Sample};
use fslab_sys::signals::Interrupt;
use fslab_vfs::{FileSystem, MemFs};

/// A host with a file system in memory, and with bindfs in place of layers.
pub struct TestHost;

impl Host for TestHost {
    fn mount_command(&self, _layers: &[String], lower: &Path, mountpoint: &Path) -> Vec<OsString> {
        vec!["bindfs".into(), lower.into(), mountpoint.into()]
    }

    /// Returns a command that starts this test program again, to run only [`worker_process`].
    fn worker_command(&self) -> Option<Vec<OsString>> {
        let this = std::env::current_exe().unwrap();
        Some(vec![
            this.into(),
            "--exact".into(),
            "--nocapture".into(),
            "support::worker_process".into(),
        ])
    }

    fn file_system(
        &self,
        specification: &str,
    ) -> std::result::Result<Box<dyn FileSystem>, HostError> {
        match specification {
            "mem:" => Ok(Box::new(MemFs::default())),
            other => Err(format!("no such file system: {other}").into()),
        }
    }
}

/// Runs as a worker process, if this program was started as one.
#[test]
fn worker_process() {
    let Some(task) = std::env::args().next_back().filter(|last| last.starts_with('{')) else {
        return;
    };
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    fslab_compare::worker::run(&task, &mut input, &mut output).unwrap();
}

/// Makes a directory on a disk, outside the tree that git and cargo read. There, git or cargo would
/// read files in mounts and so fill caches that must be cold.
pub fn directory_on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// An observer that does nothing.
pub struct Silent;

impl Observer for Silent {
    fn progress(&mut self, _done: u64, _total: u64, _next: &str) {}
    fn note(&mut self, _note: &Note) {}
}

/// Runs a plan in `directory` and returns the records.
pub fn run(
    plan: &str,
    directory: &Path,
    host: &dyn Host,
    interrupt: Interrupt,
    observer: &mut dyn Observer,
) -> Result<(Outcome, Vec<Record>)> {
    run_with(plan, directory, (host, Choice::default()), interrupt, observer)
}

/// Runs a plan like [`run`], with a choice.
pub fn run_chosen(plan: &str, directory: &Path, choice: Choice) -> Result<(Outcome, Vec<Record>)> {
    run_with(plan, directory, (&TestHost, choice), Interrupt::default(), &mut Silent)
}

fn run_with(
    plan: &str,
    directory: &Path,
    (host, choice): (&dyn Host, Choice),
    interrupt: Interrupt,
    observer: &mut dyn Observer,
) -> Result<(Outcome, Vec<Record>)> {
    let plan = Plan::parse("test", plan, Form::Full)?;
    let samples = fslab_compare::samples_path(directory);
    let options = RunOptions {
        plan: &plan,
        seed: 11,
        choice,
        samples: &samples,
        resume: false,
        command: "fslab compare test",
        host,
        interrupt,
        remarks: Vec::new(),
    };
    let outcome = fslab_compare::run(options, observer)?;
    Ok((outcome, sample::read(&samples)?))
}

pub fn samples(records: &[Record]) -> Vec<&Sample> {
    let mut samples = Vec::new();
    for record in records {
        if let Record::Sample(sample) = record {
            samples.push(sample);
        }
    }
    samples
}

/// Whether images can be mounted here. If not, prints that the test is skipped, or fails if
/// skipping is not allowed.
pub fn can_mount(what: &str) -> bool {
    let reason = if !rustix::process::geteuid().is_root() {
        "not root"
    } else if !Path::new("/dev/loop-control").exists() {
        "no /dev/loop-control"
    } else {
        return true;
    };
    skip(what, reason)
}

/// Whether a program is installed here. If not, does the same as [`can_mount`].
pub fn has_program(what: &str, program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    directories.any(|directory| directory.join(program).exists())
        || skip(what, &format!("{program} is not installed"))
}

/// Reports a skipped test and returns `false`.
pub fn skip(what: &str, reason: &str) -> bool {
    fslab_vfs_testing::skip::skip(what, reason);
    false
}
