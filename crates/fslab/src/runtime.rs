//! Where mounts can be asked: a socket a mount, in a directory that only its user can enter.
//!
//! `/run/fslab` for root, `/run/user/UID/fslab` for others, and `/tmp/fslab-UID` where there is no
//! such place. Nothing of the environment decides, because the one who asks and the daemon may
//! have different ones. A socket is named by the device number of its mount, which no two mounts
//! share.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::exit::{Code, Coded};

/// How the name of a socket ends.
const SUFFIX: &str = ".sock";

/// Where the sockets of a user's mounts may be, the best place first.
fn places_of(uid: u32) -> [PathBuf; 2] {
    let run = if uid == 0 { "/run".into() } else { PathBuf::from(format!("/run/user/{uid}")) };
    [run.join("fslab"), PathBuf::from(format!("/tmp/fslab-{uid}"))]
}

/// The name of the socket where a mount tells what its layers counted.
pub fn socket_name(device: (u32, u32)) -> String {
    format!("{}-{}{SUFFIX}", device.0, device.1)
}

/// The name of the socket where a layer of a mount is asked to do something.
pub fn service_socket_name(device: (u32, u32), service: &str) -> String {
    format!("{}-{}.{service}{SUFFIX}", device.0, device.1)
}

/// A socket of this user's, if there is one.
pub fn find_socket(uid: u32, name: &str) -> Option<PathBuf> {
    let directories = places_of(uid).into_iter().filter(|place| is_private(place, uid));
    directories.map(|place| place.join(name)).find(|socket| socket.exists())
}

/// The directory for sockets of the present user, made if need be; leftovers of daemons that were
/// killed are removed from it.
///
/// # Errors
/// Where no private directory can be had.
pub fn prepare() -> Result<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let places = places_of(uid);
    let usable = places.iter().find(|place| make(place) && is_private(place, uid));
    let Some(place) = usable else {
        let [first, second] = places.map(|place| place.display().to_string());
        let message = format!(
            "no private directory for the socket of `fslab stats`: neither {first} nor {second} \
             can be made with access for user {uid} alone"
        );
        return Err(Coded { code: Code::Missing, message }.into());
    };
    remove_leftovers(place).with_context(|| place.display().to_string())?;
    Ok(place.clone())
}

fn make(place: &Path) -> bool {
    match fs::DirBuilder::new().mode(0o700).create(place) {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::AlreadyExists,
    }
}

/// A directory itself, not a link to one, which only its owner may enter. In /tmp anybody may have
/// made one of this name.
fn is_private(place: &Path, uid: u32) -> bool {
    fs::symlink_metadata(place)
        .is_ok_and(|status| status.is_dir() && status.uid() == uid && status.mode() & 0o077 == 0)
}

/// Nobody listens on the socket of a daemon that was killed.
fn remove_leftovers(place: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(place)? {
        let path = entry?.path();
        let is_socket = path.to_str().is_some_and(|path| path.ends_with(SUFFIX));
        let refused = || {
            let connected = UnixStream::connect(&path);
            connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        };
        if is_socket && refused() {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => tracing::debug!("removed {}, which a killed daemon left", path.display()),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_a_directory_of_ones_own_is_private() {
        let scratch = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let [own, open, link] = ["own", "open", "link"].map(|name| scratch.path().join(name));
        assert!(make(&own) && is_private(&own, uid) && !is_private(&own, uid + 1));
        assert!(make(&own), "made already");
        assert!(make(&open));
        fs::set_permissions(&open, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(!is_private(&open, uid));
        symlink(&own, &link).unwrap();
        assert!(!is_private(&link, uid));
    }

    #[test]
    fn only_sockets_without_a_listener_are_leftovers() {
        let scratch = tempfile::tempdir().unwrap();
        let [dead, alive, other] =
            ["0-1.sock", "0-2.sock", "notes"].map(|name| scratch.path().join(name));
        drop(UnixListener::bind(&dead).unwrap());
        let _listener = UnixListener::bind(&alive).unwrap();
        fs::write(&other, "").unwrap();
        remove_leftovers(scratch.path()).unwrap();
        assert!(!dead.exists() && alive.exists() && other.exists());
    }
}
