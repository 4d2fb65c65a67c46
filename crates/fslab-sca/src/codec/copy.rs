//! `copy`: a frame header, followed by the unencoded bytes of a chunk.
//!
//! It runs the whole layer without encoding, and so measures the cost of the layer itself. It
//! corresponds to Copyfs in Zadok et al. (2001).

use super::{CodecSpec, Container, Levels, RECORD_BYTES, fill, record_behind};
use crate::format::HEAD_BYTES;

pub const SPEC: CodecSpec = CodecSpec {
    number: 1,
    name: "copy",
    help: "stores chunks without encoding, to measure the cost of the layer itself",
    levels: Levels::NONE,
    compresses: false,
    encode: |content, _| Ok(content.to_vec()),
    store: |content, body| body.extend_from_slice(content),
    decode_into: |body, content| fill(content, body),
    container: Container {
        header_bytes: RECORD_BYTES,
        wrap: |record, _| record.to_vec(),
        unwrap: |header| record_behind(header, 0),
        pack: <[u8]>::to_vec,
        unpack: |body| Some(body.to_vec()),
        empty_head: || [0; HEAD_BYTES as usize],
        is_text: false,
        closing: None,
    },
};
