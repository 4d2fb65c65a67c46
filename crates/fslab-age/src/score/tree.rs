//! Scores any file system that reports extents, and computes a checksum of its tree.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use fslab_vfs::{Attr, Extent, FileKind, FileSystem, Ino, Layout, Name, Request};

use super::extents::layout_of;
use super::tally::Score;
use super::{Rules, extents::FileLayout};
use crate::error::{Error, Result};
use crate::workload::{checksum_of_lines, tree_line};

/// Scores every regular file of a file system.
///
/// # Errors
/// Fails if the file system can't report extents, or if one of its operations fails.
pub fn score_tree(target: &dyn FileSystem, rules: Rules) -> Result<Score> {
    score_files(target, rules, &mut |_file| {})
}

/// A file with its layout.
#[derive(Clone, Copy, Debug)]
pub struct ScoredFile<'a> {
    /// The path of the file without a leading slash. For several hard links, the first path found.
    pub path: &'a [u8],
    /// The extents of the file.
    pub extents: &'a [Extent],
    /// The layout of the file, as included in the score.
    pub layout: FileLayout,
}

/// Scores every regular file and calls `each` with it.
///
/// # Errors
/// Returns the same errors as [`score_tree`].
pub fn score_files(
    target: &dyn FileSystem,
    rules: Rules,
    each: &mut dyn FnMut(&ScoredFile<'_>),
) -> Result<Score> {
    let unsupported = || fslab_vfs::Error::Errno(fslab_vfs::Errno::OPNOTSUPP);
    let layout = target.layout().ok_or_else(unsupported);
    let layout = layout.map_err(Error::volume("can't read the layout of files"))?;
    let (score, seen) = (Score::by(rules), HashSet::new());
    let mut walk = Scorer { layout, rules, score, seen, each };
    visit(target, &mut |path, directory, attr, last| {
        walk.file(path, directory, attr, last).map_err(Error::volume(shown(path)))
    })?;
    Ok(walk.score)
}

struct Scorer<'a> {
    layout: &'a dyn Layout,
    rules: Rules,
    score: Score,
    seen: HashSet<Ino>,
    each: &'a mut dyn FnMut(&ScoredFile<'_>),
}

impl Scorer<'_> {
    /// Adds a file; `last` is the end of the previous file in the listing.
    fn file(
        &mut self,
        path: &[u8],
        directory: Ino,
        attr: &Attr,
        last: &mut Option<u64>,
    ) -> fslab_vfs::Result<()> {
        if attr.kind != FileKind::Regular || !self.seen.insert(attr.ino) {
            return Ok(());
        }
        let extents = self.layout.extents(attr.ino)?;
        let layout = layout_of(&extents, attr.size, self.rules.block_bytes);
        let split = self.is_split(directory, &layout)?;
        self.score.add(&layout, split);
        (self.each)(&ScoredFile { path, extents: &extents, layout });
        self.score.add_extents(&extents, attr.size);
        if let (Some(from), Some(to)) = (*last, layout.first) {
            self.score.distances.add(from, to);
        }
        *last = layout.end.or(*last);
        Ok(())
    }

    /// Whether a file's first block is in another group than its directory's first block.
    fn is_split(&self, directory: Ino, layout: &FileLayout) -> fslab_vfs::Result<bool> {
        let (Some(group), Some(first)) = (self.rules.group_bytes, layout.first) else {
            return Ok(false);
        };
        let directory = self.layout.extents(directory)?;
        Ok(directory.first().is_some_and(|extent| extent.physical / group != first / group))
    }
}

