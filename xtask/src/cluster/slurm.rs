//! Slurm on the nodes of a cluster.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::nodes::{Cluster, NODES, wait_for};
use crate::process;

const ROLE: &str = include_str!("slurm.sh");
const CONFIGURATION: &str = include_str!("slurm.conf");

/// The length in bytes of the key that authenticates requests to a node.
const KEY_BYTES: usize = 128;

/// A cluster with Slurm.
pub struct Slurm {
    pub nodes: Cluster,
}

impl Slurm {
    /// Returns this user's Slurm cluster.
    pub fn of_user() -> Result<Self> {
        Ok(Self { nodes: Cluster::of_user("cluster")? })
    }

    /// Starts all nodes, and waits until the controller reports both as idle.
    pub fn up(&self) -> Result<()> {
        self.nodes.prepare()?;
        self.configure()?;
        let started = self.nodes.start_all(ROLE).and_then(|()| {
            wait_for("both nodes are idle", || {
                let mut sinfo = self.command("sinfo")?;
                let answer = process::output(sinfo.args(["-h", "-N", "-o", "%N %T"]))?;
                Ok(answer.stdout.lines().filter(|line| line.ends_with(" idle")).count() == 2)
            })
        });
        started.with_context(|| format!("logs are in {}", self.nodes.state().display()))
    }

    /// Returns a command that runs a Slurm program on the controller, in the current directory.
    pub fn command(&self, program: &str) -> Result<Command> {
        let mut command = self.nodes.command("env")?;
        command.arg(format!("SLURM_CONF={}", self.configuration().display())).arg(program);
        Ok(command)
    }

    fn configuration(&self) -> PathBuf {
        self.nodes.state().join("slurm.conf")
    }

    /// Creates the directories, the keys and the configuration.
    fn configure(&self) -> Result<()> {
        let state = self.nodes.state();
        let mut key = [0; KEY_BYTES];
        File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut key))?;
        let make = |path: &Path| {
            fs::create_dir_all(path).with_context(|| path.display().to_string())?;
            fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(anyhow::Error::from)
        };
        make(&state.join("munge"))?;
        make(&state.join("ctl/state"))?;
        for (name, _) in NODES {
            let folder = state.join(name);
            make(&folder.join("munge"))?;
            make(&folder.join("spool"))?;
            let file = folder.join("munge.key");
            fs::write(&file, key)?;
            fs::set_permissions(&file, Permissions::from_mode(0o600))?;
        }
        let Some(text) = state.to_str() else { bail!("the cache folder's path is not UTF-8") };
        fs::write(self.configuration(), CONFIGURATION.replace("STATE", text))?;
        Ok(())
    }
}
