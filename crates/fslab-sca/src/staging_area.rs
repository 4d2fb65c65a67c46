//! Staging areas and the chunks in them (see `staging`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fslab_vfs::Result;
use parking_lot::{Condvar, Mutex};

use super::codec::CodecSpec;
use super::context::{Io, Settings};
use super::encoder::{Encoded, encode};
use super::format::{STAGING_ALIGNMENT, STAGING_SLACK, STAGING_SLOTS};
use super::frame::{Frame, Identity, parse};
use super::staged_memory::{Buffer, Counted};

/// Distance between the last frame and a new staging area. A commit ends staging after half as many
/// bytes.
const DISTANCE_BYTES: u64 = 128 << 20;

/// The position of a staging area, which is the end of the lower file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    pub base: u64,
    pub slot_bytes: u64,
}

impl Area {
    /// An area behind the last frame of a file, which ends at `end`.
    pub fn behind(identity: &Identity, end: u64) -> Self {
        let base = (end + DISTANCE_BYTES).next_multiple_of(STAGING_ALIGNMENT);
        Self { base, slot_bytes: slot_bytes(identity) }
    }

    /// The area at the end of a lower file of `length` bytes, if there can be one.
    fn ending_at(identity: &Identity, end: u64, length: u64) -> Option<Self> {
        let slot_bytes = slot_bytes(identity);
        let base = length.checked_sub(STAGING_SLOTS * slot_bytes)?;
        let fits = base >= end && base.is_multiple_of(STAGING_ALIGNMENT);
        fits.then_some(Self { base, slot_bytes })
    }

    /// Returns the offset of the slot for the chunk with this sequence number. Staged chunks have
    /// successive numbers, and their number is at most that of the slots. So each has its own slot.
    pub fn slot(self, sequence: u64) -> u64 {
        self.base + sequence % STAGING_SLOTS * self.slot_bytes
    }

    pub fn end(self) -> u64 {
        self.base + STAGING_SLOTS * self.slot_bytes
    }
}

fn slot_bytes(identity: &Identity) -> u64 {
    identity.chunk_bytes() + STAGING_SLACK
}

/// The staged chunks of a file.
#[derive(Default)]
pub struct Staging {
    pub area: Option<Area>,
    /// The chunks that are not in the journal yet, in order.
    pub chunks: VecDeque<StagedChunk>,
    /// The chunk after those in `chunks`, to which further pieces may be appended.
    pub open: Option<OpenChunk>,
    /// Whether this mount made the area. Otherwise recovery found it.
    pub is_own: bool,
    /// The appends in a row since the last change of another kind.
    pub appended: Appended,
    /// Whether the lower file system can't store a staging area. Staging is then not tried again.
    pub is_refused: bool,
}

/// Appends that followed each other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Appended {
    pub bytes: u64,
    pub writes: u64,
}

/// A staged chunk that is not full yet.
pub struct OpenChunk {
    /// The header of its encoded frame, with the length of the content so far.
    pub frame: Frame,
    pub content: Buffer,
    /// Offset of the next piece in the lower file.
    pub end: u64,
    /// End of the slot.
    pub limit: u64,
}

impl OpenChunk {
    /// Adds the content of a piece, whose frame ends at `end` in the lower file.
    pub fn add(&mut self, data: &[u8], end: u64) {
        self.content.bytes.extend_from_slice(data);
        self.frame.length += data.len() as u32;
        self.frame.file_size += data.len() as u64;
        self.end = end;
    }

    /// Ends the chunk, so that it can be encoded.
    pub fn close(self, codec: &'static CodecSpec) -> StagedChunk {
        StagedChunk { frame: self.frame, job: Some(Job::new(codec, self.content)) }
    }
}

/// A staged chunk.
pub struct StagedChunk {
    /// The header of its encoded frame.
    pub frame: Frame,
    /// The job that encodes the chunk. A chunk without a job is read from its slot when it is
    /// appended. This applies to chunks that recovery found, because many such files would fill the
    /// memory, and to chunks whose frame could not be appended.
    pub job: Option<Arc<Job>>,
}

impl StagedChunk {
    /// Whether the encoded chunk is ready to be appended.
    pub fn is_encoded(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.is_done())
    }
}

/// The job of encoding a chunk. The first thread that is free performs it.
pub struct Job {
    codec: &'static CodecSpec,
    phase: Mutex<Phase>,
    ended: Condvar,
}

enum Phase {
    /// The content of the chunk waits to be encoded.
    Waiting(Buffer),
    Running,
    Done {
        encoded: Encoded,
        _counted: Counted,
    },
    /// [`Job::take`] has returned the encoded chunk.
    Taken,
}

impl Job {
    fn new(codec: &'static CodecSpec, content: Buffer) -> Arc<Self> {
        let phase = Mutex::new(Phase::Waiting(content));
        Arc::new(Self { codec, phase, ended: Condvar::new() })
    }

