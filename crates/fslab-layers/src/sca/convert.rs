//! Whole trees, encoded and decoded in place while nothing is mounted over them.
//!
//! A file is copied to a name of its own beside it, through a layer one way or the other; the copy
//! is compared with it, gets all its attributes, is made durable, and trades names with it. Only
//! then the original goes. So each file is whole at any moment, under its name; what an interrupted
//! run left is recognised by its name and goes with the next run, which goes on where it ended.
//!
//! Nothing is converted that somebody writes to: a lease tells of writers, up to the moment after
//! the names were traded, when they can still be traded back.

mod contents;
mod estimate;
mod walk;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use fslab_sys::lease::Lease;
use fslab_vfs::{
    Attr, Errno, FileSystem, HostFs, HostOptions, Ino, Name, RenameMode, Request, Result, SetAttr,
    SetTime, XattrMode,
};

use rustix::fs::OFlags;

use super::layer::own_request;
use super::mark::{self, Mark};
use super::{options, roots};
use crate::choice::LayerChoice;
use crate::error::Error;
use crate::surroundings::Surroundings;

use walk::Crew;

pub use estimate::{Estimate, codec_of, estimate};

/// Begins the names of copies that are being made; the inode follows, in 16 hexadecimal digits.
const COPY_NAME: &str = ".fslab-convert-";

/// On a copy, while not all names of the original are its: the inode of the original.
const ORIGIN_NAME: &str = "user.fslab.convert";

/// Which way a tree is converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From plain files to stored files.
    Encode,
    /// From stored files to plain ones.
    Decode,
}

/// What became of a file.
#[derive(Debug)]
pub enum Outcome {
    /// It was converted.
    Converted {
        /// Space it took before, in bytes.
        before_bytes: u64,
        /// Space it takes now.
        after_bytes: u64,
    },
    /// It is as wanted already.
    Already,
    /// It is as it was.
    Kept(Why),
}

/// Why a file was not converted.
#[derive(Debug, thiserror::Error)]
pub enum Why {
    /// Somebody has it open for writing.
    #[error("somebody is writing to it")]
    InUse,
    /// It changed while it was copied.
    #[error("it changed meanwhile")]
    Changed,
    /// It has names elsewhere.
    #[error("{outside} of its {links} names are outside the tree")]
    NamesOutside {
        /// Names that were not found.
        outside: u32,
        /// All names.
        links: u32,
    },
    /// The copy is not the same.
    #[error("the copy differs at byte {offset}")]
    Differs {
        /// Where.
        offset: u64,
    },
    /// A call failed.
    #[error("{0}")]
    Failed(#[from] fslab_vfs::Error),
}

type Kept<T> = std::result::Result<T, Why>;

/// A tree that is being converted. Nobody else can mount or convert it.
pub struct Conversion {
    direction: Direction,
    lower: Arc<dyn FileSystem>,
    layered: Arc<dyn FileSystem>,
    request: Request,
}

/// A name of a file: the directory, the path below the root, the file.
struct Place<'a> {
    parent: Ino,
    path: &'a Path,
    ino: Ino,
}

impl Place<'_> {
    fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }
}

/// A copy beside its original, complete and durable.
struct Copy {
    name: OsString,
    ino: Ino,
}

impl Conversion {
    /// Takes a directory, for a layer to write to or to read from.
    ///
    /// # Errors
    /// That it can't be used, or is in use.
    pub fn open(
        root: &Path,
        layer: &LayerChoice,
        direction: Direction,
        surroundings: &Surroundings,
    ) -> crate::Result<Self> {
        let failed = |source| Error::StoredFile { path: root.to_owned(), source };
        let lower = HostFs::open(root, &HostOptions::default()).map_err(failed)?;
        Self::over(Arc::new(lower), layer, direction, surroundings)
    }

