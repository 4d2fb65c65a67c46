//! The compact form of a residency.
//!
//! ext4 stores small xattrs in the inode, and others in a block of their own. With a full
//! residency, releasing a file of one block would free this block and need another one. So a file
//! whose bytes are all in archives gets a residency that has room in the inode. It records the
//! object and the object's location. The rest are facts about the object that never change. They
//! are in the catalogue, and in the object itself.

use zerocopy::{FromBytes, IntoBytes};

use super::bytes::{Corrupt, Cursor, put_packed};
use super::format::{
    COMPACT_BYTES_MAX, COMPACT_MAGIC, CompactRecord, FLAG_POISONED, VERSION, blocks_of,
};
use super::residency::{Location, Residency, Unreadable, Version, is_sealed, seal};
use crate::id::Id;
use crate::runs::Runs;

/// A residency as it is stored in an xattr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredResidency {
    /// The full form.
    Full(Box<Residency>),
    /// The compact form.
    Compact(CompactResidency),
}

/// The residency of a file as it is stored; `None` for a file that was never archived.
pub type ReadStored = Result<Option<StoredResidency>, Unreadable>;

impl StoredResidency {
    /// Decodes the value of the xattr.
    ///
    /// # Errors
    /// The reason why the value is invalid.
    pub fn decode(value: &[u8]) -> Result<Self, Corrupt> {
        if value.starts_with(&COMPACT_MAGIC) {
            return CompactResidency::decode(value).map(Self::Compact);
        }
        Residency::decode(value).map(|full| Self::Full(Box::new(full)))
    }

    /// Returns the shortest form of a residency.
    #[must_use]
    pub fn shortest(residency: &Residency) -> Self {
        let full = || Self::Full(Box::new(residency.clone()));
        CompactResidency::of(residency).map_or_else(full, Self::Compact)
    }

    /// Returns the object with the last archived version.
    #[must_use]
    pub fn object(&self) -> Id {
        match self {
            Self::Full(full) => full.version.object,
            Self::Compact(compact) => compact.object,
        }
    }

    /// Returns the location of the object.
    #[must_use]
    pub fn location(&self) -> Location {
        match self {
            Self::Full(full) => full.version.location,
            Self::Compact(compact) => compact.location,
        }
    }

    /// Returns whether the file was changed since it was archived.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        matches!(self, Self::Full(full) if full.changed)
    }

    /// Returns whether bytes of the file are only in archives.
    #[must_use]
    pub fn is_stub(&self) -> bool {
        match self {
            Self::Full(full) => !full.offline.is_empty(),
            Self::Compact(_) => true,
        }
    }
}

/// The compact form of the residency of a file that is unchanged since it was archived, and whose
/// bytes are all in archives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactResidency {
    /// Identifies the tier and the inode to which the residency was written.
    owner: [u8; 8],
    /// The last archived version.
    pub object: Id,
    /// The location of the object, which is the same in each archive.
    pub location: Location,
    /// The lower file contains poison; otherwise it is a hole.
    poisoned: bool,
    /// As in [`Residency`].
    touched_seconds: u32,
}

impl CompactResidency {
    /// Returns the compact form of a residency; `None` if the residency records more than the
    /// compact form can, or if the result would be too long.
    #[must_use]
    pub fn of(residency: &Residency) -> Option<Self> {
        let version = &residency.version;
        let is_stub = version.size > 0 && residency.offline == all_blocks(version.size);
        let compact = Self {
            owner: owner(residency.tier, residency.inode),
            object: version.object,
            location: version.location,
            poisoned: residency.poisoned,
            touched_seconds: residency.touched_seconds,
        };
        let is_plain = is_stub && !residency.changed && !residency.moving;
        (is_plain && compact.encode().len() <= COMPACT_BYTES_MAX).then_some(compact)
    }

    /// Returns the full form, with the facts about the object.
    #[must_use]
    pub fn expand(&self, (tier, inode): (Id, Id), file: Id, version: Version) -> Residency {
        Residency {
            tier,
            file,
            inode,
            changed: false,
            moving: false,
            poisoned: self.poisoned,
            touched_seconds: self.touched_seconds,
            offline: all_blocks(version.size),
            version,
        }
    }

    /// Returns a residency of no tier, for a copy of a stub whose object does not exist. The file
    /// has `size` bytes.
    #[must_use]
    pub fn without_object(&self, size: u64) -> Residency {
        let version = Version {
            object: self.object,
            location: self.location,
            size,
            sequence: 0,
            modified: fslab_vfs::Timestamp::default(),
            root: [0; 32],
            copies: Vec::new(),
        };
        let nobody = Id::default();
        // An empty file has a block here, so that its residency is not ignored.
        let offline = all_blocks(size.max(1));
        Residency { offline, ..self.expand((nobody, nobody), nobody, version) }
    }

    /// Returns whether a version is the recorded one, at the recorded location. A row of the
    /// catalogue that is older than this residency may have another location.
    #[must_use]
    pub fn is_at(&self, version: &Version) -> bool {
        (version.object, version.location) == (self.object, self.location)
    }

    /// Returns whether this residency was written by a tier to an inode.
    #[must_use]
    pub fn is_of(&self, tier: Id, inode: Id) -> bool {
        self.owner == owner(tier, inode)
    }

