//! The leaves that are not in fslab-layers, and the code that connects the ext2 engine to stacks.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use fslab_ext2::alloc::{self, Clustering};
use fslab_ext2::{Ext2, Form, MkfsOptions, VolumeOptions, mkfs};
use fslab_layers::{ForeignLeaf, Leaf, LeafOptions, LeafSpec, Stability};
use fslab_vfs::{BlockDevice, FileDevice, FileSystem, MemoryDevice, Size, SliceDevice, Timestamp};
use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::exit::{Code, InUse};

/// Maximum time after which changed metadata of a mounted image is written.
const WRITE_BACK_EVERY: Duration = Duration::from_secs(5);

/// Minimum memory for metadata that can be requested, in bytes.
const CACHE_MIN: u64 = 1 << 20;
/// Bounds of the default memory for metadata, in bytes.
const CACHE_DEFAULT_MIN: u64 = 64 << 20;
const CACHE_DEFAULT_MAX: u64 = 1 << 30;

/// The ext2 leaf.
pub const FOREIGN: &[ForeignLeaf] = &[ForeignLeaf {
    spec: LeafSpec {
        name: "ext2:IMAGE[?key=value&..]",
        help: "an ext2 file system in an image or device, or in a part of one (IMAGE@OFFSET); \
               keys: policy=NAME, clustering=smart or dumb, seed=NUMBER, index=htree or linear, \
               shrink=on or off, close=later or sync, cache=SIZE; ext2:memory is a new file \
               system in memory, which also accepts size and inode-ratio",
        stability: Stability::Beta,
    },
    scheme: "ext2:",
    // This conversion preserves the type of the error, on which the exit code depends.
    open: |argument, options| {
        open_leaf(argument, options)
            .map_err(anyhow::Error::reallocate_into_boxed_dyn_error_without_backtrace)
    },
    change_words: |argument| {
        let is_in_memory = parse(argument).is_ok_and(|wanted| wanted.is_in_memory());
        (!is_in_memory).then_some(fslab_ext2::KEPT_WORDS)
    },
}];

/// The image name that stands for a new file system in memory.
const MEMORY: &str = "memory";

/// The image and the options that the text of an ext2 leaf specifies.
#[derive(Debug)]
struct Wanted<'a> {
    image: &'a Path,
    options: VolumeOptions,
    /// Size of a file system in memory, in bytes.
    size: Option<u64>,
    bytes_per_inode: Option<u32>,
}

impl Wanted<'_> {
    fn is_in_memory(&self) -> bool {
        self.image == Path::new(MEMORY)
    }
}

/// Opens an ext2 leaf. With `read_only`, the image is never written, not even to free orphans. The
/// image may then have features that the engine can read but not write.
fn open_leaf(argument: &str, options: &LeafOptions) -> Result<Arc<dyn FileSystem>> {
    let mut wanted = parse(argument)?;
    wanted.options.access_times = options.access_times;
    if wanted.is_in_memory() {
        return Ok(Arc::new(make_in_memory(&wanted)?));
    }
    wanted.options.read_only = options.read_only;
    let device = open_kept_image(wanted.image, options)?.device()?;
    let ext2 = match options.changes.clone().filter(|_| !options.read_only) {
        Some(changes) => Ext2::open_kept(Arc::new(device), wanted.options, changes),
        None => Ext2::open(Arc::new(device), wanted.options),
    };
    let ext2 = Arc::new(or_say_where(ext2, wanted.image)?);
    if options.inherited.is_none() {
        warn_if_unclean(&ext2, wanted.image);
    }
    if !options.read_only {
        write_back_from_time_to_time(&ext2)?;
    }
    Ok(ext2)
}

