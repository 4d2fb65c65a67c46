//! The kernel's time limits for FUSE requests.
//!
//! With such a limit (Linux 6.15), the kernel aborts the whole mount if a single request takes
//! longer. A request that waits for a tape may take that long. The administrator sets a default and
//! a maximum. A server can request another limit, which replaces the default but can't exceed the
//! maximum. Requests that would exceed the resulting limit are cancelled earlier: see
//! [`cancel_after`].

use std::path::Path;
use std::time::Duration;

/// The kernel's directory of limits.
const DIRECTORY: &str = "/proc/sys/fs/fuse";
/// Maximum limit that a server can request, in seconds.
const ASKED_MAX_S: u16 = u16::MAX;
/// Interval of the kernel's checks, and therefore its minimum limit, in seconds.
const CHECK_PERIOD_S: u64 = 15;

/// The machine's limits in seconds; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The limit for servers that request none.
    pub default_s: u64,
    /// The limit for all servers.
    pub maximum_s: u64,
}

impl Limits {
    /// Reads the limits of this machine; there are none if the kernel does not support them.
    pub fn of_machine() -> Self {
        Self { default_s: read("default_request_timeout"), maximum_s: read("max_request_timeout") }
    }

    /// The limit to request, in seconds: the longest possible one, or 0 (no request) if the kernel
    /// has no limit.
    pub fn to_ask(self) -> u16 {
        if self == Self::default() { 0 } else { ASKED_MAX_S }
    }

    /// Returns the limit of a connection that requested `asked_s` seconds; 0 stands for no request.
    pub fn in_force(self, asked_s: u16) -> Option<Duration> {
        let wanted_s = if asked_s == 0 { self.default_s } else { u64::from(asked_s) };
        let seconds = match (wanted_s, self.maximum_s) {
            (wanted_s, 0) => wanted_s,
            (0, maximum_s) => maximum_s,
            (wanted_s, maximum_s) => wanted_s.min(maximum_s),
        };
        (seconds != 0).then(|| Duration::from_secs(seconds.max(CHECK_PERIOD_S)))
    }
}

/// The time after which a request is cancelled under a limit. The rest of the limit is enough to
/// end the request and send the reply, so that the kernel does not abort the mount.
pub(crate) fn cancel_after(limit: Duration) -> Duration {
    limit / 4 * 3
}

fn read(name: &str) -> u64 {
    let text = std::fs::read_to_string(Path::new(DIRECTORY).join(name));
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(default_s: u64, maximum_s: u64) -> Limits {
        Limits { default_s, maximum_s }
    }

    #[test]
    fn longest_timeout_is_requested_only_if_a_limit_exists() {
        assert_eq!(limits(0, 0).to_ask(), 0);
        assert_eq!(limits(60, 0).to_ask(), u16::MAX);
        assert_eq!(limits(0, 60).to_ask(), u16::MAX);
    }

    #[test]
    fn timeout_in_force_is_computed_as_in_the_kernel() {
        let seconds =
            |limits: Limits, asked_s| limits.in_force(asked_s).map(|limit| limit.as_secs());
        assert_eq!(seconds(limits(0, 0), 0), None);
        assert_eq!(seconds(limits(60, 0), 0), Some(60));
        assert_eq!(seconds(limits(60, 0), u16::MAX), Some(65_535), "replaces the default");
        assert_eq!(seconds(limits(0, 60), u16::MAX), Some(60), "can't exceed the maximum");
        assert_eq!(seconds(limits(0, 60), 0), Some(60));
        assert_eq!(seconds(limits(90, 60), 0), Some(60));
        assert_eq!(seconds(limits(0, 2), u16::MAX), Some(15), "the kernel's minimum");
    }
}
