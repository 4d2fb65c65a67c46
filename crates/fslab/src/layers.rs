//! The layers that are not in fslab-layers, and the code that connects the tiering engine to
//! stacks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use fslab_layers::{
    ForeignError, LayerChoice, LayerKind, LayerSpec, Leaf, Measure, OptionSpec, Options,
    RandomSource, Report, Reporter, Service, Stability, ValueKind,
};
use fslab_tier::archive::{ArchiveKindSpec, Usage};
use fslab_tier::command::{self, Command, Event};
use fslab_tier::home::Home;
use fslab_tier::queue::{Fifo, Sweep};
use fslab_tier::stored::Marks;
use fslab_tier::{
    Calendar, Environment, Id, Identities, Settings, Tier, TierFs, closed_root,
    inode_by_number_and_birth,
};
use fslab_vfs::{
    Cancellation, Errno, FileSystem, HostFs, HostOptions, LockMode, Request, Timestamp,
};

use crate::exit::Code;
use crate::programs::Running;

/// The layers of fslab-sca and the tiering layer.
pub const FOREIGN: &[LayerSpec] =
    &[fslab_sca::COPY, fslab_sca::UUENCODE, fslab_sca::GZIP, fslab_sca::ZSTD, fslab_sca::LZ4, TIER];

/// The kinds of archives that are not in fslab-tier.
pub const FOREIGN_ARCHIVES: &[&ArchiveKindSpec] = &[&fslab_s3::SPEC];

const TIER: LayerSpec = LayerSpec {
    name: "tier",
    help: "archives files, and recalls offline files when they are used",
    kind: LayerKind::Grounded,
    stability: Stability::Experimental,
    options: &[
        OptionSpec {
            name: "home",
            help: "the tier's home; empty for the one that is recorded in the tree",
            default: "",
            value: ValueKind::Path,
        },
        OptionSpec {
            name: "key",
            help: "the key file of encrypted archives; empty for the key files that the home lists",
            default: "",
            value: ValueKind::Path,
        },
        OptionSpec {
            name: "wait",
            help: "how long a program waits for a recall; 0s for no limit",
            default: "0s",
            value: ValueKind::Duration,
        },
        OptionSpec {
            name: "late",
            help: "the error that a program gets when `wait` has passed",
            default: "EAGAIN",
            value: ValueKind::Choice(&["EAGAIN", "EIO"]),
        },
        OptionSpec {
            name: "uploads",
            help: "maximum number of bundles and large files that a command or the policy uploads \
                   at the same time",
            default: "32",
            value: ValueKind::Count { least: 1, most: 64 },
        },
        OptionSpec {
            name: "movers",
            help: "maximum number of blocks that are recalled at the same time",
            default: "16",
            value: ValueKind::Count { least: 1, most: 64 },
        },
        OptionSpec {
            name: "call-limit",
            help: "time limit for a call to an archive, plus a second for each MiB. After this \
                   time, the archive is unavailable until it replies; 0s for no limit",
            default: "60s",
            value: ValueKind::Duration,
        },
        OptionSpec {
            name: "ahead",
            help: "number of 1 MiB blocks that are recalled ahead of a program that reads \
                   sequentially",
            default: "4",
            value: ValueKind::Count { least: 0, most: 1024 },
        },
        OptionSpec {
            name: "order",
            help: "order of a user's recalls: by the time of the request, or by position in the \
                   archive",
            default: "fifo",
            value: ValueKind::Choice(&["fifo", "position"]),
        },
        OptionSpec {
            name: "archive-rate",
            help: "maximum bytes per second that archiving writes and reads back; 0 for no limit",
            default: "0",
            value: ValueKind::Bytes { least: 0, most: u64::MAX },
        },
        OptionSpec {
            name: "recall-rate",
            help: "maximum bytes per second that recalls read; waiting programs come first; 0 for \
                   no limit",
            default: "0",
            value: ValueKind::Bytes { least: 0, most: u64::MAX },
        },
        OptionSpec {
            name: "every",
            help: "how often the mount runs the tier's policy, archives the tree's names and \
                   expires old versions; 0s for never",
            default: "0s",
            value: ValueKind::Duration,
        },
    ],
    build,
};

fn build(
    inner: Arc<dyn FileSystem>,
    options: &Options,
    context: &fslab_layers::StackContext,
) -> fslab_layers::Result<Arc<dyn FileSystem>> {
    let tier = open(inner, options, context);
    let tier = tier.map_err(|error| fslab_layers::Error::ForeignLayer {
        layer: TIER.name,
        source: ForeignError::from(error),
    })?;
    context.offer(Arc::new(TierService(Arc::clone(&tier))));
    context.publish(Arc::new(TierReporter(Arc::clone(&tier))));
    Ok(Arc::new(TierFs::new(tier)))
}

