//! Copies in archives: writing an object to several archives at once, and verifying a copy by
//! reading it back. A copy is not read back if the archive proved its transfer by a checksum.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use crate::archive::{Archive, Container, ContainerKind, Proof, Upload};
use crate::error::{Error, Result};
use crate::id::Id;
use crate::object::reader::ObjectReader;
use crate::object::writer::{BATCH_BLOCKS, Sink};
use crate::parallel::in_shares;
use crate::rate_limit::Pace;
use crate::stored::Version;
use crate::stored::bytes::Corrupt;

pub(super) mod combined;
pub(super) mod recording;
pub(super) mod repair;
pub(super) mod scrubbing;
pub(super) mod tree_copies;

/// Tries one copy after the other until one returns a result. If none does, returns the first
/// error, or `none()` if there are no copies.
pub(super) fn first_answer<C, T, E>(
    copies: impl IntoIterator<Item = C>,
    none: impl FnOnce() -> E,
    mut ask: impl FnMut(C) -> Result<T, E>,
) -> Result<T, E> {
    let mut problem = None;
    for copy in copies {
        match ask(copy) {
            Ok(answer) => return Ok(answer),
            Err(error) => drop(problem.get_or_insert(error)),
        }
    }
    Err(problem.unwrap_or_else(none))
}

/// Fills a buffer from a container; fails with `UnexpectedEof` if the container is too short.
fn read_exactly(
    archive: &Arc<dyn Archive>,
    container: Container,
    offset: u64,
    buffer: &mut [u8],
) -> io::Result<()> {
    match archive.read(container, offset, buffer)? {
        count if count == buffer.len() => Ok(()),
        _ => Err(ErrorKind::UnexpectedEof.into()),
    }
}

/// An upload, and the archive to which it goes.
type CopyUpload<'a> = (&'a Arc<dyn Archive>, Box<dyn Upload>);

/// A sink that writes to all archives that receive a copy.
pub(super) struct CopyWriter<'a> {
    uploads: Vec<CopyUpload<'a>>,
    container: Id,
    pace: Pace<'a>,
}

impl<'a> CopyWriter<'a> {
    pub(super) fn begin(
        archives: &'a [Arc<dyn Archive>],
        container: Container,
        pace: Pace<'a>,
    ) -> Result<Self> {
        let mut uploads = Vec::new();
        for archive in archives {
            let label = archive.label();
            let upload = archive.begin(container).map_err(Error::archive(label, container.1))?;
            uploads.push((archive, upload));
        }
        Ok(Self { uploads, container: container.1, pace })
    }

    /// Makes every copy durable. The caller must read back the copies with [`Proof::ReadBack`].
    pub(super) fn finish(self) -> Result<Vec<(&'a Arc<dyn Archive>, Proof)>> {
        let finish = |(archive, upload): CopyUpload<'a>| {
            let proof = upload.finish();
            Ok((archive, proof.map_err(Error::archive(archive.label(), self.container))?))
        };
        self.uploads.into_iter().map(finish).collect()
    }
}

impl Sink for CopyWriter<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        for (archive, upload) in &mut self.uploads {
            self.pace.pass(bytes.len() as u64)?;
            upload.write(bytes).map_err(Error::archive(archive.label(), self.container))?;
        }
        Ok(())
    }
}

/// Verifies a copy by reading it back, without the blocks in other objects. Cached data is dropped
/// first, so that the bytes come from the disk and not from the kernel's page cache.
pub(super) fn verify(archive: &Arc<dyn Archive>, version: &Version, pace: Pace<'_>) -> Result<()> {
    archive.forget((KIND, version.location.container));
    let reader = ObjectReader::open(archive, version)?;
    let verify_block = |block: &u64| {
        pace.check()?;
        if reader.is_zeros(*block)? || !reader.is_own(*block)? {
            return Ok(());
        }
        pace.pass(reader.stored_bytes(*block)?)?;
        reader.block(*block).map(drop)
    };
    let mut blocks = 0..reader.blocks();
    loop {
        let mut batch: Vec<u64> = blocks.by_ref().take(BATCH_BLOCKS).collect();
        if batch.is_empty() {
            return Ok(());
        }
        let verified = in_shares(&mut batch, 2, |share| share.iter().try_for_each(verify_block));
        verified.into_iter().collect::<Result<()>>()?;
    }
}

const KIND: ContainerKind = ContainerKind::Files;

/// Number of bytes that are written or read at a time, a multiple of the chunk size.
const PIECE: usize = 1 << 20;

/// How each copy of a container was proved, by archive.
pub(super) type Proofs = Vec<(Id, Proof)>;

/// Calls `read` with each archive that did not prove its copy by a checksum. Returns all proofs.
pub(super) fn read_back(
    copies: Vec<(&Arc<dyn Archive>, Proof)>,
    mut read: impl FnMut(&Arc<dyn Archive>) -> Result<()>,
) -> Result<Proofs> {
    for (archive, proof) in &copies {
        if *proof == Proof::ReadBack {
            read(archive)?;
        }
    }
    Ok(copies.into_iter().map(|(archive, proof)| (archive.id(), proof)).collect())
}

/// Writes a container from memory to archives, and reads it back from those that do not prove it by
/// a checksum.
pub(super) fn put_container(
    archives: &[Arc<dyn Archive>],
    container: Id,
    bytes: &[u8],
    pace: Pace<'_>,
) -> Result<Proofs> {
    let mut copies = CopyWriter::begin(archives, (KIND, container), pace)?;
    for piece in bytes.chunks(PIECE) {
        pace.check()?;
        copies.put(piece)?;
    }
    read_back(copies.finish()?, |archive| holds(archive, container, bytes, pace))
}

fn holds(archive: &Arc<dyn Archive>, container: Id, bytes: &[u8], pace: Pace<'_>) -> Result<()> {
    archive.forget((KIND, container));
    let mut buffer = vec![0; PIECE.min(bytes.len())];
    for (number, piece) in bytes.chunks(PIECE).enumerate() {
        pace.pass(piece.len() as u64)?;
        let (offset, found) = ((number * PIECE) as u64, &mut buffer[..piece.len()]);
        let read = archive.read((KIND, container), offset, found);
        let count = read.map_err(Error::archive(archive.label(), container))?;
        if count != piece.len() || found != piece {
            let what =
                Corrupt("the data that was read back differs from the data that was written");
            return Err(Error::damaged(archive.label(), container, what));
        }
    }
    Ok(())
}
