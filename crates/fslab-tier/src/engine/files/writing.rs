//! Writes, truncations and hole punching in partly offline files. Only the blocks at the edges of a
//! change are recalled, because some of their bytes are kept. Blocks that are overwritten
//! completely are not recalled.

use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::{
    Attr, Deferral, Errno, FallocateMode, FileSystem, Handle, Request, Result, SeekTo, SetAttr,
    WriteOptions,
};
use parking_lot::MutexGuard;

use crate::engine::Tier;
use crate::engine::files::residency_xattr::{Durable, PIECES_MAX};
use crate::engine::files::{FileState, TieredFile};
use crate::engine::recall::queue::Class;
use crate::stored::BLOCK_BYTES;
use crate::stored::format::{blocks_met, blocks_of};

/// A range of bytes that is about to be changed.
#[derive(Clone, Copy, Debug)]
struct Change {
    offset: u64,
    length: u64,
    /// Minimum size of the file after the change.
    grows_to: u64,
}

impl Change {
    fn end(self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    /// Returns the blocks whose existing bytes are all overwritten.
    fn covered(self, size: u64) -> Range<u64> {
        let first = self.offset.div_ceil(BLOCK_BYTES);
        let behind =
            if self.end() >= size { blocks_of(self.end()) } else { self.end() / BLOCK_BYTES };
        first..behind.max(first)
    }

    /// Returns the blocks that must be resident before the change, because some of their bytes are
    /// kept. There are at most three.
    fn edges(self, size: u64) -> impl Iterator<Item = u64> {
        let covered = self.covered(size);
        let met = blocks_met(self.offset, self.length);
        let ends =
            [met.start, met.end.saturating_sub(1)].map(|block| (!met.is_empty()).then_some(block));
        let grows = self.grows_to > size && !size.is_multiple_of(BLOCK_BYTES);
        let last = grows.then_some(size / BLOCK_BYTES);
        let blocks = ends.into_iter().chain([last]).flatten();
        blocks.filter(move |block| !covered.contains(block))
    }
}

impl Tier {
    /// Prepares a file for a change and locks its state. The blocks at the edges of the change are
    /// then resident, and the file is marked as changed. Also returns the size of the file and the
    /// change.
    fn ready<'a>(
        &self,
        file: &'a Arc<TieredFile>,
        request: &Request,
        change: impl Fn(u64) -> Change,
    ) -> Result<(MutexGuard<'a, FileState>, u64, Change)> {
        loop {
            let mut state = self.state(file)?;
            let size = self.attr_below(file.ino(), None)?.size;
            let change = change(size);
            match missing(&state, change, size) {
                Some(blocks) => {
                    drop(state);
                    self.recall(file, blocks, request, Class::Waiting)?;
                }
                None => {
                    self.mark_changed(&mut state)?;
                    if change.grows_to > size {
                        self.record_before_growth(&mut state, size)?;
                    }
                    return Ok((state, size, change));
                }
            }
        }
    }

