//! Making and opening campaigns.

use std::path::{Path, PathBuf};

use fslab_compare::plan::TargetKind;
use fslab_compare::{Plan, block_seed};
use jiff::Timestamp;

use crate::error::{Error, Result};
use crate::format::{Block, FORMAT, Frozen, Input, Program};
use crate::{erasable, hash, reader, writer};

/// A campaign and its plan, which can be run on this host.
#[derive(Debug)]
pub struct Campaign {
    directory: PathBuf,
    frozen: Frozen,
    plan: Plan,
}

/// What a campaign is made of.
#[derive(Debug)]
pub struct Freeze<'a> {
    /// What is compared. Its least number of rounds is run: a stop rule would have to know what
    /// other hosts measure.
    pub plan: &'a Plan,
    /// Where everything random comes from.
    pub seed: u64,
    /// How often a block is repeated because of interference.
    pub reruns_max: u32,
    /// The program that runs it.
    pub program: Program,
    /// The present time.
    pub now: Timestamp,
}

impl Campaign {
    /// Makes a campaign in a directory that is empty or not there.
    ///
    /// # Errors
    /// Where the plan names a device by a path or a file in a stack, reads something that is not
    /// there, or the directory can't be written; nothing is left of it then.
    pub fn create(directory: &Path, freeze: Freeze<'_>) -> Result<Self> {
        let Freeze { plan, seed, reruns_max, program, now } = freeze;
        erasable::check_roles(plan)?;
        check_stacks(plan)?;
        let inputs = plan.inputs().iter().map(|named| input(named)).collect::<Result<_>>()?;
        let frozen = Frozen {
            format: FORMAT,
            name: plan.name.clone(),
            created: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            plan_blake3: hash::of_bytes(plan.text.as_bytes()),
            form: plan.form,
            seed,
            rounds: plan.rounds,
            reruns_max,
            program,
            inputs,
            targets: targets(plan),
            blocks: blocks(plan, seed, plan.rounds),
        };
        writer::create(directory, &frozen, &plan.text)?;
        Self::open(directory)
    }

    /// Opens a campaign. What its plan reads is not looked at.
    ///
    /// # Errors
    /// Where the directory is no campaign's, or its record and plan are not those that were frozen.
    pub fn open(directory: &Path) -> Result<Self> {
        let (frozen, text) = reader::read(directory)?;
        let file = directory.join(crate::format::PLAN);
        let plan = Plan::parse(&file.display().to_string(), &text, frozen.form)
            .map_err(fslab_compare::Error::from)?;
        let plan = Plan { rounds: frozen.rounds, rounds_max: frozen.rounds, ..plan };
        let inconsistent = |what| Error::Inconsistent { path: directory.to_owned(), what };
        if (targets(&plan), blocks(&plan, frozen.seed, frozen.rounds))
            != (frozen.targets.clone(), frozen.blocks.clone())
        {
            return Err(inconsistent("list of cells"));
        }
        let placed = plan.with_inputs(|named| {
            let input = frozen.inputs.iter().find(|input| input.named == named);
            input.map(|input| input.path.clone()).ok_or_else(|| inconsistent("list of inputs"))
        });
        let plan = placed?;
        Ok(Self { directory: directory.to_owned(), frozen, plan })
    }

    /// What was frozen.
    #[must_use]
    pub fn frozen(&self) -> &Frozen {
        &self.frozen
    }

    /// The plan, with its inputs where they are on every host; devices are roles.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Its directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Refuses another build than the one that made it.
    ///
    /// # Errors
    /// [`Error::OtherBuild`].
    pub fn check_program(&self, found: &Program) -> Result<()> {
        if *found == self.frozen.program {
            return Ok(());
        }
        let (found, frozen) = (found.clone(), self.frozen.program.clone());
        Err(Error::OtherBuild { found, frozen })
    }

    /// Refuses inputs that have changed; reads all of them.
    ///
    /// # Errors
    /// Names the first that has, or that can't be read.
    pub fn check_inputs(&self) -> Result<()> {
        self.frozen.inputs.iter().try_for_each(hash::check)
    }
}

/// Refuses stacks within the process that end in a file or a directory: its contents are not
/// frozen.
fn check_stacks(plan: &Plan) -> Result<()> {
    for target in &plan.targets {
        let TargetKind::InProcess { specification } = &target.kind else { continue };
        let leaf = specification.rsplit(" / ").next().unwrap_or_default().trim();
        let place = leaf.split('?').next().unwrap_or_default();
        let place = place.split_once(':').map_or(place, |(_, argument)| argument);
        // `mem:` names nothing, and `ext2:memory` is a new file system in memory.
        if !["", "memory"].contains(&place) {
            return Err(Error::PathInStack { target: target.name.clone(), named: leaf.to_owned() });
        }
    }
    Ok(())
}

fn input(named: &Path) -> Result<Input> {
    let path = std::path::absolute(named).map_err(Error::file(named))?;
    if path.to_str().is_none() {
        return Err(Error::NotUtf8 { path });
    }
    hash::input(named, path)
}

/// Names of what each block is run on.
fn targets(plan: &Plan) -> Vec<String> {
    let own = plan.targets.iter().map(|target| target.name.clone());
    own.chain(plan.second_copy().map(|copy| copy.name)).collect()
}

/// The blocks, round by round.
fn blocks(plan: &Plan, seed: u64, rounds: u32) -> Vec<Block> {
    let of_round = |round: u32| {
        plan.workloads.iter().enumerate().map(move |(index, workload)| Block {
            workload: workload.label.clone(),
            round,
            seed: block_seed(seed, round, index),
        })
    };
    (0..rounds).flat_map(of_round).collect()
}
