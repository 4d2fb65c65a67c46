//! The first pass: checks every inode individually, with its blocks.

use fslab_vfs::FileKind;
use zerocopy::FromBytes;

use super::finding::{Problem, Subject};
use super::image::{Directory, Image, Known};
use crate::error::{Error, Result};
use crate::flaw::Flaw;
use crate::format::{INODE_BYTES, INODE_FOREIGN, INODE_INDEX, MAP_ENTRIES, RawInode, compat};
use crate::inode::{FAST_TARGET_MAX, Inode};
use crate::lazy_features::Feature;
use crate::pointer_tree::{self, Pointer, WHOLE_FILE};
use crate::types::{BlockNo, InodeNo};
use crate::xattr_region::{Region, reference_count};

/// The inode that owns the blocks reserved for additional group descriptors.
const RESIZE: InodeNo = InodeNo(7);
/// The index of that inode's only pointer, which refers to a double-indirect block.
const RESIZE_SLOT: usize = 13;
/// The inode that owns the bad blocks.
pub(super) const BAD_BLOCKS: InodeNo = InodeNo(1);
/// `i_flags`: the flag of AFS inodes, which kernels ignore.
const IMAGIC: u32 = 0x2000;
const BOOT_LOADER: InodeNo = InodeNo(5);
/// The inodes for user quotas, group quotas and the journal.
const QUOTAS_AND_JOURNAL: [InodeNo; 3] = [InodeNo(3), InodeNo(4), InodeNo(8)];

pub(super) fn check(image: &mut Image) -> Result<()> {
    let geometry = *image.geometry();
    for group in image.all_groups() {
        let table = image.groups[group.0 as usize].inode_table;
        let size = geometry.inode_size as usize;
        for block in 0..geometry.inode_table_blocks() {
            let bytes = image.cache.read(BlockNo(table.0 + block))?;
            for (index, bytes) in (0..).zip(bytes.chunks_exact(size)) {
                let index = block * geometry.inodes_per_block() + index;
                if index < geometry.inodes_per_group {
                    check_inode(image, geometry.inode_at(group, index), bytes)?;
                }
            }
        }
    }
    check_attribute_owners(image);
    check_features(image);
    Ok(())
}

/// Checks that the superblock declares every feature in use.
fn check_features(image: &mut Image) {
    for feature in Feature::ALL {
        if image.used.contains(&feature) && !feature.is_named_by(&image.superblock) {
            image.report.add(Subject::Superblock, None, Problem::UnnamedFeature(feature));
        }
    }
}

fn check_inode(image: &mut Image, no: InodeNo, bytes: &[u8]) -> Result<()> {
    let Ok((raw, _)) = RawInode::ref_from_prefix(bytes) else { return Ok(()) };
    if no == RESIZE && image.superblock.has_compat(compat::RESIZE_INODE) {
        // The reserved blocks of this inode have already been claimed as metadata. Only its
        // double-indirect block remains to be claimed.
        if raw.i_block[RESIZE_SLOT].get() != 0 {
            image.claim(no, raw.i_block[RESIZE_SLOT].get());
        }
        return Ok(());
    }
    if no == BAD_BLOCKS {
        return check_bad_blocks(image, raw);
    }
    let links = raw.i_links_count.get();
    if links == 0 {
        let dtime = raw.i_dtime.get();
        if image.is_reserved(no) {
            check_unused_reserved(image, no, raw);
        }
        let was_used = raw.i_mode.get() != 0 && !image.is_reserved(no);
        // A small deletion time is the number of the next inode in the orphan list.
        let is_orphan = dtime != 0 && dtime < image.geometry().inodes();
        if is_orphan || (was_used && dtime == 0) {
            bad(image, no, Flaw::NotDeleted);
        }
        return Ok(());
    }
    if image.is_reserved(no) {
        check_unused_reserved(image, no, raw);
        return Ok(());
    }
    if raw.i_dtime.get() != 0 {
        bad(image, no, Flaw::DeletedInUse);
    }
    check_used(image, no, raw, bytes)
}

/// Checks the bad-blocks inode, which must have a block map but neither a mode nor links.
fn check_bad_blocks(image: &mut Image, raw: &RawInode) -> Result<()> {
    let half_words = [raw.i_mode, raw.i_uid, raw.i_gid, raw.i_links_count];
    if half_words.iter().any(|word| word.get() != 0) || raw.i_file_acl_lo.get() != 0 {
        bad(image, BAD_BLOCKS, Flaw::BadBlocksInode);
    }
    let mut walk = Walk { keep: true, ..Walk::default() };
    walk_map(image, BAD_BLOCKS, &raw.i_block.map(zerocopy::little_endian::U32::get), &mut walk)?;
    let tables = image.tables.iter().filter(|(_, owner)| **owner == BAD_BLOCKS);
    let last = tables.map(|(table, _)| *table).chain(walk.data).max();
    image.bad_end = last.map_or(0, |last| last.0 + 1);
    Ok(())
}

