//! Which tree a path is in, and how to ask about it: through the daemon that has it mounted, or by
//! opening the tree.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use fslab_sys::dead_mount::DeadMount;
use fslab_sys::mounts::{self, MountEntry};
use fslab_tier::command::{self, Command, Event};
use fslab_tier::home::Home;
use fslab_tier::stored::Marks;
use fslab_tier::{Tier, own_request};
use fslab_vfs::FileSystem;

use super::bad;
use crate::layers::around;
use crate::runtime;

/// The name of the layer's service.
const SERVICE: &str = "tier";

/// A tree that can be asked.
pub enum Access {
    /// Its daemon.
    Mounted(PathBuf, MountEntry),
    /// Its directory.
    Directory(PathBuf),
}

impl Access {
    /// The tree that a path is in, and the path from its root.
    pub fn to(path: &Path) -> Result<(Self, Vec<u8>)> {
        let path = resolved(path)?;
        if let Some(mount) = mount_around(&path)? {
            let inner = inner_path(&path, &mount.target);
            return Ok((Self::Mounted(mount.target.clone(), mount), inner));
        }
        let root = path.ancestors().find(|ancestor| is_tree(ancestor));
        let root = root.ok_or_else(|| match is_missing(&path) {
            true => not_there(&path),
            false => bad(format!(
                "{} is in no tree of a tier; `fslab tier init` makes one",
                path.display()
            )),
        })?;
        let inner = inner_path(&path, root);
        Ok((Self::Directory(root.to_owned()), inner))
    }

    /// The tree that all of some paths are in. Each must be there, before anything is done.
    pub fn to_all(paths: &[PathBuf]) -> Result<(Self, Vec<Vec<u8>>)> {
        let mut all = Vec::new();
        let mut access: Option<Self> = None;
        for path in paths {
            let (found, inner) = Self::to(path)?;
            if access.as_ref().is_some_and(|access| access.root() != found.root()) {
                return Err(bad("the paths are in different trees".to_owned()));
            }
            access = Some(found);
            all.push(inner);
        }
        if let Some(missing) = paths.iter().find(|path| is_missing(path)) {
            return Err(not_there(missing));
        }
        Ok((access.context("no path is given")?, all))
    }

    fn root(&self) -> &Path {
        match self {
            Self::Mounted(root, _) | Self::Directory(root) => root,
        }
    }

    /// Asks, and calls `told` with each thing that is told; `false` ends it.
    pub fn ask(&self, command: &Command, told: &mut dyn FnMut(Event) -> bool) -> Result<()> {
        match self {
            Self::Mounted(root, mount) if mount.is_read_only && !command.only_asks() => {
                let root = root.display();
                Err(bad(format!("{root} is mounted read-only: nothing of the tier is changed")))
            }
            Self::Mounted(root, mount) => ask_daemon(root, mount, command, told),
            Self::Directory(root) => ask_here(root, command, told),
        }
    }
}

fn is_missing(path: &Path) -> bool {
    let found = path.symlink_metadata();
    found.is_err_and(|error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory))
}

fn not_there(path: &Path) -> anyhow::Error {
    bad(format!("{} is not there", path.display()))
}

/// An absolute path without links, but for the last name, which need not be there.
fn resolved(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let there = path.ancestors().skip(1).find_map(|ancestor| {
        let real = ancestor.canonicalize().ok()?;
        Some(real.join(path.strip_prefix(ancestor).ok()?))
    });
    let there = there.unwrap_or(path);
    let is_link = there.symlink_metadata().is_ok_and(|found| found.is_symlink());
    Ok(if is_link { there } else { there.canonicalize().unwrap_or(there) })
}

fn inner_path(path: &Path, root: &Path) -> Vec<u8> {
    path.strip_prefix(root).map_or(Vec::new(), |inner| inner.as_os_str().as_bytes().to_vec())
}

/// The mount of fslab that a path is in.
fn mount_around(path: &Path) -> Result<Option<MountEntry>> {
    let mounts = mounts::list().context("can't read the list of mounts")?;
    let around = mounts.into_iter().filter(|mount| path.starts_with(&mount.target));
    let nearest = around.max_by_key(|mount| mount.target.as_os_str().len());
    Ok(nearest.filter(|mount| mount.file_system == "fuse.fslab"))
}

fn is_tree(path: &Path) -> bool {
    let name = Marks::of_this_process().tree_name();
    rustix::fs::getxattr(path, name, &mut [0_u8; 4096][..]).is_ok()
}

fn ask_daemon(
    root: &Path,
    mount: &MountEntry,
    command: &Command,
    told: &mut dyn FnMut(Event) -> bool,
) -> Result<()> {
    let owner = runtime::owner_to_ask(mount, root.display())?;
    let name = runtime::service_socket_name(mount.device, SERVICE);
    let socket = runtime::find_socket(owner, &name).ok_or_else(|| without_socket(root))?;
    let mut stream = UnixStream::connect(&socket).map_err(|error| {
        let (root, socket) = (root.display(), socket.display());
        anyhow::anyhow!(
            "the daemon of {root} does not answer on {socket}: {error}; where it is dead, \
             `fslab mount -o replace` takes its place"
        )
    })?;
    let question = serde_json::to_string(command)? + "\n";
    stream.write_all(question.as_bytes()).context("asking the daemon")?;
    for line in BufReader::new(&stream).lines() {
        let line = line.context("listening to the daemon")?;
        let event = serde_json::from_str(&line)
            .context("the daemon answers what this fslab does not understand")?;
        if matches!(event, Event::End { .. }) {
            told(event);
            return Ok(());
        }
        if !told(event) {
            return Ok(());
        }
    }
    anyhow::bail!("the daemon of {} ended before it had answered", root.display())
}

/// Another daemon removes the socket of one that was killed.
fn without_socket(root: &Path) -> anyhow::Error {
    let shown = root.display();
    match DeadMount::on(root, "fuse.fslab") {
        Ok(Some(_)) => anyhow::anyhow!(
            "the daemon of {shown} is dead; `fslab mount -o replace` takes its place"
        ),
        _ => bad(format!("{shown} is mounted without the layer tier")),
    }
}

fn ask_here(root: &Path, command: &Command, told: &mut dyn FnMut(Event) -> bool) -> Result<()> {
    let tier = open(root)?;
    let done = command::execute(&tier, command, &own_request(), told);
    let ended = tier.shutdown();
    told(crate::layers::ended(done));
    Ok(ended?)
}

/// Opens the tree itself.
pub fn open(root: &Path) -> Result<Arc<Tier>> {
    let opened = open_tree(root);
    opened.inspect_err(|_| crate::layers::close_owners_tree(root))
}

fn open_tree(root: &Path) -> Result<Arc<Tier>> {
    let tree: Arc<dyn FileSystem> = Arc::new(super::own_tree(root)?);
    let home = Home::read(&crate::layers::home_of(&*tree)?)?;
    let around = around(&crate::stack_context::of_program());
    Ok(home.open(tree, home.settings(), around)?)
}
