//! The events that a command reports to users, one a line, and functions to report them.

use serde::{Deserialize, Serialize};

use crate::archive::{ArchiveUsage, Proof, Retained, Traffic, Usage};
use crate::error::{Error, Result, shown};
use crate::id::Id;

/// An event that is shown to users as one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A completed action on a file.
    Done {
        /// The action.
        what: String,
        /// The file.
        path: String,
        /// The number of bytes that the action affected.
        bytes: u64,
    },
    /// A failure.
    Problem {
        /// The failed action, and the reason.
        what: String,
    },
    /// The residency of a file.
    State(FileSummary),
    /// All that the tier knows about a file.
    Exported(Box<ExportedFile>),
    /// The numbers of resident and archived bytes of a file or directory.
    Usage {
        /// The file or directory.
        path: String,
        /// Number of regular files.
        files: u64,
        /// Total size of these files in bytes.
        bytes: u64,
        /// Resident bytes of these files.
        resident_bytes: u64,
        /// Total size of those files that are archived, in bytes.
        archived_bytes: u64,
    },
    /// The numbers of resident and archived bytes of a group of files.
    GroupUsage {
        /// The name of the group.
        group: String,
        /// Number of regular files.
        files: u64,
        /// Total size of these files in bytes.
        bytes: u64,
        /// Resident bytes of these files.
        resident_bytes: u64,
        /// Total size of those files that are archived, in bytes.
        archived_bytes: u64,
    },
    /// A recall that is not finished.
    Waiting {
        /// The file.
        path: String,
        /// The block.
        block: u64,
        /// The urgency class of the recall.
        class: String,
        /// The user who requested the recall.
        user: u32,
        /// The number of programs that wait for the recall.
        waiters: u64,
        /// The first of the waiting programs.
        by: Vec<WaitingProgram>,
        /// Whether the block is being read from an archive.
        begun: bool,
        /// Whether the recall waits for an unavailable archive, or one that stages the block.
        away: bool,
        /// What the archive does until it has staged the block.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        later: Option<String>,
        /// When the block is expected to be staged, in seconds since 1970.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected: Option<i64>,
        /// The age of the request in milliseconds.
        waited_ms: u64,
    },
    /// A version of a file that can be restored.
    Version {
        /// The object.
        object: String,
        /// The path of the file.
        path: String,
        /// The size of the version in bytes.
        bytes: u64,
        /// `live`, `replaced`, `removed`, `pending`, or `source`: not restorable, but needed by
        /// later versions.
        state: String,
        /// The time when the version entered this state, in seconds since 1970.
        since: i64,
        /// The modification time of the version, in seconds since 1970.
        modified: i64,
        /// The copies of the version.
        #[serde(default)]
        copies: Vec<VersionCopy>,
    },
    /// A part of the content of a version.
    Content {
        /// Offset of the part in bytes.
        offset: u64,
        /// Length of the part in bytes.
        bytes: u64,
        /// The bytes in base64; `None` if all of them are zeros.
        data: Option<String>,
    },
    /// An archive of the tier.
    Archive(ArchiveState),
    /// What a command would cause, at the end of its dry run.
    Plan(Plan),
    /// Intermediate figures of a long command.
    Progress {
        /// Pairs of a name and a value, in display order.
        figures: Vec<(String, u64)>,
    },
    /// The figures at the end of a command.
    Total {
        /// Pairs of a name and a value, in display order.
        figures: Vec<(String, u64)>,
    },
    /// The end of a command; no event follows.
    End {
        /// The reason if the command failed.
        error: Option<String>,
        /// The exit code of `fslab tier`.
        code: u8,
    },
}

/// The state of an archive of the tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveState {
    /// The identity of the archive.
    pub archive: Id,
    /// The URL of the archive, if the tier's home lists it.
    pub address: Option<String>,
    /// Whether the tier has the archive open and it is available.
    pub attached: bool,
    /// The reason why the archive is read-only, if another tree writes to it.
    pub refusal: Option<String>,
    /// The reason why the archive is unavailable, or `None` if it is available. It is used again as
    /// soon as it can be reached.
    pub away: Option<String>,
    /// How the tier uses the archive. A daemon of an earlier version does not send this field.
    #[serde(default)]
    pub usage: ArchiveUsage,
    /// Whether the archive is known to be encrypted.
    pub encrypted: bool,
    /// Free bytes in the archive, if known.
    pub free_bytes: Option<u64>,
    /// Number of files whose latest version has a copy in the archive.
    pub objects: u64,
    /// Stored bytes of these copies.
    pub bytes: u64,
    /// How new copies are proved; `None` if the archive accepts none now.
    #[serde(default)]
    pub proof: Option<Proof>,
    /// The deleted objects whose bytes the archive's store retains.
    #[serde(default)]
    pub retained: Option<Retained>,
    /// The traffic that the tier has caused in the archive, as far as it was counted. A daemon of
    /// an earlier version does not send these fields.
    #[serde(flatten, default)]
    pub traffic: Usage,
}

/// What a command would cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The command.
    pub command: String,
    /// Whether the requests and the bytes of archives are upper or lower bounds.
    pub bound: Bound,
    /// Number of files or versions.
    pub files: u64,
    /// Their bytes that are archived, recalled, released or verified.
    pub bytes: u64,
    /// Number of files of which only the changed blocks will be archived. The plan assumes that all
    /// of their blocks have changed.
    pub changed_files: u64,
    /// Bytes that the command needs in the tree's file system.
    pub needed_bytes: u64,
    /// Bytes that the command frees in the tree's file system.
    pub freed_bytes: u64,
    /// Free bytes in the tree's file system now, if they are known.
    pub free_bytes: Option<u64>,
    /// Estimated duration of the transfers, from the measured rates of the archives. `None` if a
    /// needed rate was never measured.
    pub estimated_seconds: Option<f64>,
    /// The traffic in each archive.
    pub archives: Vec<PlannedTraffic>,
}

