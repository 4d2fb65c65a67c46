//! A stored file in memory, of four parts that keep their state to themselves: the chunk map says
//! where content is, the journal writes frames, commits make them durable, and garbage is what
//! space is given back of.

use fslab_vfs::Result;

use super::chunk_map::ChunkMap;
use super::commit_state::CommitState;
use super::context::Io;
use super::dead_frames::Garbage;
use super::frame::{Frame, Identity};
use super::journal::Journal;

/// Dead frames are worth a commit from so many bytes on: a shorter file has none that are.
pub const DEAD_BYTES_MIN: u64 = 1 << 20;

/// Where a file must end before anybody looks at it again.
pub struct Looks {
    /// To see whether dead frames are worth a commit.
    pub commit: u64,
    /// To see whether it is to be cleaned.
    pub clean: u64,
}

impl Default for Looks {
    fn default() -> Self {
        Self { commit: DEAD_BYTES_MIN, clean: 0 }
    }
}

/// A stored file.
pub struct Log {
    pub map: ChunkMap,
    pub journal: Journal,
    pub commits: CommitState,
    pub garbage: Garbage,
    pub looks: Looks,
}

impl Log {
    /// A stored file without frames.
    pub fn new(identity: Identity) -> Self {
        Self {
            map: ChunkMap::new(identity),
            journal: Journal::new(identity),
            commits: CommitState::new(),
            garbage: Garbage::default(),
            looks: Looks::default(),
        }
    }

    pub fn identity(&self) -> &Identity {
        self.map.identity()
    }

    /// The logical size.
    pub fn size(&self) -> u64 {
        self.map.size()
    }

    /// Where the next frame goes.
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

    /// Whether the next who opens the file finds what is here without looking at bodies.
    pub fn is_whole(&self) -> bool {
        let is_clear = self.journal.has_head() && self.journal.is_end_clear();
        is_clear && !self.commits.sync_has_failed()
    }

    /// Takes a frame into account that lies behind all others, whether it was just written or was
    /// found by recovery. `payload` is that of metadata.
    ///
    /// # Errors
    /// What loading pages of the index answers; then nothing was changed.
    pub fn apply(&mut self, io: Io<'_>, frame: &Frame, payload: &[u8]) -> Result<()> {
        let retired = self.map.apply(io, frame, payload)?;
        self.garbage.add(retired);
        self.journal.follow(frame);
        self.commits.outdate();
        Ok(())
    }
}
