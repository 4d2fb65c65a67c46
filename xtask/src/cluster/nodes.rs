//! A cluster on one machine: a controller and two nodes. Each has its own network, host name, mount
//! and process namespaces. When the first process of a node exits, the kernel kills the node's
//! other processes.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::{environment, process};

const NODE: &str = include_str!("node.sh");

const CONTROLLER: &str = "ctl";

/// The controller and the nodes with their addresses in the private network.
pub const NODES: [(&str, &str); 3] =
    [(CONTROLLER, "10.217.0.1"), ("n1", "10.217.0.2"), ("n2", "10.217.0.3")];

/// The time limit for steps that need about a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A cluster, identified by its state directory.
pub struct Cluster {
    state: PathBuf,
}

impl Cluster {
    /// Returns this user's cluster with the given name.
    pub fn of_user(name: &str) -> Result<Self> {
        Ok(Self { state: environment::cache()?.join(name) })
    }

    /// Returns the directory with the state of the cluster and of each node.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Returns whether any node is running.
    pub fn is_up(&self) -> bool {
        NODES.iter().any(|(name, _)| self.process(name).is_some())
    }

    /// Checks that the cluster can be started, and removes files of an earlier one.
    pub fn prepare(&self) -> Result<()> {
        if self.is_up() {
            bail!("the cluster is running; `cargo xtask cluster down` stops it");
        }
        if !environment::is_root() {
            bail!("namespaces and mounts need root; run it as root");
        }
        self.down()?;
        for (name, _) in NODES {
            let folder = self.state.join(name);
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }
        Ok(())
    }

    /// Starts all nodes of a prepared cluster. Each node runs the shell commands in `role`, which
    /// can use the variables `state`, `name` and `address`. A node ends with its commands.
    pub fn start_all(&self, role: &str) -> Result<()> {
        fs::write(self.state.join("role.sh"), role)?;
        fs::write(self.state.join("node.sh"), NODE)?;
        for (name, address) in NODES {
            self.start(name, address)?;
        }
        let has_switch = || {
            let answer = process::output(self.in_network()?.args(["link", "show", "switch"]))?;
            Ok(answer.status.success())
        };
        wait_for("the network is up", has_switch)?;
        for (name, _) in &NODES[1..] {
            let pid = self.first_process(name).context("a node has ended")?;
            let pid = pid.as_raw_nonzero().to_string();
            let cable =
                ["link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", &pid];
            process::capture(self.in_network()?.args(cable))?;
            let plug = ["link", "set", name, "master", "switch", "up"];
            process::capture(self.in_network()?.args(plug))?;
        }
        Ok(())
    }

    /// Stops all nodes and keeps their logs. After an error, still stops the other nodes; returns
    /// the first error.
    pub fn end_all(&self) -> Result<()> {
        NODES.map(|(name, _)| self.kill(name)).into_iter().collect()
    }

    /// Stops all nodes and removes their files.
    pub fn down(&self) -> Result<()> {
        self.end_all()?;
        match fs::remove_dir_all(&self.state) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| self.state.display().to_string())
            }
            _ => Ok(()),
        }
    }

    /// Kills all processes of a node at once, as in a power failure. An interrupt does not end the
    /// wait, so no process is left behind.
    pub fn kill(&self, name: &str) -> Result<()> {
        let Some(outer) = self.process(name) else { return Ok(()) };
        // When a namespace's first process is killed, the kernel kills the others.
        for pid in self.first_process(name).into_iter().chain([outer]) {
            match kill_process(pid, Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(errno) => bail!("cannot kill {name}: {errno}"),
            }
        }
        wait("the node's processes have exited", || Ok(self.process(name).is_none()), || false)
    }

    /// Returns a command that runs a program on the controller, in the current directory. The
    /// caller adds the program's arguments.
    pub fn command(&self, program: &str) -> Result<Command> {
        let pid = self.first_process(CONTROLLER).context("the cluster is not running")?;
        let mut command = Command::new("nsenter");
        command.args([
            "--net",
            "--uts",
            "--mount",
            "--pid",
            "--target",
            &pid.as_raw_nonzero().to_string(),
        ]);
        command.arg(format!("--wd={}", std::env::current_dir()?.display()));
        command.arg(program);
        Ok(command)
    }

    /// Starts a node, which continues to run after xtask has ended.
    fn start(&self, name: &str, address: &str) -> Result<()> {
        let log = File::create(self.state.join(name).join("node.log"))?;
        let mut command = Command::new("unshare");
        command.args(["--net", "--uts", "--mount", "--propagation", "private"]);
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh"]);
        command.arg(self.state.join("node.sh")).arg(&self.state).args([name, address]);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let child = command.spawn().with_context(|| process::line_of(&command))?;
        fs::write(self.state.join(name).join("pid"), child.id().to_string())?;
        wait_for("a node has started", || Ok(self.first_process(name).is_some()))
    }

    /// Returns a command that runs ip(8) in the controller's network namespace.
    fn in_network(&self) -> Result<Command> {
        let pid = self.first_process(CONTROLLER).context("the controller has ended")?;
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &pid.as_raw_nonzero().to_string(), "ip"]);
        Ok(command)
    }

    /// Returns the process that unshare(1) started for a node, if it is running. Process numbers
    /// are reused, so the state directory must also be among the process's arguments.
    fn process(&self, name: &str) -> Option<Pid> {
        let text = fs::read_to_string(self.state.join(name).join("pid")).ok()?;
        let number: i32 = text.trim().parse().ok()?;
        let arguments = fs::read(format!("/proc/{number}/cmdline")).ok()?;
        let script = self.state.join("node.sh");
        let is_ours = arguments.split(|byte| *byte == 0).any(|one| Some(one) == as_bytes(&script));
        Pid::from_raw(number).filter(|_| is_ours)
    }

    /// Returns the first process inside a node's process namespace.
    fn first_process(&self, name: &str) -> Option<Pid> {
        let outer = self.process(name)?.as_raw_nonzero();
        let text = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).ok()?;
        Pid::from_raw(text.split_whitespace().next()?.parse().ok()?)
    }
}

fn as_bytes(path: &Path) -> Option<&[u8]> {
    path.to_str().map(str::as_bytes)
}

/// Waits for a condition, up to the default time limit. A signal also ends the wait.
pub fn wait_for(what: &str, is_so: impl Fn() -> Result<bool>) -> Result<()> {
    wait(what, is_so, process::interrupted)
}

/// Waits for a condition, up to the default time limit. `must_end` can end the wait early.
pub fn wait(
    what: &str,
    is_so: impl Fn() -> Result<bool>,
    must_end: impl Fn() -> bool,
) -> Result<()> {
    wait_within(PATIENCE, what, is_so, must_end)
}

/// Waits for a condition, up to the given time limit. A signal also ends the wait.
pub fn wait_at_most(most: Duration, what: &str, is_so: impl Fn() -> Result<bool>) -> Result<()> {
    wait_within(most, what, is_so, process::interrupted)
}

fn wait_within(
    most: Duration,
    what: &str,
    is_so: impl Fn() -> Result<bool>,
    must_end: impl Fn() -> bool,
) -> Result<()> {
    let start = Instant::now();
    while !is_so()? {
        if must_end() {
            bail!("interrupted");
        }
        if start.elapsed() > most {
            bail!("timed out after {} s, while waiting until {what}", most.as_secs());
        }
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}
