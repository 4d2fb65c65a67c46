//! The head of a stored file: its identity, and two root slots that point to checkpoints.
//!
//! A slot is written only after its checkpoint, and everything that the checkpoint refers to, is
//! durable. It never overwrites the slot written last. If a crash tears the write, the other slot
//! is still valid.

use data_encoding::BASE64;
use fslab_vfs::{Result, WriteOptions};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::codec::{CODECS, Container};
use super::context::Io;
use super::format::{
    FLAG_PACKED, HEAD_BYTES, IDENTITY_MAGIC, IDENTITY_OFFSET, IdentityRecord, SIZE_MAX, SLOT_MAGIC,
    SLOT_OFFSETS, SlotRecord, VERSION, crc_of,
};
use super::frame::{Identity, Reference, parse_any};

/// A valid root slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub ordinal: u64,
    pub checkpoint: Reference,
    pub sequence: u64,
    pub file_size: u64,
    /// Whether packing wrote the slot; superseded content may then follow the checkpoint.
    pub is_packed: bool,
}

/// Returns the head of a new file.
pub fn new_head(identity: &Identity) -> Vec<u8> {
    let container = &identity.codec.container;
    let mut head = (container.empty_head)().to_vec();
    let mut record = IdentityRecord {
        magic: IDENTITY_MAGIC,
        version: VERSION,
        codec: identity.codec.number,
        chunk_log2: identity.chunk_log2,
        flags: 0,
        head_bytes: (HEAD_BYTES as u32).into(),
        file_id: identity.file_id.into(),
        zero: [0; 20],
        crc: 0.into(),
    };
    record.crc = crc_of(&record).into();
    let bytes = armoured(container, &record);
    head[IDENTITY_OFFSET..IDENTITY_OFFSET + bytes.len()].copy_from_slice(&bytes);
    head
}

/// Whether the head contains this identity.
pub fn is_head_whole(identity: &Identity, beginning: &[u8]) -> bool {
    by_identity(beginning) == Some(*identity)
}

/// Rewrites the head except for its slots.
pub fn mend_head(io: Io<'_>, identity: &Identity) -> Result<()> {
    let mut head = new_head(identity);
    let present = io.lower.read(io.request, 0, head.len())?;
    let length = armoured(&identity.codec.container, &[0_u8; size_of::<SlotRecord>()]).len();
    for offset in SLOT_OFFSETS {
        let range = offset..offset + length;
        if slot_record(&identity.codec.container, &present, offset).is_some() {
            head[range.clone()].copy_from_slice(&present[range]);
        }
    }
    io.lower.write(io.request, 0, &head, WriteOptions::default())
}

/// Returns a record in the form that it has in the head.
fn armoured(container: &Container, record: &(impl IntoBytes + Immutable)) -> Vec<u8> {
    if container.is_text {
        BASE64.encode(record.as_bytes()).into_bytes()
    } else {
        record.as_bytes().to_vec()
    }
}

/// Reads the record at an offset of the head.
fn record_at<T: FromBytes>(container: &Container, head: &[u8], offset: usize) -> Option<T> {
    let bytes = head.get(offset..)?;
    if !container.is_text {
        return T::read_from_prefix(bytes).ok().map(|(record, _)| record);
    }
    let decoded = BASE64.decode(bytes.get(..size_of::<T>().div_ceil(3) * 4)?).ok()?;
    T::read_from_bytes(&decoded).ok()
}

/// Identifies the file to which a head belongs, by the identity record, a slot, or the first frame
/// after the head. Each of these is enough, because all contain the same identity.
pub fn identify(beginning: &[u8]) -> Option<Identity> {
    by_identity(beginning).or_else(|| by_slots(beginning)).or_else(|| by_first_frame(beginning))
}

fn by_identity(beginning: &[u8]) -> Option<Identity> {
    CODECS.iter().find_map(|codec| {
        let record: IdentityRecord = record_at(&codec.container, beginning, IDENTITY_OFFSET)?;
        let is_whole = record.magic == IDENTITY_MAGIC
            && record.crc.get() == crc_of(&record)
            && record.version == VERSION
            && u64::from(record.head_bytes.get()) == HEAD_BYTES
            && record.codec == codec.number;
        let known = Identity::from_stored(record.codec, record.chunk_log2, record.file_id.get());
        known.filter(|_| is_whole)
    })
}

