//! `fslab ext2 import` and `export`: copy whole trees between a directory of the host and an image.
//!
//! Both sides are accessed through fslab's file system interface, so nothing outside their root is
//! reached. On the host, no file is opened by its path and no link is followed.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fslab_vfs::{
    Attr, Errno, FileKind, FileSystem, HostFs, HostOptions, Ino, Name, OpenMode, Request, SeekTo,
    SetAttr, WriteOptions,
};

use super::attributes::Attributes;
use super::tape;
use super::walk::{self, Image, PIECE_BYTES, request};
use crate::exit::Code;

/// Arguments of `fslab ext2 import`.
#[derive(Debug, clap::Args)]
pub struct ImportArgs {
    /// The image or device
    image: PathBuf,
    /// The host directory whose contents are copied, or a tar archive (- for standard input)
    source: PathBuf,
    /// The target directory in the image
    #[arg(default_value = "/")]
    target: PathBuf,
}

impl ImportArgs {
    /// Copies the tree into the image. After a failure, files that were already copied are kept,
    /// and the image is consistent.
    pub fn run(self) -> Result<()> {
        let source = Source::open(&self.source)?;
        let image = Image::write(&self.image)?;
        let answer = image.find(&self.target).and_then(|target| match source {
            Source::Directory(host) => {
                Copier::new(&*host, &image.ext2).copy(Ino::ROOT, target.ino, &self.source)
            }
            Source::Archive(bytes) => tape::unpack(bytes, &image.ext2, target.ino)
                .with_context(|| self.source.display().to_string()),
        });
        let closed = image.close();
        answer.with_context(|| format!("can't import into {}", self.image.display()))?;
        closed
    }
}

/// The source of a tree.
enum Source {
    Directory(Box<HostFs>),
    Archive(Box<dyn Read>),
}

impl Source {
    fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Archive(Box::new(std::io::stdin().lock())));
        }
        if path.is_dir() {
            return Ok(Self::Directory(Box::new(open_host(path)?)));
        }
        let shown = path.display();
        let refused =
            |error: std::io::Error| Code::of_io(&error).error(format!("{shown}: {error}"));
        let file = File::open(path).map_err(refused)?;
        let found = file.metadata().map_err(refused)?;
        if found.is_file() && found.len() == 0 {
            bail_as!(BadInput, "{shown} is empty: neither a directory nor a tar archive");
        }
        Ok(Self::Archive(Box::new(BufReader::new(file))))
    }
}

/// Arguments of `fslab ext2 export`.
#[derive(Debug, clap::Args)]
pub struct ExportArgs {
    /// The image or device
    image: PathBuf,
    /// The target directory on the host
    target: PathBuf,
    /// The directory in the image whose contents are copied
    #[arg(default_value = "/")]
    source: PathBuf,
}

impl ExportArgs {
    /// Copies the tree out of the image. Owners are kept if the caller is root.
    pub fn run(self) -> Result<()> {
        let image = Image::read(&self.image)?;
        let source = image.find(&self.source)?;
        let host = open_host(&self.target)?;
        Copier::new(&image.ext2, &host).copy(source.ino, Ino::ROOT, &self.source)?;
        Ok(host.shutdown()?)
    }
}

fn open_host(path: &Path) -> Result<HostFs> {
    HostFs::open(path, &HostOptions::default()).with_context(|| path.display().to_string())
}

/// A tree being copied.
struct Copier<'a> {
    source: &'a dyn FileSystem,
    target: &'a dyn FileSystem,
    request: Request,
    /// The copies of files with several hard links, by source inode.
    linked: HashMap<Ino, Ino>,
    /// Whether owners are kept. Only root may change the owner of a file.
    keep_owner: bool,
}

/// A directory whose entries are still to be copied.
struct Pending {
    from: Ino,
    to: Ino,
    path: PathBuf,
}

impl<'a> Copier<'a> {
    fn new(source: &'a dyn FileSystem, target: &'a dyn FileSystem) -> Self {
        let request = request();
        let keep_owner = request.credentials.uid == 0;
        Self { source, target, request, linked: HashMap::new(), keep_owner }
    }

