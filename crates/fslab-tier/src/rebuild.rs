//! Making a tree from archives alone.
//!
//! The last archived tree tells names and attributes; files come back as stubs whose bytes are
//! recalled when they are read. Objects that are younger than the tree are put where they say they
//! were. What is there already is newer, and stays.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use fslab_vfs::{
    Attr, Errno, FileKind, FileSystem, Handle, Ino, Name, OpenMode, Permissions, Request, SetAttr,
    SetTime, Timestamp, XattrMode,
};

use crate::archive::{Archive, ContainerKind};
use crate::catalogue::{Catalogue, ObjectRow, ObjectState};
use crate::error::{Error, Result, shown};
use crate::id::Id;
use crate::lower::{Found, request_at};
use crate::runs::Runs;
use crate::stored::bundle::contents_of;
use crate::stored::bytes::Cursor;
use crate::stored::format::{KIND_FILE, KIND_TREE, TREE_ENTRY_BYTES_MAX, blocks_of};
use crate::stored::reader::ObjectReader;
use crate::stored::{Attributes, Location, Residency, TreeEntry, Version, residency};
use crate::surroundings::Surroundings;

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
    if let Some(tree) = &tree {
        // A directory's times change with what is made in it.
        entries(tree, request, &mut |entry| rebuilder.finish_directory(&entry))?;
    }
    Ok(rebuilder.rebuilt)
}

