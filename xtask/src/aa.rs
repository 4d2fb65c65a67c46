//! `cargo xtask aa`: does the harness cry wolf, and does it see one?
//!
//! Compares a file system with itself (A/A): whatever difference is shown is a false alarm. Then
//! with itself slowed by 5 % through delays of the fault layer: whatever is not found is missed.
//! One row of each comparison counts, before Holm's correction. How long a delay really takes is
//! measured first.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::steps::{Context, build};
use crate::{environment, process};

/// The share by which the slowed target is slower.
const DELAY: f64 = 0.05;

/// Requests of the phase that is looked at.
const REQUESTS: f64 = 32_768.0;

/// The phase that is looked at: the one that waits for no memory to be made.
const PHASE: &str = "overwrite";

/// Of twenty comparisons: false alarms at most, delays found at least. For other numbers, in
/// proportion.
const FALSE_MOST: f64 = 4.0 / 20.0;
const FOUND_LEAST: f64 = 17.0 / 20.0;

/// How many comparisons, on what, and where their figures go.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Comparisons of either kind
    #[arg(long, default_value_t = 20)]
    runs: u32,
    /// Seed of the first comparison; the others follow it
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// Rounds of a comparison
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// On ext4 mounted under the layer, instead of on memory in the process
    #[arg(long)]
    mounted: bool,
    /// Appends a line of figures for each comparison, and counts what earlier calls wrote: twenty
    /// comparisons can be done in pieces
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Uses this fslab instead of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

impl Args {
    /// Builds, calibrates, compares, and counts.
    pub fn run(&self) -> Result<bool> {
        let program = match &self.program {
            Some(program) => program.clone(),
            None => build::release(&Context::inherited()?)?,
        };
        let every = self.calibrate(&program)?;
        println!("aa: every {every}th request waits, which makes {:.0} %", DELAY * 100.0);
        let mut all = self.earlier()?;
        for seed in self.seed..self.seed + self.runs {
            for slowed in [false, true] {
                let found = self.compare(&program, seed, slowed.then_some(every))?;
                println!("aa: {found}");
                self.keep(&found)?;
                all.push(found);
            }
        }
        verdict(&all)
    }

    /// After how many requests one must wait, so that the phase takes 5 % longer.
    fn calibrate(&self, program: &Path) -> Result<u64> {
        let strikes = 256.0;
        let often = (REQUESTS / strikes) as u64;
        let line = self.compare(program, 0, Some(often))?;
        let figure = |key: &str| line[key].as_f64().context("no figure");
        let (ratio, base) = (figure("ratio")?, figure("base_seconds")?);
        let strike_seconds = (ratio - 1.0) * base / strikes;
        if strike_seconds <= 0.0 {
            bail!("the delays of the calibration are not seen: ratio {ratio:.3}");
        }
        Ok((REQUESTS * strike_seconds / (DELAY * base)).round().max(1.0) as u64)
    }

    /// One comparison; `every` is after how many requests the second target waits.
    fn compare(&self, program: &Path, seed: u32, every: Option<u64>) -> Result<Value> {
        let folder = tempfile::tempdir_in(environment::target_directory()?)?;
        let plan = folder.path().join("plan.toml");
        fs::write(&plan, self.plan(every))?;
        let out = folder.path().join("out");
        let mut command = Command::new(program);
        command.arg("compare").arg(&plan).args(["--json", "--reruns", "3", "--out"]).arg(out);
        command.args(["--seed", &seed.to_string(), "--rounds", &self.rounds.to_string()]);
        let report: Value = serde_json::from_str(&process::capture(&mut command)?)?;
        found(&report, seed, every.is_some())
    }

    fn plan(&self, every: Option<u64>) -> String {
        // The baseline has a rule as well, which never strikes: both look for one at each request.
        let target = |name: &str, every: u64| {
            let rule = format!("fault:rules=write every {every} delay 200us");
            let kind = if self.mounted {
                format!("filesystem = \"ext4\"\nlayers = [\"{rule}\"]")
            } else {
                format!("in_process = \"{rule} / mem:\"")
            };
            format!("[[target]]\nname = \"{name}\"\n{kind}\n")
        };
        let never = 1_000_000_000;
        format!(
            "name = \"aa\"\n{}{}[[workload]]\nname = \"stream\"\nsize = \"128 MiB\"\n\
             request = \"4 KiB\"\n",
            target("first", never),
            target("second", every.unwrap_or(never))
        )
    }

    fn earlier(&self) -> Result<Vec<Value>> {
        let Some(log) = self.log.as_ref().filter(|log| log.exists()) else { return Ok(Vec::new()) };
        let lines: serde_json::Result<_> =
            fs::read_to_string(log)?.lines().map(serde_json::from_str).collect();
        lines.with_context(|| log.display().to_string())
    }

    fn keep(&self, found: &Value) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let mut file = fs::OpenOptions::new().append(true).create(true).open(log)?;
        writeln!(file, "{found}")?;
        Ok(())
    }
}

/// The row of the second target in the phase that is looked at.
fn found(report: &Value, seed: u32, slowed: bool) -> Result<Value> {
    let groups = report["groups"].as_array().context("a report without groups")?;
    let group = groups.iter().find(|group| group["phase"] == PHASE).context("no such phase")?;
    let ratio = &group["rows"][1]["against"][0]["ratio"];
    let figure = |key: &str| ratio[key].as_f64().with_context(|| format!("no {key} in {report}"));
    let (low, high) = (figure("low")?, figure("high")?);
    let shown = low > 1.0 || high < 1.0;
    Ok(json!({
        "seed": seed, "slowed": slowed, "shown": shown, "ratio": figure("ratio")?, "low": low,
        "high": high, "base_seconds": group["rows"][0]["seconds"]["median"],
        "disturbed": report["contaminated"], "samples": report["samples"],
    }))
}

fn verdict(all: &[Value]) -> Result<bool> {
    let [mut equal, mut alarms, mut slowed, mut seen] = [0_u32; 4];
    for found in all {
        let truth = |key: &str| found[key].as_bool().with_context(|| format!("no {key}: {found}"));
        let (of_kind, shown) = match truth("slowed")? {
            true => (&mut slowed, &mut seen),
            false => (&mut equal, &mut alarms),
        };
        *of_kind += 1;
        *shown += u32::from(truth("shown")?);
    }
    let good = f64::from(alarms) <= FALSE_MOST * f64::from(equal) + 1e-9
        && f64::from(seen) >= FOUND_LEAST * f64::from(slowed) - 1e-9;
    println!(
        "aa: {alarms} false alarms in {equal} comparisons of equals; {seen} of {slowed} delays \
         of 5 % found: {}",
        if good { "as it should be" } else { "NOT as it should be" }
    );
    Ok(good)
}
