//! Takes a snapshot of a mounted tree with several threads, without leaving its file system.

use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fslab_sys::generation;
use fslab_vfs::Timestamp;
use parking_lot::Mutex;

use super::{Entry, EntryKind, ExtentList, NameKey, SnapshotWriter, Taken};
use crate::error::{Error, Result};
use crate::score::{FileLayout, extents_of_file, layout_of, open_itself};
use crate::table::Text;
use crate::walk::{present, walk};

/// The settings of a capture.
pub struct Capture {
    /// Number of threads.
    pub threads: usize,
    /// Whether to record the data that requires opening each file: its extents and its inode
    /// generation.
    pub layout: bool,
    /// With `layout`, whether to store the extents, in addition to the numbers of blocks and
    /// breaks.
    pub extents: bool,
    /// The key for anonymising names.
    pub key: Option<NameKey>,
    /// The current time, in nanoseconds since 1970.
    pub now_ns: i64,
}

/// Writes a snapshot of a tree and returns the number of its entries.
///
/// # Errors
/// Fails on I/O errors. Files that are removed during the capture are skipped.
pub fn capture(root: &Path, output: &Path, options: &Capture) -> Result<u64> {
    let top = std::fs::metadata(root).map_err(Error::file(root))?;
    let space = rustix::fs::statvfs(root).map_err(Error::file(root))?;
    if options.layout {
        let file = File::open(root).map_err(Error::file(root))?;
        rustix::fs::syncfs(&file).map_err(Error::file(root))?;
    }
    let writer = Mutex::new(SnapshotWriter::new(output));
    let capturer = Capturer {
        options,
        device: top.dev(),
        root: top.ino(),
        block_bytes: space.f_frsize.max(512),
        writer: &writer,
    };
    walk(root, options.threads, || (), |path, ()| capturer.directory(path))?;
    let hidden = options.key.is_some();
    writer.into_inner().finish(&Taken {
        taken_ns: options.now_ns,
        source: if hidden { "a tree".to_owned() } else { format!("tree {}", root.display()) },
        anonymised: hidden,
        volume_bytes: space.f_blocks * space.f_frsize,
        used_bytes: match is_whole(root, &top)? {
            true => (space.f_blocks - space.f_bfree) * space.f_frsize,
            false => 0,
        },
    })
}

/// Whether a directory is the root of its file system. If so, all used space belongs to its tree.
fn is_whole(root: &Path, top: &Metadata) -> Result<bool> {
    let above = root.join("..");
    let above = above.metadata().map_err(Error::file(&above))?;
    Ok(above.dev() != top.dev() || above.ino() == top.ino())
}

struct Capturer<'a> {
    options: &'a Capture,
    device: u64,
    root: u64,
    block_bytes: u64,
    writer: &'a Mutex<SnapshotWriter>,
}

impl Capturer<'_> {
    /// Records the entries of a directory and returns its subdirectories.
    fn directory(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let Some(own) = present(path.symlink_metadata()).map_err(Error::file(path))? else {
            return Ok(Vec::new());
        };
        let directory = if own.ino() == self.root { 0 } else { own.ino() };
        let Some(listing) = present(std::fs::read_dir(path)).map_err(Error::file(path))? else {
            return Ok(Vec::new());
        };
        let (mut directories, mut entries) = (Vec::new(), Vec::new());
        for child in listing {
            let child = child.map_err(Error::file(path))?;
            let place = child.path();
            let Some(status) = present(child.metadata()).map_err(Error::file(&place))? else {
                continue;
            };
            if status.dev() != self.device {
                continue;
            }
            entries.push(self.entry(&place, &status, directory, child.file_name().as_bytes())?);
            if status.is_dir() {
                directories.push(place);
            }
        }
        let mut writer = self.writer.lock();
        entries.into_iter().try_for_each(|entry| writer.push(entry))?;
        Ok(directories)
    }

    fn entry(&self, path: &Path, status: &Metadata, directory: u64, name: &[u8]) -> Result<Entry> {
        let kind = match status.file_type() {
            kind if kind.is_dir() => EntryKind::Directory,
            kind if kind.is_file() => EntryKind::File,
            kind if kind.is_symlink() => EntryKind::Symlink,
            _ => EntryKind::Other,
        };
        let asked = self.options.layout && matches!(kind, EntryKind::File | EntryKind::Directory);
        let opened = if asked { self.opened(path, kind, status.len())? } else { Entry::default() };
        let hidden = self.options.key.as_ref().map(|key| key.hide(name));
        Ok(Entry {
            inode: status.ino(),
            directory,
            kind,
            size: status.len(),
            stored: status.blocks() * 512,
            modified_ns: nanoseconds(status.mtime(), status.mtime_nsec()),
            changed_ns: nanoseconds(status.ctime(), status.ctime_nsec()),
            born_ns: status.created().map_or(0, |born| Timestamp::from(born).to_ns().max(0)),
            mode: status.mode() & 0o7777,
            uid: status.uid(),
            gid: status.gid(),
            links: u32::try_from(status.nlink()).unwrap_or(u32::MAX),
            name: hidden.unwrap_or_else(|| name.to_vec()).into(),
            ..opened
        })
    }

    /// Returns the data that requires opening a file or directory; an empty entry if it no longer
    /// exists.
    fn opened(&self, path: &Path, kind: EntryKind, size: u64) -> Result<Entry> {
        let Some(file) = present(open_itself(path)).map_err(Error::file(path))? else {
            return Ok(Entry::default());
        };
        let generation = generation::of(&file).map_err(Error::file(path))?.unwrap_or_default();
        if kind == EntryKind::Directory {
            return Ok(Entry { generation, ..Entry::default() });
        }
        let told = extents_of_file(&file).map_err(Error::extents(path))?;
        let layout = match told.left_out {
            None => layout_of(&told.extents, size, self.block_bytes),
            Some(_) => FileLayout::default(),
        };
        let (blocks, breaks) = (layout.blocks, layout.breaks);
        let list = ExtentList { extents: told.extents, flags: told.flags };
        let extents = if self.options.extents { list.to_text() } else { Text::default() };
        Ok(Entry { generation, blocks, breaks, extents, ..Entry::default() })
    }
}

fn nanoseconds(seconds: i64, rest: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}
