//! `cargo xtask harness`: measures the overhead of `fslab compare`. In each round, fslab and a
//! shell script do the same work on the same kind of file system. The work is jobs of fio, and the
//! system calls of three workloads, which a C program makes for the script. `fslab report` then
//! judges whether the times are equal.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::stage::public_folder;
use crate::steps::{Context, build};
use crate::{environment, process, setup};

const CALLS: &str = include_str!("harness/calls.c");
const BY_HAND: &str = include_str!("harness/by_hand.sh");

/// The jobs of fio: their names and options.
const JOBS: [(&str, &str); 10] = [
    ("write-1m", "rw=write bs=1m size=256m end_fsync=1"),
    ("write-64k", "rw=write bs=64k size=256m end_fsync=1"),
    ("read-1m", "rw=read bs=1m size=512m"),
    ("randread-4k", "rw=randread bs=4k size=256m number_ios=20000"),
    ("randwrite-4k-fsync", "rw=randwrite bs=4k size=64m number_ios=4000 fsync=32"),
    ("randrw-4k", "rw=randrw rwmixread=70 bs=4k size=256m number_ios=20000"),
    (DIRECT, "rw=randread bs=4k size=256m number_ios=20000 direct=1"),
    (
        "ring-randread-4k",
        "rw=randread bs=4k size=256m number_ios=40000 direct=1 ioengine=io_uring iodepth=16",
    ),
    ("mmap-randread-4k", "rw=randread bs=4k size=256m number_ios=20000 ioengine=mmap"),
    (
        "threads-randread-4k",
        "rw=randread bs=4k size=128m number_ios=10000 numjobs=2 thread=1 group_reporting=1",
    ),
];

/// The job that fslab's own workload for random I/O repeats with the same pattern.
const DIRECT: &str = "direct-randread-4k";

/// Number of files of the workload `names`, and number of random reads.
const FILES: u64 = 20_000;
const READS: u64 = 20_000;

/// Labels of workloads in the report.
const AGAINST_FIO: &str = "random-io against fio";
const CALLS_ON_EXT4: &str = "calls on ext4";

/// Names of the targets in the report: the work of the script, and the work of fslab.
const BOTH: [&str; 2] = ["by hand", "fslab"];

/// The number of rounds, the part and the folder.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of rounds
    #[arg(long, value_name = "N", default_value_t = 12)]
    rounds: u32,
    /// The parts to measure: fio, calls, or both
    #[arg(long, value_name = "PART", value_delimiter = ',', default_value = "fio,calls",
          value_parser = ["fio", "calls"])]
    parts: Vec<String>,
    /// A new folder for the samples and the report
    #[arg(long, value_name = "DIR", default_value = "harness-report")]
    out: PathBuf,
}

impl Args {
    /// Measures and prints the report. Succeeds for any verdict.
    pub fn run(&self) -> Result<bool> {
        if let Some(reason) = environment::why_no_mounts() {
            bail!("file systems can't be mounted here: {reason}");
        }
        if !setup::install(setup::Purpose::Test)?.is_empty() {
            bail!("a requirement is missing");
        }
        fs::create_dir(&self.out).with_context(|| self.out.display().to_string())?;
        let folder = public_folder("fslab-harness-", Path::new("/dev/shm"))?;
        let bench = self.bench(folder.path())?;
        let mut samples = bench.provenance(self.rounds).to_string() + "\n";
        let mut made = None;
        for round in 0..self.rounds {
            println!("harness: round {} of {}", round + 1, self.rounds);
            for sample in bench.round(round, &mut made)? {
                writeln!(samples, "{sample}")?;
            }
            // The samples so far remain if the run is interrupted.
            fs::write(self.out.join("samples.jsonl"), &samples)?;
        }
        let mut report = Command::new(&bench.fslab);
        report.arg("report").arg(self.out.join("samples.jsonl"));
        report.arg("--html").arg(self.out.join("report.html"));
        process::run_ok(&mut report).map(|()| true)
    }

