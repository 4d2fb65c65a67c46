//! An archive that may become unavailable and available again, such as a server that starts later
//! or a removable disk.
//!
//! While it is unavailable, calls fail with `NotConnected`, and a separate thread tries to open it
//! again at intervals. A call starts the next attempt when it is due. The call waits for the result
//! only briefly, so that a hanging server does not delay the caller. An archive becomes unavailable
//! when the error of a call shows that it can't be reached. If a container is missing, the archive
//! itself is checked first.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fslab_vfs::{Clock, Errno};
use parking_lot::{Condvar, Mutex};

use super::{
    Archive, Container, ContainerKind, Deletion, Meter, Proof, Retained, Staged, Traffic, Upload,
};
use crate::error::{Error, Result};
use crate::id::Id;

/// The interval between attempts to open an unavailable archive.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Maximum time that a call waits for the result of an attempt that it started. A working archive
/// normally opens within this time.
const LOOK_WAIT: Duration = Duration::from_millis(200);

/// Opens an archive at its usual address.
pub type Opener = Box<dyn Fn() -> Result<Arc<dyn Archive>> + Send + Sync>;

/// An archive that may be unavailable.
pub struct ReconnectingArchive {
    shared: Arc<Shared>,
}

/// The state shared with the thread that reopens the archive. This thread may outlive the caller.
struct Shared {
    id: Id,
    label: String,
    open: Opener,
    clock: Arc<dyn Clock>,
    place: Mutex<Connection>,
    /// Signalled when an attempt has ended.
    looked: Condvar,
    came_back: AtomicBool,
    /// The meter of the archive when it was last available.
    meter: Mutex<Option<Arc<Meter>>>,
}

struct Connection {
    state: State,
    /// Whether a thread is trying to open the archive.
    is_looked_for: bool,
}

enum State {
    Here(Arc<dyn Archive>),
    Unavailable {
        why: String,
        /// The time of the next attempt, in nanoseconds of the clock.
        next_ns: u64,
    },
}

impl ReconnectingArchive {
    /// Opens an archive. If that fails, the archive is unavailable, with the given identity and
    /// label, and the error is returned.
    pub fn new(
        (id, label): (Id, String),
        open: Opener,
        clock: Arc<dyn Clock>,
    ) -> (Self, Option<Error>) {
        let (state, problem) = match open() {
            Ok(archive) => (State::Here(archive), None),
            Err(error) => (unavailable(error.to_string(), &*clock), Some(error)),
        };
        // Two disks may have swapped their mount points, so the identity found at the address is
        // used.
        let id = if let State::Here(archive) = &state { archive.id() } else { id };
        let place = Mutex::new(Connection { state, is_looked_for: false });
        let (looked, came_back) = (Condvar::new(), AtomicBool::new(false));
        let meter = Mutex::default();
        let shared = Shared { id, label, open, clock, place, looked, came_back, meter };
        (Self { shared: Arc::new(shared) }, problem)
    }

    fn call<T>(&self, ask: impl FnOnce(&dyn Archive) -> io::Result<T>) -> io::Result<T> {
        self.look_for_it();
        let archive = self.shared.present()?;
        self.shared.told(&archive, ask(&*archive))
    }

    /// Starts an attempt to reopen the archive if one is due. Only the caller that starts the
    /// attempt waits for it.
    fn look_for_it(&self) {
        let mut place = self.shared.place.lock();
        if !self.shared.is_due(&place) {
            return;
        }
        place.is_looked_for = true;
        let shared = Arc::clone(&self.shared);
        // The thread is never joined, because opening the archive may hang.
        let begun = std::thread::Builder::new().name("look".to_owned()).spawn(move || {
            let looking = Looking(shared);
            looking.0.look();
        });
        if let Err(error) = begun {
            tracing::warn!(%error, "can't start a thread to reopen archive {}", self.shared.label);
            place.is_looked_for = false;
            return;
        }
        let is_looked_for = |place: &mut Connection| place.is_looked_for;
        self.shared.looked.wait_while_for(&mut place, is_looked_for, LOOK_WAIT);
    }
}

