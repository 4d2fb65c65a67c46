//! Grows an unmounted file system to the size of its device.
//!
//! Groups are added, and the last existing group is extended. New metadata is written first and the
//! superblock last, so a power cut leaves the old file system. A checker may then find bitmap
//! padding that is not all ones.

use fslab_vfs::BlockDevice;

use crate::bits;
use crate::error::{Error, Result};
use crate::format::compat;
use crate::geometry::Geometry;
use crate::group::Group;
use crate::mkfs::{cut_last_group, new_group};
use crate::superblock::Superblock;
use crate::types::{BlockNo, GroupNo};

/// Maximum number of bytes of an inode table that one write zeroes.
const PIECE_BYTES: u64 = 1 << 20;

/// The sizes before and after resizing, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resized {
    /// The size before resizing.
    pub from: u32,
    /// The size after resizing; equal to `from` if the size did not change.
    pub to: u32,
}

/// Grows the file system to the end of its device.
///
/// # Errors
/// [`Error::BadParameters`] if the file system is not clean, or if its descriptor blocks have no
/// room for all descriptors. Also the errors of [`Superblock::read`] and of the device.
pub fn grow(device: &dyn BlockDevice) -> Result<Resized> {
    let superblock = Superblock::read(device)?;
    superblock.check_in_order()?;
    let before = *superblock.geometry();
    let groups = Group::read_all(device, &before)?;
    let after = larger(&before, device.size())?;
    if after.blocks <= before.blocks {
        return Ok(Resized { from: before.blocks, to: before.blocks });
    }
    if superblock.has_compat(compat::RESIZE_INODE)
        && (before.groups..after.groups).any(|no| after.has_superblock(GroupNo(no)))
    {
        return Err(Error::BadParameters(
            "a new group would need a copy of the blocks reserved for descriptors (resize_inode); \
             use resize2fs",
        ));
    }
    Growth { device, before, after, groups }.write(superblock)?;
    Ok(Resized { from: before.blocks, to: after.blocks })
}

fn larger(before: &Geometry, device_bytes: u64) -> Result<Geometry> {
    let blocks = device_bytes / before.block_size.bytes_u64();
    let blocks = u32::try_from(blocks)
        .map_err(|_over: std::num::TryFromIntError| Error::BadParameters("too many blocks"))?;
    let mut after = before.of_blocks(blocks);
    if after.groups >= before.groups && after.groups > 0 {
        cut_last_group(&mut after);
    }
    if after.groups.checked_mul(before.inodes_per_group).is_none() {
        return Err(Error::BadParameters("there would be too many inodes"));
    }
    if after.descriptor_blocks() > before.descriptor_blocks() {
        return Err(Error::BadParameters(
            "the descriptor blocks are full; make a larger file system and copy the files",
        ));
    }
    Ok(after)
}

struct Growth<'a> {
    device: &'a dyn BlockDevice,
    before: Geometry,
    after: Geometry,
    groups: Vec<Group>,
}

impl Growth<'_> {
    fn write(mut self, mut superblock: Superblock) -> Result<()> {
        self.fill_up_last()?;
        for no in (self.before.groups..self.after.groups).map(GroupNo) {
            let group = new_group(&self.after, no);
            self.write_group(no, &group)?;
            self.groups.push(group);
        }
        superblock.set_sizes(&self.after);
        superblock.set_free(&self.groups);
        superblock.write_copies(self.device, &self.after, &self.groups)?;
        self.device.flush()?;
        superblock.write_first(self.device, &self.groups)
    }

    fn write_at(&self, block: BlockNo, bytes: &[u8]) -> Result<()> {
        Ok(self.device.write_at(self.after.offset_of(block), bytes)?)
    }

    /// Marks the blocks that are added to the last group as free.
    fn fill_up_last(&mut self) -> Result<()> {
        let no = GroupNo(self.before.groups - 1);
        let (old, new) = (self.before.blocks_in(no), self.after.blocks_in(no));
        let group = &mut self.groups[no.0 as usize];
        let mut bitmap = vec![0; self.after.block_size.bytes()];
        let at = self.after.offset_of(group.block_bitmap);
        self.device.read_at(at, &mut bitmap)?;
        (old..new).for_each(|bit| bits::clear(&mut bitmap, bit));
        group.free_blocks += new - old;
        Ok(self.device.write_at(at, &bitmap)?)
    }

    fn write_group(&self, no: GroupNo, group: &Group) -> Result<()> {
        let geometry = &self.after;
        let (block_size, length) = (geometry.block_size, geometry.blocks_in(no));
        let blocks = bits::bitmap(block_size, geometry.overhead(no), length);
        self.write_at(group.block_bitmap, &blocks)?;
        let inodes = bits::bitmap(block_size, 0, geometry.inodes_per_group);
        self.write_at(group.inode_bitmap, &inodes)?;
        // Zero the inode table, because the device may contain arbitrary bytes there.
        let start = geometry.offset_of(group.inode_table);
        let end =
            start + u64::from(geometry.inode_table_blocks()) * geometry.block_size.bytes_u64();
        for at in (start..end).step_by(PIECE_BYTES as usize) {
            let zeros = vec![0; PIECE_BYTES.min(end - at) as usize];
            self.device.write_at(at, &zeros)?;
        }
        Ok(())
    }
}