    /// Builds the programs and writes the plan and the jobs.
    fn bench(&self, place: &Path) -> Result<Bench> {
        let fslab = build::release(&Context::new()?)?;
        let source = place.join("calls.c");
        fs::write(&source, CALLS)?;
        let calls = place.join("calls");
        process::run_ok(Command::new("cc").args(["-O2", "-o"]).arg(&calls).arg(&source))?;
        for (name, options) in JOBS {
            let text = format!("[{name}]\n{}\n", options.replace(' ', "\n"));
            fs::write(place.join(format!("{name}.fio")), text)?;
        }
        let is_part = |part: &str| self.parts.iter().any(|one| one == part);
        let bench = Bench {
            fslab,
            calls,
            place: place.to_owned(),
            jobs: if is_part("fio") { JOBS.iter().map(|job| job.0).collect() } else { Vec::new() },
            with_calls: is_part("calls"),
        };
        fs::write(place.join("plan.toml"), bench.plan())?;
        Ok(bench)
    }
}

/// The programs, and the work that a round does.
struct Bench {
    fslab: PathBuf,
    calls: PathBuf,
    /// A folder in memory.
    place: PathBuf,
    jobs: Vec<&'static str>,
    with_calls: bool,
}

/// How fslab makes and mounts ext4. The script does the same.
struct Made {
    /// The command that makes the file system, without the device.
    make: String,
    /// The options of mount.
    mount: String,
    /// Whether the loop device uses direct I/O: `on` or `off`.
    direct: &'static str,
}

impl Made {
    /// Reads these settings from the record of a target.
    fn of(target: &Value) -> Option<Self> {
        let (make, _) = target["mkfs"].as_str()?.rsplit_once(' ')?;
        let mount = target["mount"].as_str()?.strip_prefix("mount -t ext4 -o ")?;
        let direct = if target["loop_direct_io"] == true { "on" } else { "off" };
        Some(Self { make: make.to_owned(), mount: mount.to_owned(), direct })
    }
}

/// A measured time: workload, phase, and seconds.
type Figure = (String, String, f64);

impl Bench {
    /// Returns the plan with which fslab runs one round.
    fn plan(&self) -> String {
        let options = "filesystem = \"ext4\"\n\
                       mkfs = [\"-E\", \"lazy_itable_init=0,lazy_journal_init=0\"]\n";
        let mut plan = format!(
            "name = \"harness\"\nrounds = 1\nimage_size = \"1 GiB\"\nnoise_floor = false\n\
             [[target]]\nname = \"ext4\"\n{options}\
             [[target]]\nname = \"null\"\n{options}layers = [\"null\"]\n"
        );
        for job in &self.jobs {
            let path = self.place.join(format!("{job}.fio"));
            plan += &format!(
                "[[workload]]\nname = \"fio\"\nlabel = \"{job}\"\njob = \"{}\"\n",
                path.display()
            );
        }
        if self.with_calls {
            plan += &format!(
                "[[workload]]\nname = \"names\"\nfiles = {FILES}\norders = \"ordered\"\n\
                 [[workload]]\nname = \"stream\"\nsize = \"256 MiB\"\n\
                 [[workload]]\nname = \"random-io\"\nsize = \"256 MiB\"\nblock = \"4 KiB\"\n\
                 reads = 100\naccess = \"direct\"\noperations = {READS}\n"
            );
        }
        plan
    }

    /// Returns the first record of the samples. It sets the margins: 2 % for fio, 1 % for the
    /// calls.
    fn provenance(&self, rounds: u32) -> Value {
        let workloads = ["fio on ext4", "fio on null", AGAINST_FIO, CALLS_ON_EXT4];
        json!({
            "record": "provenance", "format": 2, "run": "harness", "plan_name": "harness",
            "plan": self.plan(), "command": "cargo xtask harness", "baseline": BOTH[0],
            "targets": BOTH, "workloads": workloads, "rounds": rounds,
            "margins": { "all": "2 %", "workloads": { CALLS_ON_EXT4: "1 %" } },
        })
    }

