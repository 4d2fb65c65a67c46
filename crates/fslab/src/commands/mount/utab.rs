//! The note by which a plain `umount DIR` of root finds our helper.
//!
//! umount(8) looks the type of a mount up only where it must. Of a FUSE mount it otherwise knows
//! the type "fuse" and calls `umount.fuse`. Where the directory is noted in /run/mount/utab, it
//! reads the list of mounts and calls `umount.fuse.fslab`, which waits for the daemon. The table
//! belongs to libmount: it is changed as libmount does, under its lock, by renaming a new file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fslab_sys::mounts::MountEntry;

/// Where libmount keeps what the kernel does not know about mounts.
const DIRECTORY: &str = "/run/mount";

/// A line of the table; removed when dropped.
pub struct Note {
    directory: PathBuf,
    line: Vec<u8>,
}

impl Note {
    /// Notes a mount by root; umount(8) reads the list of mounts for everybody else. Where this
    /// fails, a plain `umount DIR` does not wait, and nothing else changes.
    pub fn of(mount: &MountEntry) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let noted = Self::within(Path::new(DIRECTORY), mount);
        noted.inspect_err(|error| tracing::info!(%error, "`umount DIR` will not wait")).ok()
    }

    fn within(directory: &Path, mount: &MountEntry) -> io::Result<Self> {
        match fs::DirBuilder::new().mode(0o755).create(directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let (source, target) = (escaped(mount.source.as_bytes()), mount.target.as_os_str());
        let target = escaped(target.as_bytes());
        let line = [b"SRC=", &*source, b" TARGET=", &target, b" ROOT=/ OPTS=x-fslab"].concat();
        let note = Self { directory: directory.to_owned(), line };
        note.replace(true)?;
        Ok(note)
    }

    /// Removes the line from the table, and adds it again if it is to be there. So a line that a
    /// killed daemon left is not there twice.
    fn replace(&self, is_wanted: bool) -> io::Result<()> {
        let [table, lock, new] =
            ["utab", "utab.lock", "utab.fslab"].map(|n| self.directory.join(n));
        let _locked = locked(&lock)?;
        let text = match fs::read(&table) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            text => text?,
        };
        let lines = text.split(|byte| *byte == b'\n');
        let others = lines.filter(|line| !line.is_empty() && *line != self.line);
        let wanted = is_wanted.then_some(&*self.line);
        let text: Vec<u8> = others.chain(wanted).flat_map(|line| [line, b"\n"].concat()).collect();
        fs::write(&new, text)?;
        fs::rename(&new, &table)
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        if let Err(error) = self.replace(false) {
            tracing::warn!(%error, "a line is left in {}/utab", self.directory.display());
        }
    }
}

/// Waits for whoever else changes the table.
fn locked(path: &Path) -> io::Result<File> {
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o644).open(path)?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
    Ok(file)
}

/// As mountinfo has it: what would end a field stands as three octal digits.
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
    fn lines_of_others_stay_in_the_table() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("mount");
        let root = fslab_sys::mounts::mounted_on(Path::new("/")).unwrap().unwrap();
        let mount = |target: &str| MountEntry {
            source: "/a b".into(),
            target: target.into(),
            ..root.clone()
        };
        let table = || fs::read_to_string(directory.join("utab")).unwrap();
        let first = Note::within(&directory, &mount("/one")).unwrap();
        fs::write(directory.join("utab"), table() + "SRC=x TARGET=/y ROOT=/\n").unwrap();
        let killed = Note::within(&directory, &mount("/two")).unwrap();
        std::mem::forget(killed);
        let second = Note::within(&directory, &mount("/two")).unwrap();
        let [one, two] =
            ["one", "two"].map(|name| format!("SRC=/a\\040b TARGET=/{name} ROOT=/ OPTS=x-fslab\n"));
        assert_eq!(table(), format!("{one}SRC=x TARGET=/y ROOT=/\n{two}"));
        drop((first, second));
        assert_eq!(table(), "SRC=x TARGET=/y ROOT=/\n");
    }
}
