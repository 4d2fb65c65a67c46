//! The checks of `fslab doctor`. If possible, a check uses a feature, instead of deriving its
//! support from the kernel version.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use fslab_fuse::{Granted, MountOptions, Session};
use fslab_layers::{Leaf, Stack};
use fslab_sys::make_file_system::Kind;
use fslab_sys::signals::while_deferred;
use fslab_sys::{memory_bound, processors};
use rustix::fs::Access;

use super::{Finding, Part, State};
use crate::commands::compare::memory;
use crate::exit::one_line;
use crate::{stack_context, units};

/// Name of the check that decides whether anything can be mounted.
pub const TRIAL_MOUNT: &str = "trial mount";

/// Minimum number of processors for steady comparisons: one for the harness, one for the daemon.
const PROCESSORS_MIN: usize = 2;

/// Memory that the images of a quick comparison need, in bytes.
const QUICK_BYTES: u64 = 3 << 30;

/// Runs all checks.
pub fn all() -> Vec<Finding> {
    let (trial, granted) = trial_mount();
    let mut all = vec![kernel(), fuse_device(), helper(), trial];
    all.extend(granted.iter().flat_map(of_granted));
    all.extend(granted.iter().map(|_| keep()));
    all.push(io_uring());
    all.push(processor_count());
    all.extend(file_system_tools());
    all.extend([loop_devices(), memory_for_images(), bounded_memory()]);
    all.extend(optional_tools());
    all
}

fn finding(part: Part, name: &'static str, state: State, found: impl Into<String>) -> Finding {
    Finding { part, name, state, found: found.into(), advice: String::new() }
}

impl Finding {
    fn with_advice(self, advice: impl Into<String>) -> Self {
        Self { advice: advice.into(), ..self }
    }
}

fn yes_or(is_there: bool, otherwise: State) -> State {
    if is_there { State::Yes } else { otherwise }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn kernel() -> Finding {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let is_new_enough = version >= (6, 1);
    let found = finding(Part::Mounts, "kernel", yes_or(is_new_enough, State::No), release);
    if is_new_enough { found } else { found.with_advice("fslab needs Linux 6.1 or newer") }
}

fn fuse_device() -> Finding {
    let path = Path::new("/dev/fuse");
    let (state, found, advice) = if !path.exists() {
        (State::No, "there is no /dev/fuse", "load the kernel module: modprobe fuse")
    } else if rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK).is_err() {
        (State::No, "/dev/fuse can't be opened", "as root: chmod 0666 /dev/fuse")
    } else {
        (State::Yes, "/dev/fuse can be opened", "")
    };
    finding(Part::Mounts, "FUSE device", state, found).with_advice(advice)
}

/// Checks for fusermount3, the set-user-ID program with which ordinary users mount.
fn helper() -> Finding {
    let (name, path) = ("helper of ordinary users", program("fusermount3"));
    let found = match &path {
        Some(path) => path.display().to_string(),
        None => "fusermount3 is not installed".to_owned(),
    };
    let state = yes_or(path.is_some(), if is_root() { State::Limited } else { State::No });
    let advice = if path.is_some() { "" } else { "install the package fuse3" };
    finding(Part::Mounts, name, state, found).with_advice(advice)
}

/// Mounts a directory without layers. If this works, also returns the granted limits and features.
fn trial_mount() -> (Finding, Option<Granted>) {
    match mounted(&MountOptions::default()) {
        Ok(granted) => {
            let found = "mounted and unmounted a directory";
            (finding(Part::Mounts, TRIAL_MOUNT, State::Yes, found), Some(granted))
        }
        Err(error) => {
            let found = finding(Part::Mounts, TRIAL_MOUNT, State::No, one_line(&error));
            (found.with_advice("see the lines above"), None)
        }
    }
}

/// Mounts and unmounts a temporary directory. Signals are deferred until the unmount, because an
/// earlier signal would leave the mount behind.
fn mounted(options: &MountOptions) -> Result<Granted> {
    while_deferred(|| {
        let scratch = tempfile::tempdir().context("can't make a temporary directory")?;
        let [lower, point] = ["lower", "mount"].map(|name| scratch.path().join(name));
        for directory in [&lower, &point] {
            fs::create_dir(directory).context("can't make a temporary directory")?;
        }
        let stack = Stack { layers: Vec::new(), leaf: Leaf::Directory(lower) };
        let file_system = Arc::clone(&stack.build_in(&stack_context::of_program())?);
        let session: Session = fslab_fuse::mount(file_system, &point, options)?;
        let granted = session.granted().clone();
        session.unmounter().detach().context("can't unmount")?;
        session.wait()?;
        Ok(granted)
    })
    .context("can't defer signals")?
}

fn of_granted(granted: &Granted) -> [Finding; 2] {
    let passthrough = match (granted.passthrough(), is_root()) {
        (true, _) => (State::Yes, "the kernel reads and writes lower files itself", ""),
        (false, true) => {
            (State::Limited, "not supported by this kernel", "needs Linux 6.9 or newer")
        }
        (false, false) => (State::Limited, "only for mounts made by root", "mount as root"),
    };
    let id_maps = match granted.id_maps() || wants_id_maps() {
        true => (State::Yes, "possible with -o idmap", ""),
        false => {
            (State::Limited, "not possible", "needs Linux 6.12 or newer and a mount made by root")
        }
    };
    let make = |part, name, (state, found, advice): (State, &str, &str)| {
        finding(part, name, state, found).with_advice(advice)
    };
    [make(Part::Speed, "passthrough", passthrough), make(Part::Mounts, "id-mapped mounts", id_maps)]
}

