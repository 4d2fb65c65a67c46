//! What is asked of the kernel at the start of a connection, and what it granted.

use std::fmt;

use crate::options::MountOptions;
use crate::protocol::flags::InitFlags;
use crate::protocol::reply::InitOut;
use crate::protocol::request::InitIn;
use crate::protocol::{MAJOR, MINOR_MAX};

/// Requests the kernel keeps in flight for read-ahead and write-back.
const BACKGROUND_REQUESTS_MAX: u16 = 64;

/// Layers of file systems the kernel may see in a passthrough: this one over a plain one.
const STACK_DEPTH: u32 = 1;

/// Bytes of one read or write; what the kernel takes without its limit being raised.
const WRITE_BYTES_MAX: u32 = 1 << 20;

const PAGE_BYTES: u32 = 4096;

/// What the kernel granted for one mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Protocol version of the kernel.
    pub protocol: (u32, u32),
    /// Bytes of the largest read or write.
    pub write_bytes_max: u32,
    /// Reads and writes may go to the lower file directly.
    pub passthrough: bool,
    /// The kernel collects writes.
    pub writeback: bool,
    /// The kernel leaves the clearing of set-id bits to this side.
    pub kill_set_id: bool,
    /// Listings may carry attributes.
    pub readdirplus: bool,
    /// Lookups and listings of one directory run side by side.
    pub parallel_directories: bool,
    /// POSIX ACLs are stored and enforced.
    pub posix_acl: bool,
    /// Targets of symbolic links are cached.
    pub cached_symlinks: bool,
}

impl fmt::Display for Granted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.protocol;
        write!(formatter, "protocol {major}.{minor}")?;
        let features = [
            ("passthrough", self.passthrough),
            ("writeback", self.writeback),
            ("kill-set-id", self.kill_set_id),
            ("readdirplus", self.readdirplus),
            ("parallel-directories", self.parallel_directories),
            ("posix-acl", self.posix_acl),
            ("cached-symlinks", self.cached_symlinks),
        ];
        for (name, granted) in features {
            write!(formatter, ", {}{name}", if granted { "" } else { "no " })?;
        }
        Ok(())
    }
}

/// Chooses from what the kernel offers, feature by feature.
pub(crate) fn negotiate(offer: &InitIn, options: &MountOptions) -> (InitOut, Granted) {
    let offered =
        InitFlags::from_bits_retain(u64::from(offer.flags) | u64::from(offer.flags2) << u32::BITS);
    let mut asked = InitFlags::empty();
    let mut ask = |flags: InitFlags| {
        let granted = offered.contains(flags);
        asked |= if granted { flags } else { InitFlags::empty() };
        granted
    };
    ask(InitFlags::INIT_EXT);
    ask(InitFlags::ASYNC_READ | InitFlags::BIG_WRITES | InitFlags::MAX_PAGES);
    ask(InitFlags::ASYNC_DIO);
    ask(InitFlags::DIRECT_IO_ALLOW_MMAP);
    ask(InitFlags::AUTO_INVAL_DATA);
    // The lower file system applies the umask, because only it knows of default ACLs.
    ask(InitFlags::DONT_MASK);
    let readdirplus = ask(InitFlags::DO_READDIRPLUS | InitFlags::READDIRPLUS_AUTO);
    let parallel_directories = ask(InitFlags::PARALLEL_DIROPS);
    let posix_acl = ask(InitFlags::POSIX_ACL);
    let cached_symlinks = ask(InitFlags::CACHE_SYMLINKS);
    let writeback = options.writeback && ask(InitFlags::WRITEBACK_CACHE);
    // Without it the kernel asks for an xattr before every write.
    let kill_set_id = ask(InitFlags::HANDLE_KILLPRIV_V2);
    // ATOMIC_O_TRUNC is never asked for: the file would be emptied before the kernel finds that a
    // running program must not be.
    let passthrough = !writeback && ask(InitFlags::PASSTHROUGH);
    let granted = Granted {
        protocol: (offer.major, offer.minor),
        write_bytes_max: WRITE_BYTES_MAX,
        passthrough,
        writeback,
        kill_set_id,
        readdirplus,
        parallel_directories,
        posix_acl,
        cached_symlinks,
    };
    (to_reply(offer, asked, passthrough), granted)
}

fn to_reply(offer: &InitIn, asked: InitFlags, passthrough: bool) -> InitOut {
    InitOut {
        major: MAJOR,
        minor: offer.minor.min(MINOR_MAX),
        max_readahead: offer.max_readahead,
        flags: asked.bits() as u32,
        max_background: BACKGROUND_REQUESTS_MAX,
        congestion_threshold: BACKGROUND_REQUESTS_MAX / 4 * 3,
        max_write: WRITE_BYTES_MAX,
        time_gran: 1,
        max_pages: (WRITE_BYTES_MAX / PAGE_BYTES) as u16,
        map_alignment: 0,
        flags2: (asked.bits() >> u32::BITS) as u32,
        max_stack_depth: if passthrough { STACK_DEPTH } else { 0 },
        // No request may be given up because it takes long: a tape may have to be fetched.
        request_timeout: 0,
        unused: [0; 11],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(flags: InitFlags) -> InitIn {
        InitIn {
            major: 7,
            minor: 60,
            max_readahead: 128 << 10,
            flags: flags.bits() as u32,
            flags2: (flags.bits() >> 32) as u32,
            unused: [0; 11],
        }
    }

    #[test]
    fn only_what_is_offered_is_asked() {
        let (reply, granted) = negotiate(&offer(InitFlags::empty()), &MountOptions::default());
        assert_eq!((reply.flags, reply.flags2), (0, 0));
        assert!(!granted.passthrough && !granted.readdirplus);
        assert_eq!(reply.minor, MINOR_MAX);
    }

    #[test]
    fn unknown_offers_are_left_alone() {
        let (reply, _) = negotiate(&offer(InitFlags::all()), &MountOptions::default());
        let over_io_uring = 1_u64 << 41;
        assert_eq!(u64::from(reply.flags2) << 32 & over_io_uring, 0);
        assert_eq!(reply.flags & InitFlags::SETXATTR_EXT.bits() as u32, 0);
    }

    #[test]
    fn writeback_and_passthrough_exclude_each_other() {
        let writeback = MountOptions { writeback: true, ..MountOptions::default() };
        let (_, granted) = negotiate(&offer(InitFlags::all()), &writeback);
        assert!(granted.writeback && granted.kill_set_id && !granted.passthrough);
        let (_, granted) = negotiate(&offer(InitFlags::all()), &MountOptions::default());
        assert!(granted.passthrough && !granted.writeback && granted.kill_set_id);
    }
}
