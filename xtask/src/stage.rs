//! A mounted file system in which a suite runs, with reliable clean-up.
//!
//! The lowest file system is a fresh ext4, or XFS or Btrfs if the target requires it. It is on a
//! sparse image with a loop device. Depending on the target, bindfs or a stack of fslab is mounted
//! over it. A stack over the ext2 engine has a second image in the same folder as the first one. At
//! the end, e2fsck must find the second image clean.
//!
//! Dropping a stage unmounts and deletes everything, from the top down. [`Stage::close`] does the
//! same and returns any failure.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;
use std::{fmt, thread};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::enable_uring::{self, EnableUring};
use crate::{environment, process};

/// Size of the image: enough for the largest file of a suite and for a build. The image is sparse.
const IMAGE_SIZE_BYTES: u64 = 4 << 30;

/// Maximum number of attempts to unmount while the mount is busy.
const UNMOUNT_TRIES: usize = 600;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of checks whether a loop device was detached.
const DETACH_TRIES: usize = 100;

/// The user-space file system that is mounted over the kernel's file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// Nothing, to get results without fslab.
    Nothing,
    /// bindfs, for comparison.
    Bindfs,
    /// Layers of fslab.
    Layers,
    /// Layers of fslab whose requests arrive through io_uring.
    LayersOverUring,
    /// The ext2 engine of fslab, with or without layers over it.
    Engine,
}

/// A kind of target.
#[derive(Debug, PartialEq, Eq)]
struct Kind {
    name: &'static str,
    /// The kernel file system at the bottom, and the program that makes it.
    ground: &'static str,
    maker: &'static str,
    over: Over,
}

const KINDS: &[Kind] = &[
    Kind { name: "ext4", ground: "ext4", maker: "mkfs.ext4", over: Over::Nothing },
    Kind { name: "bindfs", ground: "ext4", maker: "mkfs.ext4", over: Over::Bindfs },
    Kind { name: "fslab", ground: "ext4", maker: "mkfs.ext4", over: Over::Layers },
    Kind { name: "fslab-uring", ground: "ext4", maker: "mkfs.ext4", over: Over::LayersOverUring },
    Kind { name: "fslab@xfs", ground: "xfs", maker: "mkfs.xfs", over: Over::Layers },
    Kind { name: "fslab@btrfs", ground: "btrfs", maker: "mkfs.btrfs", over: Over::Layers },
    Kind { name: "fslab-ext2", ground: "ext4", maker: "mkfs.ext4", over: Over::Engine },
];

/// The file systems that a stage mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    kind: &'static Kind,
    /// Layers of fslab, from the top.
    layers: Vec<String>,
}

impl FromStr for Target {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, layers) = match text.split_once(':') {
            Some((name, layers)) => (name, layers.split('+').map(str::to_owned).collect()),
            None => (text, Vec::new()),
        };
        let is_meant = |kind: &&Kind| {
            let may_have_layers = match kind.over {
                Over::Nothing | Over::Bindfs => layers.is_empty(),
                Over::Layers | Over::LayersOverUring => !layers.is_empty(),
                Over::Engine => true,
            };
            kind.name == name && may_have_layers && !text.ends_with(':')
        };
        match KINDS.iter().find(is_meant) {
            Some(kind) => Ok(Self { kind, layers }),
            None => bail!(
                "unknown target {text:?}: use ext4, bindfs, fslab:LAYER[+LAYER]..., \
                 fslab-uring:LAYER..., fslab@xfs:LAYER..., fslab@btrfs:LAYER... or \
                 fslab-ext2[:LAYER[+LAYER]...]"
            ),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.kind.name)?;
        if self.layers.is_empty() {
            Ok(())
        } else {
            write!(formatter, ":{}", self.layers.join("+"))
        }
    }
}

impl Target {
    /// Returns the program that the target needs in addition to those of ext4.
    pub fn program(&self) -> &'static str {
        match self.kind.over {
            Over::Bindfs => "bindfs",
            Over::Engine => "e2fsck",
            Over::Nothing | Over::Layers | Over::LayersOverUring => self.kind.maker,
        }
    }

    /// Returns the reason why this machine can't mount the target; `None` if it can.
    pub fn obstacle(&self) -> Option<&'static str> {
        let lacks = self.kind.over == Over::LayersOverUring && !enable_uring::is_supported();
        lacks.then_some("this kernel has no FUSE over io_uring (Linux 6.14)")
    }

    /// Returns whether the target is bindfs over ext4.
    pub fn is_bindfs(&self) -> bool {
        self.kind.over == Over::Bindfs
    }

    /// Returns whether the lowest file system is Btrfs.
    pub fn is_on_btrfs(&self) -> bool {
        self.kind.ground == "btrfs"
    }
}

