//! POSIX access control lists as stored in the kernel's xattrs: their effect on mode bits and on
//! files created below a directory.
//!
//! The wire format is a 32-bit version (2), followed by eight bytes for each entry. An entry has a
//! tag, permissions (16 bits each) and an id (32 bits), all little-endian. Lists are stored in this
//! form and parsed into [`Acl`] only for use. This module does not check access.

use crate::error::Errno;
use crate::types::{FileKind, Permissions};

/// The xattr of a file's access ACL.
pub const ACCESS: &str = "system.posix_acl_access";
/// The xattr of the default ACL, which a directory passes to new files in it.
pub const DEFAULT: &str = "system.posix_acl_default";

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// The id of entries without a user or group.
const NO_ID: u32 = u32::MAX;

const USER_OBJECT: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJECT: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AclEntry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// A parsed list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

impl Acl {
    /// Parses the wire format and checks the list; `None` for a list without entries, which means
    /// that the file has no list.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for another version, `EINVAL` for malformed or invalid lists.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, Errno> {
        Self::decode(bytes)?.map(Self::checked).transpose()
    }

    /// Parses the wire format without checking the list; `None` for one without entries.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse), for malformed lists.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, Errno> {
        let (header, body) = bytes.split_at_checked(HEADER_BYTES).ok_or(Errno::INVAL)?;
        if header != VERSION.to_le_bytes() {
            return Err(Errno::OPNOTSUPP);
        }
        if body.len() % ENTRY_BYTES != 0 {
            return Err(Errno::INVAL);
        }
        let entries: Vec<AclEntry> =
            body.chunks_exact(ENTRY_BYTES).map(parse_entry).collect::<Result<_, _>>()?;
        Ok((!entries.is_empty()).then_some(Self { entries }))
    }

    /// Checks that the list is valid.
    ///
    /// # Errors
    /// `EINVAL` if it is not.
    pub fn checked(self) -> Result<Self, Errno> {
        let permissions_exist = self.entries.iter().all(|entry| entry.permissions <= 7);
        if permissions_exist && self.is_well_formed() { Ok(self) } else { Err(Errno::INVAL) }
    }

    /// Whether tags are in order, the three base entries occur once each, and a mask exists if
    /// there are named entries.
    fn is_well_formed(&self) -> bool {
        let tags: Vec<u16> = self.entries.iter().map(|entry| entry.tag).collect();
        let count = |tag| tags.iter().filter(|present| **present == tag).count();
        let base_once = [USER_OBJECT, GROUP_OBJECT, OTHER].iter().all(|tag| count(*tag) == 1);
        let needs_mask = count(USER) + count(GROUP) > 0;
        tags.is_sorted() && base_once && count(MASK) <= 1 && (!needs_mask || count(MASK) == 1)
    }

    /// Returns the list in the wire format.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            bytes.extend(entry.tag.to_le_bytes());
            bytes.extend(entry.permissions.to_le_bytes());
            bytes.extend(entry.id.to_le_bytes());
        }
        bytes
    }

    /// Whether the mode bits contain all information of the list.
    #[must_use]
    pub fn is_plain_mode(&self) -> bool {
        self.entries.len() == 3
    }

    /// Returns the nine mode bits for the list: the group bits show the mask if there is one.
    #[must_use]
    pub fn mode_bits(&self) -> u32 {
        let of = |tag| {
            let found = self.entries.iter().find(|entry| entry.tag == tag);
            found.map_or(0, |entry| u32::from(entry.permissions))
        };
        of(USER_OBJECT) << 6 | of(self.group_class()) << 3 | of(OTHER)
    }

    fn group_class(&self) -> u16 {
        if self.entries.iter().any(|entry| entry.tag == MASK) { MASK } else { GROUP_OBJECT }
    }

    /// Returns the list after a `chmod`.
    #[must_use]
    pub fn with_mode(mut self, permissions: Permissions) -> Self {
        self.update_classes(|_, class| class, permissions.bits());
        self
    }

    /// Returns the ACL of a new file in a directory with this default list. No class gets more
    /// rights than the creator requested. The [`mode_bits`](Self::mode_bits) of the ACL are those
    /// of the file.
    #[must_use]
    pub fn for_new_file(mut self, mode: u32) -> Self {
        self.update_classes(|present, class| present & class, mode);
        self
    }

    fn update_classes(&mut self, update: impl Fn(u16, u16) -> u16, mode: u32) {
        let group_class = self.group_class();
        for entry in &mut self.entries {
            let shift = match entry.tag {
                USER_OBJECT => 6,
                OTHER => 0,
                tag if tag == group_class => 3,
                _ => continue,
            };
            entry.permissions = update(entry.permissions, (mode >> shift & 7) as u16);
        }
    }
}

