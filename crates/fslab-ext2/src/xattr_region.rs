//! A region of extended attributes, with entries from its start and values from its end.
//!
//! ```text
//! inode   magic u32 | entry ... entry | 0 u32 |  ... value value   offsets from the first entry
//! block   header 32 bytes | entry ... | 0 u32 |  ... value value   offsets from the block's start
//! ```

use zerocopy::{FromBytes, IntoBytes};

use crate::flaw::{Checked, Flaw};
use crate::format::{
    RawXattrEntry, RawXattrHeader, XATTR_ENTRY_BYTES, XATTR_HEADER_BYTES, XATTR_MAGIC,
};

/// Length of the four zero bytes that end the entries.
const END_BYTES: usize = 4;
const MAGIC_BYTES: usize = 4;
/// Offset of the field `e_value_offs` within an entry.
const VALUE_OFFSET: usize = std::mem::offset_of!(RawXattrEntry, e_value_offs);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Attribute {
    /// The code for the name's prefix.
    pub index: u8,
    /// The name without its prefix.
    pub name: Vec<u8>,
    pub value: Vec<u8>,
}

impl Attribute {
    fn entry_bytes(&self) -> usize {
        (XATTR_ENTRY_BYTES + self.name.len()).next_multiple_of(4)
    }

    fn bytes(&self) -> usize {
        self.entry_bytes() + self.value.len().next_multiple_of(4)
    }

    /// Returns the key by which the kernel sorts and searches the entries of a block.
    fn key(&self) -> (u8, usize, &[u8]) {
        (self.index, self.name.len(), &self.name)
    }

    /// Returns the hash of the entry, which the kernel uses to find equal blocks. Characters are
    /// treated as signed.
    fn hash(&self) -> u32 {
        self.hash_with(|byte| i32::from(byte.cast_signed()).cast_unsigned())
    }

    /// Whether a hash is valid for this entry. Some kernels treated characters as unsigned, so both
    /// variants are accepted.
    fn has_hash(&self, hash: u32) -> bool {
        hash == self.hash() || hash == self.hash_with(u32::from)
    }

