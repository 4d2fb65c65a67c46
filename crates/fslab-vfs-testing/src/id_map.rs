//! Id-mapped mounts: a mount of which users see other owners than are stored.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fslab_sys::mount_attributes::MountAttributes;
use fslab_sys::mounts::Mount;
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

/// `MOUNT_ATTR_IDMAP`
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

/// So many ids from `stored` on are shown as those from `shown` on; others are shown as nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdMap {
    /// The first id as the file system has it.
    pub stored: u32,
    /// The first id as users of the mount see it.
    pub shown: u32,
    /// How many there are.
    pub count: u32,
}

/// Mounts what is at `source` on `target` once more, with user and group ids mapped.
///
/// # Errors
/// `EINVAL` where the file system does not allow id maps, `EPERM` without CAP_SYS_ADMIN; what
/// making a user namespace answers.
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

/// A user namespace with a map; it lives as long as its descriptor.
struct UserNamespace {
    descriptor: OwnedFd,
}

impl UserNamespace {
    /// The namespace is taken from a process that only lives for that.
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

/// A process that waits in a new user namespace for the end of its input.
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
        // It may have ended by itself.
        if let Err(error) = self.0.kill().and_then(|()| self.0.wait().map(drop)) {
            eprintln!("a process that held a user namespace: {error}");
        }
    }
}
