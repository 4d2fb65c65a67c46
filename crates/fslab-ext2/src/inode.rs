//! Inodes as validated types, and their encoding in an inode table.

use zerocopy::{FromBytes, IntoBytes};

use fslab_vfs::{FileKind, Permissions, Timestamp};

use crate::error::{Error, Place, Result};
use crate::flaw::Flaw;
use crate::format::{
    INODE_BYTES, INODE_EXTRA_BYTES, INODE_FOREIGN, MAP_ENTRIES, RawInode, RawInodeExtra,
};
use crate::types::{BlockNo, InodeNo};

/// Maximum length, in bytes, of a symbolic link's target that is stored in the inode instead of a
/// block. One more byte would leave no room for the NUL byte that the kernel writes.
pub const FAST_TARGET_MAX: usize = MAP_ENTRIES * 4 - 1;

/// An inode in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// The inode number.
    pub no: InodeNo,
    /// The file type.
    pub kind: FileKind,
    /// Permission, set-id and sticky bits.
    pub permissions: Permissions,
    /// Owning user.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Logical size in bytes.
    pub size: u64,
    /// Link count; 0 for a removed inode that is still open.
    pub links: u32,
    /// Allocated space in units of 512 bytes, including indirect and attribute blocks.
    pub sectors: u32,
    /// `i_flags`.
    pub flags: u32,
    /// Distinguishes successive uses of one inode number.
    pub generation: u32,
    /// The block that contains extended attributes, if there is one.
    pub xattr_block: Option<BlockNo>,
    /// Block pointers, the target of a fast symbolic link, or a device number.
    pub map: [u32; MAP_ENTRIES],
    /// Time of the last read.
    pub accessed: Timestamp,
    /// Time of the last change of the content.
    pub modified: Timestamp,
    /// Time of the last change of the inode.
    pub changed: Timestamp,
    /// Time of creation, if the inode has room for it.
    pub created: Option<Timestamp>,
    /// `i_dtime`: for an inode without names, the next inode in the orphan list.
    pub deleted: u32,
}

impl Inode {
    /// Makes an inode without content. All times are `now`.
    pub(crate) fn new(
        no: InodeNo,
        kind: FileKind,
        permissions: Permissions,
        (uid, gid): (u32, u32),
        links: u32,
        now: Timestamp,
    ) -> Self {
        Self {
            no,
            kind,
            permissions,
            uid,
            gid,
            size: 0,
            links,
            sectors: 0,
            flags: 0,
            generation: 0,
            xattr_block: None,
            map: [0; MAP_ENTRIES],
            accessed: now,
            modified: now,
            changed: now,
            created: Some(now),
            deleted: 0,
        }
    }

    /// Parses an inode from its bytes in the table; `None` if it is not in use.
    ///
    /// # Errors
    /// [`Error::Damaged`] if a field is invalid.
    pub fn parse(no: InodeNo, bytes: &[u8]) -> Result<Option<Self>> {
        let damaged = |what| Error::damaged(Place::Inode(no), what);
        let (raw, _) = RawInode::ref_from_prefix(bytes)
            .map_err(|_short: zerocopy::CastError<_, _>| damaged(Flaw::CutShort))?;
        let mode = u32::from(raw.i_mode.get());
        if mode == 0 || (raw.i_links_count.get() == 0 && is_past(raw.i_dtime.get())) {
            return Ok(None);
        }
        let kind = FileKind::from_mode(mode).ok_or_else(|| damaged(Flaw::BadMode))?;
        if raw.i_flags.get() & INODE_FOREIGN != 0 {
            return Err(damaged(Flaw::ForeignInode));
        }
        if size_of(raw, kind) > i64::MAX as u64 {
            return Err(damaged(Flaw::BadSize));
        }
        let extra = extra_of(bytes).ok_or_else(|| damaged(Flaw::BadExtraSize))?;
        let time = |seconds: u32, extra: Option<u32>| decode_time(seconds, extra.unwrap_or(0));
        Ok(Some(Self {
            no,
            kind,
            permissions: Permissions::new(mode),
            uid: u32::from(raw.i_uid.get()) | u32::from(raw.i_uid_high.get()) << 16,
            gid: u32::from(raw.i_gid.get()) | u32::from(raw.i_gid_high.get()) << 16,
            size: size_of(raw, kind),
            links: raw.i_links_count.get().into(),
            sectors: raw.i_blocks_lo.get(),
            flags: raw.i_flags.get(),
            generation: raw.i_generation.get(),
            xattr_block: Some(BlockNo(raw.i_file_acl_lo.get())).filter(|block| block.0 != 0),
            map: raw.i_block.map(zerocopy::little_endian::U32::get),
            accessed: time(raw.i_atime.get(), extra.map(|extra| extra.i_atime_extra.get())),
            modified: time(raw.i_mtime.get(), extra.map(|extra| extra.i_mtime_extra.get())),
            changed: time(raw.i_ctime.get(), extra.map(|extra| extra.i_ctime_extra.get())),
            created: extra
                .map(|extra| time(extra.i_crtime.get(), Some(extra.i_crtime_extra.get()))),
            deleted: raw.i_dtime.get(),
        }))
    }

