//! `fio`: runs a job file of fio in each target and records fio's results as metrics.
//!
//! fio measures with its own clock. Its bandwidth and latencies do not include the time to start
//! fio and to create its files; the phase's elapsed time does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::output::json;
use super::program::{Program, directory};
use super::{Parameter, Preparation, Spec, Workload};
use crate::error::{Error, Result};
use crate::runner::{Phase, Session, Timed};
use fslab_report::sample::{Better, CacheState, OwnMetric};
use fslab_sys::signals::Interrupt;

const JOB: Parameter =
    Parameter::text("job", "the job file, whose paths must be relative to the target", "");

const PROGRAM: Parameter =
    Parameter::text("program", "the fio program to run, version 3.0 or later", "fio");

const CACHE: Parameter = Parameter::choice(
    "cache",
    "as is: run the job directly; cold: create its files first, remount, and run the job cold",
    &["as is", "cold"],
);

pub(super) const SPEC: Spec = Spec {
    name: "fio",
    help: "run a job file of fio in each target, and record its bandwidth, IOPS and latencies",
    parameters: &[JOB, PROGRAM, CACHE],
    phases: &["run", "run cold"],
    construct: |parameters, _seed| {
        Box::new(Fio {
            job: parameters.text(&JOB).map(PathBuf::from),
            program: parameters.text(&PROGRAM).unwrap_or_else(|| "fio".to_owned()),
            is_cold: parameters.word(&CACHE) == "cold",
        })
    },
};

struct Fio {
    job: Option<PathBuf>,
    program: String,
    is_cold: bool,
}

/// Options of a job file whose values are files or directories. These must be within the target.
const PATHS: [&str; 11] = [
    "directory",
    "filename",
    "opendir",
    "filename_format",
    "read_iolog",
    "write_iolog",
    "write_bw_log",
    "write_iops_log",
    "write_lat_log",
    "write_hist_log",
    "aux-path",
];

/// The recorded percentiles. Each has a name in fio's output and the name of a metric.
const PERCENTILES: [(&str, &str); 4] =
    [("50.000000", "p50"), ("90.000000", "p90"), ("99.000000", "p99"), ("99.900000", "p99.9")];

impl Workload for Fio {
    fn prepare(&mut self, preparation: &Preparation<'_>) -> Result<()> {
        let Some(job) = &self.job else {
            return Err(Error::Failed(
                "workload fio: job = \"FILE\" is missing in the plan".into(),
            ));
        };
        let text = fs::read_to_string(job).map_err(Error::file(job))?;
        if let Some(line) = outside(&text) {
            return Err(Error::Failed(format!(
                "{}: `{line}` sets a path outside the target; use a name without a directory",
                job.display()
            )));
        }
        self.check_version()?;
        self.check_job(preparation.directory, job)
    }

    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        let root = directory(session, "fio")?;
        session.describe_data(format!("{} of {}", self.job_name(), self.program));
        let seed = session.seed();
        if !self.is_cold {
            return session.measure(Phase::new("run"), |timed| self.execute(timed, &root, seed));
        }
        self.fio(&root, seed, &["--create_only=1"], session.interrupt())?;
        session.tree()?.sync_all()?;
        session.make_cold()?;
        let phase = Phase::new("run cold").cache(CacheState::Cold);
        session.measure(phase, |timed| self.execute(timed, &root, seed))
    }
}

impl Fio {
    fn job_name(&self) -> String {
        self.job.as_deref().unwrap_or(Path::new("")).display().to_string()
    }

    fn check_version(&self) -> Result<()> {
        let start = |source| Error::Start { program: self.program.clone(), source };
        let output = Command::new(&self.program).arg("--version").output().map_err(start)?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let major = text.strip_prefix("fio-").and_then(|rest| rest.split('.').next());
        match major.and_then(|number| number.parse::<u32>().ok()) {
            Some(3..) => Ok(()),
            _ => Err(Error::Failed(format!(
                "{} has the version {text:?}; fio 3.0 or later is needed, because its JSON \
                 contains clat_ns",
                self.program
            ))),
        }
    }

