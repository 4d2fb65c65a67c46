//! Encodes before the file's lock is taken, so that several writers encode in parallel. The kernel
//! sends the dirty pages of one file in several concurrent requests.

use fslab_vfs::Result;

use super::context::Settings;
use super::encoder::{Encoded, encode_all};
use super::frame::Encoding;
use super::reader::{Piece, pieces};

/// Encoded bodies of the whole chunks in one write.
#[derive(Default)]
pub struct PreEncoded {
    shape: Option<Encoding>,
    bodies: Vec<(u64, Encoded)>,
}

impl PreEncoded {
    /// Encodes the whole chunks in a write at `offset`.
    ///
    /// # Errors
    /// `ENOMEM` if encoding fails.
    pub fn new(settings: &Settings, shape: Encoding, offset: u64, data: &[u8]) -> Result<Self> {
        let Encoding { codec, chunk_bytes } = shape;
        if !codec.compresses {
            return Ok(Self::default());
        }
        let is_whole = |piece: &Piece| u64::from(piece.end - piece.start) == chunk_bytes;
        let whole = pieces(chunk_bytes, offset, data.len() as u64).filter(is_whole);
        let (chunks, contents): (Vec<u64>, Vec<&[u8]>) = whole
            .map(|piece| (piece.chunk, &data[piece.at..piece.at + chunk_bytes as usize]))
            .unzip();
        let encoded = encode_all(settings, codec, &contents)?;
        Ok(Self { shape: Some(shape), bodies: chunks.into_iter().zip(encoded).collect() })
    }

    /// Returns the body of a chunk, if the file still has the encoding that was used.
    pub fn take(&mut self, shape: Encoding, chunk: u64) -> Option<Encoded> {
        let is_same = |prepared: &Encoding| {
            std::ptr::eq(prepared.codec, shape.codec) && prepared.chunk_bytes == shape.chunk_bytes
        };
        self.shape.as_ref().filter(|prepared| is_same(prepared))?;
        let at = self.bodies.iter().position(|(known, _)| *known == chunk)?;
        Some(self.bodies.swap_remove(at).1)
    }
}
