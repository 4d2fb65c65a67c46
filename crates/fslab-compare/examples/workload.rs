//! An example of a workload, which makes and opens files. It is explained in
//! docs/guide/src/how-to/write-a-workload.md.
//!
//! `cargo run -p fslab-compare --example workload`

use std::error::Error;
use std::ffi::OsString;
use std::path::Path;

use fslab_compare::plan::Form;
use fslab_compare::workload::{
    Access, Parameter, Parameters, Phase, Session, Spec, Stopwatch, Timed, Workload,
};
use fslab_compare::{Host, HostError, Observer, Plan, RunOptions};
use fslab_report::Choice;
use fslab_report::sample::{self, CacheState, Note, Record, Sample};
use fslab_sys::signals::Interrupt;
use fslab_vfs::{FileSystem, MemFs};

/// The number of files, which a plan may set.
const FILES: Parameter = Parameter::count("files", "total number of files", 1000);

/// The declaration of the workload. A workload that is built into fslab also has a line in
/// `WORKLOADS`.
pub const SPEC: Spec = Spec {
    name: "touch",
    help: "make small files, and open and close each again, cold and warm",
    parameters: &[FILES],
    phases: &["make", "open cold", "open warm"],
    construct: |parameters: &Parameters, _seed| {
        Box::new(Touch { files: parameters.number(&FILES) })
    },
};

struct Touch {
    files: u64,
}

impl Workload for Touch {
    fn run(&self, session: &mut Session<'_>) -> fslab_compare::Result<()> {
        session.measure(Phase::new("make"), |timed| self.make(timed))?;
        session.make_cold()?;
        let cold = Phase::new("open cold").cache(CacheState::Cold);
        session.measure(cold, |timed| self.open(timed))?;
        let warm = Phase::new("open warm").cache(CacheState::Warm);
        session.measure(warm, |timed| self.open(timed))
    }
}

impl Touch {
    fn make(&self, timed: &mut Timed<'_>) -> fslab_compare::Result<()> {
        // An interrupted run ends between operations and keeps its finished measurements.
        let stopwatch = Stopwatch::start_along(self.files);
        timed.each("create", stopwatch, 0..self.files, |timed, number| {
            let file = timed.tree().create(&format!("file-{number}"))?;
            file.append(b"some bytes")?;
            file.close()
        })?;
        timed.count(self.files, 10 * self.files);
        // The phase ends when the data are on the device.
        timed.flush()
    }

    fn open(&self, timed: &mut Timed<'_>) -> fslab_compare::Result<()> {
        for number in 0..self.files {
            timed.check()?;
            timed.tree().open(&format!("file-{number}"), Access::Read)?.close()?;
        }
        timed.count(self.files, 0);
        Ok(())
    }
}

/// A host that makes only file systems in memory. The host of `fslab` also mounts layers and
/// images.
struct Memory;

impl Host for Memory {
    fn mount_command(&self, _layers: &[String], _lower: &Path, _point: &Path) -> Vec<OsString> {
        Vec::new()
    }

    fn file_system(&self, _specification: &str) -> Result<Box<dyn FileSystem>, HostError> {
        Ok(Box::new(MemFs::default()))
    }
}

struct Silent;

impl Observer for Silent {
    fn progress(&mut self, _done: u64, _total: u64, _next: &str) {}
    fn note(&mut self, _note: &Note) {}
}

/// Runs the workload in memory, as a plan with this workload would.
fn samples() -> Result<Vec<Sample>, Box<dyn Error>> {
    let text = "name = \"example\"\nrounds = 2\n\
                [[target]]\nname = \"memory\"\nin_process = \"mem:\"\n\
                [[workload]]\nname = \"names\"\nfiles = 100\n";
    let mut plan = Plan::parse("example.toml", text, Form::Full)?;
    // A plan can name only built-in workloads, so the plan's workload is replaced by this one.
    for workload in &mut plan.workloads {
        (workload.spec, workload.label) = (&SPEC, SPEC.name.to_owned());
    }
    let place = tempfile::tempdir()?;
    let samples = fslab_compare::samples_path(place.path());
    let options = RunOptions {
        plan: &plan,
        seed: 1,
        choice: Choice::default(),
        samples: &samples,
        resume: false,
        command: "example",
        host: &Memory,
        interrupt: Interrupt::default(),
        remarks: Vec::new(),
    };
    fslab_compare::run(options, &mut Silent)?;
    let records = sample::read(&samples)?;
    let samples = records.into_iter().filter_map(|record| match record {
        Record::Sample(sample) => Some(sample),
        _ => None,
    });
    Ok(samples.collect())
}

fn main() -> Result<(), Box<dyn Error>> {
    for sample in samples()? {
        let each = sample.elapsed_ns / sample.operations.max(1);
        println!("round {}, {}: {each} ns each", sample.round, sample.phase);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_is_sampled_in_every_round() {
        let samples = samples().unwrap();
        let phases: Vec<_> = samples.iter().map(|sample| sample.phase.as_str()).collect();
        assert_eq!(phases, [SPEC.phases, SPEC.phases].concat());
        assert!(samples.iter().all(|sample| sample.operations == 100), "{samples:?}");
    }
}
