//! Which path an inode is known by.
//!
//! Each inode that the caller remembers has its parent and name here, so that renaming a directory
//! moves everything below it at once. A parent stays for as long as something below it is known.
//! Memory: about 100 bytes and the name for each inode that the caller remembers or that lies above
//! one.
//!
//! Of several names, an inode has the one it was last found, made or renamed by. A file whose name
//! is gone keeps its last path, and one that never had a name has none.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fslab_vfs::Ino;
use parking_lot::RwLock;

/// Deeper trees have no paths here.
const DEPTH_MAX: usize = 4096;

/// Paths of all inodes that somebody remembers.
#[derive(Debug, Default)]
pub(super) struct Paths {
    known: RwLock<HashMap<Ino, Known>>,
}

#[derive(Debug, Default)]
struct Known {
    /// `None` for a file that was made without a name.
    place: Option<(Ino, Box<OsStr>)>,
    lookups: u64,
    /// Known inodes whose parent this is.
    children: u64,
}

impl Paths {
    /// Notes that the caller was told of an inode, by a name if it has one.
    pub fn learn(&self, ino: Ino, place: Option<(Ino, &OsStr)>) {
        let mut known = self.known.write();
        known.entry(ino).or_default().lookups += 1;
        if let Some((parent, name)) = place {
            move_to(&mut known, ino, parent, name);
        }
    }

    /// Notes that an inode has another name now, if the inode is known.
    pub fn renamed(&self, ino: Ino, parent: Ino, name: &OsStr) {
        let mut known = self.known.write();
        if known.contains_key(&ino) {
            move_to(&mut known, ino, parent, name);
        }
    }

    /// Notes that the caller gave lookups back.
    pub fn forget(&self, ino: Ino, lookups: u64) {
        let mut known = self.known.write();
        if let Some(entry) = known.get_mut(&ino) {
            entry.lookups = entry.lookups.saturating_sub(lookups);
            drop_unused(&mut known, ino);
        }
    }

    /// The path of an inode from the root, which is `/`.
    pub fn of(&self, ino: Ino) -> Option<Vec<u8>> {
        let known = self.known.read();
        let mut names = Vec::new();
        let mut at = ino;
        while at != Ino::ROOT {
            // Renames that race may leave two directories below each other here for a moment.
            if names.len() == DEPTH_MAX {
                return None;
            }
            let (parent, name) = known.get(&at)?.place.as_ref()?;
            names.push(&**name);
            at = *parent;
        }
        let mut path = Vec::new();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend(name.as_bytes());
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Some(path)
    }

    /// The path of a name within a directory.
    pub fn within(&self, parent: Ino, name: &OsStr) -> Option<Vec<u8>> {
        let mut path = self.of(parent)?;
        if path != b"/" {
            path.push(b'/');
        }
        path.extend(name.as_bytes());
        Some(path)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.known.read().len()
    }
}

fn move_to(known: &mut HashMap<Ino, Known>, ino: Ino, parent: Ino, name: &OsStr) {
    let is_there = |place: &(Ino, Box<OsStr>)| place.0 == parent && *place.1 == *name;
    let Some(entry) = known.get_mut(&ino) else { return };
    // A name of the root, or one that leads back to itself, would make a path without end.
    if ino == Ino::ROOT || entry.place.as_ref().is_some_and(is_there) {
        return;
    }
    let left = entry.place.replace((parent, name.into())).map(|(parent, _)| parent);
    if parent != Ino::ROOT {
        known.entry(parent).or_default().children += 1;
    }
    if let Some(left) = left {
        leave(known, left);
    }
}

/// A directory has one known child less.
fn leave(known: &mut HashMap<Ino, Known>, parent: Ino) {
    if let Some(entry) = known.get_mut(&parent) {
        entry.children = entry.children.saturating_sub(1);
        drop_unused(known, parent);
    }
}

fn drop_unused(known: &mut HashMap<Ino, Known>, ino: Ino) {
    let mut next = Some(ino);
    while let Some(ino) = next.take() {
        let unused = known.get(&ino).is_some_and(|one| one.lookups == 0 && one.children == 0);
        let parent = unused.then(|| known.remove(&ino)).flatten().and_then(|one| one.place);
        if let Some((parent, _)) = parent
            && let Some(entry) = known.get_mut(&parent)
        {
            entry.children = entry.children.saturating_sub(1);
            next = Some(parent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(paths: &Paths, ino: u64, parent: u64, name: &str) {
        paths.learn(Ino(ino), Some((Ino(parent), name.as_ref())));
    }

    #[track_caller]
    fn is(paths: &Paths, ino: u64, path: &str) {
        assert_eq!(paths.of(Ino(ino)).as_deref(), Some(path.as_bytes()));
    }

    #[test]
    fn a_renamed_directory_takes_everything_along() {
        let paths = Paths::default();
        known(&paths, 2, 1, "a");
        known(&paths, 3, 2, "b");
        known(&paths, 4, 3, "file");
        is(&paths, 4, "/a/b/file");
        paths.renamed(Ino(2), Ino(1), "z".as_ref());
        is(&paths, 4, "/z/b/file");
        assert_eq!(paths.within(Ino(3), "new".as_ref()).unwrap(), b"/z/b/new");
        assert_eq!(paths.within(Ino::ROOT, "new".as_ref()).unwrap(), b"/new");
        is(&paths, 1, "/");
    }

    #[test]
    fn what_is_forgotten_takes_no_memory_but_keeps_the_path_below() {
        let paths = Paths::default();
        known(&paths, 2, 1, "a");
        known(&paths, 3, 2, "b");
        known(&paths, 3, 2, "b");
        paths.forget(Ino(2), 1);
        is(&paths, 3, "/a/b");
        paths.forget(Ino(3), 1);
        assert_eq!(paths.len(), 2);
        paths.forget(Ino(3), 1);
        assert_eq!(paths.len(), 0);
        paths.renamed(Ino(3), Ino(1), "c".as_ref());
        assert_eq!(paths.of(Ino(3)), None);
    }

    #[test]
    fn a_file_without_a_name_has_no_path_until_it_is_linked() {
        let paths = Paths::default();
        paths.learn(Ino(5), None);
        assert_eq!(paths.of(Ino(5)), None);
        known(&paths, 5, 1, "linked");
        is(&paths, 5, "/linked");
        paths.forget(Ino(5), 2);
        assert_eq!(paths.len(), 0);
    }
}
