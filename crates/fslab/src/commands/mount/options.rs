//! The mount options (`-o`).

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use fslab_fuse::{MountOptions, TransportChoice};
use fslab_layers::{LayerChoice, Stack};
use fslab_vfs::{AccessTimes, Synchronous};

use super::parse_layer;
use crate::commands::mount_options::NAMES;
use crate::exit::Code;

/// The list of options for `--help`.
pub const HELP: &str = "\
Mount options (-o):
  ro, rw                    mount read-only or for writing [rw]
  relatime, nodiratime, noatime
                            which reads update access times [as LOWER is mounted]
  sync, dirsync             make all changes, or changes of names, durable before replying
  suid, nosuid              honour set-id programs [nosuid]
  dev, nodev                honour device nodes [nodev]
  exec, noexec              allow running programs [exec]
  allow_other, allow_self   give access to all users, or only to the mounting one [all for root]
  writeback, nowriteback    buffer writes in the kernel or not; writeback excludes passthrough
                            [writeback for codecs with `keep`, else nowriteback]
  exclusive                 no other program changes LOWER, so the kernel may cache names for a day
                            and keep pages (with allow_other only for root; not for tiers)
  idmap                     allow id-mapped mounts of the mount
  entry_timeout=DURATION    how long the kernel may cache a name [1s, exclusive: 1d]
  attr_timeout=DURATION     how long the kernel may cache attributes [1s]
  threads=NUMBER            maximum number of worker threads [8 to 32]
  poll=DURATION             busy-poll this long for the next request under load [50us]
  transport=auto|device|uring
                            receive requests by /dev/fuse or by io_uring (experimental); auto uses
                            io_uring if the machine allows it, data does not pass through the
                            daemon, and `keep` is not given [auto]
  keep[=DEATHS]             start another daemon when one is killed, unless DEATHS of them die
                            within a minute [5] (experimental)
  busy_timeout=DURATION     how long to wait for another fslab that uses LOWER [3s]
  idle_timeout=DURATION     unmount after this time without a request and without open files
  nonempty                  allow a mount point that holds files or another mount
  replace                   replace a mount of fslab whose daemon died
  layer=NAME[:key=value;..] a layer, as with -l, for /etc/fstab
  log=FILE                  append messages of the daemon to a file instead of the system log
Options for mount(8) itself (defaults, auto, user, nofail, x-...) are ignored.";

/// Default number of daemon deaths within a minute after which `keep` starts no other daemon.
const DEATHS_MAX: usize = 5;

/// How long the kernel may cache attributes, and names that other programs may change in the lower
/// directory.
const VALIDITY: Duration = Duration::from_secs(1);

/// How long the kernel may cache names that change only through the mount.
const EXCLUSIVE_VALIDITY: Duration = Duration::from_secs(24 * 60 * 60);

/// The options given with `-o`.
#[derive(Debug, Default)]
pub struct Options {
    /// Options for the mount itself.
    pub mount: MountOptions,
    /// Layers, top first.
    pub layers: Vec<LayerChoice>,
    /// Whether to mount over a directory that is not empty.
    pub non_empty: bool,
    /// Whether to replace a mount whose daemon died.
    pub replace: bool,
    /// Whether the kernel should buffer writes; `None` if not specified.
    pub writeback: Option<bool>,
    /// How long the kernel may cache a name; `None` if not specified.
    pub entry_timeout: Option<Duration>,
    /// How long the kernel may cache attributes; `None` if not specified.
    pub attr_timeout: Option<Duration>,
    /// How requests are received; `None` to choose by the stack.
    pub transport: Option<TransportChoice>,
    /// How long to wait for another fslab that uses the lower directory.
    pub busy_timeout: Duration,
    /// Number of daemon deaths within a minute after which `keep` starts no other daemon.
    pub deaths_max: usize,
    /// The file for messages of the running daemon.
    pub log: Option<PathBuf>,
    access_times: AccessTimeOptions,
}

