//! Frames: building them in a buffer, and parsing their headers.

use std::ops::RangeInclusive;

use zerocopy::{FromBytes, IntoBytes};

use super::codec::{Body, CodecSpec, RecordBytes};
use super::format::{
    CHUNK_LOG2, EntryRecord, FLAG_RAW, FRAME_BYTES_MAX, FRAME_MAGIC, FrameRecord, Kind,
    ReferenceRecord, SIZE_MAX, crc_of,
};

/// The identity of a stored file, which is the same in its head, its slots and each of its frames.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// The codec that encodes and wraps its chunks.
    pub codec: &'static CodecSpec,
    /// The base-2 logarithm of the chunk size in bytes.
    pub chunk_log2: u8,
    /// A number unique to this file.
    pub file_id: u64,
}

impl Identity {
    /// Makes an identity from stored numbers; `None` if this version does not support them.
    pub fn from_stored(codec: u8, chunk_log2: u8, file_id: u64) -> Option<Self> {
        let codec = CodecSpec::by_number(codec)?;
        CHUNK_LOG2.contains(&chunk_log2).then_some(Self { codec, chunk_log2, file_id })
    }

    /// Chunk size in bytes.
    pub fn chunk_bytes(&self) -> u64 {
        1 << self.chunk_log2
    }

    /// Bytes before the body of a frame.
    pub fn header_bytes(&self) -> usize {
        self.codec.container.header_bytes
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        let parts =
            |identity: &Self| (identity.codec.number, identity.chunk_log2, identity.file_id);
        parts(self) == parts(other)
    }
}

/// The offset and length of a frame, and the checksum that identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Offset in the stored file. 0 means no frame, or a lost frame.
    pub offset: u64,
    /// Length of the whole frame.
    pub stored_length: u32,
    /// Checksum of the frame's header.
    pub header_crc: u32,
}

impl Reference {
    /// The reference to no frame.
    pub const NONE: Self = Self { offset: 0, stored_length: 0, header_crc: 0 };

    /// Whether the reference refers to no frame.
    pub fn is_none(self) -> bool {
        self.offset == 0
    }

    /// Whether a frame can have this offset.
    pub fn is_sound(self) -> bool {
        self.offset <= SIZE_MAX
    }

    /// End of the frame, exclusive.
    pub fn end(self) -> u64 {
        self.offset + u64::from(self.stored_length)
    }

    pub fn to_record(self) -> ReferenceRecord {
        ReferenceRecord {
            offset: self.offset.into(),
            stored_length: self.stored_length.into(),
            header_crc: self.header_crc.into(),
        }
    }

    pub fn from_record(record: &ReferenceRecord) -> Self {
        Self {
            offset: record.offset.get(),
            stored_length: record.stored_length.get(),
            header_crc: record.header_crc.get(),
        }
    }
}

/// The content of a chunk, or a part of it, that one frame contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The frame.
    pub frame: Reference,
    /// Start of the valid content within the chunk.
    pub from: u32,
    /// End of the valid content within the chunk.
    pub to: u32,
}

impl Entry {
    pub fn to_record(self) -> EntryRecord {
        EntryRecord { frame: self.frame.to_record(), from: self.from.into(), to: self.to.into() }
    }

    /// Parses a record; `None` if it is invalid in spite of a correct checksum.
    pub fn from_record(record: &EntryRecord) -> Option<Self> {
        let frame = Reference::from_record(&record.frame);
        let (from, to) = (record.from.get(), record.to.get());
        let is_sound = from <= to && u64::from(to) <= 1 << CHUNK_LOG2.end() && frame.is_sound();
        is_sound.then_some(Self { frame, from, to })
    }
}

/// A frame, as described by its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: Kind,
    pub raw: bool,
    pub sequence: u64,
    pub position: u64,
    pub file_size: u64,
    pub from: u32,
    pub length: u32,
    pub body_crc: u32,
    pub reference: Reference,
}

impl Frame {
    /// Makes a frame with the fields that the writer chooses; the others are set later.
    pub fn new(kind: Kind, position: u64, file_size: u64) -> Self {
        Self {
            kind,
            raw: false,
            sequence: 0,
            position,
            file_size,
            from: 0,
            length: 0,
            body_crc: 0,
            reference: Reference::NONE,
        }
    }

    /// Makes a gap that covers a range of sequence numbers.
    pub fn gap(sequences: &RangeInclusive<u64>, file_size: u64) -> Self {
        let (first, last) = (*sequences.start(), *sequences.end());
        Self { sequence: first, ..Self::new(Kind::Gap, last - first, file_size) }
    }

    /// The index entry for the content.
    pub fn entry(&self) -> Entry {
        Entry { frame: self.reference, from: self.from, to: self.from + self.length }
    }

