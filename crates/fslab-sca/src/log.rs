//! A stored file in memory. It has four parts with private state. The chunk map locates content,
//! and the journal writes frames. The commit state records which frames are durable, and the
//! garbage records the space to be freed.

use fslab_vfs::Result;

use super::chunk_map::ChunkMap;
use super::commit_state::CommitState;
use super::context::Io;
use super::dead_frames::Garbage;
use super::frame::{Frame, Identity};
use super::journal::Journal;
use super::next_checks::NextChecks;
use super::staging_area::Staging;

/// A stored file.
pub struct Log {
    pub map: ChunkMap,
    pub journal: Journal,
    pub commits: CommitState,
    pub garbage: Garbage,
    pub next_checks: NextChecks,
    pub staging: Staging,
}

impl Log {
    /// A stored file without frames.
    pub fn new(identity: Identity) -> Self {
        Self {
            map: ChunkMap::new(identity),
            journal: Journal::new(identity),
            commits: CommitState::new(),
            garbage: Garbage::default(),
            next_checks: NextChecks::default(),
            staging: Staging::default(),
        }
    }

    pub fn identity(&self) -> &Identity {
        self.map.identity()
    }

    /// The logical size.
    pub fn size(&self) -> u64 {
        self.map.size()
    }

    /// Returns the offset of the next frame.
    pub fn end(&self) -> u64 {
        self.journal.end()
    }

    /// Whether anything was written that is not known to be durable.
    pub fn is_unsynced(&self) -> bool {
        self.commits.is_unsynced(self.journal.writes())
    }

    /// Whether ordinary tools decode the file to exactly its content.
    pub fn is_packed(&self) -> bool {
        self.map.is_complete() && self.journal.ends_well()
    }

    /// Whether the next mount or tool can open the file without reading frame bodies.
    pub fn is_whole(&self) -> bool {
        let is_clear = self.journal.has_head() && self.journal.is_end_clear();
        is_clear && !self.commits.sync_has_failed()
    }

    /// Applies a frame that follows all others, whether it was just written or found by recovery.
    /// `payload` is the payload of a metadata frame.
    ///
    /// # Errors
    /// Errors of loading index pages. After an error, the log is unchanged.
    pub fn apply(&mut self, io: Io<'_>, frame: &Frame, payload: &[u8]) -> Result<()> {
        let retired = self.map.apply(io, frame, payload)?;
        self.garbage.add(retired);
        self.journal.follow(frame);
        self.commits.outdate();
        Ok(())
    }
}
