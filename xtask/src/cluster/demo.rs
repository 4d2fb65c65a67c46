//! `cargo xtask cluster demo`: a campaign on two nodes, one of which is killed in the middle.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::nodes::{wait_at_most, wait_for};
use super::slurm::Slurm;
use crate::{environment, process};

/// A plan with four targets, two workloads and eight rounds. With a second copy of one target it
/// has 80 cells, otherwise 64. It uses real mounts and in-process file systems.
const PLAN: &str = r#"
name = "two nodes"
seed = 37
rounds = 8
image_size = "320 MiB"
[[target]]
name = "ext4"
filesystem = "ext4"
[[target]]
name = "tmpfs"
filesystem = "tmpfs"
[[target]]
name = "null over tmpfs"
filesystem = "tmpfs"
layers = ["null"]
[[target]]
name = "memory"
in_process = "mem:"
[[workload]]
name = "stream"
size = "4 MiB"
request = "64 KiB"
[[workload]]
name = "small-files"
files = 100
"#;

const CELLS: u64 = 80;
const SHARES: &str = "4";

const KILLED: &str = "n2";

/// The time limit for a requeued job. After a node fails, Slurm waits two minutes before it
/// restarts the node's jobs.
const REQUEUED_MOST: Duration = Duration::from_secs(900);

/// Runs the demonstration on a running cluster.
pub fn run(cluster: &Slurm) -> Result<()> {
    println!("cluster demo: building fslab");
    process::run_ok(environment::cargo().args(["build", "--locked", "--package", "fslab"]))?;
    let fslab = environment::target_directory()?.join("debug/fslab");
    let scratch = tempfile::TempDir::with_prefix_in("fslab-campaign-", "/var/tmp")?;
    let scratch = scratch.path();
    let plan = scratch.join("plan.toml");
    fs::write(&plan, PLAN)?;
    let at = |name: &str| scratch.join(name);
    println!("cluster demo: running the plan as one comparison");
    let mut compare = Command::new(&fslab);
    compare.arg("compare").arg(&plan).args(["--reruns", "0", "--out"]).arg(at("serial"));
    process::capture(&mut compare)?;
    let campaign = at("campaign");
    let mut new = Command::new(&fslab);
    new.args(["campaign", "new"]).arg(&plan).arg(&campaign).args(["--reruns", "0"]);
    process::run_ok(&mut new)?;
    let mut submit = cluster.command(fslab.to_str().context("a path is not UTF-8")?)?;
    submit.args(["campaign", "submit"]).arg(&campaign).args(["--slurm", "--shares", SHARES]);
    println!("cluster demo: fslab campaign submit --slurm --shares {SHARES}");
    process::run_ok(&mut submit)?;
    kill_in_the_middle(cluster, &campaign)?;
    let status = || status(&fslab, &campaign);
    wait_at_most(REQUEUED_MOST, "the campaign is complete", || {
        Ok(status()?["is_complete"] == Value::Bool(true))
    })?;
    queue_is_empty(cluster)?;
    show(Command::new(&fslab).args(["campaign", "status"]).arg(&campaign))?;
    let report = show(Command::new(&fslab).args(["campaign", "report"]).arg(&campaign))?;
    let status = status()?;
    ensure!(status["cells"] == CELLS, "cells: {}", status["cells"]);
    ensure!(status["hosts"].as_array().map(Vec::len) == Some(2), "hosts: {}", status["hosts"]);
    let words = report.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(
        words.contains("2 nodes, one kernel"),
        "the report does not contain `2 nodes, one kernel`"
    );
    compare_cells(&at("serial/samples.jsonl"), &campaign)
}

/// Waits until a share on the node has completed a block and is still running, and kills the node.
fn kill_in_the_middle(cluster: &Slurm, campaign: &Path) -> Result<()> {
    wait_at_most(REQUEUED_MOST, "a share is running on the node to be killed", || {
        let mut is_at_work = false;
        for file in attempts(campaign)? {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_running = name.contains(&format!(".{KILLED}.")) && name.ends_with(".part");
            // The file may have been renamed after the listing.
            let text = fs::read_to_string(&file).unwrap_or_default();
            is_at_work |= is_running && text.contains("\"record\":\"block\"");
        }
        Ok(is_at_work)
    })?;
    cluster.nodes.kill(KILLED)?;
    println!("cluster demo: killed {KILLED} in the middle of a share");
    wait_for("Slurm has requeued the share of the killed node", || {
        let mut squeue = cluster.command("squeue")?;
        let queue = process::capture(squeue.args(["-h", "-r", "-o", "%T %N"]))?;
        let is_running_there = |line: &str| line == format!("RUNNING {KILLED}");
        Ok(!queue.lines().any(is_running_there))
    })?;
    let mut squeue = cluster.command("squeue")?;
    println!("{}", process::capture(squeue.arg("-r"))?);
    Ok(())
}

fn queue_is_empty(cluster: &Slurm) -> Result<()> {
    wait_for("the queue is empty", || {
        let mut squeue = cluster.command("squeue")?;
        Ok(process::capture(squeue.arg("-h"))?.trim().is_empty())
    })
}

fn status(fslab: &Path, campaign: &Path) -> Result<Value> {
    let mut command = Command::new(fslab);
    let text = process::capture(command.args(["campaign", "status", "--json"]).arg(campaign))?;
    serde_json::from_str(&text).context("the status is not JSON")
}

/// Runs a command, prints its output and returns it.
fn show(command: &mut Command) -> Result<String> {
    println!("cluster demo: {}", process::line_of(command));
    let text = process::capture(command)?;
    println!("{text}");
    Ok(text)
}

fn attempts(campaign: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(campaign.join("attempts"))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

/// The seed, position, operations and bytes of each sample; the key has workload, round, target and
/// phase.
type Cells = BTreeMap<String, Vec<String>>;

/// Adds the samples in the complete blocks of a samples file to `cells`.
fn cells(file: &Path, cells: &mut Cells) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let records: Vec<Value> = lines.collect();
    let of = |record: &Value| format!("{} {}", record["workload"], record["round"]);
    let is_a = |kind: &'static str| move |record: &&Value| record["record"] == kind;
    let whole: Vec<String> = records.iter().filter(is_a("block")).map(of).collect();
    for sample in records.iter().filter(is_a("sample")).filter(|one| whole.contains(&of(one))) {
        let name = format!("{} {} {}", of(sample), sample["target"], sample["phase"]);
        let figures =
            ["seed", "position", "operations", "bytes"].map(|key| sample[key].to_string());
        cells.entry(name).or_default().push(figures.join(" "));
    }
    Ok(())
}

/// Checks that the campaign has the same samples as the comparison, without duplicates.
fn compare_cells(serial: &Path, campaign: &Path) -> Result<()> {
    let (mut expected, mut found) = (Cells::new(), Cells::new());
    cells(serial, &mut expected)?;
    for file in attempts(campaign)? {
        cells(&file, &mut found)?;
    }
    if expected != found {
        let differs = expected.iter().find(|(name, value)| found.get(*name) != Some(value));
        bail!("the campaign's cells differ from those of the comparison, first at {differs:?}");
    }
    println!(
        "cluster demo: {} phases of {CELLS} cells have the same seeds, orders and counts as in \
         one comparison, without duplicates",
        found.len()
    );
    Ok(())
}
