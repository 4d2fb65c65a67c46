//! The last two passes of the check. The fourth compares link counts with the names found. The
//! fifth compares bitmaps and free counts with the blocks and inodes in use.

use super::finding::{Problem, Subject};
use super::image::Image;
use crate::bits;
use crate::error::Result;
use crate::types::{BlockNo, GroupNo, InodeNo};

/// Compares the number of names found with the link counts of the inodes.
pub(super) fn check_links(image: &mut Image) {
    for number in 1..image.inodes.len() {
        let no = InodeNo(number as u32);
        let known = image.inodes[number];
        if known.kind.is_none() || image.is_reserved(no) {
            continue;
        }
        let directory = image.directories.get(&no);
        let hangs = directory.is_none_or(|one| one.parent.is_some() || no == InodeNo::ROOT);
        // A directory's own '.' and the '..' of each subdirectory are counted as names. But only an
        // entry in a parent makes the directory reachable.
        if known.counted == 0 || !hangs {
            image.report.add(Subject::Inode(no), None, Problem::Unattached);
        } else if known.counted != known.stored {
            let problem = Problem::Links { stored: known.stored, counted: known.counted };
            image.report.add(Subject::Inode(no), None, problem);
        }
    }
}

/// Compares the blocks and inodes in use with the bitmaps and counts.
pub(super) fn check_bitmaps(image: &mut Image) -> Result<()> {
    let (mut free_blocks, mut free_inodes) = (0, 0);
    for group in image.all_groups() {
        let (blocks, inodes) = check_group(image, group)?;
        (free_blocks, free_inodes) = (free_blocks + blocks, free_inodes + inodes);
    }
    let raw = image.superblock.raw();
    let stored = (raw.s_free_blocks_count.get(), raw.s_free_inodes_count.get());
    total(image, "free blocks", stored.0, free_blocks);
    total(image, "free inodes", stored.1, free_inodes);
    image.report.blocks = image.geometry().blocks - free_blocks;
    Ok(())
}

/// Reports a superblock that is not in the state of a clean file system. Neither this check nor
/// e2fsck treats an unclean state as damage, but growing and shrinking require a clean one.
pub(super) fn check_state(image: &mut Image) {
    if image.superblock.has_stray_journal() {
        image.report.add(Subject::Superblock, None, Problem::StrayJournal);
    }
    let last = InodeNo(image.superblock.raw().s_last_orphan.get());
    if last.0 != 0 {
        of_superblock(image, Problem::Orphans(last));
    }
    if !image.superblock.is_clean() {
        of_superblock(image, Problem::NotInOrder);
    }
}

/// Compares a free count of the superblock with the actual count. Stored counts are updated only at
/// unmount. e2fsck mentions a difference but still reports the file system as clean.
fn total(image: &mut Image, what: &'static str, stored: u32, counted: u32) {
    if stored != counted {
        of_superblock(image, Problem::Count { what, stored, counted });
    }
}

fn of_superblock(image: &mut Image, problem: Problem) {
    image.report.add_beyond(Subject::Superblock, None, problem, true);
}

fn count(image: &mut Image, subject: Subject, what: &'static str, stored: u32, counted: u32) {
    if stored != counted {
        image.report.add(subject, None, Problem::Count { what, stored, counted });
    }
}

/// Checks a group and returns its numbers of free blocks and inodes.
fn check_group(image: &mut Image, no: GroupNo) -> Result<(u32, u32)> {
    let (geometry, group) = (*image.geometry(), image.groups[no.0 as usize]);
    let expected = Expected::of(image, no);
    let first = geometry.first_block(no).0;
    let wrong = |bit, used| (Subject::Block(BlockNo(first + bit)), Problem::BlockBit { used });
    let length = geometry.blocks_in(no);
    check_bits(image, no, group.block_bitmap, &expected.blocks, length, wrong)?;
    count(image, Subject::Group(no), "free blocks", group.free_blocks, expected.free_blocks());
    let wrong =
        |bit, used| (Subject::Inode(geometry.inode_at(no, bit)), Problem::InodeBit { used });
    let length = geometry.inodes_per_group;
    check_bits(image, no, group.inode_bitmap, &expected.inodes, length, wrong)?;
    count(image, Subject::Group(no), "free inodes", group.free_inodes, expected.free_inodes());
    count(image, Subject::Group(no), "directories", group.directories, expected.directories);
    Ok((expected.free_blocks(), expected.free_inodes()))
}

/// Compares a bitmap of a group with its expected content.
fn check_bits(
    image: &mut Image,
    no: GroupNo,
    block: BlockNo,
    expected: &[u8],
    length: u32,
    wrong: impl Fn(u32, bool) -> (Subject, Problem),
) -> Result<()> {
    let bitmap = image.cache.read(block)?;
    for bit in 0..length {
        let used = bits::is_set(expected, bit);
        if used != bits::is_set(&bitmap, bit) {
            let (subject, problem) = wrong(bit, used);
            image.report.add(subject, Some(block), problem);
        }
    }
    let end = image.geometry().block_size.bits();
    if (length..end).any(|bit| !bits::is_set(&bitmap, bit)) {
        image.report.add(Subject::Group(no), Some(block), Problem::Padding);
    }
    Ok(())
}

/// The expected bitmaps and counts of a group, derived from the inodes and blocks in use.
pub(super) struct Expected {
    /// The bitmaps, including their padding.
    pub(super) blocks: Vec<u8>,
    pub(super) inodes: Vec<u8>,
    pub(super) directories: u32,
}

impl Expected {
    pub(super) fn of(image: &Image, no: GroupNo) -> Self {
        let geometry = image.geometry();
        let bitmap = |length: u32, used: &dyn Fn(u32) -> bool| {
            let mut bitmap = bits::bitmap(geometry.block_size, 0, length);
            (0..length).filter(|bit| used(*bit)).for_each(|bit| bits::set(&mut bitmap, bit));
            bitmap
        };
        let (first, per_group) = (geometry.first_block(no).0, geometry.inodes_per_group);
        let inode = |bit| geometry.inode_at(no, bit);
        let is_directory = |bit: &u32| image.directories.contains_key(&inode(*bit));
        Self {
            blocks: bitmap(geometry.blocks_in(no), &|bit| image.is_claimed(BlockNo(first + bit))),
            inodes: bitmap(per_group, &|bit| image.is_inode_used(inode(bit))),
            directories: (0..per_group).filter(is_directory).count() as u32,
        }
    }

    pub(super) fn free_blocks(&self) -> u32 {
        self.blocks.iter().map(|byte| byte.count_zeros()).sum()
    }

    pub(super) fn free_inodes(&self) -> u32 {
        self.inodes.iter().map(|byte| byte.count_zeros()).sum()
    }
}
