//! The interface to the program that provides the layers. This crate knows no layer by name.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use fslab_vfs::FileSystem;

/// Any error of an implementation of [`Host`].
pub type HostError = Box<dyn std::error::Error + Send + Sync>;

/// The description of a recorded image that was unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// The hash of the workload that aged the image, in hexadecimal.
    pub workload: String,
    /// The name of the allocation policy under which the image was aged, followed by details;
    /// `None` if unknown.
    pub policy: Option<String>,
    /// Other known facts, in one line.
    pub description: String,
}

/// A host that mounts targets with another program, such as an older build of fslab. The wrapped
/// host handles all other calls.
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

/// The program that uses this crate. It mounts layers and makes in-process file systems. Layer
/// specifications ("null", "null:passthrough=off") are opaque to this crate.
pub trait Host: Sync {
    /// Returns the command that mounts layers (the top one first) over `lower` on `mountpoint`. The
    /// command exits once the mount is ready. To end the mount, `mountpoint` is unmounted.
    fn mount_command(&self, layers: &[String], lower: &Path, mountpoint: &Path) -> Vec<OsString>;

    /// Checks layer specifications without mounting them.
    ///
    /// # Errors
    /// Fails if a specification names an unknown layer or has invalid options.
    fn check_layers(&self, _layers: &[String]) -> Result<(), HostError> {
        Ok(())
    }

    /// Checks the specification of a stack in this process, such as "null / mem:", without making
    /// the stack.
    ///
    /// # Errors
    /// Fails if the specification names an unknown layer or leaf, or has invalid options.
    fn check_stack(&self, _specification: &str) -> Result<(), HostError> {
        Ok(())
    }

    /// Returns the command that starts this program as a worker process. The program must call
    /// [`worker::run`](crate::worker::run) with the argument appended to the command. `None` if the
    /// program has no worker processes.
    fn worker_command(&self) -> Option<Vec<OsString>> {
        None
    }

    /// Returns the path of this program, which replaces `{fslab}` in commands of plans. `None` if
    /// the host has no such program.
    fn program(&self) -> Option<PathBuf> {
        None
    }

    /// Unpacks a recorded image into the file `to`. Returns `None` if the image is not packed; the
    /// caller then copies it.
    ///
    /// # Errors
    /// Fails if the image is damaged or the system returns an error.
    fn unpack(&self, _recorded: &Path, _to: &Path) -> Result<Option<Unpacked>, HostError> {
        Ok(None)
    }

    /// Constructs a file system in this process from its specification, such as `mem:` or `null /
    /// mem:`.
    ///
    /// # Errors
    /// Fails if the specification is invalid.
    fn file_system(&self, specification: &str) -> Result<Box<dyn FileSystem>, HostError>;
}
