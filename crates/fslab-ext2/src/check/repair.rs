//! Mends what a check found, where there is one way to do so and nothing is lost by it.
//!
//! - entries of directories that can't be: taken out, or given the right kind;
//! - damaged records: the rest of their block becomes free; a damaged index is dropped and the
//!   directory is a linear one again;
//! - `..`, counts of names and sectors, times of deletion: set to what was found;
//! - files without a path: named `#NUMBER` in `lost+found`, if that is there;
//! - pointers to nowhere: become holes; blocks with two owners: the later one gets a copy;
//! - features that are used and not named by the superblock: named there;
//! - bitmaps and counts: made again, once nothing else is wrong. Then the superblock says that all
//!   is in order and that no removed file is open.
//!
//! Not mended, and left in the report: holes of directories and sizes of files, attributes, inodes
//! that can't be read, descriptors and superblock.

use std::sync::Arc;

use fslab_vfs::{BlockDevice, FileKind, Timestamp};
use zerocopy::FromBytes;

use super::finding::{Finding, Problem, Report, Subject};
use super::image::Image;
use super::inodes::BAD_BLOCKS;
use super::pointers::Places;
use crate::bits;
use crate::cache::Role;
use crate::dir::entry::{self, Entries, EntryKind};
use crate::error::Result;
use crate::format::{INODE_INDEX, RawInode, STATE_CLEAN, STATE_ERRORS, SUPERBLOCK_OFFSET};
use crate::geometry::Geometry;
use crate::group::descriptor_table;
use crate::kinds::entry_kind;
use crate::numbers::{BlockNo, InodeNo};

/// What a repair did.
#[derive(Clone, Debug, Default)]
pub struct Repaired {
    /// What was found and mended, in that order.
    pub mended: Vec<Finding>,
    /// What is still wrong.
    pub left: Report,
}

/// Checks and mends in turn, until nothing is wrong or nothing more can be mended.
///
/// # Errors
/// As [`super::check`], and what writing to the device answers.
pub fn repair(device: &Arc<dyn BlockDevice>, now: Timestamp) -> Result<Repaired> {
    /// Mending one thing shows another: a directory that is reached again leads to others.
    const ROUNDS_MAX: usize = 16;
    let mut mended = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let (report, image) = super::examine(Arc::clone(device))?;
        let Some(mut image) = image.filter(|_| !report.findings.is_empty()) else {
            return Ok(Repaired { mended, left: report });
        };
        let before = mended.len();
        mended.extend(mend_all(&mut image, &report, now)?);
        if mended.len() == before {
            return Ok(Repaired { mended, left: report });
        }
    }
    Ok(Repaired { mended, left: super::check(Arc::clone(device))? })
}

/// Answers what was mended.
fn mend_all(image: &mut Image, report: &Report, now: Timestamp) -> Result<Vec<Finding>> {
    let of_counts: Vec<_> = report.findings.iter().filter(|one| is_of_counts(one)).collect();
    if of_counts.len() == report.findings.len() {
        say_in_order(image);
        write_counts(image)?;
        return Ok(report.findings.clone());
    }
    let mut places = Places::of(&report.findings);
    let mut mended = Vec::new();
    for finding in report.findings.iter().filter(|one| !is_of_counts(one)) {
        if mend(image, &mut places, finding, now)? {
            mended.push(finding.clone());
        }
    }
    write_out(image)?;
    Ok(mended)
}

fn is_of_counts(finding: &Finding) -> bool {
    matches!(
        finding.problem,
        Problem::BlockBit { .. }
            | Problem::InodeBit { .. }
            | Problem::Padding
            | Problem::Count { .. }
            | Problem::Orphans(_)
            | Problem::NotInOrder
    )
}

/// To be written with the counts. What is not in use is free then, whatever lists led to it.
fn say_in_order(image: &mut Image) {
    let raw = image.superblock.raw_mut();
    raw.s_state = (raw.s_state.get() & !STATE_ERRORS | STATE_CLEAN).into();
    raw.s_last_orphan = 0.into();
}

