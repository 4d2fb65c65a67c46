//! Properties that must be true for any bytes in a stored file, shared by the fuzz targets and
//! tests.
//!
//! Checksums would reject nearly all random bytes at once. So inputs are also tried with all
//! checksums corrected (`sealed`), as by an attacker.

use std::collections::HashMap;
use std::sync::Arc;

use fslab_vfs::{
    FileSystem, Ino, MemFs, Name, OpenMode, Request, Result, SeekTo, SetAttr, WriteOptions,
};
use zerocopy::{FromBytes, IntoBytes};

use super::codec::CODECS;
use super::dump::{self, Stretch};
use super::format::{
    HEAD_BYTES, Kind, SLOT_OFFSETS, STAGING_ALIGNMENT, STAGING_SLACK, STAGING_SLOTS, SlotRecord,
    crc_of,
};
use super::frame::{self, Frame, Identity, Reference};
use super::lower::LowerFile;
use super::staging_area::Area;
use super::{context::Io, options, superblock};
use crate::LAYERS;
use fslab_layers::LayerChoice;

/// Maximum number of pieces read from a file, because its recorded size may be false.
const PIECES: u64 = 64;
const PIECE_BYTES: usize = 16 << 10;
/// Maximum number of frames that get correct checksums.
const FRAMES_MAX: usize = 300;
const FILE_ID: u64 = 0x5eed;

/// Checks that opening, reading and seeking return a result or an error, and never show more bytes
/// than the size.
pub fn check_reader(bytes: &[u8]) {
    let below = Below::with(bytes);
    below.read_some();
}

/// Checks that data written and synced after recovery can be read, whatever recovery found.
///
/// # Panics
/// If the written bytes can't be read, or other bytes are read.
pub fn check_recovery(bytes: &[u8]) {
    let below = Below::with(bytes);
    let Ok(written) = below.write_some() else { return };
    below.read_some();
    let found = below.mounted(|fs, ino, handle| {
        let mut found = vec![0; written.len()];
        let count = fs.read(&Request::default(), ino, handle, 0, &mut found)?;
        found.truncate(count);
        Ok(found)
    });
    match found {
        Ok(found) => assert!(found == written, "the bytes read differ from the synced bytes"),
        Err(error) => panic!("synced data can't be read: {error}"),
    }
}

/// Checks that a dump accounts for every byte, and that printing it never panics.
///
/// # Panics
/// If a byte is missing.
pub fn check_dump(bytes: &[u8]) {
    let below = Below::with(bytes);
    let (Ok(settings), request) = (options::of_tools(), Request::default()) else { return };
    let Ok((ino, handle)) = below.open_below() else { return };
    let lower = LowerFile { fs: Arc::clone(&below.fs), ino, handle };
    let io = Io::new(&lower, &request, &settings);
    let (Ok(beginning), Ok(length)) =
        (lower.read(&request, 0, superblock::BEGINNING_BYTES), lower.length(&request))
    else {
        return;
    };
    let Some(identity) = superblock::identify(&beginning) else { return };
    let Ok(stretches) = dump::stretches(io, &identity, length) else { return };
    let lengths = stretches.iter().map(|stretch| match stretch {
        Stretch::Head { length }
        | Stretch::Staging { length, .. }
        | Stretch::Rest { length, .. } => *length,
        Stretch::Frame(frame) => u64::from(frame.reference.stored_length),
    });
    assert_eq!(lengths.sum::<u64>(), length, "the dump does not account for every byte");
    dump::dump(io, &identity, length, &mut std::io::sink()).ok();
}

/// A single stored file in a directory.
struct Below {
    fs: Arc<dyn FileSystem>,
}

impl Below {
    /// Makes a file from all bytes except the first. The first byte selects whether and how the
    /// other bytes are sealed.
    fn with(bytes: &[u8]) -> Self {
        let below = Self { fs: Arc::new(MemFs::default()) };
        let (how, bytes) = bytes.split_first().unwrap_or((&0, &[]));
        let bytes = if how & 0x80 == 0 { sealed(*how, bytes) } else { bytes.to_vec() };
        // Storing the bytes fails only if they do not fit into the memory file system.
        below.put(&bytes).ok();
        below
    }

    fn put(&self, bytes: &[u8]) -> Result<()> {
        let (request, mode) = (Request::default(), OpenMode::READ_WRITE);
        let name = Name::new("file".as_ref())?;
        let (entry, opened) = self.fs.create(&request, Ino::ROOT, name, 0o644, mode)?;
        let (ino, handle) = (entry.attr.ino, opened.handle);
        self.fs.write(&request, ino, handle, 0, bytes, WriteOptions::default())?;
        self.fs.release(&request, ino, handle)
    }

