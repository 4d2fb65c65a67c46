//! The linear form: blocks of records in no order.

use super::entry::{self, Checked, Packer};
use super::insert::NewEntry;
use super::{DirectoryBlocksMut, Form, Rules, read_checked};
use crate::error::Result;
use crate::types::FileBlock;

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