    /// Lets fio parse the job file without running it.
    fn check_job(&self, directory: &Path, job: &Path) -> Result<()> {
        let words = [self.program.clone(), "--parse-only".to_owned(), absolute(job)?];
        let checked = Program::new(&words, directory).run(&Interrupt::default());
        checked.map_err(|error| Error::Failed(format!("{}: {error}", job.display())))
    }

    fn fio(
        &self,
        root: &Path,
        seed: u64,
        options: &[&str],
        interrupt: &Interrupt,
    ) -> Result<Vec<u8>> {
        let job = absolute(self.job.as_deref().unwrap_or(Path::new("")))?;
        let mut words = vec![self.program.clone(), "--output-format=json".to_owned()];
        // All targets of a round have the same seed, so that fio does the same on each. A seed of
        // fio has 63 bits.
        words.push(format!("--randseed={}", seed >> 1));
        words.extend(options.iter().map(|option| (*option).to_owned()));
        words.push(job);
        Program::new(&words, root).variable("FSLAB_TARGET", root).output_of(interrupt)
    }

    fn execute(&self, timed: &mut Timed<'_>, root: &Path, seed: u64) -> Result<()> {
        let output = self.fio(root, seed, &[], timed.interrupt())?;
        let failed = |reason: String| Error::Failed(format!("{}: {reason}", self.job_name()));
        let found = json(&output).map_err(failed)?;
        let jobs = found.get("jobs").and_then(Value::as_array);
        let jobs = jobs.ok_or_else(|| failed("fio's JSON has no `jobs`".to_owned()))?;
        for job in jobs {
            let several = jobs.len() > 1;
            for direction in ["read", "write", "trim"] {
                take(timed, job, direction, several).map_err(failed)?;
            }
        }
        timed.flush()
    }
}

/// Records the results of a job's reads or writes, if it made any.
fn take(
    timed: &mut Timed<'_>,
    job: &Value,
    direction: &str,
    several: bool,
) -> std::result::Result<(), String> {
    let number = |pointer: &str| {
        let found = job.pointer(&format!("/{direction}/{pointer}")).and_then(Value::as_f64);
        found.ok_or_else(|| format!("fio's JSON has no {direction}/{pointer}"))
    };
    let total = number("total_ios")?;
    if total == 0.0 {
        return Ok(());
    }
    timed.count(total as u64, number("io_bytes")? as u64);
    let name = job.get("jobname").and_then(Value::as_str).unwrap_or("job");
    let prefix = if several { format!("{name}-{direction}") } else { direction.to_owned() };
    let mut add = |name: &str, value: f64, unit: &str, better: Better| {
        let (name, unit) = (format!("{prefix}-{name}"), unit.to_owned());
        timed.add_metric(OwnMetric { name, value, unit, better });
    };
    add("bandwidth", number("bw_bytes")?, "bytes/s", Better::More);
    add("iops", number("iops")?, "1/s", Better::More);
    add("latency-mean", number("clat_ns/mean")? / 1e9, "s", Better::Less);
    for (key, name) in PERCENTILES {
        let found = job.pointer(&format!("/{direction}/clat_ns/percentile/{key}"));
        if let Some(value) = found.and_then(Value::as_f64) {
            add(&format!("latency-{name}"), value / 1e9, "s", Better::Less);
        }
    }
    Ok(())
}

fn absolute(path: &Path) -> Result<String> {
    let path = std::path::absolute(path).map_err(Error::file(path))?;
    Ok(path.to_string_lossy().into_owned())
}

/// Returns the first line of a job file that contains a path outside its working directory.
fn outside(text: &str) -> Option<&str> {
    let names_outside = |line: &&str| {
        let Some((key, value)) = line.split_once('=') else { return false };
        let is_outside = |part: &str| part.starts_with('/') || part.split('/').any(|p| p == "..");
        PATHS.contains(&key.trim()) && value.split(':').any(|part| is_outside(part.trim()))
    };
    text.lines().map(str::trim).find(names_outside)
}
