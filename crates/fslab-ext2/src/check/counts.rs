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
    let geometry = *image.geometry();
    let group = image.groups[no.0 as usize];
    let bitmap = image.cache.read(group.block_bitmap)?;
    let length = geometry.blocks_in(no);
    let mut free = 0;
    for bit in 0..length {
        let block = BlockNo(geometry.first_block(no).0 + bit);
        let used = image.is_claimed(block);
        free += u32::from(!used);
        if used != bits::is_set(&bitmap, bit) {
            let problem = Problem::BlockBit { used };
            image.report.add(Subject::Block(block), Some(group.block_bitmap), problem);
        }
    }
    padding(image, no, group.block_bitmap, length)?;
    count(image, Subject::Group(no), "free blocks", group.free_blocks, free);
    Ok(free)
}

/// Answers the free inodes of a group.
fn check_group_inodes(image: &mut Image, no: GroupNo) -> Result<u32> {
    let geometry = *image.geometry();
    let group = image.groups[no.0 as usize];
    let bitmap = image.cache.read(group.inode_bitmap)?;
    let length = geometry.inodes_per_group;
    let (mut free, mut directories) = (0, 0);
    for bit in 0..length {
        let inode = geometry.inode_at(no, bit);
        let used = image.kind(inode).is_some() || image.is_reserved(inode);
        free += u32::from(!used);
        directories += u32::from(image.directories.contains_key(&inode));
        if used != bits::is_set(&bitmap, bit) {
            let problem = Problem::InodeBit { used };
            image.report.add(Subject::Inode(inode), Some(group.inode_bitmap), problem);
        }
    }
    padding(image, no, group.inode_bitmap, length)?;
    count(image, Subject::Group(no), "free inodes", group.free_inodes, free);
    count(image, Subject::Group(no), "directories", group.directories, directories);
    Ok(free)
}

fn padding(image: &mut Image, no: GroupNo, block: BlockNo, length: u32) -> Result<()> {
    let bitmap = image.cache.read(block)?;
    let end = image.geometry().block_size.bits();
    if (length..end).any(|bit| !bits::is_set(&bitmap, bit)) {
        image.report.add(Subject::Group(no), Some(block), Problem::Padding);
    }
    Ok(())
}
