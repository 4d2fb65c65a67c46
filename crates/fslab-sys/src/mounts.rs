//! Mounts and unmounts file systems, and lists mounts.
//!
//! Dropping a [`Mount`] unmounts it. If the file system is busy, because a daemon or the kernel
//! still has a file open, the unmount is retried for a limited time. After that time, the mount is
//! detached lazily with a warning. The mount point is then free at once, and the file system ends
//! when its last user closes it.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

/// Time for which an unmount is retried while the file system is busy.
pub const PATIENCE: Duration = Duration::from_secs(10);

const PAUSE: Duration = Duration::from_millis(5);

/// An error of mounting or unmounting.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Mounting failed.
    #[error(
        "can't mount {} on {} as {file_system}: {}",
        source_name.display(),
        target.display(),
        explain(*source)
    )]
    Mount {
        /// The source.
        source_name: PathBuf,
        /// The mount point.
        target: PathBuf,
        /// The type of the file system.
        file_system: String,
        /// The error of the kernel.
        #[source]
        source: Errno,
    },
    /// Unmounting failed.
    #[error("can't unmount {}: {source}", target.display())]
    Unmount {
        /// The mount point.
        target: PathBuf,
        /// The error of the kernel.
        #[source]
        source: Errno,
    },
    /// A mount option contains a NUL byte.
    #[error("mount options {options:?} contain a NUL byte")]
    Options {
        /// The options.
        options: String,
        /// The position of the NUL.
        #[source]
        source: std::ffi::NulError,
    },
}

fn explain(errno: Errno) -> String {
    match errno {
        Errno::NODEV => "this kernel does not support that file system".to_owned(),
        Errno::INVAL => {
            format!("{errno} (an unknown option, or no such file system on the device)")
        }
        Errno::PERM => format!("{errno} (mounting needs root)"),
        other => other.to_string(),
    }
}

/// A mounted file system; dropping it unmounts it.
#[derive(Debug)]
pub struct Mount {
    target: PathBuf,
    mounted: bool,
}

impl Mount {
    /// Mounts with options as in fstab ("noatime,compress=zstd"). Options that apply to every file
    /// system become mount flags; the others are passed to the file system. Device nodes and set-id
    /// bits are ignored without the options `dev` and `suid`.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn new(
        source: &Path,
        target: &Path,
        file_system: &str,
        options: &str,
    ) -> Result<Self, Error> {
        let (flags, rest) = split_options(options);
        let data = CString::new(rest)
            .map_err(|source| Error::Options { options: options.to_owned(), source })?;
        let data = (!data.is_empty()).then_some(data.as_c_str());
        rustix::mount::mount(source, target, file_system, flags, data).map_err(|errno| {
            Error::Mount {
                source_name: source.to_owned(),
                target: target.to_owned(),
                file_system: file_system.to_owned(),
                source: errno,
            }
        })?;
        Ok(Self { target: target.to_owned(), mounted: true })
    }

    /// Takes over a mount made by another program. Dropping the result unmounts it.
    #[must_use]
    pub fn adopt(target: &Path) -> Self {
        Self { target: target.to_owned(), mounted: true }
    }

    /// The mount point.
    #[must_use]
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Unmounts and reports errors, which dropping can't.
    ///
    /// # Errors
    /// See [`unmount`].
    pub fn unmount(mut self) -> Result<Unmounted, Error> {
        self.mounted = false;
        unmount(&self.target, PATIENCE)
    }

    /// Drops this value without an unmount, because another program has unmounted the file system
    /// or will unmount it.
    pub fn release(mut self) {
        self.mounted = false;
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !self.mounted {
            return;
        }
        match unmount(&self.target, PATIENCE) {
            Ok(Unmounted::Cleanly) => {}
            Ok(Unmounted::Lazily) => {
                tracing::warn!("{} was busy, so it was unmounted lazily", self.target.display());
            }
            Err(error) => tracing::warn!("{error}"),
        }
    }
}

/// Result of an unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// The file system is unmounted.
    Cleanly,
    /// The mount point is free; the file system ends with its last user.
    Lazily,
}

