//! One mount, from the first request to the last.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fslab_sys::supervise::Inherited;
use fslab_vfs::{FileSystem, Handle, OpenMode, Request};

use crate::connect::{NO_URING, attach, greet};
use crate::convert::to_open_mode;
use crate::error::{Error, Result};
use crate::idle_unmount::unmount_when_idle;
use crate::kept::{Kept, KeptState, Open};
use crate::negotiate::Granted;
use crate::notifications;
use crate::options::{MountOptions, TransportChoice};
use crate::passthrough::try_passthrough;
use crate::protocol::flags::InitFlags;
use crate::protocol::reply::NOTIFY_RESEND;
use crate::read_ahead::raise;
use crate::request_timeout::cancel_after;
use crate::server::Server;
use crate::transport::{DeviceTransport, Transport};
use crate::unmount::Unmounter;
use crate::uring::{self, Queues};

/// A mounted file system being served.
pub struct Session {
    server: Arc<Server>,
    unmounter: Unmounter,
}

/// A handle to end a session from any thread without an unmount. All requests then fail.
#[derive(Clone)]
pub struct Breaker(Arc<Server>);

/// Mounts a file system and starts serving it. The mount works when this returns.
///
/// # Errors
/// The error contains the mount point and the error of the kernel or the mount helper.
pub fn mount(
    file_system: Arc<dyn FileSystem>,
    mount_point: &Path,
    options: &MountOptions,
) -> Result<Session> {
    mount_kept(file_system, mount_point, options, None)
}

/// Like [`mount`]; another daemon can take over with the state recorded in `kept`.
///
/// # Errors
/// As for [`mount`].
pub fn mount_kept(
    file_system: Arc<dyn FileSystem>,
    mount_point: &Path,
    options: &MountOptions,
    kept: Option<Arc<KeptState>>,
) -> Result<Session> {
    if !Path::new("/dev/fuse").exists() {
        return Err(Error::NoDevice);
    }
    let mount_point = absolute(mount_point)?;
    let mounted = mount_at(Arc::clone(&file_system), &mount_point, options, kept.clone());
    match mounted {
        // After the first reply, a connection can't return to /dev/fuse.
        Err(Error::Serve { source, .. }) if options.transport == TransportChoice::Auto => {
            tracing::warn!(%source, "can't serve through io_uring, so /dev/fuse is used");
            let options = MountOptions { transport: TransportChoice::Device, ..options.clone() };
            mount_at(file_system, &mount_point, &options, kept)
        }
        mounted => mounted,
    }
}

/// Mounts a file system on an absolute path.
fn mount_at(
    file_system: Arc<dyn FileSystem>,
    mount_point: &Path,
    options: &MountOptions,
    kept: Option<Arc<KeptState>>,
) -> Result<Session> {
    let mount_error = |source| Error::Mount { mount_point: mount_point.to_owned(), source };
    let device = attach(mount_point, options).map_err(mount_error)?;
    let rings = device.try_clone().map_err(mount_error)?;
    let transport: Arc<dyn Transport> = Arc::new(DeviceTransport::new(device));
    let unmounter = Unmounter::of(mount_point, Arc::clone(&transport));
    let unmounter = unmounter.map_err(|errno| mount_error(errno.into()))?;
    let started = start(file_system, transport, (rings, &unmounter), options, kept)
        .map_err(|source| Error::Serve { mount_point: mount_point.to_owned(), source });
    // If serving can't start, the mount must not remain without a server.
    let server = started.inspect_err(|_| detach_or_say(&unmounter))?;
    raise(mount_point);
    Session { server, unmounter }.unmounted_when_idle(options)
}

