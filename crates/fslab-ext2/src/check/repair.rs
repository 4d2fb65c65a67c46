//! Repairs those findings of a check for which only one repair is possible and no data is lost.
//!
//! - Invalid directory entries are removed, or their kind is corrected.
//! - After a damaged record, the rest of the block becomes free space. A damaged index is dropped,
//!   and the directory becomes linear.
//! - `..` entries, link counts and sector counts are set to the values found.
//! - Deletion times are cleared for inodes in use and set for inodes that are not. Fields that only
//!   newer formats use are set to 0.
//! - Files without a path are named `#NUMBER` in `lost+found`, which is created and extended as
//!   needed.
//! - Invalid pointers become holes. If a block is shared, its first owner keeps it and each other
//!   owner gets a copy.
//! - Features in use are declared in the superblock; a reference to a missing journal is removed.
//! - Bitmaps and counts are rebuilt once no other problem remains. The superblock is then marked
//!   clean, with an empty orphan list.
//!
//! These are reported but not repaired: holes in directories, sizes of files, extended attributes,
//! unreadable inodes, group descriptors, and other damage of the superblock.

use std::sync::Arc;

use fslab_vfs::{BlockDevice, Timestamp};

use super::counts::Expected;
use super::finding::{FINDINGS_MAX, Finding, Problem, Report, Subject};
use super::image::Image;
use super::inodes::BAD_BLOCKS;
use super::lost::LostAndFound;
use super::pointers::Places;
use crate::cache::Role;
use crate::dir::entry::{self, Entries, EntryKind};
use crate::error::Result;
use crate::flaw::Flaw;
use crate::format::{INODE_INDEX, STATE_CLEAN, STATE_ERRORS, SUPERBLOCK_OFFSET};
use crate::types::{BlockNo, InodeNo};

/// Maximum number of findings repaired in one round; they need about 10 MiB. Each round reads all
/// metadata.
const FINDINGS_AT_ONCE: usize = 100_000;

/// The result of a repair.
#[derive(Clone, Debug, Default)]
pub struct Repaired {
    /// The repaired findings, in order.
    pub mended: Vec<Finding>,
    /// The remaining problems.
    pub left: Report,
}

/// Checks and repairs alternately, until no problem is left or none can be repaired.
///
/// # Errors
/// The same as [`super::check`], and errors of writing to the device.
pub fn repair(device: &Arc<dyn BlockDevice>, now: Timestamp) -> Result<Repaired> {
    repair_in_rounds(device, now, FINDINGS_AT_ONCE)
}

/// Does the same as [`repair`], but with at most `findings_max` findings per round.
fn repair_in_rounds(
    device: &Arc<dyn BlockDevice>,
    now: Timestamp,
    findings_max: usize,
) -> Result<Repaired> {
    /// Number of rounds allowed for problems that only a repair reveals. For example, reattaching a
    /// directory makes other directories reachable.
    const ROUNDS_MAX: usize = 16;
    let mut mended = Vec::new();
    let mut rounds = 0;
    loop {
        let (mut report, image) = super::examine(Arc::clone(device), findings_max)?;
        let Some(mut image) = image.filter(|_| !report.findings.is_empty()) else {
            return Ok(Repaired { mended, left: report });
        };
        // A long list of findings needs more rounds. This limit is high enough even if all inodes
        // and blocks are damaged.
        let geometry = image.geometry();
        let longest = geometry.inodes() as usize + geometry.blocks as usize;
        let before = mended.len();
        if rounds < ROUNDS_MAX + longest / findings_max {
            mended.extend(mend_all(&mut image, &report, now)?);
        }
        if mended.len() == before {
            report.cut(FINDINGS_MAX);
            return Ok(Repaired { mended, left: report });
        }
        rounds += 1;
    }
}