fn mend(image: &mut Image, places: &mut Places, finding: &Finding, now: Timestamp) -> Result<bool> {
    if let Problem::UnnamedFeature(feature) = finding.problem {
        feature.name_in(&mut image.superblock);
        image.cache.device().write_at(SUPERBLOCK_OFFSET, image.superblock.as_bytes())?;
        return Ok(true);
    }
    let Subject::Inode(no) = finding.subject else { return Ok(false) };
    match finding.problem {
        Problem::BadPointer(pointer) => places.clear(image, no, pointer),
        // A copy of a bad block would be a good one.
        Problem::SharedBlock(_) if no == BAD_BLOCKS => Ok(false),
        Problem::SharedBlock(pointer) => places.copy_shared(image, no, pointer),
        Problem::Links { counted, .. } => {
            change_inode(image, no, |raw| raw.i_links_count = (counted as u16).into())
        }
        Problem::Sectors { counted, .. } => {
            change_inode(image, no, |raw| raw.i_blocks_lo = (counted as u32).into())
        }
        Problem::BadInode(super::inodes::DELETED_IN_USE) => {
            change_inode(image, no, |raw| raw.i_dtime = 0.into())
        }
        Problem::BadInode(super::inodes::NOT_DELETED) => {
            let seconds = now.seconds.clamp(1 << 30, i64::from(u32::MAX)) as u32;
            change_inode(image, no, |raw| raw.i_dtime = seconds.into())
        }
        Problem::BadInode(super::inodes::FIELDS_TO_BE_ZERO) => change_inode(image, no, |raw| {
            raw.i_obso_faddr = 0.into();
            raw.i_blocks_high = 0.into();
            raw.i_file_acl_high = 0.into();
        }),
        Problem::Parent { parent, .. } => set_dotdot(image, no, parent),
        Problem::Entry { target, offset, .. } => mend_entry(image, finding, target, offset),
        Problem::DirectoryBlock { .. } => mend_directory_block(image, no, finding.block),
        Problem::Unattached => attach(image, no),
        _ => Ok(false),
    }
}

/// Where an inode's bytes are: block and offset.
pub(super) fn place_of_inode(image: &Image, no: InodeNo) -> Option<(BlockNo, usize)> {
    let geometry = image.geometry();
    let (group, index) = geometry.place_of_inode(no)?;
    let per_block = geometry.inodes_per_block();
    let table = image.groups[group.0 as usize].inode_table;
    let offset = (index % per_block * geometry.inode_size) as usize;
    Some((BlockNo(table.0 + index / per_block), offset))
}

pub(super) fn change_inode(
    image: &mut Image,
    no: InodeNo,
    change: impl FnOnce(&mut RawInode),
) -> Result<bool> {
    let Some((block, offset)) = place_of_inode(image, no) else { return Ok(false) };
    image.cache.modify(block, Role::Inodes, |bytes| {
        let raw = RawInode::mut_from_prefix(&mut bytes[offset..]);
        raw.map(|(raw, _)| change(raw)).is_ok()
    })
}

fn set_dotdot(image: &mut Image, no: InodeNo, parent: InodeNo) -> Result<bool> {
    let kind = image.rules().told(EntryKind::DIRECTORY);
    let first = image.directories.get(&no).and_then(|directory| directory.blocks.first());
    let Some(first) = first.copied() else { return Ok(false) };
    image.cache.modify(first, Role::Directory, |bytes| {
        let found = crate::dir::dots(bytes).is_ok();
        if found {
            entry::set_inode(bytes, entry::RECORD_MIN, parent, kind);
        }
        found
    })
}

/// Gives an entry the kind of its inode, or takes it out.
fn mend_entry(image: &mut Image, finding: &Finding, target: InodeNo, offset: u32) -> Result<bool> {
    let Some(block) = finding.block else { return Ok(false) };
    let right = image.kind(target).map(|kind| image.rules().told(entry_kind(kind)));
    image.cache.modify(block, Role::Directory, |bytes| {
        let offset = offset as usize;
        let Ok(found) = entry::entry_at(bytes, offset) else { return false };
        let (told, is_dot) = (found.kind, matches!(found.name, b"." | b"..") && offset <= 12);
        match right {
            Some(kind) if told != kind => entry::set_inode(bytes, offset, target, kind),
            _ if is_dot => return false,
            _ => {
                let previous = Entries::of(bytes).flatten().take_while(|one| one.offset < offset);
                let previous = previous.last().map(|one| one.offset);
                return entry::remove(bytes, offset, previous).is_ok();
            }
        }
        true
    })
}

/// Frees what can't be read of a directory's block. Where all can be, its index is what is wrong.
fn mend_directory_block(image: &mut Image, no: InodeNo, block: Option<BlockNo>) -> Result<bool> {
    if let Some(block) = block
        && let Some(start) = unreadable_from(&image.cache.read(block)?)
    {
        return image.cache.modify(block, Role::Directory, |bytes| {
            // Without '.' and '..' a directory is beyond this.
            let fits = start % 4 == 0 && bytes.len() - start >= entry::RECORD_MIN;
            if start == 0 || !fits {
                return false;
            }
            entry::clear(bytes, start);
            true
        });
    }
    let indexed = image.directories.get(&no).is_some_and(|directory| directory.indexed);
    if !indexed {
        return Ok(false);
    }
    change_inode(image, no, |raw| raw.i_flags = (raw.i_flags.get() & !INODE_INDEX).into())
}

