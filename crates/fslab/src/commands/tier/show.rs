//! Prints the events of a tier command, as text or as JSON.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use data_encoding::BASE64;
use fslab_tier::archive::{ArchiveUsage, Proof, Retained};
use fslab_tier::command::{
    ArchiveState, Command, Event, FileSummary, Plan, Residence, VersionCopy, WaitingProgram,
};
use serde::Serialize;

use super::access::Access;
use super::plan::{plan_lines, traffic_lines};
use super::prices::{Cost, Prices};
use crate::exit::Code;
use crate::output::{self, harmless};
use crate::progress::Progress;
use crate::units;

/// Maximum number of versions that are sorted together before they are printed. It limits the
/// memory.
const SORTED_MAX: usize = 65_536;

/// The amount of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Every event, as JSON.
    Json,
    /// A line for each file.
    Files,
    /// Totals over all files.
    Sums,
    /// Errors only.
    Errors,
}

impl Detail {
    /// Returns the detail that these options select.
    pub fn of(json: bool, verbose: bool, quiet: bool) -> Self {
        match (json, verbose, quiet) {
            (true, ..) => Self::Json,
            (_, true, _) => Self::Files,
            (_, _, true) => Self::Errors,
            _ => Self::Sums,
        }
    }

    /// Returns whether readable text is printed.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Files | Self::Sums)
    }
}

/// The name in events of the action that releases a file.
const RELEASED: &str = "released";

/// Runs a command and shows its events.
pub fn run(
    access: &Access,
    command: &Command,
    detail: Detail,
    prices: Option<Prices>,
) -> Result<()> {
    let mut shown = Shown { prices, ..Shown::new(detail, command) };
    if matches!(command, Command::Archives) && detail.is_text() {
        say!(
            "{}",
            archive_line([
                "archive", "state", "kind", "objects", "size", "free", "proof", "address",
            ])
        );
    }
    access.ask(command, &mut |event| shown.show(event))?;
    shown.progress.finish();
    if let Some(note) = nothing_in(command).filter(|_| shown.told == 0 && detail.is_text()) {
        say!("{note}");
    }
    if matches!(command, Command::DryRun { .. }) && detail.is_text() && shown.error.is_none() {
        say!("nothing was changed");
    }
    if matches!(command, Command::Release { .. }) && shown.has_released && detail.is_text() {
        say!(
            "Read released files through the mount. Without it they read as zeros, or as a text \
             that mentions the archive."
        );
    }
    shown.end()
}

/// Returns the note to print if a command produced no events.
fn nothing_in(command: &Command) -> Option<&'static str> {
    match command {
        Command::State { recursive: false, .. } => {
            Some("no files in this directory; use -r to include subdirectories")
        }
        Command::State { .. } => Some("no files in this directory or its subdirectories"),
        Command::Find { .. } | Command::Du { by: Some(_), .. } => Some("no such files"),
        Command::Queue => Some("no recall is waiting"),
        Command::Archive { .. } => Some("nothing to archive"),
        Command::Release { .. } => Some("nothing to release"),
        Command::Recall { .. } => Some("nothing to recall"),
        Command::UndeleteAll { .. } => Some("nothing to undelete"),
        Command::DryRun { of } => nothing_in(of),
        _ => None,
    }
}

/// An event with its cost, as JSON.
#[derive(Serialize)]
struct Priced<'a> {
    #[serde(flatten)]
    event: &'a Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<Cost>,
}

struct Shown {
    detail: Detail,
    prices: Option<Prices>,
    /// The plan, which is printed after the sums.
    plan: Option<Plan>,
    /// The archives whose traffic is printed at the end; `None` for commands that do not print it.
    archives: Option<Vec<ArchiveState>>,
    progress: Progress,
    /// Number of events, without counting a final event that reports no error.
    told: u64,
    problems: u64,
    /// Whether at least one file was released.
    has_released: bool,
    /// Files and bytes, by action.
    done: BTreeMap<String, (u64, u64)>,
    /// Versions that are not printed yet. The sort key is the path, then the time.
    versions: Vec<((String, i64), Event)>,
    /// The exit code and the error, if the command failed.
    error: Option<(Code, String)>,
}

