//! Imports a tar archive into an image. Supports ustar, GNU and pax headers, as written by GNU tar,
//! bsdtar and container tools. Writes only inside the target directory, and follows no link.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use anyhow::{Context, Result, bail};
use fslab_vfs::{
    Errno, FileKind, FileSystem, Ino, Name, OpenMode, Permissions, Request, SetAttr, Timestamp,
    WriteOptions,
};
use tar::{Archive, Entry, EntryType};

use super::attributes::Attributes;
use super::walk::{PIECE_BYTES, request};
use crate::exit::Code;

/// In a sparse file, runs of zeros of this length become holes.
const HOLE_BYTES: usize = 4096;

/// Prefix of the pax records that contain extended attributes.
const XATTR_RECORD: &str = "SCHILY.xattr.";

/// Creates the content of an archive below a directory. Files created before a failure are kept.
pub(super) fn unpack(bytes: impl Read, target: &dyn FileSystem, root: Ino) -> Result<()> {
    let request = request();
    let keep_owner = request.credentials.uid == 0;
    let (made, directories) = (HashSet::new(), Vec::new());
    let mut unpacker = Unpacker { target, root, request, keep_owner, made, directories };
    let mut archive = Archive::new(bytes);
    let not_an_archive =
        || Code::BadInput.error("neither a directory nor a tar archive".to_owned());
    let mut is_first = true;
    for entry in archive.entries().context("can't read the archive")? {
        let mut entry = match entry {
            // Only errors of the tar library have an inner error. At the first entry, such an error
            // means that the bytes are not an archive.
            Err(error) if is_first && error.get_ref().is_some() => return Err(not_an_archive()),
            entry => entry.context("the archive is damaged or cut off")?,
        };
        is_first = false;
        let path = entry.path()?.into_owned();
        unpacker.entry(&mut entry, &path).with_context(|| path.display().to_string())?;
    }
    unpacker.finish()
}

struct Unpacker<'a> {
    target: &'a dyn FileSystem,
    root: Ino,
    request: Request,
    keep_owner: bool,
    /// Inodes of files that were made from this archive. Only these files are replaced by a later
    /// member with the same name.
    made: HashSet<Ino>,
    /// Directories and their attributes. Attributes are set at the end, because creating files
    /// changes the times of a directory, and its final mode may be read-only.
    directories: Vec<(Ino, Attributes)>,
}

