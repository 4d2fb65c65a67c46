//! `fslab campaign run`: runs one share of a campaign.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fslab_campaign::{Campaign, Done, ERASABLE, HostLock, ShareRun, this_program};
use fslab_compare::Outcome;
use fslab_report::Share;
use fslab_report::sample::EndReason;
use fslab_sys::signals::Interrupt;

use super::super::compare::host::Binary;
use super::super::compare::progress::Progress;
use super::super::compare::{all_done, quoted, remark_on_build, report_leftovers};
use super::super::places;
use super::Directory;

/// Arguments of `fslab campaign run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    campaign: Directory,
    /// The K-th of N equal shares of the campaign; finished blocks are not run again. A block is
    /// one workload in one round, run on every target
    #[arg(long, value_name = "K/N")]
    share: Share,
    #[command(flatten)]
    way: Way,
}

/// The options of all commands that run shares.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Way {
    /// Run a block again if one of its measurements (cells) failed or was disturbed
    #[arg(long)]
    retry: bool,
    /// An existing directory of this host for images and mount points
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work_dir: PathBuf,
    /// Wait while this host runs another share, instead of failing
    #[arg(long)]
    wait: bool,
    /// The lock file of all campaigns on this host [default: fslab-campaign.lock in /run/lock, or
    /// in /var/lock if that is missing]
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
    /// Run a campaign that another build of fslab created; the report names both builds
    #[arg(long)]
    other_build: bool,
}

impl Args {
    /// Runs the share.
    pub fn run(self) -> Result<()> {
        let interrupt =
            Interrupt::on_signals().context("can't install handlers for SIGINT and SIGTERM")?;
        let campaign = Campaign::open(&self.campaign.directory)?;
        let outcome = self.way.run(&campaign, self.share, &interrupt)?;
        outcome.map_or(Ok(()), |outcome| all_done(&outcome))
    }
}

impl Way {
    /// Returns these options with `wait` set. A share then waits while its host runs another share.
    pub fn waiting(&self) -> Self {
        Self { wait: true, ..self.clone() }
    }

    /// Returns these options as arguments for another process, with absolute paths.
    pub fn options(&self) -> Result<Vec<String>> {
        let mut options = Vec::new();
        let mut add = |option: &str, path: &Path| {
            let path = std::path::absolute(path).with_context(|| path.display().to_string())?;
            let Some(path) = path.to_str() else {
                bail_as!(BadInput, "{option} {}: its path is not UTF-8", path.display());
            };
            options.extend([option.to_owned(), path.to_owned()]);
            anyhow::Ok(())
        };
        add("--work-dir", &self.work_dir)?;
        self.lock.as_deref().map_or(Ok(()), |path| add("--lock", path))?;
        options.extend(self.flags().map(str::to_owned));
        Ok(options)
    }

    fn flags(&self) -> impl Iterator<Item = &'static str> {
        let flags =
            [(self.retry, "--retry"), (self.other_build, "--other-build"), (self.wait, "--wait")];
        flags.into_iter().filter_map(|(is_set, flag)| is_set.then_some(flag))
    }

    /// Returns the command line that runs a share with these options, as a user would type it.
    pub fn command_line(&self, campaign: &Campaign, share: Share) -> String {
        let Share { number, of } = share;
        let directory = quoted(campaign.directory());
        let mut words = vec![format!("fslab campaign run {directory} --share {number}/{of}")];
        words.push(format!("--work-dir {}", quoted(&self.work_dir)));
        words.extend(self.lock.as_deref().map(|path| format!("--lock {}", quoted(path))));
        words.extend(self.flags().map(str::to_owned));
        words.join(" ")
    }

    /// Runs a share, and reports how it ended. Returns `None` if all its blocks were already done.
    /// The returned outcome may contain failed targets.
    pub fn run(
        &self,
        campaign: &Campaign,
        share: Share,
        interrupt: &Interrupt,
    ) -> Result<Option<Outcome>> {
        places::check_work_dir(&self.work_dir)?;
        let Share { number, of } = share;
        let command = self.command_line(campaign, share);
        let program = this_program()?;
        if !self.other_build {
            campaign.check_program(&program)?;
        }
        // The lock is taken before the inputs are read, because reading would disturb a running
        // share.
        let lock = HostLock::take(self.lock.as_deref(), self.wait.then_some(interrupt))?;
        report_leftovers(&self.work_dir)?;
        let run = ShareRun {
            campaign,
            share,
            retry: self.retry,
            work_parent: self.work_dir.clone(),
            program,
            allow_other_build: self.other_build,
            erasable: Path::new(ERASABLE).to_owned(),
            lock: &lock,
            command: command.clone(),
            host: &Binary::new()?,
            interrupt: interrupt.clone(),
            remarks: remark_on_build().into_iter().collect(),
        };
        let mut progress = Progress::new(None);
        let done = run.run(&mut progress)?;
        progress.finish();
        match done {
            Done::Nothing => {
                eprintln!("share {number}/{of}: all its blocks are done");
                Ok(None)
            }
            Done::Ran { outcome, file } => {
                match outcome.end.reason {
                    EndReason::Interrupted => {
                        bail!("interrupted; completed blocks are kept. Resume with: {command}")
                    }
                    EndReason::TimeLimit => eprintln!(
                        "share {number}/{of}: the plan's time limit was reached; resume with: \
                         {command}"
                    ),
                    EndReason::Finished | EndReason::Narrow => {
                        eprintln!("share {number}/{of}: done, samples in {}", file.display());
                    }
                }
                Ok(Some(outcome))
            }
        }
    }
}