/// Opens the image of a leaf. On a kept mount, the first daemon opens and locks the image. Each
/// later daemon uses the locked descriptor of an earlier daemon.
fn open_kept_image<'a>(image: &'a Path, options: &LeafOptions) -> Result<LockedImage<'a>> {
    let Some(changes) = &options.changes else {
        return LockedImage::open(image, options.read_only);
    };
    let opened = match fslab_ext2::image_of(changes) {
        None => {
            let opened = LockedImage::open(image, options.read_only)?;
            let found = opened.file.metadata().context("can't inspect the image")?;
            fslab_ext2::note_image(changes, (found.dev(), found.ino()));
            opened
        }
        Some((device, inode)) => {
            let inherited = options.inherited.as_ref();
            let left = inherited.and_then(|inherited| inherited.descriptor_of(device, inode));
            let left = left.with_context(|| {
                format!("the earlier daemon did not leave {} open", image.display())
            })?;
            LockedImage::of_locked(image, left)
        }
    };
    // This copy is never closed, because the next daemon needs it if this daemon fails.
    std::mem::forget(opened.file.try_clone().context("can't keep the image open")?);
    Ok(opened)
}

/// Checks that the current user can write to a leaf, and that no other program uses its image.
///
/// # Errors
/// Fails if the leaf can't be written, or if its image is in use.
pub fn check_free_to_write(leaf: &Leaf) -> Result<()> {
    match leaf {
        Leaf::Directory(path) => check_writable(path),
        Leaf::Foreign(_, argument) => match parse(argument)? {
            wanted if wanted.is_in_memory() => Ok(()),
            wanted => open_device(wanted.image, false).map(drop),
        },
        Leaf::Memory => Ok(()),
    }
}

/// Checks that the current user can create files in a directory.
///
/// # Errors
/// Fails if the directory can't be written, or if the path is not a directory.
pub fn check_writable(directory: &Path) -> Result<()> {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    let access = Access::WRITE_OK | Access::EXEC_OK;
    let is_directory = || match std::fs::metadata(directory)?.is_dir() {
        true => Ok(()),
        false => Err(std::io::Error::from(rustix::io::Errno::NOTDIR)),
    };
    let may_write = || Ok(accessat(CWD, directory, access, AtFlags::EACCESS)?);
    is_directory().and_then(|()| may_write()).map_err(|error: std::io::Error| {
        Code::of_io(&error).error(format!("can't write to {}: {error}", directory.display()))
    })
}

/// Makes a new file system in memory, which exists until the mount ends. Its default size is 4 GiB;
/// only used blocks need memory.
fn make_in_memory(wanted: &Wanted<'_>) -> Result<Ext2> {
    const SIZE: u64 = 4 << 30;
    let device = Arc::new(MemoryDevice::new(wanted.size.unwrap_or(SIZE)));
    let defaults = MkfsOptions::default();
    let bytes_per_inode = wanted.bytes_per_inode.unwrap_or(defaults.bytes_per_inode);
    let now = Timestamp::from(SystemTime::now());
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    mkfs(&*device, &MkfsOptions { bytes_per_inode, now, root_owner: owner, ..defaults })?;
    Ok(Ext2::open(device, wanted.options.clone())?)
}

/// Splits the text of an ext2 leaf into the image and the options after its question mark. If a
/// file is named like the whole text, there are no options.
pub fn image_and_options(argument: &str) -> (&Path, Option<&str>) {
    let whole = Path::new(argument);
    let parts = argument.split_once('?').filter(|_| !whole.exists());
    parts.map_or((whole, None), |(image, options)| (Path::new(image), Some(options)))
}

