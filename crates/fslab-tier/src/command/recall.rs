//! Recalling files on a user's command.
//!
//! The command requests the blocks of several files before it waits for the first file. So the
//! queue can choose an order, and small files keep all recall threads busy.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::{FileSystem, Ino, Request};

use super::Execution;
use crate::engine::{FileUse, RECALLED_TOGETHER, Tier, WalkEntry};
use crate::error::{Error, Result, shown};
use crate::event::{EventSink, report_done, report_problem};
use crate::lower::{Found, own_request};
use crate::parallel::drop_by;
use crate::rate_limit::RateLimit;
use crate::stored::format::{blocks_met, blocks_of};
use crate::stored::{BLOCK_BYTES, Version};

/// Maximum number of blocks that are requested at once; the blocks of the last file may exceed this
/// limit. The limit is low, because requested blocks may still be recalled after the command was
/// interrupted.
const BLOCKS_MAX: u64 = 64;

/// Number of recalled files that are closed together. Closing a file syncs it and records that it
/// is resident. Lower file systems perform several syncs at once.
const CLOSED_TOGETHER: usize = 256;

/// Number of threads that close files. It does not depend on the number of processors, because the
/// threads mostly wait for syncs.
const THREADS: usize = 8;

impl Execution<'_> {
    /// Recalls files and waits for them, within the rate limit if there is one.
    pub(super) fn recall(
        &mut self,
        paths: &[Vec<u8>],
        range: Option<(u64, u64)>,
        limit: Option<&RateLimit>,
    ) -> Result<()> {
        let (tier, request, blocks) = (self.tier, self.request, blocks_asked(range));
        let (asked, recalled) = (VecDeque::new(), Vec::new());
        let mut round = Round { tier, blocks, request, asked, waiting: 0, recalled };
        let mut found = Vec::new();
        let walked = self.each_file(paths, &mut |place, tell| {
            if let Some(limit) = limit {
                return round.one_by_one(place, limit, tell);
            }
            let part = tier.offline_part(place, &round.blocks)?;
            found.push((place.path.to_vec(), part.map(|(version, ..)| version)));
            let is_enough = found.len() >= RECALLED_TOGETHER;
            if is_enough { round.ask_all(&mut found, tell) } else { Ok(()) }
        });
        if !matches!(walked, Err(Error::Interrupted)) {
            round.ask_all(&mut found, self.tell)?;
            while !round.asked.is_empty() {
                round.finish_first(self.tell)?;
            }
        }
        walked
    }
}

/// Returns the blocks of a range of bytes; all blocks without a range.
pub(super) fn blocks_asked(range: Option<(u64, u64)>) -> Range<u64> {
    range.map_or(0..u64::MAX, |(offset, length)| blocks_met(offset, length))
}

/// The path of a file, and its version if a part of it seemed to be offline.
type FoundFile = (Vec<u8>, Option<Version>);

/// A file whose blocks were requested.
struct Asked {
    used: FileUse,
    /// Keeps the inode's lookup reference until the file is processed.
    _found: Found,
    path: Vec<u8>,
    size: u64,
    resident_before: u64,
    /// Number of requested blocks.
    blocks: u64,
}

struct Round<'a> {
    tier: &'a Arc<Tier>,
    blocks: Range<u64>,
    request: &'a Request,
    /// The requested files, in the order of the requests.
    asked: VecDeque<Asked>,
    /// Total number of requested blocks of the files in `asked`.
    waiting: u64,
    /// Recalled files that are closed next.
    recalled: Vec<Asked>,
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        drop_by(THREADS, std::mem::take(&mut self.recalled));
    }
}

