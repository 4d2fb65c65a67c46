//! Copies in archives: writing one to several archives at once, and verifying it by reading it back.

use std::sync::Arc;

use fslab_vfs::Request;

use crate::archive::{Archive, ContainerKind, Upload};
use crate::error::{Error, Result};
use crate::id::Id;
use crate::object::reader::ObjectReader;
use crate::object::writer::Sink;
use crate::rate_limit::RateLimits;
use crate::stored::Version;
use crate::stored::bytes::Corrupt;

pub(in crate::engine) mod combined;
pub(in crate::engine) mod recording;
pub(in crate::engine) mod repair;
pub(in crate::engine) mod scrubbing;
pub(in crate::engine) mod tree_copies;

/// All archives that take a copy, as one sink.
pub(super) struct CopyWriter<'a> {
    uploads: Vec<(String, Box<dyn Upload>)>,
    container: Id,
    pace: RateLimits<'a>,
    request: &'a Request,
}

impl<'a> CopyWriter<'a> {
    pub(super) fn begin(
        archives: &[Arc<dyn Archive>],
        container: Id,
        pace: RateLimits<'a>,
        request: &'a Request,
    ) -> Result<Self> {
        let mut uploads = Vec::new();
        for archive in archives {
            let label = archive.label();
            let upload = archive.begin(ContainerKind::Files, container);
            uploads.push((label.to_owned(), upload.map_err(failed(label, container))?));
        }
        Ok(Self { uploads, container, pace, request })
    }

    /// Makes every copy durable.
    pub(super) fn finish(self) -> Result<()> {
        let container = self.container;
        self.uploads
            .into_iter()
            .try_for_each(|(archive, upload)| upload.finish().map_err(failed(&archive, container)))
    }
}

impl Sink for CopyWriter<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        for (archive, upload) in &mut self.uploads {
            self.pace.pass(bytes.len() as u64, self.request)?;
            upload.write(bytes).map_err(failed(archive, self.container))?;
        }
        Ok(())
    }
}

pub(super) fn failed(archive: &str, container: Id) -> impl FnOnce(std::io::Error) -> Error {
    let archive = archive.to_owned();
    move |source| Error::Archive { archive, container, source }
}

/// Reads a copy back, as it is there now: from the disk, not from what the kernel remembers of its
/// being written.
pub(super) fn verify(
    archive: &Arc<dyn Archive>,
    version: &Version,
    request: &Request,
    pace: RateLimits<'_>,
) -> Result<()> {
    archive.forget(ContainerKind::Files, version.location.container);
    let reader = ObjectReader::open(archive, version)?;
    for block in 0..reader.blocks() {
        request.cancellation.check().or(Err(Error::Interrupted))?;
        if !reader.is_zeros(block)? {
            pace.pass(reader.stored_bytes(block)?, request)?;
            reader.block(block)?;
        }
    }
    Ok(())
}

/// Bytes that are written, and read back, in one piece.
const PIECE: usize = 1 << 20;

/// Puts a container that is in memory into archives, and reads it back from each.
pub(super) fn put_container(
    archives: &[Arc<dyn Archive>],
    container: Id,
    bytes: &[u8],
    request: &Request,
    pace: RateLimits<'_>,
) -> Result<()> {
    let mut copies = CopyWriter::begin(archives, container, pace, request)?;
    for piece in bytes.chunks(PIECE) {
        request.cancellation.check().or(Err(Error::Interrupted))?;
        copies.put(piece)?;
    }
    copies.finish()?;
    archives.iter().try_for_each(|archive| holds(archive, container, bytes, request, pace))
}

fn holds(
    archive: &Arc<dyn Archive>,
    container: Id,
    bytes: &[u8],
    request: &Request,
    pace: RateLimits<'_>,
) -> Result<()> {
    let kind = ContainerKind::Files;
    archive.forget(kind, container);
    let mut buffer = vec![0; PIECE.min(bytes.len())];
    for (number, piece) in bytes.chunks(PIECE).enumerate() {
        pace.pass(piece.len() as u64, request)?;
        let (offset, found) = ((number * PIECE) as u64, &mut buffer[..piece.len()]);
        let read = archive.read(kind, container, offset, found);
        let count = read.map_err(failed(archive.label(), container))?;
        if count != piece.len() || found != piece {
            let what = Corrupt("what was written is not what is read back");
            let archive = archive.label().to_owned();
            return Err(Error::Damaged { archive, object: container, what });
        }
    }
    Ok(())
}
