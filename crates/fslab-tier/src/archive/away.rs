//! An archive that may go away and come back, as a server does that starts later, or a disk that is
//! plugged in when it is needed.
//!
//! While it is away, calls answer `NotConnected`, and it is looked for now and then by whoever asks
//! for it. One asks at a time: a server that hangs holds up him alone. It goes away when what it
//! lies in answers as if that were gone, or something is missing and so is the archive itself.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fslab_vfs::{Clock, Errno};
use parking_lot::Mutex;

use super::{Archive, ContainerKind, Upload};
use crate::error::{Error, Result};
use crate::id::Id;

/// How often an archive that is away is looked for.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Opens an archive where it should be.
pub type Opener = Box<dyn Fn() -> Result<Arc<dyn Archive>> + Send + Sync>;

/// An archive that may be away.
pub struct AwayArchive {
    id: Id,
    label: String,
    open: Opener,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Held by whoever looks for it.
    looking: Mutex<()>,
    came_back: AtomicBool,
}

enum State {
    Here(Arc<dyn Archive>),
    Away {
        why: String,
        /// When it is looked for again, by the clock.
        next_ns: u64,
    },
}

impl AwayArchive {
    /// Opens an archive. Where that can't be done, it is away, under the identity and the label
    /// that are known of it, and the answer tells why.
    pub fn new(
        (id, label): (Id, String),
        open: Opener,
        clock: Arc<dyn Clock>,
    ) -> (Self, Option<Error>) {
        let (state, problem) = match open() {
            Ok(archive) => (State::Here(archive), None),
            Err(error) => (away(error.to_string(), &*clock), Some(error)),
        };
        // Who mounts disks in each other's places finds each archive where it is.
        let id = if let State::Here(archive) = &state { archive.id() } else { id };
        let (state, looking, came_back) = (Mutex::new(state), Mutex::new(()), false.into());
        (Self { id, label, open, clock, state, looking, came_back }, problem)
    }

    fn call<T>(&self, ask: impl FnOnce(&dyn Archive) -> io::Result<T>) -> io::Result<T> {
        self.look_for_it();
        let archive = self.present()?;
        ask(&*archive).map_err(|error| {
            let Some(why) = why_gone(&*archive, &error) else { return error };
            self.goes_away(&archive, &why);
            is_away(&why)
        })
    }

    /// What was opened is closed: if it comes back, it is another mount, with a lease of its own.
    fn goes_away(&self, archive: &Arc<dyn Archive>, why: &str) {
        let mut state = self.state.lock();
        // Somebody else may have seen it, and it may be back.
        if matches!(&*state, State::Here(known) if Arc::ptr_eq(known, archive)) {
            tracing::warn!("the archive {} is away for now: {why}", self.label);
            *state = away(why.to_owned(), &*self.clock);
        }
    }

    fn present(&self) -> io::Result<Arc<dyn Archive>> {
        match &*self.state.lock() {
            State::Here(archive) => Ok(Arc::clone(archive)),
            State::Away { why, .. } => Err(is_away(why)),
        }
    }

    fn look_for_it(&self) {
        if !self.is_due() {
            return;
        }
        let Some(_alone) = self.looking.try_lock() else { return };
        // Who held it may have looked.
        if !self.is_due() {
            return;
        }
        // Nothing else is held: it may take long.
        let state = match (self.open)().and_then(|archive| self.check_identity(archive)) {
            Ok(archive) => State::Here(archive),
            Err(error) => away(error.to_string(), &*self.clock),
        };
        if let State::Here(_) = state {
            tracing::warn!("the archive {} is there again", self.label);
            self.came_back.store(true, Ordering::SeqCst);
        }
        *self.state.lock() = state;
    }

    fn is_due(&self) -> bool {
        let state = self.state.lock();
        matches!(&*state, State::Away { next_ns, .. } if self.clock.now_ns() >= *next_ns)
    }

    fn check_identity(&self, archive: Arc<dyn Archive>) -> Result<Arc<dyn Archive>> {
        if archive.id() == self.id {
            return Ok(archive);
        }
        let what = format!("{} has archive {}, not {}", self.label, archive.id(), self.id);
        Err(Error::Refused { what })
    }
}

fn away(why: String, clock: &dyn Clock) -> State {
    let next_ns = clock.now_ns().saturating_add(LOOK_EVERY.as_nanos() as u64);
    State::Away { why, next_ns }
}

fn is_away(why: &str) -> io::Error {
    io::Error::new(ErrorKind::NotConnected, format!("the archive is away: {why}"))
}

/// Why an archive is not there any more, where an error comes of that. What is missing, or has
/// another handle by now, may be so in an archive that is there.
fn why_gone(archive: &dyn Archive, error: &io::Error) -> Option<String> {
    let is_missing = matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::StaleNetworkFileHandle
    );
    if is_missing {
        return archive.check().err().map(|why| why.to_string());
    }
    let is_gone = error.kind() == ErrorKind::NotConnected
        || matches!(
            Errno::from_io_error(error),
            Some(
                Errno::TIMEDOUT
                    | Errno::HOSTDOWN
                    | Errno::HOSTUNREACH
                    | Errno::NETDOWN
                    | Errno::NETUNREACH
                    | Errno::NODEV
                    | Errno::NXIO
            )
        );
    is_gone.then(|| error.to_string())
}

impl Archive for AwayArchive {
    fn id(&self) -> Id {
        self.id
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn refusal(&self) -> Option<String> {
        self.present().ok()?.refusal()
    }

    fn why_away(&self) -> Option<String> {
        match &*self.state.lock() {
            State::Here(_) => None,
            State::Away { why, .. } => Some(why.clone()),
        }
    }

    fn check(&self) -> io::Result<()> {
        self.call(|archive| archive.check())
    }

    fn look(&self) -> bool {
        self.look_for_it();
        self.came_back.swap(false, Ordering::SeqCst)
    }

    fn begin(&self, kind: ContainerKind, container: Id) -> io::Result<Box<dyn Upload>> {
        self.call(|archive| archive.begin(kind, container))
    }

    fn read(
        &self,
        kind: ContainerKind,
        container: Id,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        self.call(|archive| archive.read(kind, container, offset, buffer))
    }

    fn length(&self, kind: ContainerKind, container: Id) -> io::Result<u64> {
        self.call(|archive| archive.length(kind, container))
    }

    fn list(&self, kind: ContainerKind, visit: &mut dyn FnMut(Id, u64)) -> io::Result<()> {
        self.call(|archive| archive.list(kind, visit))
    }

    fn forget(&self, kind: ContainerKind, container: Id) {
        // One that is away remembers nothing.
        if let Ok(archive) = self.present() {
            archive.forget(kind, container);
        }
    }

    fn delete(&self, kind: ContainerKind, container: Id) -> io::Result<()> {
        self.call(|archive| archive.delete(kind, container))
    }

    fn position(&self, container: Id, offset: u64) -> (u64, u64) {
        self.present().map_or((0, offset), |archive| archive.position(container, offset))
    }
}
