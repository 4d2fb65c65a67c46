//! The devices found below the root. There may be several, because a lower tree may contain mount
//! points and subvolumes.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use fslab_sys::file_handle::FileHandle;
use parking_lot::RwLock;
use rustix::fs::{Mode, OFlags};

use crate::error::{Errno, Error, Result};
use crate::host::attr;
use crate::host::inodes::{DeviceIndex, Reference};

/// All devices in the order in which they were found; the root's is the first.
#[derive(Debug)]
pub(super) struct Devices {
    /// No thread holds this lock during a system call, because a call that hangs would then block
    /// all other requests.
    known: RwLock<Vec<Device>>,
    handles: bool,
}

#[derive(Debug)]
struct Device {
    number: u64,
    /// Identifies the device in every session, whereas its number and index may change. For a Btrfs
    /// subvolume, this is the number of the subvolume. It is 0 for the root's device, and
    /// `OTHER_VOLUME` for all other devices.
    volume: u64,
    /// The id of the mount in which the device was found, if known. All subvolumes of a Btrfs mount
    /// have the same id.
    mount_id: Option<u64>,
    /// A directory on the device, open for reading, if file handles can be opened through it;
    /// shared by all devices of a mount.
    mount: Option<Arc<OwnedFd>>,
    /// Whether file handles on the device contain the inode number.
    handles_tell_numbers: bool,
    /// Whether the file system may report errors of delayed writes at close.
    reports_at_close: bool,
}

impl Device {
    /// Examines a newly found device, given a file on it. Devices of one mount share the directory
    /// through which file handles are opened.
    fn met(number: u64, file: &OwnedFd, known: &Devices) -> Result<Self> {
        let mount_id = attr::mount_id(file)?;
        let mount = known.handles.then(|| known.mount_for_handles(mount_id, file)).flatten();
        let handles_tell_numbers = mount.is_some() && handle_tells_number(file)?;
        let reports_at_close = !is_known_local(file)?;
        let volume = if known.known.read().is_empty() { 0 } else { volume_of(file) };
        Ok(Self { number, volume, mount_id, mount, handles_tell_numbers, reports_at_close })
    }
}

impl Devices {
    /// Makes a list with the root's device. Without `handles`, each inode in use keeps a
    /// descriptor.
    pub fn new(number: u64, root: &OwnedFd, handles: bool) -> Result<Self> {
        let devices = Self { known: RwLock::default(), handles };
        let root = Device::met(number, root, &devices)?;
        devices.known.write().push(root);
        Ok(devices)
    }

    /// Whether inodes on the root's device need no descriptors.
    pub fn root_has_handles(&self) -> bool {
        self.known.read().first().is_some_and(|device| device.mount.is_some())
    }

    /// Whether inodes on all devices found need no descriptors.
    pub fn all_have_handles(&self) -> bool {
        self.known.read().iter().all(|device| device.mount.is_some())
    }

    /// Whether file handles on the root's device contain inode numbers. Otherwise,
    /// [`Self::with_telling_handles`] need not be called.
    pub fn root_tells_numbers(&self) -> bool {
        self.known.read().first().is_some_and(|device| device.handles_tell_numbers)
    }

    /// Returns the index of the device of `file`, adding the device if it is new.
    ///
    /// # Errors
    /// `EXDEV` if 65,536 devices are already known.
    pub fn index(&self, number: u64, file: &OwnedFd) -> Result<DeviceIndex> {
        if let Some(index) = self.find(number) {
            return Ok(index);
        }
        let device = Device::met(number, file, self)?;
        let mut known = self.known.write();
        if let Some(index) = known.iter().position(|device| device.number == number) {
            return to_index(index);
        }
        let index = to_index(known.len())?;
        if self.handles && device.mount.is_none() {
            tell_of_descriptors(number);
        }
        known.push(device);
        Ok(index)
    }

    /// Returns a number for an inode that is the same in every session. On the root's device, this
    /// is the inode number. On other devices, the volume is mixed into the upper bits of the inode
    /// number. Otherwise a snapshot would have the same numbers and times as its source.
    pub fn lasting_number(&self, device: u64, number: u64) -> u64 {
        let known = self.known.read();
        let met = known.iter().find(|met| met.number == device);
        number ^ met.map_or(OTHER_VOLUME, |met| met.volume).rotate_right(16)
    }

    /// Whether closing a file on a device may report errors of delayed writes.
    pub fn reports_at_close(&self, index: DeviceIndex) -> bool {
        let known = self.known.read();
        known.get(usize::from(index)).is_none_or(|device| device.reports_at_close)
    }

    fn find(&self, number: u64) -> Option<DeviceIndex> {
        let index = self.known.read().iter().position(|device| device.number == number)?;
        DeviceIndex::try_from(index).ok()
    }

    /// Returns a file handle if the device has them, or `None` if a descriptor must be kept.
    pub fn handle_of(&self, index: DeviceIndex, file: &OwnedFd) -> Result<Option<Reference>> {
        match self.mount(index) {
            Some(_) => Ok(Some(Reference::Handle(FileHandle::of(file)?))),
            None => Ok(None),
        }
    }

