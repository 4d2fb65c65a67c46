//! Worker processes. Each runs this program again and does one part of a workload on a mounted
//! target.
//!
//! The caller passes a task as JSON in an argument. The worker prepares, prints `ready`, waits for
//! a line on its standard input, works and prints its measurements. These messages follow a mark,
//! so that other output of the program is ignored. Processor time is counted from the start signal,
//! so that loading the program is not measured.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use fslab_sys::usage::{ProcessorTime, Who};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::tree::HostTree;
use crate::workload::random_access::Accesses;
use fslab_stats::{Directions, Stopwatch, nanoseconds};

/// The mark before each message to the caller.
const MARK: &str = "fslab-worker ";

/// The task of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    /// The target's directory.
    pub root: PathBuf,
    /// The accesses that this worker makes.
    pub accesses: Accesses,
}

/// A message from a worker.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    /// The worker waits for the start signal.
    Ready,
    /// The worker has finished and sends its measurements.
    Done { reads: Told, writes: Told, user_ns: u64, system_ns: u64 },
    /// The worker has failed with this error.
    Failed(String),
}

/// Durations of the reads or of the writes: the longest in nanoseconds, and the histogram.
type Told = (u64, Vec<(u64, u64)>);

/// Runs a worker process: does the work of `task` and writes messages to `output`.
///
/// # Errors
/// Fails if the task does not parse, or communication with the caller fails. Errors of the work
/// itself are sent to the caller.
pub fn run(task: &str, input: &mut dyn BufRead, output: &mut dyn Write) -> Result<()> {
    let task: Task = serde_json::from_str(task).map_err(Error::WorkerMessage)?;
    say(output, &Message::Ready)?;
    let mut line = String::new();
    let read = input.read_line(&mut line).map_err(gone)?;
    // The caller exited without sending the start signal.
    if read == 0 {
        return Ok(());
    }
    let before = ProcessorTime::of(Who::Process);
    let worked = HostTree::open(&task.root).and_then(|tree| task.accesses.run(&tree, || Ok(())));
    let time = ProcessorTime::of(Who::Process) - before;
    let message = match worked {
        Ok(done) => Message::Done {
            reads: done.reads.into_buckets(),
            writes: done.writes.into_buckets(),
            user_ns: nanoseconds(time.user),
            system_ns: nanoseconds(time.system),
        },
        Err(error) => Message::Failed(error.to_string()),
    };
    say(output, &message)
}

/// A worker process that is ready; killed when dropped.
pub(crate) struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a worker process and waits until it is ready.
    pub fn start(command: &[OsString], task: &Task) -> Result<Self> {
        let (program, arguments) = command.split_first().ok_or(Error::NoWorkers)?;
        let task = serde_json::to_string(task).map_err(Error::Encode)?;
        let mut child = Command::new(program)
            .args(arguments)
            .arg(task)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|source| Error::Start {
                program: program.to_string_lossy().into_owned(),
                source,
            })?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or(Error::NoWorkers)?;
        let mut worker = Self { child, input, output: BufReader::new(output) };
        match worker.hear()? {
            Message::Ready => Ok(worker),
            other => Err(Error::Worker { message: format!("{other:?}") }),
        }
    }

    /// Sends the start signal.
    pub fn go(&mut self) -> Result<()> {
        let Some(input) = &mut self.input else { return Ok(()) };
        input.write_all(b"go\n").map_err(gone)
    }

    /// Waits for the result: durations of operations, and user and system processor time.
    pub fn result(&mut self) -> Result<(Directions, Duration, Duration)> {
        match self.hear()? {
            Message::Done { reads, writes, user_ns, system_ns } => {
                let time = Duration::from_nanos;
                let told = |(longest, buckets): Told| Stopwatch::from_buckets(longest, &buckets);
                let done = Directions::of(told(reads), told(writes));
                Ok((done, time(user_ns), time(system_ns)))
            }
            Message::Failed(message) => Err(Error::Worker { message }),
            Message::Ready => Err(Error::Worker { message: "it sent `ready` twice".to_owned() }),
        }
    }

    fn hear(&mut self) -> Result<Message> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).map_err(gone)? == 0 {
                return Err(Error::Worker { message: "it exited without a message".to_owned() });
            }
            // If the worker is a test program, it prints text of its own first, without ending the
            // line.
            if let Some((_, message)) = line.split_once(MARK) {
                return serde_json::from_str(message).map_err(Error::WorkerMessage);
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A waiting worker exits when its input is closed. A worker that is doing its task does not
        // read its input, so it is killed.
        drop(self.input.take());
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait().map(|_| ())) {
            tracing::warn!("can't stop a worker process: {error}");
        }
    }
}

fn say(output: &mut dyn Write, message: &Message) -> Result<()> {
    let message = serde_json::to_string(message).map_err(Error::Encode)?;
    writeln!(output, "{MARK}{message}").and_then(|()| output.flush()).map_err(gone)
}

fn gone(source: std::io::Error) -> Error {
    Error::Worker { message: source.to_string() }
}
