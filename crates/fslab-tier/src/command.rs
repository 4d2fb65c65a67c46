//! The commands of a tier and their results. If the tree is mounted, its daemon executes them, with
//! the same results.
//!
//! [`execute`] runs any command. The submodules contain the commands that need more than one call
//! of the engine.

use std::path::PathBuf;
use std::sync::Arc;

use fslab_vfs::Request;
use serde::{Deserialize, Serialize};

use crate::archive::ArchiveAddress;
pub use crate::engine::PIN_NAME;
use crate::engine::{Expired, Tier};
use crate::error::{Error, Result};
pub use crate::event::{
    ArchiveState, ArchivedVersion, Bound, Event, EventSink, ExportedFile, FileSummary, Plan,
    PlannedTraffic, Residence, VersionCopy, WaitingProgram,
};
use crate::event::{report_done, report_problems, total};
use crate::rate_limit::RateLimit;
use crate::stored::BLOCK_BYTES;

mod archive;
mod archives;
mod dry_run;
mod each_file;
mod export;
mod inspect;
mod query;
mod recall;
mod release;
mod undelete_all;
mod verify;

pub use crate::stored::marks::{QUEUE_NAME, STATE_NAME};
pub use archives::overlap;
pub(crate) use inspect::waiting_event;
pub use query::{Grouping, Query, Selector, Sums};

/// A command. Paths are relative to the root of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Command {
    /// Archive files.
    Archive {
        /// Files, or directories with their contents.
        paths: Vec<Vec<u8>>,
        /// Rate limit in bytes a second, in addition to the tier's own; 0 for none.
        rate: u64,
        /// Files of at most this many bytes are bundled; 0 for none. `None` for the tier's setting.
        bundled: Option<u64>,
    },
    /// Release archived files.
    Release {
        /// Files, or directories with their contents.
        paths: Vec<Vec<u8>>,
        /// Number of bytes at the beginning of each file that remain resident, rounded up to
        /// blocks.
        keep_bytes: u64,
    },
    /// Recall files.
    Recall {
        /// Files, or directories with their contents.
        paths: Vec<Vec<u8>>,
        /// Offset and length in bytes; `None` for the whole file.
        range: Option<(u64, u64)>,
        /// Rate limit in bytes a second, in addition to the tier's own; 0 for none.
        rate: u64,
    },
    /// Wait for running recalls of files; start none.
    Wait {
        /// Files, or directories with their contents.
        paths: Vec<Vec<u8>>,
    },
    /// Report the residency of files.
    State {
        /// Files or directories.
        paths: Vec<Vec<u8>>,
        /// Whether subdirectories are included; otherwise only the files directly in a directory.
        recursive: bool,
    },
    /// Report the residency of the files that a query selects.
    Find {
        /// Files, or directories with their contents.
        paths: Vec<Vec<u8>>,
        /// The files to report.
        query: Query,
    },
    /// Report all that the tier knows about each file.
    Export {
        /// Files, or directories with their contents.
        paths: Vec<Vec<u8>>,
    },
    /// Report how many bytes are resident and archived.
    Du {
        /// Files, or directories with their contents.
        paths: Vec<Vec<u8>>,
        /// The files to count. A daemon of an earlier version does not know this field.
        #[serde(default, skip_serializing_if = "Query::selects_all")]
        query: Query,
        /// The property that divides the files into groups; `None` for one sum for each path. A
        /// daemon of an earlier version does not know this field.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Grouping>,
    },
    /// List the recalls that are not finished.
    Queue,
    /// Cancel the recalls of files, except those that have begun.
    Cancel {
        /// Files, or directories with their contents.
        paths: Vec<Vec<u8>>,
    },
    /// Pin or unpin files.
    Pin {
        /// Files, or directories with their contents.
        paths: Vec<Vec<u8>>,
        /// Whether to pin the files; otherwise they are unpinned.
        stays: bool,
    },
    /// List the versions in the catalogue, in all states.
    Versions {
        /// The path of the file when it was archived, or of a directory above it.
        path: Vec<u8>,
    },
    /// Report the content of a version.
    Cat {
        /// The object of the version.
        object: crate::Id,
    },
    /// Make a new file from a replaced or removed version.
    Undelete {
        /// The object of the version.
        object: crate::Id,
        /// The path of the new file.
        path: Vec<u8>,
    },
    /// Undelete the last version of each file that was removed in a directory, unless its path is
    /// in use.
    UndeleteAll {
        /// The directory, or the path of one file.
        path: Vec<u8>,
    },
    /// Scan all files, and the containers of archives.
    Scan,
    /// Read every copy, repair copies from each other, and make missing copies.
    Scrub {
        /// Rate limit in bytes a second; 0 for none.
        rate: u64,
    },
    /// List the archives.
    Archives,
    /// Attach an archive, or make it active again.
    Attach {
        /// The address of the archive.
        address: ArchiveAddress,
        /// The file with the archive's key.
        key: Option<PathBuf>,
    },
    /// Retire an archive, which then receives no new copies.
    Retire {
        /// The identity or the URL of the archive.
        archive: String,
    },
    /// Retire an archive, and copy its objects to other archives until they have enough copies
    /// there.
    Drain {
        /// The identity or the URL of the archive.
        archive: String,
        /// Rate limit in bytes a second; 0 for none.
        rate: u64,
    },
    /// Detach an archive that no file needs.
    Detach {
        /// The identity or the URL of the archive.
        archive: String,
    },
    /// Delete replaced and removed versions past their retention time.
    Expire,
    /// Archive the names and attributes of the tree.
    Tree,
    /// Run a policy.
    Policy {
        /// The rules, and their origin for messages; `None` for the policy in the tier's home.
        rules: Option<(String, String)>,
        /// Whether to report only the planned actions.
        dry_run: bool,
    },
    /// Report what a command would do, without changing anything.
    DryRun {
        /// The command: archive, release, recall, drain, scrub, expire or undelete-all.
        of: Box<Command>,
    },
}

