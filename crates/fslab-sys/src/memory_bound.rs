//! Limits the memory of this process and its children, including the page cache of their files,
//! with a memory control group of version 1 or 2.
//!
//! Memory allocated earlier remains charged to the old group, so only later allocations are
//! limited. The kernel kills a process that exceeds the limit, as usual.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::mounts;

/// The smallest limit, in bytes, with which a process of fslab still works.
pub const SMALLEST: u64 = 16 << 20;

/// Maximum time to wait for exiting processes when removing a group.
const PATIENCE: Duration = Duration::from_secs(2);

/// An error of setting or removing a limit.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No group can be created here.
    #[error("memory can't be limited here: {reason}")]
    Unavailable {
        /// The missing requirement.
        reason: &'static str,
    },
    /// An operation on a file of the control group failed.
    #[error("{}: {source} (limiting memory needs root)", path.display())]
    Control {
        /// The file.
        path: PathBuf,
        /// The error.
        #[source]
        source: io::Error,
    },
}

/// The version of the control groups; the two versions have different file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    fn limit(self) -> &'static str {
        match self {
            Self::One => "memory.limit_in_bytes",
            Self::Two => "memory.max",
        }
    }

    fn usage(self) -> &'static str {
        match self {
            Self::One => "memory.usage_in_bytes",
            Self::Two => "memory.current",
        }
    }

    fn peak(self) -> &'static str {
        match self {
            Self::One => "memory.max_usage_in_bytes",
            Self::Two => "memory.peak",
        }
    }
}

/// The group of this process, and the parent of a new group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    version: Version,
    /// The group of this process.
    own: PathBuf,
    /// The parent of a new group. With version 2 it is not this process's group, because a group
    /// with processes can't delegate a controller.
    parent: PathBuf,
}

/// A control group with a memory limit. When this is dropped, the process leaves the group, and the
/// group is removed.
#[derive(Debug)]
pub struct MemoryBound {
    place: Place,
    group: PathBuf,
    joined: bool,
}

impl MemoryBound {
    /// Creates a group with a limit in bytes and moves this process into it.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn enter(limit: u64) -> Result<Self, Error> {
        let place = find_place(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?)?;
        let number = std::process::id();
        let group = place.parent.join(format!("fslab-{number}"));
        fs::create_dir(&group).map_err(control(&group))?;
        let mut bound = Self { place, group, joined: false };
        bound.write(bound.place.version.limit(), &limit.max(SMALLEST).to_string())?;
        bound.write("cgroup.procs", &number.to_string())?;
        bound.joined = true;
        Ok(bound)
    }

    /// Checks whether a group can be created here, without creating one.
    ///
    /// # Errors
    /// The missing requirement.
    pub fn available() -> Result<(), Error> {
        find_place(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?).map(|_| ())
    }

    /// The limit according to the kernel, which rounds it to pages.
    ///
    /// # Errors
    /// The limit can't be read.
    pub fn limit(&self) -> Result<u64, Error> {
        self.number(self.place.version.limit())
    }

    /// The peak memory usage of the group.
    ///
    /// # Errors
    /// The kernel does not report it. With version 2, this needs Linux 5.19.
    pub fn peak(&self) -> Result<u64, Error> {
        self.number(self.place.version.peak())
    }

    /// Leaves and removes the group, and reports errors, which dropping can't.
    ///
    /// # Errors
    /// If other processes are still in the group, or the kernel refuses the removal.
    pub fn leave(mut self) -> Result<(), Error> {
        self.undo()
    }

    fn undo(&mut self) -> Result<(), Error> {
        if !self.group.exists() {
            return Ok(());
        }
        if std::mem::take(&mut self.joined) {
            let procs = self.place.own.join("cgroup.procs");
            fs::write(&procs, std::process::id().to_string()).map_err(control(&procs))?;
        }
        let end = Instant::now() + PATIENCE;
        loop {
            match fs::remove_dir(&self.group) {
                // A daemon that has exited may not have been reaped yet.
                Err(error)
                    if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < end =>
                {
                    sleep(Duration::from_millis(5));
                }
                result => return result.map_err(control(&self.group)),
            }
        }
    }

    fn write(&self, file: &str, value: &str) -> Result<(), Error> {
        let path = self.group.join(file);
        fs::write(&path, value).map_err(control(&path))
    }

    fn number(&self, file: &str) -> Result<u64, Error> {
        let path = self.group.join(file);
        let text = fs::read_to_string(&path).map_err(control(&path))?;
        let wrong = |error| control(&path)(io::Error::new(io::ErrorKind::InvalidData, error));
        text.trim().parse().map_err(wrong)
    }
}

