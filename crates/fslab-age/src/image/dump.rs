//! Formats the header of an aged image as text.

use std::fmt::Write;

use super::AgedImage;
use crate::workload::brief_source;

/// Returns all fields of the header, one per line.
#[must_use]
pub fn dump(image: &AgedImage) -> String {
    let header = image.header();
    let hash = |hash: [u8; 32]| blake3::Hash::from_bytes(hash).to_hex();
    let mut text = format!(
        "version: {}\nimage: {} bytes, hash {}\n{}: {}\n",
        header.version,
        header.image_bytes,
        hash(header.image_hash),
        if header.version.get() == 1 { "bytes of the workload file" } else { "workload" },
        hash(header.workload_hash),
    );
    for (key, value) in &image.identity().facts {
        let value = if key == "source" { brief_source(value) } else { value };
        // Control characters from the file must not reach the terminal.
        let written = writeln!(text, "{}: {}", harmless(key), harmless(value));
        debug_assert!(written.is_ok(), "writing to a String can't fail");
    }
    text
}

fn harmless(text: &str) -> String {
    let escape = |character: char| match character.is_control() {
        true => character.escape_debug().collect(),
        false => String::from(character),
    };
    text.chars().map(escape).collect()
}