impl Options {
    /// Parses all `-o` arguments.
    ///
    /// # Errors
    /// Fails if an option is invalid; the error contains the option. With `sloppy` (see mount(8)),
    /// unknown options are ignored.
    pub fn parse(given: &[String], sloppy: bool) -> Result<Self> {
        let mut options = Self { busy_timeout: Duration::from_secs(3), ..Self::default() };
        let words = given.iter().flat_map(|list| list.split(',')).filter(|word| !word.is_empty());
        for word in words {
            let (key, value) = word.split_once('=').map_or((word, None), |(k, v)| (k, Some(v)));
            let is_known = options.set(key, value);
            if !is_known.with_context(|| format!("mount option {word}"))? && !sloppy {
                let names = NAMES.iter().map(|name| name.trim_end_matches('='));
                let near = fslab_report::suggestion(key, names);
                bail_as!(
                    BadInput,
                    "unknown mount option '{word}' (`fslab mount --help` lists all){near}"
                );
            }
        }
        options.expect_consistent()?;
        Ok(options)
    }

    fn expect_consistent(&self) -> Result<()> {
        let mount = &self.mount;
        if mount.keep && self.transport == Some(TransportChoice::Uring) {
            bail_as!(
                BadInput,
                "keep and transport=uring exclude each other, because the kernel does not resend \
                 requests that it sent by io_uring"
            );
        }
        Ok(())
    }

    /// Sets the options that depend on the stack.
    ///
    /// # Errors
    /// The stack can't be mounted with these options.
    pub fn apply_to(&mut self, stack: &Stack) -> Result<()> {
        let mount = &mut self.mount;
        // If the daemon is killed, writes that the kernel has buffered are lost, unless `keep`
        // starts another daemon.
        let is_collected = mount.keep && stack.is_encoded();
        mount.writeback = self.writeback.unwrap_or(is_collected);
        if mount.exclusive && stack.is_grounded() {
            bail_as!(
                BadInput,
                "exclusive: not possible with the layer 'tier', whose commands change the lower \
                 directory"
            );
        }
        let is_shared = mount.allow_other == Some(true) && !rustix::process::geteuid().is_root();
        if mount.exclusive && is_shared {
            bail_as!(
                Missing,
                "exclusive: only root may use it together with allow_other, because other users \
                 would see outdated files if a program changed the lower directory"
            );
        }
        let preferred = match self.reason_for_device(stack) {
            Some(_) => TransportChoice::Device,
            None => TransportChoice::Auto,
        };
        let mount = &mut self.mount;
        mount.transport = self.transport.unwrap_or(preferred);
        mount.exclusive |= stack.is_exclusive();
        // After an error, the kernel treats a name as unchanged. With `sync`, with `keep` and with
        // injected faults, the name may have changed nevertheless.
        let is_certain = mount.synchronous.is_none() && !mount.keep && !stack.injects_faults();
        let validity = if mount.exclusive && is_certain { EXCLUSIVE_VALIDITY } else { VALIDITY };
        mount.entry_timeout = self.entry_timeout.unwrap_or(validity);
        // A reply that was prepared before a change may arrive after it. The kernel does not detect
        // this for every change of attributes, so their validity is short.
        mount.attr_timeout = self.attr_timeout.unwrap_or(VALIDITY);
        Ok(())
    }

