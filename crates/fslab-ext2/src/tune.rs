//! Changes the label, UUID and reserved percentage of an unmounted file system.

use fslab_vfs::BlockDevice;
use zerocopy::{FromBytes, IntoBytes};

use crate::error::{Error, Result};
use crate::format::{RawSuperblock, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};
use crate::superblock::Superblock;

/// Maximum length of a label, in bytes.
const LABEL_BYTES: usize = 16;

/// The values to change; `None` keeps the current value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// A label of at most 16 bytes, without NUL bytes.
    pub label: Option<Vec<u8>>,
    /// A UUID, which must not be all zeros.
    pub uuid: Option<[u8; 16]>,
    /// Percentage of blocks reserved for the superuser, at most 50.
    pub reserved_percent: Option<u8>,
}

/// Changes the superblock and all its copies. The primary superblock is written last.
///
/// # Errors
/// [`Error::BadParameters`] for invalid values, the errors of [`Superblock::read`], and those of
/// the device.
pub fn tune(device: &dyn BlockDevice, tuning: &Tuning) -> Result<()> {
    tuning.check()?;
    let superblock = Superblock::read(device)?;
    superblock.check_writable()?;
    let geometry = *superblock.geometry();
    for group in geometry.all_groups().skip(1).filter(|group| geometry.has_superblock(*group)) {
        change(device, geometry.offset_of(geometry.first_block(group)), tuning)?;
    }
    device.flush()?;
    change(device, SUPERBLOCK_OFFSET, tuning)?;
    Ok(device.flush()?)
}

/// Changes the superblock at an offset. A damaged copy is left unchanged, for a later repair.
fn change(device: &dyn BlockDevice, offset: u64, tuning: &Tuning) -> Result<()> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    device.read_at(offset, &mut bytes)?;
    if Superblock::parse(&bytes).is_err() {
        return Ok(());
    }
    let Ok(raw) = RawSuperblock::mut_from_bytes(&mut bytes) else { return Ok(()) };
    if let Some(label) = &tuning.label {
        raw.s_volume_name = [0; LABEL_BYTES];
        raw.s_volume_name[..label.len()].copy_from_slice(label);
    }
    raw.s_uuid = tuning.uuid.unwrap_or(raw.s_uuid);
    if let Some(percent) = tuning.reserved_percent {
        let blocks = u64::from(raw.s_blocks_count.get()) * u64::from(percent) / 100;
        raw.s_r_blocks_count = (blocks as u32).into();
    }
    Ok(device.write_at(offset, raw.as_bytes())?)
}

impl Tuning {
    fn check(&self) -> Result<()> {
        let fits = |label: &Vec<u8>| label.len() <= LABEL_BYTES && !label.contains(&0);
        if !self.label.as_ref().is_none_or(fits) {
            return Err(Error::BadParameters("a label must have at most 16 bytes and no NUL byte"));
        }
        if self.uuid == Some([0; 16]) {
            return Err(Error::BadParameters("the UUID must not be zero"));
        }
        if self.reserved_percent.is_some_and(|percent| percent > 50) {
            return Err(Error::BadParameters("at most 50 percent of the blocks can be reserved"));
        }
        Ok(())
    }
}
