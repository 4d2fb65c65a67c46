//! Objects and residencies in words, for people who look for what went wrong.

use std::fmt::Write;
use std::sync::Arc;

use super::bundle::{Contents, contents_of};
use super::reader::ObjectReader;
use crate::archive::{Archive, ContainerKind};
use crate::error::shown;
use crate::id::Id;
use crate::stored::format::{KIND_BUNDLE, KIND_FILE, KIND_TREE};
use crate::stored::residency::Residency;

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
/// Errors of the archive, or what is wrong with the object's table.
pub fn object(reader: &ObjectReader, blocks_max: u64) -> crate::Result<String> {
    let heading = reader.heading();
    let kind = match heading.kind {
        KIND_FILE => "file",
        KIND_TREE => "tree",
        KIND_BUNDLE => "bundle",
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

/// A container, with each of its objects.
///
/// # Errors
/// Errors of the archive, or what is wrong with the container. What is wrong with one object is
/// told.
pub fn container(archive: &Arc<dyn Archive>, container: Id, length: u64) -> crate::Result<String> {
    let Contents { members, list_bytes, .. } = contents_of(archive, container, length)?;
    let mut text = match list_bytes {
        0 => String::new(),
        _ => {
            let count = members.len();
            format!("bundle of {count} objects, list of {list_bytes} bytes at both ends\n")
        }
    };
    for location in members {
        writeln!(text, "at {}, {} bytes:", location.offset, location.length).ok();
        let told = ObjectReader::open_any(archive, ContainerKind::Files, location)
            .and_then(|reader| object(&reader, BLOCKS_TOLD));
        match told {
            Ok(told) => text.push_str(&told),
            Err(error) => writeln!(text, "{error}").unwrap_or_default(),
        }
    }
    Ok(text)
}

/// Blocks of each object of a container that are told.
const BLOCKS_TOLD: u64 = 4;
