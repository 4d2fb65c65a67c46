//! Visits all chunks of a stored file in slices, between which others may use the file.

use fslab_vfs::Result;

use super::commit::{Stepped, Steps, Stop};
use super::context::Io;
use super::log::Log;

/// Number of chunks in a slice. Four index pages cover them.
const SLICE_CHUNKS: usize = 512;

/// Visits each chunk with content, in ascending order, and then calls `end`.
///
/// # Errors
/// [`Stop::Gone`] if the file is changed between two slices, or before `end`.
pub fn visit_in_steps<T>(
    file: &impl Steps,
    mut visit: impl FnMut(Io<'_>, &Log, u64) -> Result<()>,
    end: impl FnOnce(&Log) -> T,
) -> Stepped<T> {
    let sequence = file.look(|_, log| Ok(log.journal.sequence()))?;
    let mut next = Some(0);
    while let Some(from) = next {
        let slice = file.look(|io, log| {
            let is_same = log.journal.sequence() == sequence;
            is_same.then(|| visit_some(io, log, from, &mut visit)).transpose()
        })?;
        next = slice.ok_or(Stop::Gone)?;
    }
    let ended = file.look(|_, log| Ok((log.journal.sequence() == sequence).then(|| end(log))))?;
    ended.ok_or(Stop::Gone)
}

/// Visits each chunk with content of a file that no other thread changes.
pub fn visit(
    io: Io<'_>,
    log: &Log,
    mut visit: impl FnMut(Io<'_>, &Log, u64) -> Result<()>,
) -> Result<()> {
    let mut next = Some(0);
    while let Some(from) = next {
        next = visit_some(io, log, from, &mut visit)?;
    }
    Ok(())
}

/// Visits a slice; returns where the next one begins, or `None` at the end.
fn visit_some(
    io: Io<'_>,
    log: &Log,
    from: u64,
    visit: &mut impl FnMut(Io<'_>, &Log, u64) -> Result<()>,
) -> Result<Option<u64>> {
    let mut next = Some(from);
    for _ in 0..SLICE_CHUNKS {
        let Some(from) = next else { break };
        let chunk = log.map.next_present(io, from)?;
        chunk.map_or(Ok(()), |chunk| visit(io, log, chunk))?;
        next = chunk.map(|chunk| chunk + 1);
    }
    log.map.trim();
    Ok(next)
}