    /// Writes the inode over its bytes in the table; fields that this type lacks keep their values.
    pub fn store(&self, bytes: &mut [u8]) {
        let has_extra = extra_of(bytes).flatten().is_some();
        if let Some(extra) = has_extra.then(|| extra_mut(bytes)).flatten() {
            extra.i_ctime_extra = time_extra(self.changed).into();
            extra.i_mtime_extra = time_extra(self.modified).into();
            extra.i_atime_extra = time_extra(self.accessed).into();
            let created = self.created.unwrap_or_default();
            extra.i_crtime = time_seconds(created, true).into();
            extra.i_crtime_extra = time_extra(created).into();
        }
        let Ok((raw, _)) = RawInode::mut_from_prefix(bytes) else { return };
        raw.i_mode = ((self.kind.mode_bits() | self.permissions.bits()) as u16).into();
        raw.i_uid = (self.uid as u16).into();
        raw.i_uid_high = ((self.uid >> 16) as u16).into();
        raw.i_gid = (self.gid as u16).into();
        raw.i_gid_high = ((self.gid >> 16) as u16).into();
        raw.i_size_lo = (self.size as u32).into();
        raw.i_size_high = ((self.size >> 32) as u32).into();
        raw.i_links_count = (self.links as u16).into();
        raw.i_blocks_lo = self.sectors.into();
        raw.i_flags = self.flags.into();
        raw.i_generation = self.generation.into();
        raw.i_file_acl_lo = self.xattr_block.map_or(0, |block| block.0).into();
        raw.i_block = self.map.map(Into::into);
        raw.i_atime = time_seconds(self.accessed, has_extra).into();
        raw.i_mtime = time_seconds(self.modified, has_extra).into();
        raw.i_ctime = time_seconds(self.changed, has_extra).into();
        raw.i_dtime = self.deleted.into();
    }

    /// Resets the bytes of a table entry to a new inode, to be filled by [`store`](Self::store).
    pub fn clear(bytes: &mut [u8]) {
        bytes.fill(0);
        if let Ok((_, rest)) = RawInode::mut_from_prefix(bytes)
            && let Ok((extra, _)) = RawInodeExtra::mut_from_prefix(rest)
        {
            extra.i_extra_isize = (INODE_EXTRA_BYTES as u16).into();
        }
    }

    /// Overwrites the bytes of a table entry with a deleted inode. The generation is kept, so that
    /// the next use of the number gets the following generation. The kind, size and map of `was`
    /// are kept too, so that `undelete` can recover the content until the blocks are reused.
    pub fn bury(bytes: &mut [u8], now: Timestamp, was: Option<&Self>) {
        let Ok((raw, _)) = RawInode::mut_from_prefix(bytes) else { return };
        let generation = raw.i_generation;
        raw.as_mut_bytes().fill(0);
        raw.i_generation = generation;
        raw.i_dtime = time_seconds(now, false).max(PAST_MIN).into();
        if let Some(was) = was {
            raw.i_mode = ((was.kind.mode_bits() | was.permissions.bits()) as u16).into();
            raw.i_size_lo = (was.size as u32).into();
            raw.i_size_high = ((was.size >> 32) as u32).into();
            raw.i_blocks_lo = was.sectors.into();
            raw.i_block = was.map.map(Into::into);
        }
    }

