//! What users ask of a tier, and what they are told: the same words whether the tree is mounted,
//! and its daemon is asked, or not.

use std::sync::Arc;

use fslab_vfs::{Errno, FileKind, Ino, Request, XattrMode};
use serde::{Deserialize, Serialize};

use crate::engine::{Archived, Place, Tier, Visit};
use crate::error::{Error, Result, shown};
use crate::limit::Limit;
use crate::lower::Found;
use crate::queue::Class;
use crate::stored::BLOCK_BYTES;
use crate::stored::format::{blocks_met, blocks_of};
use crate::stored::residency::{self, Residency};

/// The xattr that says that a file stays here, whatever the policy.
pub const PIN_NAME: &str = "user.fslab.pin";

/// What is asked. Paths are from the root of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Command {
    /// Copy files into archives.
    Archive {
        /// Files, or directories with all that is in them.
        paths: Vec<Vec<u8>>,
        /// Bytes a second, beside the tier's own limit; 0 for any.
        #[serde(default)]
        rate: u64,
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
        /// Where in the file, in bytes; nothing for all of it.
        range: Option<(u64, u64)>,
        /// Bytes a second, beside the tier's own limit; 0 for any.
        #[serde(default)]
        rate: u64,
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
    /// End recalls that nobody waits for, of files.
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
    /// Look at every file and every object.
    Scan,
    /// Read every copy, and mend copies from each other.
    Scrub,
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
}

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
    State(State),
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
    },
}

/// Where the bytes of a file are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The file.
    pub path: String,
    /// `resident`, `archived`, `changed`, `partly-resident`, `offline` or `damaged`.
    pub state: String,
    /// Bytes of the file.
    pub bytes: u64,
    /// Of these, here.
    pub resident_bytes: u64,
    /// Whether it was changed since it was archived.
    pub changed: bool,
    /// Archives with a copy, by identity.
    pub copies: Vec<String>,
}

/// Who is told; `false` where nobody listens any more.
pub type Tell<'a> = dyn FnMut(Event) -> bool + 'a;

/// Does what is asked.
///
/// # Errors
/// What stands in the way of all of it; what goes wrong with one file is told.
pub fn execute(
    tier: &Arc<Tier>,
    command: &Command,
    request: &Request,
    tell: &mut Tell<'_>,
) -> Result<()> {
    match command {
        Command::Archive { paths, rate } => {
            let limit = Limit::new(*rate, &tier.surroundings().clock);
            each_file(tier, paths, request, tell, &mut |place, tell| {
                archive(tier, place, limit.as_ref(), request, tell)
            })
        }
        Command::Release { paths, keep_bytes } => {
            let kept = keep_bytes.div_ceil(BLOCK_BYTES);
            each_file(tier, paths, request, tell, &mut |place, tell| match tier
                .release(place.found.ino(), place.path, kept)?
                .bytes
            {
                0 => Ok(()),
                bytes => tell_done(tell, "released", place, bytes),
            })
        }
        Command::Recall { paths, range, rate } => {
            let limit = Limit::new(*rate, &tier.surroundings().clock);
            each_file(tier, paths, request, tell, &mut |place, tell| {
                recall(tier, place, *range, limit.as_ref(), request, tell)
            })
        }
        Command::State { paths, recursive } => states(tier, paths, *recursive, request, tell),
        Command::Du { paths } => paths.iter().try_for_each(|path| usage(tier, path, request, tell)),
        Command::Queue => queue(tier, tell),
        Command::Cancel { paths } => each_file(tier, paths, request, tell, &mut |place, tell| {
            let count = tier.cancel(place.found.ino());
            tell_done(tell, "cancelled", place, count * BLOCK_BYTES)
        }),
        Command::Pin { paths, stays } => {
            each_file(tier, paths, request, tell, &mut |place, tell| pin(tier, place, *stays, tell))
        }
        Command::Versions { path } => versions(tier, path, tell),
        Command::Undelete { object, path } => {
            let bytes = tier.undelete(*object, path)?;
            go_on(tell(Event::Done { what: "undeleted".to_owned(), path: shown(path), bytes }))
        }
        Command::Scan => scan(tier, request, tell),
        Command::Scrub => scrub(tier, request, tell),
        Command::Expire => {
            let expired = tier.expire(request)?;
            total(tell, &[("objects", expired.objects), ("containers", expired.containers)])
        }
        Command::Tree => {
            let entries = tier.archive_tree(request)?;
            total(tell, &[("entries", entries)])
        }
        Command::Policy { rules, dry_run } => {
            let rules = rules.as_ref().map(|(rules, origin)| (&rules[..], &origin[..]));
            crate::policy::run(tier, rules, *dry_run, request, tell)
        }
    }
}

/// Whether to go on: nobody listens any more otherwise.
fn go_on(heard: bool) -> Result<()> {
    if heard { Ok(()) } else { Err(Error::Interrupted) }
}

pub(crate) fn total(tell: &mut Tell<'_>, figures: &[(&str, u64)]) -> Result<()> {
    let figures = figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    go_on(tell(Event::Total { figures }))
}

