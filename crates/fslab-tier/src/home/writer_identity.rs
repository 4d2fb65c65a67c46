//! The identity of a tree within its tier. If another tree writes to an archive, a tree may read
//! that archive but not write to it.

use std::sync::Arc;

use fslab_vfs::{FileSystem, Ino};

use crate::archive::{Openings, Writer};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::id::Id;
use crate::lower::own_request;
use crate::stored::WriterMark;
use crate::stored::marks::takes_no_xattr;

/// How a tree became part of its tier.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The tree was made together with the tier.
    New,
    /// The tree was rebuilt from archives, which another tree may still use.
    Rebuilt,
}

/// Gives a tree a writer identity, unless the tree already belongs to the tier.
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

/// Returns the identity of a tree for archives. It is `None` if the root does not accept xattrs;
/// then the tree may only write to archives that no other tree writes to.
///
/// # Errors
/// Errors of the tree.
pub fn writer_of(tree: &Arc<dyn FileSystem>, around: &Environment) -> Result<Option<Writer>> {
    let (openings, tree) = (Openings::of(tree, around), &**tree);
    let known = around.marks.read_writer(tree).map_err(Error::below(b""))?;
    let attr = tree.getattr(&own_request(), Ino::ROOT, None).map_err(Error::below(b""))?;
    let mark = match known {
        None => make(tree, around, Origin::New),
        // The xattrs identify another root directory, so this tree is a copy.
        Some(known) if !around.is_root(known.root, &attr) => make(tree, around, Origin::Rebuilt),
        Some(known) => Ok(known),
    };
    let mark = match mark {
        Ok(mark) => mark,
        // The tree remains usable without space or permission for the xattr, because users need
        // their files.
        Err(error) if takes_no_xattr(error.errno()) => {
            tracing::warn!(
                "can't store an xattr on the tree's root directory ({error}), so archives can't \
                 identify the tree"
            );
            return Ok(None);
        }
        Err(error) => return Err(Error::below(b"")(error)),
    };
    let (tree, since) = (tree.path_below(Ino::ROOT), around.calendar.now());
    Ok(Some(Writer { mark, tree, since, openings: Some(openings) }))
}
