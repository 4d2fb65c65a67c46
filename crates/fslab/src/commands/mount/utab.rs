//! Adds a line to /run/mount/utab, so that root's `umount DIR` runs fslab's helper.
//!
//! umount(8) looks up the type of a mount only if necessary. Otherwise it assumes the type "fuse"
//! for a FUSE mount, and runs `umount.fuse`. But if the directory is listed in /run/mount/utab, it
//! reads the list of mounts and runs `umount.fuse.fslab`, which waits for the daemon. The table
//! belongs to libmount. Like libmount, this code locks the table and replaces it by renaming a new
//! file.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fslab_sys::mounts::{self, MountEntry};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// The directory where libmount keeps data about mounts that the kernel does not keep.
const DIRECTORY: &str = "/run/mount";

/// Maximum time to wait for another program that has locked the table.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(1);

/// The end of each line that fslab adds.
const OWN: &[u8] = b" ROOT=/ OPTS=x-fslab";

/// A line of the table. It is removed when dropped.
pub struct Note {
    directory: PathBuf,
    line: Vec<u8>,
}

impl Note {
    /// Adds a line for a mount that root made. Mounts of other users need no line, because
    /// umount(8) always reads the list of mounts for them. Without a line, `umount DIR` does not
    /// wait for the daemon.
    pub fn of(mount: &MountEntry) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let noted = Self::within(Path::new(DIRECTORY), mount, living);
        let failed = "can't add the mount to utab, so `umount DIR` will not wait for the daemon";
        noted.inspect_err(|error| tracing::info!(%error, "{failed}")).ok()
    }

    fn within(
        directory: &Path,
        mount: &MountEntry,
        living: impl FnOnce() -> io::Result<HashSet<Vec<u8>>>,
    ) -> io::Result<Self> {
        fs::DirBuilder::new().mode(0o755).recursive(true).create(directory)?;
        let note = Self { directory: directory.to_owned(), line: line_of(mount) };
        let locked = note.locked()?;
        // The mounts are listed under the lock, so the list contains all mounts with earlier lines.
        let living = living()?;
        note.replace(&locked, |line| !line.ends_with(OWN) || living.contains(line), true)?;
        Ok(note)
    }

    /// Removes this line and all lines for which `stays` returns `false`. Adds this line again if
    /// `is_wanted` is set.
    fn replace(
        &self,
        _locked: &File,
        stays: impl Fn(&[u8]) -> bool,
        is_wanted: bool,
    ) -> io::Result<()> {
        let [table, new] = ["utab", "utab.fslab"].map(|name| self.directory.join(name));
        let text = match fs::read(&table) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            text => text?,
        };
        let lines = text.split(|byte| *byte == b'\n');
        let others = lines.filter(|line| !line.is_empty() && *line != self.line && stays(line));
        let wanted = is_wanted.then_some(&*self.line);
        let text: Vec<u8> = others.chain(wanted).flat_map(|line| [line, b"\n"].concat()).collect();
        fs::write(&new, text)?;
        // Ordinary users must be able to read the table, whatever the umask of this process is.
        fs::set_permissions(&new, Permissions::from_mode(0o644))?;
        fs::rename(&new, &table)
    }

    /// Locks the table. The wait is limited, because any user can hold the lock.
    fn locked(&self) -> io::Result<File> {
        let path = self.directory.join("utab.lock");
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o644).open(path)?;
        let start = Instant::now();
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::AGAIN) if start.elapsed() < LOCK_WAIT_MAX => {}
                locked => return Ok(locked.map(|()| file)?),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        let removed = self.locked().and_then(|locked| self.replace(&locked, |_line| true, false));
        if let Err(error) = removed {
            tracing::warn!(%error, "can't remove a line from {}/utab", self.directory.display());
        }
    }
}

fn line_of(mount: &MountEntry) -> Vec<u8> {
    let (source, target) = (mount.source.as_bytes(), mount.target.as_os_str().as_bytes());
    [b"SRC=", &*escaped(source), b" TARGET=", &escaped(target), OWN].concat()
}

/// Returns the lines of all mounts of fslab.
fn living() -> io::Result<HashSet<Vec<u8>>> {
    let mounts = mounts::list()?;
    let own = mounts.iter().filter(|mount| mount.file_system == "fuse.fslab");
    Ok(own.map(line_of).collect())
}

/// Escapes a field as in mountinfo: a byte that would end the field becomes a backslash and three
/// octal digits.
fn escaped(field: &[u8]) -> Vec<u8> {
    let escape = |byte: &u8| match byte {
        b' ' | b'\t' | b'\n' | b'\\' | b'#' => format!("\\{byte:03o}").into_bytes(),
        plain => vec![*plain],
    };
    field.iter().flat_map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_utab_does_not_block_a_mount() {
        let scratch = tempfile::tempdir().unwrap();
        let root = fslab_sys::mounts::mounted_on(Path::new("/")).unwrap().unwrap();
        let lock = File::create(scratch.path().join("utab.lock")).unwrap();
        lock.lock().unwrap();
        let refused = Note::within(scratch.path(), &root, living).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn utab_keeps_lines_of_other_programs_and_live_mounts() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("mount");
        let root = fslab_sys::mounts::mounted_on(Path::new("/")).unwrap().unwrap();
        let mount = |target: &str| MountEntry {
            source: "/a b".into(),
            target: target.into(),
            ..root.clone()
        };
        let table = || fs::read_to_string(directory.join("utab")).unwrap();
        let living = || Ok(HashSet::from([line_of(&mount("/one"))]));
        let noted = |target: &str| Note::within(&directory, &mount(target), living).unwrap();
        let first = noted("/one");
        fs::write(directory.join("utab"), table() + "SRC=x TARGET=/y ROOT=/\n").unwrap();
        // These lines remain in the table, as if their daemons had been killed.
        std::mem::forget((noted("/two"), noted("/three")));
        let second = noted("/two");
        let [one, two] =
            ["one", "two"].map(|name| format!("SRC=/a\\040b TARGET=/{name} ROOT=/ OPTS=x-fslab\n"));
        assert_eq!(table(), format!("{one}SRC=x TARGET=/y ROOT=/\n{two}"));
        drop((first, second));
        assert_eq!(table(), "SRC=x TARGET=/y ROOT=/\n");
    }
}