fn parse(argument: &str) -> Result<Wanted<'_>> {
    let (image, pairs) = image_and_options(argument);
    let mut options = VolumeOptions::default();
    set_cache(&mut options, cache_bytes()).context("the default size of the cache is invalid")?;
    let mut wanted = Wanted { image, options, size: None, bytes_per_inode: None };
    for pair in pairs.into_iter().flat_map(|pairs| pairs.split('&')) {
        if set(&mut wanted, pair).is_none() {
            let policies: Vec<_> = alloc::POLICIES.iter().map(|policy| policy.name).collect();
            bail_as!(
                BadInput,
                "'{pair}' is not an option of an image; the options are policy={}, \
                 clustering=smart|dumb, seed=NUMBER, index=htree|linear, shrink=on|off, \
                 readdir=index|inode, close=later|sync, cache=SIZE, and for ext2:memory \
                 size=SIZE, inode-ratio=BYTES",
                policies.join("|")
            );
        }
    }
    Ok(wanted)
}

/// Applies an option; returns `None` if it is unknown, or its value is invalid.
fn set(wanted: &mut Wanted<'_>, pair: &str) -> Option<()> {
    let is_in_memory = wanted.is_in_memory();
    let options = &mut wanted.options;
    match pair.split_once('=')? {
        ("size", size) if is_in_memory => wanted.size = Some(size.parse::<Size>().ok()?.bytes()),
        ("inode-ratio", bytes) if is_in_memory => {
            wanted.bytes_per_inode = Some(bytes.parse().ok()?)
        }
        ("policy", name) => options.policy = alloc::policy(name)?,
        ("clustering", name) => options.clustering = Clustering::from_name(name)?,
        ("seed", number) => options.seed = number.parse().ok()?,
        ("index", "htree") => options.form = Some(Form::Indexed),
        ("index", "linear") => options.form = Some(Form::Linear),
        ("readdir", order @ ("inode" | "index")) => options.list_by_inode = order == "inode",
        ("close", when @ ("sync" | "later")) => options.sync_on_close = when == "sync",
        ("shrink", switch @ ("on" | "off")) => options.shrink_directories = switch == "on",
        ("cache", size) => set_cache(options, size.parse::<Size>().ok()?.bytes())?,
        _ => return None,
    }
    Some(())
}

/// Limits the memory for metadata: one half for changed metadata, one for unchanged. Returns `None`
/// if `bytes` is below [`CACHE_MIN`].
fn set_cache(options: &mut VolumeOptions, bytes: u64) -> Option<()> {
    let half = usize::try_from(bytes / 2).ok().filter(|half| *half as u64 >= CACHE_MIN / 2)?;
    (options.dirty_bytes_max, options.clean_bytes_max) = (half, half);
    Some(())
}

/// Returns the default cache size: a sixteenth of the machine's memory, within the default bounds.
/// Directories list names in hash order. If programs change files in this order and the metadata
/// exceeds the cache, each name causes a read and a write of a block.
fn cache_bytes() -> u64 {
    (memory_bytes() / 16).clamp(CACHE_DEFAULT_MIN, CACHE_DEFAULT_MAX)
}

/// Returns the machine's memory in bytes.
pub fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram as u64 * u64::from(info.mem_unit)
}

/// Opens the file system of an image. Fails if another fslab has it open.
pub fn open(image: &Path, options: &VolumeOptions) -> Result<Ext2> {
    let device = open_device(image, options.read_only)?;
    let ext2 = or_say_where(Ext2::open(Arc::new(device), options.clone()), image)?;
    warn_if_unclean(&ext2, image);
    Ok(ext2)
}

/// Adds the image to an error.
fn or_say_where(opened: fslab_ext2::Result<Ext2>, image: &Path) -> Result<Ext2> {
    opened.with_context(|| image.display().to_string())
}

fn warn_if_unclean(ext2: &Ext2, image: &Path) {
    if !ext2.superblock().is_clean() {
        tracing::warn!(
            "{} was not cleanly unmounted or has errors; run e2fsck on it",
            image.display()
        );
    }
}

/// A file or device, and the part of it that contains the file system.
#[derive(Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The file or device.
    pub file: &'a Path,
    /// The start of the part, in bytes.
    pub start: u64,
    /// The length of the part, in bytes; `None` for the rest of the file.
    pub length: Option<u64>,
}

