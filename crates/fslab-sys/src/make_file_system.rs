//! Makes a file system on a device or an image with the `mkfs` tools of the distribution.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

/// File systems that this machine's tools may support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// ext2, which newer kernels serve with the ext4 driver.
    Ext2,
    /// ext3, served by the ext4 driver.
    Ext3,
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// SquashFS: compressed, read-only, made from a directory.
    Squashfs,
    /// EROFS: read-only, made from a directory.
    Erofs,
}

/// A program that makes file systems, and how to call it.
struct Tool {
    name: &'static str,
    package: &'static str,
    program: &'static str,
    /// Flags for quiet operation that overwrite existing content.
    flags: &'static [&'static str],
    version_flag: &'static str,
}

/// The tool for each [`Kind`], in the same order.
const TOOLS: [Tool; 7] = [
    ext("ext2", "mkfs.ext2"),
    ext("ext3", "mkfs.ext3"),
    ext("ext4", "mkfs.ext4"),
    tool("xfs", "xfsprogs", "mkfs.xfs", &["-q", "-f"], "-V"),
    tool("btrfs", "btrfs-progs", "mkfs.btrfs", &["-q", "-f"], "--version"),
    tool("squashfs", "squashfs-tools", "mksquashfs", QUIET_SQUASHFS, "-version"),
    tool("erofs", "erofs-utils", "mkfs.erofs", &[], "--version"),
];
const QUIET_SQUASHFS: &[&str] = &["-noappend", "-quiet", "-no-progress"];

const fn ext(name: &'static str, program: &'static str) -> Tool {
    tool(name, "e2fsprogs", program, &["-q", "-F"], "-V")
}

const fn tool(
    name: &'static str,
    package: &'static str,
    program: &'static str,
    flags: &'static [&'static str],
    version_flag: &'static str,
) -> Tool {
    Tool { name, package, program, flags, version_flag }
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 7] =
        [Self::Ext2, Self::Ext3, Self::Ext4, Self::Xfs, Self::Btrfs, Self::Squashfs, Self::Erofs];

    /// Whether the file system is read-only and made by [`pack`] from a directory.
    #[must_use]
    pub fn is_read_only(self) -> bool {
        matches!(self, Self::Squashfs | Self::Erofs)
    }

    fn tool(self) -> &'static Tool {
        &TOOLS[self as usize]
    }

    /// The name for mount(2).
    #[must_use]
    pub fn name(self) -> &'static str {
        self.tool().name
    }

    /// The program that makes the file system.
    #[must_use]
    pub fn program(self) -> &'static str {
        self.tool().program
    }

    /// Returns the version that the tool prints.
    ///
    /// # Errors
    /// [`Error::MissingTool`], or an error of running it.
    pub fn tool_version(self) -> Result<String, Error> {
        let tool = self.tool();
        let output = run(tool, &[OsString::from(tool.version_flag)])?;
        let text = [output.stdout, output.stderr].concat();
        Ok(one_line(&text).split("  ").next().unwrap_or_default().to_owned())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| format!("unknown file system `{name}`"))
    }
}

/// An error of making a file system.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tool is not installed.
    #[error("{program} is not installed (Debian package {package})")]
    MissingTool {
        /// The tool.
        program: &'static str,
        /// The Debian package that contains it.
        package: &'static str,
    },
    /// The tool could not be started.
    #[error("can't run {program}: {source}")]
    Start {
        /// The tool.
        program: &'static str,
        /// The error of starting it.
        #[source]
        source: io::Error,
    },
    /// The tool failed.
    #[error("{command} failed ({status}): {message}")]
    Refused {
        /// The command line.
        command: String,
        /// The exit status of the tool.
        status: std::process::ExitStatus,
        /// The output of the tool, on one line.
        message: String,
    },
    /// The path is not a device or image.
    #[error("{}: {source}", path.display())]
    Device {
        /// The device or image.
        path: PathBuf,
        /// The error of opening it.
        #[source]
        source: io::Error,
    },
}

/// Makes a file system and returns the command line used.
///
/// # Errors
/// See [`Error`].
pub fn make(kind: Kind, device: &Path, options: &[String]) -> Result<String, Error> {
    device.metadata().map_err(|source| Error::Device { path: device.to_owned(), source })?;
    let tool = kind.tool();
    let mut arguments: Vec<OsString> = tool.flags.iter().map(OsString::from).collect();
    arguments.extend(options.iter().map(OsString::from));
    arguments.push(device.into());
    run_to_success(tool, &arguments)
}

