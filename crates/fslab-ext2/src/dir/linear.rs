//! The linear form: blocks of records in no order.

use super::entry::{self, Checked, Packer};
use super::insert::NewEntry;
use super::{DirectoryBlocksMut, Form, Rules, names, placed, read_checked, write_checked};
use crate::error::Result;
use crate::numbers::FileBlock;

/// Adds a block that holds one name.
pub(crate) fn append<B: DirectoryBlocksMut>(blocks: &mut B, new: &NewEntry<'_>) -> Result<()> {
    let block = blocks.grow()?;
    blocks.write(block, |bytes| {
        let mut packer = Packer::new(bytes, 0);
        packer.push(new.inode, new.kind, new.name);
        packer.finish();
    })
}

/// Gives back the blocks at the end that hold no name. The others stay where they are, because
/// somebody may be reading the directory by offset. For the same reason two blocks stay where one
/// would be indexed as soon as it is full.
pub(crate) fn trim<B: DirectoryBlocksMut>(blocks: &mut B, rules: &Rules) -> Result<()> {
    let least = if rules.form == Form::Indexed { 2 } else { 1 };
    let mut count = blocks.count();
    while count > least {
        let block = FileBlock(count - 1);
        let live = read_checked(blocks, block, |bytes| entry::live_bytes(bytes, 0))?;
        if live > 0 {
            break;
        }
        count -= 1;
    }
    if count < blocks.count() { blocks.shrink(count) } else { Ok(()) }
}

/// Moves all names of a linear directory to its front, without gaps, and gives the rest back.
///
/// Entries change their places: nobody may be reading the directory meanwhile.
///
/// # Errors
/// [`crate::Error::Damaged`], before anything of the damaged block is moved, and what the store
/// answers. Names may then be in two blocks, and are never in none.
pub fn compact<B: DirectoryBlocksMut>(blocks: &mut B) -> Result<()> {
    let mut target = 0;
    for source in 0..blocks.count() {
        let bytes = blocks.read(FileBlock(source), <[u8]>::to_vec)?;
        let mut rest = Vec::new();
        let found: std::result::Result<Vec<_>, _> = names(FileBlock(source), &bytes).collect();
        for name in placed(blocks, FileBlock(source), found)? {
            let Some(inode) = name.inode else { continue };
            rest.push(NewEntry { name: name.name, inode, kind: name.kind });
        }
        target = push_down(blocks, target, source, &rest)?;
    }
    blocks.shrink(target + 1)
}

/// Moves the names of block `source` into the blocks from `target` on, and answers the last one
/// that has any.
fn push_down<B: DirectoryBlocksMut>(
    blocks: &mut B,
    mut target: u32,
    source: u32,
    names: &[NewEntry<'_>],
) -> Result<u32> {
    let mut rest = names.iter().peekable();
    while target < source && rest.peek().is_some() {
        write_checked(blocks, FileBlock(target), |bytes| {
            pack_in_place(bytes, FileBlock(target))?;
            while let Some(new) = rest.peek() {
                if !new.put_anywhere(bytes)? {
                    break;
                }
                rest.next();
            }
            Ok(())
        })?;
        if rest.peek().is_some() {
            target += 1;
        }
    }
    if target < source {
        // What moved is gone from here, in case this block is filled in its turn.
        blocks.write(FileBlock(source), |bytes| entry::clear(bytes, 0))?;
        return Ok(target);
    }
    write_checked(blocks, FileBlock(source), |bytes| {
        if source == 0 {
            return pack_in_place(bytes, FileBlock(0));
        }
        let mut packer = Packer::new(bytes, 0);
        rest.for_each(|new| packer.push(new.inode, new.kind, new.name));
        packer.finish();
        Ok(())
    })?;
    Ok(source)
}

/// Joins the free space of a block at its end.
pub(crate) fn pack_in_place(bytes: &mut [u8], block: FileBlock) -> Checked<()> {
    let copy = bytes.to_vec();
    let live: std::result::Result<Vec<_>, _> = entry::Entries::of(&copy)
        .filter(|entry| entry.as_ref().map_or(true, entry::Entry::is_live))
        .collect();
    let live = live?;
    if block.0 == 0 {
        super::dots(&copy)?;
    }
    let mut packer = Packer::new(bytes, 0);
    for entry in live {
        if let Some(inode) = entry.inode {
            packer.push(inode, entry.kind, entry.name);
        }
    }
    packer.finish();
    Ok(())
}