fn open(
    inner: Arc<dyn FileSystem>,
    options: &Options,
    context: &fslab_layers::StackContext,
) -> fslab_tier::Result<Arc<Tier>> {
    let home = match options.path("home") {
        Some(path) => path.to_owned(),
        None => home_of(&*inner)?,
    };
    let mut home = Home::read(&home)?;
    home.key = options.path("key").map(Path::to_owned);
    let (wait, call_limit) = (options.duration("wait"), options.duration("call-limit"));
    let read_only = context.leaf_options().read_only;
    // An earlier daemon may have set mode 0400 on the root after this daemon's first check.
    if !read_only {
        let opened = closed_root::open_to_owner(&*inner, Marks::of_this_process());
        opened.map_err(|error| {
            refused(format!("can't give the owner access to the tree's root directory: {error}"))
        })?;
    }
    let settings = Settings {
        read_only,
        call_limit: if call_limit.is_zero() { Duration::MAX } else { call_limit },
        patience: (!wait.is_zero()).then_some(wait),
        late: if options.choice("late") == "EIO" { Errno::IO } else { Errno::AGAIN },
        deny: home.deny(Arc::new(Running))?,
        uploads: usize::try_from(options.number("uploads")).unwrap_or(1),
        movers: usize::try_from(options.number("movers")).unwrap_or(1),
        ahead: options.number("ahead"),
        order: match options.choice("order") {
            "position" => Arc::new(Sweep),
            _ => Arc::new(Fifo),
        },
        archive_rate: options.number("archive-rate"),
        recall_rate: options.number("recall-rate"),
        ..home.settings()
    };
    if let Some(inherited) = &context.leaf_options().inherited {
        // The earlier daemon passed on its open files. Close the locked ones here, because
        // `home.open` opens and locks them again.
        for path in home.locked_files() {
            let closed = inherited.close_file(&path);
            closed.map_err(|error| refused(format!("{}: {error}", path.display())))?;
        }
    }
    let tier = home.open(inner, settings, around(context))?;
    let every = options.duration("every");
    if !every.is_zero() && !read_only {
        tier.start_maintenance(every)?;
    }
    Ok(tier)
}

/// Returns the path of the home that is recorded in a tree.
///
/// # Errors
/// Fails if the tree does not belong to a tier.
pub fn home_of(tree: &dyn FileSystem) -> fslab_tier::Result<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let mark = Marks::of_this_process().read_tree(tree);
    let mark =
        mark.map_err(|error| refused(format!("can't read the tier of the tree: {error}")))?;
    let mark = mark.ok_or_else(|| {
        refused("the tree does not belong to a tier; make a tier with `fslab tier init`".to_owned())
    })?;
    Ok(std::ffi::OsString::from_vec(mark.home).into())
}

fn refused(what: String) -> fslab_tier::Error {
    fslab_tier::Error::Refused { what }
}

/// Returns the tree if it belongs to an ordinary user's tier. While no engine uses such a tree, its
/// root has mode 0400, so not even the owner can enter it.
pub fn owners_tree<'a>(layers: &[LayerChoice], leaf: &'a Leaf) -> Option<&'a Path> {
    let is_tier = |layer: &LayerChoice| layer.spec().name == TIER.name;
    let is_owners = Marks::of_this_process() != Marks::Trusted && layers.iter().any(is_tier);
    leaf.directory().filter(|_| is_owners).map(PathBuf::as_path)
}

/// Restores the owner's access to the root of an ordinary user's tree, which a mount needs.
///
/// # Errors
/// Fails if the root has mode 0400 and the mount is read-only, or if the mode can't be changed.
pub fn open_owners_tree(tree: &Path, read_only: bool) -> anyhow::Result<()> {
    // If the directory can't be opened, later checks of the mount report it.
    let Ok(root) = HostFs::open(tree, &HostOptions::default()) else { return Ok(()) };
    let (marks, shown) = (Marks::of_this_process(), tree.display());
    if read_only && closed_root::is_closed_to_owner(&root, marks).unwrap_or(false) {
        bail_as!(
            BadInput,
            "{shown} has mode 0400 since its tier was shut down. A read-only mount can't change \
             the mode; mount it without -o ro, or run `chmod u+rwx {shown}` first"
        );
    }
    let opened = closed_root::open_to_owner(&root, marks);
    opened.with_context(|| format!("can't give the owner access to {shown}"))
}

/// Sets the root of an ordinary user's tree to mode 0400 again, unless an engine uses the tree.
pub fn close_owners_tree(tree: &Path) {
    let marks = Marks::of_this_process();
    let close = || -> fslab_vfs::Result<()> {
        let root = HostFs::open(tree, &HostOptions::default())?;
        if marks == Marks::Trusted || marks.read_mode(&root)?.is_none() {
            return Ok(());
        }
        match root.lock_tree(LockMode::Shared) {
            // The program that uses the tree sets the mode when it ends.
            Err(error) if error.errno() == Errno::BUSY => Ok(()),
            claimed => claimed.and_then(|()| closed_root::close_to_owner(&root, marks)),
        }
    };
    if let Err(error) = close() {
        let tree = tree.display();
        tracing::warn!(
            "can't set mode 0400 on {tree}, so its owner can enter it without the mount: {error}"
        );
    }
}

