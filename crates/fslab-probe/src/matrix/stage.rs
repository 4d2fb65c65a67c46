//! Makes and mounts the file system of one cell of the matrix, and the mount over it.

use std::cell::RefCell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use fslab_sys::loop_device::{self, LoopDevice};
use fslab_sys::make_file_system::{self, Kind};
use fslab_sys::mounts::Mount;
use tempfile::TempDir;

use super::{Base, Cell, Top};
use fslab_compare::{Commands, Error, ForeignMount, Host, Result};

/// Size of images in bytes: large enough for every file system (XFS needs 300 MB) and the prober's
/// files.
const IMAGE_SIZE: u64 = 1 << 30;

/// A mounted cell. Fields are dropped in this order: users before the resources they use.
#[derive(Debug)]
pub(crate) struct Stage {
    top: Option<Upper>,
    lower: RefCell<Option<Mount>>,
    device: Option<LoopDevice>,
    kind: Option<Kind>,
    options: &'static str,
    directory: TempDir,
}

/// The mount over the file system.
#[derive(Debug)]
enum Upper {
    Overlay(#[expect(dead_code, reason = "it is unmounted when this value is dropped")] Mount),
    Foreign(
        #[expect(dead_code, reason = "it is unmounted when this value is dropped")] ForeignMount,
    ),
}

impl Stage {
    /// Makes the file system of a cell in `work_directory`, mounts it, and then makes the mount
    /// over it.
    pub fn make(cell: &Cell, work_directory: &Path, host: &dyn Host) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("fslab-probe-")
            .tempdir_in(work_directory)
            .map_err(Error::file(work_directory))?;
        let mut stage = Self {
            top: None,
            lower: RefCell::new(None),
            device: None,
            kind: None,
            options: cell.mount_options,
            directory,
        };
        for name in ["lower", "upper"] {
            let path = stage.directory.path().join(name);
            fs::create_dir(&path).map_err(Error::file(&path))?;
        }
        stage.make_base(cell)?;
        stage.put_over(cell, host)?;
        Ok(stage)
    }

    /// Returns the directory to probe.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join(if self.top.is_some() { "upper" } else { "lower" })
    }

    /// Returns the path of the image, if the file system is on one.
    pub fn image(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    /// Returns the mount point of the file system itself.
    pub fn lower(&self) -> PathBuf {
        self.directory.path().join("lower")
    }

    fn make_base(&mut self, cell: &Cell) -> Result<()> {
        match cell.base {
            Base::Memory => {
                let size = format!("size={IMAGE_SIZE}");
                let mount = Mount::new(Path::new("fslab"), &self.lower(), "tmpfs", &size)?;
                self.lower.replace(Some(mount));
                Ok(())
            }
            Base::Image { kind, mkfs } => {
                let image = self.image();
                let file = File::create_new(&image).map_err(Error::file(&image))?;
                file.set_len(IMAGE_SIZE).map_err(Error::file(&image))?;
                let options: Vec<String> = mkfs.split_whitespace().map(str::to_owned).collect();
                make_file_system::make(kind, &image, &options)?;
                if matches!(cell.top, Top::Image { .. }) {
                    return Ok(());
                }
                let device = LoopDevice::attach(&image, loop_device::Options::default())?;
                if let Some(kib) = cell.read_ahead_kib {
                    let file = device.device_number().sysfs("bdi/read_ahead_kb");
                    fs::write(&file, kib.to_string()).map_err(Error::file(&file))?;
                }
                self.kind = Some(kind);
                self.device = Some(device);
                self.mount_lower()
            }
        }
    }

    fn mount_lower(&self) -> Result<()> {
        let (Some(device), Some(kind)) = (&self.device, self.kind) else { return Ok(()) };
        let mount = Mount::new(device.path(), &self.lower(), kind.name(), self.options)?;
        self.lower.replace(Some(mount));
        Ok(())
    }

    /// Whether [`Stage::remount`] is possible and clears all caches.
    pub fn can_remount(&self) -> bool {
        self.top.is_none() && self.device.is_some()
    }

    /// Unmounts, drops the kernel's cache of the device, and mounts again.
    pub fn remount(&self) -> Result<()> {
        let mount = self.lower.take();
        if let Some(mount) = mount {
            mount.unmount()?;
        }
        if let Some(device) = &self.device {
            let flushed = device.flush_buffers().map_err(std::io::Error::from);
            flushed.map_err(Error::file(device.path()))?;
        }
        self.mount_lower()
    }

    fn put_over(&mut self, cell: &Cell, host: &dyn Host) -> Result<()> {
        let upper = self.directory.path().join("upper");
        let (layers, below): (&[&str], PathBuf) = match &cell.top {
            Top::Nothing => return Ok(()),
            Top::Overlay => {
                self.top = Some(Upper::Overlay(self.overlay(&upper)?));
                return Ok(());
            }
            Top::Layers { layers, .. } => (layers, self.lower()),
            Top::Image { scheme, options } => {
                (&[], PathBuf::from(format!("{scheme}{}{options}", self.image().display())))
            }
        };
        let layers: Vec<String> = layers.iter().map(|layer| (*layer).to_owned()).collect();
        let commands =
            Commands { mount: host.mount_command(&layers, &below, &upper), unmount: None };
        let messages = self.directory.path().join("messages");
        self.top = Some(Upper::Foreign(ForeignMount::new(&commands, &upper, &messages)?));
        Ok(())
    }

    fn overlay(&self, upper: &Path) -> Result<Mount> {
        let place = |name: &str| -> Result<String> {
            let path = self.lower().join(name);
            fs::create_dir(&path).map_err(Error::file(&path))?;
            Ok(format!("{name}dir={}", path.display()))
        };
        let options = [place("lower")?, place("upper")?, place("work")?].join(",");
        Ok(Mount::new(Path::new("fslab"), upper, "overlay", &options)?)
    }
}
