//! The events that a command reports to users, one a line, and functions to report them.

use serde::{Deserialize, Serialize};

use crate::archive::ArchiveUsage;
use crate::error::{Error, Result, shown};
use crate::id::Id;

/// An event that is shown to users as one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// An action on a file that was done.
    Done {
        /// The action.
        what: String,
        /// The file.
        path: String,
        /// The number of bytes concerned.
        bytes: u64,
    },
    /// A failure.
    Problem {
        /// The failed action, and the reason.
        what: String,
    },
    /// The residency of a file.
    State(FileSummary),
    /// The numbers of resident and archived bytes.
    Usage {
        /// The file or directory.
        path: String,
        /// Regular files.
        files: u64,
        /// Bytes of the regular files.
        bytes: u64,
        /// Number of resident bytes among these.
        resident_bytes: u64,
        /// Number of archived bytes among these.
        archived_bytes: u64,
    },
    /// A recall that is waiting.
    Waiting {
        /// The file.
        path: String,
        /// The block.
        block: u64,
        /// How urgent it is.
        class: String,
        /// The user who requested it.
        user: u32,
        /// The number of programs that wait for it.
        waiters: u64,
        /// The first of the waiting programs.
        by: Vec<WaitingProgram>,
        /// Whether it is being read.
        begun: bool,
        /// Whether it waits for an unavailable archive.
        away: bool,
        /// How long it has been waiting, in milliseconds.
        waited_ms: u64,
    },
    /// A version of a file that can be restored.
    Version {
        /// The object.
        object: String,
        /// The path of the file.
        path: String,
        /// Its bytes.
        bytes: u64,
        /// `live`, `replaced`, `removed` or `pending`.
        state: String,
        /// The time when it got this state, in seconds since 1970.
        since: i64,
        /// The time when its contents were last changed, in seconds since 1970.
        modified: i64,
    },
    /// An archive of the tier.
    Archive(ArchiveState),
    /// Figures so far, during a long command.
    Progress {
        /// Name and value, in order.
        figures: Vec<(String, u64)>,
    },
    /// Figures at the end.
    Total {
        /// Name and value, in order.
        figures: Vec<(String, u64)>,
    },
    /// The end of a command; no event follows.
    End {
        /// The reason if it failed.
        error: Option<String>,
        /// The exit code of `fslab tier`.
        code: u8,
    },
}

/// The state of an archive of the tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveState {
    /// Its identity.
    pub archive: Id,
    /// Its URL, if the tier's home lists it.
    pub address: Option<String>,
    /// Whether it can be used.
    pub attached: bool,
    /// The reason why it is read-only, if another tree writes to it.
    pub refusal: Option<String>,
    /// The reason why it is unavailable, if it is. It is attached again as soon as it can be
    /// reached.
    pub away: Option<String>,
    /// How the tier uses it. A daemon of an earlier version does not send this.
    #[serde(default)]
    pub usage: ArchiveUsage,
    /// Whether it is known to be encrypted.
    pub encrypted: bool,
    /// Free bytes in the archive, if known.
    pub free_bytes: Option<u64>,
    /// Latest versions of files of which it has a copy.
    pub objects: u64,
    /// Their bytes, as they are stored.
    pub bytes: u64,
}

/// A program that waits for a recall.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingProgram {
    /// Its user.
    pub user: u32,
    /// Its process.
    pub pid: u32,
    /// Its name, if it can be read.
    pub program: Option<String>,
}

/// The residency of a file, and whether archives have its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Residence {
    /// In the tree; the file was never archived.
    Resident,
    /// In the tree and in archives.
    Archived,
    /// In the tree, and changed since the file was archived.
    Changed,
    /// Some bytes only in archives.
    PartlyResident,
    /// All bytes only in archives.
    Offline,
    /// Unknown, because the residency can't be used.
    Damaged,
}

impl Residence {
    /// Returns the word that `fslab tier state` prints for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Resident => "resident",
            Self::Archived => "archived",
            Self::Changed => "changed",
            Self::PartlyResident => "partly-resident",
            Self::Offline => "offline",
            Self::Damaged => "damaged",
        }
    }
}

/// The summary of a file: its residency, and the archives with copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSummary {
    /// The file.
    pub path: String,
    /// Its residency, and whether archives have its bytes.
    pub state: Residence,
    /// Bytes of the file.
    pub bytes: u64,
    /// Number of resident bytes of the file.
    pub resident_bytes: u64,
    /// Whether it was changed since it was archived.
    pub changed: bool,
    /// Archives with a copy, by identity.
    pub copies: Vec<String>,
    /// Whether a policy never releases it.
    #[serde(default)]
    pub pinned: bool,
}

/// The receiver of events. It returns `false` once nobody is listening.
pub type EventSink<'a> = dyn FnMut(Event) -> bool + 'a;

/// Turns the result of a receiver into an error that ends the command if nobody listens.
pub(crate) fn go_on(heard: bool) -> Result<()> {
    if heard { Ok(()) } else { Err(Error::Interrupted) }
}

pub(crate) fn total(tell: &mut EventSink<'_>, figures: &[(&str, u64)]) -> Result<()> {
    go_on(tell(Event::Total { figures: owned(figures) }))
}

pub(crate) fn owned(figures: &[(&str, u64)]) -> Vec<(String, u64)> {
    figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

pub(crate) fn report_done(
    tell: &mut EventSink<'_>,
    what: &str,
    path: &[u8],
    bytes: u64,
) -> Result<()> {
    go_on(tell(Event::Done { what: what.to_owned(), path: shown(path), bytes }))
}

pub(crate) fn report_problems(
    tell: &mut EventSink<'_>,
    problems: impl IntoIterator<Item = String>,
) -> Result<()> {
    problems.into_iter().try_for_each(|what| go_on(tell(Event::Problem { what })))
}

/// Reports the failure of one file. [`Error::Interrupted`] means that the caller has ended, so it
/// ends the whole command.
pub(crate) fn report_problem(tell: &mut EventSink<'_>, error: &Error) -> Result<()> {
    match error {
        Error::Interrupted => Err(Error::Interrupted),
        error => go_on(tell(Event::Problem { what: error.to_string() })),
    }
}
