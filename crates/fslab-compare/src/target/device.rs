//! A block device as a target's storage. All data on it are lost, so a device is refused whenever
//! that could be a mistake.
//!
//! A device is identified by a name in /dev/disk/by-id, because other names depend on the order of
//! detection. A device is always refused if it or one of its partitions is in use. In use means
//! mounted, used as swap, held by another device, or part of md, LVM, Btrfs, ZFS or bcache. If it
//! contains any other signature, the user must type its serial number. Each run wipes the
//! signatures at its end, so that the next run finds the device empty.

mod signatures;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fslab_sys::block_counters::DeviceNumber;
use fslab_sys::loop_device::flush_buffers_of;
use fslab_sys::{mounts, page_cache};
use rustix::fs::{OFlags, SeekFrom};

use crate::error::{Error, Result};
use crate::plan::DevicePlan;
use crate::refusal::Refusal;

/// The files and directories that show how devices are used.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    pub by_id: PathBuf,
    pub sysfs: PathBuf,
    pub swaps: PathBuf,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self {
            by_id: "/dev/disk/by-id".into(),
            sysfs: "/sys/dev/block".into(),
            swaps: "/proc/swaps".into(),
        }
    }
}

/// A device that may be erased.
#[derive(Debug)]
pub(super) struct BlockDevice {
    /// The path without symbolic links.
    path: PathBuf,
    number: DeviceNumber,
    /// Not opened exclusively, because a mount needs exclusive access.
    file: File,
}

impl BlockDevice {
    /// Claims a device and erases the signatures on it. A refused device is not changed.
    pub fn claim(plan: &DevicePlan, around: &Surroundings) -> Result<Self> {
        let refused = |refusal| Error::Device { path: plan.path.clone(), refusal };
        if plan.path.parent() != Some(&around.by_id) || plan.path.file_name().is_none() {
            return Err(refused(Refusal::NotById));
        }
        let path = fs::canonicalize(&plan.path).map_err(Error::file(&plan.path))?;
        let found = fs::metadata(&path).map_err(Error::file(&path))?;
        if !found.file_type().is_block_device() {
            return Err(refused(Refusal::NotBlock));
        }
        let number = number_of(&found);
        let parts = Part::all(&path, number, around)?;
        for part in &parts {
            part.check_use(around)?.map_or(Ok(()), |refusal| Err(refused(refusal)))?;
        }
        // While this descriptor is open, no process can mount the device. So it stays open until
        // all checks and writes are done.
        let exclusive = match open(&path, OFlags::EXCL) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                return Err(refused(Refusal::Busy));
            }
            Err(error) => return Err(Error::file(&path)(error)),
        };
        let mut found = Vec::new();
        for part in &parts {
            let signatures = signatures::of(&part.path)?;
            if let Some(whole) = signatures.iter().find_map(|found| found.member_of()) {
                return Err(refused(Refusal::Member(part.name(), whole)));
            }
            found.extend(signatures);
        }
        if let Some(first) = found.first() {
            let serial = serial(plan, number, around);
            if !plan.erase.contains(&serial) {
                return Err(refused(Refusal::Holds { what: first.name().to_owned(), serial }));
            }
            wipe(&exclusive, &path)?;
        }
        let file = open(&path, OFlags::empty()).map_err(Error::file(&path))?;
        Ok(Self { path, number, file })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn number(&self) -> DeviceNumber {
        self.number
    }

    /// Drops the cached pages of the device, which must not be mounted. Returns the number of pages
    /// left.
    pub fn drop_caches(&self) -> Result<Option<u64>> {
        flush_buffers_of(&self.file).map_err(|errno| Error::file(&self.path)(errno.into()))?;
        Ok(page_cache::cachestat(self.file.as_fd(), 0).ok().map(|found| found.cached))
    }

    /// Removes all signatures from the device.
    pub fn wipe(self) -> Result<()> {
        let exclusive = open(&self.path, OFlags::EXCL).map_err(Error::file(&self.path))?;
        wipe(&exclusive, &self.path)
    }
}

fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = (flags | OFlags::CLOEXEC).bits().cast_signed();
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
}

fn number_of(found: &fs::Metadata) -> DeviceNumber {
    let number = found.rdev();
    DeviceNumber { major: rustix::fs::major(number), minor: rustix::fs::minor(number) }
}

