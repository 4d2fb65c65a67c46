//! Options of a mount.

use std::time::Duration;

use fslab_vfs::{AccessTimes, Synchronous};
use rustix::mount::MountFlags;

/// Selects how requests are received from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// /dev/fuse.
    #[default]
    Device,
    /// io_uring if this machine and process can use it, otherwise /dev/fuse. The log contains the
    /// reason.
    Auto,
    /// io_uring (Linux 6.14), without a fallback.
    Uring,
}

/// Options of a mount. The defaults suit general use: the kernel checks permissions, and ignores
/// set-id bits and device nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// The source shown by `mount`.
    pub source: String,
    /// Refuse changes.
    pub read_only: bool,
    /// The access time option shown by `mount`. The file system implements it.
    pub access_times: AccessTimes,
    /// Which changes are durable when an operation returns. The file system syncs names and
    /// attributes, and the kernel syncs writes.
    pub synchronous: Option<Synchronous>,
    /// Honour set-id bits of programs.
    pub set_id: bool,
    /// Honour device nodes.
    pub devices: bool,
    /// Allow running programs.
    pub execute: bool,
    /// Allow access to other users. `None` allows it if the daemon runs as root.
    pub allow_other: Option<bool>,
    /// Let the kernel cache writes. Only safe if no other program changes the lower files, and
    /// incompatible with passthrough.
    pub writeback: bool,
    /// Allow id-mapped mounts of the file system. The kernel then identifies the caller only in
    /// creating requests.
    pub id_maps: bool,
    /// Support file handles, for example for NFS, if the file system can find inodes by number.
    pub file_handles: bool,
    /// The files change only through the mount. So cached pages remain valid when the modification
    /// time of a file changes.
    pub exclusive: bool,
    /// How long the kernel may cache a name; 0 to request it each time.
    pub entry_timeout: Duration,
    /// How long the kernel may cache attributes; 0 to request them each time.
    pub attr_timeout: Duration,
    /// Maximum number of serving threads. `None`: depends on the number of processors.
    pub threads: Option<usize>,
    /// Busy-poll this long for the next request if requests follow each other quickly; 0 to sleep
    /// at once.
    pub poll: Duration,
    /// How requests are received from the kernel.
    pub transport: TransportChoice,
    /// Refuse a kernel that does not resend requests left unanswered by a dead daemon.
    pub keep: bool,
    /// Unmount after this time without requests if nothing is in use.
    pub idle_timeout: Option<Duration>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            source: "fslab".to_owned(),
            read_only: false,
            access_times: AccessTimes::default(),
            synchronous: None,
            set_id: false,
            devices: false,
            execute: true,
            allow_other: None,
            writeback: false,
            id_maps: false,
            file_handles: true,
            exclusive: false,
            entry_timeout: Duration::from_secs(1),
            attr_timeout: Duration::from_secs(1),
            threads: None,
            poll: Duration::from_micros(50),
            transport: TransportChoice::default(),
            keep: false,
            idle_timeout: None,
        }
    }
}

impl MountOptions {
    /// Whether other users may access the mount.
    pub(crate) fn lets_others_in(&self) -> bool {
        self.allow_other.unwrap_or_else(|| rustix::process::geteuid().is_root())
    }

    /// Maximum number of serving threads. There are several, because a slow call must not block
    /// other requests.
    pub(crate) fn thread_count(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or((4 * processors).clamp(8, 32)).max(1)
    }

    pub(crate) fn to_flags(&self) -> MountFlags {
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::RDONLY, self.read_only);
        flags.set(MountFlags::NOSUID, !self.set_id);
        flags.set(MountFlags::NODEV, !self.devices);
        flags.set(MountFlags::NOEXEC, !self.execute);
        flags.set(MountFlags::NOATIME, self.access_times == AccessTimes::Never);
        flags.set(MountFlags::NODIRATIME, self.access_times == AccessTimes::RelativeOfFiles);
        flags.set(MountFlags::DIRSYNC, self.synchronous == Some(Synchronous::Names));
        flags.set(MountFlags::SYNCHRONOUS, self.synchronous == Some(Synchronous::Everything));
        flags
    }

    /// The options for fusermount3, which mounts for ordinary users.
    pub(crate) fn to_helper_options(&self) -> String {
        let choose = |wanted, yes, no| if wanted { yes } else { no };
        let mut words = vec![
            format!("fsname={}", escape(&self.source)),
            "subtype=fslab".to_owned(),
            "default_permissions".to_owned(),
            choose(self.read_only, "ro", "rw").to_owned(),
            choose(self.execute, "exec", "noexec").to_owned(),
        ];
        words.extend(match self.access_times {
            AccessTimes::Usual | AccessTimes::Relative => None,
            AccessTimes::RelativeOfFiles => Some("nodiratime".to_owned()),
            AccessTimes::Never => Some("noatime".to_owned()),
        });
        words.extend(self.synchronous.map(|what| match what {
            Synchronous::Names => "dirsync".to_owned(),
            Synchronous::Everything => "sync".to_owned(),
        }));
        // The helper applies `nosuid` and `nodev` by default, and refuses their opposites from
        // ordinary users.
        words.extend(self.set_id.then(|| "suid".to_owned()));
        words.extend(self.devices.then(|| "dev".to_owned()));
        words.extend(self.lets_others_in().then(|| "allow_other".to_owned()));
        words.join(",")
    }
}

/// Escapes a value for fusermount3, whose options are separated by commas, with the backslash as
/// the escape character.
fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        if matches!(character, ',' | '\\') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_in_the_source_can_not_become_an_option() {
        assert_eq!(escape(r"a,suid\b"), r"a\,suid\\b");
    }

    #[test]
    fn the_defaults_refuse_set_id_programs_and_devices() {
        let flags = MountOptions::default().to_flags();
        assert_eq!(flags, MountFlags::NOSUID | MountFlags::NODEV);
        let words = MountOptions::default().to_helper_options();
        assert!(words.contains("default_permissions") && !words.contains("suid"), "{words}");
    }
}
