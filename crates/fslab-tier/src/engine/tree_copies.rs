//! Archived trees that are read back: each archive has its own copies.

use std::sync::Arc;

use fslab_vfs::Request;

use super::Tier;
use super::copies::failed;
use super::scrubbing::Scrubbed;
use crate::archive::{Archive, ContainerKind};
use crate::error::{Error, Result};
use crate::id::Id;
use crate::rebuild::{check, opened};
use crate::stored::Location;
use crate::stored::bytes::Corrupt;
use crate::stored::reader::ObjectReader;

impl Tier {
    /// Reads a tree that was just written, as it is there now; takes it back where it is not what
    /// was written, as who makes a tree again would begin with the last one.
    pub(super) fn verify_tree(
        &self,
        archive: &Arc<dyn Archive>,
        container: Id,
        (length, root): (u64, [u8; 32]),
        request: &Request,
    ) -> Result<()> {
        let kind = ContainerKind::Tree;
        archive.forget(kind, container);
        let location = Location { container, offset: 0, length };
        let read = ObjectReader::open_any(archive, kind, location).and_then(|tree| {
            check(&tree, request)?;
            let is_it = tree.version().root == root;
            let what = Corrupt("what was written is not what is read back");
            if is_it { Ok(()) } else { Err(tree.damaged(what)) }
        });
        if let Err(Error::Damaged { .. }) = &read {
            archive.delete(kind, container).map_err(failed(archive.label(), container))?;
        }
        read
    }

    /// Reads all trees. What is damaged of one is told only: another copy of it is as good for who
    /// makes the tree again, and the next tree is better.
    pub(super) fn scrub_trees(&self, request: &Request, scrubbed: &mut Scrubbed) -> Result<()> {
        for archive in self.archives() {
            let (trees, mut damaged) = match opened(&archive) {
                Ok(found) => found,
                Err(error) => (Vec::new(), vec![error]),
            };
            scrubbed.copies += (trees.len() + damaged.len()) as u64;
            for (container, tree) in trees {
                match check(&tree, request) {
                    Ok(()) => {}
                    Err(Error::Interrupted) => return Err(Error::Interrupted),
                    // A later one took its place.
                    Err(_) if archive.length(ContainerKind::Tree, container).is_err() => {}
                    Err(error) => damaged.push(error),
                }
            }
            let what = "an archived tree";
            scrubbed.damaged.extend(damaged.iter().map(|error| format!("{what}: {error}")));
        }
        Ok(())
    }
}
