//! Rebuilds a tree from archives, without other data.
//!
//! 1. Existing files are kept, and so are the objects that they refer to.
//! 2. The newest complete archived tree provides names and attributes. Files become stubs, whose
//!    bytes are recalled when they are read.
//! 3. Objects newer than the archived tree become files at the paths from which they were archived.
//!    They replace files that this run made, and intact stubs of an earlier version. Other existing
//!    files are kept.
//! 4. If the object of a file is not at the location recorded in the archived tree, the file gets
//!    its latest version.
//!
//! Finally each object in the archives has a row in the catalogue. An object that no file refers to
//! can be restored by `undelete` until it expires.
//!
//! Memory:
//!
//! - the report
//! - 8 bytes for each inode that was renamed while the tree was archived
//! - 70 bytes for each file whose object is not at the location recorded in the archived tree
//! - the path of each directory that its owner may not read, write or enter
//! - the path of each empty or existing file with several names
//! - some 50 MB for containers
//!
//! `existing_files`: step 1. `last_tree`, `entries`: step 2. `newer_objects`: step 3.
//! `second_pass`: step 4. `stubs`, `attributes`: making a file. `object_roles`: the role of each
//! object.

use std::collections::{BTreeMap, HashMap, HashSet};
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
use crate::stored::residency::{ReadResidency, Unreadable};
use crate::stored::{Attributes, Residency, StoredResidency, Version};

mod attributes;
mod entries;
mod existing_files;
mod last_tree;
mod newer_objects;
mod object_roles;
mod second_pass;
mod stubs;

use object_roles::ObjectRoles;

/// The report of a rebuild.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
pub struct Rebuilt {
    /// Number of directories.
    pub directories: u64,
    /// Number of files of the archived tree whose bytes are in an archive.
    pub files: u64,
    /// Number of files that the archived tree does not contain. Without an archived tree, these are
    /// all files.
    pub added: u64,
    /// Number of symbolic links, pipes, sockets and device nodes.
    pub others: u64,
    /// Number of additional names of files.
    pub links: u64,
    /// Number of existing files that were kept. Directories are not counted.
    pub kept: u64,
    /// Number of versions in archives that no file refers to. `undelete` can restore them.
    pub earlier: u64,
    /// Files whose latest state is in no archive; they were restored in an earlier state.
    pub older: Vec<String>,
    /// Files that are in no archive.
    pub lost: Vec<String>,
    /// Files that are newer than the archived tree, and whose path was already in use.
    pub unplaced: Vec<String>,
    /// Attributes and files that could not be restored exactly, with the reasons.
    pub problems: Vec<String>,
    /// Number of files that are newer than the archived tree.
    pub younger: u64,
    /// Set-id bits, capabilities and devices that were skipped. Anyone who can write to an
    /// unencrypted archive could plant them.
    pub left_out: Vec<String>,
    /// The time when the archived tree was made, in seconds since 1970; none without an archived
    /// tree.
    pub tree_made: Option<i64>,
}

/// A rebuild in progress.
struct Rebuilder<'a> {
    lower: &'a Arc<dyn FileSystem>,
    archives: &'a [Arc<dyn Archive>],
    around: &'a Environment,
    tier: Id,
    poison: Poison,
    /// Whether set-id bits, capabilities and devices in the archives are trusted, and so restored.
    is_trusting: bool,
    notes: ObjectRoles<'a>,
    rebuilt: Rebuilt,
    /// Objects with a higher sequence are newer than the archived tree.
    since: u64,
    /// Objects with a higher sequence are newer than the state to be restored.
    until: u64,
    /// The first path of a file with several names, by its former inode. Only empty files and files
    /// that existed before are listed; the others are found by their objects.
    named: HashMap<u64, Vec<u8>>,
    /// Former inodes of files and directories that were renamed while the tree was archived.
    moved: HashSet<u64>,
    /// Directories that were made for their children, before their own entries were read.
    implied: HashSet<Vec<u8>>,
    /// Files whose objects are not at the location recorded in the archived tree, with the latest
    /// version found.
    missing: HashMap<Id, Option<Latest>>,
    /// For the files in `missing`, the object found for the version in the archived tree, by file
    /// and sequence. It is found if the version was only moved to another container. The key
    /// includes the sequence, because two files of a rebuilt tree may be versions of the same file.
    moved_versions: HashMap<(Id, u64), Option<Id>>,
    /// Objects with sources that no given archive has, with their files and attributes.
    incomplete: BTreeMap<Id, (Id, Version, Attributes)>,
    /// Directories that get their permissions last, because their owner may not read, write or
    /// enter them.
    closing: Vec<(Vec<u8>, Permissions)>,
}