impl Drop for MemoryBound {
    fn drop(&mut self) {
        if let Err(error) = self.undo() {
            tracing::warn!("{error}");
        }
    }
}

fn control(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Control { path, source }
}

fn read(path: &str) -> Result<String, Error> {
    fs::read_to_string(path).map_err(control(Path::new(path)))
}

/// The memory limit of this process: the smallest of its group and the groups above; `None` if
/// there is none.
///
/// # Errors
/// Control groups, or their limits, can't be read.
pub fn limit_here() -> Result<Option<u64>, Error> {
    let (version, own) = own_group(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?)?;
    least_above(version, &own, |_, limit| Ok(limit))
}

/// The memory that this process may still use; `None` if there is no limit. It is the smallest
/// difference between limit and usage, over the process's group and the groups above. The usage
/// includes page cache that the kernel could free.
///
/// # Errors
/// Control groups, their limits, or their usage can't be read.
pub fn free_here() -> Result<Option<u64>, Error> {
    let (version, own) = own_group(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?)?;
    free_in(version, &own)
}

fn free_in(version: Version, own: &Path) -> Result<Option<u64>, Error> {
    least_above(version, own, |usage, limit| {
        let text = fs::read_to_string(usage).map_err(control(usage))?;
        let used = text.trim().parse::<u64>();
        let used = used.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error));
        Ok(limit.saturating_sub(used.map_err(control(usage))?))
    })
}

/// Returns the smallest result of `value` for a group and its ancestors; groups without a limit are
/// skipped. The arguments of `value` are the path of the group's usage file, and the limit in
/// bytes.
fn least_above(
    version: Version,
    own: &Path,
    value: impl Fn(&Path, u64) -> Result<u64, Error>,
) -> Result<Option<u64>, Error> {
    let mut least: Option<u64> = None;
    for group in own.ancestors() {
        let file = group.join(version.limit());
        match fs::read_to_string(&file) {
            Ok(text) => {
                if let Some(limit) = parse_limit(&text) {
                    let value = value(&group.join(version.usage()), limit)?;
                    least = Some(least.map_or(value, |least| least.min(value)));
                }
            }
            // With version 2, the root of the hierarchy has no such file; directories above it have
            // none in either version.
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(control(&file)(error)),
        }
    }
    Ok(least)
}

/// Parses a limit in a control group. Without a limit, version 2 shows `max`, and version 1 a
/// number close to the maximum.
fn parse_limit(text: &str) -> Option<u64> {
    const NO_LIMIT: u64 = 1 << 62;
    text.trim().parse().ok().filter(|limit| *limit < NO_LIMIT)
}

/// Finds the group of this process, and a parent for a new group.
fn find_place(groups: &str, mounts: &str) -> Result<Place, Error> {
    let unavailable = |reason| Error::Unavailable { reason };
    let (version, own) = own_group(groups, mounts)?;
    if version == Version::One {
        return Ok(Place { version, parent: own.clone(), own });
    }
    let is_root = groups.lines().any(|line| line == "0::/");
    let parent = own.parent().filter(|_| !is_root).unwrap_or(&own).to_owned();
    let controllers = fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
    if !controllers.split_whitespace().any(|name| name == "memory") {
        return Err(unavailable(
            "the parent control group does not enable the memory controller for its children",
        ));
    }
    Ok(Place { version, own, parent })
}

