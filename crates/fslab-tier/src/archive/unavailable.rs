//! An archive that may become unavailable and come back, such as a server that starts later or a
//! removable disk.
//!
//! While it is unavailable, calls return `NotConnected`. A thread of its own tries to open it again
//! at intervals, when somebody asks for it: a server that hangs delays the caller for a moment
//! only. An archive becomes unavailable when its directory returns errors as if it were gone, or
//! when something is missing and so is the archive itself.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fslab_vfs::{Clock, Errno};
use parking_lot::{Condvar, Mutex};

use super::{Archive, Container, ContainerKind, Upload};
use crate::error::{Error, Result};
use crate::id::Id;

/// How often an archive that is unavailable is looked for.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How long whoever has an archive looked for waits for what comes of it: what is there and well is
/// opened sooner.
const LOOK_WAIT: Duration = Duration::from_millis(200);

/// Opens an archive where it should be.
pub type Opener = Box<dyn Fn() -> Result<Arc<dyn Archive>> + Send + Sync>;

/// An archive that may be unavailable.
pub struct ReconnectingArchive {
    shared: Arc<Shared>,
}

/// What the thread that looks for an archive needs of it: that may last longer than who asked.
struct Shared {
    id: Id,
    label: String,
    open: Opener,
    clock: Arc<dyn Clock>,
    place: Mutex<Connection>,
    /// A look has ended.
    looked: Condvar,
    came_back: AtomicBool,
}

struct Connection {
    state: State,
    /// A thread looks for it.
    is_looked_for: bool,
}

enum State {
    Here(Arc<dyn Archive>),
    Unavailable {
        why: String,
        /// When it is looked for again, by the clock.
        next_ns: u64,
    },
}

impl ReconnectingArchive {
    /// Opens an archive. Where that can't be done, it is unavailable, under the identity and the
    /// label that are known of it, and the answer tells why.
    pub fn new(
        (id, label): (Id, String),
        open: Opener,
        clock: Arc<dyn Clock>,
    ) -> (Self, Option<Error>) {
        let (state, problem) = match open() {
            Ok(archive) => (State::Here(archive), None),
            Err(error) => (unavailable(error.to_string(), &*clock), Some(error)),
        };
        // Who mounts disks in each other's places finds each archive where it is.
        let id = if let State::Here(archive) = &state { archive.id() } else { id };
        let place = Mutex::new(Connection { state, is_looked_for: false });
        let (looked, came_back) = (Condvar::new(), AtomicBool::new(false));
        let shared = Shared { id, label, open, clock, place, looked, came_back };
        (Self { shared: Arc::new(shared) }, problem)
    }

    fn call<T>(&self, ask: impl FnOnce(&dyn Archive) -> io::Result<T>) -> io::Result<T> {
        self.look_for_it();
        let archive = self.shared.present()?;
        self.shared.told(&archive, ask(&*archive))
    }

    /// Has it looked for when it is time. Who comes while that is being done waits no more for it.
    fn look_for_it(&self) {
        let mut place = self.shared.place.lock();
        if !self.shared.is_due(&place) {
            return;
        }
        place.is_looked_for = true;
        let shared = Arc::clone(&self.shared);
        // Nobody waits for its end: it may never come.
        let begun = std::thread::Builder::new().name("look".to_owned()).spawn(move || {
            let looking = Looking(shared);
            looking.0.look();
        });
        if let Err(error) = begun {
            tracing::warn!(%error, "the archive {} is not looked for", self.shared.label);
            place.is_looked_for = false;
            return;
        }
        let is_looked_for = |place: &mut Connection| place.is_looked_for;
        self.shared.looked.wait_while_for(&mut place, is_looked_for, LOOK_WAIT);
    }
}

impl Shared {
    /// What an archive answered, which may tell that it is gone.
    fn told<T>(&self, archive: &Arc<dyn Archive>, answer: io::Result<T>) -> io::Result<T> {
        answer.map_err(|error| {
            let Some(why) = why_gone(&**archive, &error) else { return error };
            self.goes_away(archive, &why);
            unavailable_error(&why)
        })
    }

    /// What was opened is closed: if it comes back, it is another mount, with a lease of its own.
    fn goes_away(&self, archive: &Arc<dyn Archive>, why: &str) {
        let mut place = self.place.lock();
        // Somebody else may have seen it, and it may be back.
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

    /// Fails where what is there is not what was opened, or nothing is.
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
        // Nothing is held: it may take long.
        let state = match (self.open)() {
            Ok(archive) if archive.id() == self.id => State::Here(archive),
            Ok(archive) => {
                let why = format!("{} has archive {}, not {}", self.label, archive.id(), self.id);
                unavailable(why, &*self.clock)
            }
            Err(error) => unavailable(error.to_string(), &*self.clock),
        };
        let is_back = matches!(state, State::Here(_));
        self.place.lock().state = state;
        if is_back {
            tracing::warn!("the archive {} is there again", self.label);
            // Who is told so finds it.
            self.came_back.store(true, Ordering::SeqCst);
        }
    }
}

/// A look, which has ended once this is dropped.
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

/// Why an archive is not there any more, where an error comes of that. What is missing, has another
/// handle by now, or can't be read may be so in an archive that is there; a disk that is pulled out
/// answers `EIO`.
fn why_gone(archive: &dyn Archive, error: &io::Error) -> Option<String> {
    let errno = Errno::from_io_error(error);
    let is_in_doubt = matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::StaleNetworkFileHandle
    );
    if is_in_doubt || errno == Some(Errno::IO) {
        // Who can't look does not know.
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

    fn length(&self, container: Container) -> io::Result<u64> {
        self.call(|archive| archive.length(container))
    }

    fn list(&self, kind: ContainerKind, visit: &mut dyn FnMut(Id, u64)) -> io::Result<()> {
        self.call(|archive| archive.list(kind, visit))
    }

    fn forget(&self, container: Container) {
        // One that is unavailable remembers nothing.
        if let Ok(archive) = self.shared.present() {
            archive.forget(container);
        }
    }

    fn delete(&self, container: Container) -> io::Result<()> {
        self.call(|archive| archive.delete(container))
    }

    fn free_bytes(&self) -> Option<u64> {
        self.shared.present().ok()?.free_bytes()
    }

    fn position(&self, container: Id, offset: u64) -> (u64, u64) {
        self.shared.present().map_or((0, offset), |archive| archive.position(container, offset))
    }
}

/// A container that is being written. Until it is dropped, nobody opens its archive anew, who would
/// take it for one that was left unfinished.
struct ReconnectingUpload {
    // First: its rest goes while the lease is held.
    upload: Box<dyn Upload>,
    archive: Arc<dyn Archive>,
    shared: Arc<Shared>,
}

impl Upload for ReconnectingUpload {
    /// Once somebody saw the archive go, what was read of it meanwhile may be from elsewhere.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.shared.check_same(&self.archive)?;
        let written = self.upload.write(bytes);
        self.shared.told(&self.archive, written)
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        let Self { upload, archive, shared } = *self;
        shared.check_same(&archive)?;
        let finished = upload.finish();
        shared.told(&archive, finished)
    }
}
