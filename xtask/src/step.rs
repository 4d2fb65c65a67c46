//! `cargo xtask step`: runs one step of `cargo xtask test` in separate processes.
//!
//! The inner process runs the step. The outer process starts the inner one and adopts processes
//! that the step leaves behind, such as the daemon of a mount. It waits for them, and the kernel
//! then adds their processor time to that of the outer process. So the processor time of a step
//! includes the daemons that it tested, but not kernel threads such as those of loop devices. A
//! process that does not exit soon after its step is killed and counted as a failure.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process, set_child_subreaper, wait,
};
use serde::{Deserialize, Serialize};

use crate::steps::{Context, Step};
use crate::tally::Tally;
use crate::{environment, process};

/// Time within which the remaining processes must exit after the step.
const GRACE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

/// The step, and the file for its result.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the step
    step: String,
    /// File for the result
    #[arg(long)]
    result: PathBuf,
    /// Run the step in this process
    #[arg(long)]
    inner: bool,
}

/// The result of a step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Results of its tests.
    pub tally: Tally,
    /// Processor time of all its processes, in seconds; 0 if the step was interrupted.
    pub cpu_s: f64,
}

impl Outcome {
    /// Reads the file that [`Args::run`] wrote.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| path.display().to_string())
    }

    fn write(&self, path: &Path) -> Result<()> {
        fs::write(path, serde_json::to_vec(self)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Makes the command that runs a step.
pub fn command(step: &Step, result: &Path) -> Command {
    // This path refers to the running program, even after cargo has replaced the file.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("xtask").args(["step", step.name, "--result"]).arg(result);
    command
}

impl Args {
    /// Runs the step and writes the result. Fails only if the step can't be run or the result can't
    /// be written.
    pub fn run(&self) -> Result<bool> {
        let step = crate::steps::find(&self.step)?;
        if self.inner {
            self.inner(step)?
        } else {
            self.outer(step)?
        }
        Ok(true)
    }

    fn inner(&self, step: &Step) -> Result<()> {
        let context = Context::inherited()?;
        let tally = (step.run)(&context)
            .unwrap_or_else(|error| Tally::fail(format!("{}: {error:#}", step.name)));
        let require_all = environment::switched_on("FSLAB_REQUIRE_ALL");
        let tally = if require_all { tally.requiring_all() } else { tally };
        Outcome { tally, cpu_s: 0.0 }.write(&self.result)
    }

    fn outer(&self, step: &Step) -> Result<()> {
        set_child_subreaper(Some(rustix::process::getpid()))
            .context("cannot become the parent of processes that the step leaves")?;
        let inner = command(step, &self.result)
            .arg("--inner")
            .spawn()
            .with_context(|| format!("cannot start the step {}", step.name))?;
        let status = wait_for(Pid::from_child(&inner))?;
        let left = end_the_rest()?;
        ensure!(
            status.exit_status() == Some(0) || process::interrupted(),
            "the step {} ended with {status:?}",
            step.name
        );
        let mut outcome = Outcome::read(&self.result)?;
        for line in left {
            outcome.tally +=
                Tally::fail(format!("the step {} left a process running: {line}", step.name));
        }
        outcome.cpu_s = waited_for_s()?;
        outcome.write(&self.result)
    }
}

/// Waits for one child, and reaps other children that exit before it.
fn wait_for(wanted: Pid) -> Result<WaitStatus> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((child, status))) if child == wanted => return Ok(status),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => bail!("cannot wait for the step: {errno}"),
        }
    }
}

/// Waits for the remaining children, and kills those that do not exit within [`GRACE`]. Returns the
/// command lines of the killed children.
fn end_the_rest() -> Result<Vec<String>> {
    let start = Instant::now();
    let mut killed = BTreeMap::new();
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CHILD) => return Ok(killed.into_values().collect()),
            Err(errno) => bail!("cannot wait for the processes that the step left: {errno}"),
            Ok(None) => {
                if start.elapsed() > GRACE {
                    for (child, line) in children()? {
                        // A killed process remains a child until it has exited.
                        killed.entry(child.as_raw_nonzero()).or_insert(line);
                        kill_process(child, Signal::KILL).context("cannot kill a process")?;
                    }
                }
                thread::sleep(PAUSE);
            }
        }
    }
}

/// Returns the living children of this process with their command lines.
fn children() -> Result<Vec<(Pid, String)>> {
    let own = rustix::process::getpid().as_raw_nonzero().to_string();
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc").context("cannot list processes")? {
        let entry = entry.context("cannot list processes")?;
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| Pid::from_raw(name.parse().ok()?)) else {
            continue;
        };
        // A process may exit while the list is read.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let fields = stat_fields(&stat);
        if fields.first() == Some(&"Z") || fields.get(1) != Some(&own.as_str()) {
            continue;
        }
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        children.push((pid, format!("{} {}", pid.as_raw_nonzero(), line.trim())));
    }
    Ok(children)
}

/// Returns the fields after the program's name, which may contain spaces. The first field is the
/// state.
fn stat_fields(stat: &str) -> Vec<&str> {
    stat.rsplit_once(") ").map_or(Vec::new(), |(_, rest)| rest.split(' ').collect())
}

/// Returns the processor time in seconds of all reaped children and their reaped children (`cutime`
/// and `cstime` of proc(5)).
fn waited_for_s() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat").context("/proc/self/stat")?;
    let fields = stat_fields(&stat);
    let ticks = |index: usize| -> Result<u64> {
        let field = fields.get(index).context("/proc/self/stat is too short")?;
        field.parse().with_context(|| format!("/proc/self/stat: {field:?}"))
    };
    // These are fields 16 and 17 in proc(5); `fields` begins with field 3.
    let ticks = ticks(13)? + ticks(14)?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_fields_start_after_the_program_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 0 9 8 7 6 11 12 130 240 20 0 1 0";
        let fields = stat_fields(stat);
        assert_eq!((fields[0], fields[1], fields[13], fields[14]), ("S", "1", "130", "240"));
    }

    #[test]
    fn processor_time_of_children_is_seen() {
        let before = waited_for_s().unwrap();
        let spin = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done";
        assert!(Command::new("sh").args(["-c", spin]).status().unwrap().success());
        assert!(waited_for_s().unwrap() > before);
    }
}
