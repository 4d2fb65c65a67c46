//! `fslab campaign`: runs a comparison in shares, on one machine or on many.

mod new;
mod report;
mod run;
mod status;
mod submit;

use std::path::PathBuf;

use anyhow::Result;

/// Arguments of `fslab campaign`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Create a campaign from a plan, its seed and the hashes of its input files
    New(new::Args),
    /// Run the unfinished part of one share; only one share runs on a host at a time
    Run(run::Args),
    /// List missing, failed and disturbed measurements, their hosts, and the time left
    Status(status::Args),
    /// Print the ratios per machine and for all machines, and how the machines differ
    Report(report::Args),
    /// Run all shares here one after another, or submit them to Slurm
    Submit(submit::Args),
}

/// The argument that names a campaign.
#[derive(Debug, clap::Args)]
struct Directory {
    /// The directory of the campaign
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Args {
    /// Runs the chosen subcommand.
    pub fn run(self) -> Result<()> {
        match self.action {
            Action::New(args) => args.run(),
            Action::Run(args) => args.run(),
            Action::Status(args) => args.run(),
            Action::Report(args) => args.run(),
            Action::Submit(args) => args.run(),
        }
    }
}