/// Unmounts a file system. While it is busy, retries for at most `patience`, and then detaches it
/// lazily.
///
/// # Errors
/// `EINVAL` if nothing is mounted, `EPERM` without the privilege.
pub fn unmount(target: &Path, patience: Duration) -> Result<Unmounted, Error> {
    let end = Instant::now() + patience;
    let failed = |source| Error::Unmount { target: target.to_owned(), source };
    loop {
        match rustix::mount::unmount(target, UnmountFlags::NOFOLLOW) {
            Ok(()) => return Ok(Unmounted::Cleanly),
            Err(Errno::BUSY) if Instant::now() < end => sleep(PAUSE),
            Err(Errno::BUSY | Errno::NOTCONN | Errno::IO) => break,
            Err(errno) => return Err(failed(errno)),
        }
    }
    let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH;
    rustix::mount::unmount(target, flags).map_err(failed)?;
    Ok(Unmounted::Lazily)
}

/// The options of every file system, and whether each sets or clears its flag.
const FLAG_OPTIONS: [(&str, MountFlags, bool); 16] = [
    ("ro", MountFlags::RDONLY, true),
    ("rw", MountFlags::RDONLY, false),
    ("nosuid", MountFlags::NOSUID, true),
    ("suid", MountFlags::NOSUID, false),
    ("nodev", MountFlags::NODEV, true),
    ("dev", MountFlags::NODEV, false),
    ("noexec", MountFlags::NOEXEC, true),
    ("exec", MountFlags::NOEXEC, false),
    ("noatime", MountFlags::NOATIME, true),
    ("nodiratime", MountFlags::NODIRATIME, true),
    ("relatime", MountFlags::RELATIME, true),
    ("strictatime", MountFlags::STRICTATIME, true),
    ("lazytime", MountFlags::LAZYTIME, true),
    ("sync", MountFlags::SYNCHRONOUS, true),
    ("dirsync", MountFlags::DIRSYNC, true),
    ("defaults", MountFlags::empty(), true),
];

fn split_options(options: &str) -> (MountFlags, String) {
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    let mut rest = Vec::new();
    for option in options.split(',').map(str::trim).filter(|option| !option.is_empty()) {
        match FLAG_OPTIONS.iter().find(|(name, ..)| *name == option) {
            Some((_, flag, set)) => flags.set(*flag, *set),
            None => rest.push(option),
        }
    }
    (flags, rest.join(","))
}

/// A line of /proc/self/mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// The number of the mount. The kernel reuses it after the mount has ended.
    pub id: u64,
    /// The number of the parent mount.
    pub parent: u64,
    /// The device number of its file system, major and minor.
    pub device: (u32, u32),
    /// The directory within the file system that is mounted.
    pub root: PathBuf,
    /// The mount point.
    pub target: PathBuf,
    /// The file system's name ("ext4", "fuse.bindfs").
    pub file_system: String,
    /// The source: a device, or a text chosen by a FUSE daemon.
    pub source: OsString,
    /// The file system's own options ("rw,user_id=0,group_id=0").
    pub options: String,
    /// Whether the file system or this mount of it is read-only.
    pub is_read_only: bool,
}

impl MountEntry {
    /// The value of one of the file system's own options, such as `user_id` of FUSE.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&str> {
        let mut options = self.options.split(',').filter_map(|option| option.split_once('='));
        options.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// Opens the root of exactly this mount without a request to its file system. While the
    /// descriptor is open, the mount keeps its number. Returns `None` if another mount is visible
    /// at its mount point.
    ///
    /// # Errors
    /// The mount point can't be reached or /proc can't be read.
    pub fn open(&self) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let place = match rustix::fs::open(&self.target, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            place => place?,
        };
        Ok((number_of(&place)? == self.id).then_some(place))
    }
}

/// Unmounts one mount; with [`UnmountFlags::DETACH`], even while it is used.
///
/// # Errors
/// `EBUSY` if another mount is visible at its mount point; otherwise the error of the kernel.
pub fn unmount_entry(mount: &MountEntry, flags: UnmountFlags) -> io::Result<()> {
    let place = mount.open()?.ok_or(Errno::BUSY)?;
    if flags.contains(UnmountFlags::DETACH) {
        // Unmounts through the descriptor, so that later mounts on the same mount point are not
        // affected.
        let place = format!("/proc/self/fd/{}", place.as_raw_fd());
        return Ok(rustix::mount::unmount(place, flags)?);
    }
    // An open descriptor would keep the mount busy.
    drop(place);
    Ok(rustix::mount::unmount(&mount.target, flags | UnmountFlags::NOFOLLOW)?)
}