/// Placeholder in a layer's options. It is replaced by the stage's folder, which contains the
/// mounts and is removed with the stage.
pub const BESIDE: &str = "{beside}";

/// A mounted target. Its fields are dropped in this order.
pub struct Stage {
    upper: Option<Mount>,
    lower: Mount,
    folder: TempDir,
    target: Target,
    fslab: PathBuf,
}

impl Stage {
    /// Makes the image and mounts the target. `fslab` is the program that mounts stacks.
    pub fn new(target: &Target, fslab: &Path) -> Result<Self> {
        let folder = public_folder("st-", &std::env::temp_dir())?;
        let (image, point) = (folder.path().join("image"), folder.path().join("lower"));
        fs::create_dir(&point)?;
        let lower = Mount::of_image(target.kind, &image, IMAGE_SIZE_BYTES, "loop", point)?;
        fs::set_permissions(&lower.point, Permissions::from_mode(0o755))?;
        let (target, fslab) = (target.clone(), fslab.to_owned());
        let mut stage = Self { upper: None, lower, folder, target, fslab };
        stage.prepare()?;
        stage.upper = stage.mount_upper()?;
        Ok(stage)
    }

    /// Returns the root of the target's mount, in which the suite runs.
    pub fn directory(&self) -> &Path {
        &self.upper.as_ref().unwrap_or(&self.lower).point
    }

    /// Unmounts the upper file system, if any, and mounts it again.
    pub fn remount(&mut self) -> Result<()> {
        let Some(mut upper) = self.upper.take() else { return Ok(()) };
        upper.unmount()?;
        self.upper = self.mount_upper()?;
        Ok(())
    }

    /// Makes a folder next to the mounts, on another file system. All users can read it.
    pub fn beside(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.path().join(name);
        fs::create_dir_all(&folder)?;
        fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
        Ok(folder)
    }

    /// Unmounts and deletes everything. Fails if something could not be removed, or if the engine's
    /// image is not clean according to e2fsck.
    pub fn close(mut self) -> Result<()> {
        if let Some(mut upper) = self.upper.take() {
            upper.unmount()?;
        }
        if self.target.kind.over == Over::Engine {
            let mut e2fsck = environment::tool("e2fsck")?;
            process::capture(e2fsck.arg("-fn").arg(self.engine_image()))?;
        }
        self.lower.unmount()?;
        let image = self.folder.path().join("image");
        expect_detached(&image)?;
        let path = self.folder.path().to_path_buf();
        self.folder.close().with_context(|| format!("cannot delete {}", path.display()))
    }

    fn engine_image(&self) -> PathBuf {
        self.folder.path().join("engine-image")
    }

    fn fslab(&self, command: &str) -> Command {
        let mut fslab = Command::new(&self.fslab);
        fslab.arg(command);
        fslab
    }

    /// Prepares the mount of the layers: makes the engine's image, or initialises the tree for the
    /// layer tier.
    fn prepare(&self) -> Result<()> {
        let is_tier = |layer: &String| layer.split(':').next() == Some("tier");
        let (mut ext2, mut tier) = (self.fslab("ext2"), self.fslab("tier"));
        let command = match self.target.kind.over {
            Over::Engine => {
                ext2.arg("mkfs").arg(self.engine_image()).arg(format!("{IMAGE_SIZE_BYTES}B"))
            }
            Over::Layers if self.target.layers.iter().any(is_tier) => {
                tier.args(["init", "--archive"]).arg(self.folder.path().join("archive"));
                tier.arg("--home").arg(self.folder.path().join("home")).arg(&self.lower.point)
            }
            _ => return Ok(()),
        };
        process::capture(command).map(drop)
    }

