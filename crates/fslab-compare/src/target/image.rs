//! A file system on a loop device, on a block device or in memory, optionally with something
//! mounted over it.
//!
//! Instead of the kernel's driver, the host program's own engine may serve the file system. The
//! engine's allocation policy, set in the plan, then decides where data are placed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use fslab_sys::block_counters::DeviceNumber;
use fslab_sys::make_file_system::Kind;
use fslab_sys::mounts::{Mount, Unmounted};
use fslab_sys::tracepoint::Counter;

use super::fill::{fill, sync_file_system};
use super::foreign::{Commands, ForeignMount, line};
use super::image_file::Made;
use super::storage::Storage;
use super::{Remounted, Target, Workshop, requests};
use crate::error::{Error, Result};
use crate::plan::{Base, ImagePlan, Over};
use crate::tree::copy::copy_tree;
use crate::tree::{HostTree, Tree};
use fslab_report::sample::TargetRecord;

pub(super) fn make(
    name: &str,
    base: &ImagePlan,
    over: &Over,
    shop: Workshop<'_>,
) -> Result<(Box<dyn Target>, TargetRecord)> {
    let places = Places::make(shop.work_directory)?;
    let (storage, made) = Storage::make(base, shop)?.unzip();
    let made = made.unwrap_or_default();
    if let Over::Engine(options) = over {
        check_policy(base, options, &made)?;
    }
    let cover = places.cover(base, over, storage.as_ref(), shop);
    let mut target = Image {
        tree: None,
        requests: None,
        upper: None,
        lower: None,
        storage,
        base: base.clone(),
        image_size: shop.image_size,
        cover,
        places,
        notes: Vec::new(),
    };
    let filled = target.furnish()?;
    let record = TargetRecord {
        name: name.to_owned(),
        mkfs: target.storage.as_ref().map(|_| made.how),
        aged_workload: made.workload,
        copied_bytes: made.copied_bytes,
        filled_percent: filled,
        loop_direct_io: target.storage.as_ref().and_then(Storage::direct_io),
        ..target.record()
    };
    Ok((Box::new(target), record))
}

/// Fails if the image was aged under another policy than the requested one. Its layout would reveal
/// nothing about the requested policy.
fn check_policy(base: &ImagePlan, options: &str, made: &Made) -> Result<()> {
    let (Some(path), Some(found)) = (&base.recorded, &made.policy) else { return Ok(()) };
    let wanted = options.split('&').find_map(|pair| pair.strip_prefix("policy="));
    let is_other = |wanted: &str| found.split_whitespace().next() != Some(wanted);
    match wanted.filter(|wanted| is_other(wanted)) {
        None => Ok(()),
        Some(wanted) => Err(Error::Failed(format!(
            "{} was aged under the policy {found}, but `engine` requests {wanted}; recreate it \
             with `fslab age image make --policy {wanted}`",
            path.display()
        ))),
    }
}

/// An image target. Fields are dropped in this order, so that each is dropped before the fields
/// that it uses.
struct Image {
    tree: Option<HostTree>,
    requests: Option<Counter>,
    upper: Option<Upper>,
    lower: Option<Mount>,
    /// `None` for a file system in memory.
    storage: Option<Storage>,
    base: ImagePlan,
    image_size: u64,
    cover: Cover,
    places: Places,
    notes: Vec<String>,
}

/// The planned mount over the file system.
enum Cover {
    Nothing,
    Commands(Commands),
    /// The options of the overlay.
    Overlay(String),
    /// The engine, mounted in place of the file system.
    Engine {
        commands: Commands,
        options: String,
    },
}

/// An existing mount over the file system.
enum Upper {
    Foreign(ForeignMount),
    Overlay(Mount),
}

impl Image {
    /// Mounts the target for the first time and adds the files that the plan requires. Returns the
    /// filled share in per cent.
    fn furnish(&mut self) -> Result<Option<f64>> {
        self.mount_lower()?;
        let mut filled = None;
        if let Some(percent) = self.base.fill_percent {
            filled = Some(fill(&self.places.lower, percent)?);
        }
        let beneath = matches!(self.cover, Cover::Overlay(_));
        if beneath {
            self.places.make_overlay()?;
            self.copy_source(&self.places.overlay("lower"))?;
        }
        self.mount_upper()?;
        if !beneath {
            self.copy_source(self.root())?;
        }
        Ok(filled)
    }

    /// Copies the plan's source directory into the target. A read-only file system is skipped,
    /// because it was made from the source.
    fn copy_source(&self, to: &Path) -> Result<()> {
        let Some(source) = self.base.source.as_ref().filter(|_| !self.base.kind.is_read_only())
        else {
            return Ok(());
        };
        copy_tree(source, to)?;
        sync_file_system(to)?;
        self.sync_below()
    }

    fn mount_lower(&mut self) -> Result<()> {
        if matches!(self.cover, Cover::Engine { .. }) {
            return Ok(());
        }
        let (kind, lower, options) = (self.base.kind, &self.places.lower, self.options());
        let source = self.storage.as_ref().map_or(Path::new("tmpfs"), Storage::device_path);
        self.lower = Some(Mount::new(source, lower, kind.name(), &options)?);
        Ok(())
    }

