//! Last passes: names counted against what inodes say, and what is in use against bitmaps and the
//! counts of groups and superblock.

use super::finding::{Problem, Subject};
use super::image::Image;
use crate::bits;
use crate::error::Result;
use crate::types::{BlockNo, GroupNo, InodeNo};

/// Compares the names that were found with those that inodes count.
pub(super) fn check_links(image: &mut Image) {
    for number in 1..image.inodes.len() {
        let no = InodeNo(number as u32);
        let known = image.inodes[number];
        if known.kind.is_none() || image.is_reserved(no) {
            continue;
        }
        let directory = image.directories.get(&no);
        let hangs = directory.is_none_or(|one| one.parent.is_some() || no == InodeNo::ROOT);
        // The '.' of a directory is a name, and the '..' of its own directories; only another
        // one leads to it.
        if known.counted == 0 || !hangs {
            image.report.add(Subject::Inode(no), None, Problem::Unattached);
        } else if known.counted != known.stored {
            let problem = Problem::Links { stored: known.stored, counted: known.counted };
            image.report.add(Subject::Inode(no), None, problem);
        }
    }
}

/// Compares what is in use with bitmaps and counts.
pub(super) fn check_bitmaps(image: &mut Image) -> Result<()> {
    let (mut free_blocks, mut free_inodes) = (0, 0);
    for group in image.all_groups() {
        free_blocks += check_group_blocks(image, group)?;
        free_inodes += check_group_inodes(image, group)?;
    }
    let raw = image.superblock.raw();
    let stored = (raw.s_free_blocks_count.get(), raw.s_free_inodes_count.get());
    total(image, "free blocks", stored.0, free_blocks);
    total(image, "free inodes", stored.1, free_inodes);
    image.report.blocks = image.geometry().blocks - free_blocks;
    Ok(())
}

/// Compares what the superblock says of who used the file system last with a file system that
/// nobody uses. That is no damage, to e2fsck neither, but who grows or shrinks it asks for it.
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

/// The superblock's counts are only brought up to date when a file system is unmounted: e2fsck
/// mentions them, and its verdict is "clean".
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

/// Answers the free blocks of a group.
fn check_group_blocks(image: &mut Image, no: GroupNo) -> Result<u32> {
    let (geometry, group) = (*image.geometry(), image.groups[no.0 as usize]);
    let first = geometry.first_block(no).0;
    let used = |image: &Image, bit| image.is_claimed(BlockNo(first + bit));
    let wrong = |bit, used| (Subject::Block(BlockNo(first + bit)), Problem::BlockBit { used });
    let free = check_bits(image, no, group.block_bitmap, geometry.blocks_in(no), used, wrong)?;
    count(image, Subject::Group(no), "free blocks", group.free_blocks, free);
    Ok(free)
}

/// Answers the free inodes of a group.
fn check_group_inodes(image: &mut Image, no: GroupNo) -> Result<u32> {
    let (geometry, group) = (*image.geometry(), image.groups[no.0 as usize]);
    let length = geometry.inodes_per_group;
    let used = |image: &Image, bit| image.is_inode_used(geometry.inode_at(no, bit));
    let wrong =
        |bit, used| (Subject::Inode(geometry.inode_at(no, bit)), Problem::InodeBit { used });
    let free = check_bits(image, no, group.inode_bitmap, length, used, wrong)?;
    let inodes = (0..length).map(|bit| geometry.inode_at(no, bit));
    let directories = inodes.filter(|inode| image.directories.contains_key(inode)).count() as u32;
    count(image, Subject::Group(no), "free inodes", group.free_inodes, free);
    count(image, Subject::Group(no), "directories", group.directories, directories);
    Ok(free)
}

/// Compares the bitmap of a group with what is in use; answers how many bits should be free.
fn check_bits(
    image: &mut Image,
    no: GroupNo,
    block: BlockNo,
    length: u32,
    is_used: impl Fn(&Image, u32) -> bool,
    wrong: impl Fn(u32, bool) -> (Subject, Problem),
) -> Result<u32> {
    let bitmap = image.cache.read(block)?;
    let mut free = 0;
    for bit in 0..length {
        let used = is_used(image, bit);
        free += u32::from(!used);
        if used != bits::is_set(&bitmap, bit) {
            let (subject, problem) = wrong(bit, used);
            image.report.add(subject, Some(block), problem);
        }
    }
    let end = image.geometry().block_size.bits();
    if (length..end).any(|bit| !bits::is_set(&bitmap, bit)) {
        image.report.add(Subject::Group(no), Some(block), Problem::Padding);
    }
    Ok(free)
}
