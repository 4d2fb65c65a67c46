//! Converts file names to printable text.

use std::borrow::Cow;

/// Returns a name as text: unchanged if it is valid UTF-8 without control characters. Otherwise
/// each invalid byte and each byte of a control character becomes `\xHH`, and each backslash is
/// doubled.
#[must_use]
pub fn readable(name: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(name) {
        Ok(text) if !text.chars().any(char::is_control) => Cow::Borrowed(text),
        _ => Cow::Owned(escape(name)),
    }
}

fn escape(name: &[u8]) -> String {
    let mut text = String::new();
    let escape = |text: &mut String, bytes: &[u8]| {
        for byte in bytes {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    };
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                _ if character.is_control() => {
                    escape(&mut text, character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                _ => text.push(character),
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_not_plain_text_are_escaped() {
        for (name, text) in [
            (&b""[..], ""),
            (b"a\\b", "a\\b"),
            ("\u{e4}\u{1f600}".as_bytes(), "\u{e4}\u{1f600}"),
            (b"a\\b\n", "a\\\\b\\x0a"),
            (b"\xff\\x", "\\xff\\\\x"),
            ("\u{85}".as_bytes(), "\\xc2\\x85"),
            (b"\xe2\x82", "\\xe2\\x82"),
        ] {
            assert_eq!(readable(name), text);
        }
    }
}
