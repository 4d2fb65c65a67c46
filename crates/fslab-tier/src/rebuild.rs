//! Making a tree from archives alone.
//!
//! The last archived tree tells names and attributes; files come back as stubs whose bytes are
//! recalled when they are read. Objects that are younger than the tree are put where they say they
//! were. What is there already is newer, and stays.
//!
//! `making`: what is made of an entry or an object. `younger`: what the tree does not tell of.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fslab_vfs::{FileSystem, Request, Timestamp};

use crate::archive::{Archive, ContainerKind};
use crate::catalogue::{Catalogue, ObjectRow};
use crate::error::{Error, Result};
use crate::id::Id;
use crate::lower::request_at;
use crate::stored::bytes::Cursor;
use crate::stored::format::{KIND_TREE, TREE_ENTRY_BYTES_MAX};
use crate::stored::reader::ObjectReader;
use crate::stored::{Attributes, Location, TreeEntry, Version};
use crate::surroundings::Surroundings;

mod making;
mod younger;

/// What was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Directories.
    pub directories: u64,
    /// Files whose bytes an archive has.
    pub files: u64,
    /// Symbolic links, pipes, sockets and device nodes.
    pub others: u64,
    /// Further names of files.
    pub links: u64,
    /// What was there already and stayed.
    pub kept: u64,
    /// Files of which an archive has an earlier state only.
    pub older: Vec<String>,
    /// Files that no archive has.
    pub lost: Vec<String>,
    /// What could not be made as it was, and why.
    pub problems: Vec<String>,
    /// Files that are younger than the archived tree.
    pub younger: u64,
    /// The archived tree had been made so, in seconds since 1970; nothing where there was none.
    pub tree_made: Option<i64>,
}

/// A tree that is being made again.
struct Rebuilder<'a> {
    lower: &'a Arc<dyn FileSystem>,
    archives: &'a [Arc<dyn Archive>],
    catalogue: &'a Catalogue,
    around: &'a Surroundings,
    tier: Id,
    rebuilt: Rebuilt,
    rows: Vec<ObjectRow>,
    /// Where a file with several names was made first, by its former inode.
    named: HashMap<u64, Vec<u8>>,
    /// Files whose objects are not where the tree says, with what was found of them.
    missing: HashMap<Id, Missing>,
    /// Objects that the tree does not name, and that were put where they say they were.
    placed: HashSet<Id>,
    /// Files that no archive had when the tree was archived.
    unarchived: Vec<Vec<u8>>,
}

/// Entries of a file, and the latest version of it that was found.
type Missing = (Vec<TreeEntry>, Option<Version>);

/// Rows written in one transaction.
const BATCH: usize = 500;

/// Makes a tree in a directory. The catalogue is filled with what archives hold.
///
/// # Errors
/// Where no archive can be read, or the file system below fails as a whole; what goes wrong with
/// one file is reported.
pub fn rebuild(
    lower: &Arc<dyn FileSystem>,
    archives: &[Arc<dyn Archive>],
    catalogue: &Catalogue,
    around: &Surroundings,
    tier: Id,
    request: &Request,
) -> Result<Rebuilt> {
    let mut rebuilder = Rebuilder::new(lower, archives, catalogue, around, tier);
    let tree = rebuilder.last_tree()?;
    if let Some(tree) = &tree {
        rebuilder.rebuilt.tree_made = Some(tree.heading().created.seconds);
        entries(tree, request, &mut |entry| rebuilder.make(&entry))?;
    }
    rebuilder.write_rows(0)?;
    let since = tree.as_ref().map_or(0, |tree| tree.heading().sequence);
    rebuilder.add_younger(since, request)?;
    rebuilder.write_rows(0)?;
    rebuilder.make_missing()?;
    rebuilder.tell_lost();
    if let Some(tree) = &tree {
        // A directory's times change with what is made in it.
        entries(tree, request, &mut |entry| rebuilder.finish_directory(&entry))?;
    }
    Ok(rebuilder.rebuilt)
}

