//! `gzip`: each data frame is a gzip member (RFC 1952) with the frame header in its extra field.
//!
//! Metadata frames are empty members with all data in the extra field. A packed file is a
//! multi-member file for `gzip -dc`. The encoder is libdeflate.

use std::cell::RefCell;
use std::collections::HashMap;

use libdeflater::{CompressionLvl, Compressor, Crc, Decompressor};

use super::{
    Body, CodecError, CodecSpec, Container, Levels, RECORD_BYTES, RecordBytes, record_behind,
};
use crate::format::HEAD_BYTES;

pub const SPEC: CodecSpec = CodecSpec {
    number: 3,
    name: "gzip",
    help: "compresses into gzip members (libdeflate)",
    levels: Levels { range: 1..=12, usual: "6" },
    compresses: true,
    encode,
    store,
    decode_into,
    container: Container {
        header_bytes: PREFIX_BYTES + RECORD_BYTES,
        wrap,
        unwrap: |header| record_behind(header, PREFIX_BYTES),
        pack,
        unpack,
        empty_head,
        is_text: false,
        closing: None,
    },
};

/// The first ten bytes of a member: magic number, method deflate, flag for an extra field, no time,
/// no extra flags, unknown operating system.
const MEMBER: [u8; 10] = [0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 255];
/// The name of fslab's subfield in the extra field.
const SUBFIELD: [u8; 2] = *b"FS";
/// Number of bytes before the subfield's data: [`MEMBER`], the length of the extra field, and the
/// name and length of the subfield.
const PREFIX_BYTES: usize = MEMBER.len() + 6;
/// The end of a member without content: an empty last block, a CRC of 0 and a length of 0.
const NO_CONTENT: [u8; 10] = [3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Size of the CRC32 and the length of the content, which follow the compressed content.
const TRAILER_BYTES: usize = 8;
/// Maximum length of a stored (uncompressed) deflate block.
const STORED_BYTES_MAX: usize = 65535;

thread_local! {
    static COMPRESSORS: RefCell<HashMap<i32, Compressor>> = RefCell::default();
    /// Output buffer; the output may be larger than the input.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::new(Decompressor::new());
}

fn encode(content: &[u8], level: i32) -> Result<Vec<u8>, CodecError> {
    let failed = CodecError { codec: SPEC.name, length: content.len() };
    COMPRESSORS.with_borrow_mut(|compressors| {
        let compressor = match compressors.entry(level) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                let level = CompressionLvl::new(level).or(Err(failed))?;
                place.insert(Compressor::new(level))
            }
        };
        let bound = compressor.deflate_compress_bound(content.len());
        ROOM.with_borrow_mut(|room| {
            room.resize(bound.max(room.len()), 0);
            let length = compressor.deflate_compress(content, room).or(Err(failed))?;
            Ok([&room[..length], &trailer(content)].concat())
        })
    })
}

fn store(content: &[u8], body: &mut Vec<u8>) {
    body.reserve_exact(content.len() + 5 * (content.len() / STORED_BYTES_MAX) + 13);
    let mut blocks = content.chunks(STORED_BYTES_MAX).peekable();
    while let Some(block) = blocks.next() {
        let length = block.len() as u16;
        body.push(u8::from(blocks.peek().is_none()));
        body.extend(length.to_le_bytes());
        body.extend((!length).to_le_bytes());
        body.extend(block);
    }
    if content.is_empty() {
        body.extend(&NO_CONTENT[..2]);
    }
    body.extend(trailer(content));
}

fn trailer(content: &[u8]) -> [u8; TRAILER_BYTES] {
    let mut crc = Crc::new();
    crc.update(content);
    let mut trailer = [0; TRAILER_BYTES];
    trailer[..4].copy_from_slice(&crc.sum().to_le_bytes());
    trailer[4..].copy_from_slice(&(content.len() as u32).to_le_bytes());
    trailer
}

fn decode_into(body: &[u8], content: &mut [u8]) -> Option<usize> {
    let deflated = body.len().checked_sub(TRAILER_BYTES).map(|end| &body[..end])?;
    DECOMPRESSOR
        .with_borrow_mut(|decompressor| decompressor.deflate_decompress(deflated, content).ok())
}

fn wrap(record: &RecordBytes, body: Body) -> Vec<u8> {
    let metadata = if let Body::Metadata(length) = body { length } else { 0 };
    let mut header = member(RECORD_BYTES + metadata).to_vec();
    header.extend(record);
    header
}

/// Returns the beginning of a member with this many bytes in the subfield.
fn member(subfield_bytes: usize) -> [u8; PREFIX_BYTES] {
    let mut member = [0; PREFIX_BYTES];
    member[..10].copy_from_slice(&MEMBER);
    member[10..12].copy_from_slice(&(subfield_bytes as u16 + 4).to_le_bytes());
    member[12..14].copy_from_slice(&SUBFIELD);
    member[14..].copy_from_slice(&(subfield_bytes as u16).to_le_bytes());
    member
}

fn pack(payload: &[u8]) -> Vec<u8> {
    [payload, &NO_CONTENT].concat()
}

fn unpack(body: &[u8]) -> Option<Vec<u8>> {
    body.strip_suffix(&NO_CONTENT).map(<[u8]>::to_vec)
}

fn empty_head() -> [u8; HEAD_BYTES as usize] {
    let mut head = [0; HEAD_BYTES as usize];
    let end = head.len() - NO_CONTENT.len();
    head[..PREFIX_BYTES].copy_from_slice(&member(end - PREFIX_BYTES));
    head[end..].copy_from_slice(&NO_CONTENT);
    head
}
