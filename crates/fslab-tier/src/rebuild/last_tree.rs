//! Chooses the archived tree that a rebuild begins with.

use std::cmp::Reverse;

use fslab_vfs::Request;

use super::Rebuilder;
use crate::error::{Error, Result};
use crate::object::archived_tree::{listed, open_whole, order};
use crate::object::reader::ObjectReader;
use crate::object::writer::Heading;

impl Rebuilder<'_> {
    /// Returns the newest complete archived tree that is not newer than the state to be restored.
    /// Damaged trees are reported.
    pub(super) fn last_tree(&mut self, request: &Request) -> Result<Option<ObjectReader>> {
        let (mut trees, mut damaged) = (Vec::new(), Vec::new());
        let mut failed = Vec::new();
        for archive in self.archives {
            let (found, broken) = match listed(archive) {
                Ok(listed) => listed,
                Err(error) => {
                    failed.push(error);
                    continue;
                }
            };
            let is_wanted = |tree: &Heading| tree.tier == self.tier && tree.sequence <= self.until;
            let found = found.into_iter().filter(|(_, tree)| is_wanted(tree));
            trees.extend(found.map(|(container, tree)| (archive, container, tree)));
            // The headings of damaged trees are not known.
            damaged.extend(broken.into_iter().map(|error| (None, error)));
        }
        if failed.len() == self.archives.len()
            && let Some(error) = failed.pop()
        {
            return Err(error);
        }
        failed.into_iter().for_each(|error| self.tell(Err(error)));
        trees.sort_by_key(|(_, _, tree)| Reverse(order(tree)));
        for (archive, container, heading) in trees {
            match open_whole(archive, container, request) {
                Ok(tree) => {
                    self.tell_damaged(damaged, Some(walk_of(&heading)));
                    return Ok(Some(tree));
                }
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => damaged.push((Some(walk_of(&heading)), error)),
            }
        }
        self.tell_damaged(damaged, None);
        Ok(None)
    }

    /// Reports damaged trees. A damaged copy is only logged if an intact copy of the same tree is
    /// used.
    fn tell_damaged(&mut self, damaged: Vec<(Option<Walk>, Error)>, used: Option<Walk>) {
        for (walk, error) in damaged {
            if walk.is_some() && walk == used {
                tracing::warn!("a copy of the archived tree can't be used: {error}");
            } else {
                let what = "an archived tree can't be used; an earlier one may be used instead";
                self.rebuilt.problems.push(format!("{what}: {error}"));
            }
        }
    }
}

/// The sequence and the size of an archived tree, which are equal in all its copies.
type Walk = (u64, u64);

fn walk_of(tree: &Heading) -> Walk {
    (tree.sequence, tree.size)
}
