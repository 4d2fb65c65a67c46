//! Attaches image files to loop devices, so that they can be used as block devices.
//!
//! A [`LoopDevice`] is attached with `LO_FLAGS_AUTOCLEAR`: the kernel detaches the image when the
//! last user closes the device. [`LoopDevice`] keeps one descriptor open, so that the device
//! survives an unmount. If the process is killed, the device remains attached only while it is
//! mounted.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use zerocopy::FromZeros;

use crate::block_counters::DeviceNumber;
use crate::file_handle::check;

const CONTROL: &str = "/dev/loop-control";
const MAJOR: u32 = 7;

// From <linux/loop.h> and <linux/fs.h>; the numbers are the same on every architecture.
const LOOP_CLEAR_DEVICE: libc::c_ulong = 0x4C01;
const LOOP_GET_STATUS: libc::c_ulong = 0x4C05;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LOOP_GET_FREE: libc::c_ulong = 0x4C82;
const FLUSH_BUFFERS: libc::c_ulong = 0x1261;
const FLAG_READ_ONLY: u32 = 1;
const FLAG_AUTOCLEAR: u32 = 4;
const FLAG_DIRECT_IO: u32 = 16;

/// Maximum number of attempts to attach an image, because another process may take the free device
/// first.
const ATTEMPTS: u32 = 64;

/// The kernel's `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy, FromZeros)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

const _: () = assert!(size_of::<Info>() == 232);

/// The kernel's `struct loop_config`.
#[repr(C)]
struct Config {
    descriptor: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Config>() == 304);

/// An error of attaching an image.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The image could not be opened.
    #[error("image {}: {source}", path.display())]
    Image {
        /// The image file.
        path: PathBuf,
        /// The error of opening it.
        #[source]
        source: io::Error,
    },
    /// No loop device is available.
    #[error(
        "can't use a loop device: {}: {source} (needs root and the loop module)",
        path.display()
    )]
    Unavailable {
        /// The control or device node.
        path: PathBuf,
        /// The error of opening or using it.
        #[source]
        source: io::Error,
    },
    /// All loop devices are in use.
    #[error(
        "no free loop device after {attempts} attempts; \
         `losetup -l` lists them, `losetup -d` frees one"
    )]
    NoneFree {
        /// Number of attempts.
        attempts: u32,
    },
    /// Attaching failed for another reason.
    #[error("can't attach {} to {}: {source}", image.display(), device.display())]
    Attach {
        /// The image file.
        image: PathBuf,
        /// The loop device.
        device: PathBuf,
        /// The error of LOOP_CONFIGURE.
        #[source]
        source: Errno,
    },
}

/// Options for attaching an image.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Logical sector size in bytes; 0 lets the kernel choose (512).
    pub sector_size: u32,
    /// Whether the device is read-only.
    pub read_only: bool,
}

/// An attached image. Dropping it detaches the image as soon as it is not mounted.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    number: u32,
    device: File,
    direct_io: bool,
}

impl LoopDevice {
    /// Attaches an image to a free loop device, with direct I/O if the file system of the image
    /// allows it (see [`LoopDevice::direct_io`]).
    ///
    /// # Errors
    /// See [`Error`].
    pub fn attach(image: &Path, options: Options) -> Result<Self, Error> {
        let backing = OpenOptions::new()
            .read(true)
            .write(!options.read_only)
            .open(image)
            .map_err(|source| Error::Image { path: image.to_owned(), source })?;
        let control = open_node(Path::new(CONTROL))?;
        for _ in 0..ATTEMPTS {
            let number = free_number(&control)?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = open_node(&path)?;
            match configure(&device, &backing, options) {
                Ok(()) => {
                    let direct_io = status_flags(&device).is_ok_and(|f| f & FLAG_DIRECT_IO != 0);
                    return Ok(Self { path, number, device, direct_io });
                }
                Err(Errno::BUSY) => {}
                Err(source) => {
                    return Err(Error::Attach { image: image.to_owned(), device: path, source });
                }
            }
        }
        Err(Error::NoneFree { attempts: ATTEMPTS })
    }

