//! A table of the paths of inodes.
//!
//! The table contains the parent and name of each inode in use by the caller. So renaming a
//! directory changes the paths of everything in it at once. A parent is kept while something in it
//! is in the table. The table needs about 200 bytes and twice the length of the name for each inode
//! in use and its parents. Further names of an inode are kept until they are removed, renamed or
//! found again.
//!
//! An inode with several names has the path by which it was last found, made or renamed. A file
//! without a remaining name keeps its last path; a file that never had a name has none.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::Ino;

/// Maximum depth; deeper inodes have no path here.
const DEPTH_MAX: usize = 4096;

/// A name in a directory.
type Place<'a> = (Ino, &'a OsStr);

/// Paths of all inodes in use.
#[derive(Debug, Default)]
pub struct InodePaths {
    known: HashMap<Ino, Known>,
    /// The inode of each name in a directory.
    names: HashMap<(Ino, Box<OsStr>), Ino>,
}

#[derive(Debug, Default)]
struct Known {
    /// `None` for a file that was made without a name.
    place: Option<(Ino, Box<OsStr>)>,
    lookups: u64,
    /// Number of inodes in the table with this parent.
    children: u64,
}

impl InodePaths {
    /// Records a lookup of an inode, and its name if it has one.
    pub fn learn(&mut self, ino: Ino, place: Option<Place<'_>>) {
        self.known.entry(ino).or_default().lookups += 1;
        if let Some(place) = place {
            self.move_to(ino, place);
        }
    }

    /// Records that a name was removed.
    pub fn removed(&mut self, (parent, name): Place<'_>) {
        self.names.remove(&(parent, name.into()));
    }

    /// Records that a name was moved, or that two names were exchanged.
    pub fn renamed(&mut self, from: Place<'_>, to: Place<'_>, is_exchange: bool) {
        let [moved, replaced] =
            [from, to].map(|(parent, name)| self.names.remove(&(parent, name.into())));
        for (ino, place) in [(moved, to), (replaced.filter(|_| is_exchange), from)] {
            if let Some(ino) = ino {
                self.move_to(ino, place);
            }
        }
    }

    /// Records that the caller released lookups.
    pub fn forget(&mut self, ino: Ino, lookups: u64) {
        if let Some(entry) = self.known.get_mut(&ino) {
            entry.lookups = entry.lookups.saturating_sub(lookups);
            self.drop_unused(ino);
        }
    }

    /// Returns the path of an inode from the root, which is `/`.
    #[must_use]
    pub fn of(&self, ino: Ino) -> Option<Vec<u8>> {
        let mut names = Vec::new();
        let mut at = ino;
        while at != Ino::ROOT {
            // Racing renames may temporarily form a loop of directories in this table.
            if names.len() == DEPTH_MAX {
                return None;
            }
            let (parent, name) = self.known.get(&at)?.place.as_ref()?;
            names.push(name.as_bytes());
            at = *parent;
        }
        names.push(b"");
        names.reverse();
        Some(if names.len() == 1 { b"/".to_vec() } else { names.join(&b'/') })
    }

    /// Returns the path of a name in a directory.
    #[must_use]
    pub fn within(&self, (parent, name): Place<'_>) -> Option<Vec<u8>> {
        let mut path = self.of(parent)?;
        if path != b"/" {
            path.push(b'/');
        }
        path.extend(name.as_bytes());
        Some(path)
    }

    fn move_to(&mut self, ino: Ino, (parent, name): Place<'_>) {
        let Some(entry) = self.known.get_mut(&ino) else { return };
        // The root must have no name, because every path begins there.
        if ino == Ino::ROOT {
            return;
        }
        self.names.insert((parent, name.into()), ino);
        let left = entry.place.replace((parent, name.into())).map(|(parent, _)| parent);
        if left == Some(parent) {
            return;
        }
        if parent != Ino::ROOT {
            self.known.entry(parent).or_default().children += 1;
        }
        if let Some(left) = left {
            self.leave(left);
        }
    }

