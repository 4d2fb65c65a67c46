//! Encodes and decodes whole trees in place while nothing is mounted over them.
//!
//! Each file is copied through a layer to a temporary name in the same directory. The copy is
//! compared with the original, receives all its attributes, is made durable, and exchanges names
//! with it. Only then is the original removed. So the name refers to a complete file at any moment.
//! The next run removes the leftovers of an interrupted run, and converts the remaining files.
//!
//! A file that is being written is not converted. A lease, held until after the exchange of the
//! names, detects writers. If it has detected one, the exchange is undone.

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

/// Prefix of temporary names; the inode number follows, in 16 hexadecimal digits.
const COPY_NAME: &str = ".fslab-convert-";

/// Permission of the owner to write.
const OWNER_WRITES: u32 = 0o200;

/// Direction of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From plain files to stored files.
    Encode,
    /// From stored files to plain ones.
    Decode,
}

/// The result for one file.
#[derive(Debug)]
pub enum Outcome {
    /// The file was converted.
    Converted {
        /// Space that the file took before, in bytes.
        before_bytes: u64,
        /// Space that the file takes now, in bytes.
        after_bytes: u64,
    },
    /// The file already has the wanted form.
    Already,
    /// The file looks like a stored file, but all files of the tree are plain. It is left
    /// unchanged.
    Lookalike,
    /// The file was not converted and is unchanged.
    Kept(Why),
}

/// The reason why a file was not converted.
#[derive(Debug, thiserror::Error)]
pub enum Why {
    /// A process has the file open for writing.
    #[error("a process has it open for writing")]
    InUse,
    /// The file changed while it was copied.
    #[error("it was changed during the conversion")]
    Changed,
    /// The file has names outside the tree.
    #[error("{outside} of its {links} names are outside the tree")]
    NamesOutside {
        /// Number of names that were not found in the tree.
        outside: u32,
        /// Number of all names.
        links: u32,
    },
    /// The copy differs from the original.
    #[error("the copy differs at byte {offset}")]
    Differs {
        /// Offset of the difference.
        offset: u64,
    },
    /// The file has several names and belongs to another user. Runs need trusted xattrs to keep
    /// track of such files.
    #[error(
        "it has several names and belongs to another user; converting it needs trusted xattrs, \
         which can't be set"
    )]
    NotMarkable,
    /// A process wrote to the file after the exchange of the names, and undoing the exchange
    /// failed.
    #[error(
        "a process wrote to it during the conversion, and the original can't be renamed back; the \
         newest data is in {name:?} in the same directory: {source}"
    )]
    Stranded {
        /// Name of the original.
        name: OsString,
        /// The reason why the original could not get its name back.
        source: fslab_vfs::Error,
    },
    /// The content of the file is itself a stored file, which the next run would decode too.
    #[error("its content is itself a stored file, and no xattr can be set to record this: {0}")]
    Nested(#[source] fslab_vfs::Error),
    /// The file looks like a stored file, and the tree has no xattr to record whether it is one.
    #[error("it looks like a stored file, and the tree has no xattr to record whether it is one")]
    Unrecorded,
    /// The file belongs to another user or group.
    #[error("it belongs to user {uid} and group {gid}, and only root can give a copy this owner")]
    OtherOwner {
        /// The owner.
        uid: u32,
        /// The group.
        gid: u32,
    },
    /// An xattr can't be copied.
    #[error("its xattr {name:?} can't be copied: {source}")]
    Xattr {
        /// Name of the xattr.
        name: OsString,
        /// The cause.
        source: fslab_vfs::Error,
    },
    /// An original left by an interrupted run, without a matching copy.
    #[error(
        "an interrupted run left this original, and no file in its directory has the same content: \
         rename it to its original name, or remove it"
    )]
    Original,
    /// An operation on the file failed.
    #[error("{0}")]
    Failed(#[from] fslab_vfs::Error),
}

type Kept<T> = std::result::Result<T, Why>;

/// Receives a path in the tree, and the converted share of the file.
type ReportShare = dyn Fn(&Path, f64) + Send + Sync;