/// Repairs as many findings as possible and returns them.
fn mend_all(image: &mut Image, report: &Report, now: Timestamp) -> Result<Vec<Finding>> {
    let of_counts: Vec<_> = report.findings.iter().filter(|one| is_of_counts(one)).collect();
    if of_counts.len() == report.findings.len() {
        // The state and the orphan list are written together with the counts. Inodes that are not
        // in use become free, even if they are in the orphan list.
        let raw = image.superblock.raw_mut();
        raw.s_state = (raw.s_state.get() & !STATE_ERRORS | STATE_CLEAN).into();
        raw.s_last_orphan = 0.into();
        write_counts(image)?;
        return Ok(report.findings.clone());
    }
    let mut places = Places::of(&report.findings);
    let mut lost = LostAndFound::new(now);
    let mut mended = Vec::new();
    for finding in report.findings.iter().filter(|one| !is_of_counts(one)) {
        let done = match (finding.subject, finding.problem) {
            (Subject::Inode(no), Problem::Unattached) => lost.attach(image, no)?,
            _ => mend(image, &mut places, finding, now)?,
        };
        if done {
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

fn mend(image: &mut Image, places: &mut Places, finding: &Finding, now: Timestamp) -> Result<bool> {
    match finding.problem {
        Problem::UnnamedFeature(feature) => feature.name_in(&mut image.superblock),
        Problem::StrayJournal => image.superblock.forget_journal(),
        _ => return mend_inode(image, places, finding, now),
    }
    image.cache.device().write_at(SUPERBLOCK_OFFSET, image.superblock.as_bytes())?;
    Ok(true)
}

fn mend_inode(
    image: &mut Image,
    places: &mut Places,
    finding: &Finding,
    now: Timestamp,
) -> Result<bool> {
    let Subject::Inode(no) = finding.subject else { return Ok(false) };
    match finding.problem {
        Problem::BadPointer(pointer) => places.clear(image, no, pointer),
        // The bad-blocks inode must keep its blocks, and their content must not be copied.
        Problem::SharedBlock(_) if no == BAD_BLOCKS => Ok(false),
        Problem::SharedBlock(pointer) => places.copy_shared(image, no, pointer),
        Problem::Links { counted, .. } => {
            image.change_inode(no, |raw| raw.i_links_count = (counted as u16).into())
        }
        Problem::Sectors { counted, .. } => {
            image.change_inode(no, |raw| raw.i_blocks_lo = (counted as u32).into())
        }
        Problem::BadInode(Flaw::DeletedInUse) => {
            image.change_inode(no, |raw| raw.i_dtime = 0.into())
        }
        Problem::BadInode(Flaw::NotDeleted) => {
            let seconds = now.seconds.clamp(1 << 30, i64::from(u32::MAX)) as u32;
            image.change_inode(no, |raw| raw.i_dtime = seconds.into())
        }
        Problem::BadInode(Flaw::NewerFields) => image.change_inode(no, |raw| {
            raw.i_obso_faddr = 0.into();
            raw.i_blocks_high = 0.into();
            raw.i_file_acl_high = 0.into();
        }),
        Problem::Parent { parent, .. } => set_dotdot(image, no, parent),
        Problem::Entry { target, offset, .. } => mend_entry(image, finding, target, offset),
        Problem::DirectoryBlock { .. } => mend_directory_block(image, no, finding.block),
        _ => Ok(false),
    }
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

/// Sets the kind of an entry to that of its inode, or removes the entry.
fn mend_entry(image: &mut Image, finding: &Finding, target: InodeNo, offset: u32) -> Result<bool> {
    let Some(block) = finding.block else { return Ok(false) };
    let right = image.kind(target).map(|kind| image.rules().told(kind.into()));
    image.cache.modify(block, Role::Directory, |bytes| {
        let offset = offset as usize;
        let Ok(found) = entry::entry_at(bytes, offset) else { return false };
        if found.inode != Some(target) {
            // The entry was already removed because of another flaw.
            return false;
        }
        let (told, is_dot) = (found.kind, matches!(found.name, b"." | b"..") && offset <= 12);
        let name_length = found.name.len();
        match right {
            Some(kind) if told != kind => entry::set_inode(bytes, offset, target, kind),
            // After '.' and '..', e2fsck requires a NUL byte.
            _ if is_dot => {
                let end = offset + entry::HEADER + name_length;
                return std::mem::take(&mut bytes[end]) != 0;
            }
            _ => {
                let previous = Entries::of(bytes).flatten().take_while(|one| one.offset < offset);
                let previous = previous.last().map(|one| one.offset);
                return entry::remove(bytes, offset, previous).is_ok();
            }
        }
        true
    })
}

/// Frees the unreadable part of a directory block. If the whole block is readable, the problem is
/// in the directory's index, which is dropped.
fn mend_directory_block(image: &mut Image, no: InodeNo, block: Option<BlockNo>) -> Result<bool> {
    if let Some(block) = block
        && let Some(start) = unreadable_from(&image.cache.read(block)?)
    {
        return image.cache.modify(block, Role::Directory, |bytes| {
            // A directory without '.' and '..' can't be repaired here.
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
    image.change_inode(no, |raw| raw.i_flags = (raw.i_flags.get() & !INODE_INDEX).into())
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

fn write_out(image: &mut Image) -> Result<()> {
    for role in [Role::Map, Role::Inodes, Role::Directory, Role::Bitmap] {
        image.cache.write_out(role)?;
    }
    Ok(image.cache.device().flush()?)
}

/// Rebuilds bitmaps and counts from the inodes and blocks in use.
pub(super) fn write_counts(image: &mut Image) -> Result<()> {
    for no in image.all_groups() {
        let expected = Expected::of(image, no);
        let group = &mut image.groups[no.0 as usize];
        group.free_blocks = expected.free_blocks();
        group.free_inodes = expected.free_inodes();
        group.directories = expected.directories;
        let bitmaps =
            [(group.block_bitmap, &expected.blocks), (group.inode_bitmap, &expected.inodes)];
        for (block, bits) in bitmaps {
            image.cache.modify(block, Role::Bitmap, |bytes| bytes.copy_from_slice(bits))?;
        }
    }
    image.superblock.set_free(&image.groups);
    write_out(image)?;
    image.superblock.write_first(image.cache.device(), &image.groups)
}

#[cfg(test)]
mod tests {
    use fslab_vfs::{FileSystem, Ino, MemoryDevice};
    use fslab_vfs_testing::client::Client;

    use super::*;
    use crate::fs::Ext2;
    use crate::mkfs::{MkfsOptions, mkfs};
    use crate::volume::VolumeOptions;

    /// The repair needs more than 16 rounds, because each round handles at most 10 findings.
    #[test]
    fn damage_beyond_the_findings_limit_is_repaired_in_rounds() {
        const FILES: u32 = 400;
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(16 << 20));
        mkfs(&*device, &MkfsOptions::default()).unwrap();
        let ext2 = Ext2::open(Arc::clone(&device), VolumeOptions::default()).unwrap();
        let client = Client::new(&ext2);
        let directory = client.mkdir(Ino::ROOT, "names").unwrap();
        for number in 0..FILES {
            client.file(directory, format!("{number}"), b"").unwrap();
        }
        drop(client);
        ext2.shutdown().unwrap();
        let mut image = Image::open(Arc::clone(&device)).unwrap();
        let no = InodeNo(directory.0 as u32);
        assert!(image.change_inode(no, |raw| *raw = zerocopy::FromZeros::new_zeroed()).unwrap());
        write_out(&mut image).unwrap();
        let repaired = repair_in_rounds(&device, Timestamp::default(), 10).unwrap();
        assert!(repaired.left.findings.is_empty(), "{:?}", repaired.left.findings);
        let ext2 = Ext2::open(device, VolumeOptions::default()).unwrap();
        let client = Client::new(&ext2);
        let lost = client.lookup(Ino::ROOT, "lost+found").unwrap().ino;
        assert_eq!(client.list(lost).unwrap().len(), FILES as usize);
    }
}