    fn hash_with(&self, character: fn(u8) -> u32) -> u32 {
        let name =
            self.name.iter().fold(0_u32, |hash, byte| hash.rotate_left(5) ^ character(*byte));
        self.value.chunks(4).fold(name, |hash, piece| {
            let word = piece.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
            hash.rotate_left(16) ^ word
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Region {
    /// In an inode, after its fields.
    Inode,
    /// In a separate block.
    Block,
}

impl Region {
    fn entries_start(self) -> usize {
        if self == Self::Inode { MAGIC_BYTES } else { XATTR_HEADER_BYTES }
    }

    fn values_base(self) -> usize {
        if self == Self::Inode { MAGIC_BYTES } else { 0 }
    }

    /// Whether a region of `length` bytes has room for the attributes.
    pub fn fits(self, length: usize, attributes: &[Attribute]) -> bool {
        let bytes: usize = attributes.iter().map(Attribute::bytes).sum();
        self.entries_start() + bytes + END_BYTES <= length
    }

    /// Parses a region.
    ///
    /// # Errors
    /// Returns the flaw if the region is damaged.
    pub fn parse(self, region: &[u8]) -> Checked<Vec<Attribute>> {
        let entries = self.entries(region)?;
        Ok(entries.into_iter().map(|(_hash, attribute)| attribute).collect())
    }

    /// Checks a region in the same way as e2fsck. Hashes must also be correct, but inodes may omit
    /// them. No byte may belong to two values, or to a value and an entry.
    ///
    /// # Errors
    /// Returns the flaw if the region is damaged.
    pub fn verify(self, region: &[u8]) -> Checked<()> {
        let entries = self.entries(region)?;
        if !self.is_disjoint(region, &entries) {
            return Err(Flaw::XattrOverlap);
        }
        let is_right = |(hash, attribute): &(u32, Attribute)| {
            attribute.has_hash(*hash) || (self == Self::Inode && *hash == 0)
        };
        if entries.iter().all(is_right) { Ok(()) } else { Err(Flaw::XattrHash) }
    }

    fn is_disjoint(self, region: &[u8], entries: &[(u32, Attribute)]) -> bool {
        let mut at = self.entries_start();
        let mut values = Vec::new();
        for (_hash, attribute) in entries {
            let offset = &region[at + VALUE_OFFSET..][..2];
            let start =
                self.values_base() + usize::from(u16::from_le_bytes([offset[0], offset[1]]));
            at += attribute.entry_bytes();
            if !attribute.value.is_empty() {
                values.push((start, start + attribute.value.len().next_multiple_of(4)));
            }
        }
        values.sort_unstable();
        let is_behind_entries = values.first().is_none_or(|(start, _)| at <= *start);
        is_behind_entries && values.windows(2).all(|pair| pair[0].1 <= pair[1].0)
    }

    /// Returns all entries with their stored hashes.
    fn entries(self, region: &[u8]) -> Checked<Vec<(u32, Attribute)>> {
        let magic = region.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        match self {
            Self::Inode if magic != XATTR_MAGIC => return Ok(Vec::new()),
            Self::Inode => {}
            Self::Block => check_block(region)?,
        }
        let mut attributes = Vec::new();
        let mut at = self.entries_start();
        loop {
            let rest = region.get(at..).filter(|rest| rest.len() >= END_BYTES);
            let rest = rest.ok_or(Flaw::XattrEnd)?;
            if rest[..END_BYTES] == [0; END_BYTES] {
                return Ok(attributes);
            }
            let (hash, attribute) = self.parse_entry(region, rest)?;
            at += attribute.entry_bytes();
            attributes.push((hash, attribute));
        }
    }

    fn parse_entry(self, region: &[u8], bytes: &[u8]) -> Checked<(u32, Attribute)> {
        let (raw, rest) = RawXattrEntry::ref_from_prefix(bytes)
            .map_err(|_short: zerocopy::CastError<_, _>| Flaw::XattrBeyondRegion)?;
        let name = rest.get(..raw.e_name_len.into()).ok_or(Flaw::XattrName)?;
        if raw.e_value_inum.get() != 0 {
            return Err(Flaw::XattrValueInInode);
        }
        let start = self.values_base() + usize::from(raw.e_value_offs.get());
        let length = raw.e_value_size.get() as usize;
        let value = match length {
            0 => &[],
            _ => region
                .get(start..)
                .and_then(|rest| rest.get(..length))
                .ok_or(Flaw::XattrValueBeyondRegion)?,
        };
        let (name, value) = (name.to_vec(), value.to_vec());
        Ok((raw.e_hash.get(), Attribute { index: raw.e_name_index, name, value }))
    }

    /// Writes attributes into a region, in which they must [`fit`](Self::fits). For a block, sets
    /// the reference count to 1.
    pub fn write(self, region: &mut [u8], attributes: &mut [Attribute]) {
        region.fill(0);
        if attributes.is_empty() {
            return;
        }
        attributes.sort_by(|one, other| one.key().cmp(&other.key()));
        let mut at = self.entries_start();
        let mut values = region.len();
        for attribute in attributes.iter() {
            values -= attribute.value.len().next_multiple_of(4);
            region[values..values + attribute.value.len()].copy_from_slice(&attribute.value);
            let raw = self.raw_entry(attribute, values);
            region[at..at + XATTR_ENTRY_BYTES].copy_from_slice(raw.as_bytes());
            let name = at + XATTR_ENTRY_BYTES;
            region[name..name + attribute.name.len()].copy_from_slice(&attribute.name);
            at += attribute.entry_bytes();
        }
        if self == Self::Inode {
            region[..MAGIC_BYTES].copy_from_slice(&XATTR_MAGIC.to_le_bytes());
            return;
        }
        let hash = attributes.iter().fold(0_u32, |hash, one| hash.rotate_left(16) ^ one.hash());
        let header = RawXattrHeader {
            h_magic: XATTR_MAGIC.into(),
            h_refcount: 1.into(),
            h_blocks: 1.into(),
            h_hash: hash.into(),
            h_checksum: 0.into(),
            h_reserved: [0.into(); 3],
        };
        region[..XATTR_HEADER_BYTES].copy_from_slice(header.as_bytes());
    }

    fn raw_entry(self, attribute: &Attribute, value_start: usize) -> RawXattrEntry {
        let is_empty = attribute.value.is_empty();
        let offset = if is_empty { 0 } else { value_start - self.values_base() };
        RawXattrEntry {
            e_name_len: attribute.name.len() as u8,
            e_name_index: attribute.index,
            e_value_offs: (offset as u16).into(),
            e_value_inum: 0.into(),
            e_value_size: (attribute.value.len() as u32).into(),
            e_hash: if self == Self::Inode { 0 } else { attribute.hash() }.into(),
        }
    }
}

/// Checks the header of an attribute block.
///
/// # Errors
/// Returns the flaw if the header is damaged.
pub(crate) fn check_block(block: &[u8]) -> Checked<()> {
    match RawXattrHeader::ref_from_prefix(block) {
        Ok((header, _)) if header.h_magic.get() == XATTR_MAGIC => match header.h_blocks.get() {
            1 => Ok(()),
            _ => Err(Flaw::XattrBlocks),
        },
        _ => Err(Flaw::XattrMagic),
    }
}

/// Returns the number of inodes that share an attribute block.
pub(crate) fn reference_count(block: &[u8]) -> u32 {
    RawXattrHeader::ref_from_prefix(block).map_or(0, |(header, _)| header.h_refcount.get())
}

/// Sets the number of inodes that share an attribute block.
pub(crate) fn set_reference_count(block: &mut [u8], count: u32) {
    if let Ok((header, _)) = RawXattrHeader::mut_from_prefix(block) {
        header.h_refcount = count.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(name: &str, length: usize) -> Attribute {
        Attribute { index: 1, name: name.into(), value: vec![7; length] }
    }

    #[test]
    fn xattr_regions_round_trip_up_to_the_last_byte() {
        for region in [Region::Inode, Region::Block] {
            let mut bytes = [0xee; 200];
            let mut attributes = vec![attribute("bb", 5), attribute("a", 0), attribute("ccc", 9)];
            region.write(&mut bytes, &mut attributes);
            assert_eq!(region.parse(&bytes), Ok(attributes.clone()));
            let used: usize = attributes.iter().map(Attribute::bytes).sum();
            let exact = region.entries_start() + used + END_BYTES;
            assert!(region.fits(exact, &attributes) && !region.fits(exact - 1, &attributes));
            region.write(&mut bytes[..exact], &mut attributes);
            assert_eq!(region.parse(&bytes[..exact]), Ok(attributes));
        }
    }

    #[test]
    fn parser_never_panics_on_damaged_bytes() {
        let mut bytes = [0; 96];
        Region::Block.write(&mut bytes, &mut [attribute("name", 20)]);
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = bytes;
                damaged[at] = value;
                for region in [Region::Inode, Region::Block] {
                    for length in 0..damaged.len() {
                        drop(region.parse(&damaged[..length]));
                    }
                }
            }
        }
    }
}
