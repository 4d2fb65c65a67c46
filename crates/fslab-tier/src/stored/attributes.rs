//! The archived metadata of a file, and the entries of an archived tree.

use fslab_vfs::{Attr, FileKind, Timestamp};

use super::bytes::{Corrupt, Cursor, Result, put_string, put_time};
use super::format::{ATTRIBUTES_BYTES_MAX, SIZE_MAX, TREE_ENTRY_BYTES_MAX};
use super::residency::{Location, Version};

/// The archived metadata of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The path from the root of the tree, without a leading slash; empty for the root directory
    /// itself.
    pub path: Vec<u8>,
    /// Kind and permissions, as in `st_mode`.
    pub mode: u32,
    /// User ID of the owner.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    /// The number of a device node.
    pub device: u32,
    /// Number of hard links.
    pub links: u32,
    /// The inode number in the lower file system. Entries of an archived tree with the same inode
    /// number are names of one file.
    pub ino: u64,
    /// Time of the last access.
    pub accessed: Timestamp,
    /// Time of the last modification of the contents.
    pub modified: Timestamp,
    /// Time of the last change of the inode.
    pub changed: Timestamp,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// Extended attributes, by name.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// An entry of an archived tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// Name, owner and other metadata of the entry.
    pub attributes: Attributes,
    /// Size of a regular file in bytes.
    pub size: u64,
    /// The file's identity and its last archived version. The file may have been changed since that
    /// version.
    pub archived: Option<(crate::Id, Version)>,
}

impl Attributes {
    /// Returns the attributes of an inode, without path, target and xattrs.
    #[must_use]
    pub fn of(attr: &Attr) -> Self {
        Self {
            mode: attr.kind.mode_bits() | attr.permissions.bits(),
            uid: attr.uid,
            gid: attr.gid,
            device: attr.device,
            links: attr.links,
            ino: attr.ino.0,
            accessed: attr.accessed,
            modified: attr.modified,
            changed: attr.changed,
            ..Self::default()
        }
    }

    /// Returns the kind of file; `None` for an invalid mode.
    #[must_use]
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.mode)
    }

    /// Returns the total length of path, target and xattrs in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let xattrs = self.xattrs.iter().map(|(name, value)| name.len() + value.len());
        self.path.len() + self.target.len() + xattrs.sum::<usize>()
    }

    /// Appends the attributes to a record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_string(out, &self.path);
        for number in [self.mode, self.uid, self.gid, self.device, self.links] {
            out.extend(number.to_le_bytes());
        }
        out.extend(self.ino.to_le_bytes());
        for time in [self.accessed, self.modified, self.changed] {
            put_time(out, time);
        }
        put_string(out, &self.target);
        out.extend((self.xattrs.len() as u32).to_le_bytes());
        for (name, value) in &self.xattrs {
            put_string(out, name);
            put_string(out, value);
        }
    }

    /// Reads the attributes from a record.
    ///
    /// # Errors
    /// The reason why the record is invalid.
    pub fn decode(from: &mut Cursor<'_>) -> Result<Self> {
        if from.0.len() > TREE_ENTRY_BYTES_MAX {
            return Err(Corrupt("the description of a file is too long"));
        }
        let path = from.string()?;
        let [mode, uid, gid, device, links] = [(); 5].map(|()| from.u32());
        let ino = from.u64()?;
        let [accessed, modified, changed] = [(); 3].map(|()| from.time());
        let target = from.string()?;
        let count = from.u32()?;
        let mut xattrs = Vec::new();
        for _ in 0..count {
            xattrs.push((from.string()?, from.string()?));
        }
        let attributes = Self {
            path,
            mode: mode?,
            uid: uid?,
            gid: gid?,
            device: device?,
            links: links?,
            ino,
            accessed: accessed?,
            modified: modified?,
            changed: changed?,
            target,
            xattrs,
        };
        attributes.check()
    }

    /// Rejects unknown types of files and invalid paths. Archives are not trusted, and a path must
    /// not lead out of a tree.
    fn check(self) -> Result<Self> {
        if self.kind().is_none() {
            return Err(Corrupt("a file has an unknown type"));
        }
        let is_name = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && part.len() <= 255;
        let parts: Vec<_> = self.path.split(|byte| *byte == b'/').collect();
        let is_path = self.path.is_empty() || parts.iter().all(|part| is_name(part));
        if !is_path || self.path.contains(&0) || self.path.len() > ATTRIBUTES_BYTES_MAX / 2 {
            return Err(Corrupt("a path is invalid"));
        }
        Ok(self)
    }
}