/// Makes one file whose bytes are in archives, for good.
pub(crate) fn make_one_stub(
    lower: &Arc<dyn FileSystem>,
    around: &Surroundings,
    tier: Id,
    attributes: &Attributes,
    archived: (Id, Version),
) -> Result<()> {
    let catalogue = Catalogue::in_memory()?;
    let mut rebuilder = Rebuilder::new(lower, &[], &catalogue, around, tier);
    rebuilder.make_stub(attributes, Some(archived))?;
    match rebuilder.rebuilt.problems.pop() {
        Some(what) => Err(Error::Refused { what }),
        None => Ok(()),
    }
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
        let missing = HashMap::new();
        Self { lower, archives, catalogue, around, tier, rebuilt, rows, named, missing }
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

    /// Makes what an entry is about. What goes wrong with it is reported.
    fn make(&mut self, entry: &TreeEntry) -> Result<()> {
        if entry.attributes.path.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.make_one(entry) {
            self.rebuilt.problems.push(error.to_string());
        }
        self.write_rows(BATCH)
    }

    fn make_one(&mut self, entry: &TreeEntry) -> Result<()> {
        let path = &entry.attributes.path;
        let kind = entry.attributes.kind();
        match Found::at(self.lower, path) {
            Ok(found) => {
                self.rebuilt.kept += u64::from(kind != Some(FileKind::Directory));
                return self.note_kept(entry, &found);
            }
            Err(error) if error.errno() == Errno::NOENT => {}
            Err(error) => return Err(Error::below(path)(error)),
        }
        match kind {
            Some(FileKind::Regular) => self.make_file(entry),
            _ => self.make_other(entry),
        }
    }

    /// What is there may name an object: its row is kept.
    fn note_kept(&mut self, entry: &TreeEntry, found: &Found) -> Result<()> {
        let known = residency::read(&**self.lower, &self.request(), found.ino());
        let own = known.ok().flatten().filter(|known| {
            known.tier == self.tier && known.inode == (self.around.tell)(&found.attr)
        });
        if let Some(known) = own {
            self.note(known.file, &known.version, &found.attr, &entry.attributes.path);
        }
        Ok(())
    }

    fn make_file(&mut self, entry: &TreeEntry) -> Result<()> {
        let attributes = &entry.attributes;
        if attributes.links > 1
            && let Some(first) = self.named.get(&attributes.ino).cloned()
        {
            return self.make_link(&first, &attributes.path);
        }
        let made = match &entry.archived {
            None if entry.size > 0 => {
                self.rebuilt.lost.push(shown(&attributes.path));
                return Ok(());
            }
            None => self.make_stub(attributes, None)?,
            Some((file, version)) => {
                let version = self.with_copies(version);
                if version.copies.is_empty() {
                    // A later version may be there, or the same one in another place.
                    let missing = self.missing.entry(*file).or_default();
                    missing.0.push(entry.clone());
                    return Ok(());
                }
                if (entry.size, attributes.modified) != (version.size, version.modified) {
                    self.rebuilt.older.push(shown(&attributes.path));
                }
                self.make_stub(attributes, Some((*file, version)))?
            }
        };
        self.rebuilt.files += u64::from(made);
        if attributes.links > 1 {
            self.named.insert(attributes.ino, attributes.path.clone());
        }
        Ok(())
    }

    fn make_link(&mut self, first: &[u8], path: &[u8]) -> Result<()> {
        let source = Found::at(self.lower, first).map_err(Error::below(first))?;
        let (parent, name) = self.parent(path)?;
        let linked = Name::new(name)
            .map_err(fslab_vfs::Error::from)
            .and_then(|name| self.lower.link(&self.request(), source.ino(), parent.ino(), name));
        let entry = linked.map_err(Error::below(path))?;
        self.lower.forget(entry.attr.ino, 1);
        self.rebuilt.links += 1;
        Ok(())
    }

    /// The archives that hold a version, by asking them.
    fn with_copies(&self, version: &Version) -> Version {
        let container = version.location.container;
        let holds = |archive: &&Arc<dyn Archive>| {
            let end = version.location.offset.saturating_add(version.location.length);
            archive.length(ContainerKind::Files, container).is_ok_and(|length| length >= end)
        };
        let copies = self.archives.iter().filter(holds).map(|archive| archive.id()).collect();
        Version { copies, ..version.clone() }
    }

    /// The directory that a path lies in, made if an archive does not tell of it, and the name.
    fn parent<'p>(&self, path: &'p [u8]) -> Result<(Found, &'p OsStr)> {
        let cut = path.iter().rposition(|byte| *byte == b'/');
        let (parent, name) = match cut {
            Some(cut) => (&path[..cut], &path[cut + 1..]),
            None => (&path[..0], path),
        };
        let found = match Found::at(self.lower, parent) {
            Err(error) if error.errno() == Errno::NOENT => {
                let (above, last) = self.parent(parent)?;
                let made = Name::new(last)
                    .map_err(fslab_vfs::Error::from)
                    .and_then(|last| self.lower.mkdir(&self.request(), above.ino(), last, 0o755));
                let made = made.map_err(Error::below(parent))?;
                self.lower.forget(made.attr.ino, 1);
                Found::at(self.lower, parent)
            }
            found => found,
        };
        Ok((found.map_err(Error::below(parent))?, OsStr::from_bytes(name)))
    }

    /// Makes a file whose bytes are in archives, or an empty one.
    fn make_stub(
        &mut self,
        attributes: &Attributes,
        archived: Option<(Id, Version)>,
    ) -> Result<bool> {
        let path = &attributes.path;
        let (parent, name) = self.parent(path)?;
        let below = || Error::below(path);
        let request = self.request();
        let flags = OpenMode::READ_WRITE | OpenMode::EXCLUSIVE;
        let name = Name::new(name).map_err(fslab_vfs::Error::from).map_err(below())?;
        // Nobody reads it before it is whole.
        let created = self.lower.create(&request, parent.ino(), name, 0o600, flags);
        let (entry, opened) = created.map_err(below())?;
        let (ino, handle) = (entry.attr.ino, opened.handle);
        let filled = self.fill(attributes, archived, &entry.attr, handle);
        let released = self.lower.release(&request, ino, handle).map_err(below());
        let done = filled.and(released);
        if done.is_err()
            && let Err(error) = self.lower.unlink(&request, parent.ino(), name)
        {
            tracing::warn!(%error, "{}: half of it is left", shown(path));
        }
        self.lower.forget(ino, 1);
        done.map(|()| true)
    }

    fn fill(
        &mut self,
        attributes: &Attributes,
        archived: Option<(Id, Version)>,
        attr: &Attr,
        handle: Handle,
    ) -> Result<()> {
        let (request, ino) = (self.request(), attr.ino);
        let below = || Error::below(&attributes.path);
        if let Some((file, version)) = archived {
            let blocks = blocks_of(version.size);
            let residency = Residency {
                tier: self.tier,
                file,
                inode: (self.around.tell)(attr),
                changed: false,
                moving: false,
                touched_seconds: 0,
                offline: Runs::of(0..blocks),
                version: version.clone(),
            };
            residency::write(&**self.lower, &request, ino, &residency).map_err(below())?;
            let size = SetAttr { size: Some(version.size), ..SetAttr::default() };
            self.lower.setattr(&request, ino, Some(handle), &size).map_err(below())?;
            let times = Attributes { modified: version.modified, ..attributes.clone() };
            self.dress(&times, ino)?;
            self.note(file, &version, attr, &attributes.path);
        } else {
            self.dress(attributes, ino)?;
        }
        self.lower.fsync(&request, ino, handle, false).map_err(below())
    }

    fn note(&mut self, file: Id, version: &Version, attr: &Attr, path: &[u8]) {
        self.rows.push(ObjectRow {
            state: ObjectState::Live,
            file,
            inode: (self.around.tell)(attr),
            version: version.clone(),
            since: self.around.calendar.now(),
            seen: 0,
            path: path.to_vec(),
        });
    }

    /// Gives an inode its owner, xattrs, permissions and times, in the order in which they last.
    fn dress(&mut self, attributes: &Attributes, ino: Ino) -> Result<()> {
        let request = self.request();
        let below = || Error::below(&attributes.path);
        let owner =
            SetAttr { uid: Some(attributes.uid), gid: Some(attributes.gid), ..SetAttr::default() };
        if let Err(error) = self.lower.setattr(&request, ino, None, &owner) {
            let path = shown(&attributes.path);
            self.rebuilt.problems.push(format!("{path}: keeps another owner: {error}"));
        }
        for (name, value) in &attributes.xattrs {
            let name = OsStr::from_bytes(name);
            let set = self.lower.setxattr(&request, ino, name, value, XattrMode::empty());
            if let Err(error) = set {
                let path = shown(&attributes.path);
                let name = name.display();
                self.rebuilt.problems.push(format!("{path}: has no xattr {name}: {error}"));
            }
        }
        let is_link = attributes.kind() == Some(FileKind::Symlink);
        let permissions = (!is_link).then(|| Permissions::new(attributes.mode));
        let rest = SetAttr {
            permissions,
            accessed: Some(SetTime::To(attributes.accessed)),
            modified: Some(SetTime::To(attributes.modified)),
            ..SetAttr::default()
        };
        self.lower.setattr(&request, ino, None, &rest).map(drop).map_err(below())
    }

    fn make_other(&mut self, entry: &TreeEntry) -> Result<()> {
        let attributes = &entry.attributes;
        let path = &attributes.path;
        let (parent, name) = self.parent(path)?;
        let name = Name::new(name).map_err(fslab_vfs::Error::from).map_err(Error::below(path))?;
        let (request, parent) = (self.request(), parent.ino());
        let (mode, device) = (attributes.mode, attributes.device);
        let made = match attributes.kind() {
            Some(FileKind::Directory) => self.lower.mkdir(&request, parent, name, 0o700),
            Some(FileKind::Symlink) => {
                self.lower.symlink(&request, parent, name, OsStr::from_bytes(&attributes.target))
            }
            _ => self.lower.mknod(&request, parent, name, mode, device),
        };
        let made = made.map_err(Error::below(path))?;
        let is_directory = made.attr.kind == FileKind::Directory;
        self.rebuilt.directories += u64::from(is_directory);
        self.rebuilt.others += u64::from(!is_directory);
        let dressed = self.dress(attributes, made.attr.ino);
        self.lower.forget(made.attr.ino, 1);
        dressed
    }

    fn finish_directory(&mut self, entry: &TreeEntry) -> Result<()> {
        let attributes = &entry.attributes;
        if attributes.kind() != Some(FileKind::Directory) {
            return Ok(());
        }
        let path = &attributes.path;
        let found = Found::at(self.lower, path).map_err(Error::below(path))?;
        let times = SetAttr {
            accessed: Some(SetTime::To(attributes.accessed)),
            modified: Some(SetTime::To(attributes.modified)),
            ..SetAttr::default()
        };
        if path.is_empty() {
            self.dress(attributes, found.ino())?;
        }
        let set = self.lower.setattr(&self.request(), found.ino(), None, &times);
        set.map(drop).map_err(Error::below(path))
    }

    /// Objects that the tree does not know because they were archived after it.
    fn add_younger(&mut self, since: u64, request: &Request) -> Result<()> {
        for archive in self.archives {
            let mut unknown = Vec::new();
            let listed = archive.list(ContainerKind::Files, &mut |container, length| {
                unknown.push((container, length));
            });
            listed.map_err(|source| {
                let archive = archive.label().to_owned();
                Error::Archive { archive, container: Id::default(), source }
            })?;
            for (container, length) in unknown {
                request.cancellation.check().or(Err(Error::Interrupted))?;
                // Of what the tree knows, only what it has elsewhere is of interest.
                let is_known = self.catalogue.knows_container(container)?;
                if is_known && self.missing.is_empty() {
                    continue;
                }
                let since = if is_known { u64::MAX } else { since };
                let walked = self.add_container(archive, container, length, since);
                if let Err(error) = walked {
                    self.rebuilt.problems.push(error.to_string());
                }
                self.write_rows(0)?;
            }
        }
        Ok(())
    }

    fn add_container(
        &mut self,
        archive: &Arc<dyn Archive>,
        container: Id,
        length: u64,
        since: u64,
    ) -> Result<()> {
        let kind = ContainerKind::Files;
        for location in contents_of(archive, kind, container, length)?.members {
            let object = match ObjectReader::open_any(archive, kind, location) {
                Ok(object) => object,
                // The others of a bundle are as good as ever.
                Err(error) => {
                    self.rebuilt.problems.push(error.to_string());
                    continue;
                }
            };
            let heading = object.heading();
            let is_ours = heading.tier == self.tier && heading.kind == KIND_FILE;
            if is_ours && self.missing.contains_key(&heading.file) {
                self.find(&object);
            } else if is_ours && heading.sequence > since {
                self.add_object(&object)?;
            }
        }
        Ok(())
    }

    /// An object of a file that the tree names, and whose object it names is not there any more:
    /// the latest is what the archives have of it.
    fn find(&mut self, object: &ObjectReader) {
        let version = self.with_copies(&object.version());
        if let Some((_, found)) = self.missing.get_mut(&object.heading().file)
            && found.as_ref().is_none_or(|found| found.sequence < version.sequence)
        {
            *found = Some(version);
        }
    }

    /// Makes files whose objects were found in another place than the tree names.
    fn make_missing(&mut self) -> Result<()> {
        for (file, (entries, found)) in std::mem::take(&mut self.missing) {
            for mut entry in entries {
                let Some(version) = &found else {
                    self.rebuilt.lost.push(shown(&entry.attributes.path));
                    continue;
                };
                entry.archived = Some((file, version.clone()));
                self.make(&entry)?;
            }
        }
        self.write_rows(0)
    }

    fn add_object(&mut self, object: &ObjectReader) -> Result<()> {
        let attributes = object.attributes();
        let version = self.with_copies(&object.version());
        let file = object.heading().file;
        match Found::at(self.lower, &attributes.path) {
            Ok(found) => self.follow(found, file, &version, attributes),
            Err(error) if error.errno() == Errno::NOENT => {
                self.rebuilt.younger += 1;
                self.make_stub(attributes, Some((file, version))).map(drop)
            }
            Err(error) => Err(Error::below(&attributes.path)(error)),
        }
    }

    /// An earlier version of the same file, of which nothing is here, gives way to a later one.
    fn follow(
        &mut self,
        found: Found,
        file: Id,
        version: &Version,
        attributes: &Attributes,
    ) -> Result<()> {
        let path = &attributes.path;
        let known = residency::read(&**self.lower, &self.request(), found.ino()).ok().flatten();
        let is_stub = known.as_ref().is_some_and(|known| {
            let whole = Runs::of(0..blocks_of(known.version.size));
            known.file == file
                && known.inode == (self.around.tell)(&found.attr)
                && !known.changed
                && known.offline == whole
                && known.version.sequence < version.sequence
        });
        if !is_stub || attributes.links > 1 {
            self.rebuilt.kept += 1;
            return Ok(());
        }
        let (parent, name) = self.parent(path)?;
        let name = Name::new(name).map_err(fslab_vfs::Error::from).map_err(Error::below(path))?;
        drop(found);
        let gone = self.lower.unlink(&self.request(), parent.ino(), name);
        gone.map_err(Error::below(path))?;
        self.rebuilt.younger += 1;
        self.make_stub(attributes, Some((file, version.clone()))).map(drop)
    }
}