pub(crate) fn tell_done(
    tell: &mut Tell<'_>,
    what: &str,
    place: &Place<'_>,
    bytes: u64,
) -> Result<()> {
    go_on(tell(Event::Done { what: what.to_owned(), path: shown(place.path), bytes }))
}

type Work<'a> = dyn FnMut(&Place<'_>, &mut Tell<'_>) -> Result<()> + 'a;

/// Does something to every regular file of some paths. What goes wrong with one is told.
pub(crate) fn each_file(
    tier: &Arc<Tier>,
    paths: &[Vec<u8>],
    request: &Request,
    tell: &mut Tell<'_>,
    work: &mut Work<'_>,
) -> Result<()> {
    for path in paths {
        tier.walk(path, request, &mut |place| {
            if place.found.attr.kind != FileKind::Regular {
                return Ok(Visit::Into);
            }
            match work(&place, tell) {
                Ok(()) => {}
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => go_on(tell(Event::Problem { what: error.to_string() }))?,
            }
            Ok(Visit::Into)
        })?;
    }
    Ok(())
}

fn archive(
    tier: &Arc<Tier>,
    place: &Place<'_>,
    limit: Option<&Limit>,
    request: &Request,
    tell: &mut Tell<'_>,
) -> Result<()> {
    match tier.archive_within(place.found.ino(), place.path, request, limit)? {
        Archived::Now { bytes } => tell_done(tell, "archived", place, bytes),
        Archived::Before => Ok(()),
    }
}

fn recall(
    tier: &Arc<Tier>,
    place: &Place<'_>,
    range: Option<(u64, u64)>,
    limit: Option<&Limit>,
    request: &Request,
    tell: &mut Tell<'_>,
) -> Result<()> {
    let blocks = range.map_or(0..u64::MAX, |(offset, length)| blocks_met(offset, length));
    let used = tier.enter(place.found.ino());
    let below = || Error::below(place.path);
    let before = tier.resident_bytes(&used.file, place.found.attr.size).map_err(below())?;
    let bring = |blocks| {
        tier.recall(&used.file, blocks, request, Class::Bulk).map_err(|error| match error.errno() {
            Errno::INTR => Error::Interrupted,
            _ => Error::below(place.path)(error),
        })
    };
    match limit {
        Some(limit) => {
            // One after the other: what is asked for in the queue comes as fast as the tier lets it.
            let end = blocks.end.min(blocks_of(place.found.attr.size));
            for block in blocks.start..end {
                if !tier.is_here(&used.file, block).map_err(below())? {
                    limit.pass(BLOCK_BYTES, request)?;
                    bring(block..block + 1)?;
                }
            }
        }
        None => bring(blocks)?,
    }
    let after = tier.resident_bytes(&used.file, place.found.attr.size).map_err(below())?;
    if after == before { Ok(()) } else { tell_done(tell, "recalled", place, after - before) }
}

fn states(
    tier: &Arc<Tier>,
    paths: &[Vec<u8>],
    recursive: bool,
    request: &Request,
    tell: &mut Tell<'_>,
) -> Result<()> {
    for path in paths {
        tier.walk(path, request, &mut |place| {
            if place.found.attr.kind == FileKind::Regular {
                go_on(tell(Event::State(state_of(tier, &place)?)))?;
            }
            let is_inner = !recursive && place.path != &path[..];
            Ok(if is_inner { Visit::Past } else { Visit::Into })
        })?;
    }
    Ok(())
}

/// Where the bytes of a file are.
pub(crate) fn state_of(tier: &Arc<Tier>, place: &Place<'_>) -> Result<State> {
    let attr = &place.found.attr;
    let known = tier.residency_of(attr.ino);
    let path = shown(place.path);
    let known = match known {
        Ok(known) => known,
        Err(residency::Unreadable::Corrupt(_)) => {
            return Ok(State { state: "damaged".to_owned(), ..plain_state(path, attr.size) });
        }
        Err(residency::Unreadable::Below(error)) => return Err(Error::below(place.path)(error)),
    };
    let Some(known) = known else { return Ok(plain_state(path, attr.size)) };
    let is_own =
        known.tier == tier.settings().tier && known.inode == (tier.surroundings().tell)(attr);
    Ok(if is_own || known.offline.is_empty() {
        tiered_state(path, attr.size, &known)
    } else {
        State { state: "damaged".to_owned(), ..plain_state(path, attr.size) }
    })
}

fn plain_state(path: String, bytes: u64) -> State {
    State {
        path,
        state: "resident".to_owned(),
        bytes,
        resident_bytes: bytes,
        changed: false,
        copies: Vec::new(),
    }
}

fn tiered_state(path: String, bytes: u64, known: &Residency) -> State {
    let resident_bytes = resident(bytes, known);
    let state = match (known.offline.is_empty(), known.changed) {
        (true, true) => "changed",
        (true, false) => "archived",
        (false, _) if resident_bytes == 0 => "offline",
        (false, _) => "partly-resident",
    };
    let copies = known.version.copies.iter().map(ToString::to_string).collect();
    let (state, changed) = (state.to_owned(), known.changed);
    State { path, state, bytes, resident_bytes, changed, copies }
}