/// Returns whether the kernel grants id maps to a mount that requests them.
fn wants_id_maps() -> bool {
    let options = MountOptions { id_maps: true, ..MountOptions::default() };
    mounted(&options).is_ok_and(|granted| granted.id_maps())
}

fn keep() -> Finding {
    let options = MountOptions { keep: true, ..MountOptions::default() };
    let name = "mounts that outlive their daemon";
    match mounted(&options) {
        Ok(_) => finding(Part::Mounts, name, State::Yes, "possible with -o keep"),
        Err(_) => finding(Part::Mounts, name, State::Limited, "not possible")
            .with_advice("-o keep needs Linux 6.9 or newer"),
    }
}

fn io_uring() -> Finding {
    const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
    let (name, part) = ("FUSE over io_uring", Part::Speed);
    match fs::read_to_string(SWITCH) {
        Ok(value) if value.trim() == "Y" => {
            finding(part, name, State::Yes, "used where it is faster (-o transport=auto)")
        }
        Ok(_) => {
            finding(part, name, State::Limited, "switched off in the kernel").with_advice(format!(
                "to switch it on for the whole machine, as root: echo Y > {SWITCH}; fslab then \
                 uses it where it is faster (experimental)"
            ))
        }
        Err(_) => finding(part, name, State::Limited, "not supported by this kernel")
            .with_advice("-o transport=uring needs Linux 6.14 or newer"),
    }
}

fn processor_count() -> Finding {
    let count = processors::online().map_or(1, |online| online.len());
    let state = yes_or(count >= PROCESSORS_MIN, State::Limited);
    let found =
        finding(Part::Speed, "processors", state, units::counted(count as u64, "processor"));
    match state {
        State::Yes => found,
        _ => found
            .with_advice("with one processor, programs and the daemon can't run at the same time"),
    }
}

fn file_system_tools() -> Vec<Finding> {
    let kinds = [Kind::Ext4, Kind::Xfs, Kind::Btrfs];
    let check = |kind: Kind| match program(kind.program()) {
        Some(path) => {
            finding(Part::Comparisons, kind.name(), State::Yes, path.display().to_string())
        }
        None => {
            let missing = format!("{} is not installed", kind.program());
            let found = finding(Part::Comparisons, kind.name(), State::Limited, missing);
            found.with_advice(format!("install {}", package_of(kind)))
        }
    };
    kinds.into_iter().map(check).collect()
}

fn package_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Xfs => "xfsprogs",
        Kind::Btrfs => "btrfs-progs",
        _ => "e2fsprogs",
    }
}

fn loop_devices() -> Finding {
    let (name, path) = ("file systems on images", Path::new("/dev/loop-control"));
    if !is_root() {
        let found = finding(Part::Comparisons, name, State::Limited, "needs root");
        return found.with_advice("run `fslab compare` as root to make and mount file systems");
    }
    match rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK) {
        Ok(()) => finding(Part::Comparisons, name, State::Yes, "loop devices can be made"),
        Err(_) => finding(Part::Comparisons, name, State::No, "there are no loop devices")
            .with_advice("load the kernel module: modprobe loop"),
    }
}

fn memory_for_images() -> Finding {
    let (name, free) = ("images in memory", memory::free_bytes().unwrap_or(0));
    let found = format!("{} free in /dev/shm", units::bytes(free));
    match free >= QUICK_BYTES {
        true => finding(Part::Comparisons, name, State::Yes, found),
        false => finding(Part::Comparisons, name, State::Limited, found).with_advice(
            "`fslab compare --quick` then puts its images on a disk, so the results vary more",
        ),
    }
}

fn bounded_memory() -> Finding {
    let name = "bounded memory of the prober";
    match memory_bound::MemoryBound::available() {
        Ok(()) => finding(Part::Comparisons, name, State::Yes, "control groups can be made"),
        Err(error) => finding(Part::Comparisons, name, State::Limited, error.to_string())
            .with_advice("`fslab probe --memory` needs root and the memory controller"),
    }
}

/// Checks for the programs that only some workloads and targets need.
fn optional_tools() -> Vec<Finding> {
    let check = |name: &'static str| match program(name) {
        Some(path) => finding(Part::Comparisons, name, State::Yes, path.display().to_string()),
        None => finding(Part::Comparisons, name, State::Limited, "not installed")
            .with_advice(format!("to use {name} in plans: apt install {name}")),
    };
    ["fio", "bindfs", "mergerfs"].into_iter().map(check).collect()
}

/// Finds a program in the usual directories, including those of root.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    let directories = std::env::split_paths(&path).chain(usual);
    let mut files = directories.map(|directory| directory.join(name));
    files.find(|file| rustix::fs::access(file, Access::EXEC_OK).is_ok())
}
