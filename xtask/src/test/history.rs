//! The history of runs in the cache: one line of JSON per run.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::json;

use crate::summary::Done;
use crate::{environment, process};

/// Appends a run to `test-runs.jsonl` in the cache folder.
pub fn keep(done: &[Done], elapsed: Duration) -> Result<()> {
    let file = environment::cache()?.join("test-runs.jsonl");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    let steps: Vec<_> = done
        .iter()
        .map(|step| {
            json!({
                "step": step.name,
                "elapsed_s": step.time.as_secs_f64(),
                "cpu_s": step.cpu_s,
                "result": step.tally.counts(),
            })
        })
        .collect();
    // There is no commit outside a git clone.
    let mut git = Command::new("git");
    git.current_dir(environment::workspace_root()).args(["describe", "--always", "--dirty"]);
    let commit = process::capture(&mut git).ok().map(|name| name.trim().to_owned());
    let line = json!({
        "ended_unix_s": now.as_secs(),
        "commit": commit,
        "elapsed_s": elapsed.as_secs_f64(),
        "steps": steps,
    });
    let write = || -> Result<()> {
        fs::create_dir_all(environment::cache()?)?;
        let mut opened = OpenOptions::new().create(true).append(true).open(&file)?;
        Ok(opened.write_all(format!("{line}\n").as_bytes())?)
    };
    write().with_context(|| format!("cannot append to {}", file.display()))?;
    println!("this table is recorded in {}", file.display());
    Ok(())
}