/// Computes the effect of setting a file's access ACL: the new permissions and the list to be
/// stored. A list equivalent to mode bits is stored as mode bits; an empty one is removed.
///
/// # Errors
/// As for [`Acl::parse`].
pub fn set_access(
    permissions: Permissions,
    value: &[u8],
) -> Result<(Permissions, Option<Vec<u8>>), Errno> {
    let access = if value.is_empty() { None } else { Acl::parse(value)? };
    let Some(access) = access else { return Ok((permissions, None)) };
    let bits = (permissions.bits() & !0o777) | access.mode_bits();
    let stored = (!access.is_plain_mode()).then(|| access.to_bytes());
    Ok((Permissions::new(bits), stored))
}

/// Returns the list to be stored when a default ACL is set. As in the kernel, the list is checked
/// only on directories.
///
/// # Errors
/// `EACCES` for any kind except a directory; otherwise as for [`Acl::parse`].
pub fn set_default(kind: FileKind, value: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    let decoded = if value.is_empty() { None } else { Acl::decode(value)? };
    match decoded {
        Some(_) if kind != FileKind::Directory => Err(Errno::ACCESS),
        Some(default) => Ok(Some(default.checked()?.to_bytes())),
        None => Ok(None),
    }
}

fn parse_entry(bytes: &[u8]) -> Result<AclEntry, Errno> {
    let &[tag_low, tag_high, low, high, a, b, c, d] = bytes else { return Err(Errno::INVAL) };
    let tag = u16::from_le_bytes([tag_low, tag_high]);
    let permissions = u16::from_le_bytes([low, high]);
    let id = match tag {
        USER | GROUP => u32::from_le_bytes([a, b, c, d]),
        USER_OBJECT | GROUP_OBJECT | MASK | OTHER => NO_ID,
        _ => return Err(Errno::INVAL),
    };
    let names_somebody = !matches!(tag, USER | GROUP) || id != NO_ID;
    if names_somebody { Ok(AclEntry { tag, permissions, id }) } else { Err(Errno::INVAL) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> Acl {
        let entries =
            entries.iter().map(|&(tag, permissions, id)| AclEntry { tag, permissions, id });
        Acl { entries: entries.collect() }
    }

    fn with_mask() -> Acl {
        list(&[(1, 7, NO_ID), (2, 6, 1000), (4, 5, NO_ID), (16, 7, NO_ID), (32, 4, NO_ID)])
    }

    #[test]
    fn bytes_round_trip() {
        let acl = with_mask();
        assert_eq!(Acl::parse(&acl.to_bytes()), Ok(Some(acl)));
    }

    #[test]
    fn mode_shows_mask_in_place_of_group() {
        assert_eq!(with_mask().mode_bits(), 0o774);
        assert_eq!(with_mask().with_mode(Permissions::new(0o640)).mode_bits(), 0o640);
        assert_eq!(with_mask().for_new_file(0o652).mode_bits(), 0o650);
    }

    #[test]
    fn malformed_lists_are_refused() {
        let no_mask = list(&[(1, 7, NO_ID), (2, 6, 1000), (4, 5, NO_ID), (32, 4, NO_ID)]);
        assert_eq!(Acl::parse(&no_mask.to_bytes()), Err(Errno::INVAL));
        assert_eq!(Acl::parse(&[3, 0, 0, 0]), Err(Errno::OPNOTSUPP));
        assert_eq!(Acl::parse(&[2, 0, 0, 0, 1]), Err(Errno::INVAL));
        assert_eq!(Acl::parse(&[2, 0]), Err(Errno::INVAL));
        assert_eq!(Acl::parse(&[2, 0, 0, 0]), Ok(None));
    }
}
