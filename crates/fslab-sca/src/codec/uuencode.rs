//! `uuencode`: printable text only; each data frame is a section that `uudecode` decodes.
//!
//! Files become a third larger; this is the expanding algorithm of Zadok et al. (2001). Frame
//! headers are lines in base64 before the section; `uudecode` skips everything before `begin`.
//! Content is never stored unencoded.

use data_encoding::BASE64;

use super::{CodecSpec, Container, Levels, RECORD_BYTES};
use crate::format::HEAD_BYTES;

pub const SPEC: CodecSpec = CodecSpec {
    number: 2,
    name: "uuencode",
    help: "encodes as printable text, which is a third larger",
    levels: Levels::NONE,
    compresses: false,
    encode: |content, _| {
        let mut body = Vec::new();
        store(content, &mut body);
        Ok(body)
    },
    store,
    decode_into,
    container: Container {
        header_bytes: HEADER_BYTES,
        wrap: |record, _| wrap(record),
        unwrap,
        pack,
        unpack,
        empty_head,
        is_text: true,
        closing: None,
    },
};

/// Prefix of a header line.
const LABEL: &[u8] = b"fslab:";
/// Length of a record in base64: 72 bytes become 96 characters, without padding.
const ARMOURED_BYTES: usize = RECORD_BYTES / 3 * 4;
const HEADER_BYTES: usize = LABEL.len() + ARMOURED_BYTES + 1;

const BEGIN: &[u8] = b"begin 644 chunk\n";
const END: &[u8] = b"`\nend\n";
/// Number of content bytes in a full line.
const LINE_BYTES: usize = 45;
/// Characters in a line of metadata: few enough for any line-based program.
const METADATA_LINE_BYTES: usize = 76;

/// Appends content as a section of encoded lines. Raw content has this form too, because the file
/// contains only printable text.
fn store(content: &[u8], body: &mut Vec<u8>) {
    body.reserve_exact(content.len() / LINE_BYTES * 62 + 96);
    body.extend(BEGIN);
    for line in content.chunks(LINE_BYTES) {
        body.push(character(line.len() as u8));
        for group in line.chunks(3) {
            body.extend(encode_group(group));
        }
        body.push(b'\n');
    }
    body.extend(END);
}

/// Encodes six bits as a character. Zero is a backtick, because programs strip spaces at line ends.
fn character(bits: u8) -> u8 {
    if bits == 0 { b'`' } else { bits + b' ' }
}

fn encode_group(group: &[u8]) -> [u8; 4] {
    let byte = |index: usize| group.get(index).copied().unwrap_or(0);
    let (first, second, third) = (byte(0), byte(1), byte(2));
    [
        character(first >> 2),
        character(first << 4 & 0x30 | second >> 4),
        character(second << 2 & 0x3c | third >> 6),
        character(third & 0x3f),
    ]
}

fn decode_into(body: &[u8], content: &mut [u8]) -> Option<usize> {
    let mut lines = body.strip_prefix(BEGIN)?.strip_suffix(END)?;
    let mut done = 0;
    while let Some((count, rest)) = lines.split_first() {
        let count = usize::from(bits(*count)?);
        let (line, rest) = rest.split_at_checked(count.div_ceil(3) * 4)?;
        lines = rest.strip_prefix(b"\n")?;
        if count == 0 {
            return None;
        }
        decode_line(line, content.get_mut(done..done + count)?)?;
        done += count;
    }
    Some(done)
}

fn decode_line(line: &[u8], content: &mut [u8]) -> Option<()> {
    for (group, place) in line.chunks_exact(4).zip(content.chunks_mut(3)) {
        let [first, second, third, fourth] =
            [bits(group[0])?, bits(group[1])?, bits(group[2])?, bits(group[3])?];
        let bytes = [first << 2 | second >> 4, second << 4 | third >> 2, third << 6 | fourth];
        place.copy_from_slice(&bytes[..place.len()]);
    }
    Some(())
}

fn bits(character: u8) -> Option<u8> {
    match character {
        b'`' => Some(0),
        b'!'..=b'_' => Some(character - b' '),
        _ => None,
    }
}

fn wrap(record: &[u8]) -> Vec<u8> {
    let mut header = LABEL.to_vec();
    header.extend(BASE64.encode(record).bytes());
    header.push(b'\n');
    header
}

fn unwrap(header: &[u8]) -> Option<[u8; RECORD_BYTES]> {
    let armoured = header.get(LABEL.len()..LABEL.len() + ARMOURED_BYTES)?;
    BASE64.decode(armoured).ok()?.try_into().ok()
}

fn pack(payload: &[u8]) -> Vec<u8> {
    let text = BASE64.encode(payload);
    let mut body = Vec::with_capacity(text.len() + text.len() / METADATA_LINE_BYTES + 1);
    for line in text.as_bytes().chunks(METADATA_LINE_BYTES) {
        body.extend(line);
        body.push(b'\n');
    }
    body
}

fn unpack(body: &[u8]) -> Option<Vec<u8>> {
    let text: Vec<u8> = body.iter().copied().filter(|byte| *byte != b'\n').collect();
    BASE64.decode(&text).ok()
}

/// Returns a head of spaces, with an explanation for anyone who opens the file in an editor.
fn empty_head() -> [u8; HEAD_BYTES as usize] {
    const TITLE: &[u8] = b"Stored by fslab (SCA 1, uuencode): docs/formats/sca.md";
    let mut head = [b' '; HEAD_BYTES as usize];
    head[..TITLE.len()].copy_from_slice(TITLE);
    for end_of_line in [63, 256, 639, 768, HEAD_BYTES as usize - 1] {
        head[end_of_line] = b'\n';
    }
    head
}