impl Shown {
    fn new(detail: Detail, command: &Command) -> Self {
        let (is_quiet, done) = (detail != Detail::Sums || command.only_asks(), BTreeMap::new());
        let (progress, versions) = (Progress::new("done", is_quiet), Vec::new());
        Self {
            detail,
            prices: None,
            plan: None,
            archives: matches!(command, Command::Archives).then(Vec::new),
            progress,
            told: 0,
            problems: 0,
            has_released: false,
            done,
            versions,
            error: None,
        }
    }

    fn show(&mut self, event: Event) -> bool {
        self.count(&event);
        match event {
            Event::Version { ref path, since, .. } if self.detail != Detail::Json => {
                self.versions.push(((path.clone(), since), event));
                if self.versions.len() >= SORTED_MAX {
                    self.show_versions();
                }
            }
            Event::End { .. } if self.detail == Detail::Json => self.write(&self.ending()),
            Event::End { .. } => {
                self.show_versions();
                self.show_sums();
                self.show_traffic();
            }
            Event::Content { bytes, ref data, .. } if self.detail != Detail::Json => {
                return self.show_content(bytes, data.as_deref());
            }
            Event::Plan(plan) if self.detail != Detail::Json => self.plan = Some(plan),
            Event::Done { ref path, bytes, .. } if self.detail == Detail::Sums => {
                self.progress.add(Path::new(path), bytes);
            }
            event => {
                self.show_versions();
                self.write(&event);
                if let Event::Archive(state) = event {
                    self.archives.iter_mut().for_each(|archives| archives.push(state.clone()));
                }
            }
        }
        !output::has_failed()
    }

    fn count(&mut self, event: &Event) {
        match event {
            Event::Problem { .. } => self.problems += 1,
            Event::End { error: Some(error), code } => {
                let code = Some(Code::numbered(*code)).filter(|code| *code != Code::Success);
                self.error = Some((code.unwrap_or(Code::Failure), error.clone()));
            }
            Event::Total { .. } => self.done.clear(),
            Event::Done { what, bytes, .. } => {
                self.has_released |= what == RELEASED;
                let (files, all) = self.done.entry(what.clone()).or_default();
                (*files, *all) = (*files + 1, *all + bytes);
            }
            _ => {}
        }
        let is_counted = !matches!(&event, Event::Plan(_) | Event::End { error: None, .. });
        self.told += u64::from(is_counted);
    }

    fn write(&self, event: &Event) {
        let line = match self.detail {
            Detail::Json => {
                serde_json::to_string(&Priced { event, cost: self.cost_of(event) }).ok()
            }
            _ => as_line(event).map(|line| harmless(&line).into_owned()),
        };
        let Some(line) = line else { return };
        match event {
            Event::Problem { .. } if self.detail != Detail::Json => {
                self.progress.print(|| eprintln!("fslab: {line}"));
            }
            _ if self.detail == Detail::Errors => {}
            Event::Version { copies, .. } if self.detail == Detail::Files => {
                let copies: Vec<_> = copies.iter().map(copy_line).collect();
                self.progress.print(|| {
                    say!("{line}");
                    copies.iter().for_each(|copy| say!("    {copy}"));
                });
            }
            _ => self.progress.print(|| say!("{line}")),
        }
    }

    /// Prints the numbers of files and bytes of each action, unless the command reported its own
    /// totals.
    fn show_sums(&self) {
        for (what, (files, bytes)) in self.done.iter().filter(|_| self.detail.is_text()) {
            let files = units::counted(*files, "file");
            self.progress.print(|| say!("{what} {files}, {}", units::bytes(*bytes)));
        }
    }

    /// Prints the plan of a dry run, unless it plans nothing, and the traffic of archives.
    fn show_traffic(&self) {
        let prices = self.prices.as_ref();
        let plan = self.plan.as_ref().filter(|plan| plan.files > 0);
        let mut lines = plan.map(|plan| plan_lines(plan, prices)).unwrap_or_default();
        lines.extend(traffic_lines(self.archives.as_deref().unwrap_or_default(), prices));
        for line in lines.iter().filter(|_| self.detail.is_text()) {
            self.progress.print(|| say!("{}", harmless(line)));
        }
    }

    fn cost_of(&self, event: &Event) -> Option<Cost> {
        let prices = self.prices.as_ref()?;
        match event {
            Event::Plan(plan) => Some(prices.of_plan(plan)),
            Event::Archive(state) => Some(prices.of_archive(state)),
            _ => None,
        }
    }

