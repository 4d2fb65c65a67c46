//! Goes on with a comparison that was interrupted or killed: what its samples file says of the
//! plan, the seed, the rounds and the choice of cells is what is run, and where it says.

use std::path::Path;

use anyhow::Result;
use fslab_compare::{Plan, samples_path};
use fslab_report::Choice;
use fslab_report::sample::{self, Record};

use super::{Args, Comparison, choice, remark_on_build};
use crate::exit::{Code, Coded};

pub(super) fn run(directory: &Path, args: &Args) -> Result<()> {
    let samples = samples_path(directory);
    if !samples.exists() {
        let message = format!("{}: no samples, so nothing to go on with", samples.display());
        return Err(Coded { code: Code::BadInput, message }.into());
    }
    let records = sample::read(&samples)?;
    let Some(Record::Provenance(first)) = records.first() else {
        let message = format!("{}: its first line is no provenance", samples.display());
        return Err(Coded { code: Code::BadInput, message }.into());
    };
    let mut plan = Plan::parse("the plan of the samples", &first.plan, first.form)?;
    if !first.workload_command.is_empty() {
        plan = plan.with_command(first.workload_command.clone());
    }
    plan = plan.erasing(&args.erase);
    // Of several sessions the last one knows best: it may have been asked for more rounds.
    let last = sample::sessions(&records).next_back().unwrap_or(first);
    (plan.rounds, plan.rounds_max) = (last.rounds, last.rounds_max);
    let choice = match Choice::of(&records) {
        Some(begun) => choice::begun(args, begun, &samples)?,
        None => args.choice(args.reruns_max(&plan), &samples)?,
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
