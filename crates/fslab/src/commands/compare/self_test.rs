//! `fslab compare --self-test`: runs the self-test and prints its rates.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use fslab_compare::plan::TargetPlan;
use fslab_compare::self_test::{self, COMPARISONS, Found, ROUNDS};
use fslab_compare::{Plan, samples_path};
use fslab_report::sample::{self, EndReason};
use fslab_report::{Cells, Report};

use super::{Args, seed_from_clock};

impl Args {
    /// Runs the self-test.
    pub(super) fn self_test(&mut self) -> Result<()> {
        let (plan, remarks) = self.plan_alone()?;
        let seed = self.seed.or(plan.seed).unwrap_or_else(seed_from_clock);
        let rounds = self.rounds.unwrap_or(ROUNDS);
        let target = self.target_to_test(&plan)?;
        let mut plan = self_test::plan(&target, plan.image_size)?;
        let all = rounds * COMPARISONS as u32;
        (plan.rounds, plan.rounds_max) = (all, all);
        let mut comparison = self.begun(plan, seed, remarks, Some("--self-test"))?;
        let made = Made { directory: comparison.out.clone(), is_kept: self.out.is_some() };
        comparison.choice.cells = Cells::default();
        comparison.command = "fslab compare --self-test".to_owned();
        let outcome = comparison.execute()?;
        if outcome.end.reason != EndReason::Finished {
            bail!("self-test: stopped after {} of {all} rounds", outcome.end.rounds);
        }
        let records = sample::read(&samples_path(&made.directory))?;
        let found = Found::new(&Report::new(&records), &target.name, rounds, seed)?;
        if self.shown.json {
            say!("{}", serde_json::to_string_pretty(&found)?);
        } else {
            crate::output::print(found.text());
        }
        let missed = found.missed();
        if missed.is_empty() {
            return Ok(());
        }
        bail!("self-test: {}", missed.join("; "))
    }

    /// Returns the target named on the command line, or the baseline.
    fn target_to_test(&self, plan: &Plan) -> Result<TargetPlan> {
        let name = match &self.only_target[..] {
            [] => &plan.baseline,
            [name] => name,
            _ => {
                bail_as!(BadInput, "--self-test accepts only one --only-target")
            }
        };
        plan.check_cells(&Cells { targets: vec![name.clone()], ..Cells::default() })?;
        let found = plan.targets.iter().find(|target| target.name == *name);
        found.cloned().with_context(|| format!("the plan has no target {name}"))
    }
}

/// The directory of the samples. It is removed at the end, unless the user chose it.
struct Made {
    directory: PathBuf,
    is_kept: bool,
}

impl Drop for Made {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        if let Err(error) = std::fs::remove_dir_all(&self.directory) {
            tracing::warn!("can't remove {}: {error}", self.directory.display());
        }
    }
}