    /// Encodes the chunk, unless another thread has encoded it or is encoding it.
    ///
    /// # Errors
    /// `ENOMEM` if encoding fails. It can be tried again.
    pub fn run(&self, settings: &Settings) -> Result<()> {
        let mut phase = self.phase.lock();
        let content = match std::mem::replace(&mut *phase, Phase::Running) {
            Phase::Waiting(content) => content,
            before => {
                *phase = before;
                return Ok(());
            }
        };
        drop(phase);
        let (phase, answer) = match encode(settings, self.codec, &content) {
            Ok(encoded) => {
                let _counted = settings.staged.count(encoded.body.len());
                (Phase::Done { encoded, _counted }, Ok(()))
            }
            Err(error) => (Phase::Waiting(content), Err(error)),
        };
        *self.phase.lock() = phase;
        self.ended.notify_all();
        answer
    }

    /// Returns the encoded chunk: encodes it, or waits for the thread that encodes it. Returns
    /// `None` if it was already returned.
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub fn take(&self, settings: &Settings) -> Result<Option<Encoded>> {
        loop {
            self.run(settings)?;
            let mut phase = self.phase.lock();
            while matches!(*phase, Phase::Running) {
                self.ended.wait(&mut phase);
            }
            match std::mem::replace(&mut *phase, Phase::Taken) {
                Phase::Done { encoded, .. } => return Ok(Some(encoded)),
                Phase::Taken => return Ok(None),
                // Another thread has failed to encode it.
                before => *phase = before,
            }
        }
    }

    fn is_done(&self) -> bool {
        matches!(*self.phase.lock(), Phase::Done { .. })
    }
}

/// A staging area in a lower file.
pub struct Found {
    pub area: Area,
    /// For each staged chunk that is not in the journal yet: its pieces.
    pub chunks: Vec<Vec<Frame>>,
}

impl Found {
    /// Number of staged chunks that the journal lacks.
    pub fn count(&self) -> usize {
        self.chunks.len()
    }
}

/// Looks for a staging area in a lower file of `length` bytes, whose last frame ends at `end` and
/// has the number `sequence`.
///
/// # Errors
/// Errors of reading the lower file.
pub fn find(
    io: Io<'_>,
    identity: &Identity,
    (end, sequence): (u64, u64),
    length: u64,
) -> Result<Option<Found>> {
    let Some(area) = Area::ending_at(identity, end, length) else { return Ok(None) };
    let (mut is_area, mut newer) = (false, BTreeMap::new());
    for number in 0..STAGING_SLOTS {
        let Some(slot) = read_slot(io, identity, area, number)? else { continue };
        is_area = true;
        newer.insert(slot.sequence, slot.pieces);
    }
    let in_order = (sequence + 1..).map_while(|number| newer.remove(&number));
    let chunks: Vec<_> = in_order.take_while(|pieces| !pieces.is_empty()).collect();
    // If no staged chunk follows the last frame, there are only zeros before the area, unless the
    // header of a frame is damaged. The frames after a damaged header must be kept.
    let is_area =
        is_area && (!chunks.is_empty() || io.lower.is_zero(io.request, &(end..area.base))?);
    Ok(is_area.then_some(Found { area, chunks }))
}

/// The content of a slot.
struct Slot {
    sequence: u64,
    /// The pieces with valid content, up to the first invalid one.
    pieces: Vec<Frame>,
}

/// Reads a slot. Returns `None` if no frame of this file begins there.
fn read_slot(io: Io<'_>, identity: &Identity, area: Area, number: u64) -> Result<Option<Slot>> {
    let at = area.slot(number);
    let bytes = io.lower.read(io.request, at, area.slot_bytes as usize)?;
    let Some(first) = piece_at(identity, &bytes, at, 0) else { return Ok(None) };
    let (mut next, mut pieces) = (Some(first), Vec::new());
    while let Some(piece) = next.filter(|piece| is_whole(identity, &bytes, at, piece)) {
        pieces.push(piece);
        next = piece_at(identity, &bytes, at, (piece.reference.end() - at) as usize);
        next = next.filter(|next| continues(&piece, next));
    }
    Ok(Some(Slot { sequence: first.sequence, pieces }))
}

/// Returns the frame whose header is at a place in the bytes of a slot.
fn piece_at(identity: &Identity, bytes: &[u8], slot: u64, place: usize) -> Option<Frame> {
    let header = bytes.get(place..)?.get(..identity.header_bytes())?;
    let frame = parse(identity, header, slot + place as u64).ok()?;
    (frame.kind.has_content() && frame.raw && frame.length > 0).then_some(frame)
}

/// Whether a piece follows another one of the same chunk.
fn continues(piece: &Frame, next: &Frame) -> bool {
    let of = |piece: &Frame| (piece.sequence, piece.position);
    of(next) == of(piece) && next.from == piece.entry().to
}

/// Whether the content of a piece is valid.
fn is_whole(identity: &Identity, bytes: &[u8], slot: u64, piece: &Frame) -> bool {
    let start = (piece.reference.offset - slot) as usize + identity.header_bytes();
    let body = bytes.get(start..).and_then(|rest| rest.get(..piece.body_bytes(identity)));
    body.filter(|body| crc32c::crc32c(body) == piece.body_crc)
        .is_some_and(|body| identity.codec.decode(body, piece.length as usize).is_some())
}