    /// The last sequence number of the frame; a gap may cover several. The next frame has the next
    /// number.
    pub fn last_sequence(&self) -> u64 {
        if self.kind == Kind::Gap { self.sequence + self.position } else { self.sequence }
    }

    /// Length of the body in bytes.
    pub fn body_bytes(&self, identity: &Identity) -> usize {
        (self.reference.stored_length as usize).saturating_sub(identity.header_bytes())
    }
}

/// A frame to be written: the header fields that the writer chooses, and the body.
pub struct NewFrame {
    /// The header. Its sequence number, offset and checksums are set later.
    pub frame: Frame,
    pub body: Vec<u8>,
    /// The payload of a metadata frame, without the container's wrapping.
    pub payload: Vec<u8>,
}

/// Appends a frame to a buffer that will be written at `base` in the stored file. Returns the frame
/// with its offset and checksums.
pub fn append(
    out: &mut Vec<u8>,
    base: u64,
    identity: &Identity,
    frame: Frame,
    body: &[u8],
) -> Frame {
    append_with(out, base, identity, frame, |out| out.extend(body))
}

/// Appends a frame whose body `make_body` appends to the same bytes. Otherwise like [`append`].
pub fn append_with(
    out: &mut Vec<u8>,
    base: u64,
    identity: &Identity,
    frame: Frame,
    make_body: impl FnOnce(&mut Vec<u8>),
) -> Frame {
    let start = out.len();
    let body_start = start + identity.header_bytes();
    out.resize(body_start, 0);
    make_body(out);
    let stored_length = (out.len() - start) as u32;
    let body_crc = crc32c::crc32c(&out[body_start..]);
    let frame = Frame { body_crc, ..frame };
    let sealed = seal(identity, frame, base + start as u64, stored_length);
    out[start..body_start].copy_from_slice(&header(identity, &sealed));
    sealed
}

/// Makes the header of a gap at an offset; the bytes that follow become its body.
pub fn gap(identity: &Identity, gap: Frame, offset: u64, stored_length: u32) -> Vec<u8> {
    header(identity, &seal(identity, gap, offset, stored_length))
}

/// Makes the header of a frame, byte for byte as it was written.
pub fn header(identity: &Identity, frame: &Frame) -> Vec<u8> {
    let is_wrapped_as_content = frame.kind.has_content() || frame.kind == Kind::Gap;
    let body = match is_wrapped_as_content {
        true => Body::Content,
        false => Body::Metadata(frame.length as usize),
    };
    (identity.codec.container.wrap)(&record_of(identity, frame), body)
}

fn seal(identity: &Identity, frame: Frame, offset: u64, stored_length: u32) -> Frame {
    let reference = Reference { offset, stored_length, header_crc: 0 };
    let mut frame = Frame { reference, ..frame };
    frame.reference.header_crc = crc_of(&unsealed(identity, &frame));
    frame
}

fn unsealed(identity: &Identity, frame: &Frame) -> FrameRecord {
    FrameRecord {
        magic: FRAME_MAGIC,
        kind: frame.kind as u8,
        codec: identity.codec.number,
        chunk_log2: identity.chunk_log2,
        flags: if frame.raw { FLAG_RAW } else { 0 },
        file_id: identity.file_id.into(),
        offset: frame.reference.offset.into(),
        sequence: frame.sequence.into(),
        position: frame.position.into(),
        file_size: frame.file_size.into(),
        stored_length: frame.reference.stored_length.into(),
        from: frame.from.into(),
        length: frame.length.into(),
        body_crc: frame.body_crc.into(),
        zero: 0.into(),
        crc: 0.into(),
    }
}

fn record_of(identity: &Identity, frame: &Frame) -> RecordBytes {
    let mut record = unsealed(identity, frame);
    record.crc = frame.reference.header_crc.into();
    let mut bytes = [0; size_of::<FrameRecord>()];
    bytes.copy_from_slice(record.as_bytes());
    bytes
}

/// Parses the header of a frame of this file at this offset.
pub fn parse(identity: &Identity, header: &[u8], offset: u64) -> Result<Frame, &'static str> {
    let (found, frame) = parse_any(identity.codec, header, offset)?;
    if found == *identity { Ok(frame) } else { Err("a frame of another file") }
}

