//! Reports on the residency of files, unfinished recalls, archives, and versions.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use data_encoding::BASE64;
use fslab_vfs::{FileKind, Ino};

use super::Execution;
use crate::catalogue::{ObjectRow, ObjectState};
use crate::engine::{Recall, Tier, Visit};
use crate::error::{Result, shown};
use crate::event::{Event, VersionCopy, WaitingProgram, go_on, report_problem};
use crate::id::Id;

impl Execution<'_> {
    pub(super) fn states(&mut self, paths: &[Vec<u8>], recursive: bool) -> Result<()> {
        let Self { tier, request, tell } = self;
        for path in paths {
            tier.walk_on(path, request, &mut |place| {
                let shown = place.and_then(|place| {
                    if place.found.attr.kind == FileKind::Regular {
                        let summary = tier.file_summary(&place.found.attr, place.path)?;
                        go_on(tell(Event::State(summary)))?;
                    }
                    let is_inner = !recursive && place.path != &path[..];
                    Ok(if is_inner { Visit::Skip } else { Visit::Descend })
                });
                shown.or_else(|error| report_problem(tell, &error).map(|()| Visit::Descend))
            })?;
        }
        Ok(())
    }

    pub(super) fn queue(&mut self) -> Result<()> {
        let Self { tier, tell, .. } = self;
        for recall in tier.recalls() {
            waiting_event(tier, &recall, None).map_or(Ok(()), |event| go_on(tell(event)))?;
        }
        Ok(())
    }

    pub(super) fn archives(&mut self) -> Result<()> {
        let Self { tier, tell, .. } = self;
        tier.archive_states()?.into_iter().try_for_each(|state| go_on(tell(Event::Archive(state))))
    }

    pub(super) fn versions(&mut self, path: &[u8]) -> Result<()> {
        let Self { tier, tell, .. } = self;
        // The receiver of events may be slow, so no transaction is open while it runs.
        tier.catalogue().for_each_in_turn(&mut |row| {
            if !is_below(&row.path, path) {
                return Ok(());
            }
            go_on(tell(version_event(tier, &row)?))
        })
    }
}

impl Execution<'_> {
    /// Reports the content of a version, block by block.
    pub(super) fn content(&mut self, object: Id) -> Result<()> {
        let tell = &mut *self.tell;
        self.tier.read_version(object, self.request, &mut |offset, bytes, content| {
            let data = content.map(|content| BASE64.encode(content));
            go_on(tell(Event::Content { offset, bytes, data }))
        })
    }
}

/// Returns the event that reports a version.
pub(super) fn version_event(tier: &Tier, row: &ObjectRow) -> Result<Event> {
    let state = match row.state {
        ObjectState::Pending => "pending",
        ObjectState::Live => "live",
        ObjectState::Replaced => "replaced",
        ObjectState::Removed => "removed",
        ObjectState::Source => "source",
    };
    let copy = |archive: &Id| {
        let receipt = tier.catalogue().receipt(row.version.location.container, *archive)?;
        Ok(VersionCopy {
            archive: archive.to_string(),
            proof: receipt.proved.map(|(proof, _)| proof.name().to_owned()),
            proved: receipt.proved.map(|(_, seconds)| seconds),
            read: receipt.read,
        })
    };
    Ok(Event::Version {
        object: row.version.object.to_string(),
        path: shown(&row.path),
        bytes: row.version.size,
        state: state.to_owned(),
        since: row.since.seconds,
        modified: row.version.modified.seconds,
        copies: row.version.copies.iter().map(copy).collect::<Result<_>>()?,
    })
}

/// Maximum number of waiting programs that are reported for one block.
const TOLD_MAX: usize = 16;

/// Returns the event that reports a recall. If a user is given, reports only this user's programs;
/// `None` if none of them waits for the recall.
pub(crate) fn waiting_event(tier: &Tier, recall: &Arc<Recall>, user: Option<u32>) -> Option<Event> {
    let waiting = recall.who_waits();
    let mut told: Vec<_> =
        waiting.into_iter().filter(|who| user.is_none_or(|user| who.user == user)).collect();
    if user.is_some() && told.is_empty() {
        return None;
    }
    let waiters = told.len() as u64;
    told.truncate(TOLD_MAX);
    let name = |pid| tier.settings().deny.name_of(pid);
    let by = told.into_iter().map(|who| WaitingProgram {
        user: who.user,
        pid: who.pid,
        program: name(who.pid),
    });
    let (ino, later) = (recall.file.ino(), recall.later());
    let now_ns = tier.surroundings().clock.now_ns();
    Some(Event::Waiting {
        path: path_in_tree(tier, ino),
        block: recall.block,
        class: recall.class().name().to_owned(),
        user: user.unwrap_or(recall.user),
        waiters,
        by: by.collect(),
        begun: recall.is_begun(),
        away: tier.queue().is_postponed(recall),
        later: later.as_ref().map(ToString::to_string),
        expected: later.and_then(|later| later.expected),
        waited_ms: now_ns.saturating_sub(recall.asked_ns) / 1_000_000,
    })
}

/// Returns the path of a file from the root of the tree, or its inode if the path is unknown.
fn path_in_tree(tier: &Tier, ino: Ino) -> String {
    let path = |ino| tier.lower().path_below(ino);
    let inner = path(Ino::ROOT).zip(path(ino)).and_then(|(root, path)| {
        let inner = path.strip_prefix(root).ok()?;
        Some(shown(inner.as_os_str().as_bytes()))
    });
    inner.unwrap_or_else(|| format!("inode {}", ino.0))
}

/// Returns whether a path equals another one or is under it.
pub(super) fn is_below(path: &[u8], above: &[u8]) -> bool {
    let rest = path.strip_prefix(above);
    rest.is_some_and(|rest| above.is_empty() || rest.is_empty() || rest[0] == b'/')
}