/// Checks, like e2fsck, that a reserved inode is unused: it must have no blocks and no invalid
/// size. The inodes for quotas and the journal may have a mode but no links; the others may have
/// links but no mode. There are two exceptions. The boot loader's inode may have any mode except a
/// directory's, and the resize inode may be a regular file.
fn check_unused_reserved(image: &mut Image, no: InodeNo, raw: &RawInode) {
    let has_names = raw.i_links_count.get() != 0 || raw.i_block[0].get() != 0;
    if QUOTAS_AND_JOURNAL.contains(&no) && has_names {
        bad(image, no, Flaw::ReservedInUse);
    }
    if has_wrong_mode(no, raw) {
        bad(image, no, Flaw::ReservedMode);
    }
    let size = u64::from(raw.i_size_high.get()) << 32 | u64::from(raw.i_size_lo.get());
    if size > image.geometry().size_max() {
        complain(image, no, Problem::Size { size, blocks: 0 });
    }
    if raw.i_file_acl_lo.get() != 0 {
        bad(image, no, Flaw::ReservedAttributes);
    }
    let stored = raw.i_blocks_lo.get();
    if stored != 0 && raw.i_file_acl_lo.get() == 0 {
        complain(image, no, Problem::Sectors { stored, counted: 0 });
    }
}

fn has_wrong_mode(no: InodeNo, raw: &RawInode) -> bool {
    let mode = u32::from(raw.i_mode.get());
    match (no, FileKind::from_mode(mode)) {
        (BOOT_LOADER, kind) => kind == Some(FileKind::Directory),
        (RESIZE, Some(FileKind::Regular)) => false,
        _ => mode != 0 && !QUOTAS_AND_JOURNAL.contains(&no),
    }
}

fn bad(image: &mut Image, no: InodeNo, what: Flaw) {
    complain(image, no, Problem::BadInode(what));
}

fn complain(image: &mut Image, no: InodeNo, problem: Problem) {
    image.report.add(Subject::Inode(no), None, problem);
}

