//! `lz4`: each data frame is a skippable frame with the header, followed by an lz4 frame of one
//! block.

use std::cell::RefCell;

use super::{CodecError, CodecSpec, Levels, fill, skippable};

pub const SPEC: CodecSpec = CodecSpec {
    number: 5,
    name: "lz4",
    help: "compresses quickly into lz4 frames",
    levels: Levels::NONE,
    compresses: true,
    encode,
    store,
    decode_into,
    container: skippable::container(None),
};

/// The lz4 frame header: magic number, version 1 with independent blocks, and blocks of up to 4
/// MiB. The last byte is the header checksum: the second byte of the XXH32 of the two bytes before
/// it.
const FRAME: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73];
/// The end mark of an lz4 frame: a block length of 0.
const END: [u8; 4] = [0; 4];
/// Flag in a block's length: the block is not compressed.
const STORED: u32 = 1 << 31;

thread_local! {
    /// Output buffer; the output may be larger than the input.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn encode(content: &[u8], _level: i32) -> Result<Vec<u8>, CodecError> {
    ROOM.with_borrow_mut(|room| {
        let bound = lz4_flex::block::get_maximum_output_size(content.len());
        room.resize(bound.max(room.len()), 0);
        let failed = CodecError { codec: SPEC.name, length: content.len() };
        let length = lz4_flex::block::compress_into(content, room).or(Err(failed))?;
        let mut body = Vec::new();
        append_frame(&mut body, &room[..length], 0);
        Ok(body)
    })
}

fn store(content: &[u8], body: &mut Vec<u8>) {
    append_frame(body, content, STORED);
}

fn append_frame(body: &mut Vec<u8>, block: &[u8], how: u32) {
    body.reserve_exact(block.len() + 15);
    body.extend(FRAME);
    if !block.is_empty() {
        body.extend((block.len() as u32 | how).to_le_bytes());
        body.extend(block);
    }
    body.extend(END);
}

fn decode_into(body: &[u8], content: &mut [u8]) -> Option<usize> {
    let blocks = body.strip_prefix(&FRAME)?.strip_suffix(&END)?;
    if blocks.is_empty() {
        return Some(0);
    }
    let (header, block) = blocks.split_first_chunk()?;
    let header = u32::from_le_bytes(*header);
    if (header & !STORED) as usize != block.len() {
        return None;
    }
    if header & STORED != 0 {
        return fill(content, block);
    }
    lz4_flex::block::decompress_into(block, content).ok()
}
