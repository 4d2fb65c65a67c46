//! `fslab campaign report`: prints the ratios of each machine and of all machines.

use anyhow::Result;
use fslab_campaign::{Campaign, State};
use fslab_report::Pooling;

use super::super::report::Shown;
use super::Directory;

/// Arguments of `fslab campaign report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    campaign: Directory,
    #[command(flatten)]
    shown: Shown,
}

impl Args {
    /// Prints or writes the report.
    pub fn run(self) -> Result<()> {
        let campaign = Campaign::open(&self.campaign.directory)?;
        self.shown.check_gates(campaign.plan())?;
        let records = State::of(&campaign)?.records()?;
        self.shown.show_records(&records, None, Pooling::Clusters)?.refuse()
    }
}
