//! The sockets on which the daemons of mounts answer requests. The sockets are in a directory that
//! only their user can enter.
//!
//! The directory is `/run/fslab` for root, and `/run/user/UID/fslab` for other users. If it can't
//! be used, the directory is `/tmp/fslab-UID`. The directory does not depend on environment
//! variables, which may differ between client and daemon.
//!
//! The name of a socket contains the device number of its mount, which is unique among the current
//! mounts. After an unmount, a new mount may get this number while the earlier daemon is still
//! writing back data. So a daemon removes a socket only if the name still refers to its own socket.
//! Every process locks the directory while it creates or removes names.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use fslab_sys::mounts::MountEntry;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const SUFFIX: &str = ".sock";

/// Time limit for a daemon to accept a connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Connects to the socket of a daemon.
///
/// # Errors
/// Returns the errors of connect(2). The error is `WouldBlock` if the queue of connections is full
/// for [`CONNECT_MAX`], for example because the daemon was stopped by SIGSTOP.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    connect_within(path, CONNECT_MAX)
}

fn connect_within(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    rustix::net::connect(&socket, &address)?;
    set_socket_timeout(&socket, Timeout::Send, None)?;
    Ok(socket.into())
}

/// Raises this process's soft limit on open files to the hard limit.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "can't raise the soft limit of open files to the hard limit");
    }
}

/// A socket of a mount. It is removed when dropped.
pub struct Socket {
    path: PathBuf,
    /// A descriptor of this process's socket. By now, the name may refer to another socket. While
    /// the descriptor is open, no other file gets the inode number of this socket.
    itself: OwnedFd,
}

impl Socket {
    /// Makes a listening socket for a mount, and replaces an existing socket of the same name. The
    /// socket listens before it gets its final name, so that no other process mistakes it for a
    /// leftover.
    ///
    /// # Errors
    /// Fails if the socket can't be created.
    pub fn listen(
        directory: &Path,
        device: (u32, u32),
        what: &str,
    ) -> Result<(Self, UnixListener)> {
        let path = directory.join(socket_name(device, what));
        let listen = || -> io::Result<_> {
            let beside = directory.join(format!(".{}", std::process::id()));
            // Lock the directory first: a bound socket that does not listen yet looks like a
            // leftover.
            let _names = lock_names(directory)?;
            match fs::remove_file(&beside) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = UnixListener::bind(&beside)?;
            fs::set_permissions(&beside, fs::Permissions::from_mode(0o600))?;
            let itself = open_itself(&beside)?;
            fs::rename(&beside, &path)?;
            Ok((Self { path: path.clone(), itself }, listener))
        };
        listen().with_context(|| path.display().to_string())
    }

    /// Makes a socket, and starts a thread that answers its clients one after another. Only
    /// requests from root and from the user who mounted are answered.
    ///
    /// # Errors
    /// Fails if the socket or the thread can't be created.
    pub fn answer(
        directory: &Path,
        device: (u32, u32),
        what: &str,
        answer: impl Fn(UnixStream) -> io::Result<()> + Send + 'static,
    ) -> Result<Self> {
        let (socket, listener) = Self::listen(directory, device, what)?;
        let work = move || {
            for stream in listener.incoming() {
                let say = |error: &io::Error| tracing::warn!(%error, "can't accept a request");
                let told = stream.inspect_err(say).and_then(|stream| {
                    let peer = rustix::net::sockopt::socket_peercred(&stream)?.uid;
                    let may_ask = peer.is_root() || peer == rustix::process::geteuid();
                    if may_ask { answer(stream) } else { Ok(()) }
                });
                if let Err(error) = told {
                    tracing::debug!(%error, "could not reply to a request");
                }
            }
        };
        std::thread::Builder::new().name("fslab-answers".to_owned()).spawn(work)?;
        Ok(socket)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        match remove_if_still(&self.path, &self.itself) {
            Ok(true) => {}
            Ok(false) => tracing::debug!(
                "{} was not removed, because another mount now uses it",
                self.path.display()
            ),
            Err(error) => tracing::warn!(%error, "can't remove {}", self.path.display()),
        }
    }
}