    fn mount_upper(&mut self) -> Result<()> {
        let places = &self.places;
        match &self.cover {
            Cover::Nothing => {}
            Cover::Commands(commands) | Cover::Engine { commands, .. } => {
                let upper = ForeignMount::new(commands, &places.mountpoint, &places.messages)?;
                self.upper = Some(Upper::Foreign(upper));
                self.requests = requests::counter(&places.mountpoint, &places.work_directory);
            }
            Cover::Overlay(options) => {
                let options = places.overlay_options(options);
                let source = Path::new("overlay");
                let mount = Mount::new(source, &places.mountpoint, "overlay", &options)?;
                self.upper = Some(Upper::Overlay(mount));
            }
        }
        self.tree = Some(HostTree::open(self.root())?);
        Ok(())
    }

    /// Returns the directory that workloads use.
    fn root(&self) -> &Path {
        match self.cover {
            Cover::Nothing => &self.places.lower,
            _ => &self.places.mountpoint,
        }
    }

    /// Returns the mount options of the file system itself.
    fn options(&self) -> String {
        let size = format!("size={}", self.image_size);
        let own = match self.base.kind {
            Base::Memory => Some(size.as_str()),
            // Discarding would free blocks of the image. They would be allocated again during a
            // measurement.
            Base::Device(Kind::Btrfs) => Some("nodiscard"),
            kind => kind.is_read_only().then_some("ro"),
        };
        let given = Some(self.base.mount.as_str()).filter(|given| !given.is_empty());
        own.into_iter().chain(given).collect::<Vec<_>>().join(",")
    }

    fn unmount(&mut self) -> Result<()> {
        self.tree = None;
        self.requests = None;
        let lazily = |what: &str| format!("{what} was busy and was detached lazily");
        match self.upper.take() {
            None => {}
            Some(Upper::Foreign(upper)) => {
                self.notes.extend(upper.unmount(&self.places.messages)?);
            }
            Some(Upper::Overlay(upper)) => {
                let lazy = upper.unmount()? == Unmounted::Lazily;
                self.notes.extend(lazy.then(|| lazily("the overlay")));
            }
        }
        if let Some(lower) = self.lower.take()
            && lower.unmount()? == Unmounted::Lazily
        {
            self.notes.push(lazily("the lower file system"));
        }
        Ok(())
    }

    /// Returns a record of how the target is mounted.
    fn record(&self) -> TargetRecord {
        let kind = self.base.kind.name();
        let daemon = match &self.upper {
            Some(Upper::Foreign(upper)) => Some(upper.daemon().is_some()),
            _ => None,
        };
        let served = TargetRecord {
            requests_counted: daemon.map(|_| self.requests.is_some()),
            daemon_found: daemon,
            ..TargetRecord::default()
        };
        let over = match &self.cover {
            Cover::Engine { commands, options } => {
                let mount = Some(line(&commands.mount));
                let description = format!("{kind} mounted by fslab's ext2 engine, {options}");
                return TargetRecord { description, mount, ..served };
            }
            Cover::Nothing => None,
            Cover::Commands(commands) => Some(line(&commands.mount)),
            Cover::Overlay(options) => {
                Some(format!("mount -t overlay -o {}", self.places.overlay_options(options)))
            }
        };
        let on = over.as_ref().map(|over| format!(" under `{over}`")).unwrap_or_default();
        let device =
            self.base.device.as_ref().map(|device| format!(" on {}", device.path.display()));
        let device = device.unwrap_or_default();
        let number = self.device();
        let read = |file: &str| {
            let text = fs::read_to_string(number?.sysfs(file)).ok()?;
            Some(text.trim().to_owned())
        };
        let comma = if self.options().is_empty() { "" } else { "," };
        TargetRecord {
            description: format!("{kind}{device}{on}"),
            mount: Some(format!("mount -t {kind} -o nosuid,nodev{comma}{}", self.options())),
            over,
            read_ahead_kib: read("queue/read_ahead_kb").and_then(|text| text.parse().ok()),
            scheduler: read("queue/scheduler"),
            ..served
        }
    }
}

impl Target for Image {
    fn tree(&self) -> Result<&dyn Tree> {
        match &self.tree {
            Some(tree) => Ok(tree),
            None => Err(Error::file(self.root())(std::io::ErrorKind::NotConnected.into())),
        }
    }

    /// A file system in memory is not remounted; it would lose its files.
    fn remount(&mut self) -> Result<Option<Remounted>> {
        if self.storage.is_none() {
            return Ok(None);
        }
        self.unmount()?;
        let device_pages = self.storage.as_ref().map(Storage::drop_caches).transpose()?.flatten();
        self.mount_lower()?;
        self.mount_upper()?;
        Ok(Some(Remounted { evicted: false, device_pages }))
    }