/// The meaning of the requests and bytes in a [`Plan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// The command causes at most these, unless requests fail.
    AtMost,
    /// The command causes at least these; more if it finds damaged copies.
    AtLeast,
}

/// The planned traffic in one archive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedTraffic {
    /// The identity of the archive.
    pub archive: Id,
    /// The URL of the archive, if the tier's home lists it.
    pub address: Option<String>,
    /// The requests and bytes.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// Bytes of new containers, which the archive then stores.
    pub stored_bytes: u64,
    /// Free bytes in the archive, if known.
    pub free_bytes: Option<u64>,
    /// Estimated duration of the transfers, or `None` if a needed rate was never measured.
    pub estimated_seconds: Option<f64>,
}

/// A copy of a version in an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionCopy {
    /// The archive.
    pub archive: String,
    /// How the copy was proved when it was written: `checksum` or `read-back`. `None` if that is
    /// unknown, for example after the loss of the catalogue.
    pub proof: Option<String>,
    /// When the copy was proved, in seconds since 1970.
    pub proved: Option<i64>,
    /// When the copy was last read and found intact, in seconds since 1970; `None` if never. A copy
    /// in a bundle counts as read if another object of the same bundle was read.
    pub read: Option<i64>,
}

/// A program that waits for a recall.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingProgram {
    /// The user who runs the program.
    pub user: u32,
    /// The process ID.
    pub pid: u32,
    /// The name of the program, if it can be read.
    pub program: Option<String>,
}

/// The residency of a file, and whether archives have its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Residence {
    /// All bytes are in the tree; the file was never archived.
    Resident,
    /// All bytes are in the tree and in archives.
    Archived,
    /// All bytes are in the tree, and the file was changed since it was archived.
    Changed,
    /// Some bytes are only in archives.
    PartlyResident,
    /// All bytes are only in archives.
    Offline,
    /// The location of the bytes is unknown, because the recorded residency is damaged.
    Damaged,
}

impl Residence {
    /// All states, in the order of `fslab tier du --by state`.
    pub const ALL: [Self; 6] = [
        Self::Resident,
        Self::Archived,
        Self::Changed,
        Self::PartlyResident,
        Self::Offline,
        Self::Damaged,
    ];

    /// Returns the word that `fslab tier state` prints for this state.
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
    /// The residency of the file, and whether archives have its bytes.
    pub state: Residence,
    /// Bytes of the file.
    pub bytes: u64,
    /// Number of resident bytes of the file.
    pub resident_bytes: u64,
    /// Whether the file was changed since it was archived.
    pub changed: bool,
    /// Archives with a copy, by identity.
    pub copies: Vec<String>,
    /// Whether the file is pinned, so that policies never release it.
    #[serde(default)]
    pub pinned: bool,
}

/// A file of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedFile {
    /// The path from the root of the tree.
    pub path: Vec<u8>,
    /// The number of the inode.
    pub inode: u64,
    /// The number of names.
    pub links: u32,
    /// Size in bytes.
    pub size: u64,
    /// Allocated bytes in the tree.
    pub allocated_bytes: u64,
    /// Number of resident bytes.
    pub resident_bytes: u64,
    /// The residency of the file.
    pub state: Residence,
    /// Whether the file is pinned.
    pub pinned: bool,
    /// Owning user.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Time of the last modification, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// Time of the last access, in nanoseconds since 1970.
    pub accessed_ns: i64,
    /// The last archived version, if there is one.
    pub version: Option<ArchivedVersion>,
}

/// An archived version of a file of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedVersion {
    /// The object that contains the version.
    pub object: Id,
    /// The container of the object.
    pub container: Id,
    /// Offset of the object in the container, in bytes.
    pub offset: u64,
    /// Length of the object in bytes.
    pub length: u64,
    /// Size of the version in bytes.
    pub size: u64,
    /// Modification time of the version, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// The archives with a copy.
    pub archives: Vec<Id>,
}

/// The sums of an [`Event::Usage`].
#[derive(Clone, Copy, Debug, Default)]
pub struct UsageSums {
    files: u64,
    bytes: u64,
    resident_bytes: u64,
    archived_bytes: u64,
}

impl UsageSums {
    /// Adds a file.
    pub fn add(&mut self, file: &FileSummary) {
        self.files += 1;
        self.bytes += file.bytes;
        self.resident_bytes += file.resident_bytes;
        let is_archived = !file.copies.is_empty() && !file.changed;
        self.archived_bytes += if is_archived { file.bytes } else { 0 };
    }

    /// Returns the event for the files at a path.
    #[must_use]
    pub fn event(self, path: &[u8]) -> Event {
        let Self { files, bytes, resident_bytes, archived_bytes } = self;
        Event::Usage { path: shown(path), files, bytes, resident_bytes, archived_bytes }
    }

    /// Returns the event for a group of files.
    #[must_use]
    pub fn event_of_group(self, group: String) -> Event {
        let Self { files, bytes, resident_bytes, archived_bytes } = self;
        Event::GroupUsage { group, files, bytes, resident_bytes, archived_bytes }
    }
}

/// The receiver of events. It returns `false` once no client is listening.
pub type EventSink<'a> = dyn FnMut(Event) -> bool + 'a;

/// Returns an error, which ends the command, if the receiver of events has stopped listening.
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
