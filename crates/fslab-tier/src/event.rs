//! What users are told of a command, one event a line, and how a command reports it.

use serde::{Deserialize, Serialize};

use crate::archive::ArchiveUsage;
use crate::error::{Error, Result, shown};
use crate::id::Id;

/// What users are told, a line each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// Something was done to a file.
    Done {
        /// What.
        what: String,
        /// The file.
        path: String,
        /// Bytes it was about.
        bytes: u64,
    },
    /// Something could not be done.
    Problem {
        /// What, and why.
        what: String,
    },
    /// Where the bytes of a file are.
    State(FileSummary),
    /// How much is where.
    Usage {
        /// The file or directory.
        path: String,
        /// Regular files.
        files: u64,
        /// Their bytes.
        bytes: u64,
        /// Of these, here.
        resident_bytes: u64,
        /// Of these, in archives.
        archived_bytes: u64,
    },
    /// A recall that is waiting.
    Waiting {
        /// The file.
        path: String,
        /// The block.
        block: u64,
        /// How urgent.
        class: String,
        /// Who asked.
        user: u32,
        /// Programs that wait for it.
        waiters: u64,
        /// The first of these.
        by: Vec<WaitingProgram>,
        /// Whether it is being read.
        begun: bool,
        /// Whether it waits for an archive that is unavailable.
        away: bool,
        /// For how long it has been waiting, in milliseconds.
        waited_ms: u64,
    },
    /// A version of a file that can come back.
    Version {
        /// The object.
        object: String,
        /// Where the file was.
        path: String,
        /// Its bytes.
        bytes: u64,
        /// `live`, `replaced`, `removed` or `pending`.
        state: String,
        /// Since when, in seconds since 1970.
        since: i64,
        /// When its contents were changed last, in seconds since 1970.
        modified: i64,
    },
    /// An archive of the tier.
    Archive(ArchiveState),
    /// Figures so far, of what takes long.
    Progress {
        /// Name and value, in order.
        figures: Vec<(String, u64)>,
    },
    /// Figures at the end.
    Total {
        /// Name and value, in order.
        figures: Vec<(String, u64)>,
    },
    /// It ended so; nothing else follows.
    End {
        /// Why it did not end well.
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
    /// Its URL, if the tier's home names it.
    pub address: Option<String>,
    /// Whether it can be used.
    pub attached: bool,
    /// Why it is only read, where another tree writes to it.
    pub refusal: Option<String>,
    /// Why it is unavailable, where it is: it is attached again as soon as it is there.
    pub away: Option<String>,
    /// How the tier uses it. A daemon of an earlier version does not say so.
    #[serde(default)]
    pub usage: ArchiveUsage,
    /// Whether it is known to be encrypted.
    pub encrypted: bool,
    /// Bytes that are free there, as far as that can be told.
    pub free_bytes: Option<u64>,
    /// Last versions of files that it has a copy of.
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
    /// Its name, where that can be seen.
    pub program: Option<String>,
}

/// Where the bytes of a file are, and whether archives hold them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Residence {
    /// In the tree; the file was never archived.
    Resident,
    /// In the tree and in archives.
    Archived,
    /// In the tree, and changed since the file was archived.
    Changed,
    /// Some in archives only.
    PartlyResident,
    /// All in archives only.
    Offline,
    /// The residency can't be used.
    Damaged,
}

impl Residence {
    /// Returns its word, as `fslab tier state` prints it.
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

/// What is known of a file: where its bytes are, and which archives have copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSummary {
    /// The file.
    pub path: String,
    /// Where its bytes are, and whether archives hold them.
    pub state: Residence,
    /// Bytes of the file.
    pub bytes: u64,
    /// Of these, here.
    pub resident_bytes: u64,
    /// Whether it was changed since it was archived.
    pub changed: bool,
    /// Archives with a copy, by identity.
    pub copies: Vec<String>,
    /// Whether a policy never releases it.
    #[serde(default)]
    pub pinned: bool,
}

/// Who is told; `false` where nobody listens any more.
pub type EventSink<'a> = dyn FnMut(Event) -> bool + 'a;

/// Whether to go on: nobody listens any more otherwise.
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

/// Tells what went wrong with one file; that who asked is gone is wrong with all of it.
pub(crate) fn report_problem(tell: &mut EventSink<'_>, error: &Error) -> Result<()> {
    match error {
        Error::Interrupted => Err(Error::Interrupted),
        error => go_on(tell(Event::Problem { what: error.to_string() })),
    }
}
