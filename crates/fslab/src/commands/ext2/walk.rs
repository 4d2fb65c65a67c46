//! Functions that the tools share: open images, find files by path, list directories, copy content.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use fslab_ext2::{Ext2, VolumeOptions};
use fslab_vfs::{Attr, Credentials, Errno, FileSystem, Ino, Name, Request, Timestamp};

use crate::leaves;

/// Number of bytes copied at once.
pub const PIECE_BYTES: usize = 1 << 20;

/// An image, opened for one tool. [`Image::close`] writes changes back.
pub struct Image {
    pub ext2: Ext2,
}

impl Image {
    pub fn read(path: &Path) -> Result<Self> {
        let options = VolumeOptions { read_only: true, ..VolumeOptions::default() };
        Ok(Self { ext2: leaves::open(path, &options)? })
    }

    pub fn write(path: &Path) -> Result<Self> {
        Ok(Self { ext2: leaves::open(path, &VolumeOptions::default())? })
    }

    pub fn close(self) -> Result<()> {
        Ok(self.ext2.shutdown()?)
    }

    /// Finds a file by its path. Symbolic links are not followed, so that tools show the links
    /// themselves.
    pub fn find(&self, path: &Path) -> Result<Attr> {
        let request = request();
        let mut at = self.ext2.getattr(&request, Ino::ROOT, None)?;
        for name in names(path) {
            let name = Name::new(&name).with_context(|| path.display().to_string())?;
            at = match self.ext2.lookup(&request, at.ino, name) {
                Err(error) if error.errno() == Errno::NOENT => {
                    bail_as!(BadInput, "there is no {} in the image", path.display())
                }
                entry => entry.with_context(|| path.display().to_string())?.attr,
            };
        }
        Ok(at)
    }

    /// Returns the parent directory of a path, and the last name of the path.
    pub fn find_parent(&self, path: &Path) -> Result<(Attr, OsString)> {
        let mut names = names(path);
        let Some(last) = names.pop() else {
            bail_as!(BadInput, "{} does not end with a file name", path.display());
        };
        Ok((self.find(&names.iter().collect::<PathBuf>())?, last))
    }
}

/// Returns the names of a path from the root of the image. `..` goes up, but not above the root.
fn names(path: &Path) -> Vec<OsString> {
    let mut names: Vec<OsString> = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(OsStr::to_owned(name)),
            Component::ParentDir => drop(names.pop()),
            _ => {}
        }
    }
    names
}

/// Returns the names in a directory in byte order, without `.` and `..`.
pub fn list(
    source: &dyn FileSystem,
    request: &Request,
    directory: Ino,
) -> fslab_vfs::Result<Vec<OsString>> {
    let handle = source.opendir(request, directory)?;
    let mut names = Vec::new();
    source.readdir(request, directory, handle, 0, &mut |entry| {
        if entry.name != "." && entry.name != ".." {
            names.push(entry.name.to_owned());
        }
        true
    })?;
    source.releasedir(request, directory, handle)?;
    names.sort();
    Ok(names)
}

/// Returns the extended attributes of a file.
pub fn extended(
    source: &dyn FileSystem,
    request: &Request,
    ino: Ino,
) -> fslab_vfs::Result<Vec<(OsString, Vec<u8>)>> {
    let names = source.listxattr(request, ino)?;
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let pair = |name: &[u8]| {
        let name = OsStr::from_bytes(name);
        source.getxattr(request, ino, name).map(|value| (name.to_owned(), value))
    };
    names.map(pair).collect()
}

/// Copies a file to `target`. `read` reads bytes at an offset, and returns 0 at the end of the
/// file.
pub fn copy_out(
    target: &mut dyn Write,
    read: impl Fn(u64, &mut [u8]) -> Result<usize>,
) -> Result<()> {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut offset = 0;
    loop {
        let length = read(offset, &mut buffer)?;
        if length == 0 {
            return Ok(target.flush()?);
        }
        target.write_all(&buffer[..length])?;
        offset += length as u64;
    }
}

/// Creates a file on the host, which must not exist yet. If `fill` fails, the file is removed.
pub fn make_file(path: &Path, fill: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    let shown = path.display().to_string();
    let mut file = File::create_new(path).with_context(|| shown.clone())?;
    let answer = fill(&mut file);
    if answer.is_err() {
        std::fs::remove_file(path).with_context(|| format!("can't remove {shown}"))?;
    }
    answer.and_then(|()| Ok(file.sync_all()?)).context(shown)
}

/// Returns a request of the calling user with the current time.
pub fn request() -> Request {
    Request {
        credentials: Credentials {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        },
        now: Timestamp::from(SystemTime::now()),
        ..Request::default()
    }
}
