//! The storage of an image's file system: a file attached to a loop device, or a block device.

use std::os::fd::AsFd;
use std::path::Path;

use fslab_sys::block_counters::DeviceNumber;
use fslab_sys::loop_device::{self, LoopDevice};
use fslab_sys::{make_file_system, page_cache};

use super::Workshop;
use super::device::{BlockDevice, Surroundings};
use super::image_file::{ImageFile, Made};
use crate::error::{Error, Result};
use crate::plan::{Base, ImagePlan};

/// Storage with a file system.
pub(super) enum Storage {
    /// An image file attached to a loop device, which is dropped before the file.
    Image {
        /// The loop device.
        device: LoopDevice,
        /// The image file.
        image: ImageFile,
    },
    /// A block device that contains the file system directly.
    Device(BlockDevice),
}

impl Storage {
    /// Makes the storage and the file system on it. Returns `None` for a file system in memory.
    pub fn make(base: &ImagePlan, shop: Workshop<'_>) -> Result<Option<(Self, Made)>> {
        let Base::Device(kind) = base.kind else { return Ok(None) };
        let place = |name: &str| shop.work_directory.join(name);
        let attach = |image: &ImageFile| {
            let options = loop_device::Options {
                read_only: kind.is_read_only(),
                ..loop_device::Options::default()
            };
            LoopDevice::attach(&image.path, options)
        };
        if let Some(plan) = &base.device {
            let device = BlockDevice::claim(plan, &Surroundings::default())?;
            let options = make_file_system::without_discard(kind, &base.mkfs);
            let how = make_file_system::make(kind, device.path(), &options)?;
            device.drop_caches()?;
            return Ok(Some((Self::Device(device), Made::by(how))));
        }
        if let Some(recorded) = &base.recorded {
            let (image, made) = ImageFile::recorded(recorded, &place("recorded-image"), shop.host)?;
            check_workload(recorded, base.aged_workload.as_deref(), made.workload.as_deref())?;
            return Ok(Some((Self::Image { device: attach(&image)?, image }, made)));
        }
        if let Some(source) = base.source.as_ref().filter(|_| kind.is_read_only()) {
            let (image, how) = ImageFile::pack(kind, source, &place("packed-image"), &base.mkfs)?;
            return Ok(Some((Self::Image { device: attach(&image)?, image }, Made::by(how))));
        }
        let image = ImageFile::fresh(&place("image"), shop.image_size)?;
        let device = attach(&image)?;
        // Discarding would free the image's blocks.
        let options = make_file_system::without_discard(kind, &base.mkfs);
        let how = make_file_system::make(kind, device.path(), &options)?;
        drop_caches(&device, &image)?;
        image.fill_gaps()?;
        image.drop_cache()?;
        Ok(Some((Self::Image { device, image }, Made::by(how))))
    }

    /// Drops cached pages of the device and the image. The file system must not be mounted. Returns
    /// the number of the device's pages that remain cached.
    pub fn drop_caches(&self) -> Result<Option<u64>> {
        match self {
            Self::Image { device, image } => drop_caches(device, image),
            Self::Device(device) => device.drop_caches(),
        }
    }

    /// Releases the storage. A block device is left without a signature, so that the next run may
    /// use it.
    pub fn end(self) -> Result<()> {
        match self {
            Self::Image { .. } => Ok(()),
            Self::Device(device) => device.wipe(),
        }
    }

    pub fn device_path(&self) -> &Path {
        match self {
            Self::Image { device, .. } => device.path(),
            Self::Device(device) => device.path(),
        }
    }

    pub fn device_number(&self) -> DeviceNumber {
        match self {
            Self::Image { device, .. } => device.device_number(),
            Self::Device(device) => device.number(),
        }
    }

    /// Whether the loop device bypasses the page cache; `None` for a block device.
    pub fn direct_io(&self) -> Option<bool> {
        match self {
            Self::Image { device, .. } => Some(device.direct_io()),
            Self::Device(_) => None,
        }
    }
}

fn drop_caches(device: &LoopDevice, image: &ImageFile) -> Result<Option<u64>> {
    let failed = |errno: rustix::io::Errno| Error::file(device.path())(errno.into());
    device.flush_buffers().map_err(failed)?;
    image.drop_cache()?;
    let cached = page_cache::cachestat(device.file().as_fd(), 0);
    Ok(cached.ok().map(|found| found.cached))
}

/// Fails if an image was not aged by the workload that the plan requests.
fn check_workload(path: &Path, wanted: Option<&str>, found: Option<&str>) -> Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    if found.is_some_and(|found| found.starts_with(wanted)) {
        return Ok(());
    }
    Err(Error::Failed(format!(
        "{} was not aged by the workload {wanted} that `aged_workload` requests, but {}; recreate \
         it with `fslab age image make`",
        path.display(),
        found.map_or("by an unknown one".to_owned(), |found| format!("by {found}"))
    )))
}
