//! Archived trees: the names and attributes of a whole tree, as an object of an archive.

use std::sync::Arc;

use fslab_vfs::{Request, Timestamp};

use crate::archive::{Archive, ContainerKind};
use crate::error::{Error, Result};
use crate::id::Id;
use crate::object::reader::ObjectReader;
use crate::object::writer::Heading;
use crate::stored::bytes::{Corrupt, Cursor};
use crate::stored::format::{KIND_TREE, TREE_ENTRY_BYTES_MAX};
use crate::stored::{Location, TreeEntry};

/// Returns the readable trees in an archive. Logs a warning for each unreadable one.
///
/// # Errors
/// Errors of listing the archive.
pub fn trees(archive: &Arc<dyn Archive>) -> Result<Vec<(Id, Heading)>> {
    let (trees, damaged) = listed(archive)?;
    damaged.iter().for_each(|error| tracing::warn!("an archived tree can't be used: {error}"));
    Ok(trees)
}

/// Containers and the headings of their trees. A tree is opened again when it is read. So the
/// hashes of only one tree, up to 64 MiB, are in memory at a time.
type Trees = Vec<(Id, Heading)>;

/// Returns the trees in an archive that can be opened, and the errors of the others.
pub(crate) fn listed(archive: &Arc<dyn Archive>) -> Result<(Trees, Vec<Error>)> {
    let mut found = Vec::new();
    let kind = ContainerKind::Tree;
    archive
        .list(kind, &mut |id, length| found.push((id, length)))
        .map_err(Error::archive(archive.label(), Id::default()))?;
    let (mut trees, mut damaged) = (Vec::new(), Vec::new());
    for (container, length) in found {
        archive.forget((kind, container));
        match open(archive, container, length) {
            Ok(tree) if tree.heading().kind == KIND_TREE => {
                trees.push((container, tree.heading().clone()));
            }
            Ok(_) => tracing::warn!(
                "object {container} is stored among the archived trees, but is not an archived tree"
            ),
            Err(error) => damaged.push(error),
        }
    }
    Ok((trees, damaged))
}

fn open(archive: &Arc<dyn Archive>, container: Id, length: u64) -> Result<ObjectReader> {
    let location = Location { container, offset: 0, length };
    ObjectReader::open_any(archive, ContainerKind::Tree, location)
}

/// Returns the sort key of a tree: later trees have greater keys.
pub(crate) fn order(tree: &Heading) -> (u64, Timestamp) {
    (tree.sequence, tree.created)
}

/// Opens a tree, and checks it by reading it completely.
///
/// # Errors
/// Errors of the archive, or damage to the tree.
pub(crate) fn open_whole(
    archive: &Arc<dyn Archive>,
    container: Id,
    request: &Request,
) -> Result<ObjectReader> {
    let length = archive
        .length((ContainerKind::Tree, container))
        .map_err(Error::archive(archive.label(), container))?;
    let tree = open(archive, container, length)?;
    check(&tree, request)?;
    Ok(tree)
}

/// Checks a tree by reading it completely.
///
/// # Errors
/// Errors of the archive, or damage to the tree.
pub(crate) fn check(tree: &ObjectReader, request: &Request) -> Result<()> {
    entries(tree, request, &mut |_, _| Ok(()))
}

/// Calls `visit` with each entry of a tree, and with `true` for entries that were renamed while the
/// tree was archived. Such entries follow a second entry of the root directory.
pub(crate) fn entries(
    tree: &ObjectReader,
    request: &Request,
    visit: &mut dyn FnMut(TreeEntry, bool) -> Result<()>,
) -> Result<()> {
    let (mut rest, mut visited, mut is_behind) = (Vec::new(), 0_u64, false);
    for block in 0..tree.blocks() {
        request.cancellation.check().or(Err(Error::Interrupted))?;
        rest.extend(tree.block(block)?);
        let mut from = Cursor(&rest);
        while let Some(bytes) = next_entry(&mut from).map_err(|what| tree.damaged(what))? {
            let entry = TreeEntry::decode(bytes).map_err(|what| tree.damaged(what))?;
            is_behind |= entry.attributes.path.is_empty() && visited > 0;
            visited += 1;
            visit(entry, is_behind)?;
        }
        let used = rest.len() - from.0.len();
        rest.drain(..used);
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err(tree.damaged(Corrupt("the archived tree ends within an entry")))
    }
}

/// Returns the next entry, or `None` if it continues in the next block.
fn next_entry<'a>(from: &mut Cursor<'a>) -> Result<Option<&'a [u8]>, Corrupt> {
    let mut behind = *from;
    let Ok(length) = behind.u32() else { return Ok(None) };
    if length as usize > TREE_ENTRY_BYTES_MAX {
        return Err(Corrupt("an entry of the archived tree is too long"));
    }
    let Ok(bytes) = behind.take(length as usize) else { return Ok(None) };
    *from = behind;
    Ok(Some(bytes))
}
