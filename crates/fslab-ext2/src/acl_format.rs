//! Converts ACLs between the xattr format of Linux and the on-disk format of ext2.
//!
//! ```text
//! xattr   version 2 u32, then tag u16 | permissions u16 | id u32 for every entry
//! ext2    version 1 u32, then tag u16 | permissions u16 [| id u32 for a named user or group]
//! ```

const XATTR_VERSION: u32 = 2;
const DISK_VERSION: u32 = 1;
const USER: u16 = 0x02;
const GROUP: u16 = 0x08;
const NO_ID: [u8; 4] = [0xff; 4];

fn names_somebody(tag: [u8; 2]) -> bool {
    matches!(u16::from_le_bytes(tag), USER | GROUP)
}

/// Converts an ACL from the xattr format to the on-disk format; `None` if it is invalid.
pub(crate) fn to_disk(value: &[u8]) -> Option<Vec<u8>> {
    let (version, entries) = value.split_first_chunk::<4>()?;
    if *version != XATTR_VERSION.to_le_bytes() || !entries.len().is_multiple_of(8) {
        return None;
    }
    let mut disk = DISK_VERSION.to_le_bytes().to_vec();
    for entry in entries.chunks_exact(8) {
        let length = if names_somebody([entry[0], entry[1]]) { 8 } else { 4 };
        disk.extend_from_slice(&entry[..length]);
    }
    Some(disk)
}

/// Converts an ACL from the on-disk format to the xattr format; `None` if it is invalid.
pub(crate) fn from_disk(disk: &[u8]) -> Option<Vec<u8>> {
    let (version, mut rest) = disk.split_first_chunk::<4>()?;
    if *version != DISK_VERSION.to_le_bytes() {
        return None;
    }
    let mut value = XATTR_VERSION.to_le_bytes().to_vec();
    while !rest.is_empty() {
        let (entry, behind) = rest.split_first_chunk::<4>()?;
        value.extend_from_slice(entry);
        rest = behind;
        if names_somebody([entry[0], entry[1]]) {
            let (id, behind) = rest.split_first_chunk::<4>()?;
            value.extend_from_slice(id);
            rest = behind;
        } else {
            value.extend_from_slice(&NO_ID);
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acls_round_trip_and_are_shorter_on_disk() {
        let mut value = XATTR_VERSION.to_le_bytes().to_vec();
        for (tag, id) in [(1_u16, None), (2, Some(1000_u32)), (4, None), (16, None), (32, None)] {
            value.extend(tag.to_le_bytes());
            value.extend(6_u16.to_le_bytes());
            value.extend(id.map_or(NO_ID, u32::to_le_bytes));
        }
        let disk = to_disk(&value).unwrap_or_default();
        assert_eq!(disk.len(), 4 + 4 * 4 + 8);
        assert_eq!(from_disk(&disk), Some(value));
        for length in 0..disk.len() {
            drop(from_disk(&disk[..length]));
        }
        assert_eq!(from_disk(&disk[..9]), None);
    }
}
