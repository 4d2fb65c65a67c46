//! What the file system of an image lies on: a sparse file attached to a loop device.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use fslab_sys::block_counters::DeviceNumber;
use fslab_sys::loop_device::{self, LoopDevice};
use fslab_sys::make_file_system::{self, Kind, one_line};
use fslab_sys::residency;

use super::Workshop;
use super::work_directory::check_space;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::plan::{Base, ImagePlan};

/// How an image came to be.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// By which command, or from what.
    pub how: String,
    /// The workload that aged it, where that is known, by its hash in hexadecimal.
    pub workload: Option<String>,
}

impl Made {
    fn by(how: String) -> Self {
        Self { how, workload: None }
    }
}

/// An attached image with a file system. Fields are dropped in this order.
pub(super) struct Storage {
    device: LoopDevice,
    image: ImageFile,
}

impl Storage {
    /// Makes the image and the file system on it, and answers how; `None` for one in memory.
    pub fn make(base: &ImagePlan, path: &Path, shop: Workshop<'_>) -> Result<Option<(Self, Made)>> {
        let Base::Device(kind) = base.kind else { return Ok(None) };
        check_space(shop.work_directory, shop.image_size)?;
        let attach = |image: &ImageFile| {
            let options = loop_device::Options {
                read_only: kind.is_read_only(),
                ..loop_device::Options::default()
            };
            LoopDevice::attach(&image.path, options)
        };
        if let Some(recorded) = &base.recorded {
            let (image, made) = ImageFile::recorded(recorded, path, shop.host)?;
            check_workload(recorded, base.aged_workload.as_deref(), made.workload.as_deref())?;
            return Ok(Some((Self { device: attach(&image)?, image }, made)));
        }
        if let Some(source) = base.source.as_ref().filter(|_| kind.is_read_only()) {
            let (image, how) = ImageFile::pack(kind, source, path, &base.mkfs)?;
            return Ok(Some((Self { device: attach(&image)?, image }, Made::by(how))));
        }
        let image = ImageFile::create(path, shop.image_size)?;
        let device = attach(&image)?;
        let how = make_file_system::make(kind, device.path(), &base.mkfs)?;
        Ok(Some((Self { device, image }, Made::by(how))))
    }

    /// Drops what is cached of the device and the image, while nothing has it mounted, and
    /// answers the device's pages that are cached all the same.
    pub fn drop_caches(&self) -> Result<Option<u64>> {
        let failed = |errno: rustix::io::Errno| Error::file(self.device.path())(errno.into());
        self.device.flush_buffers().map_err(failed)?;
        self.image.drop_cache()?;
        let cached = residency::cachestat(self.device.file().as_fd());
        Ok(cached.ok().map(|found| found.cached))
    }

    pub fn device_path(&self) -> &Path {
        self.device.path()
    }

    pub fn device_number(&self) -> DeviceNumber {
        self.device.device_number()
    }

    pub fn direct_io(&self) -> bool {
        self.device.direct_io()
    }
}

/// Says where an aged image is not of the workload that the plan asks for.
fn check_workload(path: &Path, wanted: Option<&str>, found: Option<&str>) -> Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    if found.is_some_and(|found| found.starts_with(wanted)) {
        return Ok(());
    }
    let (path, wanted) = (path.to_owned(), wanted.to_owned());
    Err(Error::OtherWorkload { path, wanted, found: found.map(str::to_owned) })
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

    /// From a directory, by the tool of a read-only file system.
    fn pack(kind: Kind, source: &Path, path: &Path, options: &[String]) -> Result<(Self, String)> {
        // The tool may leave a part of an image behind: it is removed with this.
        let image = Self::create(path, 0)?;
        let how = make_file_system::pack(kind, path, source, options)?;
        Ok((image, how))
    }

    /// An image that is there: unpacked where it is kept packed, else a copy.
    fn recorded(recorded: &Path, path: &Path, host: &dyn Host) -> Result<(Self, Made)> {
        let image = Self::create(path, 0)?;
        let failed = |source| Error::Unpack { path: recorded.to_owned(), source };
        let Some(unpacked) = host.unpack(recorded, path).map_err(failed)? else {
            drop(image);
            let (image, how) = Self::copy(recorded, path)?;
            return Ok((image, Made::by(how)));
        };
        let how = format!("unpacked from {}, {}", recorded.display(), unpacked.description);
        Ok((image, Made { how, workload: Some(unpacked.workload) }))
    }

    /// A copy of an image that is there: cp keeps it sparse, and shares blocks where it can.
    fn copy(recorded: &Path, path: &Path) -> Result<(Self, String)> {
        File::open(recorded).map_err(Error::file(recorded))?;
        let image = Self::create(path, 0)?;
        let mut command = Command::new("cp");
        command.args(["--sparse=always", "--reflink=auto"]).arg(recorded).arg(path);
        let output =
            command.output().map_err(|source| Error::Start { program: "cp".to_owned(), source })?;
        let how = format!("copied from {}", recorded.display());
        if output.status.success() {
            return Ok((image, how));
        }
        let (status, message) = (output.status, one_line(&output.stderr));
        Err(Error::Command { command: format!("cp {}", recorded.display()), status, message })
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
