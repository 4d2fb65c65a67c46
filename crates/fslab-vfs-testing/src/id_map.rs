//! Id-mapped mounts: they show owners that differ from the stored ones.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fslab_sys::mount_attributes::MountAttributes;
use fslab_sys::mounts::Mount;
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

/// Maps `count` stored ids from `stored` to ids from `shown`. Other ids are shown as those of
/// `nobody`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdMap {
    /// The first id in the file system.
    pub stored: u32,
    /// The first id that users of the mount see.
    pub shown: u32,
    /// Number of ids.
    pub count: u32,
}

/// Mounts the directory `source` on `target` once more, with user and group ids mapped.
///
/// # Errors
/// `EINVAL` if the file system does not support id maps; `EPERM` without CAP_SYS_ADMIN. Errors of
/// creating a user namespace.
pub fn mount_mapped(source: &Path, target: &Path, map: IdMap) -> io::Result<Mount> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, source, flags)?;
    let namespace = UserNamespace::new(map)?;
    let attributes = MountAttributes {
        set: MOUNT_ATTR_IDMAP,
        user_namespace: namespace.descriptor.as_raw_fd() as u64,
        ..MountAttributes::default()
    };
    attributes.give_to(&tree, false)?;
    move_mount(&tree, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(Mount::adopt(target))
}

/// A user namespace with an id map. It exists while its descriptor is open.
struct UserNamespace {
    descriptor: OwnedFd,
}

impl UserNamespace {
    /// Starts a process in a new user namespace. The process is needed only to open that namespace.
    fn new(map: IdMap) -> io::Result<Self> {
        let mut holder = Holder::start()?;
        let process = Path::new("/proc").join(holder.0.id().to_string());
        holder.wait_until_apart(&process)?;
        let IdMap { stored, shown, count } = map;
        let line = format!("{stored} {shown} {count}\n");
        fs::write(process.join("uid_map"), &line)?;
        fs::write(process.join("gid_map"), &line)?;
        Ok(Self { descriptor: fs::File::open(process.join("ns/user"))?.into() })
    }
}

/// A process in a new user namespace that waits for the end of its input.
struct Holder(Child);

impl Holder {
    fn start() -> io::Result<Self> {
        let mut command = Command::new("unshare");
        command.args(["--user", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null());
        command.spawn().map(Self)
    }

    fn wait_until_apart(&mut self, process: &Path) -> io::Result<()> {
        let own = fs::read_link("/proc/self/ns/user")?;
        while fs::read_link(process.join("ns/user"))? == own {
            if let Some(status) = self.0.try_wait()? {
                return Err(io::Error::other(format!("unshare --user ended with {status}")));
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // The process may have exited already.
        if let Err(error) = self.0.kill().and_then(|()| self.0.wait().map(drop)) {
            eprintln!("can't stop the process that held a user namespace: {error}");
        }
    }
}