impl Unpacker<'_> {
    fn entry(&mut self, entry: &mut Entry<'_, impl Read>, path: &Path) -> Result<()> {
        let kind = entry.header().entry_type();
        if kind.is_pax_global_extensions() {
            return Ok(());
        }
        let records = Records::of(entry)?;
        let attributes = self.attributes(entry, &records, kind)?;
        let names = names(path)?;
        let Some((name, parents)) = names.split_last() else {
            self.directories.push((self.root, attributes));
            return Ok(());
        };
        let parent = self.parents(parents)?;
        let name = Name::new(name)?;
        if kind.is_dir() {
            let ino = self.directory(parent, name)?;
            self.directories.push((ino, attributes));
            return Ok(());
        }
        self.make_way(parent, name)?;
        if kind.is_hard_link() {
            return self.link(entry, parent, name);
        }
        let ino = self.make(entry, kind, parent, name)?;
        self.made.insert(ino);
        attributes.give_to(self.target, &self.request, ino)?;
        self.target.forget(ino, 1);
        Ok(())
    }

    fn finish(self) -> Result<()> {
        for (ino, attributes) in self.directories.iter().rev() {
            attributes.give_to(self.target, &self.request, *ino)?;
        }
        Ok(())
    }

    /// Returns the parent directory of a member. Missing directories are created.
    fn parents(&self, names: &[OsString]) -> Result<Ino> {
        names.iter().try_fold(self.root, |at, name| self.directory(at, Name::new(name)?))
    }

    /// Returns a directory, creating it if needed. An existing directory is never replaced.
    fn directory(&self, parent: Ino, name: Name<'_>) -> Result<Ino> {
        match self.target.lookup(&self.request, parent, name) {
            Ok(found) if found.attr.kind == FileKind::Directory => Ok(found.attr.ino),
            Ok(_) => Err(Errno::NOTDIR).with_context(|| name.as_os_str().display().to_string()),
            Err(error) if error.errno() == Errno::NOENT => {
                Ok(self.target.mkdir(&self.request, parent, name, 0o755)?.attr.ino)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the file of an earlier member with the same name, if there is one.
    fn make_way(&mut self, parent: Ino, name: Name<'_>) -> Result<()> {
        let found = match self.target.lookup(&self.request, parent, name) {
            Ok(found) => found.attr,
            Err(error) if error.errno() == Errno::NOENT => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if self.made.remove(&found.ino) {
            self.target.unlink(&self.request, parent, name)?;
        }
        self.target.forget(found.ino, 1);
        Ok(())
    }

    /// Adds a hard link to an earlier member of the archive.
    fn link(&self, entry: &Entry<'_, impl Read>, parent: Ino, name: Name<'_>) -> Result<()> {
        let path = entry.link_name()?.context("a hard link without a target")?;
        let mut at = self.root;
        for name in names(&path)? {
            let found = self.target.lookup(&self.request, at, Name::new(&name)?);
            at = found.with_context(|| format!("link to {}", path.display()))?.attr.ino;
        }
        self.target.link(&self.request, at, parent, name)?;
        Ok(())
    }

    fn make(
        &self,
        entry: &mut Entry<'_, impl Read>,
        kind: EntryType,
        parent: Ino,
        name: Name<'_>,
    ) -> Result<Ino> {
        let request = &self.request;
        if kind.is_symlink() {
            let link = entry.link_name_bytes().context("a symbolic link without a target")?;
            let link = OsStr::from_bytes(&link);
            return Ok(self.target.symlink(request, parent, name, link)?.attr.ino);
        }
        let (special, device) = special(entry, kind)?;
        let mode = special.mode_bits() | 0o700;
        let ino = self.target.mknod(request, parent, name, mode, device)?.attr.ino;
        if special == FileKind::Regular {
            self.bytes(entry, ino, kind.is_gnu_sparse())?;
        }
        Ok(ino)
    }

    fn bytes(&self, entry: &mut Entry<'_, impl Read>, ino: Ino, is_sparse: bool) -> Result<()> {
        let handle = self.target.open(&self.request, ino, OpenMode::WRITE_ONLY)?.handle;
        let step = if is_sparse { HOLE_BYTES } else { PIECE_BYTES };
        let (mut part, mut offset) = (Vec::new(), 0);
        loop {
            part.clear();
            let read = entry.by_ref().take(step as u64).read_to_end(&mut part);
            let length = read.context("the archive is cut off")? as u64;
            if length == 0 {
                break;
            }
            if !is_sparse || part.iter().any(|byte| *byte != 0) {
                let options = WriteOptions::default();
                self.target.write_all(&self.request, ino, handle, offset, &part, options)?;
            }
            offset += length;
        }
        let size = SetAttr { size: Some(offset), ..SetAttr::default() };
        self.target.setattr(&self.request, ino, Some(handle), &size)?;
        Ok(self.target.release(&self.request, ino, handle)?)
    }

    fn attributes(
        &self,
        entry: &Entry<'_, impl Read>,
        records: &Records,
        kind: EntryType,
    ) -> Result<Attributes> {
        let header = entry.header();
        let number = |key: &str, plain: u64| records.number(key).unwrap_or(Ok(plain));
        let owner = (number("uid", header.uid()?)?, number("gid", header.gid()?)?);
        let plain = Timestamp { seconds: header.mtime()?.cast_signed(), nanoseconds: 0 };
        let modified = records.time("mtime")?.unwrap_or(plain);
        let permissions = Permissions::new(header.mode()?);
        Ok(Attributes {
            owner: self.keep_owner.then_some((owner.0.try_into()?, owner.1.try_into()?)),
            permissions: (!kind.is_symlink()).then_some(permissions),
            accessed: records.time("atime")?.unwrap_or(modified),
            modified,
            extended: records.extended(),
        })
    }
}

/// Returns the file type and the device number for mknod.
fn special(entry: &Entry<'_, impl Read>, kind: EntryType) -> Result<(FileKind, u32)> {
    let device = || -> Result<u32> {
        let header = entry.header();
        let (major, minor) = (header.device_major()?, header.device_minor()?);
        Ok(fslab_vfs::encode_device(major.unwrap_or_default(), minor.unwrap_or_default()))
    };
    match kind {
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            Ok((FileKind::Regular, 0))
        }
        EntryType::Fifo => Ok((FileKind::Fifo, 0)),
        EntryType::Char => Ok((FileKind::CharDevice, device()?)),
        EntryType::Block => Ok((FileKind::BlockDevice, device()?)),
        other => bail!("a tar member of the unknown type {:?}", char::from(other.as_byte())),
    }
}

/// Returns the names on a member's path, relative to the root of the archive.
fn names(path: &Path) -> Result<Vec<OsString>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name.to_owned()),
            Component::ParentDir => bail!("leads out of the target directory with .."),
            _ => {}
        }
    }
    Ok(names)
}