    /// As [`Self::open`], over any file system.
    ///
    /// # Errors
    /// As there.
    pub fn over(
        lower: Arc<dyn FileSystem>,
        layer: &LayerChoice,
        direction: Direction,
        surroundings: &Surroundings,
    ) -> crate::Result<Self> {
        let (codec, request) = (codec_of(layer)?, own_request());
        if direction == Direction::Decode {
            options::claim(codec, &*lower)?;
            mark::expect_foreign_files(&*lower, &request)
                .map_err(|source| Error::Layer { layer: codec.name, source })?;
        }
        let layered = layer.build_in(Arc::clone(&lower), surroundings)?;
        Ok(Self { direction, lower, layered, request })
    }

    /// Converts everything on so many threads (0: one a processor); `tell` is called by them for
    /// each regular file, once for one of several names.
    ///
    /// # Errors
    /// That directories can't be listed, or the end can't be made durable.
    pub fn run(&self, threads: usize, tell: &(dyn Fn(&Path, &Outcome) + Sync)) -> Result<()> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        self.walk(&Crew { threads, tell })?;
        self.layered.shutdown()
    }

    /// Converts a file of one name, or says why not.
    fn single(&self, place: &Place<'_>) -> Outcome {
        self.convert(place).unwrap_or_else(Outcome::Kept)
    }

    fn convert(&self, place: &Place<'_>) -> Kept<Outcome> {
        let attr = self.attr(place.ino)?;
        if attr.size == 0 || self.is_stored(&attr)? == (self.direction == Direction::Encode) {
            return Ok(Outcome::Already);
        }
        let lease = self.lease(&attr)?;
        let copy = self.copy(place, &attr)?;
        self.trade(place, &attr, &copy, lease.as_ref())?;
        self.remove(place.parent, &copy.name)?;
        let after = self.lower.getattr(&self.request, copy.ino, None);
        self.lower.forget(copy.ino, 1);
        let (before_bytes, after_bytes) = (attr.blocks * 512, after?.blocks * 512);
        Ok(Outcome::Converted { before_bytes, after_bytes })
    }

    /// Attributes below. A stored file without a mark gets one when a layer looks at it, which is
    /// no change by somebody else: so one has looked before.
    fn attr(&self, ino: Ino) -> Result<Attr> {
        if self.direction == Direction::Decode {
            self.layered.getattr(&self.request, ino, None)?;
        }
        self.lower.getattr(&self.request, ino, None)
    }

    /// Whether a file below is a stored file.
    fn is_stored(&self, attr: &Attr) -> Result<bool> {
        if mark::read(&*self.lower, &self.request, attr.ino)? == Some(Mark::Foreign) {
            return Ok(false);
        }
        let beginning = contents::beginning(&*self.lower, &self.request, attr.ino)?;
        Ok(roots::identify(&beginning).is_some())
    }

    /// A lease on the file, where it has a path and the file system has leases. Without one, what
    /// changes is found by its times only.
    fn lease(&self, attr: &Attr) -> Kept<Option<Lease>> {
        let Some(path) = self.lower.path_below(attr.ino) else { return Ok(None) };
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let file = File::options().read(true).custom_flags(flags).open(&path);
        let file = file.map_err(fslab_vfs::Error::from)?;
        // A path may lead to another file by now.
        let found = file.metadata().map_err(fslab_vfs::Error::from)?;
        let changed = (attr.changed.seconds, i64::from(attr.changed.nanoseconds));
        if (found.len(), found.ctime(), found.ctime_nsec()) != (attr.size, changed.0, changed.1) {
            return Err(Why::Changed);
        }
        match Lease::take(file) {
            Ok(lease) => Ok(Some(lease)),
            Err(rustix::io::Errno::AGAIN) => Err(Why::InUse),
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::ACCESS) => Ok(None),
            Err(error) => Err(Why::Failed(error.into())),
        }
    }

    /// Makes a copy of the other kind beside a file, with all its attributes.
    fn copy(&self, place: &Place<'_>, attr: &Attr) -> Kept<Copy> {
        let name = copy_name(attr.ino);
        self.remove(place.parent, &name)?;
        let made = self.copy_contents(place, &name, attr).and_then(|ino| {
            let done = self.complete(attr, ino);
            done.map(|()| ino).inspect_err(|_| self.lower.forget(ino, 1))
        });
        match made {
            Ok(ino) => Ok(Copy { name, ino }),
            Err(why) => {
                self.remove(place.parent, &name)?;
                Err(why)
            }
        }
    }

    /// Compares, gives the copy the attributes, and makes it durable.
    fn complete(&self, attr: &Attr, copy: Ino) -> Kept<()> {
        self.compare(attr, copy)?;
        self.keep_attributes(attr, copy)?;
        Ok(contents::sync(&*self.lower, &self.request, copy)?)
    }

    fn keep_attributes(&self, attr: &Attr, copy: Ino) -> Result<()> {
        let (lower, request) = (&self.lower, &self.request);
        let owner = SetAttr { uid: Some(attr.uid), gid: Some(attr.gid), ..SetAttr::default() };
        lower.setattr(request, copy, None, &owner)?;
        let permissions = Some(attr.permissions);
        lower.setattr(request, copy, None, &SetAttr { permissions, ..SetAttr::default() })?;
        for name in xattr_names(&lower.listxattr(request, attr.ino)?) {
            if !mark::is_ours(&name) && name != ORIGIN_NAME {
                let value = lower.getxattr(request, attr.ino, &name)?;
                lower.setxattr(request, copy, &name, &value, XattrMode::empty())?;
            }
        }
        let times = SetAttr {
            accessed: Some(SetTime::To(attr.accessed)),
            modified: Some(SetTime::To(attr.modified)),
            ..SetAttr::default()
        };
        lower.setattr(request, copy, None, &times).map(drop)
    }

    /// Lets the copy have the name, and the original the copy's; or nothing has changed.
    fn trade(
        &self,
        place: &Place<'_>,
        attr: &Attr,
        copy: &Copy,
        lease: Option<&Lease>,
    ) -> Kept<()> {
        let is_left_alone = || lease.is_none_or(Lease::is_held);
        let traded = match self.is_as_it_was(place, attr)? && is_left_alone() {
            true => self.exchange(place, &copy.name).map_err(Why::from),
            false => Err(Why::Changed),
        };
        // Who opened the original up to now wrote to it: it is what counts.
        let traded = traded.and_then(|()| match is_left_alone() {
            true => Ok(()),
            false => self.exchange(place, &copy.name).map_err(Why::from).and(Err(Why::Changed)),
        });
        if traded.is_err() {
            self.remove(place.parent, &copy.name)?;
            self.lower.forget(copy.ino, 1);
        }
        traded
    }

    fn exchange(&self, place: &Place<'_>, name: &OsStr) -> Result<()> {
        let (own, other) = (Name::new(place.name())?, Name::new(name)?);
        let parent = place.parent;
        self.lower.rename(&self.request, parent, own, parent, other, RenameMode::EXCHANGE)
    }

    /// Whether the name still stands for the file, and nothing of it has changed.
    fn is_as_it_was(&self, place: &Place<'_>, attr: &Attr) -> Result<bool> {
        let entry = self.lower.lookup(&self.request, place.parent, Name::new(place.name())?)?;
        let now = entry.attr;
        self.lower.forget(now.ino, 1);
        let key = |attr: &Attr| (attr.ino, attr.size, attr.modified, attr.changed, attr.kind);
        Ok(key(&now) == key(attr))
    }

    /// Removes a name if it is there.
    fn remove(&self, parent: Ino, name: &OsStr) -> Result<()> {
        match self.lower.unlink(&self.request, parent, Name::new(name)?) {
            Err(error) if error.errno() == Errno::NOENT => Ok(()),
            answer => answer,
        }
    }
}

fn copy_name(ino: Ino) -> OsString {
    format!("{COPY_NAME}{:016x}", ino.0).into()
}

/// Whether a name is one that only this module gives.
fn is_copy_name(name: &OsStr) -> bool {
    let digits = name.to_str().and_then(|name| name.strip_prefix(COPY_NAME));
    digits.is_some_and(|digits| {
        digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

fn xattr_names(listed: &[u8]) -> Vec<OsString> {
    use std::os::unix::ffi::OsStrExt;
    let names = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| OsStr::from_bytes(name).to_owned()).collect()
}