impl<'a> Part<'a> {
    /// Parses `IMAGE`, `IMAGE@OFFSET` or `IMAGE@OFFSET+LENGTH`; sizes are like `1MiB` or in bytes.
    /// If a file is named like the whole text, the result is this file.
    pub fn parse(image: &'a Path) -> Self {
        let whole = Self { file: image, start: 0, length: None };
        let text = image.to_str().filter(|_| !image.exists());
        let Some((file, place)) = text.and_then(|text| text.rsplit_once('@')) else { return whole };
        let size = |text: &str| text.parse::<Size>().ok().map(|size| size.bytes());
        let part = match place.split_once('+') {
            None => size(place).map(|start| (start, None)),
            Some((start, length)) => size(start).zip(size(length).map(Some)),
        };
        part.map_or(whole, |(start, length)| Self { file: Path::new(file), start, length })
    }
}

/// An image or device that this process has locked. Two engines that write to one image would
/// destroy it.
pub struct LockedImage<'a> {
    image: &'a Path,
    part: Part<'a>,
    file: File,
    is_new: bool,
}

impl<'a> LockedImage<'a> {
    /// Opens and locks an image or device.
    ///
    /// # Errors
    /// Fails if the image does not exist, can't be opened, or is in use by another process.
    pub fn open(image: &'a Path, read_only: bool) -> Result<Self> {
        let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let (part, shown) = (Part::parse(image), image.display());
        let file = match rustix::fs::open(part.file, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => {
                bail_as!(BadInput, "the image {shown} does not exist")
            }
            Err(rustix::io::Errno::ISDIR) => {
                bail_as!(BadInput, "{shown} is a directory, not an image")
            }
            file => File::from(file.with_context(|| format!("can't open the image {shown}"))?),
        };
        if file.metadata().is_ok_and(|found| found.is_dir()) {
            bail_as!(BadInput, "{shown} is a directory, not an image");
        }
        Self { image, part, file, is_new: false }.locked(read_only)
    }

    /// Opens and locks an image for writing. If the file does not exist, creates an empty one.
    ///
    /// # Errors
    /// Fails in the same cases as [`open`](Self::open).
    pub fn open_or_create(image: &'a Path) -> Result<Self> {
        let created = File::options().read(true).write(true).create_new(true).open(image);
        match created {
            Ok(file) => {
                let part = Part { file: image, start: 0, length: None };
                Self { image, part, file, is_new: true }.locked(false)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Self::open(image, false),
            Err(error) => Err(error).with_context(|| format!("can't make {}", image.display())),
        }
    }

    /// Uses a descriptor of the image that already has the lock.
    fn of_locked(image: &'a Path, file: OwnedFd) -> Self {
        Self { image, part: Part::parse(image), file: file.into(), is_new: false }
    }

    /// Returns whether [`open_or_create`](Self::open_or_create) created the file.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    fn locked(self, read_only: bool) -> Result<Self> {
        let lock = match read_only {
            true => FlockOperation::NonBlockingLockShared,
            false => FlockOperation::NonBlockingLockExclusive,
        };
        let shown = self.image.display();
        match rustix::fs::flock(&self.file, lock) {
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(InUse { image: shown.to_string() }.into());
            }
            answer => answer.with_context(|| format!("can't lock the image {shown}"))?,
        }
        Ok(self)
    }

    /// Changes the length of the file, in bytes.
    pub fn set_length(&self, bytes: u64) -> Result<()> {
        let shown =
            || format!("can't change the size of {} to {}", self.image.display(), Size::of(bytes));
        self.file.set_len(bytes).with_context(shown)
    }

    /// Returns the image as a device of the current length. The device keeps the lock.
    ///
    /// # Errors
    /// Fails if the image is neither a regular file nor a block device, or if the chosen part
    /// extends past its end.
    pub fn device(&self) -> Result<SliceDevice<FileDevice>> {
        let shown = self.image.display();
        let file =
            self.file.try_clone().with_context(|| format!("can't open the image {shown}"))?;
        let device = FileDevice::from_file(file)
            .with_context(|| format!("{shown} is neither a regular file nor a block device"))?;
        let size = device.size();
        SliceDevice::new(device, self.part.start, self.part.length).map_err(|_outside| {
            Code::BadInput.error(format!(
                "{shown}: the chosen part is not within the {size} bytes of the image"
            ))
        })
    }
}

