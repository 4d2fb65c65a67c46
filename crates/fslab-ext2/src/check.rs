//! Checks a file system as `e2fsck -fn` does, and describes each problem with its location.
//!
//! As in e2fsck, there are five passes: inodes and their blocks; directories; the parent of each
//! directory; link counts; bitmaps and group counts. Nothing is written. The work is limited by the
//! size of the image. The memory needed is one bit per block, the block list of each directory, and
//! some bytes for each inode and each indirect block. Directories are checked one at a time, with
//! some bytes for each name.
//!
//! The verdict equals that of e2fsck for the features that this crate knows. Two problems that
//! e2fsck overlooks are also reported, and marked as such:
//!
//! - Names with the same hash are in two leaves of an index, and the second leaf is not marked as a
//!   continuation. The kernel does not find the names in the second leaf.
//! - A name occurs in two blocks of a directory.
//!
//! Copies of the superblock and contents of files are not checked.

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
/// [`Error::NotExt2`] if there is no file system, [`Error::UnknownFeatures`] if it uses an unknown
/// feature, and errors of the device. Damage is part of the report.
pub fn check(device: Arc<dyn BlockDevice>) -> Result<Report> {
    Ok(examine(device, FINDINGS_MAX)?.0)
}

/// Checks a file system. Also returns the image with the results of all passes, if it could be
/// read.
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
