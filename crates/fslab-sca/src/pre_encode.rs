//! Encodes chunks before the file's lock is taken, so that several writers encode in parallel. The
//! kernel sends the dirty pages of one file in several concurrent requests.

use fslab_vfs::Result;

use super::context::Settings;
use super::encoder::{Encoded, encode_all};
use super::frame::Encoding;
use super::reader::{Piece, pieces};

/// Encoded bodies of the complete chunks in one write.
#[derive(Default)]
pub struct PreEncoded {
    encoding: Option<Encoding>,
    /// Offset of the write.
    offset: u64,
    bodies: Vec<(u64, Encoded)>,
}

impl PreEncoded {
    /// Encodes the complete chunks in a write at `offset`.
    ///
    /// # Errors
    /// `ENOMEM` if encoding fails.
    pub fn new(settings: &Settings, encoding: Encoding, offset: u64, data: &[u8]) -> Result<Self> {
        let Encoding { codec, chunk_bytes } = encoding;
        if !codec.compresses {
            return Ok(Self::default());
        }
        let is_whole = |piece: &Piece| u64::from(piece.end - piece.start) == chunk_bytes;
        let whole = pieces(chunk_bytes, offset, data.len() as u64).filter(is_whole);
        let (chunks, contents): (Vec<u64>, Vec<&[u8]>) =
            whole.map(|piece| (piece.chunk, piece.of(data))).unzip();
        let encoded = encode_all(settings, codec, &contents)?;
        let bodies = chunks.into_iter().zip(encoded).collect();
        Ok(Self { encoding: Some(encoding), offset, bodies })
    }

    /// Drops the bodies if the write has another offset or encoding than expected.
    pub fn keep_if(&mut self, encoding: Encoding, offset: u64) {
        if self.encoding != Some(encoding) || self.offset != offset {
            self.bodies.clear();
        }
    }

    /// Returns the body of a chunk.
    pub fn take(&mut self, chunk: u64) -> Option<Encoded> {
        let at = self.bodies.iter().position(|(known, _)| *known == chunk)?;
        Some(self.bodies.swap_remove(at).1)
    }
}
