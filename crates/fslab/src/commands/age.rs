//! `fslab age`: ages a real or simulated file system like years of use, and measures the effect.

mod chart;
mod derive;
mod diff;
mod image;
mod operations;
mod profile;
mod progress;
mod recorded;
mod replay;
mod score;
mod show;
mod simulate;
mod snapshot;
mod tables;
mod through_engine;
mod verify;
mod verify_method;

use anyhow::Result;
use clap::Subcommand;

/// Arguments of `fslab age`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Record the files of a tree, a git history or a list
    Snapshot(snapshot::Args),
    /// Show the differences between two snapshots
    Diff(diff::Args),
    /// Make a workload from successive snapshots
    Derive(derive::Args),
    /// Make a workload from parameters and a seed
    Profile(profile::Args),
    /// Show a workload: its source, totals and operations
    Show(show::Args),
    /// Simulate only the block allocation of each policy, without data; takes seconds
    Simulate(simulate::Args),
    /// Age a real file system: replay a workload on it
    Replay(replay::Args),
    /// Show how fragmented files and free space are (layout score)
    Score(score::Args),
    /// Draw the scores over time of several runs in one chart
    Chart(chart::Args),
    /// Make and inspect aged images, from which comparisons can start
    Image(image::Args),
    /// Compare an aged volume with a real one, using snapshots of both
    Verify(verify::Args),
    /// Test the ageing method with a file system of the kernel (needs root)
    ///
    /// Changes a tree in rounds and derives a workload from snapshots of this tree. Replays the
    /// workload on another file system, and compares the layouts of the two file systems.
    VerifyMethod(verify_method::Args),
}

impl Args {
    /// Runs the chosen subcommand.
    pub fn run(self) -> Result<()> {
        match self.command {
            Command::Snapshot(args) => args.run(),
            Command::Diff(args) => args.run(),
            Command::Derive(args) => args.run(),
            Command::Profile(args) => args.run(),
            Command::Show(args) => args.run(),
            Command::Simulate(args) => args.run(),
            Command::Replay(args) => args.run(),
            Command::Score(args) => args.run(),
            Command::Chart(args) => args.run(),
            Command::Image(args) => args.run(),
            Command::Verify(args) => args.run(),
            Command::VerifyMethod(args) => args.run(),
        }
    }
}
