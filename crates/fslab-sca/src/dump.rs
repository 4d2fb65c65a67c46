//! Dumps a stored file as lines of text, which account for every byte. Any input is accepted
//! without a panic.

use std::io::{self, Write};

use super::context::Io;
use super::format::{HEAD_BYTES, Kind};
use super::frame::{Frame, Identity};
use super::recovery::{self, Walk};
use super::staging_area;
use super::superblock;

/// A section of a stored file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// The head, or the part of it that exists.
    Head { length: u64 },
    /// A frame found by the walk.
    Frame(Frame),
    /// A staging area with this many chunks that no other frame contains, and the hole before it.
    Staging { offset: u64, length: u64, chunks: usize },
    /// Everything from the first unreadable frame to the end.
    Rest { offset: u64, length: u64 },
}

/// Divides a file into sections without gaps. The walk starts at the first frame and ignores slots.
///
/// # Errors
/// Errors of reading the lower file.
pub fn stretches(io: Io<'_>, identity: &Identity, length: u64) -> fslab_vfs::Result<Vec<Stretch>> {
    let mut stretches = vec![Stretch::Head { length: length.min(HEAD_BYTES) }];
    let mut walk = Walk::new(io, length, true);
    let (mut end, mut sequence) = (HEAD_BYTES.min(length), 0);
    while let Some(frame) = walk.next(identity, end, sequence)? {
        (end, sequence) = (frame.reference.end(), frame.last_sequence());
        stretches.push(Stretch::Frame(frame));
    }
    if end < length {
        let (offset, rest) = (end, length - end);
        stretches.push(match staging_area::find(io, identity, (end, sequence), length)? {
            Some(found) => Stretch::Staging { offset, length: rest, chunks: found.count() },
            None => Stretch::Rest { offset, length: rest },
        });
    }
    Ok(stretches)
}

/// Writes a line for each section.
///
/// # Errors
/// Errors of reading the lower file or of writing the text.
pub fn dump(
    io: Io<'_>,
    identity: &Identity,
    length: u64,
    out: &mut dyn Write,
) -> fslab_vfs::Result<()> {
    let beginning = io.lower.read(io.request, 0, superblock::BEGINNING_BYTES)?;
    head(identity, &beginning, out)?;
    for stretch in stretches(io, identity, length)? {
        match stretch {
            Stretch::Rest { offset, length } if is_seek_table(io, identity, offset, length)? => {
                writeln!(out, "{offset:>12} {length:>9}  seek table")?;
            }
            stretch => line(&stretch, out)?,
        }
    }
    Ok(())
}

fn is_seek_table(
    io: Io<'_>,
    identity: &Identity,
    offset: u64,
    length: u64,
) -> fslab_vfs::Result<bool> {
    Ok(identity.codec.container.closing.is_some() && recovery::is_closing(io, offset, length)?)
}

fn head(identity: &Identity, beginning: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let (codec, chunk, id) = (identity.codec.name, identity.chunk_bytes(), identity.file_id);
    writeln!(out, "stored file {id:016x}: {codec}, chunks of {chunk} bytes")?;
    for slot in superblock::slots(identity, beginning) {
        let (ordinal, size, sequence) = (slot.ordinal, slot.file_size, slot.sequence);
        let offset = slot.checkpoint.offset;
        writeln!(
            out,
            "root slot {}: checkpoint {ordinal} at {offset}, sequence {sequence}, size {size}",
            ordinal % 2
        )?;
    }
    Ok(())
}

fn line(stretch: &Stretch, out: &mut dyn Write) -> io::Result<()> {
    match stretch {
        Stretch::Head { length } => writeln!(out, "{:>12} {length:>9}  head", 0),
        Stretch::Staging { offset, length, chunks } => {
            writeln!(out, "{offset:>12} {length:>9}  staging area with {chunks} chunks")
        }
        Stretch::Rest { offset, length } => {
            writeln!(out, "{offset:>12} {length:>9}  not a frame")
        }
        Stretch::Frame(frame) => {
            let (offset, stored) = (frame.reference.offset, frame.reference.stored_length);
            let (sequence, size) = (frame.sequence, frame.file_size);
            let what = describe(frame);
            writeln!(out, "{offset:>12} {stored:>9}  {sequence:>6}  {what}  (size {size})")
        }
    }
}

fn describe(frame: &Frame) -> String {
    let (position, from, length) = (frame.position, frame.from, frame.length);
    let how = if frame.raw { "raw" } else { "encoded" };
    match frame.kind {
        Kind::Data => format!("data      chunk {position} from {from}, {length} bytes {how}"),
        Kind::Segment => format!("segment   chunk {position} from {from}, {length} bytes"),
        Kind::Size => "size".to_owned(),
        Kind::Hole => format!("hole      from chunk {position}"),
        Kind::Index => format!("index     from chunk {position}, {length} bytes"),
        Kind::Checkpoint => "checkpoint".to_owned(),
        Kind::Gap => format!("gap       of {} frames", position + 1),
        Kind::Kept => format!("kept      {length} bytes from offset {position}"),
        Kind::Intent => "intent".to_owned(),
    }
}
