//! The choice of unsynced effects that survive a crash.

use std::collections::HashSet;
use std::fmt;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The number of states that are checked at each point.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Seed of the random subsets.
    pub seed: u64,
    /// Number of random subsets per point.
    pub subsets: u32,
    /// Number of prefixes per point. All prefixes are used if there are fewer than twice this
    /// number. Otherwise this number or somewhat more are used, at equal distances.
    pub prefixes: usize,
}

impl Plan {
    /// The states with all, none, each prefix (or about 64 of them), and 64 random subsets of the
    /// unsynced effects.
    #[must_use]
    pub fn full(seed: u64) -> Self {
        Self { seed, subsets: 64, prefixes: 64 }
    }

    /// Fewer states, for tests that run often: about 6 prefixes and 6 subsets.
    #[must_use]
    pub fn quick(seed: u64) -> Self {
        Self { seed, subsets: 6, prefixes: 6 }
    }
}

/// The unsynced effects that survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survivors {
    /// No effect survives.
    None,
    /// All effects survive.
    All,
    /// This many of the first effects survive.
    Prefix(usize),
    /// The random subset with this number survives.
    Subset(u32),
}

impl fmt::Display for Survivors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => out.write_str("nothing unsynced survives"),
            Self::All => out.write_str("everything survives"),
            Self::Prefix(length) => write!(out, "the first {length} unsynced effects survive"),
            Self::Subset(number) => write!(out, "subset {number} of the unsynced effects survives"),
        }
    }
}

/// An unsynced effect, reduced to the part that matters for the choice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Effects of one class tend to survive together.
    pub class: usize,
}

/// Number of classes.
pub(super) const CLASSES: usize = 4;

/// All distinct choices of a plan at one point. `requires` returns the positions of the earlier
/// candidates that a candidate needs.
pub(super) fn choices(
    plan: &Plan,
    point: usize,
    candidates: &[Candidate],
    requires: &dyn Fn(usize) -> Vec<usize>,
) -> Vec<(Survivors, Vec<bool>)> {
    let count = candidates.len();
    let step = (count / plan.prefixes.max(1)).max(1);
    let prefixes = (step..count).step_by(step).map(Survivors::Prefix);
    let subsets = (0..plan.subsets).map(Survivors::Subset);
    let mut seen = HashSet::new();
    [Survivors::All, Survivors::None]
        .into_iter()
        .chain(prefixes)
        .chain(subsets)
        .map(|survivors| (survivors, choose(survivors, plan.seed, point, candidates, requires)))
        .filter(|(_, kept)| seen.insert(kept.clone()))
        .collect()
}

fn choose(
    survivors: Survivors,
    seed: u64,
    point: usize,
    candidates: &[Candidate],
    requires: &dyn Fn(usize) -> Vec<usize>,
) -> Vec<bool> {
    let count = candidates.len();
    match survivors {
        Survivors::None => vec![false; count],
        Survivors::All => vec![true; count],
        Survivors::Prefix(length) => (0..count).map(|place| place < length).collect(),
        Survivors::Subset(number) => {
            let mut draws = Pcg64Mcg::seed_from_u64(
                seed ^ (point as u64) << 32 ^ u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            );
            let shares: [f64; CLASSES] = std::array::from_fn(|_| share(&mut draws));
            let mut kept: Vec<bool> = Vec::with_capacity(count);
            for (place, candidate) in candidates.iter().enumerate() {
                let drawn = draws.random_bool(shares[candidate.class]);
                let kept_so_far = |needed: &usize| kept.get(*needed).copied().unwrap_or(false);
                let keep = drawn && requires(place).iter().all(kept_so_far);
                kept.push(keep);
            }
            kept
        }
    }
}

/// Draws the share of a class that survives. In half of the cases, it is all or nothing, because
/// protocols often fail in states in which one kind of effect is complete and another is missing.
fn share(draws: &mut Pcg64Mcg) -> f64 {
    match draws.random_range(0..4_u8) {
        0 => 0.0,
        1 => 1.0,
        _ => draws.random_range(0.0..1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: usize, plan: Plan, requires: &dyn Fn(usize) -> Vec<usize>) -> Vec<Vec<bool>> {
        let candidates: Vec<_> =
            (0..count).map(|place| Candidate { class: place % CLASSES }).collect();
        choices(&plan, 0, &candidates, requires).into_iter().map(|(_, kept)| kept).collect()
    }

    #[test]
    fn every_prefix_and_many_subsets_are_chosen_once() {
        let chosen = of(10, Plan::full(1), &|_| Vec::new());
        for length in 0..=10 {
            let prefix: Vec<_> = (0..10).map(|place| place < length).collect();
            assert!(chosen.contains(&prefix), "{length}");
        }
        let distinct: HashSet<_> = chosen.iter().collect();
        assert_eq!(distinct.len(), chosen.len());
        assert!(chosen.len() > 50, "{}", chosen.len());
        assert_eq!(of(0, Plan::full(1), &|_| Vec::new()).len(), 1);
    }

    #[test]
    fn required_predecessors_survive_too() {
        let chain = |place: usize| place.checked_sub(1).into_iter().collect();
        for kept in of(10, Plan::full(2), &chain) {
            let length = kept.iter().filter(|kept| **kept).count();
            assert!(kept[..length].iter().all(|kept| *kept), "{kept:?}");
        }
    }
}