fn by_slots(beginning: &[u8]) -> Option<Identity> {
    CODECS.iter().find_map(|codec| {
        SLOT_OFFSETS.iter().find_map(|offset| {
            let record = slot_record(&codec.container, beginning, *offset)?;
            Identity::from_stored(record.codec, record.chunk_log2, record.file_id.get())
                .filter(|identity| identity.codec.number == codec.number)
        })
    })
}

fn by_first_frame(beginning: &[u8]) -> Option<Identity> {
    let frame = beginning.get(HEAD_BYTES as usize..)?;
    CODECS.iter().find_map(|codec| {
        let header = frame.get(..codec.container.header_bytes)?;
        parse_any(codec, header, HEAD_BYTES).ok().map(|(identity, _)| identity)
    })
}

/// Number of bytes that [`identify`] needs, if the file is that long.
pub const BEGINNING_BYTES: usize = HEAD_BYTES as usize + 128;

/// Whether a file was written by a newer version of fslab, whose format this version does not know.
pub fn is_newer(beginning: &[u8]) -> bool {
    CODECS.iter().any(|codec| {
        record_at::<IdentityRecord>(&codec.container, beginning, IDENTITY_OFFSET).is_some_and(
            |record| {
                record.magic == IDENTITY_MAGIC
                    && record.crc.get() == crc_of(&record)
                    && record.version != VERSION
            },
        )
    })
}

fn slot_record(container: &Container, head: &[u8], offset: usize) -> Option<SlotRecord> {
    let record: SlotRecord = record_at(container, head, offset)?;
    // Later ordinals, sequence numbers and offsets are computed from these values, so they must be
    // bounded.
    let is_possible = record.ordinal.get() <= SIZE_MAX
        && record.sequence.get() <= SIZE_MAX
        && Reference::from_record(&record.checkpoint).is_sound();
    let is_whole = record.magic == SLOT_MAGIC
        && record.version == VERSION
        && record.crc.get() == crc_of(&record);
    (is_whole && is_possible).then_some(record)
}

/// Returns the valid slots of this file, the newest first.
pub fn slots(identity: &Identity, beginning: &[u8]) -> Vec<Slot> {
    let found = SLOT_OFFSETS.iter().filter_map(|offset| {
        let record = slot_record(&identity.codec.container, beginning, *offset)?;
        (record.file_id.get() == identity.file_id).then(|| Slot {
            ordinal: record.ordinal.get(),
            checkpoint: Reference::from_record(&record.checkpoint),
            sequence: record.sequence.get(),
            file_size: record.file_size.get(),
            is_packed: record.flags & FLAG_PACKED != 0,
        })
    });
    let mut slots: Vec<_> = found.collect();
    slots.sort_by_key(|slot| std::cmp::Reverse(slot.ordinal));
    slots
}

/// Returns the parts of a head that are neither valid nor empty: their offsets and descriptions.
pub fn damaged_parts(identity: &Identity, beginning: &[u8]) -> Vec<(u64, &'static str)> {
    let container = &identity.codec.container;
    let mut damaged = Vec::new();
    if by_identity(beginning) != Some(*identity) {
        damaged.push((IDENTITY_OFFSET as u64, "a damaged identity"));
    }
    for offset in SLOT_OFFSETS {
        let length = armoured(container, &[0_u8; size_of::<SlotRecord>()]).len();
        let bytes = beginning.get(offset..offset + length).unwrap_or_default();
        let is_empty = bytes.iter().all(|byte| matches!(byte, 0 | b' '));
        let is_whole = slot_record(container, beginning, offset)
            .is_some_and(|record| record.file_id.get() == identity.file_id);
        if !is_empty && !is_whole {
            damaged.push((offset as u64, "a damaged root slot"));
        }
    }
    damaged
}

/// Writes a slot that points to a durable checkpoint.
pub fn write_slot(io: Io<'_>, identity: &Identity, slot: &Slot) -> Result<()> {
    let mut record = SlotRecord {
        magic: SLOT_MAGIC,
        version: VERSION,
        codec: identity.codec.number,
        chunk_log2: identity.chunk_log2,
        flags: if slot.is_packed { FLAG_PACKED } else { 0 },
        file_id: identity.file_id.into(),
        ordinal: slot.ordinal.into(),
        checkpoint: slot.checkpoint.to_record(),
        sequence: slot.sequence.into(),
        file_size: slot.file_size.into(),
        zero: [0; 36],
        crc: 0.into(),
    };
    record.crc = crc_of(&record).into();
    let bytes = armoured(&identity.codec.container, &record);
    let offset = SLOT_OFFSETS[(slot.ordinal % 2) as usize] as u64;
    io.lower.write(io.request, offset, &bytes, WriteOptions::default())
}