/// Makes one file whose bytes are in archives, for good; answers its row, and what of it could not
/// be made as it was.
pub(crate) fn make_one_stub(
    lower: &Arc<dyn FileSystem>,
    around: &Surroundings,
    tier: Id,
    attributes: &Attributes,
    archived: (Id, Version),
) -> Result<(Option<ObjectRow>, Vec<String>)> {
    let catalogue = Catalogue::in_memory()?;
    let mut rebuilder = Rebuilder::new(lower, &[], &catalogue, around, tier);
    rebuilder.make_stub(attributes, Some(archived))?;
    Ok((rebuilder.rows.pop(), rebuilder.rebuilt.problems))
}

/// The trees of an archive that can be read.
///
/// # Errors
/// What listing the archive answers.
pub fn trees(archive: &Arc<dyn Archive>) -> Result<Vec<(Id, ObjectReader)>> {
    let mut found = Vec::new();
    let kind = ContainerKind::Tree;
    archive.list(kind, &mut |id, length| found.push((id, length))).map_err(|source| {
        let archive = archive.label().to_owned();
        Error::Archive { archive, container: Id::default(), source }
    })?;
    let mut trees = Vec::new();
    for (container, length) in found {
        let location = Location { container, offset: 0, length };
        match ObjectReader::open_any(archive, kind, location) {
            Ok(reader) if reader.heading().kind == KIND_TREE => trees.push((container, reader)),
            Ok(_) => tracing::warn!("object {container} among the trees is none"),
            Err(error) => tracing::warn!("an archived tree can't be used: {error}"),
        }
    }
    Ok(trees)
}

/// Later trees are greater.
pub(crate) fn order(tree: &ObjectReader) -> (u64, Timestamp) {
    (tree.heading().sequence, tree.heading().created)
}

/// Calls `visit` with each entry of a tree.
fn entries(
    tree: &ObjectReader,
    request: &Request,
    visit: &mut dyn FnMut(TreeEntry) -> Result<()>,
) -> Result<()> {
    let mut rest = Vec::new();
    let damaged = |what| Error::Damaged {
        archive: "of the tree".to_owned(),
        object: tree.heading().object,
        what,
    };
    for block in 0..tree.blocks() {
        request.cancellation.check().or(Err(Error::Interrupted))?;
        rest.extend(tree.block(block)?);
        let mut from = Cursor(&rest);
        loop {
            let begun = from;
            let Ok(length) = from.u32() else {
                from = begun;
                break;
            };
            if length as usize > TREE_ENTRY_BYTES_MAX {
                let what = crate::stored::bytes::Corrupt("an entry of a tree is too long");
                return Err(damaged(what));
            }
            let Ok(bytes) = from.take(length as usize) else {
                from = begun;
                break;
            };
            visit(TreeEntry::decode(bytes).map_err(damaged)?)?;
        }
        let used = rest.len() - from.0.len();
        rest.drain(..used);
    }
    Ok(())
}

impl<'a> Rebuilder<'a> {
    fn new(
        lower: &'a Arc<dyn FileSystem>,
        archives: &'a [Arc<dyn Archive>],
        catalogue: &'a Catalogue,
        around: &'a Surroundings,
        tier: Id,
    ) -> Self {
        let (rebuilt, rows, named) = (Rebuilt::default(), Vec::new(), HashMap::new());
        let (missing, placed, unarchived) = (HashMap::new(), HashSet::new(), Vec::new());
        Self {
            lower,
            archives,
            catalogue,
            around,
            tier,
            rebuilt,
            rows,
            named,
            missing,
            placed,
            unarchived,
        }
    }

    fn request(&self) -> Request {
        request_at(&*self.around.calendar)
    }

    fn last_tree(&self) -> Result<Option<ObjectReader>> {
        let mut last: Option<ObjectReader> = None;
        for archive in self.archives {
            for (_, tree) in trees(archive)? {
                let is_later = |last: &ObjectReader| order(&tree) > order(last);
                if tree.heading().tier == self.tier && last.as_ref().is_none_or(is_later) {
                    last = Some(tree);
                }
            }
        }
        Ok(last)
    }

    fn write_rows(&mut self, least: usize) -> Result<()> {
        if self.rows.len() > least {
            self.catalogue.put(&std::mem::take(&mut self.rows))?;
        }
        Ok(())
    }
}
