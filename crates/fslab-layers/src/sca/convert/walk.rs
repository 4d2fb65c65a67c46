//! Going through a tree: first what earlier runs left and which files have several names, then
//! every file.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use fslab_vfs::{Attr, FileKind, FileSystem, Ino, Name, Request, Result, XattrMode};
use parking_lot::Mutex;

use super::{
    Conversion, Copy, Direction, Kept, ORIGIN_NAME, Outcome, Place, Why, copy_name, is_copy_name,
};

/// Names of a directory of which more is kept in memory than the name, at a time.
const NAMES_AT_A_TIME: usize = 1024;

/// What is known of a tree before anything is converted.
#[derive(Default)]
pub struct Survey {
    /// Files of several names, by inode.
    groups: HashMap<Ino, Vec<PathBuf>>,
    /// Copies that do not have all names of their originals yet, by the originals' inodes.
    unfinished: HashMap<Ino, PathBuf>,
}

/// Who converts, and who is told.
pub struct Crew<'a> {
    pub threads: usize,
    pub tell: &'a (dyn Fn(&Path, &Outcome) + Sync),
}

impl Crew<'_> {
    /// Does something to each of several items, on threads of its own. A thread of a pool would not
    /// do: while it waits for chunks that others encode, it would begin with the next item, and
    /// another within that, each with its buffers.
    fn for_each<I: Send>(&self, items: Vec<I>, work: &(impl Fn(I) + Sync)) {
        let helpers = self.threads.min(items.len()).saturating_sub(1);
        let waiting = Mutex::new(items.into_iter());
        let take = || waiting.lock().next();
        let work_on = || {
            while let Some(item) = take() {
                work(item);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..helpers {
                let begun = std::thread::Builder::new().spawn_scoped(scope, work_on);
                if let Err(error) = begun {
                    tracing::warn!(%error, "fewer threads convert than were asked for");
                }
            }
            work_on();
        });
    }
}

impl Conversion {
    /// Converts everything.
    pub(super) fn walk(&self, crew: &Crew<'_>) -> Result<()> {
        let mut survey = Survey::default();
        self.survey(Ino::ROOT, Path::new(""), &mut survey)?;
        let mut deferred: HashSet<Ino> = survey.groups.keys().copied().collect();
        deferred.extend(survey.unfinished.keys());
        let mut late = HashMap::new();
        self.directory(Ino::ROOT, Path::new(""), &deferred, &mut late, crew)?;
        late.extend(std::mem::take(&mut survey.groups));
        for (ino, paths) in late {
            let made = survey.unfinished.remove(&ino);
            let outcome = self.group(ino, &paths, made);
            (crew.tell)(&paths[0], &outcome);
        }
        // Their originals are gone: they have all names there are.
        for path in survey.unfinished.values() {
            self.forget_origin(path)?;
        }
        Ok(())
    }

    fn survey(&self, directory: Ino, path: &Path, survey: &mut Survey) -> Result<()> {
        for batch in names(&*self.lower, &self.request, directory)?.chunks(NAMES_AT_A_TIME) {
            for (name, attr) in self.entries(directory, batch)? {
                let path = path.join(name);
                match attr.kind {
                    FileKind::Directory => self.survey(attr.ino, &path, survey)?,
                    FileKind::Regular if is_copy_name(name) => self.remove(directory, name)?,
                    FileKind::Regular => {
                        if let Some(origin) = self.origin(attr.ino)? {
                            survey.unfinished.insert(origin, path.clone());
                        }
                        if attr.links > 1 {
                            survey.groups.entry(attr.ino).or_default().push(path);
                        }
                    }
                    _ => {}
                }
                self.lower.forget(attr.ino, 1);
            }
        }
        Ok(())
    }

