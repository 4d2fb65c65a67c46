//! Mounts an image through a loop device with a file system of the kernel.

use std::path::Path;

use fslab_sys::loop_device::{LoopDevice, Options};
use fslab_sys::mounts::Mount;
use tempfile::TempDir;

/// A mounted image. Dropping it unmounts the image and detaches its loop device.
pub struct Mounted {
    mount: Option<Mount>,
    _device: LoopDevice,
    point: TempDir,
}

impl Mounted {
    pub fn new(image: &Path) -> Self {
        Self::with_kind(image, "ext2")
    }

    pub fn with_kind(image: &Path, kind: &str) -> Self {
        let options = Options { sector_size: 512, read_only: false };
        let device = LoopDevice::attach(image, options).unwrap();
        let point = TempDir::new_in("/tmp").unwrap();
        let mount = Mount::new(device.path(), point.path(), kind, "").unwrap();
        Self { mount: Some(mount), _device: device, point }
    }

    pub fn path(&self) -> &Path {
        self.point.path()
    }

    pub fn unmount(mut self) {
        self.mount.take().unwrap().unmount().unwrap();
    }
}

/// Whether mounting is possible; reports a skip if not.
pub fn can_mount(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        fslab_vfs_testing::skip::skip(test, "not root");
    }
    root
}