    fn mount_upper(&self) -> Result<Option<Mount>> {
        let (mut command, unmount) = match self.target.kind.over {
            Over::Nothing => return Ok(None),
            Over::Bindfs => (environment::tool("bindfs")?, Command::new("umount")),
            Over::Layers | Over::LayersOverUring | Over::Engine => {
                (self.fslab("mount"), self.fslab("umount"))
            }
        };
        let is_over_uring = self.target.kind.over == Over::LayersOverUring;
        // The kernel needs the permission only while it mounts.
        let _uring = is_over_uring.then(EnableUring::hold).transpose()?;
        if is_over_uring {
            command.args(["-o", "transport=uring"]);
        }
        let beside = self.folder.path().to_string_lossy();
        for layer in &self.target.layers {
            command.args(["-l", &layer.replace(BESIDE, &beside)]);
        }
        let mut leaf = OsString::new();
        if self.target.kind.over == Over::Engine {
            leaf.push("ext2:");
            leaf.push(self.engine_image());
        } else {
            leaf.push(&self.lower.point);
        }
        let point = self.beside("upper")?;
        Mount::new(command.arg(leaf).arg(&point), point, unmount).map(Some)
    }
}

/// Waits until no loop device uses an image. The kernel detaches the device a little after the
/// unmount if another program, such as blkid, has it open.
fn expect_detached(image: &Path) -> Result<()> {
    let attached = || process::capture(Command::new("losetup").arg("-j").arg(image));
    for _ in 0..DETACH_TRIES {
        if attached()?.is_empty() {
            return Ok(());
        }
        thread::sleep(UNMOUNT_PAUSE);
    }
    bail!("a loop device is still attached: {}", attached()?.trim())
}

/// Makes a temporary folder that other users can enter, because suites act as other users. Its path
/// must be short, because socket paths in it have at most 107 bytes.
pub fn public_folder(prefix: &str, parent: &Path) -> Result<TempDir> {
    let mut folder = tempfile::Builder::new();
    let folder =
        folder.prefix(prefix).permissions(Permissions::from_mode(0o755)).tempdir_in(parent);
    folder.with_context(|| format!("cannot make a folder in {}", parent.display()))
}

/// A mount that is unmounted on drop.
pub struct Mount {
    point: PathBuf,
    /// The command that unmounts the file system.
    unmount: Command,
    mounted: bool,
}

impl Mount {
    fn new(command: &mut Command, point: PathBuf, mut unmount: Command) -> Result<Self> {
        unmount.arg(&point);
        // Make the guard before the call: a signal may arrive after the kernel has mounted the file
        // system.
        let mut mount = Self { point, unmount, mounted: true };
        let outcome = process::capture(command);
        mount.mounted = is_mounted(&mount.point)?;
        outcome?;
        ensure!(
            mount.mounted,
            "{} succeeded, but nothing is mounted on {}",
            process::line_of(command),
            mount.point.display()
        );
        Ok(mount)
    }

    /// Makes a new image with an ext4 file system, and mounts it.
    pub fn of_ext4(image: &Path, size_bytes: u64, options: &str, point: PathBuf) -> Result<Self> {
        Self::of_image(&KINDS[0], image, size_bytes, options, point)
    }

    /// Makes a new sparse image with the lowest file system of a kind, and mounts it.
    fn of_image(
        kind: &Kind,
        image: &Path,
        size_bytes: u64,
        options: &str,
        point: PathBuf,
    ) -> Result<Self> {
        File::create(image)?.set_len(size_bytes)?;
        let force = if kind.ground == "ext4" { "-F" } else { "-f" };
        process::capture(environment::tool(kind.maker)?.args(["-q", force]).arg(image))?;
        let mut mount = Command::new("mount");
        // `mount` sets up a loop device, which the kernel detaches at the unmount.
        mount.args(["-t", kind.ground, "-o", options]).arg(image).arg(&point);
        Self::new(&mut mount, point, Command::new("umount"))
    }

    fn unmount(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        for _ in 0..UNMOUNT_TRIES {
            if !is_mounted(&self.point)? {
                self.mounted = false;
                return Ok(());
            }
            outcome = process::clean_up(&mut self.unmount);
            if outcome.is_err() {
                thread::sleep(UNMOUNT_PAUSE);
            }
        }
        outcome.with_context(|| format!("{} is still mounted", self.point.display()))
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

/// Returns whether a folder is a mount point. Reads the kernel's list of mounts, because an access
/// to the folder hangs if its daemon is dead.
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
