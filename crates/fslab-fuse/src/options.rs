//! What a mount may ask for.

use std::time::Duration;

/// How a file system is mounted. The defaults are those of a file system to live in: permissions
/// checked by the kernel, no set-id programs and no devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// What `mount` shows as the source.
    pub source: String,
    /// Refuse changes.
    pub read_only: bool,
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
    /// How long the kernel may believe a name, 0 to ask each time.
    pub entry_timeout: Duration,
    /// How long the kernel may believe attributes, 0 to ask each time.
    pub attr_timeout: Duration,
    /// Threads that serve requests. `None`: by the number of processors.
    pub threads: Option<usize>,
    /// Unmount when nothing was asked for so long and nothing is in use.
    pub idle_timeout: Option<Duration>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            source: "fslab".to_owned(),
            read_only: false,
            set_id: false,
            devices: false,
            execute: true,
            allow_other: None,
            writeback: false,
            entry_timeout: Duration::from_secs(1),
            attr_timeout: Duration::from_secs(1),
            threads: None,
            idle_timeout: None,
        }
    }
}

impl MountOptions {
    /// Whether other users are let in.
    pub(crate) fn lets_others_in(&self) -> bool {
        self.allow_other.unwrap_or_else(|| rustix::process::geteuid().is_root())
    }

    /// The source as mount(2) takes it, or escaped for fusermount3, which mounts for others.
    fn source_for_mount(&self) -> String {
        if rustix::process::geteuid().is_root() {
            self.source.clone()
        } else {
            escape(&self.source)
        }
    }

    /// Threads to start: one blocked in a slow call must not hold up the others.
    pub(crate) fn thread_count(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or((2 * processors).clamp(4, 16)).max(1)
    }

    /// The options as fuser takes them.
    pub(crate) fn to_config(&self) -> fuser::Config {
        use fuser::MountOption;
        let choose = |wanted, yes, no| if wanted { yes } else { no };
        let mut config = fuser::Config::default();
        config.mount_options = vec![
            MountOption::FSName(self.source_for_mount()),
            // fuser's own option for the subtype reaches fusermount3 only.
            MountOption::CUSTOM("subtype=fslab".to_owned()),
            MountOption::DefaultPermissions,
            choose(self.read_only, MountOption::RO, MountOption::RW),
            choose(self.set_id, MountOption::Suid, MountOption::NoSuid),
            choose(self.devices, MountOption::Dev, MountOption::NoDev),
            choose(self.execute, MountOption::Exec, MountOption::NoExec),
        ];
        config.acl =
            if self.lets_others_in() { fuser::SessionACL::All } else { fuser::SessionACL::Owner };
        config.n_threads = Some(self.thread_count());
        config.clone_fd = true;
        config
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
        let options = MountOptions::default().to_config().mount_options;
        assert!(options.contains(&fuser::MountOption::NoSuid));
        assert!(options.contains(&fuser::MountOption::NoDev));
        assert!(options.contains(&fuser::MountOption::DefaultPermissions));
    }
}
