//! `fault`: a file system that fails as its script says.
//!
//! A script has one rule a line, read from the first to the last:
//!
//! ```text
//! OPERATIONS [on PATTERN] [CONDITION...] ACTION        # comment
//! ```
//!
//! `OPERATIONS` are method names of [`FileSystem`], joined by `|`, or a group: `any`, `sync`
//! (fsync, fsyncdir, syncfs), `change` (all that change something). A `PATTERN` is about the last
//! name of a path, or, when it begins with `/`, about the whole path from the root of the layer;
//! `*` stands for anything within a name, `**` for anything. A call that names two paths (rename,
//! link, copy_file_range) is matched by either.
//!
//! | condition | strikes, of the calls that operations and pattern are about, |
//! |---|---|
//! | `nth N`, `N..M`, `N..`, `..M` | those with these numbers, from 1 |
//! | `every N` | each N-th |
//! | `chance P%` | each with this probability, drawn from the seed |
//! | `times N` | the first N that the other conditions leave |
//!
//! | action | does |
//! |---|---|
//! | `error NAME` | fails; nothing is done (what is released is released all the same) |
//! | `late NAME` | is done, then fails |
//! | `skip` | does nothing and answers success; for what answers nothing, and for writes |
//! | `delay TIME`, `delay TIME..TIME` | waits first; ends with EINTR when the caller gives up |
//! | `short SIZE` | reads, writes or copies at most so many bytes |
//! | `flip N` | flips a bit in each of N bytes, of what is read, or of what is then written |
//! | `flip at OFFSET` | flips the lowest bit of that byte of the file whenever it passes |
//! | `full SIZE` | takes so many bytes in all, however often they are overwritten, then ENOSPC |
//!
//! Example: the third fsync of a log fails, reads take 5 ms more, and one write in a thousand
//! below `/data` stores a wrong bit.
//!
//! ```text
//! fsync on *.wal nth 3                error EIO
//! read                                delay 5ms
//! write on /data/** chance 0.1%       flip 1
//! ```
//!
//! The same script, seed and order of calls give the same faults. What the kernel answers from its
//! caches is no call: a rule about reads makes it forget its pages at each open, a rule about reads
//! or writes takes passthrough away, and still, what was read once is not read again.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use fslab_vfs::{Cancellation, Entry, Errno, FileSystem, Ino, Opened, Request, Result};
use parking_lot::RwLock;

use crate::error::Error;
use crate::layer_spec::{LayerKind, LayerSpec};
use crate::observe::operation::Operation;
use crate::options::{OptionSpec, Options, ValueKind};
use crate::stack_context::Surroundings;

mod operations;
mod paths;
mod program;
mod rule;
pub(crate) mod rule_problem;
mod script;

use paths::Paths;
use program::{Call, Verdict};
pub use program::{Program, RuleCount};
pub use rule_problem::RuleProblem;

pub(crate) const SPEC: LayerSpec = LayerSpec {
    name: "fault",
    help: "fails, waits and damages as a script says",
    kind: LayerKind::Observer,
    caution: None,
    options: &[
        OptionSpec {
            name: "script",
            help: "file of rules, one a line: OPERATIONS [on PATTERN] [CONDITION...] ACTION",
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
            help: "chooses what the script leaves to chance",
            default: "0",
            value: ValueKind::Count { least: 0, most: u64::MAX },
        },
    ],
    build,
};