impl Shared {
    /// Returns the result of a call. Makes the archive unavailable if the error shows that it can't
    /// be reached.
    fn told<T>(&self, archive: &Arc<dyn Archive>, answer: io::Result<T>) -> io::Result<T> {
        answer.map_err(|error| {
            let Some(why) = why_gone(&**archive, &error) else { return error };
            self.goes_away(archive, &why);
            unavailable_error(&why)
        })
    }

    /// Makes the archive unavailable and closes it. Reopening it later takes a new lease.
    fn goes_away(&self, archive: &Arc<dyn Archive>, why: &str) {
        let mut place = self.place.lock();
        // Another caller may have noticed this first, and the archive may have been reopened since.
        if matches!(&place.state, State::Here(known) if Arc::ptr_eq(known, archive)) {
            tracing::warn!("the archive {} is unavailable for now: {why}", self.label);
            place.state = unavailable(why.to_owned(), &*self.clock);
        }
    }

    fn present(&self) -> io::Result<Arc<dyn Archive>> {
        match &self.place.lock().state {
            State::Here(archive) => Ok(Arc::clone(archive)),
            State::Unavailable { why, .. } => Err(unavailable_error(why)),
        }
    }

    /// Fails if the archive is unavailable, or was reopened since the caller got `archive`.
    fn check_same(&self, archive: &Arc<dyn Archive>) -> io::Result<()> {
        match self.present() {
            Ok(present) if Arc::ptr_eq(&present, archive) => Ok(()),
            Ok(_) => Err(unavailable_error("it was unavailable for a moment")),
            Err(error) => Err(error),
        }
    }

    fn is_due(&self, place: &Connection) -> bool {
        let is_due = |next_ns: u64| self.clock.now_ns() >= next_ns;
        !place.is_looked_for
            && matches!(place.state, State::Unavailable { next_ns, .. } if is_due(next_ns))
    }

    fn look(&self) {
        // No lock is held here, because opening the archive may take long.
        let state = match (self.open)() {
            Ok(archive) if archive.id() == self.id => State::Here(archive),
            Ok(archive) => {
                let why =
                    format!("{} contains archive {}, not {}", self.label, archive.id(), self.id);
                unavailable(why, &*self.clock)
            }
            Err(error) => unavailable(error.to_string(), &*self.clock),
        };
        let is_back = matches!(state, State::Here(_));
        self.place.lock().state = state;
        if is_back {
            tracing::warn!("the archive {} is available again", self.label);
            // Set after the state, so that a caller that sees this flag finds the archive open.
            self.came_back.store(true, Ordering::SeqCst);
        }
    }
}

/// An attempt to open the archive, which ends when this is dropped.
struct Looking(Arc<Shared>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.place.lock().is_looked_for = false;
        self.0.looked.notify_all();
    }
}

fn unavailable(why: String, clock: &dyn Clock) -> State {
    let next_ns = clock.now_ns().saturating_add(LOOK_EVERY.as_nanos() as u64);
    State::Unavailable { why, next_ns }
}

pub(super) fn unavailable_error(why: &str) -> io::Error {
    io::Error::new(ErrorKind::NotConnected, format!("the archive is unavailable: {why}"))
}

