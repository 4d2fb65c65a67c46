//! Verifying and scrubbing of archived trees. Each archive has its own archived trees.

use std::sync::Arc;

use fslab_vfs::Request;

use crate::archive::{Archive, ContainerKind};
use crate::engine::Tier;
use crate::engine::copies::repair::Repair;
use crate::engine::copies::scrubbing::Scrubbed;
use crate::error::{Error, Result};
use crate::id::Id;
use crate::object::archived_tree::{check, listed, open_whole, order};
use crate::object::reader::ObjectReader;
use crate::rate_limit::Pace;
use crate::stored::bytes::Corrupt;
use crate::stored::{Location, Version};

impl Tier {
    /// Verifies an archived tree that was just written. Deletes the tree if it is damaged, because
    /// a rebuild would start with the newest tree.
    pub(in crate::engine) fn verify_tree(
        &self,
        archive: &Arc<dyn Archive>,
        container: Id,
        (length, root): (u64, [u8; 32]),
        request: &Request,
    ) -> Result<()> {
        let kind = ContainerKind::Tree;
        archive.forget((kind, container));
        let location = Location { container, offset: 0, length };
        let read = ObjectReader::open_any(archive, kind, location).and_then(|tree| {
            check(&tree, request)?;
            let is_it = tree.version().root == root;
            let what =
                Corrupt("the data that was read back differs from the data that was written");
            if is_it { Ok(()) } else { Err(tree.damaged(what)) }
        });
        if let Err(Error::Damaged { .. }) = &read {
            archive
                .delete((kind, container))
                .map_err(Error::archive(archive.label(), container))?;
        }
        read
    }

    /// Verifies all archived trees. A damaged tree is reported but not repaired, because a rebuild
    /// can use another archived tree, and a newer one will be archived. An archive without trees,
    /// such as the replacement of a lost archive, gets the newest tree of the other archives.
    pub(super) fn scrub_trees(&self, request: &Request, scrubbed: &mut Scrubbed) -> Result<()> {
        let (mut last, mut without, copy_targets) = (None, Vec::new(), self.active_archives());
        for archive in self.archives() {
            let (trees, mut damaged) = match listed(&archive) {
                Ok(found) => found,
                Err(error) => (Vec::new(), vec![error]),
            };
            scrubbed.copies += (trees.len() + damaged.len()) as u64;
            let mut copy_targets = copy_targets.iter().take(self.settings.copies);
            let is_taker = copy_targets.any(|taker| taker.id() == archive.id());
            if trees.is_empty() && damaged.is_empty() && is_taker {
                without.push(Arc::clone(&archive));
            }
            for (container, heading) in trees {
                match open_whole(&archive, container, request) {
                    Ok(tree) => {
                        let is_later =
                            |last: &ObjectReader| order(last.heading()) < order(&heading);
                        if last.as_ref().is_none_or(is_later) {
                            last = Some(tree);
                        }
                    }
                    Err(Error::Interrupted) => return Err(Error::Interrupted),
                    // The archived tree was deleted after it was listed, because a newer tree was
                    // archived.
                    Err(_) if archive.length((ContainerKind::Tree, container)).is_err() => {}
                    Err(error) => damaged.push(error),
                }
            }
            damaged.iter().for_each(|error| scrubbed.note_tree(error));
        }
        let Some(last) = last else { return Ok(()) };
        for archive in without {
            match self.copy_tree(&last, &archive, request) {
                Ok(()) => scrubbed.made += 1,
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => scrubbed.note_tree(&error),
            }
        }
        Ok(())
    }

    fn copy_tree(
        &self,
        tree: &ObjectReader,
        to: &Arc<dyn Archive>,
        request: &Request,
    ) -> Result<()> {
        let (kind, from) = (ContainerKind::Tree, tree.archive());
        let Version { location: part, root, .. } = tree.version();
        let repair = Repair { kind, from, from_offset: 0, to, part, length: part.length };
        repair.run(Pace { request, limits: [None; 2] })?;
        self.verify_tree(to, part.container, (part.length, root), request)
    }
}

impl Scrubbed {
    /// Records the error of an archived tree. Copies in an unavailable archive are not treated as
    /// damaged.
    fn note_tree(&mut self, error: &Error) {
        let told = if error.is_unavailable() { &mut self.missing } else { &mut self.damaged };
        told.push(format!("an archived tree: {error}"));
    }
}