/// Bytes of a file that are here; holes count.
pub(crate) fn resident(bytes: u64, known: &Residency) -> u64 {
    let offline = known.offline.iter().map(|run| {
        let end = (run.end * BLOCK_BYTES).min(bytes);
        end.saturating_sub(run.start * BLOCK_BYTES)
    });
    bytes - offline.sum::<u64>().min(bytes)
}

fn usage(tier: &Arc<Tier>, path: &[u8], request: &Request, tell: &mut Tell<'_>) -> Result<()> {
    let (mut files, mut bytes, mut resident_bytes, mut archived_bytes) = (0, 0, 0, 0);
    tier.walk(path, request, &mut |place| {
        if place.found.attr.kind == FileKind::Regular {
            let state = state_of(tier, &place)?;
            files += 1;
            bytes += state.bytes;
            resident_bytes += state.resident_bytes;
            let is_archived = !state.copies.is_empty() && !state.changed;
            archived_bytes += if is_archived { state.bytes } else { 0 };
        }
        Ok(Visit::Into)
    })?;
    let path = shown(path);
    go_on(tell(Event::Usage { path, files, bytes, resident_bytes, archived_bytes }))
}

fn queue(tier: &Arc<Tier>, tell: &mut Tell<'_>) -> Result<()> {
    let now_ns = tier.surroundings().clock.now_ns();
    for recall in tier.recalls() {
        let ino = recall.file.ino();
        let path = tier.lower().path_below(ino);
        let path =
            path.map_or_else(|| format!("inode {}", ino.0), |path| path.display().to_string());
        go_on(tell(Event::Waiting {
            path,
            block: recall.block,
            class: recall.class().name().to_owned(),
            user: recall.user,
            waiters: recall.waiters() as u64,
            waited_ms: now_ns.saturating_sub(recall.asked_ns) / 1_000_000,
        }))?;
    }
    Ok(())
}

fn pin(tier: &Arc<Tier>, place: &Place<'_>, stays: bool, tell: &mut Tell<'_>) -> Result<()> {
    let (lower, request, ino) = (tier.lower(), tier.request(), place.found.ino());
    let name = std::ffi::OsStr::new(PIN_NAME);
    let done = if stays {
        lower.setxattr(&request, ino, name, b"1", XattrMode::empty())
    } else {
        match lower.removexattr(&request, ino, name) {
            Err(error) if error.errno() == Errno::NODATA => Ok(()),
            done => done,
        }
    };
    done.map_err(Error::below(place.path))?;
    tell_done(tell, if stays { "pinned" } else { "unpinned" }, place, place.found.attr.size)
}

/// Whether a file stays here, whatever the policy.
pub(crate) fn is_pinned(tier: &Tier, found: &Found) -> bool {
    is_pinned_ino(tier, found.ino())
}

fn is_pinned_ino(tier: &Tier, ino: Ino) -> bool {
    tier.lower().getxattr(&tier.request(), ino, std::ffi::OsStr::new(PIN_NAME)).is_ok()
}

fn versions(tier: &Arc<Tier>, path: &[u8], tell: &mut Tell<'_>) -> Result<()> {
    use crate::catalogue::ObjectState;
    tier.catalogue().for_each(&mut |row| {
        let is_below = row
            .path
            .strip_prefix(path)
            .is_some_and(|rest| path.is_empty() || rest.is_empty() || rest[0] == b'/');
        if !is_below {
            return Ok(());
        }
        let state = match row.state {
            ObjectState::Pending => "pending",
            ObjectState::Live => "live",
            ObjectState::Replaced => "replaced",
            ObjectState::Removed => "removed",
        };
        go_on(tell(Event::Version {
            object: row.version.object.to_string(),
            path: shown(&row.path),
            bytes: row.version.size,
            state: state.to_owned(),
            since: row.since.seconds,
        }))
    })
}

fn scan(tier: &Arc<Tier>, request: &Request, tell: &mut Tell<'_>) -> Result<()> {
    let scanned = tier.scan(request)?;
    for what in scanned.damaged {
        go_on(tell(Event::Problem { what }))?;
    }
    total(
        tell,
        &[
            ("files", scanned.files),
            ("archived", scanned.archived),
            ("offline", scanned.offline),
            ("mended", scanned.mended),
            ("unneeded", scanned.unneeded),
        ],
    )
}

fn scrub(tier: &Arc<Tier>, request: &Request, tell: &mut Tell<'_>) -> Result<()> {
    let scrubbed = tier.scrub(request)?;
    let damaged = scrubbed.damaged.len() as u64;
    for what in scrubbed.damaged {
        go_on(tell(Event::Problem { what }))?;
    }
    total(tell, &[("copies", scrubbed.copies), ("mended", scrubbed.mended), ("damaged", damaged)])
}
