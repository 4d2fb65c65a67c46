//! A file system on a fresh sparse image, attached to a loop device, and perhaps something in
//! user space mounted over it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use fslab_sys::block_counters::DeviceNumber;
use fslab_sys::loop_device::{self, LoopDevice};
use fslab_sys::make_file_system::make as make_file_system;
use fslab_sys::mounts::{Mount, Unmounted};
use fslab_sys::residency;
use rustix::fs::{Mode, OFlags};

use super::foreign::{Commands, ForeignMount, line};
use super::requests::Requests;
use super::work_directory::check_space;
use super::{Remounted, Target, Workshop};
use crate::error::{Error, Result};
use crate::plan::{ImagePlan, Over};
use crate::sample::TargetRecord;
use crate::tree::{HostTree, Tree};

pub(super) fn make(
    name: &str,
    base: &ImagePlan,
    over: &Over,
    shop: Workshop<'_>,
) -> Result<(Box<dyn Target>, TargetRecord)> {
    check_space(shop.work_directory, shop.image_size)?;
    let places = Places::make(shop.work_directory)?;
    let image = ImageFile::create(&places.image, shop.image_size)?;
    let device = LoopDevice::attach(&places.image, loop_device::Options::default())?;
    let mkfs = make_file_system(base.kind, device.path(), &base.mkfs)?;
    let commands = places.commands(over, shop);
    let mut target = Image {
        tree: None,
        requests: None,
        upper: None,
        lower: None,
        device,
        image,
        base: base.clone(),
        commands,
        places,
        notes: Vec::new(),
    };
    target.mount()?;
    let record = target.record(name, mkfs);
    Ok((Box::new(target), record))
}

/// Fields are dropped in this order: users before what they use.
struct Image {
    tree: Option<HostTree>,
    requests: Option<Requests>,
    upper: Option<ForeignMount>,
    lower: Option<Mount>,
    device: LoopDevice,
    image: ImageFile,
    base: ImagePlan,
    commands: Option<Commands>,
    places: Places,
    notes: Vec<String>,
}

impl Image {
    fn mount(&mut self) -> Result<()> {
        let (kind, places) = (self.base.kind, &self.places);
        let mount = Mount::new(self.device.path(), &places.lower, kind.name(), &self.base.mount)?;
        self.lower = Some(mount);
        let mut root = &places.lower;
        if let Some(commands) = &self.commands {
            let upper = ForeignMount::new(commands, &places.mountpoint, &places.messages)?;
            self.upper = Some(upper);
            root = &places.mountpoint;
            self.requests = Requests::of(root, &places.work_directory);
        }
        self.tree = Some(HostTree::open(root)?);
        Ok(())
    }

    fn unmount(&mut self) -> Result<()> {
        self.tree = None;
        self.requests = None;
        if let Some(upper) = self.upper.take() {
            self.notes.extend(upper.unmount(&self.places.messages)?);
        }
        if let Some(lower) = self.lower.take()
            && lower.unmount()? == Unmounted::Lazily
        {
            self.notes.push("the lower file system was busy and was detached lazily".to_owned());
        }
        Ok(())
    }

