//! Tests of the guarantees of every codec, and decoding with the ordinary tools.

use std::io::Write;
use std::process::{Command, Stdio};

use fslab_vfs_testing::environment::cases;
use fslab_vfs_testing::skip;
use proptest::prelude::*;

use super::*;

/// Returns test contents of several kinds: empty, one byte, runs, text and random bytes.
fn contents() -> Vec<Vec<u8>> {
    let random: Vec<u8> = (0..200_000_u64)
        .map(|index| (index.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) >> 23) as u8)
        .collect();
    let text = b"It was the best of times, it was the worst of times. ".repeat(3000);
    vec![vec![], vec![7], vec![0; 131_072], text, random, vec![b'a'; (1 << 20) - 1]]
}

fn levels(codec: &CodecSpec) -> [i32; 2] {
    [*codec.levels.range.start() as i32, (*codec.levels.range.end()).min(9) as i32]
}

#[track_caller]
fn round_trips(codec: &CodecSpec, content: &[u8]) {
    for level in levels(codec) {
        let body = (codec.encode)(content, level).unwrap();
        let decoded = codec.decode(&body, content.len());
        assert!(decoded.as_deref() == Some(content), "{} level {level}", codec.name);
    }
    let stored = codec.stored(content);
    assert!(codec.decode(&stored, content.len()).as_deref() == Some(content), "{}", codec.name);
}

#[test]
fn every_codec_round_trips_fixed_contents() {
    for codec in CODECS {
        contents().iter().for_each(|content| round_trips(codec, content));
    }
}

#[test]
fn decoding_to_a_wrong_length_fails() {
    for codec in CODECS {
        let content = vec![5_u8; 10_000];
        for body in [(codec.encode)(&content, 1).unwrap(), codec.stored(&content)] {
            for length in [0, 1, 9_999, 10_001, 1 << 20] {
                assert_eq!(codec.decode(&body, length), None, "{} {length}", codec.name);
            }
        }
    }
}

#[test]
fn codec_numbers_and_names_are_unique() {
    for (index, codec) in CODECS.iter().enumerate() {
        assert!(CODECS[..index].iter().all(|other| other.number != codec.number));
        assert!(CODECS[..index].iter().all(|other| other.name != codec.name));
        assert!(CodecSpec::by_number(codec.number).is_some_and(|found| found.name == codec.name));
    }
}

#[test]
fn headers_and_metadata_round_trip() {
    let record: RecordBytes = std::array::from_fn(|index| index as u8 ^ 0x5a);
    for codec in CODECS {
        let container = &codec.container;
        for payload in [vec![], vec![1], vec![9; 32 << 10]] {
            let header = (container.wrap)(&record, Body::Metadata(payload.len()));
            assert_eq!(header.len(), container.header_bytes, "{}", codec.name);
            assert_eq!((container.unwrap)(&header), Some(record));
            let body = (container.pack)(&payload);
            assert_eq!((container.unpack)(&body), Some(payload), "{}", codec.name);
        }
        assert_eq!((container.unwrap)(&[]), None);
    }
}

#[test]
fn uuencode_is_printable_throughout() {
    let codec = &uuencode::SPEC;
    let all: Vec<u8> = (0..=255_u8).cycle().take(10_000).collect();
    let record: RecordBytes = std::array::from_fn(|index| index as u8 * 3);
    let pieces = [
        (codec.encode)(&all, 0).unwrap(),
        (codec.container.wrap)(&record, Body::Content),
        (codec.container.pack)(&all),
        (codec.container.empty_head)().to_vec(),
    ];
    for piece in pieces {
        assert!(piece.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n')));
        assert_eq!(piece.last(), Some(&b'\n'));
    }
}

/// A stored file as the tools see it: a head, and frames of content and metadata.
fn packed(codec: &CodecSpec, contents: &[Vec<u8>]) -> Vec<u8> {
    let record: RecordBytes = [0xAB; RECORD_BYTES];
    let container = &codec.container;
    let mut file = (container.empty_head)().to_vec();
    for (index, content) in contents.iter().enumerate() {
        let body = match index % 2 {
            0 => (codec.encode)(content, 1).unwrap(),
            _ => codec.stored(content),
        };
        file.extend((container.wrap)(&record, Body::Content));
        file.extend(body);
        file.extend((container.wrap)(&record, Body::Metadata(1000)));
        file.extend((container.pack)(&vec![3; 1000]));
    }
    file
}

/// Runs a program and returns its output for this input; `None` if it is not installed.
fn piped(program: &str, arguments: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        skip::skip("codecs and the ordinary tools", &format!("{program} is not installed"));
        return None;
    };
    let mut to_child = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || to_child.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{program}: {}", output.status);
    Some(output.stdout)
}

#[test]
fn the_ordinary_tools_decode_packed_files() {
    let contents = contents();
    let expected = contents.concat();
    for (codec, arguments) in
        [(&gzip::SPEC, ["-dc", "-"]), (&zstd::SPEC, ["-dc", "-"]), (&lz4::SPEC, ["-dc", "-"])]
    {
        let file = packed(codec, &contents);
        if let Some(decoded) = piped(codec.name, &arguments, &file) {
            assert!(decoded == expected, "{}: {} bytes", codec.name, decoded.len());
        }
    }
}

#[test]
fn uudecode_decodes_each_section() {
    for content in contents() {
        let body = (uuencode::SPEC.encode)(&content, 0).unwrap();
        if let Some(decoded) = piped("uudecode", &["-o", "/dev/stdout"], &body) {
            assert!(decoded == content, "{} bytes of {}", decoded.len(), content.len());
        }
    }
}

proptest! {
    #![proptest_config(cases(256))]
    #[test]
    fn any_content_round_trips(content in prop::collection::vec(any::<u8>(), 0..20_000)) {
        for codec in CODECS {
            round_trips(codec, &content);
        }
    }

    /// Hostile bodies yield the expected length or `None`, without a panic.
    #[test]
    fn hostile_bodies_decode_to_the_right_length_or_fail(
        body in prop::collection::vec(any::<u8>(), 0..3000),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        length in 0_usize..5000,
    ) {
        for codec in CODECS {
            let mut almost = (codec.encode)(&body, 1).unwrap();
            for (place, flip) in &flips {
                let place = place.index(almost.len().max(1));
                if let Some(byte) = almost.get_mut(place) {
                    *byte ^= flip;
                }
            }
            for body in [&body, &almost] {
                let decoded = codec.decode(body, length);
                prop_assert!(decoded.is_none_or(|decoded| decoded.len() == length));
                prop_assert!((codec.container.unpack)(body).is_none_or(|p| p.len() <= body.len()));
            }
        }
    }
}
