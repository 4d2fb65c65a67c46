//! `fault`: a file system with injected faults.
//!
//! A script has one rule per line; rules are applied from the first to the last:
//!
//! ```text
//! OPERATIONS [on PATTERN] [CONDITION...] ACTION        # comment
//! ```
//!
//! `OPERATIONS` are method names of [`FileSystem`], joined by `|`, or a group: `any`, `sync`
//! (fsync, fsyncdir, syncfs), `change` (all operations that modify something). A `PATTERN` is
//! matched against the last name of a path. If it begins with `/`, it is matched against the whole
//! path from the root of the layer. `*` matches anything within a name, `**` anything. A call with
//! two paths (rename, link, copy_file_range) matches if one of them does.
//!
//! | condition | matching calls that it selects |
//! |---|---|
//! | `nth N`, `N..M`, `N..`, `..M` | those with these numbers, counted from 1 |
//! | `every N` | every N-th |
//! | `chance P%` | each with this probability, from the seed |
//! | `times N` | the first N that meet the other conditions |
//!
//! | action | effect |
//! |---|---|
//! | `error NAME` | fails without performing the call (`release` and `releasedir` are performed) |
//! | `late NAME` | performs the call, then fails |
//! | `skip` | returns success without performing the call; for writes and calls without result |
//! | `delay TIME`, `delay TIME..TIME` | waits first; ends with EINTR when the caller gives up |
//! | `short SIZE` | reads, writes or copies at most this many bytes |
//! | `flip N` | flips a bit in each of N bytes of the data read or to be written |
//! | `flip at OFFSET` | flips the lowest bit of this byte of the file in each read or write |
//! | `full SIZE` | accepts this many bytes in total, including overwrites, then fails with ENOSPC |
//!
//! Example: the third fsync of a log fails, reads take 5 ms longer, and one write in a thousand
//! below `/data` stores a wrong bit.
//!
//! ```text
//! fsync on *.wal nth 3                error EIO
//! read                                delay 5ms
//! write on /data/** chance 0.1%       flip 1
//! ```
//!
//! The same script, seed and order of calls give the same faults. A read that the kernel answers
//! from its caches is not a call. A rule for reads therefore makes the kernel drop its cached pages
//! at each open, and a rule for reads or writes disables passthrough. Pages that the kernel caches
//! after the open are still read without a call.

use std::sync::Arc;
use std::time::Duration;

use fslab_vfs::{
    Answer, Call, Cancellation, Errno, FileSystem, InodePaths, Intercepted, Interceptor, Named,
    Opened, RenameMode, Reply, Request, Result,
};
use parking_lot::RwLock;

use crate::error::Error;
use crate::layer_spec::{LayerKind, LayerSpec};
use crate::observe::operation::Operation;
use crate::options::{OptionSpec, Options, ValueKind};
use crate::stability::Stability;
use crate::stack_context::StackContext;

mod program;
mod rule;
pub(crate) mod rule_problem;
mod script;

pub use program::{Program, RuleCount};
use program::{Transfer, Verdict};
pub use rule_problem::RuleProblem;

/// The name of the layer.
pub(crate) const NAME: &str = "fault";

pub(crate) const SPEC: LayerSpec = LayerSpec {
    name: NAME,
    help: "injects errors, delays and damage according to a script",
    kind: LayerKind::Observer,
    stability: Stability::Beta,
    options: &[
        OptionSpec {
            name: "script",
            help: "file with one rule per line: OPERATIONS [on PATTERN] [CONDITION...] ACTION",
            default: "",
            value: ValueKind::Path,
        },
        OptionSpec {
            name: "rules",
            help: "rules separated by ';', added to those of the script",
            default: "",
            value: ValueKind::Text,
        },
        OptionSpec {
            name: "seed",
            help: "seed of the script's random choices",
            default: "0",
            value: ValueKind::Count { least: 0, most: u64::MAX },
        },
    ],
    build,
};