    fn device(&self) -> Option<DeviceNumber> {
        self.storage.as_ref().map(Storage::device_number)
    }

    fn daemon(&self) -> Option<u32> {
        match &self.upper {
            Some(Upper::Foreign(upper)) => upper.daemon(),
            _ => None,
        }
    }

    fn sync_below(&self) -> Result<()> {
        if self.upper.is_none() {
            return Ok(());
        }
        if !matches!(self.cover, Cover::Engine { .. }) {
            return sync_file_system(&self.places.lower);
        }
        // The kernel sends no syncfs to a file system in user space. An fsync of its root makes the
        // engine write back its data; then the device is synced.
        sync_file_system(self.root())?;
        for path in [self.root()].into_iter().chain(self.storage.as_ref().map(Storage::device_path))
        {
            File::open(path).and_then(|file| file.sync_all()).map_err(Error::file(path))?;
        }
        Ok(())
    }

    fn fuse_requests(&self) -> Result<Option<BTreeMap<String, u64>>> {
        let counts = self.requests.as_ref().map(Counter::counts).transpose();
        counts.map_err(Error::file(Path::new(requests::TRACEPOINT)))
    }

    fn used_bytes(&self) -> Result<Option<u64>> {
        let is_engine = matches!(self.cover, Cover::Engine { .. });
        let own = if is_engine { self.root() } else { &self.places.lower };
        let stat = rustix::fs::statvfs(own).map_err(|errno| Error::file(own)(errno.into()))?;
        Ok(Some(stat.f_blocks.saturating_sub(stat.f_bfree) * stat.f_frsize))
    }

    fn tear_down(mut self: Box<Self>) -> Result<Vec<String>> {
        self.unmount()?;
        self.storage.take().map_or(Ok(()), Storage::end)?;
        Ok(std::mem::take(&mut self.notes))
    }
}

/// The paths that a target uses in the work directory. They are the same for all targets, because
/// only one exists at a time.
struct Places {
    work_directory: PathBuf,
    lower: PathBuf,
    mountpoint: PathBuf,
    messages: PathBuf,
}

impl Places {
    fn make(work_directory: &Path) -> Result<Self> {
        let place = |name: &str| work_directory.join(name);
        let places = Self {
            work_directory: work_directory.to_owned(),
            lower: place("lower"),
            mountpoint: place("mountpoint"),
            messages: place("messages"),
        };
        for directory in [&places.lower, &places.mountpoint] {
            fs::create_dir_all(directory).map_err(Error::file(directory))?;
        }
        Ok(places)
    }

    /// Returns the path of one of the overlay's directories, which are on the lower file system.
    fn overlay(&self, name: &str) -> PathBuf {
        self.lower.join(name)
    }

    fn make_overlay(&self) -> Result<()> {
        for name in ["lower", "upper", "work"] {
            let directory = self.overlay(name);
            fs::create_dir_all(&directory).map_err(Error::file(&directory))?;
        }
        Ok(())
    }

    fn overlay_options(&self, more: &str) -> String {
        let directory = |name: &str| self.overlay(name).display().to_string();
        let comma = if more.is_empty() { "" } else { "," };
        format!(
            "lowerdir={},upperdir={},workdir={}{comma}{more}",
            directory("lower"),
            directory("upper"),
            directory("work")
        )
    }

    fn mount_command(&self, layers: &[String], lower: &Path, shop: Workshop<'_>) -> Commands {
        let mount = shop.host.mount_command(layers, lower, &self.mountpoint);
        Commands { mount, unmount: None }
    }

    fn cover(
        &self,
        base: &ImagePlan,
        over: &Over,
        storage: Option<&Storage>,
        shop: Workshop<'_>,
    ) -> Cover {
        match over {
            Over::Nothing => Cover::Nothing,
            Over::Layers(layers) => Cover::Commands(self.mount_command(layers, &self.lower, shop)),
            Over::Command(command) => Cover::Commands(Commands {
                mount: self.fill_in(&command.mount, shop),
                unmount: command.unmount.as_deref().map(|words| self.fill_in(words, shop)),
            }),
            Over::Overlay(options) => Cover::Overlay(options.clone()),
            Over::Engine(options) => {
                let device = storage.map_or(Path::new("tmpfs"), Storage::device_path);
                let source = format!("{}:{}?{options}", base.kind.name(), device.display());
                let commands = self.mount_command(&[], source.as_ref(), shop);
                Cover::Engine { commands, options: options.clone() }
            }
        }
    }

    fn fill_in(&self, words: &[String], shop: Workshop<'_>) -> Vec<OsString> {
        let (lower, mountpoint) = (self.lower.to_string_lossy(), self.mountpoint.to_string_lossy());
        let program = shop.host.program().unwrap_or_else(|| "fslab".into());
        let fill = |word: &String| {
            let word = word.replace("{lower}", &lower).replace("{mountpoint}", &mountpoint);
            word.replace("{fslab}", &program.to_string_lossy()).into()
        };
        words.iter().map(fill).collect()
    }
}
