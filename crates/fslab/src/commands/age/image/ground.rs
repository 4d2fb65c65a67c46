//! A file system on a temporary image, which a workload ages. Dropping a [`Ground`] or an [`Image`]
//! deletes the image.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use fslab_ext2::{MkfsOptions, VolumeOptions, mkfs};
use fslab_layers::{Leaf, Stack};
use fslab_sys::loop_device::{LoopDevice, Options};
use fslab_sys::make_file_system::{self, Kind};
use fslab_sys::mounts::{Mount, Unmounted};
use fslab_vfs::FileSystem;
use tempfile::TempDir;

use super::super::score::Place;
use crate::leaves::{self, open_device};

/// The kind of file system to make.
pub enum Form {
    /// A file system of the kernel, made by the tools of the distribution.
    Kernel {
        /// The kind.
        kind: Kind,
        /// Options for its mkfs program.
        mkfs: Vec<String>,
    },
    /// ext2, made by the engine.
    Engine {
        /// Options for making the file system.
        mkfs: MkfsOptions,
        /// Options for opening the file system.
        options: VolumeOptions,
    },
}

/// A new file system. Fields are dropped in this order: the file system, its mount, the loop
/// device, the image.
pub struct Ground {
    /// The file system to which the workload is applied.
    pub file_system: Arc<dyn FileSystem>,
    /// The same file system, as a target whose layout is scored.
    pub place: Place,
    /// The program or engine that made the file system, and its options.
    pub made: String,
    mount: Option<Mount>,
    device: Option<LoopDevice>,
    scratch: TempDir,
}

impl Ground {
    /// Makes a file system of `size` bytes, on an image in a temporary directory within `beside`.
    pub fn make(form: &Form, size: u64, beside: &Path) -> Result<Self> {
        check(form, size)?;
        let scratch = tempfile::Builder::new().prefix(".fslab-age-image-").tempdir_in(beside);
        let scratch = scratch.with_context(|| beside.display().to_string())?;
        let image = image_of(&scratch);
        let file = std::fs::File::create(&image).context("can't make the image")?;
        file.set_len(size).context("can't make the image")?;
        match form {
            Form::Engine { mkfs: make, options } => {
                mkfs(&open_device(&image, false)?, make)?;
                let file_system: Arc<dyn FileSystem> = Arc::new(leaves::open(&image, options)?);
                let place = Place::Here(Arc::clone(&file_system));
                let made = "the ext2 engine".to_owned();
                Ok(Self { file_system, place, made, mount: None, device: None, scratch })
            }
            Form::Kernel { kind, mkfs } => Self::mounted(*kind, mkfs, scratch),
        }
    }

    fn mounted(kind: Kind, mkfs: &[String], scratch: TempDir) -> Result<Self> {
        let (image, point) = (image_of(&scratch), mount_point_of(&scratch));
        std::fs::create_dir(&point).context("can't make a mount point")?;
        let device = LoopDevice::attach(&image, Options::default())?;
        let made = make_file_system::make(kind, device.path(), mkfs)?;
        let mount = Mount::new(device.path(), &point, kind.name(), "")?;
        let leaf = Leaf::Directory(point);
        let file_system = Stack { layers: Vec::new(), leaf: leaf.clone() }.build()?;
        let place = Place::of_leaf(&leaf, &file_system);
        Ok(Self { file_system, place, made, mount: Some(mount), device: Some(device), scratch })
    }

    /// Returns the mount point. It exists only for a file system of the kernel.
    pub fn root(&self) -> PathBuf {
        mount_point_of(&self.scratch)
    }

    /// Shuts down and unmounts the file system, and returns its image.
    pub fn end(self) -> Result<Image> {
        let Self { file_system, place, mount, device, scratch, .. } = self;
        file_system.shutdown().context("can't shut down the file system")?;
        drop(place);
        drop(file_system);
        if let Some(mount) = mount
            && mount.unmount()? == Unmounted::Lazily
        {
            anyhow::bail!("the aged file system was busy and could not be unmounted");
        }
        drop(device);
        Ok(Image { scratch })
    }
}

/// The image of an unmounted file system.
pub struct Image {
    scratch: TempDir,
}

impl Image {
    /// Returns the path of the image.
    pub fn path(&self) -> PathBuf {
        image_of(&self.scratch)
    }
}

/// Checks that a file system of `size` bytes can be made, without making it.
///
/// # Errors
/// Fails if a file system of the kernel is requested and the user is not root, or if the engine
/// can't make a file system with these options.
pub fn check(form: &Form, size: u64) -> Result<()> {
    match form {
        Form::Engine { mkfs, .. } => Ok(mkfs.check_for(size)?),
        Form::Kernel { kind, .. } if !rustix::process::geteuid().is_root() => bail_as!(
            Missing,
            "mounting {kind} needs root; `--policy` makes an ext2 image without mounting it"
        ),
        _ => Ok(()),
    }
}

fn mount_point_of(scratch: &TempDir) -> PathBuf {
    scratch.path().join("mountpoint")
}

fn image_of(scratch: &TempDir) -> PathBuf {
    scratch.path().join("image")
}

/// Returns the engine's options for an image. They do not depend on the clock or the user, so equal
/// workloads make equal images.
pub fn engine_options(
    bytes_per_inode: u32,
    reserved_percent: u8,
    blocks_per_group: Option<u32>,
) -> MkfsOptions {
    MkfsOptions { bytes_per_inode, reserved_percent, blocks_per_group, ..MkfsOptions::default() }
}
