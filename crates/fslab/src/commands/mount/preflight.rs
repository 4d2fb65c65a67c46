//! Checks the directories and layers of a mount before it is made.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fslab_layers::{LayerChoice, Leaf};
use fslab_sys::dead_mount::{self, DeadMount};
use fslab_sys::mounts::{self, MountEntry};
use rustix::fs::Access;
use rustix::io::Errno;

use crate::commands::places;

/// The mount point and the lower file system of a mount.
pub struct Places<'a> {
    /// The lower file system.
    pub lower: &'a Leaf,
    /// The mount point.
    pub mount_point: &'a Path,
    /// The dead mount (its daemon has exited) at the mount point, which this mount replaces.
    pub dead: Option<&'a DeadMount>,
}

impl Places<'_> {
    /// Checks that both directories can be used, and that neither contains the other.
    ///
    /// # Errors
    /// Returns an error of one line, with the path and advice.
    pub fn check(&self, non_empty: bool) -> Result<()> {
        let target = self.directory(self.mount_point, "the mount point")?;
        if !rustix::process::geteuid().is_root() {
            usable(&target, Access::WRITE_OK, "the mount point of an ordinary user")?;
        }
        if let Some(path) = self.lower.directory() {
            let source = self.directory(path, LOWER_ROLE)?;
            if source == target && self.dead.is_some() {
                return Ok(());
            }
            usable(&source, Access::EXEC_OK, LOWER_ROLE)?;
            if source == target {
                return match mounted_on(&target)? {
                    Some(mount) if mount.file_system == "fuse.fslab" => {
                        bail_as!(BadInput, "{} is mounted by fslab already", target.display())
                    }
                    _ => Ok(()),
                };
            }
            apart(&source, &target)?;
        }
        if non_empty || self.dead.is_some() { Ok(()) } else { unused(&target) }
    }

    /// Checks that no layer writes into the mounted tree. Such a layer would wait for its own
    /// writes, or record them endlessly.
    ///
    /// # Errors
    /// Returns an error of one line, with the layer, the option and the path.
    pub fn check_layers(&self, layers: &[LayerChoice]) -> Result<()> {
        let mut outer = vec![("the mount point", self.mount_point)];
        outer.extend(self.lower.directory().map(|path| (LOWER_ROLE, path.as_path())));
        let real = |(role, path)| Ok((role, self.directory(path, role)?));
        let outer = outer.into_iter().map(real).collect::<Result<Vec<_>>>()?;
        for layer in layers {
            for (option, place) in layer.places() {
                let real = places::resolved(place)?;
                if let Some((role, outer)) = outer.iter().find(|(_, path)| real.starts_with(path)) {
                    bail_as!(
                        BadInput,
                        "layer '{}': {option}={} lies inside {role} {}; choose a path outside of \
                         it",
                        layer.spec().name,
                        place.display(),
                        outer.display()
                    );
                }
            }
        }
        Ok(())
    }

    fn directory(&self, path: &Path, role: &str) -> Result<PathBuf> {
        match self.dead {
            Some(dead) if dead.is_at(path) => Ok(dead.place().to_owned()),
            _ => directory(path, role),
        }
    }
}

/// The name of the lower directory in messages.
const LOWER_ROLE: &str = "the lower directory";

fn directory(path: &Path, role: &str) -> Result<PathBuf> {
    let shown = path.display();
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => {
            path.canonicalize().with_context(|| format!("{role} {shown}"))
        }
        Ok(_) if role == LOWER_ROLE => bail_as!(
            BadInput,
            "{role} {shown} is not a directory; if it is an image, write its kind, such as \
             ext2:{shown}"
        ),
        Ok(_) => bail_as!(BadInput, "{role} {shown} is not a directory"),
        Err(error) if dead_mount::is_dead_mount_error(&error) => {
            bail_as!(BadInput, "{role} {shown} is a mount whose daemon is dead; {}", advice(path))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail_as!(BadInput, "{role} {shown} does not exist; create it with `mkdir -p`")
        }
        Err(error) => Err(error).with_context(|| format!("{role} {shown}")),
    }
}

