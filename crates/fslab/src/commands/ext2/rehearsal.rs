//! A copy-on-write device for `--dry-run`. An operation runs as usual, but its changes go to a
//! temporary file instead of the image.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};
use fslab_vfs::{BlockDevice, Errno};
use parking_lot::RwLock;

use crate::leaves::open_device;

/// Size of a page, in bytes. The temporary file contains whole pages.
const PAGE_BYTES: u64 = 4096;

/// An image and the changes to it. Reads beyond the end of the image return zeros.
pub struct Rehearsal<D> {
    image: D,
    size: u64,
    changed: RwLock<Changed>,
}

/// The changed pages, in an unnamed file, each at its offset in the image. They are not in memory,
/// because shrinking a file system may move more data than fits there.
struct Changed {
    pages: BTreeSet<u64>,
    content: File,
}

impl Changed {
    fn nothing() -> Result<Self> {
        // The default directory is not /tmp, which is often in memory.
        let directory = std::env::var_os("TMPDIR").unwrap_or_else(|| "/var/tmp".into());
        let failed = || format!("can't make a temporary file in {}", directory.display());
        let content = tempfile::tempfile_in(&directory).with_context(failed)?;
        Ok(Self { pages: BTreeSet::new(), content })
    }
}

/// Opens an image for a dry run. If `size` is given, the device has this size instead of the
/// image's.
///
/// # Errors
/// Fails in the same cases as [`open_device`].
pub fn open(image: &Path, size: Option<u64>) -> Result<Rehearsal<impl BlockDevice + use<>>> {
    let image = open_device(image, true)?;
    let size = size.unwrap_or(image.size());
    Ok(Rehearsal { image, size, changed: RwLock::new(Changed::nothing()?) })
}

impl<D: BlockDevice> Rehearsal<D> {
    /// Returns the current content of a page.
    fn page(&self, changed: &Changed, page: u64) -> fslab_vfs::Result<Vec<u8>> {
        let (mut bytes, start) = (vec![0; PAGE_BYTES as usize], page * PAGE_BYTES);
        if changed.pages.contains(&page) {
            changed.content.read_exact_at(&mut bytes, start)?;
            return Ok(bytes);
        }
        let there = self.image.size().saturating_sub(start).min(PAGE_BYTES) as usize;
        if there > 0 {
            self.image.read_at(start, &mut bytes[..there])?;
        }
        Ok(bytes)
    }

    /// Checks that a range lies within the device.
    fn check(&self, offset: u64, length: u64) -> fslab_vfs::Result<()> {
        let is_inside = offset.checked_add(length).is_some_and(|end| end <= self.size);
        if is_inside { Ok(()) } else { Err(Errno::INVAL.into()) }
    }

    /// Changes a range of the device. The range is split by pages; `change` is called with each
    /// part, and with its offset within the range.
    fn change(
        &self,
        offset: u64,
        length: u64,
        change: impl Fn(&mut [u8], usize),
    ) -> fslab_vfs::Result<()> {
        self.check(offset, length)?;
        let mut changed = self.changed.write();
        for (page, within, done) in parts(offset, length) {
            let mut bytes = self.page(&changed, page)?;
            change(&mut bytes[within], done);
            changed.content.write_all_at(&bytes, page * PAGE_BYTES)?;
            changed.pages.insert(page);
        }
        Ok(())
    }
}

/// Splits a range at page boundaries. Yields the page number, the range within the page, and the
/// offset within the whole range.
fn parts(offset: u64, length: u64) -> impl Iterator<Item = (u64, std::ops::Range<usize>, usize)> {
    let end = offset + length;
    let pages = offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
    pages.filter(move |_| length > 0).map(move |page| {
        let first = (page * PAGE_BYTES).max(offset);
        let last = ((page + 1) * PAGE_BYTES).min(end);
        let within = first - page * PAGE_BYTES..last - page * PAGE_BYTES;
        (page, within.start as usize..within.end as usize, (first - offset) as usize)
    })
}

impl<D: BlockDevice> BlockDevice for Rehearsal<D> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> fslab_vfs::Result<()> {
        self.check(offset, buffer.len() as u64)?;
        let changed = self.changed.read();
        for (page, within, done) in parts(offset, buffer.len() as u64) {
            let length = within.len();
            let bytes = self.page(&changed, page)?;
            buffer[done..done + length].copy_from_slice(&bytes[within]);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> fslab_vfs::Result<()> {
        self.change(offset, data.len() as u64, |part, done| {
            part.copy_from_slice(&data[done..done + part.len()]);
        })
    }

    fn discard(&self, offset: u64, length: u64) -> fslab_vfs::Result<()> {
        self.change(offset, length, |part, _done| part.fill(0))
    }

    fn flush(&self) -> fslab_vfs::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use fslab_vfs::MemoryDevice;

    use super::*;

    #[test]
    fn rehearsal_reads_its_changes_and_keeps_the_image_unchanged() {
        let image = MemoryDevice::new(10_000);
        image.write_at(0, &[7; 10_000]).unwrap();
        let changed = RwLock::new(Changed::nothing().unwrap());
        let device = Rehearsal { image, size: 20_000, changed };
        device.write_at(4000, &[1; 200]).unwrap();
        device.discard(9_000, 2_000).unwrap();
        device.write_at(19_999, &[2]).unwrap();
        let mut bytes = vec![0; 20_000];
        device.read_at(0, &mut bytes).unwrap();
        let expected = |place: usize| match place {
            4000..4200 => 1,
            19_999 => 2,
            0..9_000 => 7,
            _ => 0,
        };
        let wrong = (0..20_000).find(|place| bytes[*place] != expected(*place));
        assert_eq!(wrong, None);
        device.image.read_at(0, &mut bytes[..10_000]).unwrap();
        assert!(bytes[..10_000].iter().all(|byte| *byte == 7));
        assert!(device.write_at(19_999, &[1, 1]).is_err());
        assert!(device.read_at(u64::MAX, &mut [0]).is_err());
    }
}