/// The records of a member's pax header.
struct Records(Vec<(String, Vec<u8>)>);

impl Records {
    fn of(entry: &mut Entry<'_, impl Read>) -> Result<Self> {
        let mut records = Vec::new();
        for record in entry.pax_extensions()?.into_iter().flatten() {
            let record = record?;
            records.push((record.key()?.to_owned(), record.value_bytes().to_vec()));
        }
        let all = Self(records);
        if all.get("GNU.sparse.major").is_some() {
            bail!(
                "sparse files in pax format are not supported; create the archive with --format=gnu"
            );
        }
        Ok(all)
    }

    fn get(&self, key: &str) -> Option<&[u8]> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| &**value)
    }

    fn text(&self, key: &str) -> Option<Result<&str>> {
        Some(std::str::from_utf8(self.get(key)?).with_context(|| format!("{key} is not text")))
    }

    fn number(&self, key: &str) -> Option<Result<u64>> {
        let parse =
            |text: &str| text.parse().with_context(|| format!("{key} is not a number: {text}"));
        Some(self.text(key)?.and_then(parse))
    }

    /// Parses seconds since 1970 with a fraction. The time is negative if it is before 1970.
    fn time(&self, key: &str) -> Result<Option<Timestamp>> {
        let Some(text) = self.text(key).transpose()? else { return Ok(None) };
        let wrong = || format!("{key} is not a time: {text}");
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let seconds: i64 = whole.parse().with_context(wrong)?;
        let digits = format!("{fraction:0<9}");
        let nanoseconds: u32 = digits.get(..9).with_context(wrong)?.parse().with_context(wrong)?;
        let before = text.starts_with('-') && nanoseconds > 0;
        // The fraction of a timestamp is never negative, so the seconds of a negative time are
        // rounded down.
        let (seconds, nanoseconds) = if before {
            (seconds - 1, 1_000_000_000 - nanoseconds)
        } else {
            (seconds, nanoseconds)
        };
        Ok(Some(Timestamp { seconds, nanoseconds }))
    }

    fn extended(&self) -> Vec<(OsString, Vec<u8>)> {
        let pair = |(key, value): &(String, Vec<u8>)| {
            Some((OsString::from(key.strip_prefix(XATTR_RECORD)?), value.clone()))
        };
        self.0.iter().filter_map(pair).collect()
    }
}
