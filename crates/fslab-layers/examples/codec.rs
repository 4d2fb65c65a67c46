//! A codec of one's own: run lengths. The walk-through is docs/guide/src/write-a-codec.md.
//!
//! `cargo run -p fslab-layers --example codec`

use fslab_layers::sca::{CODECS, CodecError, CodecSpec, Levels};

/// The codec whose container is used: frames as they are, for no other tool.
const COPY: &CodecSpec = CODECS[0];

/// How it is declared. In the project this is the codec's own file, and one line in `CODECS`.
pub const SPEC: CodecSpec = CodecSpec {
    number: 200,
    name: "runs",
    help: "stores runs of equal bytes as a count and the byte",
    levels: Levels::NONE,
    compresses: true,
    encode,
    store,
    decode,
    container: COPY.container,
};

// The first byte of a body tells its form.
const AS_IT_IS: u8 = 0;
const RUNS: u8 = 1;

/// Pairs of a count from 1 to 255 and a byte.
fn encode(content: &[u8], _level: i32) -> Result<Vec<u8>, CodecError> {
    let mut body = vec![RUNS];
    for run in content.chunk_by(|one, next| one == next) {
        for piece in run.chunks(usize::from(u8::MAX)) {
            body.extend([piece.len() as u8, piece[0]]);
        }
    }
    Ok(body)
}

/// What does not get smaller is kept as it is; the layer decides by the length of `encode`'s body.
fn store(content: &[u8]) -> Vec<u8> {
    [&[AS_IT_IS], content].concat()
}

/// Never more than `length` bytes, and nothing for anything irregular: a body may be hostile even
/// where its checksum is right.
fn decode(body: &[u8], length: usize) -> Option<Vec<u8>> {
    let (form, rest) = body.split_first()?;
    let content = match *form {
        AS_IT_IS => rest.to_vec(),
        RUNS => runs(rest, length)?,
        _ => return None,
    };
    (content.len() == length).then_some(content)
}

fn runs(pairs: &[u8], length: usize) -> Option<Vec<u8>> {
    let (pairs, rest) = pairs.as_chunks::<2>();
    let mut content = Vec::with_capacity(length);
    for [count, byte] in pairs {
        let end = content.len() + usize::from(*count);
        if *count == 0 || end > length {
            return None;
        }
        content.resize(end, *byte);
    }
    rest.is_empty().then_some(content)
}

fn main() -> Result<(), CodecError> {
    let content = [[b'a'; 3000].as_slice(), b"bcd"].concat();
    let body = (SPEC.encode)(&content, 0)?;
    println!("{}: {} bytes are {}", SPEC.name, content.len(), body.len());
    println!("and back: {}", (SPEC.decode)(&body, content.len()) == Some(content));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        for content in [&b""[..], b"a", b"aaab", &[7; 1000], b"abcdef"] {
            for body in [encode(content, 0).unwrap(), store(content)] {
                assert_eq!(decode(&body, content.len()).as_deref(), Some(content));
                assert_eq!(decode(&body, content.len() + 1), None);
            }
        }
    }

    #[test]
    fn hostile_bodies_are_refused() {
        for body in [&b""[..], &[2, 1, 1], &[RUNS, 0, 9], &[RUNS, 255, 9], &[RUNS, 1]] {
            assert_eq!(decode(body, 3), None, "{body:?}");
        }
    }
}