    /// Returns the reason why requests are received by /dev/fuse if the user does not choose a
    /// transport. Returns `None` if io_uring is preferred.
    ///
    /// Requests about names are faster over io_uring. Data is read faster through /dev/fuse,
    /// because several processors then serve the requests of one reader.
    pub fn reason_for_device(&self, stack: &Stack) -> Option<&'static str> {
        if self.mount.keep {
            Some("the kernel resends only requests that were read from /dev/fuse, as keep needs")
        } else if self.mount.threads.is_some() || self.mount.poll != MountOptions::default().poll {
            Some("threads and poll apply only to /dev/fuse")
        } else if !stack.passes_data()
            || self.mount.writeback
            || self.mount.synchronous == Some(Synchronous::Everything)
        {
            Some("the daemon reads and writes data, and data is read slower over io_uring")
        } else if !rustix::process::geteuid().is_root() {
            Some("only the daemon of root can let the kernel read and write lower files itself")
        } else {
            None
        }
    }

    /// Sets an option. Returns `false` if it is unknown.
    fn set(&mut self, key: &str, value: Option<&str>) -> Result<bool> {
        let mount = &mut self.mount;
        match (key, value) {
            ("ro" | "rw", None) => mount.read_only = key == "ro",
            (_, None) if self.access_times.set(key) => {
                mount.access_times = self.access_times.access_times();
            }
            ("strictatime", None) => bail_as!(
                BadInput,
                "not supported, because fslab does not see reads that the kernel answers from its \
                 cache; use relatime"
            ),
            ("lazytime", None) => bail_as!(
                BadInput,
                "not supported, because the file system that contains LOWER writes the timestamps; \
                 mount that one with lazytime instead"
            ),
            ("sync", None) => mount.synchronous = Some(Synchronous::Everything),
            ("dirsync", None) => mount.synchronous = mount.synchronous.or(Some(Synchronous::Names)),
            ("async", None) => mount.synchronous = None,
            ("suid" | "nosuid", None) => mount.set_id = key == "suid",
            ("dev" | "nodev", None) => mount.devices = key == "dev",
            ("exec" | "noexec", None) => mount.execute = key == "exec",
            ("allow_other" | "allow_self", None) => mount.allow_other = Some(key == "allow_other"),
            ("writeback" | "nowriteback", None) => self.writeback = Some(key == "writeback"),
            ("keep", deaths) => {
                mount.keep = true;
                self.deaths_max = deaths.map(count).transpose()?.unwrap_or(DEATHS_MAX);
            }
            ("exclusive", None) => mount.exclusive = true,
            ("idmap", None) => mount.id_maps = true,
            ("nonempty", None) => self.non_empty = true,
            ("replace", None) => self.replace = true,
            // This option has no effect: the kernel checks permissions in every mount of fslab
            // anyway.
            ("default_permissions", None) => {}
            ("entry_timeout", Some(value)) => self.entry_timeout = Some(duration(value)?),
            ("attr_timeout", Some(value)) => self.attr_timeout = Some(duration(value)?),
            ("busy_timeout", Some(value)) => self.busy_timeout = duration(value)?,
            ("idle_timeout", Some(value)) => mount.idle_timeout = Some(duration(value)?),
            ("poll", Some(value)) => mount.poll = duration(value)?,
            ("transport", Some(value)) => self.transport = transport(value)?,
            ("threads", Some(value)) => mount.threads = Some(count(value)?),
            ("layer", Some(value)) => self.layers.push(parse_layer(&value.replace(';', ","))?),
            ("log", Some(value)) => self.log = Some(value.into()),
            _ => return Ok(is_for_mount_8(key)),
        }
        Ok(true)
    }
}

/// Returns whether an option in /etc/fstab is only for mount(8) or systemd.
fn is_for_mount_8(key: &str) -> bool {
    const NAMES: &str = "defaults auto noauto user nouser users group owner nofail _netdev comment \
                         nostrictatime nolazytime";
    NAMES.split(' ').any(|name| name == key) || key.starts_with("x-")
}

fn duration(text: &str) -> Result<Duration> {
    crate::units::parse_duration(text).map_err(|message| Code::BadInput.error(message))
}

/// Parses the value of `transport`. Returns `None` for `auto`.
fn transport(text: &str) -> Result<Option<TransportChoice>> {
    Ok(match text {
        "auto" => None,
        "device" => Some(TransportChoice::Device),
        "uring" => Some(TransportChoice::Uring),
        _ => bail_as!(BadInput, "'{text}' is not auto, device or uring"),
    })
}

fn count(text: &str) -> Result<usize> {
    match text.parse() {
        Ok(count @ 1..=256) => Ok(count),
        _ => bail_as!(BadInput, "'{text}' is not a number from 1 to 256"),
    }
}

