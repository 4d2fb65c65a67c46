//! Mounts the file system, and answers the first request of the connection.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Command;

use fslab_vfs::Errno;
use rustix::io::FdFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::decode::Incoming;
use crate::negotiate::{Granted, negotiate};
use crate::options::{MountOptions, TransportChoice};
use crate::protocol::flags::InitFlags;
use crate::protocol::opcode::Opcode;
use crate::protocol::reply::InitOut;
use crate::protocol::request::InitIn;
use crate::protocol::{MAJOR, MINOR_MAX, MINOR_MIN};
use crate::request_timeout::Limits;
use crate::transport::{Received, Transport};

/// The error message of a mount over io_uring on a kernel without this feature.
pub(crate) const NO_URING: &str = "the kernel does not offer FUSE over io_uring: it needs Linux \
                                   6.14 and Y in /sys/module/fuse/parameters/enable_uring";

const NO_RESEND: &str = "-o keep needs a kernel that resends the unanswered requests of a dead \
                         daemon (Linux 6.9)";

/// Size of the buffer for the first request; the kernel requires at least 8192 bytes.
const FIRST_BUFFER_BYTES: usize = 8192 + 4096;

/// Mounts the file system and returns the descriptor of /dev/fuse. Accesses to the mount wait until
/// [`greet`] has answered the first request.
pub(crate) fn attach(mount_point: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    if rustix::process::geteuid().is_root() {
        Ok(mount_as_root(mount_point, options)?)
    } else {
        mount_by_helper(mount_point, options)
    }
}

fn mount_as_root(mount_point: &Path, options: &MountOptions) -> Result<OwnedFd, Errno> {
    let device = fslab_sys::fuse_device::open()?;
    let others = if options.lets_others_in() { ",allow_other" } else { "" };
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions{others}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    let data = std::ffi::CString::new(data).map_err(|_nul| Errno::INVAL)?;
    let (source, flags) = (options.source.as_str(), options.to_flags());
    rustix::mount::mount(source, mount_point, "fuse.fslab", flags, data.as_c_str())?;
    Ok(device)
}

/// Mounts as an ordinary user by running fusermount3, which passes the descriptor of /dev/fuse
/// through a socket.
fn mount_by_helper(mount_point: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let kind = SocketType::STREAM;
    let (own, helpers) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    rustix::io::fcntl_setfd(&helpers, FdFlags::empty())?;
    let output = Command::new("fusermount3")
        .args(["-o", &options.to_helper_options(), "--"])
        .arg(mount_point)
        .env("_FUSE_COMMFD", helpers.as_raw_fd().to_string())
        .output()
        .map_err(|error| {
            io::Error::new(error.kind(), format!("can't run fusermount3 (Debian: fuse3): {error}"))
        })?;
    drop(helpers);
    if output.status.success() {
        receive_descriptor(&own)
    } else {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if ["Permission denied", "not permitted"].iter().any(|denied| message.contains(denied)) {
            let advice = "run `fslab doctor` to see the missing requirements";
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{message}; {advice}"),
            ));
        }
        Err(io::Error::other(message))
    }
}

fn receive_descriptor(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let slices = &mut [IoSliceMut::new(&mut byte)];
    recvmsg(socket, slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    descriptor.ok_or_else(|| io::Error::other("fusermount3 passed no descriptor"))
}

/// Answers the kernel's first request, INIT. The kernel sends it at mount time, and sends no other
/// request before the reply.
pub(crate) fn greet(transport: &dyn Transport, options: &MountOptions) -> io::Result<Granted> {
    let mut buffer = vec![0; FIRST_BUFFER_BYTES];
    loop {
        let Received::Request(length) = transport.receive(&mut buffer)? else {
            return Err(Errno::NOTCONN.into());
        };
        let mut incoming = Incoming::parse(&buffer[..length]).map_err(io::Error::other)?;
        let unique = incoming.header.unique;
        if incoming.header.opcode != Opcode::Init as u32 {
            transport.reply(unique, Err(Errno::IO))?;
            return Err(io::Error::other("the kernel's first request was not INIT"));
        }
        let offer: InitIn = incoming.body.take_padded();
        if offer.major > MAJOR {
            // After this reply, the kernel sends INIT again with the version in the reply.
            transport.reply(unique, Ok(own_version().as_bytes()))?;
            continue;
        }
        if let Some(reason) = refusal(&offer) {
            transport.reply(unique, Err(Errno::PROTO))?;
            return Err(io::Error::other(reason));
        }
        let (reply, granted) = negotiate(&offer, options, Limits::of_machine());
        if options.transport == TransportChoice::Uring && !granted.uring() {
            transport.reply(unique, Err(Errno::PROTO))?;
            return Err(io::Error::other(NO_URING));
        }
        if options.keep && !granted.has(InitFlags::HAS_RESEND) {
            transport.reply(unique, Err(Errno::PROTO))?;
            return Err(io::Error::other(NO_RESEND));
        }
        transport.reply(unique, Ok(reply.as_bytes()))?;
        return Ok(granted);
    }
}

/// Returns an error message if the kernel is too old.
fn refusal(offer: &InitIn) -> Option<String> {
    let (major, minor) = (offer.major, offer.minor);
    (major < MAJOR || minor < MINOR_MIN).then(|| {
        format!(
            "the kernel's FUSE protocol {major}.{minor} is too old: fslab needs Linux 6.1 or newer"
        )
    })
}

fn own_version() -> InitOut {
    let mut reply = InitOut::new_zeroed();
    (reply.major, reply.minor) = (MAJOR, MINOR_MAX);
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_old_kernels_are_refused() {
        let offer = |minor| InitIn { major: MAJOR, minor, ..InitIn::new_zeroed() };
        let reason = refusal(&offer(30));
        assert!(reason.is_some_and(|reason| reason.contains("7.30") && reason.contains("6.1")));
        assert_eq!(refusal(&offer(MINOR_MIN)), None);
        assert_eq!(refusal(&offer(MINOR_MAX + 1)), None);
    }
}
