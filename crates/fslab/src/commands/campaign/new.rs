//! `fslab campaign new`: creates a campaign from a plan.

use std::path::PathBuf;

use anyhow::Result;
use fslab_campaign::{Campaign, Freeze, this_program};
use fslab_compare::plan::Form;

use super::super::compare::{DEFAULT_RERUNS, quoted, seed_from_clock};
use super::super::{built_in, candidates};
use crate::units;

/// Arguments of `fslab campaign new`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A plan file, or a built-in plan by its name (`fslab list plans`)
    #[arg(add = candidates::plans())]
    plan: PathBuf,
    /// A new or empty directory, to which every host that runs shares can write
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Use the quick form of the plan
    #[arg(long)]
    quick: bool,
    /// Seed for all random choices [default: the plan's, else drawn from the clock]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Number of rounds, instead of the plan's minimum
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Maximum number of repeats of a round that other programs disturbed [default: the plan's,
    /// else 1]
    #[arg(long, value_name = "N")]
    reruns: Option<u32>,
}

impl Args {
    /// Creates the campaign.
    pub fn run(self) -> Result<()> {
        let form = if self.quick { Form::Quick } else { Form::Full };
        let mut plan = built_in::read(&self.plan, form)?;
        let has_stop_rule = plan.rounds_max > plan.rounds && self.rounds.is_none();
        plan.rounds = self.rounds.unwrap_or(plan.rounds);
        let campaign = Campaign::create(
            &self.directory,
            Freeze {
                seed: self.seed.or(plan.seed).unwrap_or_else(seed_from_clock),
                reruns_max: self.reruns.or(plan.reruns_max).unwrap_or(DEFAULT_RERUNS),
                plan: &plan,
                program: this_program()?,
                now: jiff::Timestamp::now(),
            },
        )?;
        let frozen = campaign.frozen();
        let (blocks, targets) = (frozen.blocks.len(), frozen.targets.len());
        say!(
            "{}: seed {}, {} in {} of {}",
            frozen.name,
            frozen.seed,
            units::counted((blocks * targets) as u64, "cell"),
            units::counted(blocks as u64, "block"),
            units::counted(targets as u64, "target")
        );
        if has_stop_rule {
            say!(
                "the campaign has {} rounds of each workload; `rounds_max` of the plan does not \
                 apply, because no share sees the samples of the others",
                frozen.rounds
            );
        }
        for input in &frozen.inputs {
            let (path, size) = (input.path.display(), units::bytes(input.bytes));
            say!("input file {path}, {size}, BLAKE3 {}", input.blake3);
        }
        say!("next: fslab campaign run {} --share 1/1", quoted(&self.directory));
        Ok(())
    }
}
