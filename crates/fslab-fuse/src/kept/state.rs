//! The layout of the shared memory that a daemon of a kept mount leaves to the next one.
//!
//! The memory consists of 64-bit words. The next daemon trusts none of them. A number out of range
//! is treated as absent.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use bitflags::Flags;
use fslab_sys::shared_memory::SharedMemory;

use crate::protocol::flags::InitFlags;
use crate::protocol::{MAJOR, MINOR_MAX};

/// Maximum number of requests recorded at a time.
pub(super) const RECORDS_MAX: usize = 4096;
const RECORD_WORDS: usize = 32;

/// Maximum payload of a recorded reply; the reply to a creation is the longest.
pub(super) const PAYLOAD_BYTES_MAX: usize = (RECORD_WORDS - 8) * size_of::<u64>();

/// Maximum number of open files and directories.
pub(super) const HANDLES_MAX: usize = 1 << 20;
const HANDLE_WORDS: usize = 4;

const HEADER_WORDS: usize = 64;
const RECORDS_START: usize = HEADER_WORDS;
const HANDLES_START: usize = RECORDS_START + RECORDS_MAX * RECORD_WORDS;
const WORDS: usize = HANDLES_START + HANDLES_MAX * HANDLE_WORDS;

/// Version of the layout. Increase it with each change, because another version of fslab may take
/// over a mount.
const LAYOUT: u64 = 2;

/// Words of the header.
#[derive(Clone, Copy)]
enum Head {
    Layout,
    Stage,
    /// How the previous daemon ended, as a number of [`DaemonEnd`].
    LastEnd,
    Device,
    MountDevice,
    Protocol,
    WriteBytesMax,
    RequestTimeMax,
    Features,
    /// The version of the records of the lower file system.
    LowerLayout,
    /// One more than the highest index of a record ever used, and the same for handles. Later
    /// entries are not read.
    RecordsEnd,
    HandlesEnd,
}

/// Values of [`Head::Stage`].
const SERVED: u64 = 1;
const ENDED: u64 = 2;

/// How a daemon of a kept mount ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DaemonEnd {
    /// SIGKILL ended it, or the reason is unknown.
    #[default]
    Killed,
    /// It was stopped to be replaced by another version of the program.
    Replaced,
    /// It crashed, for example because of a request that it was performing.
    Crashed,
}

impl DaemonEnd {
    const ALL: [Self; 3] = [Self::Killed, Self::Replaced, Self::Crashed];
}

/// The shared memory of a kept mount, passed from daemon to daemon. Its size is 33 MiB, but only
/// written pages occupy memory.
#[derive(Debug)]
pub struct KeptState {
    memory: SharedMemory,
}

/// The connection to the kernel, as negotiated by an earlier daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    /// Number of the descriptor of /dev/fuse.
    pub device: RawFd,
    /// Device number of the mounted file system.
    pub mount_device: (u32, u32),
    pub protocol: (u32, u32),
    pub write_bytes_max: u32,
    pub request_time_max_s: Option<u64>,
    pub features: u64,
}

