//! `zstd`: each data frame is a skippable frame with the header, followed by a zstd frame (RFC
//! 8878).
//!
//! A packed file ends with the seek table of zstd's seekable format. Tools that support it can read
//! at any offset.

use std::cell::RefCell;
use std::collections::HashMap;

use ::zstd::bulk::{Compressor, Decompressor};

use super::skippable::{self, prefix};
use super::{CodecError, CodecSpec, Levels};

pub const SPEC: CodecSpec = CodecSpec {
    number: 4,
    name: "zstd",
    help: "compresses into zstd frames, seekable when packed",
    levels: Levels { range: 1..=19, usual: "3" },
    compresses: true,
    encode,
    store,
    decode_into,
    container: skippable::container(Some(seek_table)),
};

const FRAME_MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();
/// Frame header descriptor: one segment, content size of four bytes, no checksum, no dictionary.
const DESCRIPTOR: u8 = 0b1010_0000;
/// Maximum size of a block in a zstd frame.
const BLOCK_BYTES_MAX: usize = 128 << 10;
/// The number of the skippable frame with a seek table, and the magic number at its end.
const SEEK_TABLE_NUMBER: u32 = 0xE;
const SEEK_TABLE_MAGIC: u32 = 0x8F92_EAB1;

thread_local! {
    static COMPRESSORS: RefCell<HashMap<i32, Compressor<'static>>> = RefCell::default();
    /// Output buffer; the output may be larger than the input.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

fn encode(content: &[u8], level: i32) -> Result<Vec<u8>, CodecError> {
    let failed = CodecError { codec: SPEC.name, length: content.len() };
    COMPRESSORS.with_borrow_mut(|compressors| {
        let compressor = match compressors.entry(level) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(Compressor::new(level).or(Err(failed))?)
            }
        };
        ROOM.with_borrow_mut(|room| {
            let bound = ::zstd::zstd_safe::compress_bound(content.len());
            room.resize(bound.max(room.len()), 0);
            // A slice keeps its length, so the buffer is cleared only when it grows.
            let length = compressor.compress_to_buffer(content, &mut room[..]).or(Err(failed))?;
            Ok(room[..length].to_vec())
        })
    })
}

/// Appends a zstd frame of raw (uncompressed) blocks.
fn store(content: &[u8], body: &mut Vec<u8>) {
    body.reserve_exact(content.len() + 3 * (content.len() / BLOCK_BYTES_MAX) + 16);
    body.extend(FRAME_MAGIC);
    body.push(DESCRIPTOR);
    body.extend((content.len() as u32).to_le_bytes());
    let mut blocks = content.chunks(BLOCK_BYTES_MAX).peekable();
    if content.is_empty() {
        body.extend(block_header(0, true));
    }
    while let Some(block) = blocks.next() {
        body.extend(block_header(block.len(), blocks.peek().is_none()));
        body.extend(block);
    }
}

/// Makes the header of a raw block: the flag of the last block, type 0, and the length.
fn block_header(length: usize, is_last: bool) -> [u8; 3] {
    let header = (length as u32) << 3 | u32::from(is_last);
    let [low, middle, high, _] = header.to_le_bytes();
    [low, middle, high]
}

fn decode_into(body: &[u8], content: &mut [u8]) -> Option<usize> {
    DECOMPRESSOR.with_borrow_mut(|decompressor| {
        if decompressor.is_none() {
            *decompressor = Decompressor::new().ok();
        }
        decompressor.as_mut()?.decompress_to_buffer(body, content).ok()
    })
}

/// Makes a skippable frame with the encoded and decoded lengths of all frames before it.
fn seek_table(frames: &[(u32, u32)]) -> Vec<u8> {
    let length = frames.len() * 8 + 9;
    let mut table = prefix(SEEK_TABLE_NUMBER, length).to_vec();
    for (encoded, decoded) in frames {
        table.extend(encoded.to_le_bytes());
        table.extend(decoded.to_le_bytes());
    }
    table.extend((frames.len() as u32).to_le_bytes());
    // The table has no checksums.
    table.push(0);
    table.extend(SEEK_TABLE_MAGIC.to_le_bytes());
    table
}
