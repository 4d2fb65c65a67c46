//! Inserts a name at the position that a search returned.

use fslab_vfs::Errno;

use super::entry::{self, EntryKind, NewEntry};
use super::{DirectoryBlocksMut, Form, Vacancy, damaged, drop_unused_index, htree, write_checked};
use crate::error::Result;
use crate::flaw::Flaw;
use crate::types::{FileBlock, InodeNo};

/// Inserts a name of 1 to 255 bytes, which [`super::find()`] did not find.
///
/// # Errors
/// `ENOSPC` if the directory cannot grow or the index is full; the directory is then unchanged.
/// Also [`crate::Error::Damaged`] and errors of reading or writing a block.
pub fn insert<B: DirectoryBlocksMut>(
    blocks: &mut B,
    vacancy: &Vacancy,
    name: &[u8],
    inode: InodeNo,
    kind: EntryKind,
) -> Result<()> {
    if name.is_empty() || name.len() > entry::NAME_MAX {
        return Err(Errno::INVAL.into());
    }
    let new = NewEntry { name, inode, kind: blocks.rules().told(kind) };
    drop_unused_index(blocks, vacancy.leaf.is_some())?;
    if let Some((block, offset)) = vacancy.room {
        return write_checked(blocks, block, |bytes| new.put_at(bytes, offset));
    }
    match vacancy.leaf {
        Some((_, hash)) => htree::insert(blocks, hash.major, &new),
        None => outgrow(blocks, &new),
    }
}

/// Extends a full linear directory by a block, or converts it to an indexed one. As in the kernel,
/// only a directory of one block is converted.
fn outgrow<B: DirectoryBlocksMut>(blocks: &mut B, new: &NewEntry<'_>) -> Result<()> {
    if blocks.count() == 0 {
        return Err(damaged(blocks, FileBlock(0), Flaw::NoDirectoryBlocks));
    }
    if blocks.rules().form == Form::Indexed && blocks.count() == 1 {
        htree::convert(blocks)?;
        let hash = blocks.rules().hasher.hash(new.name).major;
        htree::insert(blocks, hash, new)
    } else {
        let block = blocks.grow()?;
        blocks.write(block, |bytes| {
            let size = bytes.len();
            entry::put(bytes, 0, size, new.inode, new.kind, new.name);
        })
    }
}