/// Returns the number (in the list of mounts) of the mount that contains an open file.
fn number_of(place: impl AsFd) -> io::Result<u64> {
    let about = format!("/proc/self/fdinfo/{}", place.as_fd().as_raw_fd());
    let about = fs::read_to_string(about)?;
    let number = about.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    let number = number.and_then(|number| number.trim().parse().ok());
    number.ok_or_else(|| io::Error::other("/proc/self/fdinfo contains no mount ID (mnt_id)"))
}

/// `STATX_MNT_ID_UNIQUE`
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Returns a number that identifies the mount of an open file. Linux 6.8 and later do not reuse the
/// number before a reboot. Older kernels have only the number in the list of mounts, which is
/// reused.
///
/// # Errors
/// /proc can't be read.
pub fn identity_of(place: impl AsFd) -> io::Result<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    match rustix::fs::statx(&place, "", flags, MNT_ID_UNIQUE) {
        Ok(found) if found.stx_mask & MNT_ID_UNIQUE.bits() != 0 => Ok(found.stx_mnt_id),
        // The call may also fail, because FUSE denies root access to a private mount of a user.
        _ => number_of(place),
    }
}

/// Returns the mount that contains an open file; `None` if it is not in this mount namespace.
///
/// # Errors
/// /proc can't be read.
pub fn mount_of(place: impl AsFd) -> io::Result<Option<MountEntry>> {
    let number = number_of(place)?;
    Ok(list()?.into_iter().find(|mount| mount.id == number))
}

/// Returns all mounts of one file system, the most deeply nested first. So a mount comes before the
/// mount that contains its mount point. At equal depth, the most recent comes first.
///
/// # Errors
/// /proc/self/mountinfo can't be read.
pub fn of_device(device: (u32, u32)) -> io::Result<Vec<MountEntry>> {
    let all = list()?;
    let own = all.iter().rev().filter(|mount| mount.device == device);
    let mut mounts: Vec<_> = own.cloned().collect();
    mounts.sort_by_cached_key(|mount| std::cmp::Reverse(depth(mount, &all)));
    Ok(mounts)
}

/// Depth of a mount: 1 for a mount without a parent, otherwise one more than that of its parent.
fn depth(mount: &MountEntry, all: &[MountEntry]) -> usize {
    let below = |mount: &&MountEntry| {
        let parent = mount.parent;
        all.iter().find(|other| other.id == parent && other.id != mount.id)
    };
    // The walk is limited, because the list may be inconsistent if mounts change while it is read.
    std::iter::successors(Some(mount), |mount| below(mount)).take(all.len()).count()
}

/// All mounts in this mount namespace, in the order of mounting.
///
/// # Errors
/// /proc/self/mountinfo can't be read.
pub fn list() -> io::Result<Vec<MountEntry>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

