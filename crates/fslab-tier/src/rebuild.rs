//! Rebuilding a tree from archives alone.
//!
//! 1. Existing files stay, with the objects that they name.
//! 2. The last whole archived tree gives names and attributes; files come back as stubs, whose
//!    bytes are recalled when they are read.
//! 3. Newer objects are put where they were archived from. They replace what this run made, never
//!    what existed.
//! 4. Files whose objects are not where the tree says come back as their latest version.
//!
//! In the end each object in the archives has a row: an object that no file names can come back by
//! `undelete` until it expires.
//!
//! Memory: what is told at the end; 8 bytes for each thing that got another name while the tree was
//! walked, 70 for each file whose object is not where the tree says, the path of each directory
//! that nobody may write to and of each empty file with several names; some 50 MB of containers.
//!
//! `existing_files`: step 1. `last_tree`, `entries`: step 2. `newer_objects`: step 3.
//! `second_pass`: step 4. `stubs`, `attributes`: making a file. `object_roles`: the role of each
//! object.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fslab_vfs::{FileSystem, Ino, Permissions, Request, Timestamp};
use serde::Serialize;

use crate::archive::Archive;
use crate::catalogue::{Catalogue, ObjectRow, sequence_at};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::id::Id;
use crate::lower::{Found, request_at};
use crate::object::archived_tree::entries;
pub use crate::object::archived_tree::trees;
use crate::object::reader::ObjectReader;
use crate::poison::Poison;
use crate::stored::{Attributes, Residency, Version};

mod attributes;
mod entries;
mod existing_files;
mod last_tree;
mod newer_objects;
mod object_roles;
mod second_pass;
mod stubs;

use object_roles::ObjectRoles;

/// What was made.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
pub struct Rebuilt {
    /// Directories.
    pub directories: u64,
    /// Files of the archived tree whose bytes an archive has.
    pub files: u64,
    /// Files of which the archived tree does not tell: all, where there was none.
    pub added: u64,
    /// Symbolic links, pipes, sockets and device nodes.
    pub others: u64,
    /// Further names of files.
    pub links: u64,
    /// What was there already, but for directories, and stayed.
    pub kept: u64,
    /// Versions that archives hold and no file has: they can come back by `undelete`.
    pub earlier: u64,
    /// Files of which an archive has an earlier state only.
    pub older: Vec<String>,
    /// Files that no archive has.
    pub lost: Vec<String>,
    /// Files that are younger than the archived tree, and in whose place something else was.
    pub unplaced: Vec<String>,
    /// What could not be made as it was, and why.
    pub problems: Vec<String>,
    /// Files that are younger than the archived tree.
    pub younger: u64,
    /// Set-id bits, capabilities and devices that were left out: whoever can write to an archive
    /// that is not encrypted can plant them.
    pub left_out: Vec<String>,
    /// The archived tree had been made so, in seconds since 1970; none if there was none.
    pub tree_made: Option<i64>,
}

/// A tree that is being made again.
struct Rebuilder<'a> {
    lower: &'a Arc<dyn FileSystem>,
    archives: &'a [Arc<dyn Archive>],
    around: &'a Environment,
    tier: Id,
    poison: Poison,
    /// Whether archives are believed what gives programs and users more rights.
    is_trusting: bool,
    notes: ObjectRoles<'a>,
    rebuilt: Rebuilt,
    /// Objects above it are younger than the tree.
    since: u64,
    /// Those above this one are younger than what is to be made.
    until: u64,
    /// Where a file with several names was made first that no object tells of, by its former inode.
    named: HashMap<u64, Vec<u8>>,
    /// Former inodes of what got another name while the tree was walked.
    moved: HashSet<u64>,
    /// Directories that were made for what is in them, before their own entries came.
    implied: HashSet<Vec<u8>>,
    /// Files whose objects are not where the tree says, with the latest of theirs that was found.
    missing: HashMap<Id, Option<Latest>>,
    /// The very versions that the tree names of them, by file and sequence, which stay when their
    /// bytes move: with the object that was found. After a rebuild two may be versions of one.
    moved_versions: HashMap<(Id, u64), Option<Id>>,
    /// Directories that nobody may write to once the tree is made.
    closing: Vec<(Vec<u8>, Permissions)>,
}

/// A version of a file: sequence and object.
type Latest = (u64, Id);

/// Rows written in one transaction.
const BATCH: usize = 500;

/// How a tree is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// As it was at some time, as far as archives go back: what was archived later is as if it had
    /// been removed.
    pub before: Option<Timestamp>,
    /// With set-id bits, capabilities and devices also where an archive is not encrypted: whoever
    /// can write to it can have planted them.
    pub trust: bool,
    /// Files show poison below, where blocks can be shared, and no zeros.
    pub poison: bool,
}

