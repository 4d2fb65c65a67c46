//! Walks a tree twice: first it finds leftovers of earlier runs and files with several names, then
//! it converts every file.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use fslab_sys::lease::Lease;
use fslab_vfs::{Attr, Errno, FileKind, FileSystem, Ino, Name, Request, Result};

use super::parallel::ThreadCount;
use super::resume::Unfinished;
use super::{Conversion, Copy, Kept, Outcome, Place, Why, copy_name, is_copy_name};

/// The results of the first walk.
#[derive(Default)]
pub struct Survey {
    /// Files with several names, by inode.
    groups: HashMap<Ino, Vec<PathBuf>>,
    /// Copies that have not received all names of their originals, by the inode of the original.
    unfinished: HashMap<Ino, Unfinished>,
}

type Tell<'a> = &'a (dyn Fn(&Path, &Outcome) + Sync);

impl Conversion {
    /// Converts everything.
    pub(super) fn walk(&self, threads: ThreadCount, tell: Tell<'_>) -> Result<()> {
        let mut survey = Survey::default();
        self.survey(Ino::ROOT, Path::new(""), &mut survey, tell)?;
        let mut deferred: HashSet<Ino> = survey.groups.keys().copied().collect();
        deferred.extend(survey.unfinished.iter().flat_map(|(ino, found)| [*ino, found.copy]));
        self.note_all_marked()?;
        let mut late = HashMap::new();
        self.directory(Ino::ROOT, Path::new(""), &deferred, &mut late, (threads, tell))?;
        late.extend(survey.groups);
        for (original, found) in survey.unfinished {
            self.resume(original, found, &mut late, tell)?;
        }
        late.iter().for_each(|(ino, paths)| self.group(*ino, paths, None, tell));
        Ok(())
    }

    /// Resumes what an interrupted run of either direction began with a file that has several
    /// names. Files that this completes are removed from `late`.
    fn resume(
        &self,
        original: Ino,
        found: Unfinished,
        late: &mut HashMap<Ino, Vec<PathBuf>>,
        tell: Tell<'_>,
    ) -> Result<()> {
        let Some(paths) = late.remove(&original) else {
            // The original no longer exists or was given other names, so the copy has all names.
            return self.forget_origin(&found);
        };
        let outcome = match self.give_names_back((&paths[0], original), &found) {
            Ok(false) => {
                self.group(original, &paths, Some(found), tell);
                return Ok(());
            }
            Ok(true) => Outcome::Already,
            Err(why) => Outcome::Kept(why),
        };
        late.remove(&found.copy);
        found.paths.iter().for_each(|path| self.tidied(self.restore_times_around(path)));
        tell(&paths[0], &outcome);
        Ok(())
    }

    fn survey(
        &self,
        directory: Ino,
        path: &Path,
        survey: &mut Survey,
        tell: Tell<'_>,
    ) -> Result<()> {
        let entries = match self.entries(directory) {
            Err(error) if is_closed(directory, &error) => {
                tell(path, &Outcome::Kept(Why::Failed(error)));
                return Ok(());
            }
            listed => listed?,
        };
        self.find_noted_times(directory)?;
        for (name, attr) in &entries {
            let path = path.join(name);
            match attr.kind {
                FileKind::Directory => self.survey(attr.ino, &path, survey, tell)?,
                FileKind::Regular if is_copy_name(name) => {
                    if let Err(why) = self.remove_left(directory, (name, attr.ino), &entries) {
                        tell(&path, &Outcome::Kept(why));
                    }
                }
                FileKind::Regular => {
                    self.mark_lookalike(attr)?;
                    if let Some(origin) = self.origin(attr)? {
                        self.note_unfinished(&mut survey.unfinished, origin, attr.ino, &path)?;
                    }
                    if attr.links > 1 {
                        survey.groups.entry(attr.ino).or_default().push(path);
                    }
                }
                _ => {}
            }
        }
        entries.iter().for_each(|(_, attr)| self.lower.forget(attr.ino, 1));
        Ok(())
    }

