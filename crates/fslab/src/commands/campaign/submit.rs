//! `fslab campaign submit`: runs all shares here, or submits them to Slurm.

use anyhow::{Context, Result};
use fslab_campaign::{Campaign, Slurm};
use fslab_report::Share;
use fslab_sys::signals::Interrupt;

use super::super::compare::all_done;
use super::Directory;
use super::run::Way;

/// Arguments of `fslab campaign submit`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    campaign: Directory,
    /// Run N shares on this machine one after another, without a scheduler [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    local: Option<u32>,
    /// Submit a job array to Slurm: each element runs one share, and a node runs one element at a
    /// time
    #[arg(long, conflicts_with = "local")]
    slurm: bool,
    /// With --slurm: the number of shares
    #[arg(long, value_name = "N", default_value_t = 8, requires = "slurm",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    shares: u32,
    /// With --slurm: licences that each share needs, such as disk:1. Use licences if several Slurm
    /// nodes run on one machine, because Slurm counts licences over the whole cluster
    #[arg(long, value_name = "NAME:COUNT", requires = "slurm")]
    licences: Option<String>,
    /// With --slurm: the partition
    #[arg(long, value_name = "NAME", requires = "slurm")]
    partition: Option<String>,
    /// Print the script or the commands, without running them
    #[arg(short = 'n', long)]
    dry_run: bool,
    #[command(flatten)]
    way: Way,
}

impl Args {
    /// Runs or submits the shares.
    pub fn run(self) -> Result<()> {
        let campaign = Campaign::open(&self.campaign.directory)?;
        if self.slurm {
            return self.submit(&campaign);
        }
        let of = self.local.unwrap_or(1);
        if self.dry_run {
            for number in 1..=of {
                say!("{}", self.way.command_line(&campaign, Share { number, of }));
            }
            return Ok(());
        }
        let interrupt =
            Interrupt::on_signals().context("can't install handlers for SIGINT and SIGTERM")?;
        self.run_here(&campaign, of, &interrupt)
    }

    /// Runs all shares, one after another. If a target fails in one share, the other shares still
    /// run.
    ///
    /// # Errors
    /// Returns the first failure of a target after all shares have run. If a share can't be run,
    /// its error is returned at once.
    fn run_here(&self, campaign: &Campaign, of: u32, interrupt: &Interrupt) -> Result<()> {
        let mut failed = Ok(());
        for number in 1..=of {
            let share = Share { number, of };
            let Some(outcome) = self.way.run(campaign, share, interrupt)? else { continue };
            let done = all_done(&outcome).with_context(|| format!("share {number}/{of}"));
            failed = failed.and(done);
        }
        failed
    }

    fn submit(&self, campaign: &Campaign) -> Result<()> {
        // Slurm may start several shares on one host at the same time. Each share then waits until
        // no other share is running there.
        let slurm = Slurm {
            shares: self.shares,
            program: std::env::current_exe().context("can't find this program")?,
            options: self.way.waiting().options()?,
            licences: self.licences.clone(),
            partition: self.partition.clone(),
        };
        if self.dry_run {
            crate::output::print(slurm.script(campaign)?);
            return Ok(());
        }
        let job = slurm.submit(campaign)?;
        say!("job {job}: {} shares; `fslab campaign status` shows their progress", self.shares);
        Ok(())
    }
}
