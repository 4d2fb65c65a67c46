//! The context of an operation on a stored file: the lower file, the request, the settings.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fslab_vfs::{Clock, Errno, Error, Ino, Request};

use super::codec::CodecSpec;
use super::decoded_cache::DecodedCache;
use super::failed_searches::FailedSearches;
use super::frame::Encoding;
use super::lower::LowerFile;
use super::read_ahead::ReadAhead;
use super::staged_memory::StagedMemory;
use super::workers::Workers;
use fslab_layers::RandomSource;

/// One operation on one stored file.
#[derive(Clone, Copy)]
pub struct Io<'a> {
    pub lower: &'a LowerFile,
    pub request: &'a Request,
    pub settings: &'a Settings,
    /// The chunk that log messages mention, if any.
    pub chunk: Option<u64>,
    /// Chunks decoded in advance for this reader.
    pub ahead: Option<&'a ReadAhead>,
}

/// Settings of a layer.
pub struct Settings {
    /// Codec of new files.
    pub codec: &'static CodecSpec,
    /// Compression level.
    pub level: i32,
    /// The base-2 logarithm of the chunk size of new files in bytes.
    pub chunk_log2: u8,
    /// Whether appended bytes may stay raw for a while.
    pub tails: bool,
    /// Whether appended chunks may be encoded after the write has returned.
    pub stages: bool,
    /// Memory of the staged chunks in all files.
    pub staged: Arc<StagedMemory>,
    /// Minimum share of the content that encoding must save to be worthwhile.
    pub least_gain: f64,
    /// Whether checksums of content are checked on reading.
    pub verify: bool,
    /// Whether sizes are stored in an xattr, and taken from it when a file's size is requested. An
    /// existing size xattr is always read, and invalidated before a change.
    pub size_xattr: bool,
    /// Threads that encode the chunks of large writes in parallel.
    pub workers: Workers,
    /// Decoded content of frames.
    pub cache: DecodedCache,
    /// Measures durations.
    pub clock: Arc<dyn Clock>,
    /// Source of unpredictable random numbers.
    pub draws: Arc<dyn RandomSource>,
    /// Counts new files, so that each gets a different id.
    pub files_made: AtomicU64,
    /// Files whose damaged index can't be rebuilt.
    pub failed_searches: FailedSearches,
    /// Bytes of garbage that a file may hold before it is collected, even if the file has fewer
    /// live bytes.
    pub garbage_bytes_max: u64,
    /// The policy for packing files with much garbage.
    pub packing: WhenToPack,
    /// The session of this mount, which an xattr of the tree's root records.
    pub session: Session,
    /// Whether recovery may assume that a crash caused incomplete content at the end of a file
    /// without a valid size xattr. If so, recovery leaves this content out. Otherwise opening the
    /// file fails.
    pub may_leave_out: bool,
    /// The key that marks the ids of new files while a conversion encodes a tree, so that its files
    /// can be recognised later.
    pub run_key: Option<u64>,
}

/// The policy for packing files with much garbage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenToPack {
    /// Packs each file that had no request for `after`, at `rate` bytes per second.
    Idle { after: Duration, rate: u64 },
    /// A file is packed when its last writer closes it; the close waits for the packing.
    Close,
    /// Files are packed only by `fslab sca compact`.
    Never,
}

/// The sessions whose size xattrs are trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// The current session; 0 if it could not be recorded.
    pub number: u64,
    /// The first of an unbroken series of sessions, up to `durable`, that ended with all data
    /// durable.
    pub durable_from: u64,
    pub durable: u64,
    /// Whether the tree was empty when fslab first used it.
    pub pure: bool,
    /// Whether all stored files in the tree were made by the unfinished run of a conversion.
    pub plain: bool,
}

impl Session {
    /// Whether every recorded session of the tree ended properly.
    pub fn had_no_crash(&self) -> bool {
        self.durable_from == 0
    }

    /// Whether the size xattrs that a session wrote are trusted.
    pub fn trusts(&self, session: u64) -> bool {
        session != 0
            && (session == self.number || (self.durable_from..=self.durable).contains(&session))
    }
}

impl Settings {
    /// The encoding of new files.
    pub fn encoding(&self) -> Encoding {
        Encoding { codec: self.codec, chunk_bytes: 1 << self.chunk_log2 }
    }

    /// Returns an id that is unique and can't be predicted. So no user can write content that would
    /// be mistaken for frames of a future file. The id mixes a random number with the time of the
    /// request, the lower inode and a counter.
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

/// Bits of a sealed id that are derived from the other bits and a key.
const SEAL_BITS: u32 = 24;

/// Seals an id with a key, so that the holder of the key can recognise ids of the same run.
pub fn seal(key: u64, id: u64) -> u64 {
    let rest = id >> SEAL_BITS;
    rest << SEAL_BITS | mix(key ^ mix(rest)) >> (u64::BITS - SEAL_BITS)
}

/// A bijection in which each output bit depends on each input bit (the finalizer of SplitMix64,
/// Steele et al. 2014).
pub fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

impl<'a> Io<'a> {
    /// Makes the context of an operation on a whole file.
    pub fn new(lower: &'a LowerFile, request: &'a Request, settings: &'a Settings) -> Self {
        Self { lower, request, settings, chunk: None, ahead: None }
    }

    /// Returns the context of the same operation, restricted to one chunk.
    pub fn of_chunk(self, chunk: u64) -> Self {
        Self { chunk: Some(chunk), ..self }
    }

    /// Logs damage, and returns it as an error with `EIO`.
    pub fn damaged(&self, offset: u64, what: &'static str) -> Error {
        let (file, chunk) = (self.lower.name(), self.chunk);
        tracing::error!(%file, chunk, offset, what, "damaged stored file; see `fslab sca verify`");
        Error::Damaged { ino: self.lower.ino, offset, what }
    }
}

/// Returns a request of the daemon itself, without a caller.
pub fn own_request() -> Request {
    Request::default()
}

/// Whether an error means that the disk or quota is full.
pub fn is_full(error: &Error) -> bool {
    matches!(error.errno(), Errno::NOSPC | Errno::DQUOT)
}

/// Returns the error for exceeding the maximum file size.
pub fn too_large() -> Error {
    Errno::FBIG.into()
}
