//! Packs a stored file that no mount uses.

use std::path::Path;
use std::sync::Arc;

use fslab_vfs::{FileSystem, Handle, Ino, LockMode, OpenMode, Request};

use super::{Tool, open_below};
use crate::context::Settings;
use crate::context::own_request;
use crate::error::{Error, Result};
use crate::frame::Identity;
use crate::pack::Packed;
use crate::stored_file::{OpenBelow, StoredFile};
use crate::{options, size_xattr, superblock};

/// Result of packing a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedFile {
    /// Outcome of packing.
    pub outcome: Packed,
    /// Space that the file took before, in bytes.
    pub before_bytes: u64,
    /// Space that the file takes now, in bytes.
    pub after_bytes: u64,
}

/// Packs a stored file in place, if that is worthwhile (see [`Tool::gains_by_packing`]). The file's
/// names, links, times and attributes are kept. `progress` receives the number of bytes written so
/// far.
///
/// # Errors
/// A mount uses the file. It is not a stored file. There is no room for a copy of its content. The
/// lower file system returns an error. The file remains intact in any case.
pub fn pack(path: &Path, progress: &dyn Fn(u64)) -> Result<PackedFile> {
    let failed = |source| Error::StoredFile { path: path.to_owned(), source };
    // Errors are ignored here, such as that of a damaged index. The file is opened again below,
    // which repairs it or returns the error. The tool must be dropped first, because a file can't
    // be locked twice.
    let always = Tool::open(path).and_then(|tool| tool.gains_only_by_tool()).unwrap_or(false);
    let mode = OpenMode::READ_WRITE;
    let (fs, ino, handle) = open_below(path, LockMode::Passing, mode).map_err(failed)?;
    let request = own_request();
    let identity = identify(&fs, &request, (ino, handle)).map_err(failed)?;
    let identity = identity.ok_or_else(|| Error::NoStoredFile { path: path.to_owned() })?;
    // A file without a size xattr may belong to a mount that does not keep sizes.
    let has_mark = size_xattr::read(&*fs, &request, ino).map_err(failed)?.is_some();
    let settings = options::of_packing(identity.codec, has_mark).map_err(failed)?;
    let whole_path = path.canonicalize().map_err(|error| failed(error.into()))?;
    // A mount would refuse a file with missing frames. Packing must refuse it too; otherwise the
    // packed file would seem complete.
    let settings = Settings { session: size_xattr::session_above(&whole_path), ..settings };
    pack_open(&fs, &request, (ino, handle), settings, always, progress).map_err(failed)
}

fn identify(
    fs: &Arc<dyn FileSystem>,
    request: &Request,
    (ino, handle): (Ino, Handle),
) -> fslab_vfs::Result<Option<Identity>> {
    let mut beginning = vec![0; superblock::BEGINNING_BYTES];
    let count = fs.read(request, ino, handle, 0, &mut beginning)?;
    Ok(superblock::identify(&beginning[..count]))
}

fn pack_open(
    fs: &Arc<dyn FileSystem>,
    request: &Request,
    (ino, handle): (Ino, Handle),
    settings: Settings,
    always: bool,
    progress: &dyn Fn(u64),
) -> fslab_vfs::Result<PackedFile> {
    let taken = || fs.getattr(request, ino, Some(handle)).map(|attr| attr.blocks * 512);
    let before_bytes = taken()?;
    let opened = OpenBelow { ino, handle, is_writable: true, is_new: false };
    let file = StoredFile::open(fs, &Arc::new(settings), request, opened)?;
    let mut done = 0;
    let mut goes_on = |bytes| {
        done += bytes;
        progress(done);
        true
    };
    let was_staging = file.end_staging(request)?;
    let outcome = match file.pack(request, &mut goes_on)? {
        Packed::Already if always => file.pack_now(request, &mut goes_on)?,
        Packed::Already if was_staging => Packed::Now,
        outcome => outcome,
    };
    if outcome != Packed::Already {
        file.settle(request)?;
        file.sync(request, false)?;
    }
    let after_bytes = taken()?;
    file.close(request)?;
    Ok(PackedFile { outcome, before_bytes, after_bytes })
}
