//! An inode: its attributes, its content, and the counts of its users.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::access_times::AccessTimes;
use crate::error::{Errno, Result};
use crate::rules::namespace::Namespace;
use crate::rules::{self, set_id};
use crate::types::{Attr, FileKind, Ino, Permissions, Request, Timestamp, XattrMode};

use super::data::Data;
use super::directory::Directory;
use super::space::PAGE_BYTES;

const SECTOR_BYTES: u64 = 512;
/// Maximum size of all xattr values of an inode together.
const XATTR_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Node {
    pub kind: FileKind,
    pub permissions: Permissions,
    pub uid: u32,
    pub gid: u32,
    pub device: u32,
    /// Number of names; for a directory also its `.` and the `..` of its subdirectories. 0 once
    /// removed.
    pub links: u32,
    pub accessed: Timestamp,
    pub modified: Timestamp,
    pub changed: Timestamp,
    pub created: Timestamp,
    /// Distinguishes the inode from earlier ones with the same number.
    pub generation: u64,
    /// Number of lookups that were not yet released.
    pub lookups: u64,
    pub opens: u64,
    /// Whether the file was created without a name and may still get one.
    pub linkable: bool,
    pub xattrs: BTreeMap<OsString, Vec<u8>>,
    pub content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    File(Data),
    Directory(Directory),
    Symlink(OsString),
    /// A pipe, socket or device, which has no content here.
    Special,
}

impl Content {
    /// The empty content of a regular file or special file.
    pub fn of_kind(kind: FileKind) -> Self {
        if kind == FileKind::Regular { Self::File(Data::default()) } else { Self::Special }
    }
}

impl Node {
    pub fn attr(&self, ino: Ino) -> Attr {
        Attr {
            ino,
            number: ino.0,
            size: self.size(),
            is_size_known: true,
            blocks: self.pages() * (PAGE_BYTES / SECTOR_BYTES),
            block_size: PAGE_BYTES as u32,
            kind: self.kind,
            permissions: self.permissions,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            device: self.device,
            accessed: self.accessed,
            modified: self.modified,
            changed: self.changed,
            created: Some(self.created),
        }
    }

    fn size(&self) -> u64 {
        match &self.content {
            Content::File(data) => data.size(),
            Content::Directory(_) => PAGE_BYTES,
            Content::Symlink(target) => target.as_bytes().len() as u64,
            Content::Special => 0,
        }
    }

    /// Number of pages of file contents.
    pub fn pages(&self) -> u64 {
        if let Content::File(data) = &self.content { data.pages() } else { 0 }
    }

    /// Whether the inode has no names and no users.
    pub fn is_unreachable(&self) -> bool {
        self.links == 0 && self.lookups == 0 && self.opens == 0
    }

    pub fn directory(&self) -> Result<&Directory> {
        match &self.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    pub fn directory_mut(&mut self) -> Result<&mut Directory> {
        match &mut self.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    /// Returns the bytes of a regular file; other kinds fail as in read(2).
    pub fn data(&self) -> Result<&Data> {
        match &self.content {
            Content::File(data) => Ok(data),
            Content::Directory(_) => Err(Errno::ISDIR.into()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    pub fn data_mut(&mut self) -> Result<&mut Data> {
        match &mut self.content {
            Content::File(data) => Ok(data),
            Content::Directory(_) => Err(Errno::ISDIR.into()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    /// Sets the security labels of a new inode.
    pub fn label(&mut self, labels: &[(OsString, Vec<u8>)]) -> Result<()> {
        labels.iter().try_for_each(|(name, value)| match Namespace::of(name)? {
            Namespace::Privileged => self.set_xattr(name, value, XattrMode::empty()),
            _ => Err(Errno::OPNOTSUPP.into()),
        })
    }

    /// Sets an xattr that is not an access control list.
    pub fn set_xattr(&mut self, name: &OsStr, value: &[u8], mode: XattrMode) -> Result<()> {
        let present = self.xattrs.get(name).map(Vec::len);
        match present {
            Some(_) if mode.contains(XattrMode::CREATE) => return Err(Errno::EXIST.into()),
            None if mode.contains(XattrMode::REPLACE) => return Err(Errno::NODATA.into()),
            _ => {}
        }
        let others: usize =
            self.xattrs.values().map(Vec::len).sum::<usize>() - present.unwrap_or_default();
        if others + value.len() > XATTR_BYTES_MAX {
            return Err(Errno::NOSPC.into());
        }
        self.xattrs.insert(name.to_owned(), value.to_vec());
        Ok(())
    }

    /// Updates the times after a change of contents.
    pub fn touch_contents(&mut self, now: Timestamp) {
        self.modified = now;
        self.changed = now;
    }

    /// Whether an access must update the access time.
    pub fn access_is_due(&self, choice: AccessTimes, now: Timestamp) -> bool {
        choice.is_due(self.kind, self.accessed, self.modified.max(self.changed), now)
    }

    /// Removes privileges after a change of contents: always the file capabilities, and with
    /// `kill_set_id` the set-id bits.
    pub fn drop_privileges(&mut self, request: &Request, kill_set_id: bool) {
        self.xattrs.remove(std::ffi::OsStr::new(rules::CAPABILITY));
        if kill_set_id {
            self.permissions = set_id::after_change(self.permissions, self.gid, request);
        }
    }
}