    /// Converts the files of one name below a directory; those of `deferred` go to `late`.
    fn directory(
        &self,
        parent: Ino,
        path: &Path,
        deferred: &HashSet<Ino>,
        late: &mut HashMap<Ino, Vec<PathBuf>>,
        crew: &Crew<'_>,
    ) -> Result<()> {
        let mut directories = Vec::new();
        for batch in names(&*self.lower, &self.request, parent)?.chunks(NAMES_AT_A_TIME) {
            let mut files = Vec::new();
            for (name, attr) in self.entries(parent, batch)? {
                let path = path.join(name);
                match attr.kind {
                    FileKind::Directory => directories.push((attr.ino, path)),
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
            crew.for_each(files, &|(ino, path): (Ino, PathBuf)| {
                (crew.tell)(&path, &self.single(&Place { parent, path: &path, ino }));
                self.lower.forget(ino, 1);
            });
        }
        self.sync_directory(parent)?;
        for (ino, path) in directories {
            let done = self.directory(ino, &path, deferred, late, crew);
            self.lower.forget(ino, 1);
            done?;
        }
        Ok(())
    }

    /// Names that are still there, with a lookup of each that must be given back.
    fn entries<'a>(
        &self,
        directory: Ino,
        names: &'a [OsString],
    ) -> Result<Vec<(&'a OsStr, Attr)>> {
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            match self.lower.lookup(&self.request, directory, Name::new(name)?) {
                Ok(entry) => entries.push((name.as_os_str(), entry.attr)),
                // It was removed meanwhile.
                Err(error) if error.errno() == fslab_vfs::Errno::NOENT => {}
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
    }

    fn sync_directory(&self, directory: Ino) -> Result<()> {
        let handle = self.lower.opendir(&self.request, directory)?;
        let synced = self.lower.fsyncdir(&self.request, directory, handle, false);
        self.lower.releasedir(&self.request, directory, handle)?;
        synced
    }

    /// Converts a file of several names, or says why not.
    fn group(&self, ino: Ino, paths: &[PathBuf], made: Option<PathBuf>) -> Outcome {
        self.convert_group(ino, paths, made).unwrap_or_else(Outcome::Kept)
    }

    fn convert_group(&self, ino: Ino, paths: &[PathBuf], made: Option<PathBuf>) -> Kept<Outcome> {
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
        made: Option<PathBuf>,
    ) -> Kept<Outcome> {
        let attr = self.attr(place.ino)?;
        if attr.size == 0 || self.is_stored(&attr)? == (self.direction == Direction::Encode) {
            return Ok(Outcome::Already);
        }
        let links = attr.links;
        let outside = links.saturating_sub(paths.len() as u32);
        if outside > 0 {
            return Err(Why::NamesOutside { outside, links });
        }
        let lease = self.lease(&attr)?;
        let copy = match made {
            Some(path) => self.take_up(&attr, &path)?,
            None => self.first_name(place, &attr, lease.as_ref())?,
        };
        let copied = self.other_names(&attr, copy, paths, lease.as_ref());
        let after = self.lower.getattr(&self.request, copy, None);
        self.lower.forget(copy, 1);
        copied?;
        let (before_bytes, after_bytes) = (attr.blocks * 512, after?.blocks * 512);
        Ok(Outcome::Converted { before_bytes, after_bytes })
    }

    /// The copy that an interrupted run made, if it is still the same.
    fn take_up(&self, attr: &Attr, path: &Path) -> Kept<Ino> {
        let (parent, copy) = self.find(path)?;
        self.give_back(parent);
        self.compare(attr, copy).inspect_err(|_| self.lower.forget(copy, 1))?;
        Ok(copy)
    }

    /// Makes a copy that says whose it is, and gives it the first name.
    fn first_name(
        &self,
        place: &Place<'_>,
        attr: &Attr,
        lease: Option<&fslab_sys::lease::Lease>,
    ) -> Kept<Ino> {
        let copy = self.copy(place, attr)?;
        let (name, value) = (OsStr::new(ORIGIN_NAME), attr.ino.0.to_le_bytes());
        let noted = self.lower.setxattr(&self.request, copy.ino, name, &value, XattrMode::empty());
        if let Err(error) = noted {
            self.remove(place.parent, &copy.name)?;
            self.lower.forget(copy.ino, 1);
            return Err(error.into());
        }
        super::contents::sync(&*self.lower, &self.request, copy.ino)?;
        self.trade(place, attr, &copy, lease)?;
        Ok(copy.ino)
    }

    /// Gives a copy every name that is still the original's. The original keeps a name of ours to
    /// the end: as long as the copy names it by its number, no other file may have that.
    fn other_names(
        &self,
        attr: &Attr,
        copy: Ino,
        paths: &[PathBuf],
        lease: Option<&fslab_sys::lease::Lease>,
    ) -> Kept<()> {
        let renamed = paths.iter().try_for_each(|path| {
            let (parent, found) = self.find(path)?;
            let place = Place { parent, path, ino: found };
            let renamed = match found == attr.ino {
                true => self.other_name(&place, attr, copy, lease),
                false => Ok(()),
            };
            self.lower.forget(found, 1);
            let renamed = renamed.and_then(|()| Ok(self.sync_directory(parent)?));
            self.give_back(parent);
            renamed
        });
        if renamed.is_ok() {
            self.lower.removexattr(&self.request, copy, OsStr::new(ORIGIN_NAME))?;
        }
        paths.iter().try_for_each(|path| self.remove_own_name(path, attr.ino))?;
        renamed
    }

    /// Removes the name of ours that a file has beside one of its paths.
    fn remove_own_name(&self, path: &Path, ino: Ino) -> Result<()> {
        let (parent, found) = self.find(path)?;
        self.lower.forget(found, 1);
        let removed = self.remove(parent, &copy_name(ino));
        self.give_back(parent);
        removed
    }

    fn other_name(
        &self,
        place: &Place<'_>,
        attr: &Attr,
        copy: Ino,
        lease: Option<&fslab_sys::lease::Lease>,
    ) -> Kept<()> {
        let name = copy_name(attr.ino);
        self.remove(place.parent, &name)?;
        let linked = Name::new(&name).map_err(fslab_vfs::Error::from)?;
        self.lower.link(&self.request, copy, place.parent, linked)?;
        // The number of names, and with it the time of change, is another for each of them.
        let now = self.lower.getattr(&self.request, attr.ino, None)?;
        let key = |attr: &Attr| (attr.size, attr.modified);
        if key(&now) != key(attr) {
            self.remove(place.parent, &name)?;
            self.lower.forget(copy, 1);
            return Err(Why::Changed);
        }
        self.trade(place, &now, &Copy { name, ino: copy }, lease)?;
        self.lower.forget(copy, 1);
        Ok(())
    }

    /// The directory and the file of a path, looked up once each.
    fn find(&self, path: &Path) -> Result<(Ino, Ino)> {
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

    fn give_back(&self, directory: Ino) {
        if directory != Ino::ROOT {
            self.lower.forget(directory, 1);
        }
    }

    /// Whose copy a file is that does not have all names yet.
    fn origin(&self, ino: Ino) -> Result<Option<Ino>> {
        match self.lower.getxattr(&self.request, ino, OsStr::new(ORIGIN_NAME)) {
            Ok(value) => Ok(value.try_into().ok().map(|bytes| Ino(u64::from_le_bytes(bytes)))),
            Err(error) if super::mark::is_absence(error.errno()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn forget_origin(&self, path: &Path) -> Result<()> {
        let (parent, ino) = self.find(path)?;
        let removed = self.lower.removexattr(&self.request, ino, OsStr::new(ORIGIN_NAME));
        self.lower.forget(ino, 1);
        self.give_back(parent);
        removed
    }
}

/// Names in a directory but for `.` and `..`.
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