    /// Writes to a file.
    ///
    /// # Errors
    /// Errors of recalling the edges, and of the lower file.
    pub fn write(
        &self,
        file: &Arc<TieredFile>,
        request: &Request,
        handle: Handle,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<usize> {
        let length = data.len() as u64;
        let (mut state, size, change) = self.ready(file, request, |size| {
            let offset = if options.append { size } else { offset };
            Change { offset, length, grows_to: offset.saturating_add(length) }
        })?;
        let options = options.placed();
        let done =
            self.lower.write(request, file.ino(), handle, change.offset, data, options)? as u64;
        let written = Change { length: done, ..change };
        match self.now_here(&mut state, written, size)? {
            Some(partly) => {
                // The write ended within this offline block. The block is recalled, and then the
                // part of the data that belongs to the block is written again.
                drop(state);
                let begun = partly * BLOCK_BYTES;
                if begun > change.offset {
                    return Ok((begun - change.offset) as usize);
                }
                // This recall is not deferred, because a deferred append would be performed again
                // from the start, at a new offset.
                let request = &Request { deferral: Deferral::default(), ..request.clone() };
                self.recall(file, partly..partly + 1, request, Class::Waiting)?;
                self.write(file, request, handle, change.offset, data, options)
            }
            None => Ok(done as usize),
        }
    }

    /// Records which blocks were overwritten completely and are now resident. After a short write,
    /// returns the offline block that was overwritten in part.
    fn now_here(&self, state: &mut FileState, written: Change, size: u64) -> Result<Option<u64>> {
        let covered = written.covered(size);
        let touched = blocks_met(written.offset, written.length);
        let Some(known) = state.known_mut() else { return Ok(None) };
        self.forget_in_memory(known, touched.clone());
        known.offline.remove(covered);
        if known.recorded.offline.meets(touched.clone()) {
            self.record(state, Durable::Later)?;
        }
        let known = state.known();
        Ok(known.and_then(|known| known.offline.first_in(touched)))
    }

    /// Changes the size of a file, and the other requested attributes.
    ///
    /// # Errors
    /// Errors of recalling the edge, and of the lower file.
    pub fn resize(
        &self,
        file: &Arc<TieredFile>,
        request: &Request,
        handle: Option<Handle>,
        size: u64,
        changes: &SetAttr,
    ) -> Result<Attr> {
        let (mut state, ..) = self.ready(file, request, |before| {
            // The beginning of the block that contains the new end is kept.
            let cuts = size < before && !size.is_multiple_of(BLOCK_BYTES);
            let length = if cuts { 1 } else { 0 };
            Change { offset: size.saturating_sub(length), length, grows_to: size }
        })?;
        let attr = self.lower.setattr(request, file.ino(), handle, changes)?;
        if let Some(known) = state.known_mut() {
            known.offline.cut(blocks_of(size));
        }
        Ok(attr)
    }

    /// Records that opening the lower file truncated it to zero bytes.
    pub(crate) fn emptied(&self, state: &mut FileState) -> Result<()> {
        if let Some(known) = state.known_mut() {
            known.offline.cut(0);
            return self.record(state, Durable::Now);
        }
        Ok(())
    }

    /// Reserves, punches, zeroes, collapses or inserts a range of a file.
    ///
    /// # Errors
    /// Errors of recalls and of the lower file.
    pub fn fallocate(
        &self,
        file: &Arc<TieredFile>,
        request: &Request,
        handle: Handle,
        (offset, length): (u64, u64),
        mode: FallocateMode,
    ) -> Result<()> {
        if mode.intersects(FallocateMode::COLLAPSE_RANGE | FallocateMode::INSERT_RANGE) {
            self.recall(file, 0..u64::MAX, request, Class::Waiting)?;
        }
        let zeroes = mode.intersects(FallocateMode::PUNCH_HOLE | FallocateMode::ZERO_RANGE);
        let (mut state, size, change) = self.ready(file, request, |size| {
            let end = offset.saturating_add(length);
            let grows_to = if mode.contains(FallocateMode::KEEP_SIZE) { size } else { end };
            // Reserving space changes no bytes.
            let length = if zeroes { length } else { 0 };
            Change { offset, length, grows_to }
        })?;
        let moves = mode.intersects(FallocateMode::COLLAPSE_RANGE | FallocateMode::INSERT_RANGE);
        if moves && state.known().is_some_and(|known| !known.is_resident()) {
            self.record(&mut state, Durable::Now)?;
        }
        self.lower.fallocate(request, file.ino(), handle, offset, length, mode)?;
        if zeroes {
            self.now_here(&mut state, change, size)?;
        }
        Ok(())
    }

    /// Copies a range into a file, from another file or from the same one.
    ///
    /// # Errors
    /// Errors of recalls and of the lower files. `EIO` if a failed sync has lost blocks of the
    /// source.
    pub fn copy(
        &self,
        request: &Request,
        (source_file, source, source_offset): (&Arc<TieredFile>, Handle, u64),
        (target_file, target, target_offset): (&Arc<TieredFile>, Handle, u64),
        length: u64,
    ) -> Result<u64> {
        let (from, to) = (source_file.ino(), target_file.ino());
        let size = self.attr_below(from, None)?.size;
        let length = length.min(size.saturating_sub(source_offset)).min(COPY_BYTES_MAX);
        self.recall(source_file, blocks_met(source_offset, length), request, Class::Waiting)?;
        // All target blocks are recalled, because a copy that ends early must not leave an offline
        // block with some of the copied bytes.
        self.recall(target_file, blocks_met(target_offset, length), request, Class::Waiting)?;
        let (mut state, ..) = self.ready(target_file, request, |_| Change {
            offset: target_offset,
            length,
            grows_to: target_offset.saturating_add(length),
        })?;
        let (source, target) = ((from, source, source_offset), (to, target, target_offset));
        let done = self.lower.copy_file_range(request, source, target, length)?;
        let touched = blocks_met(target_offset, done);
        if state.known().is_some_and(|known| known.recorded.offline.meets(touched)) {
            self.record(&mut state, Durable::Later)?;
        }
        drop(state);
        if self.state(source_file)?.has_lost(blocks_met(source_offset, done)) {
            return Err(Errno::IO.into());
        }
        Ok(done)
    }

    /// Returns the offset of the next data or hole; offline blocks are treated as data.
    ///
    /// # Errors
    /// `ENXIO` past the end or the last data, as for any file; errors of the lower file.
    pub fn seek(
        &self,
        file: &TieredFile,
        request: &Request,
        handle: Handle,
        offset: u64,
        to: SeekTo,
    ) -> Result<u64> {
        let state = self.state(file)?;
        let below = |at| self.lower.lseek(request, file.ino(), handle, at, to);
        let Some(known) = state.known().filter(|known| !known.offline.is_empty()) else {
            return below(offset);
        };
        let size = self.attr_below(file.ino(), Some(handle))?.size;
        if offset >= size {
            return Err(Errno::NXIO.into());
        }
        let offline = &known.offline;
        match to {
            SeekTo::Data => {
                let next = offline.first_in(offset / BLOCK_BYTES..blocks_of(size));
                let next = next.map(|block| (block * BLOCK_BYTES).max(offset));
                match (below(offset), next) {
                    (Ok(data), next) => Ok(next.map_or(data, |next| next.min(data))),
                    (Err(error), Some(next)) if error.errno() == Errno::NXIO => Ok(next),
                    (answer, _) => answer,
                }
            }
            SeekTo::Hole => {
                let mut at = offset;
                while at < size {
                    let found = below(at)?;
                    let behind = offline.end_of_run(found / BLOCK_BYTES) * BLOCK_BYTES;
                    if found >= size || behind <= found {
                        return Ok(found.min(size));
                    }
                    at = behind;
                }
                Ok(size)
            }
        }
    }
}

/// Maximum number of bytes that one call copies; the caller then calls again.
const COPY_BYTES_MAX: u64 = 16 << 20;

/// Returns the blocks to recall next before a change: first the offline edges, one by one. If the
/// file then still has as many runs of offline blocks as the xattr can record, the smallest run is
/// recalled, too.
fn missing(state: &FileState, change: Change, size: u64) -> Option<Range<u64>> {
    let offline = &state.known()?.offline;
    let edge = change.edges(size).find(|block| offline.contains(*block));
    let edge = edge.map(|block| block..block + 1);
    edge.or_else(|| offline.smallest().filter(|_| offline.pieces() >= PIECES_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(offset: u64, length: u64, size: u64, edges: &[u64], covered: Range<u64>) {
        let scale = BLOCK_BYTES / 4;
        let (offset, length, size) = (offset * scale, length * scale, size * scale);
        let change = Change { offset, length, grows_to: offset + length };
        let mut found: Vec<u64> = change.edges(size).collect();
        found.dedup();
        assert_eq!((&found[..], change.covered(size)), (edges, covered));
    }

    /// Offset, length and size are in quarters of a block.
    #[test]
    fn only_partly_overwritten_blocks_are_edges() {
        check(0, 4, 40, &[], 0..1);
        check(1, 4, 40, &[0, 1], 1..1);
        check(1, 11, 40, &[0], 1..3);
        check(4, 9, 40, &[3], 1..3);
        check(4, 6, 10, &[], 1..3);
        check(5, 5, 10, &[1], 2..3);
        check(12, 4, 10, &[2], 3..4);
        check(13, 2, 10, &[3, 2], 4..4);
        check(8, 8, 10, &[], 2..4);
        check(12, 4, 8, &[], 3..4);
    }
}
