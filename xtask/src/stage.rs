//! A mounted file system for a suite to run in, and its sure end.
//!
//! Always a fresh ext4, or XFS or Btrfs where the target says so, on a sparse image through a loop
//! device; over it, where the target says so,
//! bindfs or a stack of fslab. A stack over the ext2 engine has an image of its own beside it,
//! which e2fsck must find clean in the end. Dropping a stage unmounts and deletes everything, from
//! the top down; [`Stage::close`] does the same and tells whether that went well.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;
use std::{fmt, thread};

use anyhow::{Context, Result, anyhow, ensure};
use tempfile::TempDir;

use crate::{environment, process};

/// Room for the largest file of a suite and for a build; the image is sparse.
const IMAGE_SIZE_BYTES: u64 = 4 << 30;

/// How often unmounting is tried while something is still using the mount.
const UNMOUNT_TRIES: usize = 50;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(100);

/// What is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Plain ext4: what a suite does without fslab.
    Ext4,
    /// bindfs over ext4, a peer.
    Bindfs,
    /// Layers of fslab over ext4, top first.
    Fslab(Vec<String>),
    /// Layers of fslab over another file system of the kernel, top first.
    FslabOn(Ground, Vec<String>),
    /// Layers of fslab over the ext2 engine, top first; there may be none.
    Ext2(Vec<String>),
}

/// What lies below the layers where it is not ext4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
}

impl Ground {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Xfs, Self::Btrfs];

    /// As the kernel calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The program that makes one.
    fn maker(self) -> &'static str {
        match self {
            Self::Xfs => "mkfs.xfs",
            Self::Btrfs => "mkfs.btrfs",
        }
    }
}

impl FromStr for Target {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(':') {
            None if text == "ext4" => Ok(Self::Ext4),
            None if text == "bindfs" => Ok(Self::Bindfs),
            None if text == "fslab-ext2" => Ok(Self::Ext2(Vec::new())),
            Some(("fslab", layers)) if !layers.is_empty() => Ok(Self::Fslab(split(layers))),
            Some(("fslab-ext2", layers)) if !layers.is_empty() => Ok(Self::Ext2(split(layers))),
            Some((on, layers)) if !layers.is_empty() => match ground(on) {
                Some(ground) => Ok(Self::FslabOn(ground, split(layers))),
                None => Err(unknown(text)),
            },
            _ => Err(unknown(text)),
        }
    }
}

fn ground(on: &str) -> Option<Ground> {
    let name = on.strip_prefix("fslab@")?;
    Ground::ALL.into_iter().find(|ground| ground.name() == name)
}

fn unknown(text: &str) -> anyhow::Error {
    anyhow!(
        "unknown target {text:?}: use ext4, bindfs, fslab:LAYER[+LAYER]..., fslab@xfs:LAYER..., \
         fslab@btrfs:LAYER... or fslab-ext2[:LAYER[+LAYER]...]"
    )
}

fn split(layers: &str) -> Vec<String> {
    layers.split('+').map(str::to_owned).collect()
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ext4 => formatter.write_str("ext4"),
            Self::Bindfs => formatter.write_str("bindfs"),
            Self::Fslab(layers) => write!(formatter, "fslab:{}", layers.join("+")),
            Self::FslabOn(ground, layers) => {
                write!(formatter, "fslab@{}:{}", ground.name(), layers.join("+"))
            }
            Self::Ext2(layers) if layers.is_empty() => formatter.write_str("fslab-ext2"),
            Self::Ext2(layers) => write!(formatter, "fslab-ext2:{}", layers.join("+")),
        }
    }
}

impl Target {
    /// The program that must be there besides ext4's.
    pub fn program(&self) -> Option<&'static str> {
        match self {
            Self::Bindfs => Some("bindfs"),
            Self::Ext2(_) => Some("e2fsck"),
            Self::FslabOn(ground, _) => Some(ground.maker()),
            Self::Ext4 | Self::Fslab(_) => None,
        }
    }

    /// Whether the program of this house mounts it.
    pub fn is_of_fslab(&self) -> bool {
        matches!(self, Self::Fslab(_) | Self::FslabOn(..) | Self::Ext2(_))
    }

    /// Its layers, where they lie over a file system of the kernel.
    fn layers(&self) -> &[String] {
        match self {
            Self::Fslab(layers) | Self::FslabOn(_, layers) => layers,
            Self::Ext4 | Self::Bindfs | Self::Ext2(_) => &[],
        }
    }
}

/// Stands in a layer for a folder beside the mounts, which goes with the stage.
pub const BESIDE: &str = "{beside}";

