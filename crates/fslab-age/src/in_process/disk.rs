//! A device that stores only metadata and sums the modelled time of all requests.

use fslab_vfs::{BlockDevice, MemoryDevice, Result};
use parking_lot::Mutex;

use crate::simulate::{Arm, Disk};

pub struct ModelledDisk {
    kept: MemoryDevice,
    arm: Mutex<Arm<'static>>,
}

impl ModelledDisk {
    /// Makes a disk of `size` bytes that contains only zeros.
    pub fn new(size: u64, disk: &'static Disk) -> Self {
        Self { kept: MemoryDevice::of_metadata(size), arm: Mutex::new(disk.arm()) }
    }

    /// Returns the modelled time of all requests so far, in microseconds.
    pub fn elapsed_us(&self) -> f64 {
        self.arm.lock().elapsed_us()
    }
}

impl BlockDevice for ModelledDisk {
    fn size(&self) -> u64 {
        self.kept.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.arm.lock().read(offset, buffer.len() as u64);
        self.kept.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.arm.lock().write(offset, data.len() as u64);
        self.kept.write_at(offset, data)
    }

    fn read_data_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.arm.lock().read(offset, buffer.len() as u64);
        self.kept.read_data_at(offset, buffer)
    }

    fn write_data_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.arm.lock().write(offset, data.len() as u64);
        self.kept.write_data_at(offset, data)
    }

    fn discard(&self, offset: u64, length: u64) -> Result<()> {
        self.kept.discard(offset, length)
    }

    fn flush(&self) -> Result<()> {
        self.kept.flush()
    }
}
