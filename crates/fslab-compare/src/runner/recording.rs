//! Recordings of phases, made on request in addition to samples. perf(1) records the call stacks of
//! all processors, and tracepoints of the kernel record the requests of the block device.
//!
//! Recording slows phases down, so the report states that they were recorded.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fslab_sys::block_counters::DeviceNumber;
use fslab_sys::usage::Instant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Error, Result};
use crate::tracefs::Tracefs;
use fslab_report::Recording;

/// Samples per second and processor. An odd number does not stay in step with other timers.
const FREQUENCY: &str = "997";

/// Time limit for perf(1) to start, to answer a command, and to end.
const PERF_MOST: Duration = Duration::from_secs(20);

/// Size of the kernel's buffer for block events of each processor.
const BUFFER_KIB: &str = "8192";

/// Prefix of the names of tracing instances.
const PREFIX: &str = "fslab-";

/// Number of tracing instances that this process has made.
static INSTANCES: AtomicU32 = AtomicU32::new(0);

/// The tracepoints of block requests.
const EVENTS: [&str; 2] = ["block_rq_issue", "block_rq_complete"];

/// Records phases.
pub(crate) struct Recorder {
    stacks: bool,
    block: Option<BlockEvents>,
    /// The directory of the recordings.
    directory: PathBuf,
    /// A directory for temporary files.
    work: PathBuf,
}

impl Recorder {
    /// Prepares recordings in a directory next to a samples file; `None` if none is requested.
    /// `work` is a directory for temporary files.
    ///
    /// # Errors
    /// Returns [`Error::Recording`] if the machine lacks something that a recording needs.
    pub fn new(kinds: &[Recording], samples: &Path, work: &Path) -> Result<Option<Self>> {
        if kinds.is_empty() {
            return Ok(None);
        }
        let directory = samples.with_file_name("recordings");
        let block = kinds.contains(&Recording::Block);
        let block = block.then(|| BlockEvents::open(work)).transpose()?;
        let stacks = kinds.contains(&Recording::Perf);
        let recorder = Self { stacks, block, directory, work: work.to_owned() };
        // A trial recording shows whether perf works on this machine.
        if recorder.stacks {
            let trial = work.join("trial.perf");
            Stacks::begin(&trial, work)?.end()?;
            fs::remove_file(&trial).map_err(Error::file(&trial))?;
        }
        Ok(Some(recorder))
    }

    /// Starts to record a phase into files with this name. `device` is the device of its target.
    pub fn begin(&self, name: &str, device: Option<DeviceNumber>) -> Result<Active<'_>> {
        let is_plain = |character: char| character.is_ascii_alphanumeric() || character == '.';
        let name: String = name
            .chars()
            .map(|character| if is_plain(character) { character } else { '-' })
            .collect();
        fs::create_dir_all(&self.directory).map_err(Error::file(&self.directory))?;
        let path = |end: &str| self.directory.join(format!("{name}.{end}"));
        let stacks = self.stacks.then(|| Stacks::begin(&path("perf"), &self.work)).transpose()?;
        let block = self.block.as_ref().zip(device);
        if let Some((events, device)) = block {
            events.begin(device)?;
        }
        let block = block.map(|(events, _)| (events, path("block.txt")));
        Ok(Active { stacks, block })
    }
}

/// The recording of a phase.
#[must_use]
pub(crate) struct Active<'a> {
    stacks: Option<Stacks>,
    block: Option<(&'a BlockEvents, PathBuf)>,
}

impl Active<'_> {
    /// Ends the recording and writes its files.
    pub fn end(self) -> Result<()> {
        let stacks = self.stacks.map_or(Ok(()), Stacks::end);
        stacks.and(self.block.map_or(Ok(()), |(events, path)| events.end(&path)))
    }
}

fn failed(kind: Recording, reason: impl ToString) -> Error {
    Error::Recording { kind, reason: reason.to_string() }
}