    /// Runs a round with fslab and with the script, in alternating order. Returns the records.
    fn round(&self, round: u32, made: &mut Option<Made>) -> Result<Vec<Value>> {
        let mut by_fslab = None;
        if round.is_multiple_of(2) || made.is_none() {
            let (figures, how) = self.by_fslab(round)?;
            (by_fslab, *made) = (Some(figures), Some(how));
        }
        let how = made.as_ref().context("fslab made no ext4")?;
        let by_hand = self.by_hand(round, how)?;
        let by_fslab = match by_fslab {
            Some(figures) => figures,
            None => self.by_fslab(round)?.0,
        };
        let of_target = |figures: Vec<Figure>, target: &str| {
            let sample = |(workload, phase, seconds): Figure| {
                json!({
                    "record": "sample", "run": "harness", "target": target,
                    "workload": workload, "phase": phase, "round": round,
                    "elapsed_ns": (seconds * 1e9).round() as u64,
                })
            };
            figures.into_iter().map(sample).collect::<Vec<_>>()
        };
        let mut samples = of_target(by_hand, BOTH[0]);
        samples.extend(of_target(by_fslab, BOTH[1]));
        Ok(samples)
    }

    /// Runs the plan with fslab. Returns the times of its samples, and how it made the file system.
    fn by_fslab(&self, round: u32) -> Result<(Vec<Figure>, Made)> {
        let out = self.place.join(format!("fslab-{round}"));
        let mut compare = Command::new(&self.fslab);
        compare.arg("compare").arg(self.place.join("plan.toml"));
        compare.args(["--seed", &(u64::from(round) + 1).to_string(), "--reruns", "0", "--out"]);
        process::capture(compare.arg(&out).arg("--work-dir").arg(&self.place))?;
        let text = fs::read_to_string(out.join("samples.jsonl"))?;
        let records: Vec<Value> =
            text.lines().map(serde_json::from_str).collect::<serde_json::Result<_>>()?;
        let of_kind = |kind: &'static str| records.iter().filter(move |one| one["record"] == kind);
        let notes: Vec<&str> = of_kind("note")
            .filter(|note| note["kind"] != "remark")
            .flat_map(|n| n["text"].as_str())
            .collect();
        ensure!(notes.is_empty(), "fslab could not measure everything: {}", notes.join("; "));
        let made = of_kind("target").find_map(Made::of).context("fslab made no ext4")?;
        let mut figures = Vec::new();
        for sample in of_kind("sample") {
            figures.extend(figures_of(sample)?);
        }
        Ok((figures, made))
    }

    /// Runs the script, and returns the times that fio and the C program print.
    fn by_hand(&self, round: u32, made: &Made) -> Result<Vec<Figure>> {
        let out = self.place.join(format!("hand-{round}"));
        fs::create_dir(&out)?;
        let image = self.place.join("by-hand.image");
        if !image.exists() {
            let mut fill = Command::new("dd");
            fill.args(["if=/dev/zero", "bs=1M", "count=1024"]);
            process::capture(fill.arg(format!("of={}", image.display())))?;
        }
        let mut script = process::bash_in_namespaces();
        let text = self.place.join("by_hand.sh");
        fs::write(&text, BY_HAND)?;
        script.arg(text).arg(&out).args(&self.jobs);
        let (files, reads) = (FILES.to_string(), READS.to_string());
        let seed = (round + 1).to_string();
        for (name, value) in [
            ("make", made.make.as_str()),
            ("mount", &made.mount),
            ("direct", made.direct),
            ("files", &files),
            ("reads", &reads),
            ("seed", &seed),
            ("targets", "ext4 null"),
            ("with_calls", if self.with_calls { "yes" } else { "no" }),
        ] {
            script.env(name, value);
        }
        script.env("place", &self.place).env("image", &image).env("jobs", &self.place);
        script.env("fslab", &self.fslab).env("calls", &self.calls);
        process::capture(&mut script)?;
        let mut figures = Vec::new();
        for target in ["ext4", "null"] {
            for job in &self.jobs {
                let text = fs::read_to_string(out.join(format!("{target}.{job}")))?;
                figures.extend(figures_of_fio(target, job, &text)?);
            }
        }
        if self.with_calls {
            let text = fs::read_to_string(out.join("calls"))?;
            for line in text.lines() {
                let figure: Value = serde_json::from_str(line)?;
                let phase = figure["phase"].as_str().context("no phase")?;
                let seconds = figure["seconds"].as_f64().context("no seconds")?;
                figures.push((CALLS_ON_EXT4.to_owned(), phase.to_owned(), seconds));
            }
        }
        Ok(figures)
    }
}

