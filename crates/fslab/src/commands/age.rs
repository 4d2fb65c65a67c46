//! `fslab age`: makes a file system as years of use would leave it, simulated or real, and tells
//! what that did to it.

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
    /// Write down what a tree, a git history or a list holds
    Snapshot(snapshot::Args),
    /// Tell what is different between two snapshots
    Diff(diff::Args),
    /// Make a workload of successive snapshots
    Derive(derive::Args),
    /// Make a workload from parameters and a seed
    Profile(profile::Args),
    /// Print what a workload says about itself, and its operations
    Show(show::Args),
    /// Age a volume of nothing but placements, in seconds, under each policy
    Simulate(simulate::Args),
    /// Age a real file system: do a workload's operations there
    Replay(replay::Args),
    /// Tell how contiguous files are, where free space is, and how far it is from file to file
    Score(score::Args),
    /// Draw the scores over time of several replays and simulations into one picture
    Chart(chart::Args),
    /// Keep file systems that a workload has aged, for comparisons to begin with
    Image(image::Args),
    /// Tell how near an aged volume comes to a real one, by snapshots of both
    Verify(verify::Args),
    /// Change a tree of a kernel file system in rounds, age another by its snapshots, and compare
    /// their layouts (root)
    VerifyMethod(verify_method::Args),
}

impl Args {
    /// Runs the chosen tool.
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
