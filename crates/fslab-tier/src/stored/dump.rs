//! Objects and residencies in words, for people who look for what went wrong.

use std::fmt::Write;

use super::format::{KIND_FILE, KIND_TREE};
use super::reader::ObjectReader;
use super::residency::Residency;
use crate::error::shown;

/// A residency, a line a fact.
#[must_use]
pub fn residency(residency: &Residency) -> String {
    let version = &residency.version;
    let location = &version.location;
    let mut text = String::new();
    let copies: Vec<_> = version.copies.iter().map(ToString::to_string).collect();
    let runs: Vec<_> =
        residency.offline.iter().map(|run| format!("{}..{}", run.start, run.end)).collect();
    let lines = [
        ("tier", residency.tier.to_string()),
        ("file", residency.file.to_string()),
        ("changed", residency.changed.to_string()),
        ("moving", residency.moving.to_string()),
        ("touched", residency.touched_seconds.to_string()),
        ("object", version.object.to_string()),
        (
            "location",
            format!("{} at {}, {} bytes", location.container, location.offset, location.length),
        ),
        ("size", version.size.to_string()),
        ("sequence", version.sequence.to_string()),
        ("copies", copies.join(" ")),
        ("offline", runs.join(" ")),
    ];
    for (name, value) in lines {
        // Writing to a string can't fail.
        writeln!(text, "{name:<10} {value}").ok();
    }
    text
}

/// An object, with its first blocks.
///
/// # Errors
/// What the archive answers, or what is wrong with the object's table.
pub fn object(reader: &ObjectReader, blocks_max: u64) -> crate::Result<String> {
    let heading = reader.heading();
    let kind = match heading.kind {
        KIND_FILE => "file",
        KIND_TREE => "tree",
        _ => "unknown",
    };
    let mut text = format!(
        "object {} of {kind} {}, tier {}, sequence {}\n{}: {} bytes, {} blocks\n",
        heading.object,
        heading.file,
        heading.tier,
        heading.sequence,
        shown(&reader.attributes().path),
        heading.size,
        reader.blocks()
    );
    for block in 0..reader.blocks().min(blocks_max) {
        let what = if reader.is_zeros(block)? { "zeros" } else { "stored" };
        writeln!(text, "block {block}: {what}").ok();
    }
    Ok(text)
}