fn open_itself(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Locks a directory until the returned file is dropped. Meanwhile, other processes neither create
/// nor remove sockets in it.
fn lock_names(directory: &Path) -> io::Result<File> {
    let directory = File::open(directory)?;
    rustix::fs::flock(&directory, FlockOperation::LockExclusive)?;
    Ok(directory)
}

/// Removes a name if it still refers to the open socket. Returns whether the name was removed.
fn remove_if_still(path: &Path, itself: &OwnedFd) -> io::Result<bool> {
    let _names = lock_names(path.parent().unwrap_or(Path::new("/")))?;
    let named = match open_itself(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        named => rustix::fs::fstat(named?)?,
    };
    let itself = rustix::fs::fstat(itself)?;
    let is_still = (named.st_dev, named.st_ino) == (itself.st_dev, itself.st_ino);
    if is_still {
        fs::remove_file(path)?;
    }
    Ok(is_still)
}

/// Returns the possible directories for the sockets of a user's mounts, in order of preference.
fn places_of(uid: u32) -> [PathBuf; 2] {
    let run = if uid == 0 { "/run".into() } else { PathBuf::from(format!("/run/user/{uid}")) };
    [run.join("fslab"), PathBuf::from(format!("/tmp/fslab-{uid}"))]
}

/// The request for the counters of a mount's layers.
pub const COUNTS: &str = "";

/// The request of `fslab umount` for the final result of a daemon.
pub const ENDING: &str = "ending";

/// Returns the name of a mount's socket. `what` is one of these requests, or the service of a
/// layer.
fn socket_name(device: (u32, u32), what: &str) -> String {
    let dot = if what.is_empty() { "" } else { "." };
    format!("{}-{}{dot}{what}{SUFFIX}", device.0, device.1)
}

/// Returns the user ID of the user who mounted.
pub fn owner_of(mount: &MountEntry) -> u32 {
    let owner = mount.option("user_id").and_then(|uid| uid.parse().ok());
    owner.unwrap_or_else(|| rustix::process::geteuid().as_raw())
}

/// Returns whether the daemon of a mount answers the current user.
pub fn may_ask_daemon(mount: &MountEntry) -> bool {
    let own = rustix::process::geteuid();
    own.is_root() || own.as_raw() == owner_of(mount)
}

/// Returns the socket of a mount's daemon for a request, if it exists. The daemon answers root and
/// the user who mounted.
///
/// # Errors
/// Fails if the current user is neither root nor the user who mounted.
pub fn find_socket(
    mount: &MountEntry,
    shown: impl std::fmt::Display,
    what: &str,
) -> Result<Option<PathBuf>> {
    let owner = owner_of(mount);
    if !may_ask_daemon(mount) {
        bail_as!(
            BadInput,
            "{shown} was mounted by user {owner}; only that user and root may send requests to it"
        );
    }
    let directories = places_of(owner).into_iter().filter(|place| is_private(place, owner));
    let name = socket_name(mount.device, what);
    Ok(directories.map(|place| place.join(&name)).find(|socket| socket.exists()))
}

/// Returns the directory for sockets of the current user, and creates it if needed. Removes
/// leftovers of killed daemons from it.
///
/// # Errors
/// Fails if no private directory exists and none can be created.
pub fn prepare() -> Result<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let places = places_of(uid);
    let usable = places.iter().find(|place| make(place) && is_private(place, uid));
    let Some(place) = usable else {
        let [first, second] = places.map(|place| place.display().to_string());
        bail_as!(
            Missing,
            "the daemon's sockets need a directory that only user {uid} can enter; neither \
             {first} nor {second} is such a directory or can be made"
        );
    };
    remove_leftovers(place).with_context(|| place.display().to_string())?;
    Ok(place.clone())
}

fn make(place: &Path) -> bool {
    match fs::DirBuilder::new().mode(0o700).create(place) {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::AlreadyExists,
    }
}

/// Returns whether `place` is a directory (not a symbolic link) that only this user may enter. In
/// /tmp, any user may have created a directory of this name.
fn is_private(place: &Path, uid: u32) -> bool {
    fs::symlink_metadata(place)
        .is_ok_and(|status| status.is_dir() && status.uid() == uid && status.mode() & 0o077 == 0)
}

