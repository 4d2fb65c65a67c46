//! The residency of a file: an xattr that is authoritative for the location of the file's bytes.

use std::ops::Range;

use fslab_vfs::Timestamp;
use zerocopy::{FromBytes, IntoBytes};

use super::bytes::{Corrupt, Cursor, put_packed};
use super::format::{
    COPIES_MAX, FLAG_CHANGED, FLAG_MOVING, RESIDENCY_BYTES_MAX, RESIDENCY_MAGIC, ResidencyRecord,
    SIZE_MAX, SourceRecord, TREE_MAGIC, TreeRecord, VERSION, VERSION_POISONED, blocks_of,
};
use crate::id::Id;
use crate::runs::Runs;

/// The location of an object in an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// The container of the object, which may contain other objects.
    pub container: Id,
    /// The offset of the object in the container, in bytes.
    pub offset: u64,
    /// Length of the whole object, in bytes.
    pub length: u64,
}

impl Location {
    /// Returns the location of a source, which is alone in its container.
    pub(crate) fn of_source(source: &SourceRecord) -> Self {
        Self { container: Id(source.container), offset: 0, length: source.length.get() }
    }

    /// Returns the range of the object in its container; `None` if the location is invalid.
    pub(crate) fn range(&self) -> Option<Range<u64>> {
        Some(self.offset..self.offset.checked_add(self.length)?)
    }
}

/// An archived version of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The object that contains the version.
    pub object: Id,
    /// The location of the object, which is the same in each archive.
    pub location: Location,
    /// Size of the file in bytes.
    pub size: u64,
    /// A number that increases with each version.
    pub sequence: u64,
    /// Time of the last modification.
    pub modified: Timestamp,
    /// The hash that the object must have.
    pub root: [u8; 32],
    /// Identities of the archives with a copy.
    pub copies: Vec<Id>,
}

impl Version {
    /// Adds archives with copies, up to the number that can be recorded.
    #[must_use]
    pub fn with_copies(mut self, archives: &[Id]) -> Self {
        for archive in archives {
            if !self.copies.contains(archive) && self.copies.len() < COPIES_MAX {
                self.copies.push(*archive);
            }
        }
        self
    }
}

/// The residency of a file: the location of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Residency {
    /// The tier that the file belongs to.
    pub tier: Id,
    /// The identity of the file.
    pub file: Id,
    /// The inode to which this residency was written.
    pub inode: Id,
    /// The file was changed since `version`. Its resident blocks are authoritative.
    pub changed: bool,
    /// A recall or a release was in progress when the xattr was written. So the modification time
    /// of the lower file may differ from the one that programs see.
    pub moving: bool,
    /// Offline blocks contain poison in the lower file; otherwise they are holes.
    pub poisoned: bool,
    /// The time when bytes were last recalled, or when a program last began to change the file, in
    /// seconds since 1970. It is 0 if unknown.
    pub touched_seconds: u32,
    /// The last archived version.
    pub version: Version,
    /// Blocks that are only in archives.
    pub offline: Runs,
}

