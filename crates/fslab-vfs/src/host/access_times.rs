//! Uses a directory with another access time option than that of its mount.

use std::os::fd::OwnedFd;

use fslab_sys::mount_attributes::copy_with_access_times;
use rustix::fs::StatVfsMountFlags;

use crate::access_times::AccessTimes;
use crate::error::Result;

/// Returns a copy of the directory's mount with the chosen option, if the mount has another one.
pub(super) fn copied_for(root: &OwnedFd, choice: AccessTimes) -> Result<Option<OwnedFd>> {
    let usual = choice == AccessTimes::Usual;
    if usual || is_mounted_so(rustix::fs::fstatvfs(root)?.f_flag, choice) {
        return Ok(None);
    }
    let (files, directories) = (choice != AccessTimes::Never, choice == AccessTimes::Relative);
    Ok(Some(copy_with_access_times(root, files, directories)?))
}

/// Whether a mount with these flags updates access times as chosen.
fn is_mounted_so(flags: StatVfsMountFlags, choice: AccessTimes) -> bool {
    const NOATIME: StatVfsMountFlags = StatVfsMountFlags::NOATIME;
    const NODIRATIME: StatVfsMountFlags = StatVfsMountFlags::NODIRATIME;
    const RELATIME: StatVfsMountFlags = StatVfsMountFlags::RELATIME;
    let has = flags & (NOATIME | NODIRATIME | RELATIME);
    match choice {
        AccessTimes::Usual => true,
        AccessTimes::Relative => has == RELATIME,
        AccessTimes::RelativeOfFiles => has == RELATIME | NODIRATIME,
        AccessTimes::Never => has.contains(NOATIME),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If a mount already has the right option, it is not copied, because only root may copy it.
    #[test]
    fn mount_flags_match_only_the_same_access_time_option() {
        let (noatime, relatime) = (StatVfsMountFlags::NOATIME, StatVfsMountFlags::RELATIME);
        let nodiratime = relatime | StatVfsMountFlags::NODIRATIME;
        let choices = [AccessTimes::Relative, AccessTimes::RelativeOfFiles, AccessTimes::Never];
        for (flags, fits) in [
            (StatVfsMountFlags::empty(), [false, false, false]),
            (relatime | StatVfsMountFlags::RDONLY, [true, false, false]),
            (nodiratime, [false, true, false]),
            (noatime, [false, false, true]),
            (noatime | nodiratime, [false, false, true]),
        ] {
            assert_eq!(choices.map(|choice| is_mounted_so(flags, choice)), fits, "{flags:?}");
        }
    }
}