/// Finds the group of the memory controller in /proc/self/cgroup, and its directory through the
/// mount of the hierarchy in /proc/self/mountinfo.
fn own_group(groups: &str, mounts: &str) -> Result<(Version, PathBuf), Error> {
    let unavailable = |reason| Error::Unavailable { reason };
    let one = groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == "memory").then_some(path)
    });
    if let Some(path) = one {
        let own = mounted(mounts, "cgroup", Some("memory"), path)
            .ok_or_else(|| unavailable("the memory controller (cgroup v1) is not mounted"))?;
        return Ok((Version::One, own));
    }
    let path = groups
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .ok_or_else(|| unavailable("/proc/self/cgroup lists no control group"))?;
    let own = mounted(mounts, "cgroup2", None, path)
        .ok_or_else(|| unavailable("cgroup2 is not mounted"))?;
    Ok((Version::Two, own))
}

/// Returns the directory of a group's path, below the mount of its hierarchy.
fn mounted(mounts: &str, kind: &str, option: Option<&str>, path: &str) -> Option<PathBuf> {
    mounts::parse(mounts.as_bytes()).into_iter().find_map(|mount| {
        let has = |wanted: &str| mount.options.split(',').any(|option| option == wanted);
        let below = Path::new(path).strip_prefix(&mount.root).ok()?;
        (mount.file_system == kind && option.is_none_or(has)).then(|| mount.target.join(below))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Error, Version, find_place, free_in, parse_limit};

    const MOUNTS: &str = "\
24 1 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw
29 24 0:26 /box /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
31 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 none rw
";

    /// The path of a group starts at the hierarchy's root, but the mount may start below it.
    #[test]
    fn cgroup_v1_group_is_found_below_its_mount() {
        let place = find_place("4:memory:/box/a\n0::/\n", MOUNTS).unwrap();
        assert_eq!(place.version, Version::One);
        assert_eq!(place.own, Path::new("/sys/fs/cgroup/memory/a"));
        assert_eq!(place.parent, place.own);
    }

    #[test]
    fn cgroup_v2_uses_a_sibling_if_the_parent_delegates_memory() {
        let root = tempfile::tempdir_in(".").unwrap();
        let own = root.path().join("user/session");
        std::fs::create_dir_all(&own).unwrap();
        let mounts = format!("31 24 0:28 / {} rw - cgroup2 none rw\n", root.path().display());
        let refused = find_place("0::/user/session\n", &mounts);
        assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
        let control = root.path().join("user/cgroup.subtree_control");
        std::fs::write(control, "cpu memory pids\n").unwrap();
        let place = find_place("0::/user/session\n", &mounts).unwrap();
        assert_eq!((place.version, place.own), (Version::Two, own));
        assert_eq!(place.parent, root.path().join("user"));
    }

    #[test]
    fn both_notations_of_no_limit_are_parsed() {
        assert_eq!(parse_limit("41943040\n"), Some(40 << 20));
        assert_eq!(parse_limit("max\n"), None);
        assert_eq!(parse_limit("9223372036854771712\n"), None);
    }

    #[test]
    fn free_memory_is_the_least_of_all_groups_above() {
        let root = tempfile::tempdir_in(".").unwrap();
        let own = root.path().join("user/session");
        std::fs::create_dir_all(&own).unwrap();
        let write = |file: &str, text: &str| std::fs::write(root.path().join(file), text).unwrap();
        assert_eq!(free_in(Version::Two, &own).unwrap(), None);
        write("user/memory.max", "1000\n");
        write("user/memory.current", "900\n");
        write("user/session/memory.max", "max\n");
        assert_eq!(free_in(Version::Two, &own).unwrap(), Some(100));
        write("user/session/memory.max", "500\n");
        write("user/session/memory.current", "450\n");
        assert_eq!(free_in(Version::Two, &own).unwrap(), Some(50));
        write("user/session/memory.current", "600\n");
        assert_eq!(free_in(Version::Two, &own).unwrap(), Some(0));
        write("user/session/memory.current", "many\n");
        let error = free_in(Version::Two, &own).unwrap_err().to_string();
        assert!(error.contains("memory.current: invalid digit"), "{error}");
    }

    #[test]
    fn missing_memory_controller_is_reported() {
        assert!(matches!(find_place("", MOUNTS), Err(Error::Unavailable { .. })));
        assert!(matches!(find_place("4:memory:/\n", ""), Err(Error::Unavailable { .. })));
    }
}
