//! Negotiation at the start of a connection: the requested and the granted features.

use std::fmt;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::features::FEATURES;
use crate::kept::Connection;
use crate::options::{MountOptions, TransportChoice};
use crate::protocol::flags::InitFlags;
use crate::protocol::reply::InitOut;
use crate::protocol::request::InitIn;
use crate::protocol::{MAJOR, MINOR_MAX};
use crate::request_timeout::Limits;

/// Maximum number of background requests (read-ahead and write-back) that the kernel keeps in
/// flight.
const BACKGROUND_REQUESTS_MAX: u16 = 64;

/// Stacking depth for passthrough: this file system over a plain one.
const STACK_DEPTH: u32 = 1;

/// Maximum bytes of one read or write; the kernel's default limit allows this.
const WRITE_BYTES_MAX: u32 = 1 << 20;

/// The limits and features that the kernel granted for one mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Protocol version of the kernel.
    pub protocol: (u32, u32),
    /// Maximum bytes of a read or write.
    pub write_bytes_max: u32,
    /// Maximum time of a request before the kernel aborts the mount, if there is a limit.
    pub request_time_max: Option<Duration>,
    features: InitFlags,
}

impl Granted {
    /// Returns the features granted to an earlier daemon of the same mount.
    pub(crate) fn of(connection: &Connection) -> Self {
        Self {
            protocol: connection.protocol,
            write_bytes_max: connection.write_bytes_max.clamp(4096, WRITE_BYTES_MAX),
            request_time_max: connection.request_time_max_s.map(Duration::from_secs),
            features: InitFlags::from_bits_retain(connection.features),
        }
    }

    /// Returns the connection as recorded for a later daemon.
    pub(crate) fn to_connection(&self, device: RawFd, mount_device: (u32, u32)) -> Connection {
        Connection {
            device,
            mount_device,
            protocol: self.protocol,
            write_bytes_max: self.write_bytes_max,
            request_time_max_s: self.request_time_max.map(|time| time.as_secs()),
            features: self.features.bits(),
        }
    }

    /// Whether all of these features were granted.
    pub(crate) fn has(&self, features: InitFlags) -> bool {
        self.features.contains(features)
    }

    /// Drops granted features that can't be used.
    pub(crate) fn give_up(&mut self, features: InitFlags) {
        self.features -= features;
    }

    /// Whether reads and writes may go to the lower file directly.
    #[must_use]
    pub fn passthrough(&self) -> bool {
        self.has(InitFlags::PASSTHROUGH)
    }

    /// Whether the kernel caches writes.
    #[must_use]
    pub fn writeback(&self) -> bool {
        self.has(InitFlags::WRITEBACK_CACHE)
    }

    /// Whether requests arrive through io_uring.
    #[must_use]
    pub fn uring(&self) -> bool {
        self.has(InitFlags::OVER_IO_URING)
    }

    /// Whether the mount supports id-mapped mounts.
    #[must_use]
    pub fn id_maps(&self) -> bool {
        self.has(InitFlags::ALLOW_IDMAP)
    }
}

impl fmt::Display for Granted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.protocol;
        write!(formatter, "protocol {major}.{minor}")?;
        for feature in FEATURES {
            let prefix = if self.has(feature.flags) { "" } else { "no " };
            write!(formatter, ", {prefix}{}", feature.name)?;
        }
        Ok(())
    }
}

/// Requests each wanted feature that the kernel offers. Returns the reply and the granted features.
pub(crate) fn negotiate(
    offer: &InitIn,
    options: &MountOptions,
    limits: Limits,
) -> (InitOut, Granted) {
    let offered =
        InitFlags::from_bits_retain(u64::from(offer.flags) | u64::from(offer.flags2) << u32::BITS);
    let wanted = FEATURES.iter().filter(|feature| (feature.wanted)(options));
    let features = wanted
        .map(|feature| feature.flags)
        .filter(|flags| offered.contains(*flags))
        .fold(InitFlags::empty(), InitFlags::union);
    let features = without_unneeded_uring(features, options);
    let can_ask = features.contains(InitFlags::REQUEST_TIMEOUT);
    let request_timeout = if can_ask { limits.to_ask() } else { 0 };
    let granted = Granted {
        protocol: (offer.major, offer.minor),
        write_bytes_max: WRITE_BYTES_MAX,
        request_time_max: limits.in_force(request_timeout),
        features,
    };
    (to_reply(offer, features, request_timeout), granted)
}

/// Omits io_uring if it is only preferred, but all data would pass through the daemon.
fn without_unneeded_uring(features: InitFlags, options: &MountOptions) -> InitFlags {
    let is_preferred = options.transport == TransportChoice::Auto;
    if is_preferred && !features.contains(InitFlags::PASSTHROUGH) {
        features - InitFlags::OVER_IO_URING
    } else {
        features
    }
}

fn to_reply(offer: &InitIn, features: InitFlags, request_timeout: u16) -> InitOut {
    let stacks = features.contains(InitFlags::PASSTHROUGH);
    InitOut {
        major: MAJOR,
        minor: offer.minor.min(MINOR_MAX),
        max_readahead: offer.max_readahead,
        flags: features.bits() as u32,
        max_background: BACKGROUND_REQUESTS_MAX,
        congestion_threshold: BACKGROUND_REQUESTS_MAX / 4 * 3,
        max_write: WRITE_BYTES_MAX,
        time_gran: 1,
        max_pages: pages_max(rustix::param::page_size()),
        map_alignment: 0,
        flags2: (features.bits() >> u32::BITS) as u32,
        max_stack_depth: if stacks { STACK_DEPTH } else { 0 },
        request_timeout,
        unused: [0; 11],
    }
}