    fn show_versions(&mut self) {
        let mut versions = std::mem::take(&mut self.versions);
        versions.sort_by(|(a, _), (b, _)| a.cmp(b));
        versions.iter().for_each(|(_, version)| self.write(version));
    }

    fn end(self) -> Result<()> {
        match self.outcome() {
            Some((code, message)) if !output::has_failed() => Err(code.error(message)),
            _ => Ok(()),
        }
    }

    fn outcome(&self) -> Option<(Code, String)> {
        let problems = match self.problems {
            0 => return self.error.clone(),
            1 => "one file could not be processed; see above".to_owned(),
            problems => format!("{problems} files could not be processed; see above"),
        };
        self.error.clone().or(Some((Code::Failure, problems)))
    }

    /// Writes a part of a version to standard output, unchanged. Returns whether more output can
    /// follow.
    fn show_content(&mut self, bytes: u64, data: Option<&str>) -> bool {
        match data.map(|data| BASE64.decode(data.as_bytes())) {
            Some(Ok(content)) if content.len() as u64 == bytes => output::write(&content),
            Some(_) => {
                let what = "the reply of the daemon is damaged".to_owned();
                self.error.get_or_insert((Code::Failure, what));
                return false;
            }
            None => {
                let zeros = vec![0; ZEROS.min(bytes) as usize];
                for offset in (0..bytes).step_by(ZEROS as usize) {
                    output::write(&zeros[..ZEROS.min(bytes - offset) as usize]);
                }
            }
        }
        !output::has_failed()
    }

    /// Returns the final event, which contains the result of the command.
    fn ending(&self) -> Event {
        let (code, error) = self.outcome().unzip();
        Event::End { error, code: code.unwrap_or(Code::Success) as u8 }
    }
}

/// Number of zeros that are written at once.
const ZEROS: u64 = 64 << 10;

