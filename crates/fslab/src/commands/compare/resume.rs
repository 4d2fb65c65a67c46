//! Resumes a comparison that was interrupted or killed. The plan, the seed, the rounds, the choice
//! of cells and the work directory are taken from its samples file.

use std::path::Path;

use anyhow::Result;
use fslab_compare::{Plan, samples_path};
use fslab_report::Choice;
use fslab_report::sample::{self, Record};

use super::{Args, Comparison, choice, remark_on_build};

pub(super) fn run(directory: &Path, args: &Args) -> Result<()> {
    let samples = samples_path(directory);
    if !samples.exists() {
        bail_as!(
            BadInput,
            "{} contains no samples, so there is nothing to resume",
            samples.display()
        );
    }
    let records = sample::read(&samples)?;
    let Some(Record::Provenance(first)) = records.first() else {
        bail_as!(
            BadInput,
            "{}: the first line is not a provenance record; is this a samples file?",
            samples.display()
        );
    };
    let mut plan = Plan::parse("the plan of the samples", &first.plan, first.form)?;
    if let [old, new] = &first.programs[..] {
        plan = plan.of_programs([old.clone(), new.clone()])?;
    }
    if !first.workload_command.is_empty() {
        plan = plan.with_command(first.workload_command.clone());
    }
    plan = plan.erasing(&args.erase);
    // The number of rounds is that of the last session, which may have requested more rounds.
    let last = sample::sessions(&records).next_back().unwrap_or(first);
    (plan.rounds, plan.rounds_max) = (last.rounds, last.rounds_max);
    args.set_rounds(&mut plan);
    let choice = match Choice::of(&records) {
        Some(begun) => choice::begun(args, begun, &samples)?,
        None => args.choice(&plan, &samples)?,
    };
    args.compare(&Comparison {
        plan,
        seed: first.seed,
        choice,
        command: first.command.clone(),
        remarks: remark_on_build().into_iter().collect(),
        out: directory.to_owned(),
        resume: true,
    })
}