/// Continues to serve a mount whose daemon died or was stopped. `kept` is the state that the daemon
/// recorded, and `inherited` are its descriptors. Files that were open are opened again, and the
/// kernel resends unanswered requests. Descriptors that are no longer needed are closed.
///
/// # Errors
/// [`Error::NotKept`] if the remaining state is incomplete.
pub fn take_over(
    file_system: Arc<dyn FileSystem>,
    mount_point: &Path,
    options: &MountOptions,
    kept: &Arc<KeptState>,
    inherited: &Inherited,
) -> Result<Session> {
    let lost = || Error::NotKept { mount_point: mount_point.to_owned() };
    let connection = kept.connection().ok_or_else(lost)?;
    let device = inherited.copy_of_device(connection.device).ok_or_else(lost)?;
    let serve_error = |source| Error::Serve { mount_point: mount_point.to_owned(), source };
    let transport: Arc<dyn Transport> = Arc::new(DeviceTransport::new(device));
    let unmounter =
        Unmounter::of_device(mount_point, connection.mount_device, Arc::clone(&transport));
    let granted = Granted::of(&connection);
    announce(&*file_system, &transport, &granted).map_err(serve_error)?;
    let request = Request { now: std::time::SystemTime::now().into(), ..Request::default() };
    let state = Arc::clone(kept);
    let (kept, restored) =
        Kept::taken_over(Arc::clone(kept), |open| reopen(&*file_system, &request, &granted, open));
    let server = Server::new(
        file_system,
        options.clone(),
        granted,
        Arc::clone(&transport),
        None,
        Some(kept),
    );
    server.restore(&restored);
    let server = Arc::new(server);
    // The kernel resends only requests that were read from descriptors that are still open. So the
    // daemon requests the resending before these descriptors are closed, and before the first read.
    // If the file system is already unmounted, the threads detect this.
    tracing::info!("asking the kernel to resend unanswered requests");
    transport.notify(NOTIFY_RESEND, &[]).map_err(|errno| serve_error(errno.into()))?;
    // From here on, the copied descriptor is the recorded one. If this function fails before this
    // point, the next daemon can still take over.
    if let Some(device) = transport.device() {
        state.begin(device, &server.granted.to_connection(device.as_raw_fd(), unmounter.device));
    }
    inherited.close_others();
    server.start().map_err(serve_error)?;
    Session { server, unmounter }.unmounted_when_idle(options)
}

fn reopen(
    file_system: &dyn FileSystem,
    request: &Request,
    granted: &Granted,
    open: &Open,
) -> fslab_vfs::Result<Handle> {
    match open.flags {
        None => file_system.opendir(request, open.ino),
        Some(flags) => {
            let mode = to_open_mode(flags, granted.writeback());
            let mode = mode - OpenMode::TRUNCATE - OpenMode::EXCLUSIVE;
            Ok(file_system.open(request, open.ino, mode)?.handle)
        }
    }
}

/// Lets a file system notify the kernel of changes that were not made through the mount.
fn announce(
    file_system: &dyn FileSystem,
    transport: &Arc<dyn Transport>,
    granted: &Granted,
) -> io::Result<()> {
    let (notices, pending) = notifications::queue();
    let expire_only = granted.has(InitFlags::HAS_EXPIRE_ONLY);
    pending.deliver_through(Arc::clone(transport), expire_only)?;
    file_system.attach(Arc::new(notices));
    Ok(())
}

fn start(
    file_system: Arc<dyn FileSystem>,
    transport: Arc<dyn Transport>,
    (rings, unmounter): (OwnedFd, &Unmounter),
    options: &MountOptions,
    kept: Option<Arc<KeptState>>,
) -> io::Result<Arc<Server>> {
    let file_handles = options.file_handles && file_system.can_resolve();
    let choice = usable_transport(&rings, options.transport)?;
    let options = &MountOptions { file_handles, transport: choice, ..options.clone() };
    let mut granted = greet(&*transport, options)?;
    if choice == TransportChoice::Auto && !granted.uring() {
        tracing::info!("requests arrive through /dev/fuse: {NO_URING}");
    }
    if granted.passthrough()
        && let Err(error) = try_passthrough(&*transport)
    {
        // This is normal for ordinary users, who lack the privilege.
        tracing::info!(
            %error,
            "this process can't use passthrough, so reads and writes go through the daemon"
        );
        granted.give_up(InitFlags::PASSTHROUGH);
    }
    tracing::info!("protocol and features granted by the kernel: {granted}");
    granted.request_time_max.iter().for_each(warn_of_limit);
    announce(&*file_system, &transport, &granted)?;
    let payload_bytes = granted.write_bytes_max as usize;
    let new_queues = || Queues::new(rings, &unmounter.mount_point, payload_bytes);
    let queues = granted.uring().then(new_queues).transpose()?;
    if let (Some(kept), Some(device)) = (&kept, transport.device()) {
        let connection = granted.to_connection(device.as_raw_fd(), unmounter.device);
        kept.begin(device, &connection);
    }
    let kept = kept.map(Kept::new);
    let server = Server::new(file_system, options.clone(), granted, transport, queues, kept);
    let server = Arc::new(server);
    server.start()?;
    Ok(server)
}

