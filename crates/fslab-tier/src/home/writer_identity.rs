//! The identity of a tree within its tier: archives that another tree writes to are read only.

use std::sync::Arc;

use fslab_vfs::{FileSystem, Ino};

use crate::archive::{Openings, Writer};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::id::Id;
use crate::lower::own_request;
use crate::stored::WriterMark;
use crate::stored::marks::takes_no_xattr;

/// How a tree came to be its tier's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// With the tier.
    New,
    /// Made of archives, in which another tree may have its files.
    Rebuilt,
}

/// Makes a tree that is to be a tier's one of its own, unless it is the tier's already.
pub(super) fn begin(
    tree: &dyn FileSystem,
    around: &Environment,
    tier: Id,
    origin: Origin,
) -> fslab_vfs::Result<()> {
    let mark = around.marks.read_tree(tree).ok().flatten();
    match mark {
        Some(mark) if mark.tier == tier => Ok(()),
        _ => make(tree, around, origin).map(drop),
    }
}

fn make(
    tree: &dyn FileSystem,
    around: &Environment,
    origin: Origin,
) -> fslab_vfs::Result<WriterMark> {
    let (is_rebuilt, root) = (origin == Origin::Rebuilt, root(tree, around)?);
    let mark = WriterMark { id: around.identities.make(), is_rebuilt, root };
    around.marks.write_writer(tree, mark)?;
    Ok(mark)
}

fn root(tree: &dyn FileSystem, around: &Environment) -> fslab_vfs::Result<Id> {
    Ok((around.inode_identity)(&tree.getattr(&own_request(), Ino::ROOT, None)?))
}

/// A tree as archives know it. None where the root takes no xattr: then the tree writes where no
/// other tree does.
///
/// # Errors
/// Errors of the tree.
pub fn writer_of(tree: &Arc<dyn FileSystem>, around: &Environment) -> Result<Option<Writer>> {
    let (openings, tree) = (Openings::of(tree, around), &**tree);
    let known = around.marks.read_writer(tree).map_err(Error::below(b""))?;
    let attr = tree.getattr(&own_request(), Ino::ROOT, None).map_err(Error::below(b""))?;
    let mark = match known {
        None => make(tree, around, Origin::New),
        // A copy of the tree that its xattrs were made for.
        Some(known) if !around.is_root(known.root, &attr) => make(tree, around, Origin::Rebuilt),
        Some(known) => Ok(known),
    };
    let mark = match mark {
        Ok(mark) => mark,
        // Whoever has no room or may not write there needs his files all the same.
        Err(error) if takes_no_xattr(error.errno()) => {
            tracing::warn!("the tree's root takes no xattr ({error}): archives can't know it");
            return Ok(None);
        }
        Err(error) => return Err(Error::below(b"")(error)),
    };
    let (tree, since) = (tree.path_below(Ino::ROOT), around.calendar.now());
    Ok(Some(Writer { mark, tree, since, openings: Some(openings) }))
}
