//! Finds the tree that contains a path, and executes commands on it. If the tree is mounted, its
//! daemon executes them; otherwise this process opens the tree.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fslab_sys::dead_mount::DeadMount;
use fslab_sys::mounts::{self, MountEntry};
use fslab_tier::closed_root::Treatment;
use fslab_tier::command::{self, Command, Event};
use fslab_tier::home::Home;
use fslab_tier::stored::Marks;
use fslab_tier::{Tier, own_request};
use fslab_vfs::FileSystem;

use super::as_user;
use crate::commands::places;
use crate::commands::umount::Daemon;
use crate::layers::{around, close_owners_tree};
use crate::runtime;

/// The name of the tier layer's service.
const SERVICE: &str = "tier";

/// Maximum time to wait for the next daemon of a mount with `-o keep`.
const NEXT_DAEMON_WAIT_MAX: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(10);

/// A tree, and how commands on it are executed.
pub enum Access {
    /// The tree is mounted; its daemon executes commands.
    Mounted(MountEntry),
    /// The tree is not mounted; this process opens the directory.
    Directory(PathBuf),
}

impl Access {
    /// Returns the tree that contains a path, and the path relative to the tree's root.
    pub fn to(path: &Path) -> Result<(Self, Vec<u8>)> {
        let path = resolved(path)?;
        let mounts = mounts::list().context("can't read the list of mounts")?;
        let around = mounts.into_iter().filter(|mount| path.starts_with(&mount.target));
        let nearest = around.max_by_key(|mount| mount.target.as_os_str().len());
        if let Some(mount) = nearest.filter(|mount| mount.file_system == "fuse.fslab") {
            let inner = inner_path(&path, &mount.target);
            return Ok((Self::Mounted(mount), inner));
        }
        let mark = Marks::of_this_process().tree_name();
        let is_tree =
            |path: &&Path| rustix::fs::getxattr(*path, mark, &mut [0_u8; 4096][..]).is_ok();
        let Some(root) = path.ancestors().find(is_tree) else {
            must_be_there(&path)?;
            bail_as!(
                BadInput,
                "{} is not in the tree of a tier; make a tier with `fslab tier init`",
                path.display()
            );
        };
        Ok((Self::Directory(root.to_owned()), inner_path(&path, root)))
    }

    /// Returns the tree that contains all paths. Fails if a path does not exist.
    pub fn to_all(paths: &[PathBuf]) -> Result<(Self, Vec<Vec<u8>>)> {
        let mut all = Vec::new();
        let mut access: Option<Self> = None;
        for path in paths {
            let (found, inner) = Self::to(path)?;
            if access.as_ref().is_some_and(|access| access.root() != found.root()) {
                bail_as!(
                    BadInput,
                    "the paths are in different trees; run the command for each tree"
                );
            }
            access = Some(found);
            all.push(inner);
        }
        paths.iter().try_for_each(|path| must_be_there(path))?;
        Ok((access.context("no path is given")?, all))
    }

    fn root(&self) -> &Path {
        match self {
            Self::Mounted(mount) => &mount.target,
            Self::Directory(root) => root,
        }
    }

    /// Executes a command, and calls `told` for each event. Stops once `told` returns `false`.
    pub fn ask(&self, command: &Command, told: &mut dyn FnMut(Event) -> bool) -> Result<()> {
        match self {
            Self::Mounted(mount) if mount.is_read_only && !command.only_asks() => {
                let root = mount.target.display();
                bail_as!(BadInput, "{root} is mounted read-only, so the tier can't be changed")
            }
            Self::Mounted(mount) if !runtime::may_ask_daemon(mount) => {
                as_user::execute(mount, command, told)
            }
            Self::Mounted(mount) => ask_daemon(mount, command, told),
            Self::Directory(root) => {
                let tier = open(root, command).inspect_err(|_| close_owners_tree(root))?;
                let done = command::execute(&tier, command, &own_request(), told);
                let ended = tier.shutdown();
                told(crate::layers::ended(done));
                Ok(ended?)
            }
        }
    }
}

fn must_be_there(path: &Path) -> Result<()> {
    match path.symlink_metadata().map_err(|error| error.kind()) {
        Err(ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            bail_as!(BadInput, "{} does not exist", path.display())
        }
        _ => Ok(()),
    }
}

/// Returns an absolute path without symbolic links, except that its last name may be one. The last
/// name need not exist.
fn resolved(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path)?;
    if let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
        let there = places::resolved(parent)?.join(name);
        if there.is_symlink() {
            return Ok(there);
        }
    }
    places::resolved(&path)
}

fn inner_path(path: &Path, root: &Path) -> Vec<u8> {
    path.strip_prefix(root).map_or(Vec::new(), |inner| inner.as_os_str().as_bytes().to_vec())
}

fn ask_daemon(
    mount: &MountEntry,
    command: &Command,
    told: &mut dyn FnMut(Event) -> bool,
) -> Result<()> {
    let mut stream = connect(mount)?;
    let question = serde_json::to_string(command)? + "\n";
    stream.write_all(question.as_bytes()).context("can't send the command to the daemon")?;
    for line in BufReader::new(&stream).lines() {
        let line = line.context("can't read the daemon's reply")?;
        let event = serde_json::from_str(&line)
            .context("this fslab does not understand the daemon's reply")?;
        let is_last = matches!(event, Event::End { .. });
        if !told(event) || is_last {
            return Ok(());
        }
    }
    bail!("the daemon of {} exited before it replied", mount.target.display())
}

/// Connects to the daemon. If a daemon with `-o keep` was killed, waits for the next one.
fn connect(mount: &MountEntry) -> Result<UnixStream> {
    let (shown, start) = (mount.target.display(), Instant::now());
    loop {
        let is_late = start.elapsed() >= NEXT_DAEMON_WAIT_MAX;
        // This check must precede the search for the socket. In the reverse order, a daemon that
        // makes its sockets between both steps would appear to have no socket.
        let has_begun = Daemon::has_made_its_sockets(mount);
        let is_dead = || matches!(DeadMount::on(&mount.target, "fuse.fslab"), Ok(Some(_)));
        match runtime::find_socket(mount, &shown, SERVICE)? {
            Some(socket) => match runtime::connect(&socket) {
                Ok(stream) => return Ok(stream),
                Err(error) if is_late || is_dead() => bail!(
                    "the daemon of {shown} does not answer on {}: {error}; if it is dead, replace \
                     the mount with `fslab mount -o replace`",
                    socket.display()
                ),
                Err(_) => {}
            },
            // The next daemon may already have removed the socket of the killed daemon.
            None if is_dead() => {
                bail!(
                    "the daemon of {shown} is dead; replace the mount with `fslab mount -o replace`"
                )
            }
            None if is_late || has_begun => {
                bail_as!(
                    BadInput,
                    "{shown} is mounted without the layer tier; mount it with -l tier"
                )
            }
            None => {}
        }
        std::thread::sleep(PAUSE);
    }
}

/// Opens the tree of a tier that is not mounted. A query does not change the mode of the tree's
/// root directory.
fn open(root: &Path, command: &Command) -> Result<Arc<Tier>> {
    let tree: Arc<dyn FileSystem> = Arc::new(super::own_tree(root)?);
    let home = Home::read(&crate::layers::home_of(&*tree)?)?;
    let around = around(&crate::stack_context::of_program());
    let mut settings = home.settings();
    if command.only_asks() {
        settings.root = Treatment::Leave;
    }
    Ok(home.open(tree, settings, around)?)
}
