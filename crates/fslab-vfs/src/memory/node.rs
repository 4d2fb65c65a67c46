//! An inode: its attributes, what it holds, and who still needs it.

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
/// All values of an inode's xattrs together.
const XATTR_BYTES_MAX: usize = 1 << 20;

/// An inode.
#[derive(Debug)]
pub(super) struct Node {
    pub kind: FileKind,
    pub permissions: Permissions,
    pub uid: u32,
    pub gid: u32,
    pub device: u32,
    /// Names; for a directory also its `.` and the `..` of its subdirectories. 0 once removed.
    pub links: u32,
    pub accessed: Timestamp,
    pub modified: Timestamp,
    pub changed: Timestamp,
    pub created: Timestamp,
    /// Tells it from who had its number before.
    pub generation: u64,
    /// Lookups that were answered and not yet given back.
    pub lookups: u64,
    /// Handles that are open.
    pub opens: u64,
    /// Created without a name and not yet linked, and allowed to be.
    pub linkable: bool,
    pub xattrs: BTreeMap<OsString, Vec<u8>>,
    pub content: Content,
}

/// What an inode holds.
#[derive(Debug)]
pub(super) enum Content {
    File(Data),
    Directory(Directory),
    Symlink(OsString),
    /// A pipe, socket or device: its meaning is elsewhere.
    Special,
}

impl Content {
    /// The empty content of a kind that has one.
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

    /// Pages of file contents.
    pub fn pages(&self) -> u64 {
        if let Content::File(data) = &self.content { data.pages() } else { 0 }
    }

    /// Whether nobody can reach the inode any more.
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

    /// The bytes of a regular file; the errno is that of reading or writing anything else.
    pub fn data(&self) -> Result<&Data> {
        match &self.content {
            Content::File(data) => Ok(data),
            Content::Directory(_) => Err(Errno::ISDIR.into()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    /// As [`data`](Self::data), to be changed.
    pub fn data_mut(&mut self) -> Result<&mut Data> {
        match &mut self.content {
            Content::File(data) => Ok(data),
            Content::Directory(_) => Err(Errno::ISDIR.into()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    /// Gives a new inode the attributes that security modules want on it.
    pub fn label(&mut self, labels: &[(OsString, Vec<u8>)]) -> Result<()> {
        labels.iter().try_for_each(|(name, value)| match Namespace::of(name)? {
            Namespace::Privileged => self.set_xattr(name, value, XattrMode::empty()),
            _ => Err(Errno::OPNOTSUPP.into()),
        })
    }

    /// Sets an xattr that is no list of access rights.
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

    /// Records a change of the contents.
    pub fn touch_contents(&mut self, now: Timestamp) {
        self.modified = now;
        self.changed = now;
    }

    /// Whether a use must be recorded.
    pub fn access_is_due(&self, choice: AccessTimes, now: Timestamp) -> bool {
        choice.is_due(self.kind, self.accessed, self.modified.max(self.changed), now)
    }

    /// Takes away what a change of contents voids: file capabilities always, the set-id bits for
    /// callers who lack the right to keep them.
    pub fn drop_privileges(&mut self, request: &Request, kill_set_id: bool) {
        self.xattrs.remove(std::ffi::OsStr::new(rules::CAPABILITY));
        if kill_set_id {
            self.permissions = set_id::after_change(self.permissions, self.gid, request);
        }
    }
}