    fn open_below(&self) -> Result<(Ino, fslab_vfs::Handle)> {
        open(&*self.fs)
    }

    /// Runs `work` on the open file through a new layer.
    fn mounted<T>(
        &self,
        work: impl FnOnce(&dyn FileSystem, Ino, fslab_vfs::Handle) -> Result<T>,
    ) -> Result<T> {
        let layer = LayerChoice::parse("copy:threads=1,cache=0", LAYERS);
        let layer = layer.or(Err(fslab_vfs::Errno::INVAL))?;
        let fs = layer.build(Arc::clone(&self.fs)).or(Err(fslab_vfs::Errno::IO))?;
        let (ino, handle) = open(&*fs)?;
        let done = work(&*fs, ino, handle);
        fs.release(&Request::default(), ino, handle)?;
        done
    }

    fn read_some(&self) {
        let read = self.mounted(|fs, ino, handle| {
            let request = Request::default();
            let size = fs.getattr(&request, ino, Some(handle))?.size;
            let step = (size / PIECES).max(PIECE_BYTES as u64);
            let mut buffer = vec![0; PIECE_BYTES];
            for piece in 0..PIECES {
                let offset = (piece * step).min(size);
                let count = fs.read(&request, ino, handle, offset, &mut buffer);
                assert!(count.is_ok_and(|count| count as u64 <= size - offset) || size > 0);
                fs.lseek(&request, ino, handle, offset, SeekTo::Data).ok();
                fs.lseek(&request, ino, handle, offset, SeekTo::Hole).ok();
            }
            Ok(())
        });
        // An error is a valid result.
        drop(read);
    }

    /// Writes at the start, in the middle and at the end, truncates, and syncs; returns the start.
    fn write_some(&self) -> Result<Vec<u8>> {
        let start = vec![7_u8; 5000];
        self.mounted(|fs, ino, handle| {
            let (request, options) = (Request::default(), WriteOptions::default());
            let size = fs.getattr(&request, ino, Some(handle))?.size;
            // A damaged chunk can't be written in part, so one of these writes may fail.
            for offset in [size, size / 2] {
                fs.write(&request, ino, handle, offset, &start[..100], options).ok();
            }
            let cut = SetAttr { size: Some(size / 3 + 5000), ..SetAttr::default() };
            fs.setattr(&request, ino, Some(handle), &cut).ok();
            fs.write(&request, ino, handle, 0, &start, options)?;
            fs.fsync(&request, ino, handle, false)
        })?;
        Ok(start)
    }
}

fn open(fs: &dyn FileSystem) -> Result<(Ino, fslab_vfs::Handle)> {
    let request = Request::default();
    let ino = fs.lookup(&request, Ino::ROOT, Name::new("file".as_ref())?)?.attr.ino;
    Ok((ino, fs.open(&request, ino, OpenMode::READ_WRITE)?.handle))
}

/// Flag of inputs that end with the pieces in a staging area.
const STAGED: u8 = 0x10;

/// Returns the bytes as a stored file of some codec with correct checksums, magic numbers and
/// offsets. Everything else is unchanged.
fn sealed(how: u8, bytes: &[u8]) -> Vec<u8> {
    let codec = CODECS[usize::from(how) % CODECS.len()];
    let Some(identity) = Identity::from_stored(codec.number, 12 + (how >> 5), FILE_ID) else {
        return bytes.to_vec();
    };
    let (bytes, staged) = if how & STAGED == 0 { (bytes, None) } else { split(bytes) };
    let mut file = bytes.to_vec();
    file.resize(file.len().max(HEAD_BYTES as usize), 0);
    let frames = seal_frames(&identity, &mut file);
    seal_head(&identity, &mut file, &frames);
    if let Some(staged) = staged {
        add_area(&identity, &mut file, frames.len() as u64, staged);
    }
    file
}

/// Divides an input after the number of bytes that its first two bytes contain.
fn split(bytes: &[u8]) -> (&[u8], Option<&[u8]>) {
    let Some((count, rest)) = bytes.split_first_chunk() else { return (bytes, None) };
    let (frames, staged) = rest.split_at(rest.len().min(u16::from_le_bytes(*count).into()));
    (frames, Some(staged))
}