/// Number of pages in the largest request, for a kernel with this page size. If the kernel were
/// allowed more pages, it would send larger reads than the server answers. It would then treat a
/// short reply as the end of the file.
fn pages_max(page_bytes: usize) -> u16 {
    u16::try_from(WRITE_BYTES_MAX as usize / page_bytes).unwrap_or(u16::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_request_has_the_same_size_for_every_page_size() {
        for page_bytes in [4 << 10, 16 << 10, 64 << 10] {
            assert_eq!(usize::from(pages_max(page_bytes)) * page_bytes, WRITE_BYTES_MAX as usize);
        }
    }

    /// Numbers of the feature bits that are never requested (`ATOMIC_O_TRUNC`, `POSIX_LOCKS`,
    /// `SPLICE_READ`) or only with an option (`OVER_IO_URING`, `HAS_RESEND`).
    const NOT_SERVED: [u32; 5] = [41, 39, 3, 1, 9];

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

    fn asked(flags: InitFlags, options: &MountOptions) -> (InitFlags, Granted) {
        let (reply, granted) = negotiate(&offer(flags), options, Limits::default());
        let bits = u64::from(reply.flags) | u64::from(reply.flags2) << 32;
        (InitFlags::from_bits_retain(bits), granted)
    }

    #[test]
    fn only_offered_features_are_requested() {
        let options = MountOptions::default();
        let (flags, granted) = asked(InitFlags::empty(), &options);
        assert!(flags.is_empty() && !granted.passthrough());
        for feature in FEATURES.iter().filter(|feature| (feature.wanted)(&options)) {
            let (flags, granted) = asked(feature.flags, &options);
            assert_eq!(flags, feature.flags, "{}", feature.name);
            assert!(granted.has(feature.flags));
        }
        let (reply, _) = negotiate(&offer(InitFlags::all()), &options, Limits::default());
        assert_eq!(reply.minor, MINOR_MAX);
        let page_bytes = rustix::param::page_size();
        assert_eq!(usize::from(reply.max_pages) * page_bytes, WRITE_BYTES_MAX as usize);
    }

    #[test]
    fn unserved_features_are_not_requested() {
        let options = MountOptions { id_maps: true, ..MountOptions::default() };
        let (flags, _) = asked(InitFlags::all(), &options);
        for bit in NOT_SERVED {
            assert_eq!(flags.bits() & (1 << bit), 0, "bit {bit}");
        }
        let listed = FEATURES.iter().fold(InitFlags::empty(), |all, one| all | one.flags);
        assert!(listed.contains(flags));
    }

    #[test]
    fn each_feature_is_listed_once() {
        for (index, feature) in FEATURES.iter().enumerate() {
            let others = FEATURES[index + 1..].iter();
            assert!(!feature.flags.is_empty(), "{}", feature.name);
            for other in others {
                assert!(!feature.flags.intersects(other.flags), "{} twice", feature.name);
                assert_ne!(feature.name, other.name);
            }
        }
    }

    #[test]
    fn writeback_and_passthrough_exclude_each_other() {
        let writeback = MountOptions { writeback: true, ..MountOptions::default() };
        let (_, granted) = asked(InitFlags::all(), &writeback);
        assert!(granted.writeback() && !granted.passthrough());
        let (_, granted) = asked(InitFlags::all(), &MountOptions::default());
        assert!(granted.passthrough() && !granted.writeback());
    }

    #[test]
    fn preferred_io_uring_is_requested_only_with_passthrough() {
        let options = MountOptions { transport: TransportChoice::Auto, ..MountOptions::default() };
        let (_, granted) = asked(InitFlags::all(), &options);
        assert!(granted.uring() && granted.passthrough());
        let (_, granted) = asked(InitFlags::all() - InitFlags::PASSTHROUGH, &options);
        assert!(!granted.uring());
    }

    #[test]
    fn id_maps_are_requested_only_with_the_option() {
        let (_, granted) = asked(InitFlags::all(), &MountOptions::default());
        assert!(!granted.id_maps());
        let options = MountOptions { id_maps: true, ..MountOptions::default() };
        assert!(asked(InitFlags::all(), &options).1.id_maps());
    }

    #[test]
    fn file_handles_option_selects_the_export_flag() {
        let both = InitFlags::EXPORT_SUPPORT | InitFlags::NO_EXPORT_SUPPORT;
        for (file_handles, flags) in
            [(true, InitFlags::EXPORT_SUPPORT), (false, InitFlags::NO_EXPORT_SUPPORT)]
        {
            let options = MountOptions { file_handles, ..MountOptions::default() };
            assert_eq!(asked(InitFlags::all(), &options).0 & both, flags);
        }
    }

    #[test]
    fn request_timeout_is_requested_only_if_a_limit_is_set() {
        let options = MountOptions::default();
        let limits = Limits { default_s: 60, maximum_s: 0 };
        let (reply, _) = negotiate(&offer(InitFlags::all()), &options, Limits::default());
        assert_eq!(reply.request_timeout, 0);
        let (reply, granted) = negotiate(&offer(InitFlags::all()), &options, limits);
        assert_eq!(reply.request_timeout, u16::MAX);
        assert_eq!(granted.request_time_max, Some(Duration::from_secs(65_535)));
        let old_kernel = offer(InitFlags::all() - InitFlags::REQUEST_TIMEOUT);
        let (reply, granted) = negotiate(&old_kernel, &options, limits);
        assert_eq!(reply.request_timeout, 0);
        assert_eq!(granted.request_time_max, Some(Duration::from_secs(60)));
    }
}
