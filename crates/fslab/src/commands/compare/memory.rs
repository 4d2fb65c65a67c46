//! Chooses a directory in memory for the images of quick comparisons, because a disk would add
//! noise.

use std::path::{Path, PathBuf};

use fslab_compare::Plan;
use fslab_compare::plan::ImagePlan;

/// The directory where Linux keeps files in memory.
const DIRECTORY: &str = "/dev/shm";

/// `f_type` of tmpfs.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Memory must have room for this many images: a new image, an aged image, and the page cache.
const IMAGES: u64 = 3;

/// Returns the directory for images in memory and a remark for the report. Returns `None` if the
/// plan has no images, or if memory has no room for them.
///
/// `reason` is the option that requests images in memory.
pub(super) fn for_images(plan: &Plan, reason: &str) -> Option<(PathBuf, String)> {
    let mut images = plan.targets.iter().filter_map(|target| target.kind.image());
    let has_image = images.any(ImagePlan::is_on_image);
    let has_room = free_bytes()? >= plan.image_size.saturating_mul(IMAGES);
    (has_image && has_room).then(|| {
        let remark = format!(
            "images are in memory ({DIRECTORY}) because of {reason}, so no disk is measured; \
             use `--work-dir DIR` to put them into another directory"
        );
        (PathBuf::from(DIRECTORY), remark)
    })
}

/// Returns the free bytes of /dev/shm; `None` if it is not a tmpfs.
pub fn free_bytes() -> Option<u64> {
    let directory = Path::new(DIRECTORY);
    let is_tmpfs =
        rustix::fs::statfs(directory).is_ok_and(|found| found.f_type as u64 == TMPFS_MAGIC);
    let space = rustix::fs::statvfs(directory).ok().filter(|_| is_tmpfs)?;
    Some(space.f_bavail.saturating_mul(space.f_frsize))
}

#[cfg(test)]
mod tests {
    use fslab_compare::plan::Form;

    use super::*;
    use crate::commands::built_in;

    #[test]
    fn images_are_kept_in_memory_only_if_they_fit() {
        let plan = |name| built_in::find(name).unwrap().plan(Form::Quick).unwrap();
        let in_process = plan(super::super::IN_PROCESS_PLAN);
        assert_eq!(for_images(&in_process, "--quick"), None, "there is no image");
        let mut plan = plan(super::super::QUICK_PLAN);
        plan.image_size = 1 << 60;
        assert_eq!(for_images(&plan, "--quick"), None, "there is no room");
    }
}
