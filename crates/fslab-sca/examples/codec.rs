//! A custom codec, which encodes runs of equal bytes. The walk-through is
//! docs/guide/src/how-to/write-a-codec.md.
//!
//! `cargo run -p fslab-sca --example codec`

use fslab_sca::{CODECS, CodecError, CodecSpec, Levels};

/// The `copy` codec. This example reuses its container, which does not wrap frames for ordinary
/// tools.
const COPY: &CodecSpec = CODECS[0];

/// Declares the codec. A codec that is part of fslab has a file of its own and a line in `CODECS`.
pub const SPEC: CodecSpec = CodecSpec {
    number: 200,
    name: "runs",
    help: "stores runs of equal bytes as a count and the byte",
    levels: Levels::NONE,
    compresses: true,
    encode,
    store,
    decode_into,
    container: COPY.container,
};

// The first byte of a body: whether the rest is raw content or encoded runs.
const AS_IT_IS: u8 = 0;
const RUNS: u8 = 1;

/// Encodes content as pairs of a count (from 1 to 255) and a byte.
fn encode(content: &[u8], _level: i32) -> Result<Vec<u8>, CodecError> {
    let mut body = vec![RUNS];
    for run in content.chunk_by(|one, next| one == next) {
        for piece in run.chunks(usize::from(u8::MAX)) {
            body.extend([piece.len() as u8, piece[0]]);
        }
    }
    Ok(body)
}

/// Appends a body with raw content to a buffer. The layer uses this body if the one from `encode`
/// is not smaller.
fn store(content: &[u8], body: &mut Vec<u8>) {
    body.push(AS_IT_IS);
    body.extend_from_slice(content);
}

/// Fills the buffer and returns the number of bytes filled, or `None` for malformed input. A body
/// may be hostile even if its checksum is correct.
fn decode_into(body: &[u8], content: &mut [u8]) -> Option<usize> {
    let (form, rest) = body.split_first()?;
    match *form {
        AS_IT_IS => {
            content.get_mut(..rest.len())?.copy_from_slice(rest);
            Some(rest.len())
        }
        RUNS => runs(rest, content),
        _ => None,
    }
}

fn runs(pairs: &[u8], content: &mut [u8]) -> Option<usize> {
    let (pairs, rest) = pairs.as_chunks::<2>();
    let mut filled = 0;
    for [count, byte] in pairs {
        let end = filled + usize::from(*count);
        if *count == 0 {
            return None;
        }
        content.get_mut(filled..end)?.fill(*byte);
        filled = end;
    }
    rest.is_empty().then_some(filled)
}

fn main() -> Result<(), CodecError> {
    let content = [[b'a'; 3000].as_slice(), b"bcd"].concat();
    let body = (SPEC.encode)(&content, 0)?;
    println!("{}: {} bytes are {}", SPEC.name, content.len(), body.len());
    println!("and back: {}", SPEC.decode(&body, content.len()) == Some(content));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_content_round_trips() {
        for content in [&b""[..], b"a", b"aaab", &[7; 1000], b"abcdef"] {
            for body in [encode(content, 0).unwrap(), SPEC.stored(content)] {
                assert_eq!(SPEC.decode(&body, content.len()).as_deref(), Some(content));
                assert_eq!(SPEC.decode(&body, content.len() + 1), None);
            }
        }
    }

    #[test]
    fn hostile_bodies_are_refused() {
        for body in [&b""[..], &[2, 1, 1], &[RUNS, 0, 9], &[RUNS, 255, 9], &[RUNS, 1]] {
            assert_eq!(SPEC.decode(body, 3), None, "{body:?}");
        }
    }
}
