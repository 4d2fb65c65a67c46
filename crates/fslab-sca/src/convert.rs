//! Whole trees, encoded and decoded in place while nothing is mounted over them.
//!
//! A file is copied to a name of its own beside it, through a layer one way or the other; the copy
//! is compared with it, gets all its attributes, is made durable, and trades names with it. Only
//! then the original goes. So each file is whole at any moment, under its name; what an interrupted
//! run left goes with the next run, which goes on where it ended.
//!
//! Nothing is converted that somebody writes to: a lease tells of writers, up to the moment after
//! the names were traded, when they can still be traded back.

mod contents;
mod estimate;
mod kept;
mod parallel;
mod resume;
mod scope;
mod times;
mod walk;

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fslab_sys::lease::Lease;
use fslab_vfs::{
    Attr, Credentials, Errno, FileSystem, HostFs, HostOptions, Ino, LockMode, Name, Permissions,
    RenameMode, Request, Result, SetAttr, SetTime, XattrMode,
};

use parking_lot::Mutex;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

use super::context::{mix, own_request};
use super::{format, options, size_xattr};
use crate::error::Error;
use fslab_layers::{LayerChoice, StackContext};

pub use estimate::{Estimate, codec_of, estimate};
use parallel::ThreadCount;
use resume::Marking;
pub use scope::DecodedFiles;
use scope::{PartOfPlainTree, Rule, Scope};
use times::Times;

/// Begins the names of copies that are being made; the inode follows, in 16 hexadecimal digits.
const COPY_NAME: &str = ".fslab-convert-";

/// The permission of a file's owner to write to it.
const OWNER_WRITES: u32 = 0o200;

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
    /// It looks like a stored file, but all files of the tree are plain: it stays as it is.
    Lookalike,
    /// It was not converted: it is as it was.
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
    /// Others own it, and it has several names, of which only privileged runs keep count.
    #[error("it has several names and another owner, and trusted xattrs can't be set")]
    NotMarkable,
    /// Somebody wrote to it after the names were traded, and trading them back failed.
    #[error("somebody wrote to it, and what counts is {name:?} beside it: {source}")]
    Stranded {
        /// Where the original is.
        name: OsString,
        /// Why it does not have its name.
        source: fslab_vfs::Error,
    },
    /// What it holds is a stored file itself, which the next run would decode too.
    #[error("what it holds is a stored file itself, and no xattr can be set to say so: {0}")]
    Nested(#[source] fslab_vfs::Error),
    /// It looks like a stored file, and nothing can be recorded.
    #[error("it looks like a stored file, and no xattr of the tree can record whether it is one")]
    Unrecorded,
    /// It belongs to another user or group.
    #[error("it belongs to user {uid} and group {gid}, and only root can give them the new file")]
    OtherOwner {
        /// The owner.
        uid: u32,
        /// The group.
        gid: u32,
    },
    /// An xattr can't be copied.
    #[error("its xattr {name:?} can't be copied: {source}")]
    Xattr {
        /// Which one.
        name: OsString,
        /// Why.
        source: fslab_vfs::Error,
    },
    /// An original that an interrupted run left, of which no copy is there.
    #[error(
        "an interrupted run left it, and nothing beside it is the same: give it its name back, \
         or remove it"
    )]
    Original,
    /// A call failed.
    #[error("{0}")]
    Failed(#[from] fslab_vfs::Error),
}

type Kept<T> = std::result::Result<T, Why>;

/// Takes a path in the tree, and the share of the file that is done.
type ReportShare = dyn Fn(&Path, f64) + Send + Sync;