    /// Returns the index of a known device whose handles contain the inode number, so that a handle
    /// and a `stat` result can be matched.
    pub fn with_telling_handles(&self, number: u64) -> Option<DeviceIndex> {
        let index = self.find(number)?;
        let known = self.known.read();
        let device = known.get(usize::from(index)).filter(|device| device.handles_tell_numbers);
        device.map(|_| index)
    }

    /// Opens an inode on a device.
    ///
    /// # Errors
    /// `ESTALE` if the inode no longer exists.
    pub fn open(&self, index: DeviceIndex, handle: &FileHandle, flags: OFlags) -> Result<OwnedFd> {
        let mount = self.mount(index).ok_or(Error::Errno(Errno::STALE))?;
        Ok(handle.open(mount.as_fd(), flags)?)
    }

    /// One directory on each device with file handles.
    pub fn mounts(&self) -> Vec<Arc<OwnedFd>> {
        self.known.read().iter().filter_map(|device| device.mount.clone()).collect()
    }

    fn mount_for_handles(&self, mount_id: Option<u64>, file: &OwnedFd) -> Option<Arc<OwnedFd>> {
        // A mount with an unknown id is never treated as the same, because its handles might then
        // be opened on another device.
        let is_same = |device: &Device| mount_id.is_some() && device.mount_id == mount_id;
        let of_mount = |device: &Device| device.mount.clone().filter(|_| is_same(device));
        let known = self.known.read().iter().find_map(of_mount);
        known.or_else(|| mount_for_handles(file).map(Arc::new))
    }

    /// A directory on a device, open for reading, if the device has file handles.
    pub fn mount(&self, index: DeviceIndex) -> Option<Arc<OwnedFd>> {
        self.known.read().get(usize::from(index))?.mount.clone()
    }
}

fn tell_of_descriptors(number: u64) {
    tracing::info!(
        "can't use file handles on device {}:{}, which is mounted inside the lower directory; so \
         each of its inodes in use needs an open descriptor",
        number >> 32,
        number & 0xffff_ffff
    );
}

fn to_index(index: usize) -> Result<DeviceIndex> {
    DeviceIndex::try_from(index).map_err(|error| {
        tracing::error!(%error, "too many devices are mounted inside the lower directory");
        Error::Errno(Errno::XDEV)
    })
}

/// Opens a directory through which the file handles of a device can be opened. Returns `None` if
/// that fails: the file system may have no handles, and the process may lack the privilege.
///
/// A FUSE mount returns handles, but can usually open them only while the inode is cached. So
/// descriptors are used instead of handles on FUSE mounts.
fn mount_for_handles(file: &OwnedFd) -> Option<OwnedFd> {
    const FUSE: u64 = 0x6573_5546;
    if attr::file_system_kind(file).ok()? == FUSE {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mount = rustix::fs::openat(file, ".", flags, Mode::empty()).ok()?;
    let handle = FileHandle::of(&mount).ok()?;
    handle.open(mount.as_fd(), OFlags::PATH).ok()?;
    Some(mount)
}

/// Whether the handle of a file contains its inode number.
fn handle_tells_number(file: &OwnedFd) -> Result<bool> {
    Ok(FileHandle::of(file)?.number() == Some(attr::stat(file)?.stx_ino))
}

/// The volume number of every device without a lasting identity, except for the root's device.
const OTHER_VOLUME: u64 = 1;

/// Returns the volume of a device that is not the root's: the number of the Btrfs subvolume, if
/// there is one. Other properties, such as device numbers and UUIDs of file systems, are reassigned
/// or can be changed.
fn volume_of(file: &OwnedFd) -> u64 {
    // File systems without handles have no subvolumes either.
    FileHandle::of(file).ok().and_then(|handle| handle.subvolume()).unwrap_or(OTHER_VOLUME)
}

/// Whether the type of a file system is known to report no errors at close(2).
fn is_known_local(file: &OwnedFd) -> Result<bool> {
    const EXT: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    const BTRFS: u64 = 0x9123_683e;
    const TMPFS: u64 = 0x0102_1994;
    const F2FS: u64 = 0xf2f5_2010;
    let kind = attr::file_system_kind(file)?;
    Ok(matches!(kind, EXT | XFS | BTRFS | TMPFS | F2FS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fslab_vfs_testing::skip::skip;

    #[test]
    fn handles_are_opened_through_a_known_mount() {
        let test = "host::devices::handles_are_opened_through_a_known_mount";
        let root = OwnedFd::from(std::fs::File::open(".").unwrap());
        let number = attr::device_of(&attr::stat(&root).unwrap());
        let devices = Devices::new(number, &root, true).unwrap();
        let Some(known) = devices.mounts().pop() else {
            return skip(test, "no file handles here");
        };
        let mount_id = attr::mount_id(&root).unwrap();
        let same = devices.mount_for_handles(mount_id, &root).unwrap();
        assert!(Arc::ptr_eq(&same, &known));
        let untold = devices.mount_for_handles(None, &root).unwrap();
        assert!(!Arc::ptr_eq(&untold, &known));
    }
}