fn build(
    inner: Arc<dyn FileSystem>,
    options: &Options,
    _: &StackContext,
) -> crate::Result<Arc<dyn FileSystem>> {
    let mut program = Program::default().with_seed(options.number("seed"));
    if let Some(path) = options.path("script") {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::UnreadableFile { path: path.to_owned(), source })?;
        program.append(&path.display().to_string(), text.lines())?;
    }
    program.append("fault:rules", options.text("rules").split(';'))?;
    Ok(Arc::new(Fault::new(inner, program, Box::new(pause))))
}

/// Waits for the time of a delay.
///
/// # Errors
/// `EINTR` if the caller gives up during the wait.
pub type Wait = dyn Fn(Duration, &Cancellation) -> std::result::Result<(), Errno> + Send + Sync;

fn pause(duration: Duration, cancellation: &Cancellation) -> std::result::Result<(), Errno> {
    let passed = fslab_sys::pause::pause(duration, &|| cancellation.is_cancelled());
    if passed { Ok(()) } else { Err(Errno::INTR) }
}

/// The layer `fault`. The module documentation describes its scripts.
pub struct Fault(Intercepted<Faults>);

/// Injects the faults of a program into the operations of a file system.
struct Faults {
    program: RwLock<Arc<Program>>,
    paths: RwLock<InodePaths>,
    wait: Box<Wait>,
}

impl Fault {
    /// Puts a layer with the faults of a program over a file system.
    #[must_use]
    pub fn new(inner: Arc<dyn FileSystem>, program: Program, wait: Box<Wait>) -> Self {
        let program = RwLock::new(Arc::new(program));
        let interceptor = Faults { program, paths: RwLock::default(), wait };
        Self(Intercepted { inner, interceptor })
    }

    /// Replaces the program. Calls in progress end under the old program. Files that are already
    /// open with passthrough keep it.
    pub fn replace(&self, program: Program) {
        *self.0.interceptor.program.write() = Arc::new(program);
    }

    /// The counters of all rules so far.
    #[must_use]
    pub fn counts(&self) -> Vec<RuleCount> {
        self.0.interceptor.program.read().counts()
    }
}

impl FileSystem for Fault {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.0)
    }
}

impl Interceptor for Faults {
    fn around<T: Reply>(
        &self,
        inner: &dyn FileSystem,
        request: Option<&Request>,
        call: Call<'_>,
        perform: impl FnOnce(&Call<'_>) -> Result<T>,
    ) -> Result<T> {
        if let Call::Forget { ino, lookups } = call {
            // The lower file system may reuse the inode's number as soon as it is forgotten.
            self.paths.write().forget(ino, lookups);
        }
        let (Some(request), Some(verdict)) = (request, self.judge(&call)) else {
            let answer = perform(&call)?;
            self.learn(&call, answer.seen(&call));
            return Ok(answer);
        };
        self.strike(inner, request, call, verdict, perform)
    }

    /// Turns off passthrough, the kept page cache and skipped flushes of a newly opened file if
    /// they would hide calls from the rules.
    fn opened(&self, opened: &mut Opened) {
        let program = self.program.read();
        if program.watches(Operation::Read) || program.watches(Operation::Write) {
            opened.backing = None;
        }
        // A cached page does not show a fault of the write that filled it.
        let is_faulty = program.watches(Operation::Read) || program.watches(Operation::Write);
        opened.keep_cache &= !is_faulty;
        opened.no_flush &= !program.watches(Operation::Flush);
    }
}

impl Faults {
    /// The effect of the program on a call; `None` if no rule matches the operation.
    fn judge(&self, call: &Call<'_>) -> Option<Verdict> {
        let operation = call.operation();
        let program = {
            let program = self.program.read();
            program.watches(operation).then(|| Arc::clone(&program))?
        };
        let path = |named| match named {
            Named::Inode(ino) => self.paths.read().of(ino),
            Named::Entry(parent, name) => self.paths.read().within((parent, name)),
        };
        let paths = || call.named().into_iter().flatten().filter_map(path).collect();
        Some(program.judge(Transfer::of(call), &paths))
    }