/// The options for access times. As in mount(8), `nodiratime` is independent of the other options.
/// Of `noatime` and `relatime`, the last one applies.
#[derive(Debug, Default)]
struct AccessTimeOptions {
    never: bool,
    relative: bool,
    not_of_directories: bool,
}

impl AccessTimeOptions {
    /// Applies an option. Returns `false` if it is not for access times.
    fn set(&mut self, option: &str) -> bool {
        match option {
            "noatime" => (self.never, self.relative) = (true, false),
            "atime" => self.never = false,
            "relatime" => (self.never, self.relative) = (false, true),
            "norelatime" => self.relative = false,
            "nodiratime" | "diratime" => self.not_of_directories = option == "nodiratime",
            _ => return false,
        }
        true
    }

    fn access_times(&self) -> AccessTimes {
        match self {
            Self { never: true, .. } => AccessTimes::Never,
            Self { not_of_directories: true, .. } => AccessTimes::RelativeOfFiles,
            Self { relative: true, .. } => AccessTimes::Relative,
            _ => AccessTimes::Usual,
        }
    }
}

#[cfg(test)]
mod tests {
    use fslab_layers::Foreign;

    use super::*;

    const FOREIGN: Foreign =
        Foreign { leaves: crate::leaves::FOREIGN, layers: crate::layers::FOREIGN };

    fn parse(text: &str) -> Result<Options> {
        Options::parse(&[text.to_owned()], false)
    }

    #[test]
    fn options_of_an_fstab_line_are_parsed() {
        let line = "defaults,nofail,x-systemd.automount,ro,layer=null:passthrough=off,dev,idmap";
        let options = parse(line).unwrap();
        assert!(options.mount.id_maps);
        assert!(options.mount.read_only && options.mount.devices && !options.mount.set_id);
        assert_eq!(options.layers[0].to_string(), "null:passthrough=off");
    }

    #[test]
    fn access_time_and_sync_options_are_combined() {
        let parsed = |text| {
            let mount = parse(text).unwrap().mount;
            (mount.access_times, mount.synchronous)
        };
        for (text, access_times, synchronous) in [
            ("defaults", AccessTimes::Usual, None),
            ("relatime,dirsync", AccessTimes::Relative, Some(Synchronous::Names)),
            (
                "nodiratime,dirsync,sync",
                AccessTimes::RelativeOfFiles,
                Some(Synchronous::Everything),
            ),
            ("noatime,nodiratime,sync,dirsync", AccessTimes::Never, Some(Synchronous::Everything)),
            ("noatime,sync,atime,async", AccessTimes::Usual, None),
            ("nodiratime,relatime", AccessTimes::RelativeOfFiles, None),
            ("nodiratime,diratime", AccessTimes::Usual, None),
            ("nodiratime,atime,norelatime", AccessTimes::RelativeOfFiles, None),
            ("nodiratime,noatime,relatime", AccessTimes::RelativeOfFiles, None),
            ("noatime,norelatime", AccessTimes::Never, None),
            ("noatime,diratime", AccessTimes::Never, None),
            ("noatime,relatime,diratime", AccessTimes::Relative, None),
        ] {
            assert_eq!(parsed(text), (access_times, synchronous), "{text}");
        }
    }

    #[test]
    fn every_listed_option_parses_and_is_in_the_help() {
        for name in NAMES {
            let value = match *name {
                "threads=" => "4",
                "layer=" => "null",
                "transport=" => "auto",
                "log=" => "/x",
                _ => "1s",
            };
            let word =
                if name.ends_with('=') { format!("{name}{value}") } else { (*name).to_owned() };
            assert!(parse(&word).is_ok(), "{word}");
            let name = name.trim_end_matches('=');
            assert!(HELP.contains(name), "{name} is not in the help");
        }
        let message = parse("kep").unwrap_err().to_string();
        assert!(message.contains("did you mean keep?"), "{message}");
    }