impl Residency {
    /// Returns the value of the xattr; `None` if there are too many runs.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let Version { object, location, size, sequence, modified, root, copies } = &self.version;
        let changed = if self.changed { FLAG_CHANGED } else { 0 };
        let moving = if self.moving { FLAG_MOVING } else { 0 };
        let record = ResidencyRecord {
            magic: RESIDENCY_MAGIC,
            version: if self.is_poisoned() { VERSION_POISONED } else { VERSION },
            flags: changed | moving,
            copies: copies.len().min(COPIES_MAX) as u8,
            zero: 0,
            tier: self.tier.0,
            file: self.file.0,
            inode: self.inode.0,
            object: object.0,
            container: location.container.0,
            offset: location.offset.into(),
            length: location.length.into(),
            size: (*size).into(),
            sequence: (*sequence).into(),
            modified_seconds: modified.seconds.into(),
            modified_nanoseconds: modified.nanoseconds.into(),
            runs: u32::try_from(self.offline.pieces()).ok()?.into(),
            root: *root,
            touched_seconds: self.touched_seconds.into(),
            crc: 0.into(),
        };
        let mut value = record.as_bytes().to_vec();
        copies.iter().take(COPIES_MAX).for_each(|archive| value.extend(archive.0));
        let mut behind = 0;
        for run in self.offline.iter() {
            put_packed(&mut value, run.start - behind);
            put_packed(&mut value, run.end - run.start);
            behind = run.end;
        }
        seal(&mut value, size_of::<ResidencyRecord>());
        (value.len() <= RESIDENCY_BYTES_MAX).then_some(value)
    }

    /// Returns whether the lower file contains poison, which requires an offline block.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned && !self.offline.is_empty()
    }

    /// Decodes the value of the xattr.
    ///
    /// # Errors
    /// The reason why the value is invalid.
    pub fn decode(value: &[u8]) -> Result<Self, Corrupt> {
        let (record, rest) = ResidencyRecord::read_from_prefix(value)
            .or(Err(Corrupt("the residency xattr is cut short")))?;
        let is_known = matches!(record.version, VERSION | VERSION_POISONED);
        if record.magic != RESIDENCY_MAGIC || !is_known {
            return Err(Corrupt("the residency xattr has an unknown format"));
        }
        if !is_sealed(value, size_of::<ResidencyRecord>()) {
            return Err(Corrupt("the residency xattr is damaged"));
        }
        let mut rest = Cursor(rest);
        let size = record.size.get();
        if size > SIZE_MAX || usize::from(record.copies) > COPIES_MAX {
            return Err(Corrupt("the residency xattr contains numbers that are too large"));
        }
        let copies = (0..record.copies).map(|_| rest.id()).collect::<Result<_, _>>()?;
        let offline = runs(&mut rest, record.runs.get(), blocks_of(size))?;
        rest.end()?;
        let version = Version {
            object: Id(record.object),
            location: Location {
                container: Id(record.container),
                offset: record.offset.get(),
                length: record.length.get(),
            },
            size,
            sequence: record.sequence.get(),
            modified: Timestamp {
                seconds: record.modified_seconds.get(),
                nanoseconds: record.modified_nanoseconds.get().min(999_999_999),
            },
            root: record.root,
            copies,
        };
        Ok(Self {
            tier: Id(record.tier),
            file: Id(record.file),
            inode: Id(record.inode),
            changed: record.flags & FLAG_CHANGED != 0,
            moving: record.flags & FLAG_MOVING != 0,
            poisoned: record.version == VERSION_POISONED && !offline.is_empty(),
            touched_seconds: record.touched_seconds.get(),
            version,
            offline,
        })
    }
}

fn runs(rest: &mut Cursor<'_>, count: u32, blocks: u64) -> Result<Runs, Corrupt> {
    let too_large = Corrupt("an offline range is past the end of the file");
    let (mut runs, mut behind) = (Runs::new(), 0_u64);
    for _ in 0..count {
        let start = behind.checked_add(rest.packed()?).ok_or(too_large)?;
        behind = start.checked_add(rest.packed()?).ok_or(too_large)?;
        if behind > blocks {
            return Err(too_large);
        }
        runs.insert(start..behind);
    }
    Ok(runs)
}

/// Returns the value with a recomputed checksum.
#[cfg(any(test, feature = "testing"))]
pub(super) fn resealed(value: &[u8]) -> Vec<u8> {
    let mut value = value.to_vec();
    let is_compact = value.starts_with(&super::format::COMPACT_MAGIC);
    let record_bytes = if is_compact {
        size_of::<super::format::CompactRecord>()
    } else {
        size_of::<ResidencyRecord>()
    };
    if value.len() >= record_bytes {
        seal(&mut value, record_bytes);
    }
    value
}

/// Writes a CRC of the whole value to the last four bytes of its record. These four bytes are
/// treated as zero in the CRC.
pub(super) fn seal(value: &mut [u8], record_bytes: usize) {
    value[record_bytes - 4..record_bytes].fill(0);
    let crc = crc32c::crc32c(value);
    value[record_bytes - 4..record_bytes].copy_from_slice(&crc.to_le_bytes());
}

pub(super) fn is_sealed(value: &[u8], record_bytes: usize) -> bool {
    let mut copy = value.to_vec();
    copy[record_bytes - 4..record_bytes].fill(0);
    crc32c::crc32c(&copy).to_le_bytes() == value[record_bytes - 4..record_bytes]
}

/// The residency of a file; `None` for a file that was never archived.
pub type ReadResidency = Result<Option<Residency>, Unreadable>;

