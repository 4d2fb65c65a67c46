//! Goes on with a comparison that was interrupted or killed: what its samples file says of the
//! plan, the seed and the rounds is what is run.

use std::path::Path;

use anyhow::Result;
use fslab_measure::sample::{self, Record};
use fslab_measure::{Plan, samples_path};

use super::{Args, Comparison, remark_on_build};
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
    plan.rounds = first.rounds;
    plan.rounds_max = first.rounds_max;
    args.compare(&Comparison {
        plan,
        seed: first.seed,
        remarks: remark_on_build().into_iter().collect(),
        out: directory.to_owned(),
        resume: true,
    })
}