impl KeptState {
    /// Makes the state of a new mount. `lower_layout` is the version of the records that the lower
    /// file system keeps for the next daemon.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn new(lower_layout: u64) -> io::Result<Self> {
        let state = Self { memory: SharedMemory::new("fslab-kept-mount", WORDS)? };
        state.head(Head::LowerLayout).store(lower_layout, Ordering::Relaxed);
        state.head(Head::Layout).store(LAYOUT, Ordering::Relaxed);
        Ok(state)
    }

    /// Opens the state of an existing mount, perhaps made by another version of fslab.
    ///
    /// # Errors
    /// `InvalidData` if this version does not understand the layout or lacks features of the mount;
    /// errors of the kernel.
    pub fn of_file(file: OwnedFd) -> io::Result<Self> {
        let state = Self { memory: SharedMemory::of(file, WORDS)? };
        let refused = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        if state.head(Head::Layout).load(Ordering::Relaxed) != LAYOUT {
            return refused("the mount was made by an fslab version with another record format");
        }
        let Some(connection) = state.connection() else {
            return refused("no FUSE connection is recorded for the mount");
        };
        // `InitFlags::all` would also include bits to which this version assigns no feature.
        let known = InitFlags::FLAGS.iter().filter(|flag| flag.is_named());
        let known = known.fold(0, |known, flag| known | flag.value().bits());
        if connection.features & !known != 0 || connection.protocol > (MAJOR, MINOR_MAX) {
            return refused("the mount has features that this fslab version does not support");
        }
        Ok(state)
    }

    /// The version of the records of the lower file system, as passed to [`new`](Self::new).
    #[must_use]
    pub fn lower_layout(&self) -> u64 {
        self.head(Head::LowerLayout).load(Ordering::Acquire)
    }

    /// Records how the daemon ended, for the next one.
    pub fn note_end(&self, end: DaemonEnd) {
        self.head(Head::LastEnd).store(end as u64, Ordering::Release);
    }

    /// How the previous daemon ended.
    #[must_use]
    pub fn last_end(&self) -> DaemonEnd {
        let number = self.head(Head::LastEnd).load(Ordering::Acquire);
        let end = DaemonEnd::ALL.into_iter().find(|end| *end as u64 == number);
        end.unwrap_or_default()
    }

    /// Whether a daemon has begun to serve the mount and the mount has not ended.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.head(Head::Stage).load(Ordering::Acquire) == SERVED
    }

    /// Records that no daemon may take over, because the mount has ended or was never made.
    pub fn end(&self) {
        self.head(Head::Stage).store(ENDED, Ordering::Release);
    }

    /// Records a connection at the beginning of serving it.
    pub(crate) fn begin(&self, device: BorrowedFd<'_>, connection: &Connection) {
        let put = |word, value: u64| self.head(word).store(value, Ordering::Relaxed);
        put(Head::Device, device.as_raw_fd().cast_unsigned().into());
        put(Head::MountDevice, join(connection.mount_device));
        put(Head::Protocol, join(connection.protocol));
        put(Head::WriteBytesMax, connection.write_bytes_max.into());
        put(Head::RequestTimeMax, connection.request_time_max_s.unwrap_or(u64::MAX));
        put(Head::Features, connection.features);
        self.head(Head::Stage).store(SERVED, Ordering::Release);
    }

    /// The connection of an earlier daemon; `None` if there is none, or its words are invalid.
    pub(crate) fn connection(&self) -> Option<Connection> {
        let get = |word| self.head(word).load(Ordering::Relaxed);
        if !self.is_served() {
            return None;
        }
        Some(Connection {
            device: RawFd::try_from(get(Head::Device)).ok()?,
            mount_device: split(get(Head::MountDevice)),
            protocol: split(get(Head::Protocol)),
            write_bytes_max: u32::try_from(get(Head::WriteBytesMax)).ok()?,
            request_time_max_s: Some(get(Head::RequestTimeMax)).filter(|time| *time != u64::MAX),
            features: get(Head::Features),
        })
    }

    fn head(&self, word: Head) -> &AtomicU64 {
        &self.memory.words()[word as usize]
    }

    /// Notes that a record is used, so that the next daemon reads it.
    pub(super) fn use_record(&self, index: usize) {
        self.head(Head::RecordsEnd).fetch_max(index as u64 + 1, Ordering::Relaxed);
    }

    /// Notes that a handle is used, so that the next daemon reads it.
    pub(super) fn use_handle(&self, index: usize) {
        self.head(Head::HandlesEnd).fetch_max(index as u64 + 1, Ordering::Relaxed);
    }

    /// Upper bound of the indices of records in use.
    pub(super) fn records_end(&self) -> usize {
        (self.head(Head::RecordsEnd).load(Ordering::Relaxed) as usize).min(RECORDS_MAX)
    }

    /// Upper bound of the indices of handles in use.
    pub(super) fn handles_end(&self) -> usize {
        (self.head(Head::HandlesEnd).load(Ordering::Relaxed) as usize).min(HANDLES_MAX)
    }

    pub(super) fn record(&self, index: usize) -> &[AtomicU64] {
        let start = RECORDS_START + index % RECORDS_MAX * RECORD_WORDS;
        &self.memory.words()[start..start + RECORD_WORDS]
    }

    pub(super) fn handle(&self, index: usize) -> &[AtomicU64] {
        let start = HANDLES_START + index % HANDLES_MAX * HANDLE_WORDS;
        &self.memory.words()[start..start + HANDLE_WORDS]
    }
}

impl AsFd for KeptState {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

fn join((high, low): (u32, u32)) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Returns the upper and the lower half of a word.
fn split(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn connection_is_restored_until_it_has_ended() {
        let state = KeptState::new(0).unwrap();
        assert_eq!(state.connection(), None);
        let device = std::fs::File::open("/dev/null").unwrap();
        let connection = Connection {
            device: device.as_raw_fd(),
            mount_device: (0, 77),
            protocol: (7, 45),
            write_bytes_max: 1 << 20,
            request_time_max_s: None,
            features: 1 << 39,
        };
        state.begin(device.as_fd(), &connection);
        assert_eq!(state.connection(), Some(connection));
        let file = || state.as_fd().try_clone_to_owned().unwrap();
        assert_eq!(KeptState::of_file(file()).unwrap().connection(), Some(connection));
        state.end();
        assert_eq!(state.connection(), None);
        assert!(KeptState::of_file(file()).is_err());
    }

    #[test]
    fn state_of_an_incompatible_version_is_refused() {
        let with = |head: Head, value: u64| {
            let state = KeptState::new(0).unwrap();
            state.head(Head::Stage).store(SERVED, Ordering::Relaxed);
            state.head(head).store(value, Ordering::Relaxed);
            KeptState::of_file(state.as_fd().try_clone_to_owned().unwrap()).map(drop)
        };
        with(Head::Protocol, join((MAJOR, MINOR_MAX))).unwrap();
        for (head, value) in [
            (Head::Layout, LAYOUT + 1),
            (Head::Features, 1 << 63),
            (Head::Protocol, join((MAJOR, MINOR_MAX + 1))),
            (Head::Device, u64::MAX),
            (Head::Stage, ENDED),
        ] {
            let refused = with(head, value).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{}", head as usize);
        }
    }
}