/// Returns a checksum of a tree. It covers every path with its kind, size and owner. It equals the
/// checksum of the workload's [`Population`](crate::workload::Population) if a replay performed all
/// operations. The directory `lost+found`, which mkfs creates, is ignored.
///
/// # Errors
/// Fails if an operation of the file system fails.
pub fn tree_checksum(target: &dyn FileSystem, with_owners: bool) -> Result<String> {
    let mut lines = Vec::new();
    visit(target, &mut |path, _directory, attr, _last| {
        let letter = match attr.kind {
            FileKind::Directory => 'd',
            FileKind::Symlink => 'l',
            _ => 'f',
        };
        let owner = if with_owners { (attr.uid, attr.gid) } else { (0, 0) };
        lines.push(tree_line(path, letter, attr.size, owner));
        Ok(())
    })?;
    Ok(checksum_of_lines(lines))
}

/// Counts the files and directories of a tree. A file with several names is counted once for each
/// name. `lost+found` is ignored.
///
/// # Errors
/// Fails if an operation of the file system fails.
pub fn count_entries(target: &dyn FileSystem) -> Result<u64> {
    let mut entries = 0;
    visit(target, &mut |_path, _directory, _attr, _last| {
        entries += 1;
        Ok(())
    })?;
    Ok(entries)
}

fn shown(path: &[u8]) -> String {
    path.escape_ascii().to_string()
}

/// The callback of [`visit`]. It receives an entry's path, directory and attributes, and a value
/// that it may keep between the entries of one directory.
type Visitor<'a> = dyn FnMut(&[u8], Ino, &Attr, &mut Option<u64>) -> Result<()> + 'a;

/// Visits everything under the root. The entries of a directory are visited in listing order.
fn visit(target: &dyn FileSystem, visitor: &mut Visitor<'_>) -> Result<()> {
    let mut waiting = vec![(Vec::new(), Ino::ROOT)];
    while let Some((path, directory)) = waiting.pop() {
        let visited = visit_directory(target, (&path, directory), &mut waiting, visitor);
        if visited.is_err() {
            forget(target, directory, &waiting);
            return visited;
        }
        forget(target, directory, &[]);
    }
    Ok(())
}

/// Visits the entries of a directory, and adds its subdirectories to `waiting`.
fn visit_directory(
    target: &dyn FileSystem,
    (path, directory): (&[u8], Ino),
    waiting: &mut Vec<(Vec<u8>, Ino)>,
    visitor: &mut Visitor<'_>,
) -> Result<()> {
    let mut last = None;
    for name in list(target, directory).map_err(Error::volume(shown(path)))? {
        let child = join(path, name.as_bytes());
        if child == b"lost+found" {
            continue;
        }
        let found = find(target, directory, &name).map_err(Error::volume(shown(&child)))?;
        let visited = visitor(&child, directory, &found, &mut last);
        if found.kind == FileKind::Directory && visited.is_ok() {
            waiting.push((child, found.ino));
        } else {
            target.forget(found.ino, 1);
        }
        visited?;
    }
    Ok(())
}

/// Releases the lookup references of `directory` and of the `waiting` directories.
fn forget(target: &dyn FileSystem, directory: Ino, waiting: &[(Vec<u8>, Ino)]) {
    let all = waiting.iter().map(|(_, ino)| *ino).chain([directory]);
    all.filter(|ino| *ino != Ino::ROOT).for_each(|ino| target.forget(ino, 1));
}

fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

fn find(target: &dyn FileSystem, directory: Ino, name: &OsStr) -> fslab_vfs::Result<Attr> {
    Ok(target.lookup(&Request::default(), directory, Name::new(name)?)?.attr)
}

fn list(target: &dyn FileSystem, directory: Ino) -> fslab_vfs::Result<Vec<OsString>> {
    let request = Request::default();
    let handle = target.opendir(&request, directory)?;
    let mut names = Vec::new();
    let listed = target.readdir(&request, directory, handle, 0, &mut |entry| {
        if !matches!(entry.name.as_bytes(), b"." | b"..") {
            names.push(OsString::from_vec(entry.name.as_bytes().to_vec()));
        }
        true
    });
    target.releasedir(&request, directory, handle)?;
    listed.map(|()| names)
}
