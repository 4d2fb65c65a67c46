//! A virtual machine under QEMU. It ends when this value is dropped, or when xtask ends.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::process::{self, Background};

/// Time limit of a start of the machine, of a command in it, and of a reset. Without KVM on a busy
/// host, a start takes over a minute.
const PATIENCE: Duration = Duration::from_secs(300);

/// Interval at which a waiting call checks for signals, and for a suspended machine.
const PAUSE: Duration = Duration::from_millis(200);

/// The line that the guest's agent prints when it is ready for commands.
const READY: &str = "== ready";

/// Parameters of the guest's kernel. Mitigations of hardware faults would only take time.
const PARAMETERS: &str = "console=ttyS0 mitigations=off nowatchdog cryptomgr.notests \
                          raid=noautodetect systemd.show_status=1 no_console_suspend panic=1";

/// How QEMU runs the guest's instructions.
#[derive(Clone, Copy, Debug)]
pub enum Accelerator {
    /// By the processor.
    Kvm,
    /// By translation, which is slower, for the given reason.
    Tcg(&'static str),
}

impl Accelerator {
    /// Returns the fastest accelerator that works here.
    pub fn of_this_host() -> Self {
        if !Path::new("/dev/kvm").exists() {
            return Self::Tcg("there is no /dev/kvm");
        }
        // This module serves /dev/kvm without hardware support, only for adapted kernels.
        if Path::new("/sys/module/kvm_pvm").exists() {
            return Self::Tcg("the module kvm_pvm behind /dev/kvm can't run Debian's kernel");
        }
        Self::Kvm
    }

    /// Returns a description of this choice.
    pub fn describe(self) -> String {
        match self {
            Self::Kvm => "QEMU uses KVM".into(),
            Self::Tcg(reason) => format!("QEMU translates instructions (TCG), because {reason}"),
        }
    }

    fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Tcg(_) => ["-accel", "tcg", "-cpu", "qemu64"],
        }
    }
}

/// How a command in the guest suspends the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// Suspend to RAM (S3).
    ToRam,
    /// Suspend to idle.
    ToIdle,
}

impl Sleep {
    /// Returns the name of this state in `/sys/power/state`.
    pub fn state(self) -> &'static str {
        if self == Self::ToRam { "mem" } else { "freeze" }
    }
}

/// A running virtual machine.
pub struct Machine {
    qemu: Background,
    agent: UnixStream,
    /// Output of the agent that was not returned yet.
    unread: Vec<u8>,
    monitor: Monitor,
    folder: PathBuf,
    /// The number of times that QEMU reported a machine in suspend to RAM.
    pub suspensions: usize,
}

