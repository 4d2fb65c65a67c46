//! The devices met below the root: a lower tree may hold mount points and subvolumes.

use std::os::fd::{AsFd, OwnedFd};

use fslab_sys::file_handle::FileHandle;
use parking_lot::RwLock;
use rustix::fs::{Mode, OFlags};

use crate::error::{Errno, Error, Result};
use crate::host::attr;
use crate::host::inodes::{DeviceIndex, Reference};

/// All devices in the order in which they were met; the root's is the first.
#[derive(Debug)]
pub(super) struct Devices {
    known: RwLock<Vec<Device>>,
}

#[derive(Debug)]
struct Device {
    number: u64,
    /// A directory on the device, open for reading, where file handles can be opened through it.
    mount: Option<OwnedFd>,
}

impl Devices {
    /// Knows the root's device; without `handles`, every inode will be kept by a descriptor.
    pub fn new(number: u64, root: &OwnedFd, handles: bool) -> Self {
        let mount = if handles { mount_for_handles(root) } else { None };
        Self { known: RwLock::new(vec![Device { number, mount }]) }
    }

    /// Whether inodes of the root's device need no descriptors.
    pub fn root_has_handles(&self) -> bool {
        self.known.read().first().is_some_and(|device| device.mount.is_some())
    }

    /// The index of a device, which becomes known by `file` lying on it.
    ///
    /// # Errors
    /// `EXDEV` after 65,535 devices.
    pub fn index(&self, number: u64, file: &OwnedFd) -> Result<DeviceIndex> {
        let position = |known: &[Device]| known.iter().position(|device| device.number == number);
        if let Some(index) = position(&self.known.read()) {
            return to_index(index);
        }
        let mut known = self.known.write();
        if let Some(index) = position(&known) {
            return to_index(index);
        }
        let index = to_index(known.len())?;
        known.push(Device { number, mount: mount_for_handles(file) });
        Ok(index)
    }

    /// The index of a known device.
    pub fn find(&self, number: u64) -> Option<DeviceIndex> {
        let index = self.known.read().iter().position(|device| device.number == number)?;
        DeviceIndex::try_from(index).ok()
    }

    /// A file handle where the device has them, `None` where a descriptor must be kept.
    pub fn handle_of(&self, index: DeviceIndex, file: &OwnedFd) -> Result<Option<Reference>> {
        let has_handles =
            self.known.read().get(usize::from(index)).is_some_and(|device| device.mount.is_some());
        if !has_handles {
            return Ok(None);
        }
        Ok(Some(Reference::Handle(FileHandle::of(file)?)))
    }

    /// Opens an inode of a device.
    ///
    /// # Errors
    /// `ESTALE` when the inode is gone.
    pub fn open(&self, index: DeviceIndex, handle: &FileHandle, flags: OFlags) -> Result<OwnedFd> {
        let known = self.known.read();
        let mount = known.get(usize::from(index)).and_then(|device| device.mount.as_ref());
        let mount = mount.ok_or(Error::Errno(Errno::STALE))?;
        Ok(handle.open(mount.as_fd(), flags)?)
    }
}

fn to_index(index: usize) -> Result<DeviceIndex> {
    DeviceIndex::try_from(index).map_err(|error| {
        tracing::error!(%error, "more devices below the root than can be told apart");
        Error::Errno(Errno::XDEV)
    })
}

/// Opens a directory for use with file handles and tries one: the file system may have none, and
/// the process may lack the privilege.
///
/// A FUSE mount gives handles out, but can mostly open them only while it happens to have the
/// inode cached: there, descriptors are kept.
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