/// A tree that is being converted. Nobody else can mount or convert it.
pub struct Conversion {
    direction: Direction,
    lower: Arc<dyn FileSystem>,
    layered: Arc<dyn FileSystem>,
    request: Request,
    /// The ordinary user who converts; nothing where that is root.
    user: Option<u32>,
    scope: Scope,
    /// Files that this run marked because they look like stored files.
    lookalikes: AtomicU64,
    marking: Marking,
    /// Times of directories before they were changed.
    noted_times: Mutex<HashMap<Ino, Times>>,
    /// What failed first of what had to be tidied up, which the next run does again.
    untidy: Mutex<Option<fslab_vfs::Error>>,
    /// Takes the share of a file that is done.
    report_share: Box<ReportShare>,
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
        context: &StackContext,
    ) -> crate::Result<Self> {
        let failed = |source| Error::StoredFile { path: root.to_owned(), source };
        let lower = HostFs::open(root, &HostOptions::default()).map_err(failed)?;
        let request = request_of_this_process();
        Self::by(request, Arc::new(lower), layer, direction, context)
    }

    /// As [`Self::open`], over any file system, as root.
    ///
    /// # Errors
    /// As there.
    pub fn over(
        lower: Arc<dyn FileSystem>,
        layer: &LayerChoice,
        direction: Direction,
        context: &StackContext,
    ) -> crate::Result<Self> {
        Self::by(own_request(), lower, layer, direction, context)
    }

    fn by(
        request: Request,
        lower: Arc<dyn FileSystem>,
        layer: &LayerChoice,
        direction: Direction,
        context: &StackContext,
    ) -> crate::Result<Self> {
        let codec = codec_of(layer)?;
        let failed = |source| Error::from(fslab_layers::Error::Layer { layer: codec.name, source });
        options::lock_tree(codec, &*lower, LockMode::Passing)?;
        let scope = Scope::find(&*lower, &request, direction).map_err(failed)?;
        let mut scope = scope.map_err(|PartOfPlainTree(path)| Error::PartOfPlainTree { path })?;
        match direction {
            Direction::Decode => size_xattr::expect_foreign_files(&*lower, &request),
            Direction::Encode => scope.begin_encoding(&*lower, &request, new_key(context)),
        }
        .map_err(failed)?;
        let around = context.of_conversion(scope.key());
        let layered = layer.build_in(Arc::clone(&lower), &around)?;
        let uid = request.credentials.uid;
        let marking = Marking::find(&*lower, &request, uid).map_err(failed)?;
        Ok(Self {
            direction,
            lower,
            layered,
            request,
            user: (uid != 0).then_some(uid),
            scope,
            lookalikes: AtomicU64::new(0),
            report_share: Box::new(|_path, _share| {}),
            marking,
            noted_times: Mutex::default(),
            untidy: Mutex::default(),
        })
    }

    /// Has the share of each file that is done reported, with its path in the tree: from 0 to 1, by
    /// all threads, several times for a large file.
    pub fn report_shares(&mut self, report: impl Fn(&Path, f64) + Send + Sync + 'static) {
        self.report_share = Box::new(report);
    }

    /// Converts everything on so many threads (0: one a processor); `tell` is called by them for
    /// each regular file, once for one of several names.
    ///
    /// # Errors
    /// That directories can't be listed, the end can't be made durable, or something is left of a
    /// file that was converted, which the next run removes.
    pub fn run(&self, threads: usize, tell: &(dyn Fn(&Path, &Outcome) + Sync)) -> Result<()> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let is_any_kept = AtomicBool::new(false);
        self.walk(ThreadCount(threads), &|path, outcome| {
            is_any_kept.fetch_or(matches!(outcome, Outcome::Kept(_)), Ordering::Relaxed);
            tell(path, outcome);
        })?;
        self.layered.shutdown()?;
        self.untidy.lock().take().map_or(Ok(()), Err)?;
        self.end_run(!is_any_kept.into_inner())
    }

    /// Notes what failed though a file is converted, or is not for another reason.
    fn tidied(&self, done: Result<()>) {
        if let Err(error) = done {
            self.untidy.lock().get_or_insert(error);
        }
    }

    /// Converts a file of one name, or says why not.
    fn single(&self, place: &Place<'_>) -> Outcome {
        self.convert(place).unwrap_or_else(Outcome::Kept)
    }

    fn convert(&self, place: &Place<'_>) -> Kept<Outcome> {
        let attr = match self.expect_other_kind(place.ino)? {
            Ok(attr) => attr,
            Err(outcome) => return Ok(outcome),
        };
        self.note_times(place.parent)?;
        let lease = self.lease(&attr)?;
        let copy = self.copy(place, &attr)?;
        let traded = self.trade(place, &attr, &copy, lease.as_ref());
        let converted = traded.map(|()| {
            self.tidied(self.remove_if(place.parent, &copy.name, attr.ino));
            self.converted(&attr, copy.ino)
        });
        self.lower.forget(copy.ino, 1);
        converted
    }

    /// What to tell of a file that is converted, whatever fails from now on.
    fn converted(&self, before: &Attr, copy: Ino) -> Outcome {
        let after = self.lower.getattr(&self.request, copy, None);
        let after_blocks = after.as_ref().map_or(before.blocks, |attr| attr.blocks);
        self.tidied(after.map(drop));
        let (before_bytes, after_bytes) = (before.blocks * 512, after_blocks * 512);
        Outcome::Converted { before_bytes, after_bytes }
    }

    /// The attributes below of a file that is to be converted, or what to tell of another.
    ///
    /// A stored file without a mark gets one when a layer looks at it, which is no change by
    /// somebody else: so one has looked before.
    fn expect_other_kind(&self, ino: Ino) -> Kept<std::result::Result<Attr, Outcome>> {
        let attr = self.lower.getattr(&self.request, ino, None)?;
        if attr.size == 0 {
            return Ok(Err(Outcome::Already));
        }
        let is_stored = match self.is_stored(&attr) {
            Err(_) if self.is_of_others(&attr) => return Err(other_owner(&attr)),
            answer => answer?,
        };
        if is_stored == (self.direction == Direction::Encode) {
            let looks = !is_stored && self.scope.rule == Rule::Plain && self.is_lookalike(ino)?;
            return Ok(Err(if looks { Outcome::Lookalike } else { Outcome::Already }));
        }
        if self.is_of_others(&attr) {
            return Err(other_owner(&attr));
        }
        if self.direction == Direction::Decode {
            self.layered.getattr(&self.request, ino, None)?;
        }
        Ok(Ok(self.lower.getattr(&self.request, ino, None)?))
    }

    /// Whether only root can give a copy of the file its owner.
    fn is_of_others(&self, attr: &Attr) -> bool {
        self.user.is_some_and(|uid| uid != attr.uid)
    }

    /// A lease on the file, where it has a path and the file system has leases. Without one, what
    /// changes is found by its times only.
    fn lease(&self, attr: &Attr) -> Kept<Option<Lease>> {
        let Some(path) = self.lower.path_below(attr.ino) else { return Ok(None) };
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        // The path the kernel knows has no symbolic links: whoever puts some there by now would
        // have anything opened, devices too.
        let file = match openat2(CWD, &path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOSYS) => return Ok(None),
            Err(rustix::io::Errno::LOOP | rustix::io::Errno::NOENT) => return Err(Why::Changed),
            Err(error) => return Err(Why::Failed(error.into())),
        };
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
            let done = self.complete(place.path, attr, ino);
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
    fn complete(&self, path: &Path, attr: &Attr, copy: Ino) -> Kept<()> {
        self.compare(attr, copy, &|place, size| self.pass(path, size + place, 2 * size))?;
        self.keep_attributes(attr, copy)?;
        Ok(contents::sync(&*self.lower, &self.request, copy)?)
    }

    fn keep_attributes(&self, attr: &Attr, copy: Ino) -> Kept<()> {
        let (lower, request) = (&self.lower, &self.request);
        let xattrs = self.kept_xattrs(attr.ino)?;
        // What a directory's default ACL gave the copy, the original need not have.
        for name in self.kept_xattrs(copy)?.keys().filter(|name| !xattrs.contains_key(*name)) {
            lower.removexattr(request, copy, name)?;
        }
        let owner = SetAttr { uid: Some(attr.uid), gid: Some(attr.gid), ..SetAttr::default() };
        lower.setattr(request, copy, None, &owner).map_err(|error| match error.errno() {
            Errno::PERM => other_owner(attr),
            _ => error.into(),
        })?;
        for (name, value) in &xattrs {
            self.set_on_copy(copy, name, value)?;
        }
        self.keep_own_xattrs(attr.ino, copy)?;
        // Last: an ordinary user can't set xattrs of a file that this user may not write to.
        let permissions = Some(attr.permissions);
        lower.setattr(request, copy, None, &SetAttr { permissions, ..SetAttr::default() })?;
        let times = SetAttr {
            accessed: Some(SetTime::To(attr.accessed)),
            modified: Some(SetTime::To(attr.modified)),
            ..SetAttr::default()
        };
        Ok(lower.setattr(request, copy, None, &times).map(drop)?)
    }

    /// Does what needs the right to write to a file; an ordinary user's own file may be read-only.
    fn with_right_to_write(&self, ino: Ino, work: &dyn Fn() -> Result<()>) -> Result<()> {
        let refused = match work() {
            Err(error) if error.errno() == Errno::ACCESS && self.user.is_some() => error,
            answer => return answer,
        };
        let (lower, request) = (&self.lower, &self.request);
        let attr = lower.getattr(request, ino, None)?;
        if self.is_of_others(&attr) {
            return Err(refused);
        }
        let set = |permissions| {
            let permissions = Some(permissions);
            lower.setattr(request, ino, None, &SetAttr { permissions, ..SetAttr::default() })
        };
        set(Permissions::new(attr.permissions.bits() | OWNER_WRITES))?;
        let done = work();
        set(attr.permissions)?;
        done
    }

    /// Sets an xattr of a copy. Where there is no more room, it has that of the size xattr: the
    /// layer finds the size without it.
    fn set_on_copy(&self, copy: Ino, name: &OsStr, value: &[u8]) -> Kept<()> {
        let (lower, request) = (&*self.lower, &self.request);
        let set = || lower.setxattr(request, copy, name, value, XattrMode::empty());
        let answer = match set() {
            Err(error)
                if self.direction == Direction::Encode
                    && matches!(error.errno(), Errno::NOSPC | Errno::DQUOT | Errno::TOOBIG) =>
            {
                size_xattr::set(lower, request, copy, (format::MARK_NAME, None))
                    .and_then(|()| set())
            }
            answer => answer,
        };
        answer.map_err(|source| Why::Xattr { name: name.to_owned(), source })
    }

    /// The xattrs that a copy has of its original.
    fn kept_xattrs(&self, ino: Ino) -> Result<BTreeMap<OsString, Vec<u8>>> {
        let names = match self.lower.listxattr(&self.request, ino) {
            Err(error) if crate::lower::is_absence(error.errno()) => Vec::new(),
            listed => xattr_names(&listed?),
        };
        let kept =
            names.into_iter().filter(|name| !size_xattr::is_ours(name) && !resume::is_mark(name));
        kept.map(|name| Ok((name.clone(), self.lower.getxattr(&self.request, ino, &name)?)))
            .collect()
    }

    /// Lets the copy have the name, and the original the copy's; or the copy's name is gone.
    fn trade(
        &self,
        place: &Place<'_>,
        attr: &Attr,
        copy: &Copy,
        lease: Option<&Lease>,
    ) -> Kept<()> {
        self.give_name(place, attr, copy, lease).inspect_err(|_| {
            // If it is the original's by now, that is what somebody wrote to.
            self.tidied(self.remove_if(place.parent, &copy.name, copy.ino));
        })
    }

    fn give_name(
        &self,
        place: &Place<'_>,
        attr: &Attr,
        copy: &Copy,
        lease: Option<&Lease>,
    ) -> Kept<()> {
        let is_left_alone = || lease.is_none_or(Lease::is_held);
        if !self.is_as_it_was(place, attr)? || !is_left_alone() {
            return Err(Why::Changed);
        }
        self.exchange(place, &copy.name)?;
        // Who opened the original up to now wrote to it: it is what counts.
        if is_left_alone() && self.is_unwritten(attr).is_ok() {
            return Ok(());
        }
        self.take_back(place, &copy.name)?;
        Err(Why::Changed)
    }

    fn exchange(&self, place: &Place<'_>, name: &OsStr) -> Result<()> {
        let (own, other) = (Name::new(place.name())?, Name::new(name)?);
        let parent = place.parent;
        self.lower.rename(&self.request, parent, own, parent, other, RenameMode::EXCHANGE)
    }

    /// Gives the original its name again, in place of the copy.
    fn take_back(&self, place: &Place<'_>, name: &OsStr) -> Kept<()> {
        let (own, other) = (Name::new(place.name()), Name::new(name));
        let renamed = own.and_then(|own| Ok((own, other?))).map_err(Into::into);
        let renamed = renamed.and_then(|(own, other)| {
            let (parent, mode) = (place.parent, RenameMode::empty());
            self.lower.rename(&self.request, parent, other, parent, own, mode)
        });
        renamed.map_err(|source| Why::Stranded { name: name.to_owned(), source })
    }

    /// The attributes of an original that nobody has written to; its names may have changed.
    fn is_unwritten(&self, attr: &Attr) -> Kept<Attr> {
        let now = self.lower.getattr(&self.request, attr.ino, None)?;
        let key = |attr: &Attr| (attr.size, attr.modified);
        if key(&now) == key(attr) { Ok(now) } else { Err(Why::Changed) }
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

    /// Removes a name if it stands for this file.
    fn remove_if(&self, parent: Ino, name: &OsStr, ino: Ino) -> Result<()> {
        let found = match self.lower.lookup(&self.request, parent, Name::new(name)?) {
            Err(error) if error.errno() == Errno::NOENT => return Ok(()),
            found => found?.attr.ino,
        };
        self.lower.forget(found, 1);
        if found == ino { self.remove(parent, name) } else { Ok(()) }
    }
}

fn other_owner(attr: &Attr) -> Why {
    Why::OtherOwner { uid: attr.uid, gid: attr.gid }
}

/// A request of whoever runs this process, at this time.
fn request_of_this_process() -> Request {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    Request { credentials: Credentials { uid, gid }, ..own_request() }
}

/// A key that no earlier run had.
fn new_key(context: &StackContext) -> u64 {
    let now = context.clock().now_ns();
    mix(mix(context.draws().draw()) ^ now)
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
