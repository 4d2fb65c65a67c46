//! Reading one block from the archives with copies of it. If all copies that can be reached are in
//! cold storage, one archive begins to stage its copy.

use std::io::ErrorKind;
use std::sync::Arc;

use fslab_vfs::{Errno, Result};

use crate::archive::{Archive, ContainerKind, Staged};
use crate::engine::Tier;
use crate::engine::copies::combined::CombinedCopies;
use crate::engine::files::TieredFile;
use crate::engine::recall::cold_storage::{Asker, MayStage, Staging};
use crate::id::Id;
use crate::object::reader::whole_to_read;
use crate::stored::{BLOCK_BYTES, Version};

/// The result of fetching a block.
pub(in crate::engine) enum Fetched {
    /// The bytes of the block.
    Block(Vec<u8>),
    /// All archives that contain the block are unavailable.
    Unavailable,
    /// All readable archives that contain the block have it in cold storage.
    Cold(Staging),
}

/// An archive that has a block in cold storage, and the container of the block.
type ColdCopy = (Arc<dyn Archive>, Id);

/// Why no archive returned a block.
#[derive(Default)]
struct Unread {
    /// The copies in cold storage.
    cold: Vec<ColdCopy>,
    /// The unavailable archives with a recorded copy.
    unavailable: Vec<Id>,
    /// An archive with a recorded copy failed.
    has_failed: bool,
}

impl Tier {
    /// Returns a block from the first available archive with an intact copy of it, or combined from
    /// several damaged copies. If no archive has a readable copy, starts to stage a copy in cold
    /// storage, as far as `may_stage` permits this. The result is [`Fetched::Unavailable`] only if
    /// an archive with a recorded copy is unavailable, no other archive with a recorded copy
    /// failed, and no copy is in cold storage.
    pub(in crate::engine) fn fetch(
        &self,
        file: &TieredFile,
        version: &Version,
        block: u64,
        may_stage: MayStage,
    ) -> Result<Fetched> {
        let holders = self.may_hold(version);
        let unread = match self.read_from_any(&holders, file, version, block) {
            Ok(bytes) => return Ok(Fetched::Block(bytes)),
            Err(unread) => unread,
        };
        let Unread { cold, unavailable, has_failed } = &unread;
        if cold.is_empty() && !unavailable.is_empty() && !has_failed {
            return Ok(Fetched::Unavailable);
        }
        let are_several = holders.len() - cold.len() >= 2;
        if are_several
            && (*has_failed || cold.is_empty())
            && let Some(bytes) = self.combined(file, version, block, holders)
        {
            return Ok(Fetched::Block(bytes));
        }
        if cold.is_empty() {
            self.note_damaged(version);
            return Err(Errno::IO.into());
        }
        let MayStage::For(asker) = may_stage else { return Ok(Fetched::Cold(Staging::NotYet)) };
        match self.stage(unread, asker, || self.name_of_block(file, block))? {
            Some(staging) => Ok(Fetched::Cold(staging)),
            // The block became readable just now.
            None => self.fetch(file, version, block, MayStage::No),
        }
    }