/// Parses the header of a frame of any file; returns the file's identity and the frame.
pub fn parse_any(
    codec: &'static CodecSpec,
    header: &[u8],
    offset: u64,
) -> Result<(Identity, Frame), &'static str> {
    let bytes = (codec.container.unwrap)(header).ok_or("not a frame header")?;
    let record = FrameRecord::read_from_bytes(&bytes).or(Err("not a frame header"))?;
    if record.magic != FRAME_MAGIC {
        return Err("not a frame header");
    }
    if record.crc.get() != crc_of(&record) {
        return Err("a frame header with a wrong checksum");
    }
    if record.offset.get() != offset {
        return Err("a frame that was written at another offset");
    }
    let identity = Identity::from_stored(record.codec, record.chunk_log2, record.file_id.get())
        .filter(|identity| identity.codec.number == codec.number)
        .ok_or("a frame of another codec")?;
    Ok((identity, checked(&identity, &record)?))
}

/// Checks the bounds of all header fields, so that later arithmetic can't overflow.
fn checked(identity: &Identity, record: &FrameRecord) -> Result<Frame, &'static str> {
    const WRONG: Result<Frame, &str> = Err("an invalid frame header");
    let kind = Kind::from_number(record.kind).ok_or("a frame of an unknown kind")?;
    let stored_length = record.stored_length.get();
    let longest = if kind == Kind::Gap { u64::from(u32::MAX) } else { FRAME_BYTES_MAX };
    let (from, length) = (u64::from(record.from.get()), u64::from(record.length.get()));
    let is_bounded = (identity.header_bytes() as u64..=longest).contains(&u64::from(stored_length))
        && from + length <= identity.chunk_bytes().max(super::format::METADATA_BYTES_MAX as u64)
        && record.file_size.get() <= SIZE_MAX
        && record.sequence.get() <= SIZE_MAX
        && record.position.get() <= SIZE_MAX
        && (!leaps(kind) || record.sequence.get() + record.position.get() <= SIZE_MAX / 2)
        && record.offset.get() <= SIZE_MAX
        && (!kind.has_content() || from + length <= identity.chunk_bytes())
        && (!kind.has_content() || record.position.get() <= SIZE_MAX >> identity.chunk_log2);
    if !is_bounded {
        return WRONG;
    }
    Ok(Frame {
        kind,
        raw: record.flags & FLAG_RAW != 0,
        sequence: record.sequence.get(),
        position: record.position.get(),
        file_size: record.file_size.get(),
        from: record.from.get(),
        length: record.length.get(),
        body_crc: record.body_crc.get(),
        reference: Reference {
            offset: record.offset.get(),
            stored_length,
            header_crc: record.crc.get(),
        },
    })
}

/// Whether a frame of this kind may raise the sequence number by an arbitrary amount. Enough
/// numbers must then remain for later frames.
fn leaps(kind: Kind) -> bool {
    matches!(kind, Kind::Gap | Kind::Checkpoint)
}

/// Parses a header like [`parse`], but repairs one wrong byte, because a single flipped bit must
/// not end the walk over the frames. It tries every byte with every value. The identity, the offset
/// and the checksum rule out a wrong guess.
pub fn parse_mending(
    identity: &Identity,
    header: &[u8],
    offset: u64,
) -> Result<Frame, &'static str> {
    let answer = parse(identity, header, offset);
    if answer.is_ok() || header.iter().all(|byte| *byte == 0) {
        return answer;
    }
    mended(header, |attempt| parse(identity, attempt, offset).ok()).map_or(answer, Ok)
}

/// Repairs one wrong byte in a short frame body, by trying every value of every byte.
pub fn mended_body(body: &[u8], crc: u32) -> Option<Vec<u8>> {
    // Longer bodies are refused, so that a crafted file can't use much time.
    const LONGEST: usize = 64;
    let is_right = |attempt: &[u8]| (crc32c::crc32c(attempt) == crc).then(|| attempt.to_vec());
    if body.len() <= LONGEST { mended(body, is_right) } else { None }
}

/// Tries every value of every single byte; returns the first result of `fits`.
fn mended<T>(bytes: &[u8], fits: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
    let mut attempt = bytes.to_vec();
    for index in 0..bytes.len() {
        for flip in 1..=u8::MAX {
            attempt[index] = bytes[index] ^ flip;
            if let Some(found) = fits(&attempt) {
                return Some(found);
            }
        }
        attempt[index] = bytes[index];
    }
    None
}

/// The codec and the chunk size of a file.
#[derive(Clone, Copy)]
pub struct Encoding {
    pub codec: &'static CodecSpec,
    pub chunk_bytes: u64,
}

impl PartialEq for Encoding {
    fn eq(&self, other: &Self) -> bool {
        let parts = |encoding: &Self| (encoding.codec.number, encoding.chunk_bytes);
        parts(self) == parts(other)
    }
}

impl From<&Identity> for Encoding {
    fn from(identity: &Identity) -> Self {
        Self { codec: identity.codec, chunk_bytes: identity.chunk_bytes() }
    }
}