/// Opens and locks an image or device.
///
/// # Errors
/// Fails in the same cases as [`LockedImage::open`] and [`LockedImage::device`].
pub fn open_device(image: &Path, read_only: bool) -> Result<SliceDevice<FileDevice>> {
    LockedImage::open(image, read_only)?.device()
}

/// Starts a thread that writes changes to the image regularly, even if no program syncs. The thread
/// exits after the file system is dropped.
fn write_back_from_time_to_time(ext2: &Arc<Ext2>) -> Result<()> {
    let ext2: Weak<Ext2> = Arc::downgrade(ext2);
    let work = move || loop {
        std::thread::sleep(WRITE_BACK_EVERY);
        let Some(ext2) = ext2.upgrade() else { return };
        if let Err(error) = ext2.sync() {
            tracing::error!("can't write back changes: {error}");
        }
    };
    let thread = std::thread::Builder::new().name("fslab-ext2-sync".to_owned());
    thread.spawn(work).map(drop).context("can't start a thread")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_options_are_parsed_after_a_question_mark() {
        let argument = "/no/image?policy=ffs&clustering=smart&seed=7&index=linear";
        let Wanted { image, options, .. } = parse(argument).unwrap();
        assert_eq!((image, options.policy.name), (Path::new("/no/image"), "ffs"));
        assert_eq!((options.seed, options.form), (7, Some(Form::Linear)));
        assert_eq!(options.clustering, Clustering::Smart);
        let default = (options.dirty_bytes_max + options.clean_bytes_max) as u64;
        assert!((CACHE_DEFAULT_MIN..=CACHE_DEFAULT_MAX).contains(&default), "{default}");
        let cached = parse("/no/image?cache=8MiB").unwrap().options;
        assert_eq!((cached.dirty_bytes_max, cached.clean_bytes_max), (4 << 20, 4 << 20));
        assert!(parse("/no/image?cache=1KiB").is_err());
        let message = parse("/no/image?policy=best").unwrap_err().to_string();
        assert!(message.contains("'policy=best'") && message.contains("ffs-noswitch"), "{message}");
    }

    #[test]
    fn in_memory_ext2_takes_a_size_option() {
        let wanted = parse("memory?size=64MiB&inode-ratio=2048&index=linear").unwrap();
        assert_eq!((wanted.size, wanted.bytes_per_inode), (Some(64 << 20), Some(2048)));
        let ext2 = make_in_memory(&wanted).unwrap();
        assert_eq!(ext2.superblock().geometry().inodes(), 32_768);
        let message = parse("/no/image?size=64MiB").unwrap_err().to_string();
        assert!(message.contains("for ext2:memory"), "{message}");
    }

    #[test]
    fn image_part_is_parsed_after_an_at_sign() {
        let part = |text| {
            let Part { file, start, length } = Part::parse(Path::new(text));
            (file.to_str().unwrap(), start, length)
        };
        assert_eq!(part("/no/disk"), ("/no/disk", 0, None));
        assert_eq!(part("/no/disk@1MiB"), ("/no/disk", 1 << 20, None));
        assert_eq!(part("/no/disk@512+2048"), ("/no/disk", 512, Some(2048)));
        assert_eq!(part("/no/user@host"), ("/no/user@host", 0, None));
        assert_eq!(part("/no/disk@1+x"), ("/no/disk@1+x", 0, None));
    }
}
