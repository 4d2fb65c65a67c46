//! What this crate must be told, because it knows no layer by name.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use fslab_vfs::FileSystem;

/// Any error of whoever implements [`Host`].
pub type HostError = Box<dyn std::error::Error + Send + Sync>;

/// A recorded image that was kept packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// The hash of the workload that aged it, in hexadecimal.
    pub workload: String,
    /// The policy that placed its files, and how it was used, where that is known.
    pub policy: Option<String>,
    /// One line: what else is known of it.
    pub description: String,
}

/// A host whose targets are mounted by another program of the same kind, such as an older build.
/// All else is the host's own.
pub(crate) struct OtherProgram<'a> {
    pub host: &'a dyn Host,
    pub program: &'a Path,
}

impl Host for OtherProgram<'_> {
    fn mount_command(&self, layers: &[String], lower: &Path, mountpoint: &Path) -> Vec<OsString> {
        let mut command = self.host.mount_command(layers, lower, mountpoint);
        if let Some(program) = command.first_mut() {
            self.program.as_os_str().clone_into(program);
        }
        command
    }

    fn worker_command(&self) -> Option<Vec<OsString>> {
        self.host.worker_command()
    }

    fn program(&self) -> Option<PathBuf> {
        Some(self.program.to_owned())
    }

    fn unpack(&self, recorded: &Path, to: &Path) -> Result<Option<Unpacked>, HostError> {
        self.host.unpack(recorded, to)
    }

    fn file_system(&self, specification: &str) -> Result<Box<dyn FileSystem>, HostError> {
        self.host.file_system(specification)
    }
}

/// How layers are mounted and in-process file systems made. Layer specifications ("null",
/// "null:passthrough=off") are opaque here.
pub trait Host: Sync {
    /// The command that mounts layers (the top one first) of `lower` on `mountpoint` and returns
    /// once the mount is ready; undone by unmounting.
    fn mount_command(&self, layers: &[String], lower: &Path, mountpoint: &Path) -> Vec<OsString>;

    /// Says whether layers can be mounted at all, without mounting them.
    ///
    /// # Errors
    /// For a specification that names nothing, or options that are wrong.
    fn check_layers(&self, _layers: &[String]) -> Result<(), HostError> {
        Ok(())
    }

    /// The command that makes this programme a worker process: it must call
    /// [`worker::run`](crate::worker::run) with the argument that is appended. `None` where there
    /// is none.
    fn worker_command(&self) -> Option<Vec<OsString>> {
        None
    }

    /// This programme, for commands of plans that call it (`{fslab}`). `None` where there is none.
    fn program(&self) -> Option<PathBuf> {
        None
    }

    /// Unpacks a recorded image into a file, where it is one that is kept packed; `None`, and then
    /// nothing was done, where it is not and may be copied.
    ///
    /// # Errors
    /// Where it is damaged, and what the system answers.
    fn unpack(&self, _recorded: &Path, _to: &Path) -> Result<Option<Unpacked>, HostError> {
        Ok(None)
    }

    /// Constructs a file system in this process from its specification, such as `mem:` or
    /// `null / mem:`.
    ///
    /// # Errors
    /// For a specification that names nothing.
    fn file_system(&self, specification: &str) -> Result<Box<dyn FileSystem>, HostError>;
}
