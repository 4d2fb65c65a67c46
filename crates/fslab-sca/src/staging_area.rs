//! Staging areas and the chunks in them (see `staging`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fslab_vfs::Result;
use parking_lot::{Condvar, Mutex};

use super::codec::CodecSpec;
use super::context::{Io, Settings};
use super::encoder::{Encoded, encode};
use super::format::{Kind, STAGING_ALIGNMENT, STAGING_SLACK, STAGING_SLOTS};
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

    /// Returns the offset of the slot for the chunk with this number.
    pub fn slot(self, number: u64) -> u64 {
        self.base + number % STAGING_SLOTS * self.slot_bytes
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
    /// Number of chunks staged in this area so far.
    pub count: u64,
    /// Number of chunks that were appended in a row, since the last change of another kind.
    pub row: u32,
    /// Whether the lower file system can't have such an area. It is then not tried again.
    pub is_refused: bool,
}

/// A staged chunk.
pub struct StagedChunk {
    pub frame: Frame,
    /// Its encoding. Without one, the chunk is read from its slot when it is appended. That is so
    /// for chunks that recovery found, because many such files would fill the memory, and for
    /// chunks that could not be appended.
    pub job: Option<Arc<Job>>,
}

impl StagedChunk {
    /// Whether the encoded chunk is ready to be appended.
    pub fn is_encoded(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.is_done())
    }
}

/// The encoding of a chunk, by whichever thread comes first.
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
    pub fn new(settings: &Settings, codec: &'static CodecSpec, content: &[u8]) -> Arc<Self> {
        let content = settings.staged.copy(content);
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
    /// The frames that follow the last frame of the journal.
    pub frames: Vec<Frame>,
}

impl Found {
    /// Number of staged chunks that the journal lacks.
    pub fn count(&self) -> usize {
        self.frames.len()
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
        let Some((frame, is_whole)) = read_slot(io, identity, area, number)? else { continue };
        is_area = true;
        newer.insert(frame.sequence, (frame, is_whole));
    }
    let in_order = (sequence + 1..).map_while(|number| newer.remove(&number));
    let frames = in_order.map_while(|(frame, is_whole)| is_whole.then_some(frame)).collect();
    Ok(is_area.then_some(Found { area, frames }))
}

/// Reads a slot. Returns the frame and whether its content is whole, or `None` if no frame of this
/// file begins there.
fn read_slot(
    io: Io<'_>,
    identity: &Identity,
    area: Area,
    number: u64,
) -> Result<Option<(Frame, bool)>> {
    let (at, header_bytes) = (area.slot(number), identity.header_bytes());
    let bytes = io.lower.read(io.request, at, area.slot_bytes as usize)?;
    let Some((header, rest)) = bytes.split_at_checked(header_bytes) else { return Ok(None) };
    let Ok(frame) = parse(identity, header, at) else { return Ok(None) };
    if frame.kind != Kind::Data || !frame.raw {
        return Ok(None);
    }
    let body = rest.get(..frame.body_bytes(identity));
    let body = body.filter(|body| crc32c::crc32c(body) == frame.body_crc);
    let content = body.and_then(|body| identity.codec.decode(body, frame.length as usize));
    Ok(Some((frame, content.is_some())))
}
