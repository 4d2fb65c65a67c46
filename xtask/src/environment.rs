//! Finds the folders, tools and privileges that xtask needs, without changing anything.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;

/// Returns the root folder of the workspace.
pub fn workspace_root() -> PathBuf {
    // Cargo sets the variable when it runs xtask. The built-in path is for running xtask directly.
    let manifest = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map_or_else(|| manifest.clone(), Path::to_path_buf)
}

/// Returns the cache folder, which is outside the clone and outlives it.
pub fn cache() -> Result<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("FSLAB_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|folder| folder.join("fslab")))
        .or_else(|| set("HOME").map(|folder| folder.join(".cache/fslab")))
        .context("no cache folder: set FSLAB_CACHE (HOME and XDG_CACHE_HOME are not set either)")
}

/// Returns the folder into which `setup` installs tools. It is the root for `cargo install --root`.
pub fn tools() -> Result<PathBuf> {
    Ok(cache()?.join("tools"))
}

/// Finds a tool's program in the cache, in the search path, or in the administrator's folders,
/// which are missing from the search path of some users.
pub fn find_tool(name: &str) -> Option<PathBuf> {
    let cached = tools().ok().map(|folder| folder.join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut folders = cached.into_iter().chain(env::split_paths(&path)).chain(system);
    folders.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()))
}

/// Makes a command for a tool that [`find_tool`] finds.
pub fn tool(name: &str) -> Result<Command> {
    let program = find_tool(name)
        .with_context(|| format!("{name} is not installed; `cargo xtask setup` installs it"))?;
    Ok(Command::new(program))
}

/// Returns whether a switch such as `FSLAB_REQUIRE_ALL` is on: set, and neither empty nor `0`.
pub fn switched_on(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Returns whether this process may mount file systems and attach loop devices.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the reason why file systems can't be mounted here; `None` if they can.
pub fn why_no_mounts() -> Option<&'static str> {
    if !is_root() {
        return Some("needs root to mount; run it as root");
    }
    let fuse = Path::new("/dev/fuse").exists();
    (!fuse).then_some("there is no /dev/fuse; load the kernel module: modprobe fuse")
}

/// Returns cargo's build folder, as cargo reports it according to its configuration.
pub fn target_directory() -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: serde_json::Value = serde_json::from_str(&process::capture(&mut command)?)
        .context("cargo metadata did not print JSON")?;
    let folder = metadata["target_directory"].as_str();
    folder.map(PathBuf::from).context("cargo metadata prints no target_directory")
}

/// Returns the files of the workspace that git tracks or would track, as paths relative to the
/// workspace.
pub fn files() -> Result<Vec<String>> {
    let root = workspace_root();
    let mut git = Command::new("git");
    git.current_dir(&root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let list = process::capture(&mut git)?;
    // Git still lists a file whose deletion is not committed yet.
    let is_there = |name: &&str| !name.is_empty() && root.join(name).is_file();
    Ok(list.split('\0').filter(is_there).map(str::to_owned).collect())
}

/// Makes a command for the cargo that runs xtask, in the workspace's folder.
pub fn cargo() -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(workspace_root());
    command
}