/// Adds an option that keeps the tool from discarding the device's blocks.
#[must_use]
pub fn without_discard(kind: Kind, options: &[String]) -> Vec<String> {
    let mut options = options.to_vec();
    match kind {
        Kind::Ext2 | Kind::Ext3 | Kind::Ext4 => {
            // If `-E` is given several times, mke2fs uses only the last one.
            let last = options.iter().rposition(|option| option == "-E");
            match last.and_then(|last| options.get_mut(last + 1)) {
                Some(extended) => extended.insert_str(0, "nodiscard,"),
                None => options.splice(0..0, ["-E".into(), "nodiscard".into()]).for_each(drop),
            }
        }
        Kind::Xfs | Kind::Btrfs => options.insert(0, "-K".to_owned()),
        // `pack` makes these in a file, so there is no device with blocks to discard.
        Kind::Squashfs | Kind::Erofs => {}
    }
    options
}

/// Makes a read-only file system in a file from the contents of a directory, and returns the
/// command line used.
///
/// # Errors
/// See [`Error`].
pub fn pack(kind: Kind, image: &Path, source: &Path, options: &[String]) -> Result<String, Error> {
    source.metadata().map_err(|error| Error::Device { path: source.to_owned(), source: error })?;
    let tool = kind.tool();
    let mut arguments: Vec<OsString> = tool.flags.iter().map(OsString::from).collect();
    let options = options.iter().map(OsString::from);
    match kind {
        // mksquashfs expects its options last; the other tools expect them first.
        Kind::Squashfs => {
            let places: [OsString; 2] = [source.into(), image.into()];
            arguments.splice(0..0, places);
            arguments.extend(options);
        }
        _ => {
            arguments.extend(options);
            arguments.extend([image.into(), source.into()]);
        }
    }
    run_to_success(tool, &arguments)
}

fn run_to_success(tool: &Tool, arguments: &[OsString]) -> Result<String, Error> {
    let command = command_line(tool.program, arguments);
    let output = run(tool, arguments)?;
    if output.status.success() {
        return Ok(command);
    }
    // mke2fs prints some errors to standard output.
    let message = one_line(&[output.stdout, output.stderr].concat());
    Err(Error::Refused { command, status: output.status, message })
}

fn run(tool: &Tool, arguments: &[OsString]) -> Result<std::process::Output, Error> {
    // The tools are installed in /usr/sbin, which ordinary users often do not have in PATH.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    Command::new(tool.program).args(arguments).env("PATH", path).output().map_err(|source| {
        match source.kind() {
            io::ErrorKind::NotFound => {
                Error::MissingTool { program: tool.program, package: tool.package }
            }
            _ => Error::Start { program: tool.program, source },
        }
    })
}

fn command_line(program: &str, arguments: &[OsString]) -> String {
    let words = arguments.iter().map(|argument| argument.to_string_lossy());
    std::iter::once(program.into()).chain(words).collect::<Vec<_>>().join(" ")
}

/// Joins the lines of a tool's message.
#[must_use]
pub fn one_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Error, Kind, make, one_line, without_discard};

    #[test]
    fn names_round_trip() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert!("ext5".parse::<Kind>().is_err());
    }

    #[test]
    fn messages_become_one_line() {
        assert_eq!(one_line(b"mkfs: bad\n\n  Usage: x\n"), "mkfs: bad; Usage: x");
    }

    #[test]
    fn discarding_is_turned_off_in_addition_to_given_options() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let check = |kind, given: &str, expected: &str| {
            assert_eq!(without_discard(kind, &words(given)).join(" "), expected);
        };
        check(Kind::Ext4, "-b 1024", "-E nodiscard -b 1024");
        check(Kind::Ext2, "-E a=1 -E b=2 -q", "-E a=1 -E nodiscard,b=2 -q");
        check(Kind::Xfs, "-b size=1024", "-K -b size=1024");
        check(Kind::Squashfs, "-comp zstd", "-comp zstd");
    }

    #[test]
    fn a_missing_device_is_named() {
        let error = make(Kind::Ext4, Path::new("/nonexistent/image"), &[]).unwrap_err();
        assert!(matches!(error, Error::Device { .. }));
        assert!(error.to_string().contains("/nonexistent/image"));
    }
}
