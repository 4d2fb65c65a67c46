//! A cluster on one machine: Slurm's controller and two nodes. Each has its own network, host name,
//! mount and process namespaces. When the first process of a node exits, the kernel kills the
//! others.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::{environment, process};

const NODE: &str = include_str!("node.sh");
const CONFIGURATION: &str = include_str!("slurm.conf");

const CONTROLLER: &str = "ctl";

/// The nodes with their addresses in the private network.
const NODES: [(&str, &str); 3] =
    [(CONTROLLER, "10.217.0.1"), ("n1", "10.217.0.2"), ("n2", "10.217.0.3")];

/// The length in bytes of the key that authenticates requests to a node.
const KEY_BYTES: usize = 128;

/// The time limit for steps that take a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A cluster, identified by its state directory.
pub struct Cluster {
    state: PathBuf,
}

impl Cluster {
    /// Returns the only cluster of this user.
    pub fn of_user() -> Result<Self> {
        Ok(Self { state: environment::cache()?.join("cluster") })
    }

    /// Returns whether any node is running.
    pub fn is_up(&self) -> bool {
        NODES.iter().any(|(name, _)| self.process(name).is_some())
    }

    /// Starts all nodes, and waits until the controller reports both as idle.
    pub fn up(&self) -> Result<()> {
        if self.is_up() {
            bail!("the cluster is running; `cargo xtask cluster down` stops it");
        }
        if !environment::is_root() {
            bail!("namespaces and mounts need root; run it as root");
        }
        self.prepare()?;
        let started = self.start_all().and_then(|()| {
            wait_for("both nodes are idle", || {
                let mut sinfo = self.command("sinfo")?;
                let answer = process::output(sinfo.args(["-h", "-N", "-o", "%N %T"]))?;
                Ok(answer.stdout.lines().filter(|line| line.ends_with(" idle")).count() == 2)
            })
        });
        started.with_context(|| format!("logs are in {}", self.state.display()))
    }

    /// Stops all nodes and keeps their logs. Tries every node and returns the first error.
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
    /// wait, so that no process remains.
    pub fn kill(&self, name: &str) -> Result<()> {
        let Some(outer) = self.process(name) else { return Ok(()) };
        // The kernel kills the other processes of a namespace together with its first process.
        for pid in self.first_process(name).into_iter().chain([outer]) {
            match kill_process(pid, Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(errno) => bail!("cannot kill {name}: {errno}"),
            }
        }
        wait(
            PATIENCE,
            "the node's processes have exited",
            || Ok(self.process(name).is_none()),
            || false,
        )
    }

    /// Returns the command for a program of Slurm on the controller, in the current directory.
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
        command.arg("env").arg(format!("SLURM_CONF={}", self.configuration().display()));
        command.arg(program);
        Ok(command)
    }

    fn configuration(&self) -> PathBuf {
        self.state.join("slurm.conf")
    }

    /// Creates the directories, the keys and the configuration.
    fn prepare(&self) -> Result<()> {
        self.down()?;
        let mut key = [0; KEY_BYTES];
        File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut key))?;
        let make = |path: &Path| {
            fs::create_dir_all(path).with_context(|| path.display().to_string())?;
            fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(anyhow::Error::from)
        };
        make(&self.state.join("munge"))?;
        make(&self.state.join(CONTROLLER).join("state"))?;
        for (name, _) in NODES {
            let folder = self.state.join(name);
            make(&folder.join("munge"))?;
            make(&folder.join("spool"))?;
            let file = folder.join("munge.key");
            fs::write(&file, key)?;
            fs::set_permissions(&file, Permissions::from_mode(0o600))?;
        }
        let Some(state) = self.state.to_str() else {
            bail!("the cache folder's path is not UTF-8")
        };
        fs::write(self.configuration(), CONFIGURATION.replace("STATE", state))?;
        fs::write(self.state.join("node.sh"), NODE)?;
        Ok(())
    }

    fn start_all(&self) -> Result<()> {
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

    /// Returns the command for ip(8) in the controller's network.
    fn in_network(&self) -> Result<Command> {
        let pid = self.first_process(CONTROLLER).context("the controller has ended")?;
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &pid.as_raw_nonzero().to_string(), "ip"]);
        Ok(command)
    }

    /// Returns the process outside a node's namespaces, if it is running. It is identified by its
    /// number and by the state directory in its arguments, because process numbers are reused.
    fn process(&self, name: &str) -> Option<Pid> {
        let text = fs::read_to_string(self.state.join(name).join("pid")).ok()?;
        let number: i32 = text.trim().parse().ok()?;
        let arguments = fs::read(format!("/proc/{number}/cmdline")).ok()?;
        let script = self.state.join("node.sh");
        let is_ours = arguments.split(|byte| *byte == 0).any(|one| Some(one) == as_bytes(&script));
        Pid::from_raw(number).filter(|_| is_ours)
    }

    /// Returns the first process inside a node's namespaces.
    fn first_process(&self, name: &str) -> Option<Pid> {
        let outer = self.process(name)?.as_raw_nonzero();
        let text = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).ok()?;
        Pid::from_raw(text.split_whitespace().next()?.parse().ok()?)
    }
}

fn as_bytes(path: &Path) -> Option<&[u8]> {
    path.to_str().map(str::as_bytes)
}

/// Waits for a condition, up to the default limit. A signal also ends the wait.
pub fn wait_for(what: &str, is_so: impl Fn() -> Result<bool>) -> Result<()> {
    wait_at_most(PATIENCE, what, is_so)
}

/// Waits for a condition, up to the given limit. A signal also ends the wait.
pub fn wait_at_most(most: Duration, what: &str, is_so: impl Fn() -> Result<bool>) -> Result<()> {
    wait(most, what, is_so, process::interrupted)
}

fn wait(
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
