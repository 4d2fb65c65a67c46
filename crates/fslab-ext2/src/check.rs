//! Checks a file system as `e2fsck -fn` does and reports each problem with its place, in words.
//!
//! As in e2fsck, there are five passes: inodes and their blocks; directories; the parent of each
//! directory; link counts; bitmaps and group counts. Nothing is written. The work is bounded by the
//! size of the image. Memory holds a bit per block and the block list of each directory. It also
//! holds some bytes for each inode, each indirect block and each name of one directory.
//!
//! The verdict equals that of e2fsck for the features that this crate knows. Two problems that
//! e2fsck overlooks are reported too, and marked. One is a pair of names with one hash in two
//! leaves of an index, where the kernel would not find them. The other is a name that occurs in two
//! blocks of a directory.
//!
//! Not checked: copies of the superblock, contents of files.

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

/// Checks, and also returns the image with all that was learnt about it, if it could be read at
/// all.
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