/// Returns the choice of the transport, or /dev/fuse if io_uring was preferred but can't be used.
fn usable_transport(device: &OwnedFd, choice: TransportChoice) -> io::Result<TransportChoice> {
    let unusable = match choice {
        TransportChoice::Device => return Ok(choice),
        TransportChoice::Uring => return uring::check(device).map(|()| choice),
        TransportChoice::Auto => uring::check_preferred(device).err(),
    };
    let Some(error) = unusable else { return Ok(choice) };
    tracing::info!("requests arrive through /dev/fuse: {error}");
    Ok(TransportChoice::Device)
}

fn warn_of_limit(limit: &Duration) {
    tracing::warn!(
        "this machine aborts a mount if a request takes {} s (see \
         /proc/sys/fs/fuse/max_request_timeout and default_request_timeout). To prevent this, \
         requests fail with ETIMEDOUT after {} s; set both to 0 before mounting to wait without \
         a limit",
        limit.as_secs(),
        cancel_after(*limit).as_secs()
    );
}

fn detach_or_say(unmounter: &Unmounter) {
    if let Err(error) = unmounter.detach() {
        tracing::error!(%error, "can't unmount a mount that no process serves");
    }
}

impl Session {
    fn unmounted_when_idle(self, options: &MountOptions) -> Result<Self> {
        if let Some(timeout) = options.idle_timeout {
            let idle = unmount_when_idle(self.unmounter(), Arc::clone(&self.server), timeout);
            idle.inspect_err(|_| detach_or_say(&self.unmounter)).map_err(|source| {
                Error::Mount { mount_point: self.unmounter.mount_point.clone(), source }
            })?;
        }
        Ok(self)
    }

    /// The features granted by the kernel.
    #[must_use]
    pub fn granted(&self) -> &Granted {
        &self.server.granted
    }

    /// A handle to unmount the file system.
    #[must_use]
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// The device number of the file system while it is mounted.
    #[must_use]
    pub fn device(&self) -> (u32, u32) {
        self.unmounter.device
    }

    /// A handle to end the session without an unmount.
    #[must_use]
    pub fn breaker(&self) -> Breaker {
        Breaker(Arc::clone(&self.server))
    }

    /// Waits until the file system was unmounted, by any process, and its last open file was
    /// closed. Then writes back all data.
    ///
    /// # Errors
    /// The error that broke the connection, or an error of writing back data.
    pub fn wait(self) -> Result<()> {
        self.wait_and_then(|| ())
    }

    /// Like [`Self::wait`], but calls `unmounted` before data is written back, which may take long.
    /// After the unmount, the device number may belong to another mount. If [`Breaker::cut_off`]
    /// ended the session, the mount remains and returns errors until the process exits.
    ///
    /// # Errors
    /// The error that broke the connection, or an error of writing back data.
    pub fn wait_and_then(self, unmounted: impl FnOnce()) -> Result<()> {
        let mount_point = self.unmounter.mount_point;
        let failed = |source| Error::Connection { mount_point: mount_point.clone(), source };
        let served = self.server.wait();
        if let Some(kept) = &self.server.kept {
            kept.state.end();
        }
        unmounted();
        served.map_err(|errno| failed(errno.into()))?;
        let written_back = self.server.file_system.shutdown();
        written_back.map_err(|error| failed(error.errno().into()))
    }
}

impl Breaker {
    /// Refuses every request from now on, cancels those in flight, and ends the session when they
    /// are done. All data is written back as after an unmount.
    pub fn cut_off(&self) {
        self.0.cut_off();
    }

    /// Whether [`Self::cut_off`] was called.
    #[must_use]
    pub fn has_cut_off(&self) -> bool {
        self.0.is_cut_off()
    }
}

fn absolute(mount_point: &Path) -> Result<PathBuf> {
    mount_point
        .canonicalize()
        .map_err(|source| Error::Mount { mount_point: mount_point.to_owned(), source })
}