/// Returns the services that the tiering engine needs, such as clocks and random numbers.
pub fn around(context: &fslab_layers::StackContext) -> Environment {
    Environment {
        clock: context.clock(),
        calendar: Arc::new(SystemCalendar),
        identities: Arc::new(Drawn(context.draws())),
        inode_identity: inode_by_number_and_birth,
        marks: Marks::of_this_process(),
    }
}

struct SystemCalendar;

impl Calendar for SystemCalendar {
    fn now(&self) -> Timestamp {
        Timestamp::from(SystemTime::now())
    }
}

struct Drawn(Arc<dyn RandomSource>);

impl Identities for Drawn {
    fn make(&self) -> Id {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.0.draw().to_le_bytes());
        id[8..].copy_from_slice(&self.0.draw().to_le_bytes());
        Id(id)
    }
}

/// Executes users' commands on a mounted tier.
struct TierService(Arc<Tier>);

impl Service for TierService {
    fn name(&self) -> &'static str {
        "tier"
    }

    fn serve(&self, question: &str, is_gone: &Arc<AtomicBool>, tell: &mut dyn FnMut(&str) -> bool) {
        let mut say = |event: Event| match serde_json::to_string(&event) {
            Ok(line) => tell(&line),
            Err(_) => false,
        };
        let asked = serde_json::from_str::<Command>(question);
        let ended = match asked {
            Ok(command) => {
                let request = cancelled_with(is_gone);
                ended(command::execute(&self.0, &command, &request.0, &mut say))
            }
            Err(error) => {
                let error = Some(format!("the daemon does not understand the command: {error}"));
                Event::End { error, code: Code::Failure as u8 }
            }
        };
        say(ended);
    }
}

/// Converts the result of a command to its last event.
pub fn ended(done: fslab_tier::Result<()>) -> Event {
    match done.map_err(anyhow::Error::new) {
        Ok(()) => Event::End { error: None, code: Code::Success as u8 },
        Err(error) => Event::End { code: Code::of(&error) as u8, error: Some(error.to_string()) },
    }
}

/// Returns a request that is cancelled once `is_gone` is set. A thread polls this flag until the
/// returned `Arc` is dropped.
fn cancelled_with(is_gone: &Arc<AtomicBool>) -> (Request, Arc<()>) {
    const LOOK_EVERY: Duration = Duration::from_millis(10);
    let (cancelled, alive) = (Arc::new(AtomicU64::new(0)), Arc::new(()));
    let cancellation = Cancellation::new(Arc::clone(&cancelled), 1);
    let (is_gone, watched) = (Arc::clone(is_gone), Arc::downgrade(&alive));
    let watch = move || {
        while watched.strong_count() > 0 && !is_gone.load(Ordering::SeqCst) {
            std::thread::sleep(LOOK_EVERY);
        }
        cancelled.store(1, Ordering::SeqCst);
    };
    let thread = std::thread::Builder::new().name("fslab-asker".to_owned());
    if let Err(error) = thread.spawn(watch) {
        tracing::warn!(%error, "can't start a thread, so the command can't be interrupted");
    }
    (Request { cancellation, ..Request::default() }, alive)
}

struct TierReporter(Arc<Tier>);

impl Reporter for TierReporter {
    fn report(&self) -> Report {
        let counts = self.0.counts();
        let counters =
            counts.iter().map(|(name, help, value)| Measure::counter(name, help, *value));
        let traffic = self.0.traffic();
        let traffic = traffic.iter().flat_map(|(id, address, usage)| {
            traffic_of(usage).map(|(name, help, value)| {
                let labels = [("archive", id.to_string()), ("address", address.clone())];
                Measure::counter(name, help, value).with_labels(labels)
            })
        });
        let mut traffic: Vec<_> = traffic.collect();
        // In Prometheus's format, the samples of a metric are adjacent.
        traffic.sort_by(|one, other| one.name.cmp(&other.name));
        let (gauges, notes) = match self.0.gauges() {
            Ok(gauges) => (gauges, Vec::new()),
            Err(error) => (Vec::new(), vec![format!("can't read the state of the tier: {error}")]),
        };
        let gauges = gauges.iter().map(|(name, help, value)| Measure::gauge(name, help, *value));
        let measures = counters.chain(traffic).chain(gauges).collect();
        Report { measures, notes, ..Report::default() }
    }
}

/// Returns name, meaning and value of each counter of an archive.
fn traffic_of(usage: &Usage) -> [(&'static str, &'static str, u64); 7] {
    let Usage { traffic, retries, .. } = *usage;
    [
        (
            "tier_archive_put_requests",
            "requests that write to an archive, for each archive",
            traffic.put_requests,
        ),
        ("tier_archive_get_requests", "requests that read from an archive", traffic.get_requests),
        ("tier_archive_list_requests", "requests that list an archive", traffic.list_requests),
        (
            "tier_archive_delete_requests",
            "requests that delete from an archive",
            traffic.delete_requests,
        ),
        ("tier_archive_retries", "requests to an archive that repeated a failed one", retries),
        ("tier_archive_sent_bytes", "bytes sent to an archive", traffic.sent_bytes),
        ("tier_archive_received_bytes", "bytes received from an archive", traffic.received_bytes),
    ]
}