    /// The device node.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the image is accessed with direct I/O, as reported by the kernel.
    #[must_use]
    pub fn direct_io(&self) -> bool {
        self.direct_io
    }

    /// The open device node, for example to query how much of the device is in the page cache.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.device
    }

    /// The device's number, for finding its counters.
    #[must_use]
    pub fn device_number(&self) -> DeviceNumber {
        let rdev = self.device.metadata().map(|metadata| metadata.rdev());
        let (major, minor) = rdev.map_or((MAJOR, self.number), |rdev| {
            (rustix::fs::major(rdev), rustix::fs::minor(rdev))
        });
        DeviceNumber { major, minor }
    }

    /// Writes back and drops the kernel's cache of the device (`BLKFLSBUF`). Useful only while it
    /// is not mounted.
    ///
    /// # Errors
    /// `EACCES` without CAP_SYS_ADMIN.
    pub fn flush_buffers(&self) -> Result<(), Errno> {
        flush_buffers_of(&self.device)
    }
}

/// Writes back and drops the cache of any block device, while it is not mounted.
///
/// # Errors
/// `EACCES` without CAP_SYS_ADMIN; `ENOTTY` if it is not a block device.
pub fn flush_buffers_of(device: &File) -> Result<(), Errno> {
    ioctl(device, FLUSH_BUFFERS, 0).map(|_| ())
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // With autoclear, closing the descriptor detaches the image anyway, but this call reports
        // errors.
        match ioctl(&self.device, LOOP_CLEAR_DEVICE, 0) {
            Ok(_) | Err(Errno::NXIO) => {}
            Err(error) => tracing::warn!("can't detach {}: {error}", self.path.display()),
        }
    }
}

fn open_node(path: &Path) -> Result<File, Error> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|source| Error::Unavailable { path: path.to_owned(), source })
}

fn free_number(control: &File) -> Result<u32, Error> {
    match ioctl(control, LOOP_GET_FREE, 0) {
        Ok(number) => Ok(number as u32),
        Err(Errno::NOSPC | Errno::NODEV) => Err(Error::NoneFree { attempts: 1 }),
        Err(errno) => {
            Err(Error::Unavailable { path: PathBuf::from(CONTROL), source: errno.into() })
        }
    }
}

/// Attaches with direct I/O, or without it if the backing file system refuses it.
fn configure(device: &File, backing: &File, options: Options) -> Result<(), Errno> {
    match configure_once(device, backing, options, FLAG_DIRECT_IO) {
        Err(Errno::INVAL) => configure_once(device, backing, options, 0),
        answer => answer,
    }
}

fn configure_once(
    device: &File,
    backing: &File,
    options: Options,
    extra_flags: u32,
) -> Result<(), Errno> {
    let read_only = if options.read_only { FLAG_READ_ONLY } else { 0 };
    let mut info = Info::new_zeroed();
    info.flags = FLAG_AUTOCLEAR | read_only | extra_flags;
    let config = Config {
        descriptor: backing.as_raw_fd() as u32,
        block_size: options.sector_size,
        info,
        reserved: [0; 8],
    };
    // SAFETY: the request takes a pointer to `struct loop_config`, which `config` mirrors (the
    // size is asserted above) and which lives through the call; the kernel only reads it.
    let answer = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, &raw const config) };
    check(answer.into()).map(|_| ())
}

fn status_flags(device: &File) -> Result<u32, Errno> {
    let mut info = Info::new_zeroed();
    // SAFETY: the request takes a pointer to `struct loop_info64`, which `info` mirrors (the
    // size is asserted above) and which nothing else uses during the call.
    let answer = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS as _, &raw mut info) };
    check(answer.into()).map(|_| info.flags)
}

/// An ioctl whose argument is a plain number.
fn ioctl(file: &File, request: libc::c_ulong, argument: libc::c_ulong) -> Result<i64, Errno> {
    // SAFETY: the requests passed here take a number or nothing, and touch no memory.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), request as _, argument) };
    check(answer.into())
}