impl Machine {
    /// Starts a machine from the files in a folder, and waits until the agent is ready.
    pub fn start(folder: &Path, accelerator: Accelerator) -> Result<Self> {
        let at = |name: &str| folder.join(name).display().to_string();
        let socket = |name| format!("unix:{},server=on,wait=off", at(name));
        let mut command = Command::new("setpriv");
        // If xtask is killed, the kernel also kills QEMU.
        command.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]);
        command.args(accelerator.arguments());
        command.args(["-m", "1024", "-smp", "1", "-display", "none", "-nodefaults"]);
        command.args(["-no-user-config", "-kernel", &at("vmlinuz"), "-initrd", &at("initrd")]);
        command.args(["-append", PARAMETERS, "-drive"]);
        command.arg(format!("file={},if=virtio,format=raw,cache=writeback", at("disk")));
        command.args(["-serial", &format!("file:{}", at("console"))]);
        command.args(["-serial", &socket("agent")]);
        command.args(["-serial", &format!("file:{}", at("acknowledged"))]);
        command.args(["-qmp", &socket("monitor")]);
        let log = File::create(folder.join("qemu.log"))?;
        let mut qemu = process::background(&mut command, &log)?;
        let agent = connect(&folder.join("agent"), &mut qemu, folder)?;
        agent.set_read_timeout(Some(PAUSE))?;
        let monitor = Monitor::new(connect(&folder.join("monitor"), &mut qemu, folder)?)?;
        let (unread, folder) = (Vec::new(), folder.to_owned());
        let mut machine = Self { qemu, agent, unread, monitor, folder, suspensions: 0 };
        machine.wait_until_ready()?;
        Ok(machine)
    }

    /// Waits until the agent is ready, after a start, reboot or reset.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        self.answer(None, |line| line == READY).map(drop).context("the machine does not start")
    }

    /// Runs a shell command and returns its output. An error contains the output.
    pub fn run(&mut self, command: &str) -> Result<String> {
        self.run_asleep(command, None)
    }

    /// Runs a shell command that suspends the machine, and wakes the machine.
    pub fn run_asleep(&mut self, command: &str, sleep: Option<Sleep>) -> Result<String> {
        let line = format!("{command}\n");
        self.agent.write_all(line.as_bytes()).context("the agent's port")?;
        let (output, last) = self.answer(sleep, |line| {
            line.strip_prefix("== ").is_some_and(|code| code.parse::<u32>().is_ok())
        })?;
        match last.as_str() {
            "== 0" => Ok(output),
            _ => bail!("`{command}` failed: {}", output.trim()),
        }
    }

    /// Resets the machine, like its reset button.
    pub fn reset(&mut self) -> Result<()> {
        self.unread.clear();
        self.monitor.execute("system_reset", Value::Null).map(drop)
    }

    /// Reboots in an orderly way, and waits until the guest has reset the machine. Returns the
    /// duration of the shutdown.
    pub fn reboot(&mut self) -> Result<Duration> {
        // Forget earlier resets.
        self.monitor.has_reset()?;
        let start = Instant::now();
        self.agent.write_all(b"systemctl reboot\n").context("the agent's port")?;
        while !self.monitor.has_reset()? {
            self.check(start, "the machine does not reboot")?;
            thread::sleep(PAUSE);
        }
        self.unread.clear();
        Ok(start.elapsed())
    }

    /// Returns the lines that programs have written to the third serial port.
    pub fn acknowledged(&self) -> Result<String> {
        let bytes = fs::read(self.folder.join("acknowledged")).context("acknowledged")?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns what the console has shown so far.
    pub fn console(&self) -> Result<String> {
        let bytes = fs::read(self.folder.join("console")).context("console")?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads the agent's lines up to one that `is_last` accepts. Returns the lines before it, and
    /// this line. Meanwhile wakes the machine if the command suspends it.
    fn answer(
        &mut self,
        sleep: Option<Sleep>,
        is_last: impl Fn(&str) -> bool,
    ) -> Result<(String, String)> {
        let (start, mut output) = (Instant::now(), String::new());
        loop {
            while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                if is_last(&line) {
                    return Ok((output, line));
                }
                output += &format!("{line}\n");
            }
            let mut bytes = [0; 4096];
            match self.agent.read(&mut bytes) {
                Ok(0) => bail!("QEMU has ended: {}", self.log()),
                Ok(count) => self.unread.extend_from_slice(&bytes[..count]),
                Err(error) if is_timeout(&error) => self.wake(sleep, start)?,
                Err(error) => return Err(error).context("the agent's port"),
            }
            self.check(start, &format!("no answer from the machine after `{}`", output.trim()))?;
        }
    }

    /// Wakes the machine if it sleeps. QEMU does not report suspend to idle, so in this case a key
    /// is pressed after three seconds, and repeatedly.
    fn wake(&mut self, sleep: Option<Sleep>, start: Instant) -> Result<()> {
        const ASLEEP: Duration = Duration::from_secs(1);
        const TO_IDLE: Duration = Duration::from_secs(3);
        match sleep {
            Some(Sleep::ToRam) => {
                let status = self.monitor.execute("query-status", Value::Null)?;
                if status["status"] == "suspended" {
                    self.suspensions += 1;
                    thread::sleep(ASLEEP);
                    self.monitor.execute("system_wakeup", Value::Null)?;
                }
            }
            Some(Sleep::ToIdle) if start.elapsed() > TO_IDLE => {
                let key = json!({ "keys": [{ "type": "qcode", "data": "shift" }] });
                self.monitor.execute("send-key", key)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn check(&mut self, start: Instant, what: &str) -> Result<()> {
        if process::interrupted() {
            bail!("interrupted");
        }
        if self.qemu.has_ended()? {
            bail!("QEMU has ended: {}", self.log());
        }
        if start.elapsed() > PATIENCE {
            let console = self.console()?;
            let lines: Vec<&str> = console.lines().collect();
            let last = lines[lines.len().saturating_sub(20)..].join("\n");
            bail!("{what} within {} s; the console shows:\n{last}", PATIENCE.as_secs());
        }
        Ok(())
    }

    fn log(&self) -> String {
        log_of(&self.folder)
    }
}

fn log_of(folder: &Path) -> String {
    fs::read_to_string(folder.join("qemu.log")).unwrap_or_default().trim().to_owned()
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Connects to a socket of QEMU, which makes its sockets when it starts.
fn connect(path: &Path, qemu: &mut Background, folder: &Path) -> Result<UnixStream> {
    let start = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return Ok(stream),
            Err(error) if qemu.has_ended()? || start.elapsed() > PATIENCE => {
                return Err(error).with_context(|| format!("QEMU: {}", log_of(folder)));
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// QEMU's monitor: one JSON object a line in both directions.
struct Monitor {
    stream: UnixStream,
    unread: Vec<u8>,
    resets: usize,
}

impl Monitor {
    fn new(stream: UnixStream) -> Result<Self> {
        stream.set_read_timeout(Some(PAUSE))?;
        let mut monitor = Self { stream, unread: Vec::new(), resets: 0 };
        monitor.execute("qmp_capabilities", Value::Null)?;
        Ok(monitor)
    }

    /// Executes a command and returns its result.
    fn execute(&mut self, name: &str, arguments: Value) -> Result<Value> {
        let mut command = json!({ "execute": name });
        if !arguments.is_null() {
            command["arguments"] = arguments;
        }
        self.stream.write_all(format!("{command}\n").as_bytes()).context("QEMU's monitor")?;
        let start = Instant::now();
        loop {
            if let Some(answer) = self.next()? {
                if let Some(result) = answer.get("return") {
                    return Ok(result.clone());
                }
                if let Some(error) = answer.get("error") {
                    bail!("QEMU refuses {name}: {error}");
                }
            } else if start.elapsed() > PATIENCE || process::interrupted() {
                bail!("QEMU does not answer {name}");
            }
        }
    }

    /// Returns whether the guest has reset the machine since the last call.
    fn has_reset(&mut self) -> Result<bool> {
        while self.next()?.is_some() {}
        Ok(std::mem::take(&mut self.resets) > 0)
    }

    /// Returns the next message, and `None` if there is none for a moment.
    fn next(&mut self) -> Result<Option<Value>> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                let message: Value = serde_json::from_slice(&line).context("QEMU's monitor")?;
                let is_reset = message["event"] == "RESET" && message["data"]["guest"] == true;
                self.resets += usize::from(is_reset);
                return Ok(Some(message));
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => bail!("QEMU has ended"),
                Ok(count) => self.unread.extend_from_slice(&bytes[..count]),
                Err(error) if is_timeout(&error) => return Ok(None),
                Err(error) => return Err(error).context("QEMU's monitor"),
            }
        }
    }
}