/// A mounted target. The fields are dropped in this order.
pub struct Stage {
    upper: RefCell<Option<Mount>>,
    lower: Mount,
    folder: TempDir,
    target: Target,
    fslab: PathBuf,
    directory: PathBuf,
}

impl Stage {
    /// Makes the image and mounts the target; `fslab` is the program to mount stacks with.
    pub fn new(target: &Target, fslab: &Path) -> Result<Self> {
        let folder = public_folder()?;
        let lower = mount_lower(target, folder.path())?;
        let (upper, directory) = (RefCell::new(None), lower.point.clone());
        let (target, fslab) = (target.clone(), fslab.to_owned());
        let mut stage = Self { upper, lower, folder, target, fslab, directory };
        if let Target::Ext2(_) = stage.target {
            stage.make_engine_image()?;
        }
        stage.make_tier()?;
        let upper = stage.mount_upper()?;
        if let Some(upper) = &upper {
            stage.directory.clone_from(&upper.point);
        }
        stage.upper = RefCell::new(upper);
        Ok(stage)
    }

    /// The folder to test in: the root of the target's mount.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Unmounts what lies over the ext4, if anything, and mounts it again.
    pub fn remount(&self) -> Result<()> {
        let Some(mut upper) = self.upper.take() else { return Ok(()) };
        upper.unmount()?;
        *self.upper.borrow_mut() = self.mount_upper()?;
        Ok(())
    }

    /// A folder beside the mounts, on another file system, open to all users.
    pub fn beside(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.path().join(name);
        fs::create_dir_all(&folder)?;
        fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
        Ok(folder)
    }

    /// Unmounts and deletes, and fails if anything resisted or stayed behind, or if the engine's
    /// image is not clean.
    pub fn close(mut self) -> Result<()> {
        if let Some(mut upper) = self.upper.take() {
            upper.unmount()?;
        }
        if let Target::Ext2(_) = self.target {
            let mut e2fsck = environment::tool("e2fsck")?;
            process::capture(e2fsck.arg("-fn").arg(self.engine_image()))?;
        }
        self.lower.unmount()?;
        let image = self.folder.path().join("image");
        let attached = process::capture(Command::new("losetup").arg("-j").arg(&image))?;
        ensure!(attached.is_empty(), "a loop device stayed attached: {}", attached.trim());
        let path = self.folder.path().to_path_buf();
        self.folder.close().with_context(|| format!("cannot delete {}", path.display()))
    }

    fn engine_image(&self) -> PathBuf {
        self.folder.path().join("engine-image")
    }

    fn make_engine_image(&self) -> Result<()> {
        let mut mkfs = Command::new(&self.fslab);
        mkfs.args(["ext2", "mkfs"]).arg(self.engine_image()).arg(format!("{IMAGE_SIZE_BYTES}B"));
        process::capture(&mut mkfs).map(drop)
    }

    /// The layer tier is mounted over trees that were given to a tier.
    fn make_tier(&self) -> Result<()> {
        let is_tier = |layer: &String| layer == "tier" || layer.starts_with("tier:");
        if !self.target.layers().iter().any(is_tier) {
            return Ok(());
        }
        let mut init = Command::new(&self.fslab);
        init.args(["tier", "init", "--archive"]).arg(self.folder.path().join("archive"));
        init.arg("--home").arg(self.folder.path().join("home")).arg(&self.lower.point);
        process::capture(&mut init).map(drop)
    }

    /// What lies below the layers, as `fslab mount` takes it.
    fn leaf(&self) -> OsString {
        match self.target {
            Target::Ext2(_) => {
                let mut leaf = OsString::from("ext2:");
                leaf.push(self.engine_image());
                leaf
            }
            _ => self.lower.point.clone().into_os_string(),
        }
    }

    fn mount_upper(&self) -> Result<Option<Mount>> {
        let (target, fslab) = (&self.target, self.fslab.as_path());
        let mut command = match target {
            Target::Ext4 => return Ok(None),
            Target::Bindfs => environment::tool("bindfs")?,
            Target::Fslab(layers) | Target::FslabOn(_, layers) | Target::Ext2(layers) => {
                let mut command = Command::new(fslab);
                command.arg("mount");
                let beside = self.folder.path().to_string_lossy();
                for layer in layers {
                    command.args(["-l", &layer.replace(BESIDE, &beside)]);
                }
                command
            }
        };
        let unmount = match target.is_of_fslab() {
            true => vec![fslab.into(), "umount".into()],
            false => vec![PathBuf::from("umount")],
        };
        let point = self.beside("upper")?;
        command.arg(self.leaf()).arg(&point);
        Mount::new(&mut command, point, unmount).map(Some)
    }
}

