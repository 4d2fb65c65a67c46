//! The choice of a plan's cells that are measured in one run. A campaign can be divided into runs
//! on several machines and days; their samples files are merged when a report reads them.
//!
//! A cell is one target, one workload and one round. Its seed and its position in the round's order
//! depend only on the plan and the campaign's seed. A cell is therefore the same in every run.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A choice of cells; all cells by default.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Cells {
    /// One of several equal shares of the blocks.
    pub share: Option<Share>,
    /// Only these targets; all if empty.
    pub targets: Vec<String>,
    /// Only these workloads; all if empty.
    pub workloads: Vec<String>,
    /// Only these rounds, counted from 1; all if `None`.
    pub rounds: Option<RangeInclusive<u32>>,
    /// Only these blocks: the rounds of each workload, by its label. Rounds are counted from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<BTreeMap<String, BTreeSet<u32>>>,
}

/// One of several equal shares of all blocks. A block is one round of one workload on all targets,
/// so runs that are compared in pairs stay together.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Share {
    /// The number of this share, from 1.
    pub number: u32,
    /// The number of shares.
    pub of: u32,
}

impl FromStr for Share {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        const FORM: &str = "a share is written K/N, with K from 1 to N, such as 2/4";
        let (number, of) = text.split_once('/').ok_or(FORM)?;
        let parse = |part: &str| part.parse::<u32>().or(Err(FORM));
        let share = Self { number: parse(number)?, of: parse(of)? };
        if share.number == 0 || share.number > share.of { Err(FORM) } else { Ok(share) }
    }
}

impl Cells {
    /// Whether all cells are chosen.
    #[must_use]
    pub fn are_all(&self) -> bool {
        *self == Self::default()
    }

    /// Checks that all chosen targets and workloads exist in a plan.
    ///
    /// # Errors
    /// Reports the first unknown name and the most similar names.
    pub fn check(&self, targets: &[&str], workloads: &[&str]) -> Result<()> {
        known("target", &self.targets, targets)?;
        known("workload", &self.workloads, workloads)
    }

    /// Whether the target with this name is run.
    #[must_use]
    pub fn hold_target(&self, name: &str) -> bool {
        self.targets.is_empty() || self.targets.iter().any(|target| target == name)
    }

    /// Whether the block of a round and a workload, both counted from 0, is run. `count` is the
    /// number of workloads in the plan.
    #[must_use]
    pub fn hold_block(&self, round: u32, workload: usize, label: &str, count: usize) -> bool {
        let number = u64::from(round) * count as u64 + workload as u64;
        let ours = |share: Share| number % u64::from(share.of) == u64::from(share.number - 1);
        let named = |blocks: &BTreeMap<String, BTreeSet<u32>>| {
            blocks.get(label).is_some_and(|rounds| rounds.contains(&round))
        };
        self.share.is_none_or(ours)
            && self.blocks.as_ref().is_none_or(named)
            && self.rounds.as_ref().is_none_or(|rounds| rounds.contains(&(round + 1)))
            && (self.workloads.is_empty() || self.workloads.iter().any(|name| name == label))
    }
}

fn known(what: &'static str, names: &[String], valid: &[&str]) -> Result<()> {
    match names.iter().find(|name| !valid.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(Error::unknown(what, name, valid.iter().copied())),
    }
}

#[cfg(test)]
mod tests {
    use super::{Cells, Share};

    #[test]
    fn each_block_belongs_to_exactly_one_share() {
        let share = |number| Cells { share: Some(Share { number, of: 3 }), ..Cells::default() };
        for round in 0..5 {
            for workload in 0..4 {
                let held =
                    (1..=3).filter(|number| share(*number).hold_block(round, workload, "w", 4));
                assert_eq!(held.count(), 1, "round {round}, workload {workload}");
            }
        }
    }

    #[test]
    fn valid_shares_parse_and_invalid_ones_are_refused() {
        assert_eq!("2/4".parse(), Ok(Share { number: 2, of: 4 }));
        for wrong in ["", "0/4", "5/4", "1", "1/0", "a/b", "1/2/3"] {
            assert!(wrong.parse::<Share>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn cells_match_by_workload_round_and_target() {
        let cells = Cells {
            workloads: vec!["w".to_owned()],
            rounds: Some(2..=3),
            targets: vec!["a".to_owned()],
            ..Cells::default()
        };
        assert!(cells.hold_target("a") && !cells.hold_target("b") && !cells.are_all());
        let held = |round| cells.hold_block(round, 0, "w", 2);
        assert_eq!([0, 1, 2, 3].map(held), [false, true, true, false]);
        assert!(!cells.hold_block(1, 1, "other", 2));
    }

    #[test]
    fn single_blocks_are_chosen() {
        let blocks = [("w".to_owned(), [0, 2].into())].into();
        let cells = Cells { blocks: Some(blocks), ..Cells::default() };
        let held = |label: &str| [0, 1, 2].map(|round| cells.hold_block(round, 0, label, 2));
        assert_eq!((held("w"), held("other")), ([true, false, true], [false; 3]));
    }
}