impl Command {
    /// Returns whether the command leaves the tree, its archives and the catalogue unchanged.
    #[must_use]
    pub fn only_asks(&self) -> bool {
        matches!(
            self,
            Self::Wait { .. }
                | Self::State { .. }
                | Self::Find { .. }
                | Self::Export { .. }
                | Self::Du { .. }
                | Self::Queue
                | Self::Cancel { .. }
                | Self::Versions { .. }
                | Self::Cat { .. }
                | Self::Archives
                | Self::DryRun { .. }
                | Self::Policy { dry_run: true, .. }
        )
    }
}

/// Executes a command.
///
/// # Errors
/// Errors that affect the whole command. Errors of single files are reported to `tell`.
pub fn execute(
    tier: &Arc<Tier>,
    command: &Command,
    request: &Request,
    tell: &mut EventSink<'_>,
) -> Result<()> {
    let done = Execution { tier, request, tell }.run(command);
    if !command.only_asks() {
        tier.record_usage();
    }
    done
}

/// A command that is being executed.
struct Execution<'a> {
    tier: &'a Arc<Tier>,
    request: &'a Request,
    tell: &'a mut EventSink<'a>,
}

impl Execution<'_> {
    fn run(&mut self, command: &Command) -> Result<()> {
        let (tier, request) = (self.tier, self.request);
        let limit = |rate| RateLimit::new(rate, &tier.surroundings().clock);
        match command {
            Command::Archive { paths, rate, bundled } => {
                self.archive(paths, limit(*rate), *bundled)
            }
            Command::Release { paths, keep_bytes } => self.release(paths, *keep_bytes),
            Command::Recall { paths, range, rate } => {
                self.recall(paths, *range, limit(*rate).as_ref())
            }
            Command::Wait { paths } => self.each_file(paths, &mut |place, _| {
                let waited = tier.wait_for_recalls(place.found.ino(), request);
                waited.or(Err(Error::Interrupted))
            }),
            Command::State { paths, recursive } => self.states(paths, *recursive),
            Command::Find { paths, query } => self.find(paths, query),
            Command::Export { paths } => self.export(paths),
            Command::Du { paths, query, by } => self.usage(paths, query, *by),
            Command::Queue => self.queue(),
            Command::Cancel { paths } => {
                self.each_file(paths, &mut |place, tell| match tier.cancel(place.found.ino()) {
                    0 => Ok(()),
                    count => report_done(tell, "cancelled", place.path, count * BLOCK_BYTES),
                })
            }
            Command::Pin { paths, stays } => self.each_file(paths, &mut |place, tell| {
                let pinned = tier.set_pinned(place.found.ino(), *stays);
                pinned.map_err(Error::below(place.path))?;
                let what = if *stays { "pinned" } else { "unpinned" };
                report_done(tell, what, place.path, place.found.attr.size)
            }),
            Command::Versions { path } => self.versions(path),
            Command::Cat { object } => self.content(*object),
            Command::Undelete { object, path } => self.undelete(*object, path),
            Command::UndeleteAll { path } => self.undelete_all(path),
            Command::Scan => self.scan(),
            Command::Scrub { rate } => self.scrub(limit(*rate).as_ref()),
            Command::Archives => self.archives(),
            Command::Attach { address, key } => self.attach(address, key.as_deref()),
            Command::Retire { archive } => self.retire(archive),
            Command::Drain { archive, rate } => self.drain(archive, limit(*rate).as_ref()),
            Command::Detach { archive } => self.detach(archive),
            Command::Expire => {
                let expired = tier.expire(request)?;
                total(self.tell, &figures_of_expiry(&expired))
            }
            Command::DryRun { of } => self.dry_run(of),
            Command::Tree => {
                let archived = tier.archive_tree(request)?;
                report_problems(self.tell, archived.problems)?;
                total(self.tell, &[("entries", archived.entries)])
            }
            Command::Policy { rules, dry_run } => {
                let rules = rules.as_ref().map(|(rules, origin)| (&rules[..], &origin[..]));
                crate::policy::run(tier, rules, *dry_run, request, self.tell)
            }
        }
    }
}

/// Returns the figures of an expiry, which are those of its command.
fn figures_of_expiry(expired: &Expired) -> [(&'static str, u64); 4] {
    [
        ("objects", expired.objects),
        ("containers", expired.containers),
        ("retained", expired.retained),
        ("repacked", expired.repacked),
    ]
}