    /// Subtracts one child from a directory's count.
    fn leave(&mut self, parent: Ino) {
        if let Some(entry) = self.known.get_mut(&parent) {
            entry.children = entry.children.saturating_sub(1);
            self.drop_unused(parent);
        }
    }

    fn drop_unused(&mut self, ino: Ino) {
        let mut next = Some(ino);
        while let Some(ino) = next.take() {
            let is_unused = |one: &Known| one.lookups == 0 && one.children == 0;
            if !self.known.get(&ino).is_some_and(is_unused) {
                return;
            }
            let Some(place) = self.known.remove(&ino).and_then(|one| one.place) else { return };
            if let Some(entry) = self.known.get_mut(&place.0) {
                entry.children = entry.children.saturating_sub(1);
                next = Some(place.0);
            }
            if self.names.get(&place) == Some(&ino) {
                self.names.remove(&place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(paths: &mut InodePaths, ino: u64, parent: u64, name: &str) {
        paths.learn(Ino(ino), Some((Ino(parent), name.as_ref())));
    }

    #[track_caller]
    fn is(paths: &InodePaths, ino: u64, path: &str) {
        assert_eq!(paths.of(Ino(ino)).as_deref(), Some(path.as_bytes()));
    }

    #[test]
    fn renaming_a_directory_changes_all_paths_below_it() {
        let mut paths = InodePaths::default();
        known(&mut paths, 2, 1, "a");
        known(&mut paths, 3, 2, "b");
        known(&mut paths, 4, 3, "file");
        is(&paths, 4, "/a/b/file");
        paths.renamed((Ino(1), "a".as_ref()), (Ino(1), "z".as_ref()), false);
        is(&paths, 4, "/z/b/file");
        assert_eq!(paths.within((Ino(3), "new".as_ref())).unwrap(), b"/z/b/new");
        assert_eq!(paths.within((Ino::ROOT, "new".as_ref())).unwrap(), b"/new");
        is(&paths, 1, "/");
    }

    #[test]
    fn exchanged_names_change_both_paths() {
        let mut paths = InodePaths::default();
        known(&mut paths, 2, 1, "a");
        known(&mut paths, 3, 1, "b");
        known(&mut paths, 4, 3, "file");
        paths.renamed((Ino(3), "file".as_ref()), (Ino(2), "moved".as_ref()), true);
        is(&paths, 4, "/a/moved");
        paths.renamed((Ino(1), "a".as_ref()), (Ino(1), "b".as_ref()), true);
        is(&paths, 4, "/b/moved");
        is(&paths, 3, "/a");
        paths.removed((Ino(2), "moved".as_ref()));
        is(&paths, 4, "/b/moved");
        paths.renamed((Ino(2), "moved".as_ref()), (Ino(1), "c".as_ref()), false);
        is(&paths, 4, "/b/moved");
    }

    #[test]
    fn forgotten_inodes_are_freed_once_no_path_needs_them() {
        let mut paths = InodePaths::default();
        known(&mut paths, 2, 1, "a");
        known(&mut paths, 3, 2, "b");
        known(&mut paths, 3, 2, "b");
        paths.forget(Ino(2), 1);
        is(&paths, 3, "/a/b");
        paths.forget(Ino(3), 1);
        assert_eq!((paths.known.len(), paths.names.len()), (2, 2));
        paths.forget(Ino(3), 1);
        assert_eq!((paths.known.len(), paths.names.len()), (0, 0));
        paths.renamed((Ino(2), "b".as_ref()), (Ino(1), "c".as_ref()), false);
        assert_eq!(paths.of(Ino(3)), None);
    }

    #[test]
    fn a_file_without_a_name_has_no_path_until_it_is_linked() {
        let mut paths = InodePaths::default();
        paths.learn(Ino(5), None);
        assert_eq!(paths.of(Ino(5)), None);
        known(&mut paths, 5, 1, "linked");
        is(&paths, 5, "/linked");
        paths.forget(Ino(5), 2);
        assert_eq!((paths.known.len(), paths.names.len()), (0, 0));
    }
}
