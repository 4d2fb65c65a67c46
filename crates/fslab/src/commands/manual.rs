//! The parts of the help pages and man pages that clap does not generate: the examples of every
//! command, and the sections FILES and ENVIRONMENT.
//!
//! [`complete`] adds the examples to the command tree. Tests parse each example with this tree, so
//! no example uses an option that does not exist.

use clap::Command;

mod examples;

pub use examples::EXAMPLES;

/// A command line and its purpose.
pub struct Example {
    /// The command line as typed, starting with `fslab` or `sudo fslab`.
    pub line: &'static str,
    /// The purpose, as a short phrase.
    pub what: &'static str,
}

/// The examples of one command.
pub struct Examples {
    /// The names of the command and its parent commands after `fslab`, separated by spaces.
    pub command: &'static str,
    /// At least one example.
    pub examples: &'static [Example],
}

/// Adds the examples to every command of the tree.
pub fn complete(root: Command) -> Command {
    complete_below(root, "")
}

fn complete_below(mut command: Command, path: &str) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|child| child.get_name().to_owned()).collect();
    for name in names {
        let path = format!("{path} {name}");
        command = command.mut_subcommand(name, |child| complete_below(child, path.trim_start()));
    }
    let Some(examples) = of(path) else { return command };
    let before = command.get_after_help().map(|text| format!("{text}\n\n")).unwrap_or_default();
    command.after_help(format!("{before}Examples:\n{}", as_help(examples)))
}

/// Returns the examples of a command.
pub fn of(path: &str) -> Option<&'static [Example]> {
    EXAMPLES.iter().find(|entry| entry.command == path).map(|entry| entry.examples)
}

/// Formats two indented lines for each example: its purpose and the command line.
fn as_help(examples: &[Example]) -> String {
    let lines = examples.iter().map(|one| format!("  # {}\n  {}", one.what, one.line));
    lines.collect::<Vec<_>>().join("\n")
}

/// Files that commands use, for the section FILES of man pages.
pub const FILES: &[(&str, &str)] = &[
    (
        "/run/fslab, /run/user/UID/fslab, /tmp/fslab-UID",
        "Sockets on which the daemons of mounts accept requests.",
    ),
    ("/etc/fstab", "mount(8) makes mounts of type fslab by calling this program as mount.fslab."),
    ("LOWER/.fslab-lock", "The lock of a lower directory that is in use."),
];

/// Variables that commands read, for the section ENVIRONMENT of man pages.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    ("FSLAB_LOG", "The log level: error, warn (the default), info, debug or trace."),
    ("NO_COLOR", "Output has no colour if this is set and not empty."),
    ("TMPDIR", "The directory for temporary files."),
    (
        "SOURCE_DATE_EPOCH",
        "The creation time that `fslab ext2 mkfs` writes, in seconds since 1970.",
    ),
];
