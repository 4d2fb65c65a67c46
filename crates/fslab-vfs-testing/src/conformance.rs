//! The conformance suite: named cases for any file system, with one file per area.
//!
//! Each case has its own subject and runs in a new, empty directory, as root unless the case
//! chooses another user. A case that a subject can't pass must be allowed by name and with a
//! reason. It is then not run, and the report lists it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fslab_vfs::FileSystem;
use fslab_vfs::Ino;

use super::client::Client;

#[macro_use]
mod check;

mod acl;
mod attributes;
mod concurrency;
mod copy;
mod data;
mod directories;
mod files;
mod flags;
mod handles;
mod holes;
mod limits;
mod links;
mod names;
mod ownership;
mod rename;
mod times;
mod unnamed;
mod xattrs;

pub use check::{Outcome, Stop};

/// A guarantee of the trait and the code that checks it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// `area/what_holds`.
    pub name: &'static str,
    /// The part of a file system that the case tests.
    pub area: &'static str,
    /// Checks the guarantee in an empty directory.
    pub run: fn(&Client<'_>, Ino) -> Outcome,
}

/// The cases of each area.
const AREAS: &[&[Case]] = &[
    names::CASES,
    files::CASES,
    unnamed::CASES,
    data::CASES,
    holes::CASES,
    links::CASES,
    rename::CASES,
    directories::CASES,
    attributes::CASES,
    ownership::CASES,
    times::CASES,
    xattrs::CASES,
    acl::CASES,
    flags::CASES,
    handles::CASES,
    copy::CASES,
    limits::CASES,
    concurrency::CASES,
];

/// All cases, in order.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    AREAS.iter().copied().flatten()
}

/// A case that a subject can't pass (an exact name or `area/*`), and the reason.
pub type Allowed<'a> = (&'a str, &'a str);

/// The results of a run of the suite.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Names of the cases that passed.
    pub passed: Vec<&'static str>,
    /// Names of the allowed cases, which were not run, with the reasons.
    pub allowed: Vec<(&'static str, String)>,
    /// Names of the cases that detected that they can't run here, with the reasons.
    pub skipped: Vec<(&'static str, String)>,
    /// Names of the cases that failed, with the messages.
    pub failed: Vec<(String, String)>,
}

impl Report {
    /// Whether no case failed. With `FSLAB_REQUIRE_ALL=1`, a skipped case counts as failed unless
    /// it is allowed.
    #[must_use]
    pub fn is_success(&self) -> bool {
        let require_all = std::env::var_os("FSLAB_REQUIRE_ALL").is_some_and(|value| value == "1");
        self.failed.is_empty() && (self.skipped.is_empty() || !require_all)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, reason) in &self.allowed {
            writeln!(out, "allowed {name}: {reason}")?;
        }
        for (name, reason) in &self.skipped {
            writeln!(out, "SKIPPED {name}: {reason}")?;
        }
        for (name, message) in &self.failed {
            writeln!(out, "FAILED  {name}: {message}")?;
        }
        let (passed, allowed) = (self.passed.len(), self.allowed.len());
        let (skipped, failed) = (self.skipped.len(), self.failed.len());
        write!(out, "{passed} passed, {allowed} allowed, {skipped} skipped, {failed} failed")
    }
}

/// Runs every case, each on a new subject. `make` may return the same storage every time, because
/// each case works in its own directory and removes it.
pub fn run_all(make: &dyn Fn() -> Box<dyn FileSystem>, allow: &[Allowed<'_>]) -> Report {
    run_where(make, allow, &|_| true)
}

/// Runs the cases that `wanted` accepts, in the same way as [`run_all`]. Each failure is printed to
/// the standard error at once, because a later case may hang.
pub fn run_where(
    make: &dyn Fn() -> Box<dyn FileSystem>,
    allow: &[Allowed<'_>],
    wanted: &dyn Fn(&Case) -> bool,
) -> Report {
    let mut report = Report::default();
    refuse_unknown_names(allow, &mut report);
    for case in cases().filter(|case| wanted(case)) {
        if let Some((_, reason)) = allow.iter().find(|(pattern, _)| covers(pattern, case)) {
            report.allowed.push((case.name, (*reason).to_owned()));
            continue;
        }
        match run_one(case, &*make()) {
            Ok(()) => report.passed.push(case.name),
            Err(Stop::Unsupported { reason }) => report.skipped.push((case.name, reason)),
            Err(failure) => {
                eprintln!("FAILED {}: {failure}", case.name);
                report.failed.push((case.name.to_owned(), failure.to_string()));
            }
        }
    }
    report
}

fn covers(pattern: &str, case: &Case) -> bool {
    pattern == case.name || pattern.strip_suffix("/*") == Some(case.area)
}

/// Reports allowed names that match no case. A misspelt name would have no effect now, and could
/// allow a new case later.
fn refuse_unknown_names(allow: &[Allowed<'_>], report: &mut Report) {
    for (pattern, _) in allow {
        if !cases().any(|case| covers(pattern, case)) {
            report
                .failed
                .push(((*pattern).to_owned(), "is allowed, but there is no such case".to_owned()));
        }
    }
}

/// Runs one case in a new directory below the root and removes the directory. A panic is a failure.
///
/// # Errors
/// The message of the failed check, or the reason why the case can't run.
pub fn run_one(case: &Case, subject: &dyn FileSystem) -> Outcome {
    let answer = catch_unwind(AssertUnwindSafe(|| in_own_directory(case, subject)));
    answer.unwrap_or_else(|panic| Err(Stop::panicked(&*panic)))
}

fn in_own_directory(case: &Case, subject: &dyn FileSystem) -> Outcome {
    let client = Client::new(subject);
    let name = case.name.replace('/', ".");
    remove(&client, &name)?;
    let top = client.with_umask(0).mkdir_mode(Ino::ROOT, &name, 0o777)?.ino;
    (case.run)(&client, top)?;
    remove(&client, &name)?;
    match client.problems().first() {
        Some(problem) => Err(Stop::failed(problem.clone())),
        None => Ok(()),
    }
}

/// Removes a case's directory, which an earlier failed run may have left.
fn remove(client: &Client<'_>, name: &str) -> Outcome {
    if client.exists(Ino::ROOT, name)? {
        let directory = client.lookup(Ino::ROOT, name)?;
        client.clear(directory.ino)?;
        client.rmdir(Ino::ROOT, name)?;
    }
    Ok(())
}