/// A temporary folder that other users can pass through, as suites act as other users.
fn public_folder() -> Result<TempDir> {
    let folder = tempfile::Builder::new()
        // Names of sockets in it may have 107 bytes.
        .prefix("st-")
        .permissions(Permissions::from_mode(0o755))
        .tempdir()
        .context("cannot make a temporary folder")?;
    Ok(folder)
}

/// The file system that is below everything.
fn mount_lower(target: &Target, folder: &Path) -> Result<Mount> {
    let (name, maker, arguments) = match target {
        Target::FslabOn(ground, _) => (ground.name(), ground.maker(), ["-q", "-f"]),
        _ => ("ext4", "mkfs.ext4", ["-q", "-F"]),
    };
    let (image, point) = (folder.join("image"), folder.join("lower"));
    File::create(&image)?.set_len(IMAGE_SIZE_BYTES)?;
    fs::create_dir(&point)?;
    let mut mkfs = environment::tool(maker)?;
    process::capture(mkfs.args(arguments).arg(&image))?;
    let mut mount = Command::new("mount");
    // The kernel detaches a loop device that `mount` set up when it is unmounted, by whomever.
    mount.args(["-t", name, "-o", "loop"]).arg(&image).arg(&point);
    let mount = Mount::new(&mut mount, point, vec![PathBuf::from("umount")])?;
    fs::set_permissions(&mount.point, Permissions::from_mode(0o755))?;
    Ok(mount)
}

/// Something mounted, until this is dropped.
struct Mount {
    point: PathBuf,
    /// The program and first arguments that unmount it.
    unmount: Vec<PathBuf>,
    mounted: bool,
}

impl Mount {
    fn new(command: &mut Command, point: PathBuf, unmount: Vec<PathBuf>) -> Result<Self> {
        // A guard from before the call: a signal may come when the mount is already there.
        let mut mount = Self { point, unmount, mounted: true };
        let outcome = process::capture(command);
        mount.mounted = is_mounted(&mount.point)?;
        outcome?;
        ensure!(
            mount.mounted,
            "{} succeeded and mounted nothing on {}",
            process::line_of(command),
            mount.point.display()
        );
        Ok(mount)
    }

    fn unmount(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        for _ in 0..UNMOUNT_TRIES {
            if !is_mounted(&self.point)? {
                self.mounted = false;
                return Ok(());
            }
            outcome = process::clean_up(&mut self.unmount_command());
            if outcome.is_err() {
                thread::sleep(UNMOUNT_PAUSE);
            }
        }
        outcome.with_context(|| format!("{} stays mounted", self.point.display()))
    }

    fn unmount_command(&self) -> Command {
        let mut command = Command::new(self.unmount.first().map_or(Path::new("umount"), |p| p));
        command.args(self.unmount.iter().skip(1)).arg(&self.point);
        command
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !self.mounted {
            return;
        }
        if let Err(error) = self.unmount() {
            eprintln!("xtask: {error:#}; unmounting it lazily");
            if let Err(error) = process::clean_up(Command::new("umount").arg("-l").arg(&self.point))
            {
                eprintln!("xtask: {error:#}");
            }
        }
    }
}

/// Looked up in the kernel's list: touching the folder itself could hang on a dead daemon.
fn is_mounted(point: &Path) -> Result<bool> {
    let list = fs::read_to_string("/proc/self/mountinfo").context("cannot list mounts")?;
    Ok(lists(&list, point))
}

fn lists(mountinfo: &str, point: &Path) -> bool {
    mountinfo.lines().filter_map(|line| line.split(' ').nth(4)).any(|on| Path::new(on) == point)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_read_back_as_they_are_written() {
        let stacks = [
            "fslab:null",
            "fslab:null:passthrough=off+trace",
            "fslab-ext2:gzip",
            "fslab@xfs:tier",
            "fslab@btrfs:null:passthrough=off+gzip",
        ];
        for text in ["ext4", "bindfs", "fslab-ext2"].into_iter().chain(stacks) {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        let grounds = ["fslab@xfs", "fslab@xfs:", "fslab@ext2:null", "@xfs:null"];
        let others = ["", "fslab", "fslab:", "fslab-ext2:", "xfs", "ext4:null"];
        for wrong in grounds.into_iter().chain(others) {
            let error = wrong.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(&format!("{wrong:?}")), "{error}");
        }
    }

    #[test]
    fn a_mount_is_found_by_its_whole_path() {
        let list = "36 35 7:0 / /tmp/stage/lower rw,noatime - ext4 /dev/loop0 rw\n";
        assert!(lists(list, Path::new("/tmp/stage/lower")));
        assert!(!lists(list, Path::new("/tmp/stage")));
        assert!(!lists(list, Path::new("/dev/loop0")));
    }
}
