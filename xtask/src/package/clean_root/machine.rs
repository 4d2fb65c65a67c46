//! A Debian system in namespaces of this machine, with systemd as its first process. Its processes,
//! mounts and files are removed on drop.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::minimal_debian;
use crate::process::{self, Background};

const BOOT: &str = include_str!("boot.sh");

/// Packages in addition to the required ones: systemd for the units, and packages that the tutorial
/// needs.
const INCLUDED: &str = "systemd,zstd,linux-libc-dev";

/// Time limit of steps that need about a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(100);

/// The search path of an administrator.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The ordinary user.
pub const USER: &str = "user";

/// A running Debian system. The fields are dropped in this order.
pub struct Machine {
    first: Background,
    /// The process ID of systemd outside the namespaces.
    systemd: String,
    _group: Group,
    folder: TempDir,
}

impl Machine {
    /// Unpacks and starts a Debian, and adds an ordinary user.
    pub fn start() -> Result<Self> {
        let archive = minimal_debian::archive("debian", INCLUDED)?;
        let (hierarchy, group) = (hierarchy()?, Group::new()?);
        let folder = tempfile::Builder::new().prefix("fslab-clean-root-").tempdir()?;
        let root = folder.path().join("root");
        fs::create_dir(&root)?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        minimal_debian::unpack(&archive, &root)?;
        let script = folder.path().join("boot.sh");
        fs::write(&script, BOOT)?;
        let log = File::create(folder.path().join("boot.log"))?;
        // If xtask is killed, the kernel also kills this process.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "sh"])
            .arg(script)
            .arg(&root)
            .arg(&group.0)
            .arg(hierarchy);
        let first = process::background(&mut command, &log)?;
        let mut machine = Self { first, systemd: String::new(), _group: group, folder };
        machine.systemd = machine.wait_for_systemd()?;
        machine.wait_until_started()?;
        machine.run(&format!("useradd --create-home --shell /bin/bash {USER}"))?;
        Ok(machine)
    }

    /// Returns the path of the root directory on the host. Mounts made inside the namespaces don't
    /// appear there.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// Makes a command that runs a script as root.
    pub fn script(&self, script: &str) -> Command {
        let mut command = self.enter(&[PATH, "HOME=/root", "DEBIAN_FRONTEND=noninteractive"]);
        command.args(["sh", "-euc", script]);
        command
    }

    /// Makes a command that runs a bash script file as the ordinary user, in the user's home.
    pub fn users_file(&self, file: &str) -> Command {
        let mut command = self.enter(&[PATH, &format!("HOME=/home/{USER}")]);
        let script = r#"cd "$HOME" && exec bash "$0""#;
        command.args(["runuser", "-u", USER, "--", "sh", "-c", script, file]);
        command
    }

    /// Runs a script as root and returns its output.
    pub fn run(&self, script: &str) -> Result<String> {
        succeed(&mut self.script(script))
    }

    /// Runs a script as the ordinary user.
    pub fn run_as_user(&self, script: &str) -> Result<String> {
        let file = "/srv/trial.sh";
        fs::write(self.root().join(&file[1..]), format!("set -eu\n{script}"))?;
        succeed(&mut self.users_file(file))
    }

    fn enter(&self, variables: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--uts", "--ipc", "--pid", "--cgroup", "--target", &self.systemd]);
        command.args(["env", "-i"]).args(variables);
        command
    }

    /// Waits until systemd is running. Before that, the first process still has the host's root
    /// directory.
    fn wait_for_systemd(&mut self) -> Result<String> {
        let outer = self.first.pid().as_raw_nonzero();
        let children = format!("/proc/{outer}/task/{outer}/children");
        self.wait("systemd does not start", |_| {
            let found = fs::read_to_string(&children).unwrap_or_default();
            let Some(pid) = found.split_whitespace().next() else { return Ok(None) };
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            Ok((name.trim() == "systemd").then(|| pid.to_owned()))
        })
    }

    fn wait_until_started(&mut self) -> Result<()> {
        self.wait("systemd does not become ready", |machine| {
            let ended = process::output(&mut machine.script("systemctl is-system-running"))?;
            Ok(["running", "degraded"].contains(&ended.stdout.trim()).then_some(()))
        })
    }

    fn wait<T>(&mut self, what: &str, look: impl Fn(&Self) -> Result<Option<T>>) -> Result<T> {
        let start = Instant::now();
        loop {
            if let Some(found) = look(self)? {
                return Ok(found);
            }
            if self.first.has_ended()? || start.elapsed() > PATIENCE {
                let log = fs::read_to_string(self.folder.path().join("boot.log"))?;
                bail!("{what}: {}", log.trim());
            }
            if process::interrupted() {
                bail!("interrupted");
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Runs a command. An error message contains its standard output too, where apt prints the reason.
fn succeed(command: &mut Command) -> Result<String> {
    let ended = process::output(command)?;
    if ended.status.success() {
        return Ok(ended.stdout);
    }
    const LINES_SHOWN: usize = 12;
    let said = format!("{}\n{}", ended.stdout, ended.stderr);
    let said: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    bail!("{}: {}", ended.status, said[said.len().saturating_sub(LINES_SHOWN)..].join("\n"))
}

/// Returns the mount point of the cgroup hierarchy that systemd uses.
fn hierarchy() -> Result<&'static Path> {
    let all = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup"].map(Path::new);
    let found = all.into_iter().find(|path| path.join("cgroup.procs").exists());
    found.context("there are no control groups for systemd below /sys/fs/cgroup")
}

/// A control group. It is removed on drop, after its processes have ended.
struct Group(PathBuf);

impl Group {
    fn new() -> Result<Self> {
        let path = hierarchy()?.join(format!("fslab-clean-root-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let start = Instant::now();
        while let Err(error) = remove_group(&self.0) {
            if start.elapsed() > PATIENCE {
                eprintln!("xtask: {}: {error}", self.0.display());
                return;
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Removes a control group and the groups below it.
fn remove_group(group: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_group(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}
