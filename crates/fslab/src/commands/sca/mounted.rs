//! Refuses paths in a mount with a codec layer. In such a mount, stored files appear decoded, so
//! the tools would encode their content a second time.

use std::path::PathBuf;

use anyhow::{Context, Result};
use fslab_sys::mounts;
use rustix::fs::{Mode, OFlags};

use crate::commands::status;

/// Fails if a path lies in a mount whose stack has a codec layer. If the layers of a mount are
/// unknown, fails only if the command encodes or decodes files (`encodes`).
///
/// # Errors
/// Returns an error with the path and with the lower directory to use instead. Also fails if the
/// list of mounts can't be read. A path that can't be opened is ignored here.
pub fn refuse(paths: &[&PathBuf], encodes: bool) -> Result<()> {
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
        let target = mount.target.display();
        let has_codec = match status::layers_of(&mount) {
            Ok(Some(layers)) => layers.iter().any(|layer| is_codec(layer)),
            Ok(None) if encodes => {
                bail_as!(BadInput, "can't find out the layers of the mount {target}: unmount it")
            }
            Err(error) if encodes => {
                let unknown = format!("can't find out the layers of the mount {target}");
                return Err(error.context(unknown));
            }
            // Commands that only read are harmless.
            Ok(None) | Err(_) => false,
        };
        if has_codec {
            let (shown, lower) = (path.display(), mount.source.display());
            let is_root = path.canonicalize().is_ok_and(|path| path == mount.target);
            let what =
                if is_root { "a mount".to_owned() } else { format!("in the mount {target}") };
            bail_as!(
                BadInput,
                "{shown} is {what}: unmount it, and use its lower directory, {lower}"
            );
        }
        accepted.push(mount.id);
    }
    Ok(())
}

/// Returns whether a layer, in the form that `fslab mount -l` accepts, is a codec.
fn is_codec(layer: &str) -> bool {
    let name = layer.split_once(':').map_or(layer, |(name, _)| name);
    fslab_sca::CODECS.iter().any(|codec| codec.name == name)
}
