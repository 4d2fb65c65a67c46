//! Converts names to text and back. Names are bytes, but text in Parquet is UTF-8. A backslash is
//! doubled, and a byte that is not UTF-8 becomes `\xHH`. So all tools can show the text, and each
//! name can be restored exactly.

/// Escapes bytes as text.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        if chunk.valid().contains('\\') {
            text.push_str(&chunk.valid().replace('\\', "\\\\"));
        } else {
            text.push_str(chunk.valid());
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Returns the bytes of an escaped text; `None` if [`escape`] did not make it.
pub fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    if !text.contains(&b'\\') {
        return Some(text.to_vec());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        rest = match (first, behind) {
            (b'\\', [b'\\', behind @ ..]) => {
                bytes.push(b'\\');
                behind
            }
            (b'\\', [b'x', high, low, behind @ ..]) => {
                bytes.push(hex(*high)? << 4 | hex(*low)?);
                behind
            }
            (b'\\', _) => return None,
            (byte, behind) => {
                bytes.push(*byte);
                behind
            }
        };
    }
    Some(bytes)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use fslab_vfs_testing::environment::cases;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escaping_keeps_utf8_text_readable() {
        assert_eq!(escape("Stra\u{df}e.rs".as_bytes()), "Stra\u{df}e.rs");
        assert_eq!(escape(b"a\\b\xff"), "a\\\\b\\xff");
        assert_eq!(unescape(b"a\\b"), None);
        assert_eq!(unescape(b"a\\x4"), None);
    }

    proptest! {
        #![proptest_config(cases(256))]
        #[test]
        fn every_escaped_name_round_trips(name: Vec<u8>) {
            prop_assert_eq!(unescape(escape(&name).as_bytes()), Some(name));
        }
    }
}