    /// Returns the generation that the last use of an inode number had.
    #[must_use]
    pub fn last_generation(bytes: &[u8]) -> u32 {
        RawInode::ref_from_prefix(bytes).map_or(0, |(raw, _)| raw.i_generation.get())
    }

    /// Returns the region for extended attributes within the inode; empty if there is none.
    #[must_use]
    pub fn xattr_region(bytes: &[u8]) -> &[u8] {
        let start = |extra: &RawInodeExtra| INODE_BYTES + usize::from(extra.i_extra_isize.get());
        extra_of(bytes).flatten().and_then(|extra| bytes.get(start(extra)..)).unwrap_or_default()
    }

    /// Whether `map` contains block pointers.
    #[must_use]
    pub fn has_map(&self, block_sectors: u32) -> bool {
        match self.kind {
            FileKind::Regular | FileKind::Directory => true,
            FileKind::Symlink => self.fast_target(block_sectors).is_none(),
            _ => false,
        }
    }

    /// Returns the target of a symbolic link that is stored in the inode.
    #[must_use]
    pub fn fast_target(&self, block_sectors: u32) -> Option<Vec<u8>> {
        let attributes = if self.xattr_block.is_some() { block_sectors } else { 0 };
        let is_fast = self.kind == FileKind::Symlink
            && self.sectors == attributes
            && self.size <= FAST_TARGET_MAX as u64;
        let bytes = self.map.iter().flat_map(|word| word.to_le_bytes());
        is_fast.then(|| bytes.take(self.size as usize).collect())
    }

    /// Stores a short target in the inode.
    pub fn set_fast_target(&mut self, target: &[u8]) {
        let mut bytes = [0; MAP_ENTRIES * 4];
        bytes[..target.len()].copy_from_slice(target);
        for (word, piece) in self.map.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = piece.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        }
    }

    /// Returns the device number of a device node, in the kernel's 32-bit encoding.
    #[must_use]
    pub fn device(&self) -> u32 {
        match self.kind {
            FileKind::CharDevice | FileKind::BlockDevice if self.map[0] != 0 => self.map[0],
            FileKind::CharDevice | FileKind::BlockDevice => self.map[1],
            _ => 0,
        }
    }

    /// Stores a device number: in the first word if it fits in 16 bits, else in the second.
    pub fn set_device(&mut self, device: u32) {
        self.map[usize::from(device > 0xffff)] = device;
    }
}

/// Minimum deletion time in `i_dtime`. Smaller values are inode numbers in the orphan list.
const PAST_MIN: u32 = 1 << 28;

/// Whether `i_dtime` is a deletion time. A smaller number is the next orphan; 0 ends the list.
fn is_past(deleted: u32) -> bool {
    deleted >= PAST_MIN
}

/// Returns the size. Its high half is valid only for regular files and directories.
fn size_of(raw: &RawInode, kind: FileKind) -> u64 {
    let high = match kind {
        FileKind::Regular | FileKind::Directory => raw.i_size_high.get(),
        _ => 0,
    };
    u64::from(raw.i_size_lo.get()) | u64::from(high) << 32
}

/// Returns the fields after the first 128 bytes, if they include the creation time. The outer
/// `None` means that the stored size of these fields is invalid.
fn extra_of(bytes: &[u8]) -> Option<Option<&RawInodeExtra>> {
    let behind = &bytes[INODE_BYTES.min(bytes.len())..];
    let Ok((extra, _)) = RawInodeExtra::ref_from_prefix(behind) else { return Some(None) };
    let size = usize::from(extra.i_extra_isize.get());
    if size > behind.len() || !size.is_multiple_of(4) {
        return None;
    }
    // Bytes of the extra fields up to and including `i_crtime_extra`.
    const WHOLE: usize = 24;
    Some((size >= WHOLE).then_some(extra))
}

fn extra_mut(bytes: &mut [u8]) -> Option<&mut RawInodeExtra> {
    let behind = bytes.get_mut(INODE_BYTES..)?;
    RawInodeExtra::mut_from_prefix(behind).ok().map(|(extra, _)| extra)
}

