//! Skippable frames, common to zstd and lz4: a magic number, a length, and arbitrary bytes.

use super::{Body, Closing, Container, RECORD_BYTES, RecordBytes, record_behind};
use crate::format::HEAD_BYTES;

/// The first of the sixteen magic numbers that mean "skip this".
const MAGIC: u32 = 0x184D_2A50;
const PREFIX_BYTES: usize = 8;

/// Makes a container of skippable frames. `closing` makes the seek table of a packed file, if the
/// format has one.
pub const fn container(closing: Option<Closing>) -> Container {
    Container {
        header_bytes: PREFIX_BYTES + RECORD_BYTES,
        wrap,
        unwrap: |header| record_behind(header, PREFIX_BYTES),
        pack: <[u8]>::to_vec,
        unpack: |body| Some(body.to_vec()),
        empty_head,
        is_text: false,
        closing,
    }
}

/// Returns the eight bytes before the skipped data: the magic number and the data's length.
pub fn prefix(magic_number: u32, length: usize) -> [u8; PREFIX_BYTES] {
    let mut prefix = [0; PREFIX_BYTES];
    prefix[..4].copy_from_slice(&(MAGIC + magic_number).to_le_bytes());
    prefix[4..].copy_from_slice(&(length as u32).to_le_bytes());
    prefix
}

fn wrap(record: &RecordBytes, body: Body) -> Vec<u8> {
    let metadata = if let Body::Metadata(length) = body { length } else { 0 };
    let mut header = prefix(0, RECORD_BYTES + metadata).to_vec();
    header.extend(record);
    header
}

fn empty_head() -> [u8; HEAD_BYTES as usize] {
    let mut head = [0; HEAD_BYTES as usize];
    let skipped = head.len() - PREFIX_BYTES;
    head[..PREFIX_BYTES].copy_from_slice(&prefix(0, skipped));
    head
}
