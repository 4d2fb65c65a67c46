//! The basis of a new version: the file's last version, whose unchanged blocks are not archived
//! again. The new object refers to the objects that contain them, its sources.
//!
//! Every archive that receives a copy of the new object must have all of its sources, because a
//! copy must not depend on another archive.

use std::collections::HashMap;
use std::sync::Arc;

use fslab_vfs::Request;

use crate::archive::Archive;
use crate::catalogue::{ObjectRow, ObjectState};
use crate::engine::Tier;
use crate::error::{Error, Result};
use crate::id::Id;
use crate::object::reader::ObjectReader;
use crate::object::writer::Referred;
use crate::stored::format::{SOURCES_MAX, SourceRecord, blocks_of};
use crate::stored::{BLOCK_BYTES, Residency};

/// A source is used only if its length is at most its needed bytes times this number, plus
/// [`SPARED_BYTES`]. Otherwise its needed blocks are archived again, so that archives do not keep
/// many unneeded bytes.
const NEEDED_FACTOR: u64 = 4;
const SPARED_BYTES: u64 = BLOCK_BYTES;

/// A block that was not changed.
pub(super) enum Unchanged {
    /// It contains only zeros.
    Zeros,
    /// Another object contains it.
    Referred(Referred),
}

/// The last version of a file, and the objects to which a new version can refer.
pub(super) struct Basis {
    reader: ObjectReader,
    sources: Vec<SourceRecord>,
}

impl Basis {
    /// Returns the objects to which the new version may refer.
    pub(super) fn sources(&self) -> &[SourceRecord] {
        &self.sources
    }

    /// Returns the containers of these objects.
    pub(super) fn source_containers(&self) -> Vec<Id> {
        self.sources.iter().map(|source| Id(source.container)).collect()
    }

    /// Returns a block that was not changed, if the new version need not contain it. `length` is
    /// the length of the block in the new version.
    pub(super) fn unread(&self, block: u64, length: u64) -> Result<Option<Unchanged>> {
        if block >= self.reader.blocks() {
            return Ok(None);
        }
        let Some(referred) = self.reader.referred(block)? else {
            return Ok(Some(Unchanged::Zeros));
        };
        let is_usable = u64::from(referred.entry.length.get()) == length
            && self.sources.contains(&referred.source);
        Ok(is_usable.then_some(Unchanged::Referred(referred)))
    }

    /// Like [`Self::unread`], for a block that may have been changed and now has these bytes.
    pub(super) fn same(&self, block: u64, bytes: &[u8]) -> Result<Option<Unchanged>> {
        let is_same = block < self.reader.blocks() && self.reader.block_sum(block)?.is_of(bytes);
        if is_same { self.unread(block, bytes.len() as u64) } else { Ok(None) }
    }
}

impl Tier {
    /// Returns the basis of a new version with `size` bytes, after the version in the residency
    /// `before`; `None` if the new object will contain all blocks.
    ///
    /// # Errors
    /// Errors of the catalogue; [`Error::Interrupted`].
    pub(super) fn basis(
        &self,
        (before, size): (Option<&Residency>, u64),
        archives: &[Arc<dyn Archive>],
        request: &Request,
    ) -> Result<Option<Basis>> {
        let Some(before) = before.filter(|_| self.settings.deltas) else {
            return Ok(None);
        };
        let version = &before.version;
        // A member of a bundle, at an offset above 0, may be moved to another bundle.
        let is_small = version.size.min(size) <= BLOCK_BYTES;
        let is_damaged = self.catalogue.is_damaged(version.object)?;
        if is_small || version.location.offset > 0 || is_damaged {
            return Ok(None);
        }
        let mut reader = None;
        for archive in archives {
            // An archive without the last version can still receive a complete copy.
            match ObjectReader::open_complete(archive, version) {
                Ok(found) => reader = Some(found),
                Err(error) => {
                    tracing::debug!(%error, "all blocks of a file are archived again");
                    return Ok(None);
                }
            }
        }
        let Some(reader) = reader else { return Ok(None) };
        let mut sources = match self.worthwhile_sources(&reader, size, request) {
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => {
                tracing::debug!(%error, "all blocks of a file are archived again");
                return Ok(None);
            }
            Ok(sources) => sources,
        };
        for index in (0..sources.len()).rev() {
            if !self.is_intact_in(&sources[index], archives)? {
                sources.remove(index);
            }
        }
        Ok((!sources.is_empty()).then_some(Basis { reader, sources }))
    }

    /// Returns whether the catalogue records copies of a source in all of these archives, and
    /// neither a scrub nor a recall found it damaged in every archive.
    fn is_intact_in(&self, source: &SourceRecord, archives: &[Arc<dyn Archive>]) -> Result<bool> {
        let object = Id(source.object);
        let row = self.catalogue.get(object)?.filter(|row| row.state != ObjectState::Pending);
        let has = |row: &ObjectRow| {
            archives.iter().all(|archive| row.version.copies.contains(&archive.id()))
        };
        Ok(row.as_ref().is_some_and(has) && !self.catalogue.is_damaged(object)?)
    }

    /// Returns the objects of which the new version needs enough bytes, if no block has changed.
    fn worthwhile_sources(
        &self,
        reader: &ObjectReader,
        size: u64,
        request: &Request,
    ) -> Result<Vec<SourceRecord>> {
        let mut needed: HashMap<[u8; 16], (SourceRecord, u64)> = HashMap::new();
        for block in 0..reader.blocks().min(blocks_of(size)) {
            self.check_going(request)?;
            let Some(referred) = reader.referred(block)? else { continue };
            let (_, bytes) = needed.entry(referred.source.object).or_insert((referred.source, 0));
            *bytes += u64::from(referred.entry.stored_length.get());
        }
        let mut needed: Vec<_> = needed.into_values().collect();
        needed
            .retain(|(source, bytes)| bytes * NEEDED_FACTOR + SPARED_BYTES >= source.length.get());
        needed.sort_by_key(|(source, bytes)| (std::cmp::Reverse(*bytes), source.object));
        needed.truncate(SOURCES_MAX);
        Ok(needed.into_iter().map(|(source, _)| source).collect())
    }
}
