//! What every operation on a stored file needs: the file below, the request, the settings.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fslab_vfs::{Clock, Errno, Error, Ino, Request};

use super::codec::CodecSpec;
use super::decoded_cache::DecodedCache;
use super::frame::Encoding;
use super::lower::LowerFile;
use super::read_ahead::ReadAhead;
use super::workers::Workers;
use fslab_layers::RandomSource;

/// One operation on one stored file.
#[derive(Clone, Copy)]
pub struct Io<'a> {
    pub lower: &'a LowerFile,
    pub request: &'a Request,
    pub settings: &'a Settings,
    /// The chunk it is about, for messages.
    pub chunk: Option<u64>,
    /// What was decoded ahead for who reads.
    pub ahead: Option<&'a ReadAhead>,
}

/// How a layer was asked to work.
pub struct Settings {
    /// For new files.
    pub codec: &'static CodecSpec,
    /// For everything encoded.
    pub level: i32,
    /// For new files: bytes of a chunk, as a power of two.
    pub chunk_log2: u8,
    /// Whether appended bytes may stay raw for a while.
    pub tails: bool,
    /// What encoding must at least leave off, as a share of the content, to be worth it.
    pub least_gain: f64,
    /// Whether checksums of content are checked on reading.
    pub verify: bool,
    /// Whether sizes are kept in an xattr, and looked for there by who only wants to know the size.
    /// Marks that are there are read and voided in any case.
    pub size_xattr: bool,
    /// Encodes the chunks of large writes side by side.
    pub workers: Workers,
    /// Decoded content of frames.
    pub cache: DecodedCache,
    /// Tells how long something takes.
    pub clock: Arc<dyn Clock>,
    /// Numbers that nobody can guess.
    pub draws: Arc<dyn RandomSource>,
    /// Counts the files made, so that no two get the same id.
    pub files_made: AtomicU64,
    /// Bytes without use that a file may hold, beyond as many as it has of use.
    pub garbage_bytes_max: u64,
    /// When files are packed that hold much garbage.
    pub packing: WhenToPack,
    /// This mount, from start to end; see the tree's xattr.
    pub session: Session,
    /// Whether content that is not whole, at the end of a file without a mark, may be left out as
    /// what a crash lost. Else the file is refused.
    pub may_leave_out: bool,
    /// Of a conversion that encodes: seals the ids of new files.
    pub run_key: Option<u64>,
}

/// When files are packed that hold much garbage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenToPack {
    /// While nobody asks for anything, nor has for so long; so many bytes a second.
    Idle { after: Duration, rate: u64 },
    /// When the last who writes one closes it, who waits for it.
    Close,
    /// Only by `fslab sca compact`.
    Never,
}

/// Which marks of which sessions may be believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// This one; 0 where none could be recorded.
    pub number: u64,
    /// The first and last of those that ended with everything durable, without another between.
    pub durable_from: u64,
    pub durable: u64,
    /// The tree was empty at first.
    pub pure: bool,
    /// Only the unfinished run of a conversion made stored files here.
    pub plain: bool,
}

impl Session {
    /// Whether every session over the tree ended in order, as far as the tree knows.
    pub fn had_no_crash(&self) -> bool {
        self.durable_from == 0
    }

    /// Whether what a session wrote is still as it was written.
    pub fn trusts(&self, session: u64) -> bool {
        session != 0
            && (session == self.number || (self.durable_from..=self.durable).contains(&session))
    }
}

impl Settings {
    /// Of new files.
    pub fn shape(&self) -> Encoding {
        Encoding { codec: self.codec, chunk_bytes: 1 << self.chunk_log2 }
    }

    /// An id that no other file has and nobody can guess: nobody can write content that passes for
    /// frames of a file to come. A draw, mixed with the time of the request, the inode below and a
    /// count.
    pub fn new_file_id(&self, request: &Request, ino: Ino) -> u64 {
        let count = self.files_made.fetch_add(1, Ordering::Relaxed);
        let parts = [
            request.now.seconds as u64,
            u64::from(request.now.nanoseconds) << 32 | u64::from(request.pid),
            ino.0,
            self.session.number,
            count,
        ];
        let id = parts.into_iter().fold(self.draws.draw(), |id, part| mix(id ^ part));
        self.run_key.map_or(id, |key| seal(key, id))
    }
}

/// Bits of a sealed id that follow from the others and a key.
const SEAL_BITS: u32 = 24;

/// An id that shows who has the key that a run of theirs gave it.
pub fn seal(key: u64, id: u64) -> u64 {
    let rest = id >> SEAL_BITS;
    rest << SEAL_BITS | mix(key ^ mix(rest)) >> (u64::BITS - SEAL_BITS)
}

/// A bijection in which each bit depends on each (the finalizer of SplitMix64, Steele et al. 2014).
pub fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

impl<'a> Io<'a> {
    /// An operation on a whole file.
    pub fn new(lower: &'a LowerFile, request: &'a Request, settings: &'a Settings) -> Self {
        Self { lower, request, settings, chunk: None, ahead: None }
    }

    /// The same operation, where it is about one chunk.
    pub fn of_chunk(self, chunk: u64) -> Self {
        Self { chunk: Some(chunk), ..self }
    }

    /// Damage, said once in the log and answered as `EIO`.
    pub fn damaged(&self, offset: u64, what: &'static str) -> Error {
        let (file, chunk) = (self.lower.name(), self.chunk);
        tracing::error!(%file, chunk, offset, what, "damaged stored file; see `fslab sca verify`");
        Error::Damaged { ino: self.lower.ino, offset, what }
    }
}

/// A request of the daemon itself, where there is none of a caller.
pub fn own_request() -> Request {
    Request::default()
}

/// Whether an error says that there is no room.
pub fn is_full(error: &Error) -> bool {
    matches!(error.errno(), Errno::NOSPC | Errno::DQUOT)
}

/// The largest file was exceeded.
pub fn too_large() -> Error {
    Errno::FBIG.into()
}
