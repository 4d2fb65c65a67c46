//! Finding a file of an image by its path, and acting on it as the calling user.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use fslab_ext2::{Ext2, VolumeOptions};
use fslab_vfs::{Attr, Credentials, FileSystem, Ino, Name, Request, Timestamp};

use crate::exit::{Code, Coded};
use crate::leaves;

/// An image, opened for one tool; written back by [`Image::close`].
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

    /// Links are not followed: a tool shows what is there.
    pub fn find(&self, path: &Path) -> Result<Attr> {
        let request = request();
        let mut at = self.ext2.getattr(&request, Ino::ROOT, None)?;
        for name in names(path)? {
            let name = Name::new(&name).with_context(|| path.display().to_string())?;
            let entry = self.ext2.lookup(&request, at.ino, name);
            at = entry.with_context(|| path.display().to_string())?.attr;
        }
        Ok(at)
    }

    /// The directory of a path, and the last name.
    pub fn find_parent(&self, path: &Path) -> Result<(Attr, OsString)> {
        let mut names = names(path)?;
        let last = names.pop().ok_or_else(|| Coded {
            code: Code::BadInput,
            message: format!("{} names no file", path.display()),
        })?;
        Ok((self.find(&names.iter().collect::<PathBuf>())?, last))
    }
}

/// The names of a path from the root of the image; `..` goes up, and not above the root.
fn names(path: &Path) -> Result<Vec<OsString>> {
    let mut names: Vec<OsString> = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(OsStr::to_owned(name)),
            Component::ParentDir => drop(names.pop()),
            _ => {}
        }
    }
    Ok(names)
}

/// A request of the calling user, now.
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