/// A tree that is being converted. No other process can mount or convert it.
pub struct Conversion {
    direction: Direction,
    lower: Arc<dyn FileSystem>,
    layered: Arc<dyn FileSystem>,
    request: Request,
    /// The ordinary user who runs the conversion; `None` for root.
    user: Option<u32>,
    scope: Scope,
    /// Files that this run marked because they look like stored files.
    lookalikes: AtomicU64,
    marking: Marking,
    /// Times of directories before the conversion changed them.
    noted_times: Mutex<HashMap<Ino, Times>>,
    /// The first error of cleaning up; the next run cleans up again.
    untidy: Mutex<Option<fslab_vfs::Error>>,
    /// Receives the converted share of a file.
    report_share: Box<ReportShare>,
}

/// One name of a file: its directory, its path relative to the root, and its inode.
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

/// A complete and durable copy, in the directory of its original.
struct Copy {
    name: OsString,
    ino: Ino,
}

impl Conversion {
    /// Opens a directory for conversion with a layer.
    ///
    /// # Errors
    /// The directory can't be used or is in use.
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

    /// Opens any file system for conversion, with requests by root.
    ///
    /// # Errors
    /// As for [`Self::open`].
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

    /// Sets the function that receives each file's progress: its path in the tree and a share from
    /// 0 to 1. All threads call it, several times for a large file.
    pub fn report_shares(&mut self, report: impl Fn(&Path, f64) + Send + Sync + 'static) {
        self.report_share = Box::new(report);
    }

    /// Converts everything with this many threads (0: one for each processor). The threads call
    /// `tell` once for each regular file, even if it has several names.
    ///
    /// # Errors
    /// A directory can't be listed, the end of the run can't be made durable, or tidying up after a
    /// file failed. The next run repeats the tidying.
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

    /// Records an error of cleaning up, which does not change the outcome of the file.
    fn tidied(&self, done: Result<()>) {
        if let Err(error) = done {
            self.untidy.lock().get_or_insert(error);
        }
    }

    /// Converts a file with one name, or returns the reason why it can't be converted.
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

    /// Returns the outcome of a converted file. An error in determining its new space does not
    /// change the outcome.
    fn converted(&self, before: &Attr, copy: Ino) -> Outcome {
        let after = self.lower.getattr(&self.request, copy, None);
        let after_blocks = after.as_ref().map_or(before.blocks, |attr| attr.blocks);
        self.tidied(after.map(drop));
        let (before_bytes, after_bytes) = (before.blocks * 512, after_blocks * 512);
        Outcome::Converted { before_bytes, after_bytes }
    }

    /// Returns the attributes of the lower file if the file is to be converted, and otherwise its
    /// outcome.
    ///
    /// When a layer inspects a stored file without a size xattr, it sets the xattr. This must not
    /// be mistaken for a change by another process, so the file is inspected before its attributes
    /// are read.
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

    /// Whether the file belongs to another user, so that only root can give its copy this owner.
    fn is_of_others(&self, attr: &Attr) -> bool {
        self.user.is_some_and(|uid| uid != attr.uid)
    }

    /// Takes a lease on the file, if it has a path and the file system supports leases. Without a
    /// lease, changes are only detected by the file's times.
    fn lease(&self, attr: &Attr) -> Kept<Option<Lease>> {
        let Some(path) = self.lower.path_below(attr.ino) else { return Ok(None) };
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        // The kernel's path contains no symbolic links. Without this flag, an attacker could add a
        // symbolic link and thus have any file opened, even a device.
        let file = match openat2(CWD, &path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOSYS) => return Ok(None),
            Err(rustix::io::Errno::LOOP | rustix::io::Errno::NOENT) => return Err(Why::Changed),
            Err(error) => return Err(Why::Failed(error.into())),
        };
        // The path may now refer to another file.
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

    /// Makes a converted copy in the directory of a file, with all its attributes.
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

    /// Compares the copy with the original, gives it the original's attributes, and makes it
    /// durable.
    fn complete(&self, path: &Path, attr: &Attr, copy: Ino) -> Kept<()> {
        self.compare(attr, copy, &|place, size| self.pass(path, size + place, 2 * size))?;
        self.keep_attributes(attr, copy)?;
        Ok(contents::sync(&*self.lower, &self.request, copy)?)
    }