/// Returns the reason why an archive can't be reached, if an error indicates this. Errors about
/// missing, stale or unreadable files also occur in an available archive, so the archive is
/// checked. It is also checked after `EIO`, which a removed disk returns.
fn why_gone(archive: &dyn Archive, error: &io::Error) -> Option<String> {
    let errno = Errno::from_io_error(error);
    let is_in_doubt = matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::StaleNetworkFileHandle
    );
    if is_in_doubt || errno == Some(Errno::IO) {
        // If the check fails with another error, the archive is treated as available.
        let why = archive.check().err().filter(|why| why.kind() == ErrorKind::NotConnected);
        return why.map(|why| why.to_string());
    }
    let is_gone = error.kind() == ErrorKind::NotConnected
        || matches!(
            errno,
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

impl Archive for ReconnectingArchive {
    fn id(&self) -> Id {
        self.shared.id
    }

    fn label(&self) -> &str {
        &self.shared.label
    }

    fn refusal(&self) -> Option<String> {
        self.shared.present().ok()?.refusal()
    }

    fn is_authentic(&self) -> bool {
        self.shared.present().is_ok_and(|archive| archive.is_authentic())
    }

    fn why_unavailable(&self) -> Option<String> {
        match &self.shared.place.lock().state {
            State::Here(_) => None,
            State::Unavailable { why, .. } => Some(why.clone()),
        }
    }

    fn limits_its_calls(&self) -> bool {
        self.shared.present().is_ok_and(|archive| archive.limits_its_calls())
    }

    fn check(&self) -> io::Result<()> {
        self.call(|archive| archive.check())
    }

    fn look(&self) -> bool {
        self.look_for_it();
        self.shared.came_back.swap(false, Ordering::SeqCst)
    }

    fn begin(&self, container: Container) -> io::Result<Box<dyn Upload>> {
        self.look_for_it();
        let archive = self.shared.present()?;
        let upload = self.shared.told(&archive, archive.begin(container))?;
        Ok(Box::new(ReconnectingUpload { upload, archive, shared: Arc::clone(&self.shared) }))
    }

    fn read(&self, container: Container, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.call(|archive| archive.read(container, offset, buffer))
    }

    fn stage(&self, container: Container) -> io::Result<Staged> {
        self.call(|archive| archive.stage(container))
    }

    fn length(&self, container: Container) -> io::Result<u64> {
        self.call(|archive| archive.length(container))
    }

    fn list(&self, kind: ContainerKind, visit: &mut dyn FnMut(Id, u64)) -> io::Result<()> {
        self.call(|archive| archive.list(kind, visit))
    }

    fn forget(&self, container: Container) {
        // An unavailable archive has no cached data.
        if let Ok(archive) = self.shared.present() {
            archive.forget(container);
        }
    }

    fn delete(&self, container: Container) -> io::Result<Deletion> {
        self.call(|archive| archive.delete(container))
    }

    fn retained(&self) -> Option<Retained> {
        self.shared.present().ok()?.retained()
    }

    fn retry_deletions(&self) -> io::Result<()> {
        self.call(|archive| archive.retry_deletions())
    }

    fn proof(&self) -> Proof {
        self.shared.present().map_or(Proof::ReadBack, |archive| archive.proof())
    }

    fn free_bytes(&self) -> Option<u64> {
        self.shared.present().ok()?.free_bytes()
    }

    fn position(&self, container: Id, offset: u64) -> (u64, u64) {
        self.shared.present().map_or((0, offset), |archive| archive.position(container, offset))
    }

    fn meter(&self) -> Option<Arc<Meter>> {
        let mut meter = self.shared.meter.lock();
        if let Ok(archive) = self.shared.present() {
            *meter = archive.meter();
        }
        meter.clone()
    }

    fn is_located(&self, container: Container) -> bool {
        self.shared.present().is_ok_and(|archive| archive.is_located(container))
    }

    fn traffic_of_writing(&self, bytes: u64) -> Traffic {
        self.shared.present().map_or_else(
            |_unavailable| Traffic::default(),
            |archive| archive.traffic_of_writing(bytes),
        )
    }

    fn traffic_of_reading(&self, range: Range<u64>, length: u64, is_located: bool) -> Traffic {
        self.shared.present().map_or_else(
            |_unavailable| Traffic::default(),
            |archive| archive.traffic_of_reading(range, length, is_located),
        )
    }
}

/// A container that is being written. It holds a reference to the archive in which it was begun,
/// and so keeps the lease. Without the lease, a reopened archive would remove the container as
/// unfinished.
struct ReconnectingUpload {
    // Dropped first, so that an unfinished container is removed while the lease is held.
    upload: Box<dyn Upload>,
    archive: Arc<dyn Archive>,
    shared: Arc<Shared>,
}

impl Upload for ReconnectingUpload {
    /// Fails if the archive became unavailable after the container was begun, even if the archive
    /// was reopened since. Otherwise later bytes could be written to a different archive.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.shared.check_same(&self.archive)?;
        let written = self.upload.write(bytes);
        self.shared.told(&self.archive, written)
    }

    fn finish(self: Box<Self>) -> io::Result<Proof> {
        // On an error, `self` is dropped as a whole, the upload first.
        self.shared.check_same(&self.archive)?;
        let Self { upload, archive, shared } = *self;
        let finished = upload.finish();
        shared.told(&archive, finished)
    }
}
