//! What a mount may ask for.

use std::time::Duration;

use fslab_vfs::{AccessTimes, Synchronous};
use rustix::mount::MountFlags;

/// How requests come from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// As serves better: by /dev/fuse, as long as no measurement says otherwise.
    #[default]
    Auto,
    /// By /dev/fuse.
    Device,
    /// By io_uring (Linux 6.14), or not at all.
    Uring,
}

/// How a file system is mounted. The defaults are those of a file system to live in: permissions
/// checked by the kernel, no set-id programs and no devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// What `mount` shows as the source.
    pub source: String,
    /// Refuse changes.
    pub read_only: bool,
    /// Which uses of files change access times: what `mount` shows. The file system sees to it.
    pub access_times: AccessTimes,
    /// What is durable when it is answered. The file system sees to names and attributes, the
    /// kernel to writes.
    pub synchronous: Option<Synchronous>,
    /// Honour set-id bits of programs.
    pub set_id: bool,
    /// Honour device nodes.
    pub devices: bool,
    /// Allow running programs.
    pub execute: bool,
    /// Let other users in than who mounts. `None`: yes for root, no for others.
    pub allow_other: Option<bool>,
    /// Let the kernel collect writes. Only right where nobody changes the lower files elsewhere,
    /// and never together with passthrough.
    pub writeback: bool,
    /// Allow id-mapped mounts of it. The kernel then names the caller of creating requests only.
    pub id_maps: bool,
    /// Give file handles out, as for NFS, where the file system finds inodes by their numbers.
    pub file_handles: bool,
    /// How long the kernel may believe a name, 0 to ask each time.
    pub entry_timeout: Duration,
    /// How long the kernel may believe attributes, 0 to ask each time.
    pub attr_timeout: Duration,
    /// Threads that serve requests, at most. `None`: by the number of processors.
    pub threads: Option<usize>,
    /// How long a thread stays awake for the next request where requests follow each other
    /// quickly; 0 to sleep at once.
    pub poll: Duration,
    /// How requests come from the kernel.
    pub transport: TransportChoice,
    /// Refuse a kernel that does not send requests again which a daemon left unanswered.
    pub keep: bool,
    /// Unmount when nothing was asked for so long and nothing is in use.
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
    /// Whether other users are let in.
    pub(crate) fn lets_others_in(&self) -> bool {
        self.allow_other.unwrap_or_else(|| rustix::process::geteuid().is_root())
    }

    /// At most so many threads serve; one blocked in a slow call must not hold up the others.
    pub(crate) fn thread_count(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or((4 * processors).clamp(8, 32)).max(1)
    }

    /// The flags of mount(2).
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

    /// The options as fusermount3 takes them, which mounts for ordinary users.
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
        // The helper refuses what only root may ask for; the opposite is its default.
        words.extend(self.set_id.then(|| "suid".to_owned()));
        words.extend(self.devices.then(|| "dev".to_owned()));
        words.extend(self.lets_others_in().then(|| "allow_other".to_owned()));
        words.join(",")
    }
}

/// fusermount3 takes its options joined by commas, with a backslash as escape.
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