    /// Performs a call as modified by a verdict.
    fn strike<T: Reply>(
        &self,
        inner: &dyn FileSystem,
        request: &Request,
        call: Call<'_>,
        mut verdict: Verdict,
        perform: impl FnOnce(&Call<'_>) -> Result<T>,
    ) -> Result<T> {
        // Calls that release a handle are always performed, because a leaked handle would keep the
        // lower file open.
        let frees = matches!(call, Call::Release { .. } | Call::Releasedir { .. });
        let begun = match self.begin(&verdict, request) {
            Err(error) if !frees => return Err(error),
            begun => begun,
        };
        let stored;
        let mut call = call;
        match &mut call {
            Call::Read { size, .. } => *size = verdict.limited(*size),
            Call::CopyFileRange { length, .. } => *length = verdict.limit.min(*length),
            Call::Write { offset, data, .. } => {
                stored = verdict.spoiled(*offset, &data[..verdict.limited(data.len())]);
                *data = &stored;
            }
            Call::Setxattr { value, .. } => {
                stored = verdict.spoiled(0, value);
                *value = &stored;
            }
            _ => {}
        }
        let skipped = if verdict.skip { T::skipped(&call) } else { None };
        let is_done = skipped.is_none();
        let answer = skipped.map_or_else(|| perform(&call), Ok);
        verdict.settle(answer.as_ref().map_or(0, |answer| match answer.seen(&call) {
            Answer::Moved(bytes) => bytes,
            _ => Transfer::of(&call).length,
        }));
        let mut answer = answer?;
        if is_done {
            self.learn(&call, answer.seen(&call));
        }
        begun?;
        verdict
            .spoil(if let Call::Read { offset, .. } = call { offset } else { 0 }, answer.bytes());
        let Some(errno) = verdict.late else { return Ok(answer) };
        let answer = answer.seen(&call);
        if let Answer::Created(entry, _) | Answer::Entry(entry) = answer {
            self.paths.write().forget(entry.attr.ino, 1);
        }
        answer.take_back(inner, request, &call);
        Err(errno.into())
    }

    /// Waits for the delay of a verdict and returns its error, if it has one. The caller applies
    /// the other effects of the verdict while it performs the call.
    fn begin(&self, verdict: &Verdict, request: &Request) -> Result<()> {
        let waited = match verdict.delay {
            Duration::ZERO => Ok(()),
            delay => (self.wait)(delay, &request.cancellation),
        };
        let begun = waited.and(verdict.error.map_or(Ok(()), Err));
        if begun.is_err() {
            verdict.settle(0);
        }
        Ok(begun?)
    }

    /// Updates the paths of inodes after a successful call.
    fn learn(&self, call: &Call<'_>, answer: Answer<'_>) {
        match (*call, answer) {
            (Call::Unlink { parent, name } | Call::Rmdir { parent, name }, _) => {
                self.paths.write().removed((parent, name.as_os_str()));
            }
            (Call::Rename { parent, name, new_parent, new_name, mode }, _) => {
                let is_exchange = mode.contains(RenameMode::EXCHANGE);
                let (from, to) = ((parent, name.as_os_str()), (new_parent, new_name.as_os_str()));
                self.paths.write().renamed(from, to, is_exchange);
            }
            (_, Answer::Entry(entry) | Answer::Created(entry, _)) => {
                let place = call.named().into_iter().flatten().find_map(|named| match named {
                    Named::Entry(parent, name) => Some((parent, name)),
                    Named::Inode(_) => None,
                });
                self.paths.write().learn(entry.attr.ino, place);
            }
            _ => {}
        }
    }
}
