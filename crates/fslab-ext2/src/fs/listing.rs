//! Lists directories and outlines their indexes. Entries are copied in batches, so that the sink
//! may call the file system.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fslab_vfs::{DirectoryEntry, DirectorySink, Errno, FileKind, Ino, Request};

use super::handles::Listing;
use super::{Ext2, to_ino, to_no};
use crate::dir::outline::{Branch, outline};
use crate::dir::{self, Cookie, DirectoryBlocks};
use crate::error::Result;
use crate::types::InodeNo;

/// Number of entries that are copied under one hold of the lock.
const LISTING_PIECE: usize = 256;

struct Item {
    ino: Ino,
    kind: Option<FileKind>,
    name: Vec<u8>,
    next: u64,
}

impl Ext2 {
    /// Calls `visit` for every index block and leaf of a directory, parents before children.
    /// Returns `false` for a directory without an index.
    ///
    /// # Errors
    /// `ENOTDIR`, damage, or an error of the device.
    pub fn index_of(&self, directory: Ino, visit: &mut dyn FnMut(Branch)) -> Result<bool> {
        let volume = self.volume();
        let view = volume.directory(to_no(directory)?)?;
        let indexed = view.is_indexed();
        if indexed {
            outline(&view, visit)?;
        }
        Ok(indexed)
    }

    /// Lists a directory from `offset` until the sink refuses an entry.
    pub(super) fn list(
        &self,
        request: &Request,
        (no, listing): (InodeNo, Listing),
        offset: u64,
        sink: &mut DirectorySink<'_>,
    ) -> Result<()> {
        let is_due = || {
            let volume = self.volume.read();
            Result::Ok(volume.access_is_due(&volume.inode(no)?, request.now))
        };
        if offset == 0 && is_due()? {
            self.change().touch_access(no, request);
        }
        let mut from = Cookie(offset);
        loop {
            let piece = self.list_piece(no, &listing, from)?;
            let Some(last) = piece.last() else { return Ok(()) };
            from = Cookie(last.next);
            for item in &piece {
                let name = OsStr::from_bytes(&item.name);
                let (ino, kind, next_offset) = (item.ino, item.kind, item.next);
                if !sink(DirectoryEntry { ino, kind, next_offset, name }) {
                    return Ok(());
                }
            }
        }
    }

    /// Returns the next entries of a listing. Fails with `ENOENT` for a removed directory, which
    /// does not even contain `.`.
    fn list_piece(&self, no: InodeNo, listing: &Listing, from: Cookie) -> Result<Vec<Item>> {
        let volume = self.volume.read();
        let inode = volume.inode(no)?;
        if inode.links == 0 {
            return Err(Errno::NOENT.into());
        }
        let mut piece = Vec::new();
        let view = volume.directory(no)?;
        let sink = &mut |listed: dir::Listed<'_>| {
            if piece.len() == LISTING_PIECE {
                return false;
            }
            piece.push(Item {
                ino: to_ino(listed.inode),
                kind: listed.kind.file_kind(),
                name: listed.name.to_vec(),
                next: listed.next.0,
            });
            true
        };
        match listing {
            None => dir::list(&view, from, sink)?,
            Some(order) => order.lock().list(&view, from, sink)?,
        }
        Ok(piece)
    }
}
