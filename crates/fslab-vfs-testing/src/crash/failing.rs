//! A lower file system on which one modifying call fails, or that call and all later ones. Such
//! failures occur on a full or failing disk, or when a quota is exhausted.

use std::sync::Arc;

use fslab_vfs::{Errno, FileSystem, Ino, OpenMode, Request, Result};
use parking_lot::Mutex;

use super::history::{are_bytes_of, is_size_of};
use super::overtaking::{Bug, Call, Verdict};

/// Selects the failing calls. Only modifying calls are counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failure {
    /// The error of the failing calls. `None` plants a bug: the calls return success without being
    /// performed.
    pub errno: Option<Errno>,
    /// The number of the first failing call, counted from 0.
    pub first: u64,
    /// The behaviour after the first failure.
    pub then: Then,
}

/// The behaviour after the first failure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Then {
    /// The script stops after the failed step, and the code under test is abandoned, as if killed.
    Ends,
    /// The script continues, and nothing else fails.
    Heals,
    /// All further changes fail too.
    Stays,
}

#[derive(Debug, Default)]
struct Plan {
    failure: Option<Failure>,
    /// The number of modifying calls so far.
    calls: u64,
    /// The kind of the first failed call.
    failed: Option<&'static str>,
}

/// A lower file system with a [`Failure`].
#[derive(Clone, Debug, Default)]
pub struct Fails(Arc<Mutex<Plan>>);

impl Fails {
    /// Starts to count calls, and to fail them.
    pub fn begin(&self, failure: Failure) {
        *self.0.lock() = Plan { failure: Some(failure), ..Plan::default() };
    }

    /// Makes all further modifying calls fail.
    pub fn kill(&self) {
        let mut plan = self.0.lock();
        let failure = plan.failure.map(|failure| Failure { then: Then::Stays, ..failure });
        plan.failure = failure;
    }

    /// Returns the kind of the first failed call.
    #[must_use]
    pub fn failed(&self) -> Option<&'static str> {
        self.0.lock().failed
    }

    /// Ends all failures.
    pub fn heal(&self) {
        self.0.lock().failure = None;
    }

    /// Counts a modifying call of the kind `what`, and decides whether it is performed.
    ///
    /// # Errors
    /// The error of the [`Failure`], if this call fails.
    pub fn decide(&self, what: &'static str) -> Result<Verdict> {
        let mut plan = self.0.lock();
        let Some(failure) = plan.failure else { return Ok(Verdict::Do) };
        plan.calls += 1;
        let number = plan.calls - 1;
        if number == failure.first || (failure.then == Then::Stays && number > failure.first) {
            plan.failed.get_or_insert(what);
            return failure.errno.map_or(Ok(Verdict::Skip), |errno| Err(errno.into()));
        }
        Ok(Verdict::Do)
    }
}

impl Bug for Fails {
    fn before(&self, _: &dyn FileSystem, _: &Request, _: Ino, call: &Call<'_>) -> Result<Verdict> {
        change(call).map_or(Ok(Verdict::Do), |what| self.decide(what))
    }
}

/// Returns the kind of change that a call makes, if any.
fn change(call: &Call<'_>) -> Option<&'static str> {
    match call {
        Call::Sync { .. } => Some("fsync"),
        Call::Write { .. } => Some("write"),
        Call::SetXattr { .. } => Some("setxattr"),
        Call::SetAttr { size: Some(_) } => Some("setattr of the size"),
        Call::SetAttr { size: None } => Some("setattr"),
        Call::Fallocate => Some("fallocate"),
        Call::Open { mode } => mode.contains(OpenMode::TRUNCATE).then_some("open and truncate"),
        Call::SyncFs => Some("syncfs"),
        Call::Read | Call::Release | Call::StatFs => None,
    }
}

/// The contents that a file may have after failed changes.
#[derive(Clone, Debug)]
pub struct Allowed {
    /// A byte of the file is allowed if at least one version has the same byte at the same offset.
    versions: Vec<Vec<u8>>,
}

impl Allowed {
    /// Allows only these contents.
    #[must_use]
    pub fn of(contents: Vec<u8>) -> Self {
        Self { versions: vec![contents] }
    }

    /// Records a change. A failed change may have been made, completely or in part.
    pub fn change(&mut self, is_done: bool, change: &dyn Fn(&mut Vec<u8>)) {
        if is_done {
            self.versions.iter_mut().for_each(change);
        } else {
            let mut begun = self.versions[self.versions.len() - 1].clone();
            change(&mut begun);
            self.versions.push(begun);
        }
    }

    fn versions(&self) -> Vec<&[u8]> {
        self.versions.iter().map(Vec::as_slice).collect()
    }

    /// Checks bytes that were read at an offset.
    ///
    /// # Errors
    /// The first byte that is not allowed.
    pub fn check_part(&self, found: &[u8], start: u64) -> std::result::Result<(), String> {
        are_bytes_of(found, start as usize, &self.versions())
    }

    /// Checks the contents of the whole file.
    ///
    /// # Errors
    /// The error of reading; a size or the first byte that is not allowed.
    pub fn check(&self, found: Result<Vec<u8>>) -> std::result::Result<(), String> {
        let found = found.map_err(|error| error.to_string())?;
        is_size_of(found.len(), &self.versions())?;
        self.check_part(&found, 0)
    }
}

/// Makes each call of a script fail in turn, and returns its kind and the problems found. `run`
/// receives the number of the call to fail. It returns the same two values, with `None` as the kind
/// if the script has fewer calls.
pub fn sweep(
    run: impl Fn(u64) -> (Option<&'static str>, Vec<String>),
) -> Vec<(&'static str, Vec<String>)> {
    (0..).map(run).map_while(|(failed, wrong)| Some((failed?, wrong))).collect()
}
