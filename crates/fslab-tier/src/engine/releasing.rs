//! Freeing the bytes of a file that archives hold.

use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::{FileKind, Ino};

use super::file::{FileState, TieredFile};
use super::marks::Durable;
use super::takers::check_own;
use super::{Tier, marks::PIECES_MAX};
use crate::archive::ContainerKind;
use crate::error::{Error, Result};
use crate::lower::SECTOR_BYTES;
use crate::runs::Runs;
use crate::stored::format::blocks_of;
use crate::stored::{BLOCK_BYTES, Residency, Version};

/// What a release did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Bytes that are offline now and were not before.
    pub bytes: u64,
    /// Space of the file system below that is free now, in bytes: holes had none.
    pub freed: u64,
}

impl Tier {
    /// Frees the bytes of a file, but for its first `kept` blocks.
    ///
    /// # Errors
    /// Where it is in use, was changed since it was archived, or too few archives hold it.
    pub fn release(self: &Arc<Self>, ino: Ino, path: &[u8], kept: u64) -> Result<Released> {
        let file_use = self.enter(ino);
        let (file, below) = (&file_use.file, || Error::below(path));
        self.settle(file).map_err(below())?;
        let version = {
            let state = self.state(file).map_err(below())?;
            self.may_release(file, &state, path)?
        };
        // An archive may hang: whoever uses the file meanwhile does not wait for that.
        self.have_copies(&version)?;
        let wanted = self.with_data(file, kept..blocks_of(version.size)).map_err(below())?;
        let (mut state, _alone) = self.lock_alone(file, path, version.object)?;
        let present = state.known().map_or(0, |known| known.offline.pieces());
        let wanted: Runs = wanted.iter().take(PIECES_MAX.saturating_sub(present)).collect();
        if wanted.is_empty() {
            return Ok(Released::default());
        }
        let bytes = (wanted.count() * BLOCK_BYTES).min(version.size);
        let before = self.attr_below(ino, None).map_err(below())?.blocks;
        self.make_offline(file, &mut state, &wanted).map_err(below())?;
        let after = self.attr_below(ino, None).map_err(below())?.blocks;
        // A file system that tells no blocks may have freed all of it.
        let freed = if before == 0 { bytes } else { before.saturating_sub(after) * SECTOR_BYTES };
        self.counted.released(freed);
        Ok(Released { bytes, freed })
    }

    /// The version that archives are said to hold, if the file may lose its bytes.
    pub(super) fn may_release(
        &self,
        file: &TieredFile,
        state: &FileState,
        path: &[u8],
    ) -> Result<Version> {
        let not_now = not_now(path);
        let known = state.known().ok_or_else(|| not_now("was never archived"))?;
        if state.handles > 0 || state.is_archiving {
            return Err(Error::busy(path, "is in use"));
        }
        if known.recorded.changed {
            return Err(Error::busy(path, "was changed since it was archived"));
        }
        let version = &known.recorded.version;
        let attr = self.attr_below(file.ino(), None);
        let attr = attr.map_err(Error::below(path))?;
        let is_same = (attr.size, attr.modified) == (version.size, version.modified);
        if attr.kind != FileKind::Regular || !is_same {
            return Err(not_now("was changed behind the mount since it was archived"));
        }
        if !known.is_in_order() {
            return Err(Error::busy(path, "is being recalled"));
        }
        Ok(version.clone())
    }

    /// Whether enough archives hold a version now: each is asked for its description and table.
    fn have_copies(&self, version: &Version) -> Result<()> {
        self.look_for_archives();
        let (mut whole, mut problem) = (0, None);
        for archive in self.own_holders(version) {
            archive.forget(ContainerKind::Files, version.location.container);
            match crate::stored::reader::ObjectReader::open(&archive, version) {
                Ok(_) => whole += 1,
                Err(error) => problem = Some(error),
            }
        }
        if whole >= self.settings.copies {
            return Ok(());
        }
        self.holders(version).iter().try_for_each(check_own)?;
        let (wanted, missing) = (self.settings.copies, self.missing_holders(version));
        Err(problem.unwrap_or(Error::TooFewCopies { wanted, found: whole, missing }))
    }

    /// The runs of blocks that are here and not mere holes, not many more than a residency can
    /// name: a file may have any number.
    fn with_data(&self, file: &TieredFile, blocks: Range<u64>) -> fslab_vfs::Result<Runs> {
        let own = self.open_to_read(file)?;
        let (mut runs, mut next) = (Runs::new(), blocks.start);
        while next < blocks.end && runs.pieces() <= PIECES_MAX {
            let Some(data) = own.next_data(next * BLOCK_BYTES)? else { break };
            let first = data / BLOCK_BYTES;
            if first >= blocks.end {
                break;
            }
            let hole = own.next_hole(data)?.unwrap_or(u64::MAX);
            next = hole.div_ceil(BLOCK_BYTES).clamp(first + 1, blocks.end);
            runs.insert(first..next);
        }
        Ok(runs)
    }

    fn make_offline(
        &self,
        file: &TieredFile,
        state: &mut FileState,
        runs: &Runs,
    ) -> fslab_vfs::Result<()> {
        let own = state.own(self, file.ino())?;
        let privileges = own.privileges(&own.attr()?)?;
        // Who can't give them back takes none away.
        own.give_back(&privileges)?;
        let Some(known) = state.known() else { return Ok(()) };
        let version = known.recorded.version.clone();
        let mut offline = known.offline.clone();
        runs.iter().for_each(|run| offline.insert(run));
        let residency = Residency { moving: true, offline, ..known.recorded.clone() };
        self.write_mark(file, state, residency.clone(), Durable::Now)?;
        if let Some(known) = state.known_mut() {
            known.offline = residency.offline.clone();
        }
        let own = state.own(self, file.ino())?;
        let punch = |run: Range<u64>| {
            own.punch(run.start * BLOCK_BYTES, (run.end - run.start) * BLOCK_BYTES)
        };
        let punched = runs.iter().try_for_each(punch);
        own.set_modified(version.modified)?;
        own.give_back(&privileges)?;
        self.write_mark(file, state, Residency { moving: false, ..residency }, Durable::Later)?;
        // Whatever was not freed is recalled like the rest.
        punched
    }
}

fn not_now(path: &[u8]) -> impl Fn(&'static str) -> Error {
    let path = crate::error::shown(path);
    move |why| Error::NotNow { path: path.clone(), why }
}
