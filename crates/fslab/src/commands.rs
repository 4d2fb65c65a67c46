//! The command line: one file per subcommand, each with its `Args` and `run`.

use std::ffi::OsString;

use anyhow::Result;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::CompleteEnv;

use crate::exit;

mod age;
mod built_in;
mod campaign;
mod candidates;
mod catalogue;
mod compare;
mod completions;
mod dataset;
mod dataset_counts;
mod doctor;
mod ext2;
mod fstab;
#[cfg(test)]
mod grammar;
mod list;
mod man;
mod manual;
mod mount;
mod mount_options;
mod places;
mod probe;
mod report;
mod reproduce;
mod sca;
mod sql;
mod stats;
mod status;
mod tier;
mod trace;
mod umount;
mod upgrade;
mod worker;

/// Compresses, tiers or traces any directory; compares, ages and probes file systems.
#[derive(Debug, Parser)]
#[command(name = "fslab", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Mount layers over a directory
    Mount(mount::Args),
    /// Unmount a file system of fslab, and wait until all data is written back
    Umount(umount::Args),
    /// Replace the daemon of a mount made with -o keep by the installed version
    Upgrade(upgrade::Args),
    /// List the mounts with their layers, uptimes and health
    Status(status::Args),
    /// Show the supported and missing features of this kernel, machine and user
    Doctor(doctor::Args),
    /// Show the counters of a mount's layers, such as operations and latencies
    Stats(stats::Args),
    /// Show a recorded trace, or replay it
    Trace(trace::Args),
    /// Age file systems as years of use would, and measure the effect
    Age(Box<age::Args>),
    /// Convert snapshots, traces and other results for SQL engines
    Dataset(dataset::Args),
    /// Compare file systems: run a plan, print a table, write a page
    Compare(Box<compare::Args>),
    /// Run a comparison in parts (shares), on one machine or on many
    Campaign(Box<campaign::Args>),
    /// Print or write the report of a comparison again, from its recorded samples
    Report(report::Args),
    /// Repeat the measurements of five papers, and compare the results
    Reproduce(reproduce::Args),
    /// Make, inspect and change ext2 images without mounting them
    Ext2(ext2::Args),
    /// Inspect, verify, compact and convert the stored files of codec layers
    Sca(sca::Args),
    /// Move files to archives and recall them
    Tier(tier::Args),
    /// Query data sets of snapshots, traces, samples and tiers with SQL
    Sql(sql::Args),
    /// Determine the attributes of a file system by observing its behaviour
    Probe(probe::Args),
    /// List layers, workloads, plans and all other named items
    List(list::Args),
    /// Print the command-line completions for a shell
    Completions(completions::Args),
    /// Write the man pages into a directory
    Man(man::Args),
    /// Run one part of a workload as a separate process; only for `fslab compare`
    #[command(hide = true)]
    Worker(worker::Args),
}

/// Prints the requested help, or one line that describes the usage error, and exits.
fn end(error: &clap::Error) -> ! {
    let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if is_help || !error.use_stderr() {
        error.exit();
    }
    eprintln!("fslab: {}", exit::line_of_usage(error));
    std::process::exit(exit::Code::of_usage(error) as i32)
}

/// The command tree, with examples on every help page.
pub fn command() -> clap::Command {
    manual::complete(Cli::command())
}

impl Cli {
    /// Parses the command line, including that of `mount.fslab`, the name under which mount(8) runs
    /// this program. Exits the process after `--help` and on a usage error.
    pub fn from_command_line() -> Self {
        // If a shell's completion script started the program, this call prints candidates and
        // exits.
        CompleteEnv::with_factory(command).var(completions::VARIABLE).complete();
        let arguments: Vec<OsString> = std::env::args_os().collect();
        let parsed = command().try_get_matches_from(fstab::translate(arguments));
        parsed
            .and_then(|matches| Self::from_arg_matches(&matches))
            .unwrap_or_else(|error| end(&error))
    }

    /// Runs the chosen subcommand.
    pub fn run(self) -> Result<()> {
        match self.command {
            Command::Mount(args) => args.run(),
            Command::Umount(args) => args.run(),
            Command::Upgrade(args) => args.run(),
            Command::Status(args) => args.run(),
            Command::Doctor(args) => args.run(),
            Command::Stats(args) => args.run(),
            Command::Trace(args) => args.run(),
            Command::Age(args) => args.run(),
            Command::Dataset(args) => args.run(),
            Command::Compare(args) => args.run(),
            Command::Campaign(args) => args.run(),
            Command::Report(args) => args.run(),
            Command::Reproduce(args) => args.run(),
            Command::Ext2(args) => args.run(),
            Command::Sca(args) => args.run(),
            Command::Tier(args) => args.run(),
            Command::Sql(args) => args.run(),
            Command::Probe(args) => args.run(),
            Command::List(args) => args.run(),
            Command::Completions(args) => args.run(),
            Command::Man(args) => args.run(),
            Command::Worker(args) => args.run(),
        }
    }
}