    fn record(&self, name: &str, mkfs: String) -> TargetRecord {
        let (base, number) = (&self.base, self.device.device_number());
        let comma = if base.mount.is_empty() { "" } else { "," };
        let options = format!("nosuid,nodev{comma}{}", base.mount);
        let over = self.commands.as_ref().map(|commands| line(&commands.mount));
        let on = over.as_ref().map(|over| format!(" under `{over}`")).unwrap_or_default();
        let read = |file: &str| {
            fs::read_to_string(number.sysfs(file)).ok().map(|text| text.trim().to_owned())
        };
        TargetRecord {
            name: name.to_owned(),
            description: format!("{}{on}", base.kind),
            mkfs: Some(mkfs),
            mount: Some(format!("mount -t {} -o {options}", base.kind)),
            over,
            loop_direct_io: Some(self.device.direct_io()),
            read_ahead_kib: read("queue/read_ahead_kb").and_then(|text| text.parse().ok()),
            scheduler: read("queue/scheduler"),
            requests_counted: self.upper.as_ref().map(|_| self.requests.is_some()),
            daemon_found: self.upper.as_ref().map(|upper| upper.daemon().is_some()),
            in_process: false,
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

    fn remount(&mut self) -> Result<Option<Remounted>> {
        self.unmount()?;
        let failed = |errno: rustix::io::Errno| Error::file(self.device.path())(errno.into());
        self.device.flush_buffers().map_err(failed)?;
        self.image.drop_cache()?;
        let cached = residency::cachestat(self.device.file().as_fd());
        let remounted = Remounted { device_pages: cached.ok().map(|found| found.cached) };
        self.mount()?;
        Ok(Some(remounted))
    }

    fn device(&self) -> Option<DeviceNumber> {
        Some(self.device.device_number())
    }

    fn daemon(&self) -> Option<u32> {
        self.upper.as_ref().and_then(ForeignMount::daemon)
    }

    fn sync_below(&self) -> Result<()> {
        if self.upper.is_none() {
            return Ok(());
        }
        let failed = |errno: rustix::io::Errno| Error::file(&self.places.lower)(errno.into());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let lower = rustix::fs::open(&self.places.lower, flags, Mode::empty()).map_err(failed)?;
        rustix::fs::syncfs(lower).map_err(failed)
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
        Ok(std::mem::take(&mut self.notes))
    }
}

/// Where the parts of the one target that exists at a time lie.
struct Places {
    work_directory: PathBuf,
    image: PathBuf,
    lower: PathBuf,
    mountpoint: PathBuf,
    messages: PathBuf,
}

impl Places {
    fn make(work_directory: &Path) -> Result<Self> {
        let place = |name: &str| work_directory.join(name);
        let places = Self {
            work_directory: work_directory.to_owned(),
            image: place("image"),
            lower: place("lower"),
            mountpoint: place("mountpoint"),
            messages: place("messages"),
        };
        for directory in [&places.lower, &places.mountpoint] {
            fs::create_dir_all(directory).map_err(Error::file(directory))?;
        }
        Ok(places)
    }

    fn commands(&self, over: &Over, shop: Workshop<'_>) -> Option<Commands> {
        match over {
            Over::Nothing => None,
            Over::Layers(layers) => Some(Commands {
                mount: shop.host.mount_command(layers, &self.lower, &self.mountpoint),
                unmount: None,
            }),
            Over::Command(command) => Some(Commands {
                mount: self.fill_in(&command.mount),
                unmount: command.unmount.as_deref().map(|words| self.fill_in(words)),
            }),
        }
    }

    fn fill_in(&self, words: &[String]) -> Vec<OsString> {
        let (lower, mountpoint) = (self.lower.to_string_lossy(), self.mountpoint.to_string_lossy());
        let fill = |word: &String| {
            word.replace("{lower}", &lower).replace("{mountpoint}", &mountpoint).into()
        };
        words.iter().map(fill).collect()
    }
}

/// The image; removed when dropped.
struct ImageFile {
    path: PathBuf,
    file: File,
}

impl ImageFile {
    fn create(path: &Path, size: u64) -> Result<Self> {
        let file = File::create(path).map_err(Error::file(path))?;
        let image = Self { path: path.to_owned(), file };
        image.file.set_len(size).map_err(Error::file(path))?;
        Ok(image)
    }

    /// Drops what the page cache holds of the image itself, which is all of it where the loop
    /// device has no direct I/O.
    fn drop_cache(&self) -> Result<()> {
        let failed = |errno: rustix::io::Errno| Error::file(&self.path)(errno.into());
        rustix::fs::fdatasync(&self.file).map_err(failed)?;
        rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed).map_err(failed)
    }
}

impl Drop for ImageFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!("removing {}: {error}", self.path.display());
        }
    }
}