impl Round<'_> {
    /// Reads the objects of bundles together, and requests the blocks of all files. Reports the
    /// errors of files.
    fn ask_all(&mut self, found: &mut Vec<FoundFile>, tell: &mut EventSink<'_>) -> Result<()> {
        let found = std::mem::take(found);
        let versions = found.iter().filter_map(|(_, version)| version.as_ref());
        self.tier.prefetch(self.tier.bundled_objects(versions), self.request)?;
        found.iter().try_for_each(|(path, _)| {
            self.request.cancellation.check().or(Err(Error::Interrupted))?;
            self.ask(path, tell).or_else(|error| report_problem(tell, &error))
        })
    }

    /// Requests the blocks of a file. Then finishes the earliest files, one by one, while
    /// [`Self::has_enough`] returns `true`.
    fn ask(&mut self, path: &[u8], tell: &mut EventSink<'_>) -> Result<()> {
        let mut asked = self.begin(path)?;
        let blocks = self.blocks.clone();
        let wanted = self.tier.ask_in_advance(&asked.used.file, blocks, self.request);
        asked.blocks = wanted.map_err(Error::below(path))?;
        self.waiting += asked.blocks;
        self.asked.push_back(asked);
        while self.has_enough() {
            self.finish_first(tell)?;
        }
        Ok(())
    }

    /// Returns whether to finish the first file before more blocks are requested. Returns `true` if
    /// that file is already resident, or if too many blocks or files are waiting.
    fn has_enough(&self) -> bool {
        let is_here = self.asked.front().is_some_and(|first| first.blocks == 0);
        is_here || self.waiting > BLOCKS_MAX || self.asked.len() as u64 > BLOCKS_MAX
    }

    fn begin(&self, path: &[u8]) -> Result<Asked> {
        let below = || Error::below(path);
        let found = Found::at(self.tier.lower(), path).map_err(below())?;
        let (used, size) = (self.tier.enter(found.ino()), found.attr.size);
        let resident_before = self.tier.resident_bytes(&used.file, size).map_err(below())?;
        let path = path.to_vec();
        self.check_room(&used, &path)?;
        Ok(Asked { used, _found: found, path, size, resident_before, blocks: 0 })
    }

    /// Fails if a file, together with all requested blocks, does not fit into the lower file
    /// system. A recall that fills the file system would make other programs fail.
    fn check_room(&self, used: &FileUse, path: &[u8]) -> Result<()> {
        let below = || Error::below(path);
        let wanted = self.tier.offline_blocks(&used.file, &self.blocks).map_err(below())?;
        let stat = self.tier.lower().statfs(&own_request(), Ino::ROOT).map_err(below())?;
        let free = stat.blocks_available.saturating_mul(stat.fragment_size.into());
        let awaited = self.waiting * BLOCK_BYTES;
        if wanted == 0 || wanted * BLOCK_BYTES + awaited <= free {
            return Ok(());
        }
        let wanted = wanted * BLOCK_BYTES;
        let others = match awaited {
            0 => String::new(),
            _ => format!(", of which {awaited} are reserved for files that are being recalled"),
        };
        let path = shown(path);
        Err(Error::Refused {
            what: format!(
                "{path}: recalling it needs {wanted} bytes, but the lower file system has {free} \
                 free{others}; release other files first, or recall a part with --range"
            ),
        })
    }

    /// Waits for the file that was requested first, and reports its errors.
    fn finish_first(&mut self, tell: &mut EventSink<'_>) -> Result<()> {
        let Some(asked) = self.asked.pop_front() else { return Ok(()) };
        self.waiting -= asked.blocks;
        let brought = self.bring(&asked, self.blocks.clone());
        let told = brought.and_then(|()| self.tell_recalled(&asked, tell));
        self.recalled.push(asked);
        if self.recalled.len() >= CLOSED_TOGETHER {
            drop_by(THREADS, std::mem::take(&mut self.recalled));
        }
        told.or_else(|error| report_problem(tell, &error))
    }

    fn bring(&self, asked: &Asked, blocks: Range<u64>) -> Result<()> {
        let Asked { used, path, .. } = asked;
        match self.tier.recall_in_bulk(&used.file, path, blocks, self.request) {
            Err(error @ Error::NoCopy { .. }) => {
                Err(Error::Refused { what: format!("{}: {error}", shown(path)) })
            }
            done => done,
        }
    }

    fn tell_recalled(&self, asked: &Asked, tell: &mut EventSink<'_>) -> Result<()> {
        let after = self.tier.resident_bytes(&asked.used.file, asked.size);
        let after = after.map_err(Error::below(&asked.path))?;
        // The subtraction saturates, because other blocks may have been released during the recall.
        match after.saturating_sub(asked.resident_before) {
            0 => Ok(()),
            bytes => report_done(tell, "recalled", &asked.path, bytes),
        }
    }

    /// Recalls the blocks of a file one by one, within the rate limit. Blocks already in the queue
    /// are recalled at the tier's own rate.
    fn one_by_one(
        &self,
        place: &WalkEntry<'_>,
        limit: &RateLimit,
        tell: &mut EventSink<'_>,
    ) -> Result<()> {
        let asked = self.begin(place.path)?;
        let end = self.blocks.end.min(blocks_of(asked.size));
        for block in self.blocks.start..end {
            let is_here = self.tier.is_here(&asked.used.file, block);
            if !is_here.map_err(Error::below(place.path))? {
                limit.pass(BLOCK_BYTES, self.request)?;
                self.bring(&asked, block..block + 1)?;
            }
        }
        self.tell_recalled(&asked, tell)
    }
}