/// Makes a tree in a directory. The catalogue is filled with what archives hold; what it said
/// before was about another tree.
///
/// # Errors
/// Where no archive can be listed, or the catalogue or the tree fails; what goes wrong with one
/// archive or one file is reported.
pub fn rebuild(
    options: Options,
    lower: &Arc<dyn FileSystem>,
    archives: &[Arc<dyn Archive>],
    catalogue: &Catalogue,
    (around, tier): (&Environment, Id),
    request: &Request,
) -> Result<Rebuilt> {
    // This use does not end in order: before anything expires, a scan looks at the new tree.
    catalogue.begin_use()?;
    catalogue.clear_open_epoch()?;
    let notes = ObjectRoles::begin(catalogue)?;
    let mut rebuilder = Rebuilder::new(lower, archives, around, tier, notes);
    rebuilder.poison = Poison::new(lower, options.poison);
    rebuilder.until = options.before.map_or(u64::MAX, sequence_at);
    rebuilder.is_trusting = options.trust || archives.iter().all(|archive| archive.is_authentic());
    let tree = rebuilder.last_tree(request)?;
    rebuilder.survey_existing(request)?;
    if let Some(tree) = &tree {
        rebuilder.rebuilt.tree_made = Some(tree.heading().created.seconds);
        rebuilder.since = tree.heading().sequence;
        rebuilder.make_tree(tree, request)?;
    }
    rebuilder.add_younger(request)?;
    if let Some(tree) = &tree {
        rebuilder.finish_tree(tree, request)?;
    }
    rebuilder.rebuilt.earlier = rebuilder.notes.unneeded()?;
    lower.syncfs(&rebuilder.request(), Ino::ROOT).map_err(Error::below(b""))?;
    Ok(rebuilder.rebuilt)
}

/// Makes one file whose bytes are in archives, for good; returns its row, and what of it could not
/// be made as it was.
pub(crate) fn make_one_stub(
    lower: &Arc<dyn FileSystem>,
    around: &Environment,
    tier: Id,
    (attributes, Options { trust, poison, .. }): (&Attributes, Options),
    archived: (Id, Version),
) -> Result<(Option<ObjectRow>, Vec<String>)> {
    let catalogue = Catalogue::in_memory()?;
    let notes = ObjectRoles::of_no_run(&catalogue);
    let mut rebuilder = Rebuilder::new(lower, &[], around, tier, notes);
    (rebuilder.is_trusting, rebuilder.poison) = (trust, Poison::new(lower, poison));
    rebuilder.make_stub(attributes, Some(archived))?;
    let Rebuilt { mut problems, left_out, .. } = rebuilder.rebuilt;
    problems.extend(left_out);
    Ok((rebuilder.notes.into_rows().next(), problems))
}

impl<'a> Rebuilder<'a> {
    fn new(
        lower: &'a Arc<dyn FileSystem>,
        archives: &'a [Arc<dyn Archive>],
        around: &'a Environment,
        tier: Id,
        notes: ObjectRoles<'a>,
    ) -> Self {
        Self {
            lower,
            archives,
            around,
            tier,
            poison: Poison::new(lower, false),
            is_trusting: false,
            notes,
            rebuilt: Rebuilt::default(),
            since: 0,
            until: u64::MAX,
            named: HashMap::new(),
            moved: HashSet::new(),
            implied: HashSet::new(),
            missing: HashMap::new(),
            moved_versions: HashMap::new(),
            closing: Vec::new(),
        }
    }

    fn request(&self) -> Request {
        request_at(&*self.around.calendar)
    }

    /// Makes what the tree names. What got another name while it was walked is where it was found
    /// last: that comes first, and stays.
    fn make_tree(&mut self, tree: &ObjectReader, request: &Request) -> Result<()> {
        for moved in [true, false] {
            entries(tree, request, &mut |entry, is_behind| {
                if is_behind == moved { self.make(&entry, is_behind) } else { Ok(()) }
            })?;
        }
        self.notes.write(0)
    }

    /// What a file says of itself, if it is one of this tier's and means this very inode.
    fn own_residency(&self, found: &Found) -> Option<Residency> {
        let known = self.around.marks.read(&**self.lower, found.ino());
        let is_own = |known: &Residency| {
            known.tier == self.tier && self.around.is_of(known.inode, &found.attr)
        };
        known.ok().flatten().filter(is_own)
    }

    fn tell(&mut self, done: Result<()>) {
        if let Err(error) = done {
            self.rebuilt.problems.push(error.to_string());
        }
    }
}
