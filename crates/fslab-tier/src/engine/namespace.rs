//! Archiving the names and attributes of a whole tree, so that an archive alone is enough to make
//! the tree again.
//!
//! The tree is an object like a file's: its contents are entries, one behind the other. It is
//! written while the tree is in use; what changes meanwhile is in the next one.

use std::collections::HashSet;
use std::sync::Arc;

use fslab_vfs::{FileKind, Request};

use super::Tier;
use super::walk::Visit;
use crate::archive::{Archive, ContainerKind};
use crate::catalogue::ObjectState;
use crate::error::{Error, Result, shown};
use crate::id::Id;
use crate::lower::Found;
use crate::spool::Spool;
use crate::stored::format::KIND_TREE;
use crate::stored::residency::Unreadable;
use crate::stored::writer::{Heading, ObjectWriter};
use crate::stored::{TreeEntry, Version};

/// Trees that each archive keeps.
const TREES_KEPT: usize = 3;

impl Tier {
    /// Writes the tree as it is into every archive that takes copies; answers its entries.
    ///
    /// # Errors
    /// What the file system below or an archive answers.
    pub fn archive_tree(self: &Arc<Self>, request: &Request) -> Result<u64> {
        let (mut spool, sequence) = (Spool::default(), self.tree_sequence()?);
        let mut entries = 0;
        self.walk(b"", request, &mut |place| {
            let archived = self.archived_as(place.found, place.path)?;
            match self.tree_entry(place.found, place.path, archived) {
                Ok(entry) => {
                    entries += 1;
                    spool.put(&entry.encode())?;
                }
                Err(error) => tracing::warn!("left out of the archived tree: {error}"),
            }
            Ok(Visit::Into)
        })?;
        let archives = self.chosen_archives()?;
        for archive in &archives {
            let made = self.put_tree(archive, sequence, &mut spool, request)?;
            self.drop_old_trees(archive, made)?;
        }
        Ok(entries)
    }

    /// A number below those of all objects that the tree may not name yet: of what is on its way
    /// while the tree is walked, too. Versions that only move to another object are no younger for
    /// it, and are found wherever they lie: a tree that stood behind them would look outdated.
    fn tree_sequence(&self) -> Result<u64> {
        let drawn = self.catalogue.next_sequence(self.around.calendar.now())?;
        let (mut pending, mut settled) = (HashSet::new(), HashSet::new());
        self.catalogue.for_each(&mut |row| {
            // What an engine before this one left may be named by the file: the walk tells.
            if row.state == ObjectState::Pending && row.version.sequence > self.first_sequence {
                pending.insert((row.version.sequence, row.file));
            }
            Ok(())
        })?;
        self.catalogue.for_each(&mut |row| {
            let version = (row.version.sequence, row.file);
            if row.state != ObjectState::Pending && pending.contains(&version) {
                settled.insert(version);
            }
            Ok(())
        })?;
        let first = pending.difference(&settled).map(|(sequence, _)| *sequence).min();
        Ok(first.map_or(drawn, |first| drawn.min(first.saturating_sub(1))))
    }

    /// What archives have of a file. Where that can't be told there is no tree: one that says that
    /// they have nothing would take the place of those that name it.
    fn archived_as(&self, found: &Found, path: &[u8]) -> Result<Option<(Id, Version)>> {
        if found.attr.kind != FileKind::Regular {
            return Ok(None);
        }
        match self.residency_below(found.ino()) {
            Ok(known) => {
                let known = known.filter(|known| self.means_something(known, &found.attr));
                Ok(known.map(|known| (known.file, known.version)))
            }
            Err(Unreadable::Below(error)) => Err(Error::below(path)(error)),
            Err(Unreadable::Corrupt(what)) => {
                tracing::warn!("{}: {what}; the archived tree names no copy of it", shown(path));
                Ok(None)
            }
        }
    }

    fn tree_entry(
        &self,
        found: &Found,
        path: &[u8],
        archived: Option<(Id, Version)>,
    ) -> Result<TreeEntry> {
        let attributes = self.attributes(&found.attr, path)?;
        Ok(TreeEntry { attributes, size: found.attr.size, archived })
    }

    fn put_tree(
        &self,
        archive: &Arc<dyn Archive>,
        sequence: u64,
        spool: &mut Spool,
        request: &Request,
    ) -> Result<Id> {
        let now = self.around.calendar.now();
        let container = self.around.identities.make();
        let heading = Heading {
            kind: KIND_TREE,
            object: self.around.identities.make(),
            file: Id::default(),
            tier: self.settings.tier,
            sequence,
            size: spool.length(),
            created: now,
        };
        let root = Found::root(&self.lower).map_err(Error::below(b""))?;
        let attributes = self.attributes(&root.attr, b"")?;
        let label = archive.label().to_owned();
        let failed = |source| Error::Archive { archive: label.clone(), container, source };
        let upload = archive.begin(ContainerKind::Tree, container).map_err(failed)?;
        let mut sink = UploadSink { upload, label: label.clone(), container };
        let mut writer =
            ObjectWriter::begin(&mut sink, &heading, &attributes, self.settings.level.max(1))?;
        spool.blocks(&mut |bytes| {
            request.cancellation.check().or(Err(Error::Interrupted))?;
            writer.block(bytes)
        })?;
        writer.finish()?;
        sink.upload.finish().map_err(failed)?;
        Ok(container)
    }

    /// Keeps the last few trees, and the one that was just made, whatever date it has.
    fn drop_old_trees(&self, archive: &Arc<dyn Archive>, made: Id) -> Result<()> {
        let mut trees = crate::rebuild::trees(archive)?;
        trees.retain(|(container, _)| *container != made);
        trees.sort_by_key(|(_, reader)| std::cmp::Reverse(crate::rebuild::order(reader)));
        for (container, _) in trees.iter().skip(TREES_KEPT - 1) {
            archive.delete(ContainerKind::Tree, *container).map_err(|source| Error::Archive {
                archive: archive.label().to_owned(),
                container: *container,
                source,
            })?;
        }
        Ok(())
    }
}

struct UploadSink {
    upload: Box<dyn crate::archive::Upload>,
    label: String,
    container: Id,
}

impl crate::stored::writer::Sink for UploadSink {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.upload.write(bytes).map_err(|source| Error::Archive {
            archive: self.label.clone(),
            container: self.container,
            source,
        })
    }
}
