//! Refuses paths in a mount with a codec layer. Through such a mount, stored files look like plain
//! files, so they would be encoded a second time.

use std::path::PathBuf;

use anyhow::{Context, Result};
use fslab_sys::mounts::{self, MountEntry};
use rustix::fs::{Mode, OFlags};

use crate::commands::status;

/// Fails if a path lies in a mount whose stack has a codec layer.
///
/// # Errors
/// The path and the lower directory to be used instead; the list of mounts can't be read. A path
/// that can't be opened is no error here, nor is a mount whose daemon does not answer.
pub fn refuse(paths: &[&PathBuf]) -> Result<()> {
    let mut accepted = Vec::new();
    for path in paths {
        // O_PATH does not access the mounted file system, whose daemon may be dead.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let Ok(place) = rustix::fs::open(path.as_path(), flags, Mode::empty()) else { continue };
        let mount = mounts::mount_of(&place).context("can't read the list of mounts")?;
        let Some(mount) = mount.filter(|mount| mount.file_system == "fuse.fslab") else { continue };
        if accepted.contains(&mount.id) {
            continue;
        }
        if has_codec(&mount) {
            let (shown, lower) = (path.display(), mount.source.display());
            let is_root = path.canonicalize().is_ok_and(|path| path == mount.target);
            let what = match is_root {
                true => "a mount".to_owned(),
                false => format!("in the mount {}", mount.target.display()),
            };
            bail_as!(
                BadInput,
                "{shown} is {what}: unmount it, and use its lower directory, {lower}"
            );
        }
        accepted.push(mount.id);
    }
    Ok(())
}

fn has_codec(mount: &MountEntry) -> bool {
    let is_codec = |layer: &String| {
        let name = layer.split(':').next().unwrap_or_default();
        fslab_sca::CODECS.iter().any(|codec| codec.name == name)
    };
    status::layers_of(mount).iter().any(is_codec)
}