    /// Reads a block from the first archive with an intact copy of it.
    fn read_from_any(
        &self,
        holders: &[Arc<dyn Archive>],
        file: &TieredFile,
        version: &Version,
        block: u64,
    ) -> std::result::Result<Vec<u8>, Unread> {
        // Whether an archive is unavailable is determined before the archives are read, because it
        // may become available during the reads.
        let is_said_to_hold = |archive: &Arc<dyn Archive>| version.copies.contains(&archive.id());
        let mut anywhere = self.holders_anywhere(version);
        anywhere.retain(|archive| holders.iter().all(|other| other.id() != archive.id()));
        let unavailable: Vec<Id> = anywhere.iter().map(|archive| archive.id()).collect();
        if unavailable.is_empty()
            && let Err(error) = self.is_there(version)
        {
            tracing::error!("{}: {error}", self.name(file.ino()));
        }
        let mut unread = Unread { unavailable, ..Unread::default() };
        for archive in holders {
            let read = self.reader(archive, version).and_then(|reader| {
                if let Some(limit) = &self.recalls.limit {
                    limit.charge(reader.stored_bytes(block)?);
                }
                reader.block(block)
            });
            let error = match read {
                Ok(bytes) => {
                    self.recalls.cold_storage.note_read(archive.id());
                    // The reader has the whole object in memory, and has no other block.
                    if whole_to_read(version).is_some() {
                        self.recalls.readers.remove(&(archive.id(), version.object));
                    }
                    return Ok(bytes);
                }
                Err(error) => error,
            };
            if let Some(container) = error.cold_container() {
                unread.cold.push((Arc::clone(archive), container));
            } else if error.is_unavailable() {
                unread.unavailable.extend(is_said_to_hold(archive).then(|| archive.id()));
            } else if is_said_to_hold(archive) || unread.unavailable.is_empty() {
                // Archives without a recorded copy are tried, too, but their failures are expected.
                unread.has_failed |= is_said_to_hold(archive);
                self.recalls.readers.remove(&(archive.id(), version.object));
                tracing::error!("{}: {error}", self.name_of_block(file, block));
            }
        }
        Err(unread)
    }

    /// Returns a block that is combined from the intact parts of several copies, if they make up
    /// the whole block.
    fn combined(
        &self,
        file: &TieredFile,
        version: &Version,
        block: u64,
        holders: Vec<Arc<dyn Archive>>,
    ) -> Option<Vec<u8>> {
        let name = self.name_of_block(file, block);
        match CombinedCopies::block(holders, version, block) {
            Ok(bytes) => {
                tracing::warn!("{name}: the block was recovered from several damaged copies");
                Some(bytes)
            }
            Err(error) => {
                tracing::error!("{name}: no intact copy could be read: {error}");
                None
            }
        }
    }

    /// Records that a block of a version can't be read from any archive, so that no later version
    /// refers to it.
    fn note_damaged(&self, version: &Version) {
        if let Err(error) = self.catalogue.note_damaged(version.object, true) {
            tracing::error!(%error, "can't record that an archived version is damaged");
        }
    }

    pub(super) fn name_of_block(&self, file: &TieredFile, block: u64) -> String {
        let (name, offset) = (self.name(file.ino()), block * BLOCK_BYTES);
        format!("{name}, block {block} at offset {offset}")
    }
    /// Starts to stage one of several copies of a block: in the archive that has begun to do so, or
    /// else in the first one that accepts this. Returns `None` if a copy can be read now. Fails if
    /// all archives refuse.
    fn stage(
        &self,
        unread: Unread,
        asker: Asker,
        name: impl Fn() -> String,
    ) -> Result<Option<Staging>> {
        let Unread { mut cold, unavailable, .. } = unread;
        let decisions = &self.recalls.cold_storage;
        let has_begun =
            |(archive, container): &ColdCopy| decisions.begun_in(*container) == Some(archive.id());
        let must_wait = decisions.must_wait(&unavailable, asker, self.around.clock.now_ns());
        if must_wait && !cold.iter().any(has_begun) {
            return Ok(Some(Staging::NotYet));
        }
        cold.sort_by_key(|copy| !has_begun(copy));
        for (archive, container) in &cold {
            match archive.stage((ContainerKind::Files, *container)) {
                Ok(Staged::Later(later)) => {
                    decisions.note_begun(*container, archive.id());
                    return Ok(Some(Staging::Begun(later)));
                }
                Ok(Staged::Ready) => return Ok(None),
                Err(error) if error.kind() == ErrorKind::NotConnected => {
                    return Ok(Some(Staging::NotYet));
                }
                Err(error) => {
                    tracing::error!(
                        "{}: the archive {} can't restore object {container} from cold storage: \
                         {error}",
                        name(),
                        archive.label()
                    );
                }
            }
        }
        if unavailable.is_empty() { Err(Errno::IO.into()) } else { Ok(Some(Staging::NotYet)) }
    }
}
