//! Determines the kind of a lower file: empty, stored or foreign.

use fslab_vfs::Result;

use super::Kind;
use super::mark::MarkState;
use crate::context::{Io, Settings};
use crate::frame::Identity;
use crate::journal::Behind;
use crate::log::Log;
use crate::size_xattr::{Clean, Mark};
use crate::{recovery, superblock};

/// Returns the kind of a file according to its size xattr and its first bytes, and whether the
/// xattr is trusted.
pub fn classify(io: Io<'_>, found: Option<Mark>) -> Result<(Kind, MarkState, bool)> {
    let mark = MarkState::from(found.as_ref());
    let length = io.lower.length(io.request)?;
    if length == 0 {
        return Ok((Kind::Empty, mark, false));
    }
    if mark == MarkState::Foreign {
        return Ok((Kind::Foreign, mark, true));
    }
    let beginning = io.lower.read(io.request, 0, superblock::BEGINNING_BYTES)?;
    if let Some(identity) = superblock::identify(&beginning) {
        let clean = match &found {
            Some(Mark::Clean(clean)) if clean.holds(length, &io.settings.session) => Some(clean),
            _ => None,
        };
        let log = recovery::open(io, identity, &beginning, length, clean)?;
        if found.is_none() && recovery::ends_torn(io, &log, length)? {
            judge_torn_end(io, &log)?;
        }
        return Ok((Kind::Stored(Box::new(log)), mark, clean.is_some()));
    }
    if superblock::is_newer(&beginning) {
        return Err(io.damaged(0, "a stored file of a later, unsupported version"));
    }
    classify_unknown(io, found, &beginning, length).map(|kind| (kind, mark, false))
}

/// Decides whether to accept incomplete content at the end of a file without a valid size xattr. A
/// crash may leave such content; it is ignored like any write that was not synced. If no session of
/// the tree ended in a crash, then the content was damaged in another way, and the file lost its
/// xattr or was copied without it. Tools can't distinguish the two cases, and refuse the file.
fn judge_torn_end(io: Io<'_>, log: &Log) -> Result<()> {
    let Settings { session, size_xattr, may_leave_out, .. } = io.settings;
    if !may_leave_out || *size_xattr && session.had_no_crash() {
        return Err(io.damaged(log.end(), "incomplete content at the end of the file"));
    }
    let (file, offset) = (io.lower.name(), log.end());
    tracing::warn!(
        %file,
        offset,
        "ignored incomplete content at the end of a file, which a crash may have left"
    );
    Ok(())
}

/// Classifies a file without a head. If a crash may have lost writes, a head of zeros means that
/// the head was never written. Otherwise the head was lost later, or the file is foreign.
fn classify_unknown(
    io: Io<'_>,
    found: Option<Mark>,
    beginning: &[u8],
    length: u64,
) -> Result<Kind> {
    const SECTOR_BYTES: usize = 512;
    let is_blank = beginning.iter().take(SECTOR_BYTES).all(|byte| *byte == 0);
    let holds = |clean: &Clean| clean.durable || clean.holds(length, &io.settings.session);
    // A trusted or durable size xattr was written only after the head.
    if matches!(&found, Some(Mark::Clean(clean)) if holds(clean)) {
        return Err(io.damaged(0, "a missing head, although the file was closed cleanly"));
    }
    match (found, is_blank) {
        (None, false) => Ok(Kind::Foreign),
        (None, true) if !io.settings.session.pure => Ok(Kind::Foreign),
        (Some(_), false) => Err(io.damaged(0, "no valid identity, slot or first frame")),
        (_, true) => {
            let identity = Identity {
                codec: io.settings.codec,
                chunk_log2: io.settings.chunk_log2,
                file_id: io.settings.new_file_id(io.request, io.lower.ino),
            };
            let mut log = Log::new(identity);
            if length > log.end() {
                log.journal.note_behind(Behind::Unknown(log.end()..length));
            }
            tracing::warn!(
                file = %io.lower.name(),
                "a crash lost all content of a file, which is now empty"
            );
            Ok(Kind::Stored(Box::new(log)))
        }
    }
}
