//! The command line: one file a subcommand, each with its `Args` and `run`.

use std::ffi::OsString;

use anyhow::Result;
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use crate::exit;

mod age;
mod compare;
mod completions;
mod ext2;
mod fstab;
mod list;
mod man;
mod mount;
mod places;
mod probe;
mod report;
mod reproduce;
mod sca;
mod stats;
mod tier;
mod trace;
mod umount;
mod upgrade;
mod worker;

/// A file-system laboratory you can also live in.
#[derive(Debug, Parser)]
#[command(name = "fslab", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Put layers over a directory and mount them
    Mount(mount::Args),
    /// Unmount what `fslab mount` mounted
    Umount(umount::Args),
    /// Replace the daemon of a kept mount by the version that is installed
    Upgrade(upgrade::Args),
    /// Show what the layers of a mount have counted
    Stats(stats::Args),
    /// Read a recorded trace, or do its operations again
    Trace(trace::Args),
    /// Age file systems as years of use would, and measure what that did
    Age(Box<age::Args>),
    /// Compare file systems: run a plan, print the table, write the page
    Compare(Box<compare::Args>),
    /// Render a report again from its samples
    Report(report::Args),
    /// Measure again what five papers published, and set both side by side
    Reproduce(reproduce::Args),
    /// Make, look into and change ext2 images, without mounting
    Ext2(ext2::Args),
    /// Look at, check and mend stored files of SCA layers
    Sca(sca::Args),
    /// Move files to archives and back
    Tier(tier::Args),
    /// Find out from outside what a file system is
    Probe(probe::Args),
    /// List what can be named: layers and their options, leaves, workloads
    List(list::Args),
    /// Write the completions of a shell to standard output
    Completions(completions::Args),
    /// Write the man pages to a directory
    Man(man::Args),
    /// Do one part of a workload, as a process of its own; for `fslab compare` alone
    #[command(hide = true)]
    Worker(worker::Args),
}

/// Ends the process with the help that was asked for, or with a line that says what is wrong.
fn end(error: &clap::Error) -> ! {
    let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if is_help || !error.use_stderr() {
        error.exit();
    }
    eprintln!("fslab: {}", exit::line_of_usage(error));
    std::process::exit(exit::Code::of_usage(error) as i32)
}

impl Cli {
    /// Reads the command line, also that of `mount.fslab`, as which mount(8) calls the program.
    /// Ends the process where there is nothing to run: after `--help`, and on a usage error.
    pub fn from_command_line() -> Self {
        let arguments: Vec<OsString> = std::env::args_os().collect();
        Self::try_parse_from(fstab::translate(arguments)).unwrap_or_else(|error| end(&error))
    }

    /// Runs the chosen subcommand.
    pub fn run(self) -> Result<()> {
        match self.command {
            Command::Mount(args) => args.run(),
            Command::Umount(args) => args.run(),
            Command::Upgrade(args) => args.run(),
            Command::Stats(args) => args.run(),
            Command::Trace(args) => args.run(),
            Command::Age(args) => args.run(),
            Command::Compare(args) => args.run(),
            Command::Report(args) => args.run(),
            Command::Reproduce(args) => args.run(),
            Command::Ext2(args) => args.run(),
            Command::Sca(args) => args.run(),
            Command::Tier(args) => args.run(),
            Command::Probe(args) => args.run(),
            Command::List(args) => args.run(),
            Command::Completions(args) => args.run(),
            Command::Man(args) => args.run(),
            Command::Worker(args) => args.run(),
        }
    }
}