/// Decodes a time. `seconds` is a signed number of seconds since 1970. The two lowest bits of
/// `extra` add multiples of 2^32 seconds; the other bits are nanoseconds.
fn decode_time(seconds: u32, extra: u32) -> Timestamp {
    let seconds = i64::from(seconds.cast_signed()) + (i64::from(extra & 3) << 32);
    Timestamp { seconds, nanoseconds: (extra >> 2).min(999_999_999) }
}

/// The first and last seconds that an inode can store.
const SECONDS_MIN: i64 = i32::MIN as i64;
const SECONDS_MAX: i64 = i32::MAX as i64;
const SECONDS_MAX_EXTRA: i64 = SECONDS_MAX + (3 << 32);

/// Clamps a time to the range that the inode can store.
fn time_seconds(time: Timestamp, has_extra: bool) -> u32 {
    let last = if has_extra { SECONDS_MAX_EXTRA } else { SECONDS_MAX };
    time.seconds.clamp(SECONDS_MIN, last) as u32
}

fn time_extra(time: Timestamp) -> u32 {
    let seconds = time.seconds.clamp(SECONDS_MIN, SECONDS_MAX_EXTRA);
    let rounds = ((seconds - i64::from(seconds as i32)) >> 32) as u32 & 3;
    rounds | time.nanoseconds << 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_from_1901_to_2446() {
        for seconds in [SECONDS_MIN, -1, 0, SECONDS_MAX, SECONDS_MAX + 1, SECONDS_MAX_EXTRA] {
            let time = Timestamp { seconds, nanoseconds: 123_456_789 };
            assert_eq!(decode_time(time_seconds(time, true), time_extra(time)), time);
        }
        let late = Timestamp { seconds: i64::MAX, nanoseconds: 0 };
        assert_eq!(decode_time(time_seconds(late, false), 0).seconds, SECONDS_MAX);
    }

    #[test]
    fn a_stored_inode_is_read_back() {
        let mut bytes = [0; 256];
        Inode::clear(&mut bytes);
        let inode = Inode {
            no: InodeNo(12),
            kind: FileKind::Regular,
            permissions: Permissions::new(0o4755),
            uid: 0x1_2345,
            gid: 0x5_4321,
            size: 5 << 32 | 7,
            links: 3,
            sectors: 8,
            flags: 0x80,
            generation: 99,
            xattr_block: Some(BlockNo(77)),
            map: std::array::from_fn(|index| index as u32),
            accessed: Timestamp { seconds: 1, nanoseconds: 2 },
            modified: Timestamp { seconds: -3, nanoseconds: 4 },
            changed: Timestamp { seconds: 5 << 30, nanoseconds: 6 },
            created: Some(Timestamp { seconds: 7, nanoseconds: 8 }),
            deleted: 0,
        };
        inode.store(&mut bytes);
        assert_eq!(Inode::parse(InodeNo(12), &bytes).ok().flatten(), Some(inode));
        Inode::bury(&mut bytes, Timestamp { seconds: 1 << 30, nanoseconds: 0 }, None);
        assert_eq!(Inode::parse(InodeNo(12), &bytes).ok().flatten(), None);
        assert_eq!(Inode::last_generation(&bytes), 99);
    }

    #[test]
    fn symlink_targets_and_device_numbers_are_stored_in_the_map() {
        let mut bytes = [0; 128];
        bytes[0..2].copy_from_slice(&0o120_777_u16.to_le_bytes());
        bytes[26] = 1;
        let Ok(Some(mut link)) = Inode::parse(InodeNo(12), &bytes) else { panic!("a symlink") };
        link.set_fast_target(b"a/target");
        link.size = 8;
        assert_eq!(link.fast_target(2).as_deref(), Some(&b"a/target"[..]));
        link.kind = FileKind::CharDevice;
        link.map = [0; MAP_ENTRIES];
        link.set_device(0x0105);
        assert_eq!((link.device(), link.map[0]), (0x0105, 0x0105));
        link.map = [0; MAP_ENTRIES];
        link.set_device(0x1010_0305);
        assert_eq!((link.device(), link.map[0]), (0x1010_0305, 0));
    }
}