    /// Converts the files with one name in a directory and its subdirectories. Files in `deferred`
    /// are added to `late`.
    fn directory(
        &self,
        parent: Ino,
        path: &Path,
        deferred: &HashSet<Ino>,
        late: &mut HashMap<Ino, Vec<PathBuf>>,
        (threads, tell): (ThreadCount, Tell<'_>),
    ) -> Result<()> {
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        let entries = match self.entries(parent) {
            // The first walk has already reported that this directory can't be listed.
            Err(error) if is_closed(parent, &error) => return Ok(()),
            listed => listed?,
        };
        for (name, attr) in entries {
            let path = path.join(&name);
            match attr.kind {
                FileKind::Directory => directories.push((attr.ino, path)),
                FileKind::Regular if is_copy_name(&name) => self.lower.forget(attr.ino, 1),
                FileKind::Regular if attr.links == 1 && !deferred.contains(&attr.ino) => {
                    files.push((attr.ino, path));
                }
                FileKind::Regular => {
                    if attr.links == 1 {
                        late.insert(attr.ino, vec![path]);
                    }
                    self.lower.forget(attr.ino, 1);
                }
                _ => self.lower.forget(attr.ino, 1),
            }
        }
        threads.for_each(files, &|(ino, path): (Ino, PathBuf)| {
            tell(&path, &self.single(&Place { parent, path: &path, ino }));
            self.lower.forget(ino, 1);
        });
        self.sync_directory(parent)?;
        for (ino, path) in directories {
            let done = self.directory(ino, &path, deferred, late, (threads, tell));
            self.lower.forget(ino, 1);
            done?;
        }
        self.restore_times(parent)
    }

    /// Restores the xattrs of all files that were marked as foreign while the tree was being
    /// decoded.
    pub(super) fn restore_marks(&self) -> Result<()> {
        self.restore_marks_below(Ino::ROOT)?;
        self.lower.syncfs(&self.request, Ino::ROOT)
    }

    fn restore_marks_below(&self, directory: Ino) -> Result<()> {
        let entries = match self.entries(directory) {
            Err(error) if is_closed(directory, &error) => return Ok(()),
            listed => listed?,
        };
        for (_, attr) in entries {
            let restored = match attr.kind {
                FileKind::Directory => self.restore_marks_below(attr.ino),
                FileKind::Regular => self.restore_mark(attr.ino),
                _ => Ok(()),
            };
            self.lower.forget(attr.ino, 1);
            match restored {
                // A user who may not read or change the file has not marked it.
                Err(error) if matches!(error.errno(), Errno::ACCESS | Errno::PERM) => {}
                answer => answer?,
            }
        }
        Ok(())
    }

    /// Returns the entries of a directory except `.` and `..`. Each lookup must be released with
    /// `forget`.
    fn entries(&self, directory: Ino) -> Result<Vec<(OsString, Attr)>> {
        let mut entries = Vec::new();
        let listed = || names(&*self.lower, &self.request, directory);
        for name in self.keeping_access_time(directory, listed)? {
            match self.lower.lookup(&self.request, directory, Name::new(&name)?) {
                Ok(entry) => entries.push((name, entry.attr)),
                // The file was removed after it was listed.
                Err(error) if error.errno() == fslab_vfs::Errno::NOENT => {}
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
    }

    pub(super) fn sync_directory(&self, directory: Ino) -> Result<()> {
        let handle = self.lower.opendir(&self.request, directory)?;
        let synced = self.lower.fsyncdir(&self.request, directory, handle, false);
        self.lower.releasedir(&self.request, directory, handle)?;
        synced
    }

    /// Converts a file with several names, or reports the reason why it can't be converted.
    fn group(&self, ino: Ino, paths: &[PathBuf], made: Option<Unfinished>, tell: Tell<'_>) {
        let outcome = self.convert_group(ino, paths, made).unwrap_or_else(Outcome::Kept);
        paths.iter().for_each(|path| self.tidied(self.restore_times_around(path)));
        tell(&paths[0], &outcome);
    }

    /// Restores the saved times of the directory that contains the file at `path`.
    fn restore_times_around(&self, path: &Path) -> Result<()> {
        let (parent, found) = self.find(path)?;
        self.lower.forget(found, 1);
        let restored = self.restore_times(parent);
        self.give_back(parent);
        restored
    }

    fn convert_group(
        &self,
        ino: Ino,
        paths: &[PathBuf],
        made: Option<Unfinished>,
    ) -> Kept<Outcome> {
        let (parent, found) = self.find(&paths[0])?;
        let place = Place { parent, path: &paths[0], ino };
        let converted = match found == ino {
            true => self.convert_names(&place, paths, made),
            false => Err(Why::Changed),
        };
        self.lower.forget(found, 1);
        self.give_back(parent);
        converted
    }

    fn convert_names(
        &self,
        place: &Place<'_>,
        paths: &[PathBuf],
        made: Option<Unfinished>,
    ) -> Kept<Outcome> {
        let attr = match self.expect_other_kind(place.ino)? {
            Ok(attr) => attr,
            Err(outcome) => return Ok(outcome),
        };
        let links = attr.links;
        let outside = links.saturating_sub(paths.len() as u32);
        if outside > 0 {
            return Err(Why::NamesOutside { outside, links });
        }
        if !self.marking.marks(&attr) {
            return Err(Why::NotMarkable);
        }
        let lease = self.lease(&attr)?;
        let taken = made.map(|found| self.take_up(&attr, &found)).transpose()?;
        let copy = match taken.flatten() {
            Some(copy) => copy,
            None => self.first_name(place, &attr, lease.as_ref())?,
        };
        let named = self.give_names(&attr, copy, paths, lease.as_ref());
        let unmarked = if named.is_ok() { self.unmark(copy) } else { Ok(()) };
        let removed =
            unmarked.and_then(|()| self.remove_own_names(place.ino, paths, named.is_ok()));
        self.tidied(removed);
        let converted = named.map(|()| self.converted(&attr, copy));
        self.lower.forget(copy, 1);
        converted
    }

    /// Makes a copy that records its original, and gives it the first name.
    fn first_name(&self, place: &Place<'_>, attr: &Attr, lease: Option<&Lease>) -> Kept<Ino> {
        self.note_times(place.parent)?;
        let copy = self.copy(place, attr)?;
        let marked = self.mark_copy(copy.ino, attr.ino).map_err(Why::from);
        let traded = marked
            .inspect_err(|_| self.tidied(self.remove_if(place.parent, &copy.name, copy.ino)))
            .and_then(|()| self.trade(place, attr, &copy, lease));
        traded.map(|()| copy.ino).inspect_err(|_| self.lower.forget(copy.ino, 1))
    }

    /// Gives a copy every name that the original still has. The original keeps a temporary name
    /// until the end, because no other file may get its inode number while the copy's xattr
    /// contains this number.
    pub(super) fn give_names(
        &self,
        attr: &Attr,
        copy: Ino,
        paths: &[PathBuf],
        lease: Option<&Lease>,
    ) -> Kept<()> {
        paths.iter().try_for_each(|path| self.next_name(path, attr, copy, lease))
    }

    /// Removes the temporary names of an original, which it has in the directories of `paths`.
    pub(super) fn remove_own_names(
        &self,
        ino: Ino,
        paths: &[PathBuf],
        is_whole: bool,
    ) -> Result<()> {
        paths.iter().try_for_each(|path| self.remove_own_name(path, ino, is_whole))
    }

    fn next_name(&self, path: &Path, attr: &Attr, copy: Ino, lease: Option<&Lease>) -> Kept<()> {
        let (parent, found) = self.find(path)?;
        let place = Place { parent, path, ino: found };
        let named = match found == attr.ino {
            true => self
                .note_times(parent)
                .map_err(Why::from)
                .and_then(|()| self.other_name(&place, attr, copy, lease)),
            false => Ok(()),
        };
        self.lower.forget(found, 1);
        let named = named.and_then(|()| Ok(self.sync_directory(parent)?));
        self.give_back(parent);
        named
    }

    /// Removes the temporary name that an original has in the directory of `path`. The last name of
    /// the original is removed only if the copy has all other names.
    fn remove_own_name(&self, path: &Path, ino: Ino, is_whole: bool) -> Result<()> {
        let (parent, found) = self.find(path)?;
        self.lower.forget(found, 1);
        let removed = match is_whole || self.has_more_names(ino) {
            true => {
                self.note_times(parent).and_then(|()| self.remove_if(parent, &copy_name(ino), ino))
            }
            false => Ok(()),
        };
        self.give_back(parent);
        removed
    }

    fn has_more_names(&self, ino: Ino) -> bool {
        self.lower.getattr(&self.request, ino, None).is_ok_and(|attr| attr.links > 1)
    }

    fn other_name(
        &self,
        place: &Place<'_>,
        attr: &Attr,
        copy: Ino,
        lease: Option<&Lease>,
    ) -> Kept<()> {
        let name = copy_name(attr.ino);
        self.remove(place.parent, &name)?;
        let linked = Name::new(&name).map_err(fslab_vfs::Error::from)?;
        self.lower.link(&self.request, copy, place.parent, linked)?;
        let copy = Copy { name, ino: copy };
        // The link count, and so the change time, differs after each exchange.
        let named = match self.is_unwritten(attr) {
            Ok(now) => self.trade(place, &now, &copy, lease),
            Err(why) => {
                self.tidied(self.remove_if(place.parent, &copy.name, copy.ino));
                Err(why)
            }
        };
        self.lower.forget(copy.ino, 1);
        named
    }

    /// Looks up the directory and the file of a path. The caller must release one lookup of each,
    /// except of the root.
    pub(super) fn find(&self, path: &Path) -> Result<(Ino, Ino)> {
        let mut parent = Ino::ROOT;
        let mut components = path.iter().peekable();
        let mut found = Err(fslab_vfs::Errno::NOENT.into());
        while let Some(name) = components.next() {
            let looked = Name::new(name)
                .map_err(fslab_vfs::Error::from)
                .and_then(|name| self.lower.lookup(&self.request, parent, name));
            let is_last = components.peek().is_none();
            match looked {
                Ok(entry) if is_last => found = Ok((parent, entry.attr.ino)),
                Ok(entry) => {
                    self.give_back(parent);
                    parent = entry.attr.ino;
                }
                Err(error) => {
                    self.give_back(parent);
                    return Err(error);
                }
            }
        }
        found
    }

    pub(super) fn give_back(&self, directory: Ino) {
        if directory != Ino::ROOT {
            self.lower.forget(directory, 1);
        }
    }
}

/// Whether an error means that this user can't list a directory other than the root.
fn is_closed(directory: Ino, error: &fslab_vfs::Error) -> bool {
    directory != Ino::ROOT && matches!(error.errno(), Errno::ACCESS | Errno::PERM)
}

/// Returns the names in a directory except `.` and `..`.
pub fn names(lower: &dyn FileSystem, request: &Request, directory: Ino) -> Result<Vec<OsString>> {
    let handle = lower.opendir(request, directory)?;
    let (mut names, mut offset, mut is_more) = (Vec::new(), 0, true);
    let mut listed = Ok(());
    while is_more && listed.is_ok() {
        is_more = false;
        listed = lower.readdir(request, directory, handle, offset, &mut |entry| {
            (offset, is_more) = (entry.next_offset, true);
            if entry.name != "." && entry.name != ".." {
                names.push(entry.name.to_owned());
            }
            true
        });
    }
    lower.releasedir(request, directory, handle)?;
    listed.map(|()| names)
}