/// A version of a file: sequence and object.
type Latest = (u64, Id);

/// Number of rows written in one transaction.
const BATCH: usize = 500;

/// The options of a rebuild.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Restores the tree as it was at this time, as far as archives still contain its versions.
    /// Later objects are treated as removed.
    pub before: Option<Timestamp>,
    /// Restores set-id bits, capabilities and devices from unencrypted archives too. Anyone who can
    /// write to such an archive could have planted them.
    pub trust: bool,
    /// Lets stubs show poison instead of zeros in the lower directory, if blocks can be shared.
    pub poison: bool,
}

/// Rebuilds a tree in a directory. The catalogue is filled with the contents of the archives; its
/// old contents described another tree.
///
/// # Errors
/// If no archive can be listed, or the catalogue or the tree fails. Failures of one archive or one
/// file are reported in the result.
pub fn rebuild(
    options: Options,
    lower: &Arc<dyn FileSystem>,
    archives: &[Arc<dyn Archive>],
    catalogue: &Catalogue,
    (around, tier): (&Environment, Id),
    request: &Request,
) -> Result<Rebuilt> {
    // The end of this use is never recorded, so the catalogue remains in doubt. The next engine
    // scans the new tree before anything expires.
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

/// Makes one file whose bytes are in archives, durably. Returns its row and the attributes that
/// could not be restored.
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
            incomplete: BTreeMap::new(),
            closing: Vec::new(),
        }
    }

    fn request(&self) -> Request {
        request_at(&*self.around.calendar)
    }

    /// Makes the entries of the archived tree. A file that was renamed while the tree was archived
    /// gets the path of its last entry. Such last entries are made first, so that earlier entries
    /// of the file are skipped.
    fn make_tree(&mut self, tree: &ObjectReader, request: &Request) -> Result<()> {
        for moved in [true, false] {
            entries(tree, request, &mut |entry, is_behind| {
                if is_behind == moved { self.make(&entry, is_behind) } else { Ok(()) }
            })?;
        }
        self.notes.write(0)
    }

    /// Returns the residency of a file. The facts that a compact residency does not record are read
    /// from the catalogue, even from rows of an earlier run, or from the archives.
    fn residency(&self, found: &Found) -> ReadResidency {
        let compact = match self.around.marks.read(&**self.lower, found.ino())? {
            Some(StoredResidency::Compact(compact)) => compact,
            Some(StoredResidency::Full(full)) => return Ok(Some(*full)),
            None => return Ok(None),
        };
        let own = (self.around.inode_identity)(&found.attr);
        let inode = if compact.is_of(self.tier, own) { own } else { Id::default() };
        let known = self.notes.version(compact.object).and_then(|known| {
            match known.filter(|(_, version)| compact.is_at(version)) {
                Some(known) => Ok(known),
                None => {
                    let object = (self.tier, compact.object, compact.location);
                    ObjectReader::find_version(self.archives, object)
                }
            }
        });
        let (file, version) = known.map_err(|error| Unreadable::UnknownObject(Box::new(error)))?;
        Ok(Some(compact.expand((self.tier, inode), file, version)))
    }

    /// Returns the residency of a file, if it belongs to this tier and was written for this inode.
    fn own_residency(&self, found: &Found) -> Option<Residency> {
        let known = self.residency(found);
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