/// A running perf(1). It is killed when dropped.
struct Stacks {
    perf: Child,
    /// The pipe for commands to perf. `answers` is the pipe for its answers.
    control: File,
    answers: File,
    messages: PathBuf,
}

impl Stacks {
    /// Starts perf and its recording. The time to start is not recorded.
    fn begin(output: &Path, work: &Path) -> Result<Self> {
        let pipes = [work.join("perf-control"), work.join("perf-answers")];
        let (control, answers) = (open_pipe(&pipes[0])?, open_pipe(&pipes[1])?);
        let messages = work.join("perf-messages");
        let log = File::create(&messages).map_err(Error::file(&messages))?;
        let perf = Command::new("perf")
            .args(["record", "--all-cpus", "--call-graph", "fp", "--freq", FREQUENCY])
            .args(["--delay", "-1", "--control"])
            .arg(format!("fifo:{},{}", pipes[0].display(), pipes[1].display()))
            .arg("--output")
            .arg(output)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => {
                    failed(Recording::Perf, "perf is not installed (Debian package linux-perf)")
                }
                _ => failed(Recording::Perf, error),
            })?;
        let mut stacks = Self { perf, control, answers, messages };
        stacks.command("enable")?;
        Ok(stacks)
    }

    /// Sends a command and waits until perf has done it.
    fn command(&mut self, command: &str) -> Result<()> {
        let failed = |error: io::Error| failed(Recording::Perf, error);
        writeln!(self.control, "{command}").map_err(failed)?;
        let start = Instant::now();
        loop {
            let mut answers = [PollFd::new(&self.answers, PollFlags::IN)];
            let interval = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            if poll(&mut answers, Some(&interval)).map_err(|errno| failed(errno.into()))? > 0 {
                return self.take_answer().map_err(failed);
            }
            let ended = self.perf.try_wait().map_err(failed)?.is_some();
            if ended || start.elapsed() > PERF_MOST {
                return Err(self.complaint());
            }
        }
    }

    /// Reads "ack", a newline and a NUL byte.
    fn take_answer(&mut self) -> io::Result<()> {
        let mut answer = [0; 64];
        io::Read::read(&mut self.answers, &mut answer).map(drop)
    }

    /// Returns the error that perf printed.
    fn complaint(&self) -> Error {
        // If the messages can't be read, the default reason below is still right.
        let text = fs::read_to_string(&self.messages).unwrap_or_default();
        let line = text.lines().map(str::trim).find(|line| !line.is_empty());
        let reason = line.unwrap_or("it does not answer; fslab needs perf of Linux 5.10 or later");
        failed(Recording::Perf, format!("perf: {reason}"))
    }

    /// Ends the recording.
    fn end(mut self) -> Result<()> {
        self.command("disable")?;
        let fail = |error: io::Error| failed(Recording::Perf, error);
        kill_process(Pid::from_child(&self.perf), Signal::INT)
            .map_err(|errno| fail(errno.into()))?;
        let start = Instant::now();
        while self.perf.try_wait().map_err(fail)?.is_none() {
            if start.elapsed() > PERF_MOST {
                return Err(failed(Recording::Perf, "perf does not end"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Stacks {
    fn drop(&mut self) {
        if matches!(self.perf.try_wait(), Ok(Some(_))) {
            return;
        }
        if let Err(error) = self.perf.kill().and_then(|()| self.perf.wait()) {
            tracing::warn!("perf can't be ended: {error}");
        }
    }
}

/// Makes a named pipe and opens both ends, so that neither side waits for the other.
fn open_pipe(path: &Path) -> Result<File> {
    let fail = |errno: rustix::io::Errno| Error::file(path)(errno.into());
    match rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(errno) => return Err(fail(errno)),
    }
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map(File::from).map_err(fail)
}

/// An instance of the kernel's tracing with the events of block devices. It is removed when
/// dropped.
struct BlockEvents {
    instance: PathBuf,
    /// While a file of an instance is open, the kernel refuses to remove the instance.
    in_use: Option<File>,
    _tracefs: Tracefs,
}

impl BlockEvents {
    fn open(work: &Path) -> Result<Self> {
        let fail = |error: io::Error| failed(Recording::Block, error);
        let tracefs = Tracefs::open(work, "tracefs-block")
            .map_err(|error| failed(Recording::Block, error))?;
        let root = tracefs.root();
        remove_unused(&root.join("instances")).map_err(fail)?;
        let number = INSTANCES.fetch_add(1, Ordering::Relaxed);
        let instance = root.join(format!("instances/{PREFIX}{}-{number}", std::process::id()));
        fs::create_dir(&instance).map_err(fail)?;
        let in_use = Some(File::open(instance.join("trace_pipe")).map_err(fail)?);
        let events = Self { instance, in_use, _tracefs: tracefs };
        events.write("buffer_size_kb", BUFFER_KIB)?;
        events.write("tracing_on", "0")?;
        for event in EVENTS {
            events.write(&format!("events/block/{event}/enable"), "1")?;
        }
        Ok(events)
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.instance.join(file);
        fs::write(&path, text)
            .map_err(|error| failed(Recording::Block, format!("{}: {error}", path.display())))
    }

    /// Starts to record the requests of a device.
    fn begin(&self, device: DeviceNumber) -> Result<()> {
        // The kernel's encoding of a device number: 20 bits for the minor number.
        let filter = format!("dev == {}", (device.major << 20) | device.minor);
        for event in EVENTS {
            self.write(&format!("events/block/{event}/filter"), &filter)?;
        }
        // Writing to this file removes all events.
        self.write("trace", "\n")?;
        self.write("tracing_on", "1")
    }

    fn end(&self, output: &Path) -> Result<()> {
        self.write("tracing_on", "0")?;
        let trace = self.instance.join("trace");
        let mut from = File::open(&trace).map_err(Error::file(&trace))?;
        let mut to = File::create_new(output).map_err(Error::file(output))?;
        io::copy(&mut from, &mut to).map(drop).map_err(Error::file(output))
    }
}

impl Drop for BlockEvents {
    fn drop(&mut self) {
        self.in_use = None;
        if let Err(error) = fs::remove_dir(&self.instance) {
            tracing::warn!("{}: {error}", self.instance.display());
        }
    }
}

/// Removes the instances of killed processes. Instances of running processes are busy and remain.
fn remove_unused(instances: &Path) -> io::Result<()> {
    for entry in fs::read_dir(instances)? {
        let name = entry?.file_name();
        if !name.to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        match fs::remove_dir(instances.join(&name)) {
            // Another process may have removed the instance since it was listed.
            Err(error)
                if !matches!(
                    error.kind(),
                    io::ErrorKind::ResourceBusy | io::ErrorKind::NotFound
                ) =>
            {
                return Err(error);
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use fslab_vfs_testing::skip::skip;

    use super::{BlockEvents, PREFIX};

    #[test]
    fn instances_in_use_are_kept_and_those_of_killed_processes_are_removed() {
        if !rustix::process::geteuid().is_root() {
            skip("instances_in_use_are_kept_and_those_of_killed_processes_are_removed", "not root");
            return;
        }
        let work = tempfile::tempdir_in(".").unwrap();
        let (one, other) = (work.path().join("1"), work.path().join("2"));
        let first = BlockEvents::open(&one).unwrap();
        let left = first.instance.with_file_name(format!("{PREFIX}left-by-a-killed-process"));
        fs::create_dir(&left).unwrap();
        let second = BlockEvents::open(&other).unwrap();
        assert!(first.instance.is_dir() && second.instance.is_dir());
        assert!(!left.exists());
        let instances = [first.instance.clone(), second.instance.clone()];
        drop(first);
        assert!(instances[1].is_dir() && !instances[0].exists());
        drop(second);
    }
}
