//! Checks a file system as `e2fsck -fn` does, and says of each thing that is wrong where it is, in
//! words.
//!
//! Five passes, as in e2fsck: inodes and their blocks; directories; whether each directory hangs
//! where it says; counts of names; bitmaps and counts. Nothing is written. Work is bounded by the
//! size of the image; memory by a bit for each block, some bytes for each inode, each indirect
//! block and each name of one directory, and the list of blocks of each directory.
//!
//! The verdict is that of e2fsck for the features this crate knows. What e2fsck overlooks is said
//! too, and marked so: names of one hash in two leaves of an index which the kernel would not find,
//! and a name that two blocks of a directory have.
//!
//! Not looked at: copies of the superblock, contents of files.

mod counts;
mod finding;
mod image;
mod inodes;
mod lost;
mod names;
mod paths;
mod pointers;
mod repair;
mod shrink;

use std::sync::Arc;

use fslab_vfs::BlockDevice;

pub use finding::{FINDINGS_MAX, Finding, Problem, Report, Subject};
use image::Image;
pub use repair::{Repaired, repair};
pub use shrink::shrink;

use crate::error::{Error, Place, Result};

/// Checks the file system on a device.
///
/// # Errors
/// [`Error::NotExt2`] where there is nothing to check, [`Error::UnknownFeatures`] where any feature
/// is not known, and what the device answers. Damage is in the report.
pub fn check(device: Arc<dyn BlockDevice>) -> Result<Report> {
    Ok(examine(device, FINDINGS_MAX)?.0)
}

/// Checks, and answers what was learnt of the image on the way, where it could be read at all.
fn examine(device: Arc<dyn BlockDevice>, findings_max: usize) -> Result<(Report, Option<Image>)> {
    let mut image = match Image::open(device) {
        Ok(image) => image,
        Err(Error::Damaged(damage)) => {
            let mut report = Report::with_limit(findings_max);
            let subject = match damage.place {
                Place::Group(group) => Subject::Group(group),
                _ => Subject::Superblock,
            };
            report.add(subject, None, Problem::Unreadable(damage.what));
            return Ok((report, None));
        }
        Err(error) => return Err(error),
    };
    image.report = Report::with_limit(findings_max);
    inodes::check(&mut image)?;
    names::check(&mut image)?;
    counts::check_links(&mut image);
    counts::check_bitmaps(&mut image)?;
    counts::check_state(&mut image);
    paths::fill_in(&mut image)?;
    let report = std::mem::take(&mut image.report);
    Ok((report, Some(image)))
}
