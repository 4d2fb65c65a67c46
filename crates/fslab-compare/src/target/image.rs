//! A file system on an image attached to a loop device, or in memory, and perhaps
//! something mounted over it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use fslab_sys::block_counters::DeviceNumber;
use fslab_sys::make_file_system::Kind;
use fslab_sys::mounts::{Mount, Unmounted};

use super::fill::{fill, sync_file_system};
use super::foreign::{Commands, ForeignMount, line};
use super::requests::Requests;
use super::storage::Storage;
use super::{Remounted, Target, Workshop};
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
    let storage = Storage::make(base, shop)?;
    let (storage, made) = storage.unzip();
    let cover = places.cover(over, shop);
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
    let (how, aged_workload) = made.map_or((None, None), |made| (Some(made.how), made.workload));
    let mut record = target.record(name, how);
    record.aged_workload = aged_workload;
    record.filled_percent = filled;
    Ok((Box::new(target), record))
}

/// Fields are dropped in this order: users before what they use.
struct Image {
    tree: Option<HostTree>,
    requests: Option<Requests>,
    upper: Option<Upper>,
    lower: Option<Mount>,
    /// `None` in memory.
    storage: Option<Storage>,
    base: ImagePlan,
    image_size: u64,
    cover: Cover,
    places: Places,
    notes: Vec<String>,
}

/// What is to be mounted over the file system.
enum Cover {
    Nothing,
    Commands(Commands),
    /// The options of the overlay.
    Overlay(String),
}

/// What is mounted over it.
enum Upper {
    Foreign(ForeignMount),
    Overlay(Mount),
}

impl Image {
    /// Mounts it for the first time and puts into it what the plan wants there. Answers the
    /// share that is filled.
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

    /// Copies the source, which read-only file systems were made from already.
    fn copy_source(&self, to: &Path) -> Result<()> {
        let Some(source) = self.base.source.as_ref().filter(|_| !self.base.kind.is_read_only())
        else {
            return Ok(());
        };
        copy_tree(source, to)?;
        sync_file_system(to)?;
        self.sync_below()
    }

    fn mount(&mut self) -> Result<()> {
        self.mount_lower()?;
        self.mount_upper()
    }

    fn mount_lower(&mut self) -> Result<()> {
        let (kind, lower, options) = (self.base.kind, &self.places.lower, self.options());
        let source = self.storage.as_ref().map_or(Path::new("tmpfs"), Storage::device_path);
        self.lower = Some(Mount::new(source, lower, kind.name(), &options)?);
        Ok(())
    }

    fn mount_upper(&mut self) -> Result<()> {
        let places = &self.places;
        match &self.cover {
            Cover::Nothing => {}
            Cover::Commands(commands) => {
                let upper = ForeignMount::new(commands, &places.mountpoint, &places.messages)?;
                self.upper = Some(Upper::Foreign(upper));
                self.requests = Requests::of(&places.mountpoint, &places.work_directory);
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

    /// Where workloads work.
    fn root(&self) -> &Path {
        match self.cover {
            Cover::Nothing => &self.places.lower,
            Cover::Commands(_) | Cover::Overlay(_) => &self.places.mountpoint,
        }
    }

    /// Mount options of the file system itself.
    fn options(&self) -> String {
        let size = format!("size={}", self.image_size);
        let own = match self.base.kind {
            Base::Memory => Some(size.as_str()),
            // Discarding would give blocks of the image back, to be allocated again while measured.
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

    fn record(&self, name: &str, mkfs: Option<String>) -> TargetRecord {
        let kind = self.base.kind.name();
        let over = match &self.cover {
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
        let options: Vec<String> = ["nosuid,nodev".to_owned(), self.options()]
            .into_iter()
            .filter(|options| !options.is_empty())
            .collect();
        let daemon = match &self.upper {
            Some(Upper::Foreign(upper)) => Some(upper.daemon().is_some()),
            _ => None,
        };
        TargetRecord {
            name: name.to_owned(),
            description: format!("{kind}{device}{on}"),
            mkfs,
            mount: Some(format!("mount -t {kind} -o {}", options.join(","))),
            over,
            loop_direct_io: self.storage.as_ref().and_then(Storage::direct_io),
            read_ahead_kib: read("queue/read_ahead_kb").and_then(|text| text.parse().ok()),
            scheduler: read("queue/scheduler"),
            requests_counted: daemon.map(|_| self.requests.is_some()),
            daemon_found: daemon,
            ..TargetRecord::default()
        }
    }
}

impl Target for Image {
    fn tree(&self) -> Result<&dyn Tree> {
        match &self.tree {
            Some(tree) => Ok(tree),
            None => Err(Error::file(&self.places.lower)(std::io::ErrorKind::NotConnected.into())),
        }
    }

    /// A file system in memory would lose its files by this.
    fn remount(&mut self) -> Result<Option<Remounted>> {
        if self.storage.is_none() {
            return Ok(None);
        }
        self.unmount()?;
        let device_pages = self.storage.as_ref().map(Storage::drop_caches).transpose()?.flatten();
        self.mount()?;
        Ok(Some(Remounted { device_pages }))
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
        sync_file_system(&self.places.lower)
    }

    fn fuse_requests(&self) -> Result<Option<u64>> {
        self.requests.as_ref().map(Requests::count).transpose()
    }

    fn used_bytes(&self) -> Result<Option<u64>> {
        let lower = &self.places.lower;
        let stat = rustix::fs::statvfs(lower).map_err(|errno| Error::file(lower)(errno.into()))?;
        Ok(Some(stat.f_blocks.saturating_sub(stat.f_bfree) * stat.f_frsize))
    }

    fn tear_down(mut self: Box<Self>) -> Result<Vec<String>> {
        self.unmount()?;
        self.storage.take().map_or(Ok(()), Storage::end)?;
        Ok(std::mem::take(&mut self.notes))
    }
}

/// Where the parts of the one target that exists at a time lie.
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

    /// A directory of the overlay, on the file system below.
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

    fn cover(&self, over: &Over, shop: Workshop<'_>) -> Cover {
        match over {
            Over::Nothing => Cover::Nothing,
            Over::Layers(layers) => Cover::Commands(Commands {
                mount: shop.host.mount_command(layers, &self.lower, &self.mountpoint),
                unmount: None,
            }),
            Over::Command(command) => Cover::Commands(Commands {
                mount: self.fill_in(&command.mount, shop),
                unmount: command.unmount.as_deref().map(|words| self.fill_in(words, shop)),
            }),
            Over::Overlay(options) => Cover::Overlay(options.clone()),
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