    fn keep_attributes(&self, attr: &Attr, copy: Ino) -> Kept<()> {
        let (lower, request) = (&self.lower, &self.request);
        let xattrs = self.kept_xattrs(attr.ino)?;
        // The copy may have xattrs from a directory's default ACL that the original lacks.
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
        // Permissions are set last, because an ordinary user can set xattrs only on a writable
        // file.
        let permissions = Some(attr.permissions);
        lower.setattr(request, copy, None, &SetAttr { permissions, ..SetAttr::default() })?;
        let times = SetAttr {
            accessed: Some(SetTime::To(attr.accessed)),
            modified: Some(SetTime::To(attr.modified)),
            ..SetAttr::default()
        };
        Ok(lower.setattr(request, copy, None, &times).map(drop)?)
    }

    /// Runs `work`, which needs the right to write to a file. If the user's own file is read-only,
    /// the file is writable while `work` runs.
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

    /// Sets an xattr of a copy. If there is no room for it, the size xattr is removed first; the
    /// layer can determine the size without it.
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

    /// Returns the xattrs that a copy receives from its original.
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

    /// Exchanges the names of the copy and the original; on failure removes the copy.
    fn trade(
        &self,
        place: &Place<'_>,
        attr: &Attr,
        copy: &Copy,
        lease: Option<&Lease>,
    ) -> Kept<()> {
        self.give_name(place, attr, copy, lease).inspect_err(|_| {
            // After the exchange, the temporary name refers to the original and must not be
            // removed.
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
        // A process that opened the original before now may have written to it, so the original is
        // restored.
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

    /// Gives the original its name back, replacing the copy.
    fn take_back(&self, place: &Place<'_>, name: &OsStr) -> Kept<()> {
        let (own, other) = (Name::new(place.name()), Name::new(name));
        let renamed = own.and_then(|own| Ok((own, other?))).map_err(Into::into);
        let renamed = renamed.and_then(|(own, other)| {
            let (parent, mode) = (place.parent, RenameMode::empty());
            self.lower.rename(&self.request, parent, other, parent, own, mode)
        });
        renamed.map_err(|source| Why::Stranded { name: name.to_owned(), source })
    }

    /// Returns the current attributes of an original, if its size and modification time are still
    /// those in `attr`. Its names may have changed.
    fn is_unwritten(&self, attr: &Attr) -> Kept<Attr> {
        let now = self.lower.getattr(&self.request, attr.ino, None)?;
        let key = |attr: &Attr| (attr.size, attr.modified);
        if key(&now) == key(attr) { Ok(now) } else { Err(Why::Changed) }
    }

    /// Whether the name still refers to the file, and the file is unchanged.
    fn is_as_it_was(&self, place: &Place<'_>, attr: &Attr) -> Result<bool> {
        let entry = self.lower.lookup(&self.request, place.parent, Name::new(place.name())?)?;
        let now = entry.attr;
        self.lower.forget(now.ino, 1);
        let key = |attr: &Attr| (attr.ino, attr.size, attr.modified, attr.changed, attr.kind);
        Ok(key(&now) == key(attr))
    }

    /// Removes a name if it exists.
    fn remove(&self, parent: Ino, name: &OsStr) -> Result<()> {
        match self.lower.unlink(&self.request, parent, Name::new(name)?) {
            Err(error) if error.errno() == Errno::NOENT => Ok(()),
            answer => answer,
        }
    }

    /// Removes a name if it refers to this file.
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

/// Returns a request with the credentials of this process and the current time.
fn request_of_this_process() -> Request {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    Request { credentials: Credentials { uid, gid }, ..own_request() }
}

/// Returns a key that no earlier run had.
fn new_key(context: &StackContext) -> u64 {
    let now = context.clock().now_ns();
    mix(mix(context.draws().draw()) ^ now)
}

fn copy_name(ino: Ino) -> OsString {
    format!("{COPY_NAME}{:016x}", ino.0).into()
}

/// Whether a name has the form of a temporary name.
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