fn unreadable_from(bytes: &[u8]) -> Option<usize> {
    let mut end = 0;
    for entry in Entries::of(bytes) {
        match entry {
            Ok(entry) => end = entry.offset + entry.length,
            Err(_) => return Some(end),
        }
    }
    None
}

/// Names an inode in lost+found, in a block that has room.
fn attach(image: &mut Image, no: InodeNo) -> Result<bool> {
    let Some(kind) = image.kind(no) else { return Ok(false) };
    let Some(target) = lost_and_found(image)?.filter(|target| *target != no) else {
        return Ok(false);
    };
    let name = format!("#{no}");
    let told = image.rules().told(entry_kind(kind));
    let blocks = image.directories.get(&target).map(|one| one.blocks.clone()).unwrap_or_default();
    for block in blocks {
        let done = image.cache.modify(block, Role::Directory, |bytes| {
            let room = entry::Wanted::new(name.as_bytes()).scan(bytes).ok()?.room?;
            entry::insert(bytes, room as usize, name.as_bytes(), no, told).ok()
        })?;
        if done.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The linear directory of that name in the root.
fn lost_and_found(image: &Image) -> Result<Option<InodeNo>> {
    let Some(root) = image.directories.get(&InodeNo::ROOT) else { return Ok(None) };
    for block in &root.blocks {
        let bytes = image.cache.read(*block)?;
        let found = Entries::of(&bytes).flatten().find(|entry| entry.name == b"lost+found");
        if let Some(no) = found.and_then(|entry| entry.inode) {
            let is_linear = image.directories.get(&no).is_some_and(|one| !one.indexed);
            return Ok(
                Some(no).filter(|no| is_linear && image.kind(*no) == Some(FileKind::Directory))
            );
        }
    }
    Ok(None)
}

fn write_out(image: &mut Image) -> Result<()> {
    for role in [Role::Map, Role::Inodes, Role::Directory, Role::Bitmap] {
        image.cache.write_out(role)?;
    }
    Ok(image.cache.device().flush()?)
}

/// Makes bitmaps and counts again from what is in use.
pub(super) fn write_counts(image: &mut Image) -> Result<()> {
    let geometry = *image.geometry();
    for no in image.all_groups() {
        let group = image.groups[no.0 as usize];
        let first = geometry.first_block(no).0;
        let length = geometry.blocks_in(no);
        let block_used = |bit| bit >= length || image.is_claimed(BlockNo(first + bit));
        let blocks = bitmap(&geometry, block_used);
        let inode_used = |bit| {
            let inode = geometry.inode_at(no, bit);
            bit >= geometry.inodes_per_group
                || image.kind(inode).is_some()
                || image.is_reserved(inode)
        };
        let inodes = bitmap(&geometry, inode_used);
        let free_blocks = write_bitmap(image, group.block_bitmap, &blocks)?;
        let free_inodes = write_bitmap(image, group.inode_bitmap, &inodes)?;
        let directories = image.directories.keys();
        let here = directories.filter(|inode| geometry.group_of_inode(**inode) == no).count();
        let group = &mut image.groups[no.0 as usize];
        group.free_blocks = free_blocks;
        group.free_inodes = free_inodes;
        group.directories = here as u32;
    }
    let free_blocks: u32 = image.groups.iter().map(|group| group.free_blocks).sum();
    let free_inodes: u32 = image.groups.iter().map(|group| group.free_inodes).sum();
    image.superblock.raw_mut().s_free_blocks_count = free_blocks.into();
    image.superblock.raw_mut().s_free_inodes_count = free_inodes.into();
    write_out(image)?;
    let device = image.cache.device();
    let table = geometry.descriptors_of(crate::numbers::GroupNo(0));
    device.write_at(geometry.offset_of(table), &descriptor_table(&image.groups))?;
    device.flush()?;
    device.write_at(SUPERBLOCK_OFFSET, image.superblock.as_bytes())?;
    Ok(device.flush()?)
}

fn bitmap(geometry: &Geometry, used: impl Fn(u32) -> bool) -> Vec<u8> {
    let mut bytes = vec![0; geometry.block_size.bytes()];
    (0..geometry.block_size.bits())
        .filter(|bit| used(*bit))
        .for_each(|bit| bits::set(&mut bytes, bit));
    bytes
}

/// Answers how many bits are free.
fn write_bitmap(image: &mut Image, block: BlockNo, bits: &[u8]) -> Result<u32> {
    image.cache.modify(block, Role::Bitmap, |bytes| bytes.copy_from_slice(bits))?;
    Ok(bits.iter().map(|byte| byte.count_zeros()).sum())
}