/// Formats a time in seconds since 1970.
fn time(seconds: i64) -> String {
    let time = jiff::Timestamp::from_second(seconds);
    time.map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

/// Formats a copy of a version: how it was proved, and when it was last read.
fn copy_line(copy: &VersionCopy) -> String {
    let proof = match (copy.proof.as_deref(), copy.proved) {
        (Some(proof), Some(proved)) => format!("proved by {proof} at {}", time(proved)),
        _ => "proof unknown".to_owned(),
    };
    let read = copy.read.map_or_else(|| "never".to_owned(), time);
    format!("copy in {}: {proof}, last read: {read}", copy.archive)
}

/// Formats a recall that is not finished; `None` for any other event.
fn waiting_line(event: &Event) -> Option<String> {
    let Event::Waiting {
        path, block, class, user, waiters, by, begun, away, later, waited_ms, ..
    } = event
    else {
        return None;
    };
    let later = later.as_ref().filter(|_| *away);
    let state = match (begun, away, later) {
        (true, ..) => "reading",
        (false, true, Some(_)) => "staging",
        (false, true, None) => "unavailable",
        (false, false, _) => "queued",
    };
    let waited = units::duration(waited_ms * 1_000_000);
    let (by, later) =
        (waiting_programs(by), later.map(|later| format!(": {later}")).unwrap_or_default());
    Some(format!(
        "{class:<8} {state:<11} user {user:<6} {waiters} waiting {waited:>8}  block {block} of \
         {path}{by}{later}"
    ))
}

/// Formats an event as a readable line; `None` if nothing is printed for it.
fn as_line(event: &Event) -> Option<String> {
    Some(match event {
        Event::Done { what, path, bytes } => {
            format!("{what:<10} {:>10}  {path}", units::bytes(*bytes))
        }
        Event::Problem { what } => what.clone(),
        Event::State(state) => state_line(state),
        Event::Usage { path, files, bytes, resident_bytes, archived_bytes } => {
            format!("{}  {path}", usage(*files, [bytes, resident_bytes, archived_bytes]))
        }
        Event::GroupUsage { group, files, bytes, resident_bytes, archived_bytes } => {
            format!("{group:<20} {}", usage(*files, [bytes, resident_bytes, archived_bytes]))
        }
        Event::Waiting { .. } => waiting_line(event)?,
        Event::Version { object, path, bytes, state, since, modified, .. } => {
            let [when, modified] = [since, modified].map(|seconds| time(*seconds));
            let bytes = units::bytes(*bytes);
            format!("{object} {bytes:>10} of {modified}  {state:<8} {when}  {path}")
        }
        // The content of a version is not printed as lines.
        Event::Content { .. } => return None,
        Event::Archive(state) => {
            let ArchiveState { archive, address, attached, refusal, away, encrypted, .. } = state;
            let ArchiveState { usage, free_bytes, objects, bytes, proof, retained, .. } = state;
            let free = free_bytes.map_or_else(|| "-".to_owned(), units::bytes);
            let state = match (usage, attached, away, refusal) {
                (ArchiveUsage::Detached, ..) => "detached",
                (_, _, Some(_), _) => "unavailable",
                (_, false, ..) => "missing",
                (_, true, _, Some(_)) => "readonly",
                (ArchiveUsage::Retired, ..) => "retired",
                (ArchiveUsage::Active, true, _, None) => "attached",
            };
            let kind = if *encrypted { "encrypted" } else { "plain" };
            let (archive, objects, size) =
                (archive.to_string(), objects.to_string(), units::bytes(*bytes));
            let address = address.as_deref().unwrap_or("-");
            let proof = proof.map_or("-", Proof::name);
            let line =
                archive_line([&archive, state, kind, &objects, &size, &free, proof, address]);
            let problem = away.as_ref().or(refusal.as_ref()).cloned();
            let notes: Vec<_> =
                problem.into_iter().chain(retained.as_ref().map(retained_note)).collect();
            format!("{line} {}", notes.join("; ")).trim_end().to_owned()
        }
        Event::Progress { figures } => format!("so far: {}", figures_line(figures)),
        Event::Total { figures } => figures_line(figures),
        // `fslab tier export` writes these events to a data set.
        Event::Plan(_) | Event::Exported(_) | Event::End { .. } => return None,
    })
}

fn usage(files: u64, [all, resident, archived]: [&u64; 3]) -> String {
    let [all, resident, archived] = [all, resident, archived].map(|count| units::bytes(*count));
    format!("{}, {all}; resident {resident}, in archives {archived}", units::counted(files, "file"))
}

fn archive_line(columns: [&str; 8]) -> String {
    let [archive, state, kind, objects, size, free, proof, address] = columns;
    format!(
        "{archive:<32} {state:<11} {kind:<9} {objects:>8} {size:>10} {free:>10} {proof:<9}  \
         {address}"
    )
}

/// Describes the deleted objects that a store retains.
fn retained_note(retained: &Retained) -> String {
    let Retained { objects, bytes, is_partial, reason } = retained;
    let least = if *is_partial { "at least " } else { "" };
    let (objects, bytes) = (units::counted(*objects, "deleted object"), units::bytes(*bytes));
    format!("retains {least}{objects}, {bytes}: {reason}")
}

fn figures_line(figures: &[(String, u64)]) -> String {
    let words = figures.iter().map(|(name, value)| match name.strip_suffix("_bytes") {
        Some(name) => format!("{name} {}", units::bytes(*value)),
        None => format!("{} {value}", name.replace('_', " ")),
    });
    words.collect::<Vec<_>>().join(", ")
}

fn waiting_programs(by: &[WaitingProgram]) -> String {
    let named = by.iter().map(|WaitingProgram { user, pid, program }| {
        let program = program.as_deref().unwrap_or("process");
        format!("{program} {pid} of user {user}")
    });
    let named = named.collect::<Vec<_>>().join(", ");
    if named.is_empty() { named } else { format!("  for {named}") }
}

/// Formats a file's state. The line begins with a letter, as in the `ls` of DMFS: `a` for archived
/// and resident, `A` for offline, `p` for partly resident, `c` for changed since it was archived,
/// `-` for never archived, and `!` for damaged.
fn state_line(state: &FileSummary) -> String {
    let letter = match state.state {
        Residence::Offline => 'A',
        Residence::PartlyResident => 'p',
        Residence::Archived => 'a',
        Residence::Changed => 'c',
        Residence::Damaged => '!',
        Residence::Resident => '-',
    };
    format!(
        "{letter} {:<15} {:>10} of {:>10} here  copies {}  {}{}",
        state.state.name(),
        units::bytes(state.resident_bytes),
        units::bytes(state.bytes),
        state.copies.len(),
        if state.pinned { "pinned  " } else { "" },
        state.path
    )
}