/// Parses a text in the format of /proc/self/mountinfo.
pub(crate) fn parse(text: &[u8]) -> Vec<MountEntry> {
    text.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

/// The last mount on exactly this path, if any.
///
/// # Errors
/// /proc/self/mountinfo can't be read.
pub fn mounted_on(target: &Path) -> io::Result<Option<MountEntry>> {
    Ok(list()?.into_iter().rev().find(|entry| entry.target == target))
}

/// Returns the absolute path, without symbolic links, of an existing file. No request is sent to a
/// mount there, because its daemon may be dead.
///
/// # Errors
/// The path does not exist.
pub fn place_of(path: &Path) -> io::Result<PathBuf> {
    let place = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    fs::read_link(format!("/proc/self/fd/{}", place.as_raw_fd()))
}

/// Parses a line such as `36 35 98:0 /root /target rw,noatime master:1 - ext4 /dev/sda rw`. The
/// number of optional fields before the dash varies.
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
    let (id, parent) = (number()?, number()?);
    let device = std::str::from_utf8(fields.next()?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let (root, target, here) = (fields.next()?, fields.next()?, fields.next()?);
    fields.by_ref().find(|field| *field == b"-")?;
    let (file_system, source) = (fields.next()?, fields.next()?);
    let options = fields.next().unwrap_or_default();
    let says_read_only = |options: &[u8]| options.split(|byte| *byte == b',').any(|o| o == b"ro");
    Some(MountEntry {
        id,
        parent,
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: PathBuf::from(unescape(root)),
        target: PathBuf::from(unescape(target)),
        file_system: String::from_utf8_lossy(file_system).into_owned(),
        source: unescape(source),
        options: String::from_utf8_lossy(options).into_owned(),
        is_read_only: says_read_only(here) || says_read_only(options),
    })
}

/// Decodes three octal digits after a backslash, which stand for blanks, line ends and backslashes.
fn unescape(field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let digits = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &after[3..];
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(plain)
}

/// Returns the processes that were started with this path as an argument, such as the daemon of a
/// FUSE mount on it. Use it for paths that no other process uses, for example in a temporary
/// directory.
///
/// # Errors
/// /proc can't be listed.
pub fn processes_naming(path: &Path) -> io::Result<Vec<u32>> {
    let own = std::process::id();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // A process that has exited since it was listed is ignored.
        let Ok(arguments) = fs::read(format!("/proc/{pid}/cmdline")) else { continue };
        let mut arguments = arguments.split(|byte| *byte == 0);
        if pid != own && arguments.any(|argument| OsStr::from_bytes(argument) == path.as_os_str()) {
            found.push(pid);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustix::mount::MountFlags;

    use super::{MountEntry, depth, identity_of, list, mount_of, mounted_on, parse_line};
    use super::{number_of, split_options};

    #[test]
    fn options_are_split_into_flags_and_the_rest() {
        let base = MountFlags::NOSUID | MountFlags::NODEV;
        assert_eq!(split_options(""), (base, String::new()));
        let (flags, rest) = split_options("noatime,compress=zstd, suid,discard");
        assert_eq!(flags, MountFlags::NODEV | MountFlags::NOATIME);
        assert_eq!(rest, "compress=zstd,discard");
    }

    #[test]
    fn lines_of_mountinfo_parse() {
        let line =
            br"36 35 98:0 /mnt1 /mnt/with\040blank rw,noatime master:1 x:2 - fuse.x a\134b rw";
        let entry = parse_line(line).unwrap();
        assert_eq!((entry.id, entry.parent, entry.device), (36, 35, (98, 0)));
        assert_eq!(entry.target, Path::new("/mnt/with blank"));
        assert_eq!(entry.file_system, "fuse.x");
        assert_eq!(entry.source, r"a\b");
        assert!(!entry.is_read_only);
        for line in [&b"1 2 0:3 / /a ro,noatime - fuse x rw"[..], b"1 2 0:3 / /a rw - fuse x rw,ro"]
        {
            assert!(parse_line(line).unwrap().is_read_only);
        }
        assert_eq!(parse_line(b""), None);
    }

    #[test]
    fn only_mount_points_are_reported_as_mounted() {
        assert!(!list().unwrap().is_empty());
        assert_eq!(mounted_on(Path::new("/")).unwrap().unwrap().target, Path::new("/"));
        assert_eq!(mounted_on(Path::new("/proc/self/nothing")).unwrap(), None);
    }

    #[test]
    fn a_descriptor_names_its_mount() {
        let root = std::fs::File::open("/").unwrap();
        let mount = mount_of(&root).unwrap().unwrap();
        assert_eq!(mount.target, Path::new("/"));
        assert_eq!(number_of(mount.open().unwrap().unwrap()).unwrap(), mount.id);
        assert_eq!(identity_of(&root).unwrap(), identity_of(&root).unwrap());
        let elsewhere = MountEntry { target: "/proc/self".into(), ..mount };
        assert!(elsewhere.open().is_err() || elsewhere.open().unwrap().is_none());
    }

    #[test]
    fn nested_mount_has_a_greater_depth() {
        let parse = |line: &str| parse_line(line.as_bytes()).unwrap();
        // After a move, the outer mount is listed last.
        let all = ["5 9 0:7 / /a/b rw - fuse x rw", "9 1 0:7 / /a rw - fuse x rw"].map(parse);
        assert_eq!(all.each_ref().map(|mount| depth(mount, &all)), [2, 1]);
    }
}