/// Bytes zeroed at each end of the device. They include every known signature.
const WIPED: u64 = 2 << 20;

/// Removes all signatures and verifies that none is left.
fn wipe(device: &File, path: &Path) -> Result<()> {
    let failed = |error| Error::file(path)(error);
    let end = rustix::fs::seek(device, SeekFrom::End(0)).map_err(|errno| failed(errno.into()))?;
    let zeros = vec![0; WIPED.min(end) as usize];
    device.write_all_at(&zeros, 0).map_err(failed)?;
    device.write_all_at(&zeros, end - zeros.len() as u64).map_err(failed)?;
    device.sync_all().map_err(failed)?;
    flush_buffers_of(device).map_err(|errno| failed(errno.into()))?;
    match signatures::of(path)?.first() {
        None => Ok(()),
        Some(left) => {
            Err(failed(io::Error::other(format!("can't remove the signature of {}", left.name()))))
        }
    }
}

/// The device or one of its partitions.
struct Part {
    path: PathBuf,
    number: DeviceNumber,
    sysfs: PathBuf,
}

impl Part {
    /// Returns the device and its partitions.
    fn all(path: &Path, number: DeviceNumber, around: &Surroundings) -> Result<Vec<Self>> {
        let sysfs = around.sysfs.join(format!("{}:{}", number.major, number.minor));
        let mut parts = vec![Self { path: path.to_owned(), number, sysfs: sysfs.clone() }];
        for entry in fs::read_dir(&sysfs).map_err(Error::file(&sysfs))? {
            let directory = entry.map_err(Error::file(&sysfs))?.path();
            if !directory.join("partition").exists() {
                continue;
            }
            let number = directory.join("dev");
            let text = fs::read_to_string(&number).map_err(Error::file(&number))?;
            let number = parse(text.trim()).ok_or_else(|| {
                Error::file(&number)(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "contains no device numbers",
                ))
            })?;
            let name = directory.file_name().unwrap_or_default();
            parts.push(Self {
                path: Path::new("/dev").join(name),
                number,
                sysfs: directory.clone(),
            });
        }
        Ok(parts)
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Returns a refusal if the device or partition is mounted, used as swap or held by another
    /// device.
    fn check_use(&self, around: &Surroundings) -> Result<Option<Refusal>> {
        let proc_mounts = Path::new("/proc/self/mountinfo");
        let mounted = mounts::list().map_err(Error::file(proc_mounts))?;
        // Mounts of Btrfs have device numbers of their own, so the source of the mount is compared,
        // too.
        let is_source = |source: &Path| fs::canonicalize(source).is_ok_and(|it| it == self.path);
        if mounted.iter().any(|mount| {
            mount.device == (self.number.major, self.number.minor)
                || is_source(Path::new(&mount.source))
        }) {
            return Ok(Some(Refusal::Mounted(self.name())));
        }
        let swaps = fs::read_to_string(&around.swaps).map_err(Error::file(&around.swaps))?;
        let mut swaps = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
        if swaps.any(|swap| is_source(Path::new(swap))) {
            return Ok(Some(Refusal::Swap(self.name())));
        }
        let holders = self.sysfs.join("holders");
        let first = match fs::read_dir(&holders) {
            Ok(mut entries) => entries.next().transpose().map_err(Error::file(&holders))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Error::file(&holders)(error)),
        };
        let holder = first.map(|entry| entry.file_name().to_string_lossy().into_owned());
        Ok(holder.map(|holder| Refusal::Held(self.name(), holder)))
    }
}

fn parse(text: &str) -> Option<DeviceNumber> {
    let (major, minor) = text.split_once(':')?;
    Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

/// Returns the serial number that the driver reports, or else the last part of the device's name.
fn serial(plan: &DevicePlan, number: DeviceNumber, around: &Surroundings) -> String {
    let sysfs = around.sysfs.join(format!("{}:{}", number.major, number.minor));
    let read = |name: &str| {
        let text = fs::read_to_string(sysfs.join(name)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    read("serial").or_else(|| read("device/serial")).unwrap_or_else(|| {
        let name = plan.path.file_name().unwrap_or_default().to_string_lossy();
        let last = name.rsplit('_').next().unwrap_or_default();
        last.split("-part").next().unwrap_or_default().to_owned()
    })
}

#[cfg(test)]
mod tests;
