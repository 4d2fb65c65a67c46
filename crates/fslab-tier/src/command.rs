//! What users ask of a tier, and what they are told: the same words whether the tree is mounted,
//! and its daemon is asked, or not.
//!
//! [`execute`] runs any of them; the files below hold those that take more than a call of the
//! engine.

use std::path::PathBuf;
use std::sync::Arc;

use fslab_vfs::Request;
use serde::{Deserialize, Serialize};

use crate::archive::ArchiveAddress;
pub use crate::engine::PIN_NAME;
use crate::engine::{Expired, Tier};
use crate::error::{Error, Result};
pub use crate::event::{ArchiveState, Event, EventSink, FileSummary, Residence, WaitingProgram};
use crate::event::{report_done, report_problems, total};
use crate::rate_limit::RateLimit;
use crate::stored::BLOCK_BYTES;

mod archive;
mod archives;
mod dry_run;
mod each_file;
mod inspect;
mod recall;
mod undelete_all;
mod verify;

/// What is asked. Paths are from the root of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Command {
    /// Copy files into archives.
    Archive {
        /// Files, or directories with all that is in them.
        paths: Vec<Vec<u8>>,
        /// Bytes a second, beside the tier's own limit; 0 for any.
        rate: u64,
        /// Files of so many bytes or fewer go out together, 0 for none; as the tier has it if not
        /// said.
        bundled: Option<u64>,
    },
    /// Free the bytes of archived files.
    Release {
        /// As above.
        paths: Vec<Vec<u8>>,
        /// Bytes at the beginning of each file that stay, rounded up to blocks.
        keep_bytes: u64,
    },
    /// Bring bytes back.
    Recall {
        /// As above.
        paths: Vec<Vec<u8>>,
        /// Where in the file, in bytes; none for all of it.
        range: Option<(u64, u64)>,
        /// Bytes a second, beside the tier's own limit; 0 for any.
        rate: u64,
    },
    /// Wait until nothing of files is being recalled; ask for nothing.
    Wait {
        /// As above.
        paths: Vec<Vec<u8>>,
    },
    /// Where the bytes of files are.
    State {
        /// As above.
        paths: Vec<Vec<u8>>,
        /// Directories: what is in them, and in those below.
        recursive: bool,
    },
    /// How much is where.
    Du {
        /// As above.
        paths: Vec<Vec<u8>>,
    },
    /// Recalls that are waiting.
    Queue,
    /// End recalls of files that were not begun.
    Cancel {
        /// As above.
        paths: Vec<Vec<u8>>,
    },
    /// Keep files here, or no longer.
    Pin {
        /// As above.
        paths: Vec<Vec<u8>>,
        /// Whether they stay.
        stays: bool,
    },
    /// Versions that were replaced or removed and can come back.
    Versions {
        /// Where the file was.
        path: Vec<u8>,
    },
    /// Bring a version that was replaced or removed back, as a new file.
    Undelete {
        /// The object.
        object: crate::Id,
        /// The new file.
        path: Vec<u8>,
    },
    /// Bring the last version back of each file that was removed in a directory, where nothing is
    /// in its place.
    UndeleteAll {
        /// The directory, or a file.
        path: Vec<u8>,
    },
    /// Look at every file and what archives list.
    Scan,
    /// Read every copy, repair copies from each other, and make those that are missing.
    Scrub {
        /// Bytes a second; 0 for any.
        rate: u64,
    },
    /// Which archives there are.
    Archives,
    /// Attach an archive, or make it active again.
    Attach {
        /// Where it is.
        address: ArchiveAddress,
        /// The file with its key.
        key: Option<PathBuf>,
    },
    /// Send no new copies to an archive.
    Retire {
        /// Its identity or its URL.
        archive: String,
    },
    /// Retire an archive, and copy to others what only it holds.
    Drain {
        /// As above.
        archive: String,
        /// Bytes a second; 0 for any.
        rate: u64,
    },
    /// Use an archive no longer that no file needs.
    Detach {
        /// As above.
        archive: String,
    },
    /// Remove what was replaced or removed long enough ago.
    Expire,
    /// Archive the names and attributes of the tree.
    Tree,
    /// Do what a policy says.
    Policy {
        /// Its rules, and where they are from, for messages; those of the tier's home otherwise.
        rules: Option<(String, String)>,
        /// Only say what would be done.
        dry_run: bool,
    },
    /// Report what a command would do, and change nothing.
    DryRun {
        /// One of archive, release, recall, drain, scrub, expire and undelete of all.
        of: Box<Command>,
    },
}

impl Command {
    /// Whether it changes nothing of the tree, its archives and what is known of them.
    #[must_use]
    pub fn only_asks(&self) -> bool {
        matches!(
            self,
            Self::Wait { .. }
                | Self::State { .. }
                | Self::Du { .. }
                | Self::Queue
                | Self::Cancel { .. }
                | Self::Versions { .. }
                | Self::Archives
                | Self::DryRun { .. }
                | Self::Policy { dry_run: true, .. }
        )
    }
}

/// Does what is asked.
///
/// # Errors
/// What stands in the way of all of it; what goes wrong with one file is told.
pub fn execute(
    tier: &Arc<Tier>,
    command: &Command,
    request: &Request,
    tell: &mut EventSink<'_>,
) -> Result<()> {
    Execution { tier, request, tell }.run(command)
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
                self.archive(paths, limit(*rate).as_ref(), *bundled)
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
            Command::Du { paths } => paths.iter().try_for_each(|path| self.usage(path)),
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
                let Expired { objects, containers, repacked } = tier.expire(request)?;
                let figures =
                    [("objects", objects), ("containers", containers), ("repacked", repacked)];
                total(self.tell, &figures)
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

    fn release(&mut self, paths: &[Vec<u8>], keep_bytes: u64) -> Result<()> {
        let tier = self.tier;
        tier.check_copy_targets()?;
        let kept = keep_bytes.div_ceil(BLOCK_BYTES);
        self.each_file(paths, &mut |place, tell| match tier
            .release(place.found.ino(), place.path, kept)?
            .bytes
        {
            0 => Ok(()),
            bytes => report_done(tell, "released", place.path, bytes),
        })
    }
}