    /// Returns the value of the xattr.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let record = CompactRecord {
            magic: COMPACT_MAGIC,
            version: VERSION,
            flags: if self.poisoned { FLAG_POISONED } else { 0 },
            owner: self.owner,
            object: self.object.0,
            container: self.location.container.0,
            touched_seconds: self.touched_seconds.into(),
            crc: 0.into(),
        };
        let mut value = record.as_bytes().to_vec();
        put_packed(&mut value, self.location.offset);
        put_packed(&mut value, self.location.length);
        seal(&mut value, size_of::<CompactRecord>());
        value
    }

    /// Decodes the value of the xattr.
    ///
    /// # Errors
    /// The reason why the value is invalid.
    pub fn decode(value: &[u8]) -> Result<Self, Corrupt> {
        let (record, rest) = CompactRecord::read_from_prefix(value)
            .or(Err(Corrupt("the residency xattr is cut short")))?;
        let is_known = record.version == VERSION && record.flags & !FLAG_POISONED == 0;
        if record.magic != COMPACT_MAGIC || !is_known {
            return Err(Corrupt("the residency xattr has an unknown format"));
        }
        if !is_sealed(value, size_of::<CompactRecord>()) {
            return Err(Corrupt("the residency xattr is damaged"));
        }
        let mut rest = Cursor(rest);
        let (offset, length) = (rest.packed()?, rest.packed()?);
        rest.end()?;
        Ok(Self {
            owner: record.owner,
            object: Id(record.object),
            location: Location { container: Id(record.container), offset, length },
            poisoned: record.flags & FLAG_POISONED != 0,
            touched_seconds: record.touched_seconds.get(),
        })
    }
}

fn all_blocks(size: u64) -> Runs {
    Runs::of(0..blocks_of(size))
}

/// Returns a value that identifies a tier and an inode. Two values are equal by chance once in 2^64
/// pairs; the user's own stubs are the only other candidates.
fn owner(tier: Id, inode: Id) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&tier.0).update(&inode.0);
    let mut owner = [0; 8];
    hasher.finalize_xof().fill(&mut owner);
    owner
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::residency::tests::example;

    fn stub() -> Residency {
        let full = example();
        Residency { changed: false, offline: all_blocks(full.version.size), ..full }
    }

    #[test]
    fn compact_residency_expands_to_the_same_residency() {
        for poisoned in [false, true] {
            let full = Residency { poisoned, ..stub() };
            let compact = CompactResidency::of(&full).unwrap();
            let value = compact.encode();
            assert_eq!(StoredResidency::decode(&value), Ok(StoredResidency::Compact(compact)));
            let compact = CompactResidency::decode(&value).unwrap();
            assert!(compact.is_of(full.tier, full.inode));
            assert!(compact.is_at(&full.version));
            let elsewhere = Location { length: 0, ..full.version.location };
            assert!(!compact.is_at(&Version { location: elsewhere, ..full.version.clone() }));
            let version = full.version.clone();
            assert_eq!(compact.expand((full.tier, full.inode), full.file, version), full);
        }
    }

    #[test]
    fn damaged_compact_residencies_are_refused() {
        let value = CompactResidency::of(&stub()).unwrap().encode();
        for bit in 0..value.len() * 8 {
            let mut damaged = value.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(StoredResidency::decode(&damaged).is_err(), "bit {bit}");
        }
        for length in 0..value.len() {
            assert!(StoredResidency::decode(&value[..length]).is_err(), "{length} bytes");
        }
    }

    /// The longest form has a container of nearly 256 MiB.
    #[test]
    fn compact_residency_has_at_most_60_bytes() {
        let at = |offset, length| {
            let mut residency = stub();
            residency.version.location = Location { offset, length, ..residency.version.location };
            CompactResidency::of(&residency).map(|compact| compact.encode().len())
        };
        assert_eq!(at((1 << 28) - 1, (1 << 28) - 1), Some(COMPACT_BYTES_MAX));
        assert_eq!(at(1 << 28, (1 << 28) - 1), None);
        assert_eq!(at((1 << 28) - 1, 1 << 28), None);
        assert_eq!(at(0, (1 << 49) - 1), Some(COMPACT_BYTES_MAX));
        assert_eq!(at(0, 1 << 49), None);
    }

    #[test]
    fn other_states_have_no_compact_form() {
        let partly = Residency { offline: Runs::of(0..1), ..stub() };
        let resident = Residency { offline: Runs::new(), ..stub() };
        let mut empty = resident.clone();
        empty.version.size = 0;
        let (changed, moving) = (stub(), stub());
        let changed = Residency { changed: true, ..changed };
        let moving = Residency { moving: true, ..moving };
        for residency in [partly, resident, empty, changed, moving] {
            assert_eq!(CompactResidency::of(&residency), None, "{residency:?}");
        }
    }

    #[test]
    fn compact_residency_belongs_to_one_tier_and_one_inode() {
        let full = stub();
        let compact = CompactResidency::of(&full).unwrap();
        assert!(!compact.is_of(full.tier, Id([9; 16])));
        assert!(!compact.is_of(Id([9; 16]), full.inode));
    }
}