/// The reason why a residency can't be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The lower file system failed.
    #[error(transparent)]
    Below(#[from] fslab_vfs::Error),
    /// The value is invalid.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The value is a compact residency. Neither the catalogue nor an available archive has its
    /// object.
    #[error("its object is not in the catalogue, and can't be read from an archive: {0}")]
    UnknownObject(Box<crate::error::Error>),
}

/// The mark on the root of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeMark {
    /// The tier that the tree belongs to.
    pub tier: Id,
    /// The path of that tier's home.
    pub home: Vec<u8>,
}

impl TreeMark {
    /// Returns a mark without a home.
    #[must_use]
    pub fn of(tier: Id) -> Self {
        Self { tier, home: Vec::new() }
    }
}

/// Decodes the mark of a tree.
///
/// # Errors
/// The reason why the mark is invalid.
pub fn decode_tree(value: &[u8]) -> Result<TreeMark, Corrupt> {
    let (record, home) = TreeRecord::read_from_prefix(value)
        .or(Err(Corrupt("the xattr that assigns the tree to a tier is cut short")))?;
    let is_known = record.magic == TREE_MAGIC && record.version == VERSION;
    if !is_known || !is_sealed(value, size_of::<TreeRecord>()) {
        return Err(Corrupt(
            "the xattr that assigns the tree to a tier is damaged or has an unknown format",
        ));
    }
    Ok(TreeMark { tier: Id(record.tier), home: home.to_vec() })
}

/// Encodes the mark of a tree as the value of its xattr.
#[must_use]
pub fn encode_tree(mark: &TreeMark) -> Vec<u8> {
    let record = TreeRecord {
        magic: TREE_MAGIC,
        version: VERSION,
        zero: [0; 3],
        tier: mark.tier.0,
        crc: 0.into(),
    };
    let mut value = record.as_bytes().to_vec();
    value.extend(&mark.home);
    seal(&mut value, size_of::<TreeRecord>());
    value
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn example() -> Residency {
        Residency {
            tier: Id([1; 16]),
            file: Id([2; 16]),
            inode: Id([3; 16]),
            changed: true,
            moving: false,
            poisoned: false,
            touched_seconds: 1_790_000_000,
            version: Version {
                object: Id([4; 16]),
                location: Location { container: Id([5; 16]), offset: 7, length: 8 },
                size: 1000 << 20,
                sequence: 9,
                modified: Timestamp { seconds: -1, nanoseconds: 999_999_999 },
                root: [6; 32],
                copies: vec![Id([7; 16]), Id([8; 16])],
            },
            offline: Runs::from_iter([0..3, 5..6, 900..1000]),
        }
    }

    #[test]
    fn residency_round_trips_and_damaged_ones_are_refused() {
        let residency = example();
        let value = residency.encode().unwrap();
        assert_eq!(Residency::decode(&value), Ok(residency));
        for bit in 0..value.len() * 8 {
            let mut damaged = value.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Residency::decode(&damaged).is_err(), "bit {bit}");
        }
        for length in 0..value.len() {
            assert!(Residency::decode(&value[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn resealed_residency_passes_its_checksum() {
        let mut value = example().encode().unwrap();
        value[size_of::<ResidencyRecord>() - 5] ^= 1;
        assert!(Residency::decode(&value).is_err());
        let known = Residency::decode(&resealed(&value)).unwrap();
        assert_ne!(known.touched_seconds, example().touched_seconds);
    }

    /// Only offline blocks can contain poison.
    #[test]
    fn residency_without_offline_blocks_is_not_poisoned() {
        let resident = Residency { offline: Runs::new(), ..example() };
        let mut value = resident.encode().unwrap();
        value[std::mem::offset_of!(ResidencyRecord, version)] = VERSION_POISONED;
        assert_eq!(Residency::decode(&resealed(&value)), Ok(resident));
    }

    #[test]
    fn too_many_runs_do_not_fit() {
        let many = (0..1000).map(|number| number * 2..number * 2 + 1);
        let mut residency = example();
        residency.version.size = 1 << 40;
        residency.offline = many.collect();
        assert_eq!(residency.encode(), None);
        residency.offline = residency.offline.joined(100);
        assert!(residency.encode().is_some());
    }

    #[test]
    fn runs_past_the_end_are_refused() {
        let mut residency = example();
        residency.offline.insert(1000..1001);
        let value = residency.encode().unwrap();
        assert!(Residency::decode(&value).is_err());
    }
}