    #[test]
    fn time_options_accept_units() {
        let options = parse("attr_timeout=0,entry_timeout=1.5s,idle_timeout=10m").unwrap();
        assert_eq!(options.attr_timeout, Some(Duration::ZERO));
        assert_eq!(options.entry_timeout, Some(Duration::from_millis(1500)));
        assert_eq!(options.mount.idle_timeout, Some(Duration::from_secs(600)));
    }

    #[test]
    fn names_are_cached_longer_if_only_the_mount_changes_them() {
        let applied = |stack: &str, text| {
            let stack = Stack::parse(stack, FOREIGN).unwrap();
            let mut options = parse(text).unwrap();
            options.apply_to(&stack).map(|()| options.mount)
        };
        let day = Duration::from_secs(86_400);
        for (stack, text, validity) in [
            ("null / /x", "rw", VALIDITY),
            ("null / /x", "exclusive", day),
            ("zstd / /x", "exclusive", day),
            ("ext2:/x", "rw", day),
            ("ext2:/x", "sync", VALIDITY),
            ("null / ext2:/x", "rw", VALIDITY),
            ("zstd / ext2:/x", "rw", VALIDITY),
            ("/x", "exclusive,dirsync", VALIDITY),
            ("/x", "exclusive,keep", VALIDITY),
            ("fault:rules=unlink late EIO / /x", "exclusive", VALIDITY),
        ] {
            let mount = applied(stack, text).unwrap();
            let found = (mount.entry_timeout, mount.attr_timeout);
            assert_eq!(found, (validity, VALIDITY), "{stack}, {text}");
        }
        let mount = applied("ext2:/x", "attr_timeout=2s").unwrap();
        assert_eq!((mount.entry_timeout, mount.attr_timeout), (day, Duration::from_secs(2)));
        let message = applied("tier / /x", "exclusive").unwrap_err().to_string();
        assert!(message.contains("not possible with the layer 'tier'"), "{message}");
    }

    #[test]
    fn io_uring_is_preferred_only_if_the_kernel_reads_and_writes_lower_files() {
        let chosen = |stack: &str, text| {
            let stack = Stack::parse(stack, FOREIGN).unwrap();
            let mut options = parse(text).unwrap();
            options.apply_to(&stack).unwrap();
            options.mount.transport
        };
        let is_root = rustix::process::geteuid().is_root();
        let preferred = if is_root { TransportChoice::Auto } else { TransportChoice::Device };
        for (stack, text, expected) in [
            ("/x", "rw", preferred),
            ("null / /x", "transport=auto", preferred),
            ("stats:passthrough=on / null / /x", "rw", preferred),
            ("null / /x", "transport=device", TransportChoice::Device),
            ("null:passthrough=off / /x", "rw", TransportChoice::Device),
            ("stats / /x", "rw", TransportChoice::Device),
            ("zstd / /x", "rw", TransportChoice::Device),
            ("tier / /x", "rw", TransportChoice::Device),
            ("ext2:/x", "rw", TransportChoice::Device),
            ("null / /x", "keep", TransportChoice::Device),
            ("null / /x", "writeback", TransportChoice::Device),
            ("null / /x", "sync", TransportChoice::Device),
            ("null / /x", "threads=4", TransportChoice::Device),
            ("zstd / /x", "transport=uring", TransportChoice::Uring),
        ] {
            assert_eq!(chosen(stack, text), expected, "{stack}, {text}");
        }
    }

    #[test]
    fn invalid_mount_options_are_named_in_the_error() {
        for (text, part) in [
            ("read-only", "unknown mount option 'read-only'"),
            ("threads=0", "'0' is not a number"),
            ("idle_timeout=soon", "'soon' is not a time"),
            ("attr_timeout=-1s", "'-1s' is not a time"),
            ("layer=nil", "unknown layer 'nil'"),
            ("ro,strictatime", "mount option strictatime: not supported, because"),
            ("lazytime", "mount option lazytime: not supported, because"),
        ] {
            let message = format!("{:#}", parse(text).unwrap_err());
            assert!(message.contains(part), "{text}: {message}");
        }
        assert!(Options::parse(&["read-only".to_owned()], true).is_ok());
    }
}
