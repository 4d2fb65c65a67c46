//! Creates and opens campaigns.

use std::path::{Path, PathBuf};

use fslab_compare::plan::TargetKind;
use fslab_compare::{Plan, block_seed};
use jiff::Timestamp;

use crate::error::{Error, Result};
use crate::format::{Block, FORMAT, Frozen, Input, Program};
use crate::{erasable, hash, reader, writer};

/// An existing campaign with its plan.
#[derive(Debug)]
pub struct Campaign {
    directory: PathBuf,
    frozen: Frozen,
    plan: Plan,
}

/// The settings of a new campaign.
#[derive(Debug)]
pub struct Freeze<'a> {
    /// The plan. A campaign runs exactly the plan's minimum number of rounds, because a decision to
    /// add rounds would need the measurements of all hosts.
    pub plan: &'a Plan,
    /// The seed of all random choices.
    pub seed: u64,
    /// Maximum number of times that a block is repeated because of interference.
    pub reruns_max: u32,
    /// The program that creates the campaign.
    pub program: Program,
    /// The current time.
    pub now: Timestamp,
}

impl Campaign {
    /// Creates a campaign in a directory that is empty or does not exist.
    ///
    /// # Errors
    /// Fails if the plan contains a device path, or a stack over a file or directory. Also fails if
    /// an input of the plan is missing, or if the directory can't be written. After an error, no
    /// part of the campaign remains.
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

    /// Opens a campaign. Its inputs are not checked.
    ///
    /// # Errors
    /// Fails if the directory is not a campaign, or if its record or plan differs from the frozen
    /// one.
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

    /// Returns the record that was frozen at creation.
    #[must_use]
    pub fn frozen(&self) -> &Frozen {
        &self.frozen
    }

    /// Returns the plan. Its inputs are absolute paths, which are the same on every host. Its
    /// devices are specified by roles.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the directory of the campaign.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Refuses a build other than the one that created the campaign.
    ///
    /// # Errors
    /// Fails with [`Error::OtherBuild`] if the builds differ.
    pub fn check_program(&self, found: &Program) -> Result<()> {
        if *found == self.frozen.program {
            return Ok(());
        }
        let (found, frozen) = (found.clone(), self.frozen.program.clone());
        Err(Error::OtherBuild { found, frozen })
    }

    /// Reads all inputs and refuses those that have changed.
    ///
    /// # Errors
    /// Fails on the first input that has changed or can't be read.
    pub fn check_inputs(&self) -> Result<()> {
        self.frozen.inputs.iter().try_for_each(hash::check)
    }
}

/// Refuses in-process stacks over a file or directory, because its content is not frozen.
fn check_stacks(plan: &Plan) -> Result<()> {
    for target in &plan.targets {
        let TargetKind::InProcess { specification } = &target.kind else { continue };
        let leaf = specification.rsplit(" / ").next().unwrap_or_default().trim();
        let place = leaf.split('?').next().unwrap_or_default();
        let place = place.split_once(':').map_or(place, |(_, argument)| argument);
        // `mem:` has no path, and `ext2:memory` is a new file system in memory.
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

/// Returns the names of all targets, with the second copy of the baseline if there is one.
fn targets(plan: &Plan) -> Vec<String> {
    let own = plan.targets.iter().map(|target| target.name.clone());
    own.chain(plan.second_copy().map(|copy| copy.name)).collect()
}

/// Returns the blocks, round by round.
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