    /// Copies the content of a directory, in the order of names. So equal trees make equal images.
    fn copy(&mut self, from: Ino, to: Ino, path: &Path) -> Result<()> {
        let mut pending = vec![Pending { from, to, path: path.to_owned() }];
        let mut finished = Vec::new();
        while let Some(directory) = pending.pop() {
            let names = walk::list(self.source, &self.request, directory.from);
            for name in names.with_context(|| shown(&directory.path))? {
                let path = directory.path.join(&name);
                let made = self.entry(&directory, &name).with_context(|| shown(&path))?;
                if let Some((attr, to)) = made {
                    pending.push(Pending { from: attr.ino, to, path });
                    finished.push((to, attr));
                }
            }
        }
        // Attributes of directories are set at the end, because creating files changes the times of
        // a directory, and its final mode may be read-only.
        for (to, attr) in finished.into_iter().rev() {
            self.attributes(&attr, to)?;
        }
        Ok(())
    }

    /// Copies one entry. If the entry is a directory, returns it, and the caller copies its
    /// content.
    fn entry(&mut self, parent: &Pending, name: &OsStr) -> Result<Option<(Attr, Ino)>> {
        let name = Name::new(name)?;
        let attr = self.source.lookup(&self.request, parent.from, name)?.attr;
        if let Some(first) = self.linked.get(&attr.ino) {
            self.target.link(&self.request, *first, parent.to, name)?;
            return Ok(None);
        }
        let to = self.make(&attr, parent.to, name)?;
        if attr.kind == FileKind::Directory {
            return Ok(Some((attr, to)));
        }
        self.attributes(&attr, to)?;
        if attr.links > 1 {
            self.linked.insert(attr.ino, to);
        } else {
            self.target.forget(to, 1);
            self.source.forget(attr.ino, 1);
        }
        Ok(None)
    }

    fn make(&self, attr: &Attr, parent: Ino, name: Name<'_>) -> Result<Ino> {
        let request = &self.request;
        let mode = attr.kind.mode_bits() | 0o700;
        let made = match attr.kind {
            FileKind::Directory => match self.target.mkdir(request, parent, name, 0o700) {
                // An existing directory is used, for example lost+found, which every image has.
                Err(error) if error.errno() == Errno::EXIST => {
                    self.target.lookup(request, parent, name)?
                }
                answer => answer?,
            },
            FileKind::Symlink => {
                let link = self.source.readlink(request, attr.ino)?;
                self.target.symlink(request, parent, name, &link)?
            }
            _ => self.target.mknod(request, parent, name, mode, attr.device)?,
        };
        if attr.kind == FileKind::Regular {
            self.bytes(attr, made.attr.ino)?;
        }
        Ok(made.attr.ino)
    }

    /// Copies the data, and keeps holes.
    fn bytes(&self, attr: &Attr, to: Ino) -> Result<()> {
        let request = &self.request;
        let from = self.source.open(request, attr.ino, OpenMode::empty())?.handle;
        let into = self.target.open(request, to, OpenMode::WRITE_ONLY)?.handle;
        let mut offset = 0;
        while let Some(start) = self.seek(attr.ino, from, offset, SeekTo::Data)? {
            let end = self.seek(attr.ino, from, start, SeekTo::Hole)?.unwrap_or(attr.size);
            let mut buffer = vec![0; (end - start).min(PIECE_BYTES as u64) as usize];
            let length = self.source.read(request, attr.ino, from, start, &mut buffer)?;
            if length == 0 {
                break;
            }
            let options = WriteOptions::default();
            let taken = self.target.write(request, to, into, start, &buffer[..length], options)?;
            offset = start + taken as u64;
        }
        let size = SetAttr { size: Some(attr.size), ..SetAttr::default() };
        self.target.setattr(request, to, Some(into), &size)?;
        self.source.release(request, attr.ino, from)?;
        Ok(self.target.release(request, to, into)?)
    }

    fn seek(
        &self,
        ino: Ino,
        handle: fslab_vfs::Handle,
        offset: u64,
        to: SeekTo,
    ) -> Result<Option<u64>> {
        match self.source.lseek(&self.request, ino, handle, offset, to) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.errno() == Errno::NXIO => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn attributes(&self, attr: &Attr, to: Ino) -> Result<()> {
        let request = &self.request;
        let attributes = Attributes {
            owner: self.keep_owner.then_some((attr.uid, attr.gid)),
            permissions: (attr.kind != FileKind::Symlink).then_some(attr.permissions),
            accessed: attr.accessed,
            modified: attr.modified,
            extended: walk::extended(self.source, request, attr.ino)?,
        };
        attributes.give_to(self.target, request, to)
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
