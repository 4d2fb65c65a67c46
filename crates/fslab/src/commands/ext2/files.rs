//! Tools for single files: `ls`, `cat`, `stat`, `put`, `get`.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fslab_ext2::Ext2;
use fslab_vfs::{Attr, FileKind, FileSystem, Ino, Layout, Name, OpenMode, Timestamp, WriteOptions};
use serde_json::{Value, json};

use super::walk::{self, Image, PIECE_BYTES, make_file, request};
use crate::output::output;

/// Arguments of `fslab ext2 ls`.
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    /// Print mode, links, owner, size and time of each file too
    #[arg(long, short)]
    long: bool,
    /// Print JSON, with the attributes of each file
    #[arg(long)]
    json: bool,
    /// The image or device
    image: PathBuf,
    /// The directory
    #[arg(default_value = "/")]
    path: PathBuf,
}

impl ListArgs {
    /// Prints the names in byte order.
    pub fn run(self) -> Result<()> {
        let image = Image::read(&self.image)?;
        let directory = image.find(&self.path)?;
        let names = walk::list(&image.ext2, &request(), directory.ino);
        let names = names.with_context(|| self.path.display().to_string())?;
        if self.json {
            let entry = |name: &std::ffi::OsString| {
                let attr = image.find(&self.path.join(name))?;
                let name = name.to_string_lossy();
                Ok(json!({ "name": name, "attributes": attr_as_json(&attr) }))
            };
            let entries = names.iter().map(entry).collect::<Result<Vec<_>>>()?;
            say!("{:#}", json!({ "entries": entries }));
            return Ok(());
        }
        let mut out = output();
        for name in names {
            if self.long {
                let attr = image.find(&self.path.join(&name))?;
                write!(out, "{} ", summary(&attr))?;
            }
            out.write_all(name.as_bytes())?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}

fn attr_as_json(attr: &Attr) -> Value {
    json!({
        "inode": inode_number(attr),
        "kind": format!("{:?}", attr.kind).to_lowercase(),
        "mode": format!("{:06o}", attr.kind.mode_bits() | attr.permissions.bits()),
        "links": attr.links,
        "uid": attr.uid,
        "gid": attr.gid,
        "size_bytes": attr.size,
        "allocated_bytes": attr.blocks * 512,
        "accessed": show_time(attr.accessed),
        "modified": show_time(attr.modified),
        "changed": show_time(attr.changed),
        "created": attr.created.map(show_time),
    })
}

/// Returns the inode number in the image. The root directory is inode 1 for the engine and inode 2
/// in ext2.
fn inode_number(attr: &Attr) -> u64 {
    if attr.ino == Ino::ROOT { 2 } else { attr.ino.0 }
}

fn summary(attr: &Attr) -> String {
    let mode = attr.kind.mode_bits() | attr.permissions.bits();
    let time = show_time(attr.modified);
    let Attr { links, uid, gid, size, .. } = attr;
    format!("{mode:06o} {links:3} {uid:5} {gid:5} {size:10} {time}")
}

pub(super) fn show_time(time: Timestamp) -> String {
    let shown = jiff::Timestamp::new(time.seconds, time.nanoseconds as i32);
    shown.map_or_else(|_unknown| time.seconds.to_string(), |shown| shown.to_string())
}

/// Arguments of `fslab ext2 cat`.
#[derive(Debug, clap::Args)]
pub struct CatArgs {
    /// The image or device
    image: PathBuf,
    /// The file
    path: PathBuf,
}

impl CatArgs {
    /// Writes the bytes of the file to standard output.
    pub fn run(self) -> Result<()> {
        let image = Image::read(&self.image)?;
        copy_out(&image, &self.path, &mut output())
    }
}

fn copy_out(image: &Image, path: &Path, target: &mut dyn Write) -> Result<()> {
    let request = request();
    let attr = image.find(path)?;
    let opened = image.ext2.open(&request, attr.ino, OpenMode::empty());
    let opened = opened.with_context(|| path.display().to_string())?;
    walk::copy_out(target, |offset, buffer| {
        Ok(image.ext2.read(&request, attr.ino, opened.handle, offset, buffer)?)
    })?;
    Ok(image.ext2.release(&request, attr.ino, opened.handle)?)
}

/// Arguments of `fslab ext2 stat`.
#[derive(Debug, clap::Args)]
pub struct StatArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The image or device
    image: PathBuf,
    /// The file
    path: PathBuf,
}

impl StatArgs {
    /// Prints the attributes, the extended attributes and the extents.
    pub fn run(self) -> Result<()> {
        let image = Image::read(&self.image)?;
        let attr = image.find(&self.path)?;
        if self.json {
            say!("{:#}", self.as_json(&image, &attr)?);
            return Ok(());
        }
        print_attr(&image, &attr)?;
        for extent in image.ext2.extents(attr.ino)? {
            let (from, to) = (extent.logical, extent.logical + extent.length);
            say!("extent: bytes {from}..{to} at {}", extent.physical);
        }
        Ok(())
    }
}

impl StatArgs {
    fn as_json(&self, image: &Image, attr: &Attr) -> Result<Value> {
        let (request, mut value) = (request(), attr_as_json(attr));
        let extents = image.ext2.extents(attr.ino)?;
        let extent = |one: &fslab_vfs::Extent| {
            let fslab_vfs::Extent { logical, length, physical, .. } = *one;
            json!({
                "offset_bytes": logical,
                "length_bytes": length,
                "image_offset_bytes": physical,
            })
        };
        value["extents"] = extents.iter().map(extent).collect();
        if attr.kind == FileKind::Symlink {
            let target = image.ext2.readlink(&request, attr.ino)?;
            value["target"] = target.to_string_lossy().into();
        }
        if matches!(attr.kind, FileKind::CharDevice | FileKind::BlockDevice) {
            value["device"] = attr.device.into();
        }
        let xattrs = walk::extended(&image.ext2, &request, attr.ino)?;
        let xattr = |(name, value): &(std::ffi::OsString, Vec<u8>)| {
            let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            json!({
                "name": name.to_string_lossy(),
                "value": std::str::from_utf8(value).ok(),
                "value_hex": hex,
            })
        };
        value["xattrs"] = xattrs.iter().map(xattr).collect();
        Ok(value)
    }
}

fn print_attr(image: &Image, attr: &Attr) -> Result<()> {
    let request = request();
    say!("inode: {}", inode_number(attr));
    say!("kind: {:?}", attr.kind);
    say!("mode: {:06o}", attr.kind.mode_bits() | attr.permissions.bits());
    say!("links: {}", attr.links);
    say!("owner: {} {}", attr.uid, attr.gid);
    say!("size: {}", attr.size);
    say!("sectors: {}", attr.blocks);
    say!("accessed: {}", show_time(attr.accessed));
    say!("modified: {}", show_time(attr.modified));
    say!("changed: {}", show_time(attr.changed));
    if let Some(created) = attr.created {
        say!("created: {}", show_time(created));
    }
    if attr.kind == FileKind::Symlink {
        say!("target: {}", image.ext2.readlink(&request, attr.ino)?.display());
    }
    if matches!(attr.kind, FileKind::CharDevice | FileKind::BlockDevice) {
        say!("device: {:#x}", attr.device);
    }
    for (name, value) in walk::extended(&image.ext2, &request, attr.ino)? {
        say!("xattr: {}={}", name.display(), String::from_utf8_lossy(&value).escape_debug());
    }
    Ok(())
}

/// Arguments of `fslab ext2 put`.
#[derive(Debug, clap::Args)]
pub struct PutArgs {
    /// The image or device
    image: PathBuf,
    /// The file of the host
    source: PathBuf,
    /// The path in the image; an existing file is replaced
    path: PathBuf,
}

impl PutArgs {
    /// Copies the bytes and permissions.
    pub fn run(self) -> Result<()> {
        let shown = self.source.display().to_string();
        let mut source = File::open(&self.source).with_context(|| shown.clone())?;
        let mode = source.metadata().with_context(|| shown.clone())?.permissions().mode();
        let image = Image::write(&self.image)?;
        let answer = put(&image, &mut source, mode & 0o777, &self.path);
        // Close the image even after a failure, which leaves it consistent.
        let closed = image.close();
        answer.with_context(|| format!("can't copy {shown} to {}", self.path.display()))?;
        closed
    }
}

/// Replaces a file. The new content is written under a temporary name and then renamed, so that a
/// failure keeps the old file.
fn put(image: &Image, source: &mut dyn Read, mode: u32, path: &Path) -> Result<()> {
    let request = request();
    let (parent, name) = image.find_parent(path)?;
    let name = Name::new(&name)?;
    let temporary = format!(".fslab-put-{}", std::process::id());
    let temporary = Name::new(std::ffi::OsStr::new(&temporary))?;
    let flags = OpenMode::WRITE_ONLY | OpenMode::EXCLUSIVE;
    let (entry, opened) = image.ext2.create(&request, parent.ino, temporary, mode, flags)?;
    let copied = copy_in(&image.ext2, entry.attr.ino, opened.handle, source);
    let released = image.ext2.release(&request, entry.attr.ino, opened.handle);
    let answer = copied.and(released.map_err(anyhow::Error::from)).and_then(|()| {
        let replace = fslab_vfs::RenameMode::empty();
        Ok(image.ext2.rename(&request, parent.ino, temporary, parent.ino, name, replace)?)
    });
    if answer.is_err() {
        image.ext2.unlink(&request, parent.ino, temporary)?;
    }
    image.ext2.forget(entry.attr.ino, 1);
    answer
}

fn copy_in(ext2: &Ext2, ino: Ino, handle: fslab_vfs::Handle, source: &mut dyn Read) -> Result<()> {
    let request = request();
    let mut buffer = vec![0; PIECE_BYTES];
    let mut offset = 0;
    loop {
        let length = source.read(&mut buffer).context("can't read the file")?;
        if length == 0 {
            return Ok(());
        }
        let options = WriteOptions::default();
        ext2.write_all(&request, ino, handle, offset, &buffer[..length], options)?;
        offset += length as u64;
    }
}

/// Arguments of `fslab ext2 get`.
#[derive(Debug, clap::Args)]
pub struct GetArgs {
    /// The image or device
    image: PathBuf,
    /// The file in the image
    path: PathBuf,
    /// The new file on the host
    target: PathBuf,
}

impl GetArgs {
    /// Copies the bytes and permissions.
    pub fn run(self) -> Result<()> {
        let image = Image::read(&self.image)?;
        let attr = image.find(&self.path)?;
        let mode = attr.permissions.bits() & 0o777;
        make_file(&self.target, |target| {
            copy_out(&image, &self.path, target)?;
            let permissions = std::fs::Permissions::from_mode(mode);
            target.set_permissions(permissions).context("can't set its permissions")
        })
    }
}