/// Appends a staging area with pieces that have correct headers. The low bits of a piece's position
/// select its slot and its sequence number, counted from `last`.
fn add_area(identity: &Identity, file: &mut Vec<u8>, last: u64, staged: &[u8]) {
    let base = (file.len() as u64).next_multiple_of(STAGING_ALIGNMENT);
    let area = Area { base, slot_bytes: identity.chunk_bytes() + STAGING_SLACK };
    file.resize(area.end() as usize, 0);
    let (mut at, mut ends) = (0, HashMap::new());
    while let Some((draft, length)) =
        staged.get(at..).and_then(|rest| drafted(identity, rest, last))
    {
        let sequence = last + draft.position % (STAGING_SLOTS + 2);
        let start = *ends.entry(sequence).or_insert(area.slot(sequence));
        let body = &staged[at + identity.header_bytes()..at + length];
        let mut out = Vec::new();
        frame::append(&mut out, start, identity, Frame { sequence, ..draft }, body);
        if let Some(place) = file.get_mut(start as usize..start as usize + length) {
            place.copy_from_slice(&out);
        }
        ends.insert(sequence, start + length as u64);
        at += length;
    }
}

fn seal_head(identity: &Identity, file: &mut [u8], frames: &HashMap<u64, Reference>) {
    let mut head = superblock::new_head(identity);
    for offset in SLOT_OFFSETS {
        let bytes = &mut head[offset..offset + size_of::<SlotRecord>()];
        bytes.copy_from_slice(&file[offset..offset + size_of::<SlotRecord>()]);
        let Ok(slot) = SlotRecord::mut_from_bytes(bytes) else { continue };
        slot.magic = super::format::SLOT_MAGIC;
        (slot.version, slot.codec) = (super::format::VERSION, identity.codec.number);
        (slot.chunk_log2, slot.file_id) = (identity.chunk_log2, FILE_ID.into());
        seal_references(slot.checkpoint.as_mut_bytes(), frames);
        slot.crc = crc_of(slot).into();
    }
    file[..head.len()].copy_from_slice(&head);
}

/// Gives adjacent frames correct headers, and returns the frames.
fn seal_frames(identity: &Identity, file: &mut [u8]) -> HashMap<u64, Reference> {
    let (mut at, mut sequence, mut frames) = (HEAD_BYTES as usize, 1, HashMap::new());
    let header_bytes = identity.header_bytes();
    while at + header_bytes <= file.len() && frames.len() < FRAMES_MAX {
        let Some(frame) = drafted(identity, &file[at..], sequence) else { break };
        let (draft, length) = frame;
        let body = &mut file[at + header_bytes..at + length];
        if !draft.kind.has_content() {
            seal_references(body, &frames);
        }
        let mut out = Vec::new();
        let frame = frame::append(&mut out, at as u64, identity, draft, body);
        file[at..at + length].copy_from_slice(&out);
        frames.insert(at as u64, frame.reference);
        (at, sequence) = (at + length, frame.last_sequence() + 1);
    }
    frames
}

/// Returns the frame that the bytes describe, with fields limited to valid values.
fn drafted(identity: &Identity, bytes: &[u8], sequence: u64) -> Option<(Frame, usize)> {
    let header_bytes = identity.header_bytes();
    let record = (identity.codec.container.unwrap)(bytes.get(..header_bytes)?)?;
    let record = super::format::FrameRecord::read_from_bytes(&record).ok()?;
    let longest = bytes.len().min(super::format::FRAME_BYTES_MAX as usize);
    let length = (record.stored_length.get() as usize).clamp(header_bytes, longest);
    let kind = Kind::from_number(record.kind).unwrap_or(Kind::Data);
    let position = record.position.get() >> (record.flags & 0x3e);
    // Later frames need sequence numbers too, so the gap gets at most half of the remaining ones.
    // The parser refuses a gap that is still too long.
    let most = if kind == Kind::Gap { (u64::MAX - sequence) / 2 } else { u64::MAX };
    let position = position.min(most);
    let draft = Frame {
        raw: record.flags & 1 != 0,
        sequence,
        from: record.from.get() % 4096,
        length: record.length.get() % 4097,
        ..Frame::new(kind, position, record.file_size.get() >> (record.flags & 0x3e))
    };
    Some((draft, length))
}

/// Corrects the length and checksum of each reference whose offset is that of a frame.
fn seal_references(bytes: &mut [u8], frames: &HashMap<u64, Reference>) {
    for record in bytes.chunks_exact_mut(8).collect::<Vec<_>>().chunks_exact_mut(2) {
        let [offset, rest] = record else { continue };
        let Some(offset) = (*offset).first_chunk().map(|bytes| u64::from_le_bytes(*bytes)) else {
            continue;
        };
        if let Some(frame) = frames.get(&offset) {
            rest.copy_from_slice(&frame.to_record().as_bytes()[8..]);
        }
    }
}

#[cfg(test)]
pub mod logs;
#[cfg(test)]
mod tests;