/// Removes the sockets of killed daemons, on which no process listens.
fn remove_leftovers(place: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(place)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // A socket that did not get its final name has a name that begins with a dot.
        let is_socket = name.ends_with(SUFFIX) || name.starts_with('.');
        let leftover = if is_socket { leftover(&path)? } else { None };
        if let Some(leftover) = leftover
            && remove_if_still(&path, &leftover)?
        {
            tracing::debug!("removed {}, which a killed daemon left", path.display());
        }
    }
    Ok(())
}

/// Returns the socket with this name if no process listens on it. The socket is opened before it is
/// tested. So a new socket that takes this name during the test is not returned.
fn leftover(path: &Path) -> io::Result<Option<OwnedFd>> {
    let itself = match open_itself(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        itself => itself?,
    };
    let connected = connect(path);
    let is_deaf = connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    Ok(is_deaf.then_some(itself))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn only_an_owned_directory_of_mode_0700_is_private() {
        let scratch = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let [own, open, link] = ["own", "open", "link"].map(|name| scratch.path().join(name));
        assert!(make(&own) && is_private(&own, uid) && !is_private(&own, uid + 1));
        assert!(make(&own), "made already");
        assert!(make(&open));
        fs::set_permissions(&open, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(!is_private(&open, uid));
        symlink(&own, &link).unwrap();
        assert!(!is_private(&link, uid));
    }

    /// A stopped daemon accepts no connections, and the kernel queues only a few. Connecting must
    /// then fail, not hang.
    #[test]
    fn connection_to_a_stopped_daemon_times_out() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("0-1.sock");
        let listener =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let limit = Duration::from_millis(50);
        let mut accepted = Vec::new();
        let refused = loop {
            match connect_within(&path, limit) {
                Ok(stream) => accepted.push(stream),
                Err(error) => break error,
            }
            assert!(accepted.len() < 100, "connections are accepted");
        };
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        assert!(!accepted.is_empty(), "no connection can wait");
    }

    /// While the daemon of the first mount is still writing back data, another mount gets its
    /// device number.
    #[test]
    fn dropped_socket_does_not_remove_its_reused_name() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("0-1.sock");
        let first = Socket::listen(scratch.path(), (0, 1), COUNTS).unwrap();
        assert_eq!(path.symlink_metadata().unwrap().mode() & 0o777, 0o600);
        let second = Socket::listen(scratch.path(), (0, 1), COUNTS).unwrap();
        drop(first);
        UnixStream::connect(&path).unwrap();
        drop(second);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }

    /// A process finds a leftover socket without a listener. Just afterwards, a mount reuses its
    /// name.
    #[test]
    fn reused_name_of_a_leftover_socket_is_not_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("0-1.sock");
        drop(UnixListener::bind(&path).unwrap());
        let leftover = leftover(&path).unwrap().unwrap();
        let living = Socket::listen(scratch.path(), (0, 1), COUNTS).unwrap();
        assert!(!remove_if_still(&path, &leftover).unwrap());
        UnixStream::connect(&path).unwrap();
        drop(living);
    }

    /// Between the bind and the listen of a new socket, another process looks for leftovers.
    #[test]
    fn socket_between_bind_and_listen_is_not_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    remove_leftovers(scratch.path()).unwrap();
                }
            });
            let listen = |_| Socket::listen(scratch.path(), (0, 1), COUNTS).map(drop);
            let made: Result<()> = (0..2000).try_for_each(listen);
            is_done.store(true, Ordering::Relaxed);
            made.unwrap();
        });
    }

    #[test]
    fn only_sockets_without_a_listener_are_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let [dead, unnamed, alive, other] =
            ["0-1.sock", ".77", "0-2.sock", "notes"].map(|name| scratch.path().join(name));
        drop(UnixListener::bind(&dead).unwrap());
        drop(UnixListener::bind(&unnamed).unwrap());
        let _listener = UnixListener::bind(&alive).unwrap();
        fs::write(&other, "").unwrap();
        remove_leftovers(scratch.path()).unwrap();
        assert!(!dead.exists() && !unnamed.exists() && alive.exists() && other.exists());
    }
}