fn build(
    inner: Arc<dyn FileSystem>,
    options: &Options,
    _: &Surroundings,
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

/// Lets the time of a delay pass.
///
/// # Errors
/// `EINTR` when the caller gave up meanwhile.
pub type Wait = dyn Fn(Duration, &Cancellation) -> std::result::Result<(), Errno> + Send + Sync;

fn pause(duration: Duration, cancellation: &Cancellation) -> std::result::Result<(), Errno> {
    let passed = fslab_sys::pause::pause(duration, &|| cancellation.is_cancelled());
    if passed { Ok(()) } else { Err(Errno::INTR) }
}

/// The layer. See the module's description for what a program can do.
pub struct Fault {
    inner: Arc<dyn FileSystem>,
    program: RwLock<Arc<Program>>,
    paths: Paths,
    wait: Box<Wait>,
}

impl Fault {
    /// Puts a program of faults over a file system.
    #[must_use]
    pub fn new(inner: Arc<dyn FileSystem>, program: Program, wait: Box<Wait>) -> Self {
        let program = RwLock::new(Arc::new(program));
        Self { inner, program, paths: Paths::default(), wait }
    }

    /// Puts another program in place; calls that are under way end by the old one, and files that
    /// are open keep the passthrough that they have.
    pub fn replace(&self, program: Program) {
        *self.program.write() = Arc::new(program);
    }

    /// How often each rule was met so far.
    #[must_use]
    pub fn counts(&self) -> Vec<RuleCount> {
        self.program.read().counts()
    }

    /// What the program says about a call; `None` where it says nothing.
    fn judge(&self, call: Call, named: &[Named<'_>]) -> Option<Verdict> {
        let program = {
            let program = self.program.read();
            program.watches(call.operation).then(|| Arc::clone(&program))?
        };
        let path = |named: &Named<'_>| match named {
            Named::Inode(ino) => self.paths.of(*ino),
            Named::Entry(parent, name) => self.paths.within(*parent, name),
        };
        Some(program.judge(call, &|| named.iter().filter_map(path).collect()))
    }

    /// Waits and fails as the verdict says; what is left of it concerns the call itself.
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

    /// Does a call that moves no bytes. `undo` takes back an answer that the caller will not get.
    fn around<T>(
        &self,
        request: &Request,
        operation: Operation,
        named: &[Named<'_>],
        work: impl FnOnce() -> Result<T>,
        undo: impl FnOnce(&T),
    ) -> Result<T> {
        let call = Call { operation, length: 0, divisible: false };
        let Some(verdict) = self.judge(call, named) else { return work() };
        self.begin(&verdict, request)?;
        let answer = work()?;
        let Some(errno) = verdict.late else { return Ok(answer) };
        undo(&answer);
        Err(errno.into())
    }

    /// Does a call that answers nothing, and that may be skipped.
    fn around_change(
        &self,
        request: &Request,
        operation: Operation,
        named: &[Named<'_>],
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let call = Call { operation, length: 0, divisible: false };
        let Some(verdict) = self.judge(call, named) else { return work() };
        self.begin(&verdict, request)?;
        if !verdict.skip {
            work()?;
        }
        Ok(verdict.late.map_or(Ok(()), Err)?)
    }

    /// Does a call that frees something: it is done in any case.
    fn around_release(
        &self,
        request: &Request,
        operation: Operation,
        ino: Ino,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let call = Call { operation, length: 0, divisible: false };
        let Some(verdict) = self.judge(call, &[Named::Inode(ino)]) else { return work() };
        let begun = self.begin(&verdict, request);
        work().and(begun)?;
        Ok(verdict.late.map_or(Ok(()), Err)?)
    }

    /// Does a call that answers an inode by a name.
    fn around_entry(
        &self,
        request: &Request,
        operation: Operation,
        (parent, name): (Ino, &OsStr),
        work: impl FnOnce() -> Result<Entry>,
    ) -> Result<Entry> {
        let named = [Named::Entry(parent, name)];
        let entry = self.around(request, operation, &named, work, |entry| {
            self.inner.forget(entry.attr.ino, 1);
        })?;
        self.paths.learn(entry.attr.ino, Some((parent, name)));
        Ok(entry)
    }

    /// What is promised about an open file, less what would hide calls from the program.
    fn opened(&self, mut opened: Opened) -> Opened {
        let program = self.program.read();
        if program.watches(Operation::Read) || program.watches(Operation::Write) {
            opened.backing = None;
        }
        opened.keep_cache &= !program.watches(Operation::Read);
        opened.no_flush &= !program.watches(Operation::Flush);
        opened
    }

    /// Finds out which inode a name stands for after it was moved.
    fn follow(&self, request: &Request, parent: Ino, name: fslab_vfs::Name<'_>) {
        // Where the name is gone again, whoever took it tells.
        if let Ok(entry) = self.inner.lookup(request, parent, name) {
            self.paths.renamed(entry.attr.ino, parent, name.as_os_str());
            self.inner.forget(entry.attr.ino, 1);
        }
    }
}

/// A path that a call names.
#[derive(Clone, Copy)]
enum Named<'a> {
    Inode(Ino),
    Entry(Ino, &'a OsStr),
}