/// Returns the times in a sample of fslab: those of phases that the C program also runs, and those
/// that fio printed.
fn figures_of(sample: &Value) -> Result<Vec<Figure>> {
    let text = |key: &str| sample[key].as_str().with_context(|| format!("no {key}"));
    let (target, workload, phase) = (text("target")?, text("workload")?, text("phase")?);
    let metric = |name: &str| {
        let metrics = sample["metrics"].as_array().into_iter().flatten();
        metrics.filter(|one| one["name"] == name).find_map(|one| one["value"].as_f64())
    };
    let elapsed = sample["elapsed_ns"].as_f64().context("no elapsed_ns")? / 1e9;
    Ok(match workload {
        "names" | "stream" | "random-io" if target != "ext4" => Vec::new(),
        "random-io" => {
            let iops = metric("iops").context("random-io has no iops")?;
            let against = (AGAINST_FIO.to_owned(), "random reads".to_owned(), 1000.0 / iops);
            vec![against, (CALLS_ON_EXT4.to_owned(), phase.to_owned(), elapsed)]
        }
        "names" | "stream" => {
            let is_compared = ["create", "stat", "delete", "write"].contains(&phase);
            let figure = (CALLS_ON_EXT4.to_owned(), phase.to_owned(), elapsed);
            is_compared.then_some(figure).into_iter().collect()
        }
        job => ["read", "write"]
            .into_iter()
            .filter_map(|direction| {
                let bandwidth = metric(&format!("{direction}-bandwidth"))?;
                Some((format!("fio on {target}"), format!("{job} {direction}"), 1e9 / bandwidth))
            })
            .collect(),
    })
}

/// Returns the times that a job of fio printed: the seconds for 10^9 bytes in each direction.
fn figures_of_fio(target: &str, job: &str, text: &str) -> Result<Vec<Figure>> {
    let found: Value =
        serde_json::from_str(text).with_context(|| format!("fio printed: {text}"))?;
    let mut figures = Vec::new();
    for direction in ["read", "write"] {
        let results = &found["jobs"][0][direction];
        let number = |key: &str| results[key].as_f64().with_context(|| format!("no {key}"));
        if number("total_ios")? > 0.0 {
            let seconds = 1e9 / number("bw_bytes")?;
            figures.push((format!("fio on {target}"), format!("{job} {direction}"), seconds));
        }
        if (target, job, direction) == ("ext4", DIRECT, "read") {
            let seconds = 1000.0 / number("iops")?;
            figures.push((AGAINST_FIO.to_owned(), "random reads".to_owned(), seconds));
        }
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_both_sides_have_the_same_names() {
        let sample = json!({
            "target": "null", "workload": "randrw-4k", "phase": "run", "elapsed_ns": 5,
            "metrics": [
                { "name": "read-bandwidth", "value": 1e9 },
                { "name": "write-bandwidth", "value": 5e8 },
            ],
        });
        let printed = json!({ "jobs": [{
            "read": { "total_ios": 3, "bw_bytes": 1e9, "iops": 10 },
            "write": { "total_ios": 2, "bw_bytes": 5e8, "iops": 5 },
        }]});
        let figures = figures_of(&sample).unwrap();
        assert_eq!(figures, figures_of_fio("null", "randrw-4k", &printed.to_string()).unwrap());
        assert_eq!(figures.len(), 2);
        let random = json!({
            "target": "ext4", "workload": "random-io", "phase": "random", "elapsed_ns": 5,
            "metrics": [{ "name": "iops", "value": 10.0 }],
        });
        let names = |figures: &[Figure]| -> Vec<(String, String)> {
            figures.iter().map(|one| (one.0.clone(), one.1.clone())).collect()
        };
        let of_fslab = figures_of(&random).unwrap();
        let of_fio = figures_of_fio("ext4", DIRECT, &printed.to_string()).unwrap();
        assert!(names(&of_fio).contains(&names(&of_fslab)[0]));
        assert_eq!(of_fslab[0].2, 100.0);
    }
}