/// Returns advice for the current user about a dead mount.
fn advice(path: &Path) -> String {
    let shown = path.display();
    let own = rustix::process::geteuid().as_raw();
    if own == 0 {
        return format!("run `fslab umount {shown}` first, or use -o replace");
    }
    let mount = mounts::place_of(path).and_then(|place| mounts::mounted_on(&place));
    let owner = mount.ok().flatten().and_then(|mount| mount.option("user_id")?.parse().ok());
    match owner {
        Some(owner) if owner == own => format!("run `fslab umount {shown}` first"),
        Some(0) | None => format!("ask root to run `fslab umount {shown}`"),
        Some(owner) => format!("ask root or user {owner} to run `fslab umount {shown}`"),
    }
}

/// Checks the access to a directory. The daemon must be able to enter the lower directory. Without
/// read permission there, it can't list names but still serves files by name. For ordinary users,
/// fusermount3 requires a writable mount point.
fn usable(path: &Path, wanted: Access, role: &str) -> Result<()> {
    match rustix::fs::access(path, wanted) {
        Err(error) if error == Errno::ACCESS || error == Errno::ROFS => bail_as!(
            BadInput,
            "{role} {}: user {} may not {} it: {error}",
            path.display(),
            rustix::process::geteuid().as_raw(),
            if wanted.contains(Access::WRITE_OK) { "write to" } else { "enter" },
        ),
        checked => checked.with_context(|| format!("{role} {}", path.display())),
    }
}

/// Checks that neither directory contains the other, because the mount would then serve itself.
fn apart(source: &Path, target: &Path) -> Result<()> {
    let (lower, point) = (source.display(), target.display());
    if source.starts_with(target) {
        bail_as!(
            BadInput,
            "the lower directory {lower} lies inside the mount point {point}, which would hide it"
        );
    }
    if target.starts_with(source) {
        bail_as!(
            BadInput,
            "the mount point {point} lies inside the lower directory {lower}, which would then \
             contain itself"
        );
    }
    Ok(())
}

fn mounted_on(target: &Path) -> Result<Option<MountEntry>> {
    mounts::mounted_on(target).context("can't read the list of mounts")
}

fn unused(target: &Path) -> Result<()> {
    let shown = target.display();
    if let Some(mount) = mounted_on(target)? {
        bail_as!(
            BadInput,
            "the mount point {shown} has {} mounted on it already; unmount that, or use -o \
             nonempty",
            mount.file_system
        );
    }
    let mut entries = target.read_dir().with_context(|| format!("the mount point {shown}"))?;
    match entries.next() {
        Some(_) => bail_as!(
            BadInput,
            "the mount point {shown} is not empty; use -o nonempty to hide its contents"
        ),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lower: &Leaf, mount_point: &Path, non_empty: bool) -> Result<()> {
        Places { lower, mount_point, dead: None }.check(non_empty)
    }

    #[track_caller]
    fn refuses(lower: &Path, mount_point: &Path, part: &str) {
        let lower = Leaf::Directory(lower.to_owned());
        let message = check(&lower, mount_point, false).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }

    #[test]
    fn unsuitable_lower_directories_and_mount_points_are_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let [lower, inner, empty] =
            ["lower", "lower/inner", "empty"].map(|name| scratch.path().join(name));
        for directory in [&lower, &inner, &empty] {
            std::fs::create_dir(directory).unwrap();
        }
        refuses(&lower, &inner, "lies inside the lower directory");
        refuses(&inner, &lower, "lies inside the mount point");
        refuses(&empty, &lower, "not empty");
        refuses(&scratch.path().join("none"), &empty, "does not exist");
        refuses(&empty, &scratch.path().join("none"), "does not exist");
        let file = scratch.path().join("file");
        std::fs::write(&file, "").unwrap();
        refuses(&file, &empty, "not a directory");
        assert!(check(&Leaf::Directory(lower.clone()), &empty, false).is_ok());
        assert!(check(&Leaf::Directory(lower.clone()), &lower, false).is_ok(), "over itself");
        assert!(check(&Leaf::Directory(empty), &lower, true).is_ok(), "-o nonempty");
    }
}