impl TreeEntry {
    /// Encodes the entry for an archived tree, preceded by its length.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.attributes.encode(&mut out);
        out.extend(self.size.to_le_bytes());
        match &self.archived {
            None => out.push(0),
            Some((file, version)) => {
                out.push(1);
                out.extend(file.0);
                encode_version(&mut out, version);
            }
        }
        let mut framed = Vec::with_capacity(out.len() + 4);
        put_string(&mut framed, &out);
        framed
    }

    /// Decodes an entry from the bytes that follow its length.
    ///
    /// # Errors
    /// The reason why the entry is invalid.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = Cursor(bytes);
        let attributes = Attributes::decode(&mut from)?;
        let size = from.u64()?;
        let archived = match from.byte()? {
            0 => None,
            1 => Some((from.id()?, decode_version(&mut from)?)),
            _ => return Err(Corrupt("an entry of an archived tree has an unknown format")),
        };
        from.end()?;
        Ok(Self { attributes, size, archived })
    }
}

fn encode_version(out: &mut Vec<u8>, version: &Version) {
    out.extend(version.object.0);
    out.extend(version.location.container.0);
    for number in [version.location.offset, version.location.length, version.size, version.sequence]
    {
        out.extend(number.to_le_bytes());
    }
    put_time(out, version.modified);
    out.extend(version.root);
}

/// Decodes a version. An archived tree does not record which archives have copies; its reader finds
/// them.
fn decode_version(from: &mut Cursor<'_>) -> Result<Version> {
    let (object, container) = (from.id()?, from.id()?);
    let [offset, length, size, sequence] = [(); 4].map(|()| from.u64());
    let version = Version {
        object,
        location: Location { container, offset: offset?, length: length? },
        size: size?,
        sequence: sequence?,
        modified: from.time()?,
        root: from.hash()?,
        copies: Vec::new(),
    };
    if version.size > SIZE_MAX {
        return Err(Corrupt("a file is too large"));
    }
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> TreeEntry {
        let version =
            Version { copies: Vec::new(), ..crate::stored::residency::tests::example().version };
        TreeEntry {
            attributes: Attributes {
                path: b"a/b".to_vec(),
                mode: 0o100_644,
                uid: 1,
                gid: 2,
                device: 0,
                links: 2,
                ino: 77,
                accessed: Timestamp { seconds: 1, nanoseconds: 2 },
                modified: Timestamp { seconds: -3, nanoseconds: 4 },
                changed: Timestamp { seconds: 5, nanoseconds: 6 },
                target: Vec::new(),
                xattrs: vec![(b"user.x".to_vec(), b"y".to_vec())],
            },
            size: 10,
            archived: Some((crate::Id([9; 16]), version)),
        }
    }

    #[test]
    fn tree_entry_round_trips_and_truncated_ones_are_refused() {
        let whole = entry();
        let framed = whole.encode();
        let bytes = &framed[4..];
        assert_eq!(TreeEntry::decode(bytes), Ok(whole));
        for length in 0..bytes.len() {
            assert!(TreeEntry::decode(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn unsafe_entry_paths_are_refused() {
        for path in ["..", "a/../b", "/etc/passwd", "a//b", "a/", ".", "a\0b"] {
            let mut wrong = entry();
            wrong.attributes.path = path.as_bytes().to_vec();
            assert!(TreeEntry::decode(&wrong.encode()[4..]).is_err(), "{path:?}");
        }
    }
}