fn check_used(image: &mut Image, no: InodeNo, raw: &RawInode, bytes: &[u8]) -> Result<()> {
    let mode = u32::from(raw.i_mode.get());
    let stored = u32::from(raw.i_links_count.get());
    let Some(kind) = FileKind::from_mode(mode) else {
        bad(image, no, Flaw::BadMode);
        return Ok(());
    };
    image.inodes[no.0 as usize] = Known { kind: Some(kind), stored, counted: 0 };
    image.report.inodes += 1;
    if raw.i_obso_faddr.get() != 0 || raw.i_blocks_high.get() != 0 || raw.i_file_acl_high.get() != 0
    {
        bad(image, no, Flaw::NewerFields);
    }
    if raw.i_size_high.get() != 0 && !matches!(kind, FileKind::Regular | FileKind::Directory) {
        bad(image, no, Flaw::SizeBeyondFormat);
    }
    if raw.i_flags.get() & IMAGIC != 0 {
        bad(image, no, Flaw::AfsFlag);
    }
    if raw.i_flags.get() & INODE_FOREIGN != 0 {
        bad(image, no, Flaw::ForeignFlags);
    }
    let inode = match Inode::parse(no, bytes) {
        Ok(Some(inode)) => inode,
        Ok(None) => return Ok(()),
        Err(Error::Damaged(damage)) => {
            bad(image, no, damage.what);
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    image.used.extend(Feature::ALL.into_iter().filter(|feature| feature.is_used_by(&inode)));
    check_attributes(image, &inode, bytes)?;
    if inode.flags & INODE_INDEX != 0 && kind != FileKind::Directory {
        bad(image, no, Flaw::IndexedFile);
    } else if inode.flags & INODE_INDEX != 0 && !image.has_index() {
        bad(image, no, Flaw::IndexWithoutFeature);
    }
    check_blocks(image, &inode)
}

/// The results of a walk through an inode's pointers.
#[derive(Default)]
struct Walk {
    /// The data blocks of a directory or symbolic link, in file order.
    data: Vec<BlockNo>,
    keep: bool,
    blocks: u64,
    /// The index after the last mapped block of the file.
    end: u64,
    hole: Option<u32>,
}

fn check_blocks(image: &mut Image, inode: &Inode) -> Result<()> {
    let has_map = match inode.kind {
        FileKind::Regular | FileKind::Directory => true,
        FileKind::Symlink => return check_symlink(image, inode),
        _ => false,
    };
    if !has_map && inode.size != 0 {
        bad(image, inode.no, Flaw::SpecialSize);
    }
    let mut walk = Walk { keep: inode.kind == FileKind::Directory, ..Walk::default() };
    if has_map {
        walk_map(image, inode.no, &inode.map, &mut walk)?;
    }
    check_counts(image, inode, &walk);
    if inode.kind == FileKind::Directory {
        image.report.directories += 1;
        let indexed = inode.flags & INODE_INDEX != 0 && image.has_index();
        if let Some(hole) = walk.hole {
            complain(image, inode.no, Problem::Hole(hole));
        }
        let directory = Directory { blocks: walk.data, indexed, ..Directory::default() };
        image.directories.insert(inode.no, directory);
    }
    Ok(())
}

/// Checks a symbolic link. As in e2fsck, the size determines whether the target is in the inode,
/// and a NUL byte must follow the target.
fn check_symlink(image: &mut Image, inode: &Inode) -> Result<()> {
    let (size, mut walk) = (inode.size, Walk { keep: true, ..Walk::default() });
    let target: Vec<u8> = if size <= FAST_TARGET_MAX as u64 {
        inode.map.iter().flat_map(|word| word.to_le_bytes()).collect()
    } else {
        walk_map(image, inode.no, &inode.map, &mut walk)?;
        match walk.data.first() {
            Some(block) => image.cache.read(*block)?.to_vec(),
            None => Vec::new(),
        }
    };
    let length = target.iter().position(|byte| *byte == 0);
    if size == 0 || length.is_none_or(|length| length as u64 != size) {
        bad(image, inode.no, Flaw::SymlinkSize);
    }
    if walk.end > 1 {
        bad(image, inode.no, Flaw::SymlinkBlocks);
    }
    check_sectors(image, inode, &walk);
    Ok(())
}

fn walk_map(
    image: &mut Image,
    no: InodeNo,
    map: &[u32; MAP_ENTRIES],
    walk: &mut Walk,
) -> Result<()> {
    let block_size = image.geometry().block_size;
    pointer_tree::walk(map, block_size, WHOLE_FILE, &mut |at: &Pointer| {
        if !image.claim(no, at.block.0) {
            return Ok(None);
        }
        walk.blocks += 1;
        if at.level == 0 {
            walk.note(at.first, at.block);
            return Ok(None);
        }
        image.tables.insert(at.block, no);
        image.cache.read(at.block).map(Some)
    })
}

impl Walk {
    fn note(&mut self, logical: u64, block: BlockNo) {
        if logical > self.end && self.hole.is_none() {
            self.hole = u32::try_from(self.end).ok();
        }
        self.end = logical + 1;
        if self.keep {
            self.data.push(block);
        }
    }
}

fn check_counts(image: &mut Image, inode: &Inode, walk: &Walk) {
    let block = image.geometry().block_size.bytes_u64();
    let (size, end) = (inode.size, walk.end);
    let fits = match inode.kind {
        FileKind::Directory => size == end * block && end > 0,
        // A file may end within or just before its last mapped block.
        _ => end == 0 || size >= (end - 1) * block,
    };
    let largest = image.geometry().size_max();
    if !fits || size > largest {
        complain(image, inode.no, Problem::Size { size, blocks: end });
    }
    check_sectors(image, inode, walk);
}

fn check_sectors(image: &mut Image, inode: &Inode, walk: &Walk) {
    let attributes = u64::from(inode.xattr_block.is_some());
    let sectors = image.geometry().block_size.sectors();
    let counted = (walk.blocks + attributes) * u64::from(sectors);
    if u64::from(inode.sectors) != counted {
        complain(image, inode.no, Problem::Sectors { stored: inode.sectors, counted });
    }
}

fn check_attributes(image: &mut Image, inode: &Inode, bytes: &[u8]) -> Result<()> {
    let region = Inode::xattr_region(bytes);
    if region.len() >= 4
        && bytes.len() > INODE_BYTES
        && let Err(what) = Region::Inode.verify(region)
    {
        complain(image, inode.no, Problem::Unreadable(what));
    }
    let Some(block) = inode.xattr_block else { return Ok(()) };
    if let Some((_, owners)) = image.attributes.get_mut(&block) {
        *owners += 1;
        return Ok(());
    }
    if !image.claim(inode.no, block.0) {
        return Ok(());
    }
    let bytes = image.cache.read(block)?;
    if let Err(what) = Region::Block.verify(&bytes) {
        image.report.add(Subject::Inode(inode.no), Some(block), Problem::Unreadable(what));
    }
    image.attributes.insert(block, (reference_count(&bytes), 1));
    Ok(())
}

fn check_attribute_owners(image: &mut Image) {
    let mut wrong: Vec<_> = image
        .attributes
        .iter()
        .filter(|(_, (stored, counted))| stored != counted)
        .map(|(block, counts)| (*block, *counts))
        .collect();
    wrong.sort_unstable();
    for (block, (stored, counted)) in wrong {
        let problem = Problem::AttributeOwners { stored, counted };
        image.report.add(Subject::Block(block), Some(block), problem);
    }
}
