//! Combines the ratios of several machines, and describes the differences between machines.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::names::distinct;
use crate::provenance::Provenance;
use fslab_stats::{RatioInterval, clustered_ratio, stratified_ratio};

/// The way to combine the ratios of several machines.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// Each machine is a stratum. The interval is valid only for these machines.
    #[default]
    Strata,
    /// Each machine is a cluster, drawn at random from many machines of one kind. The interval is
    /// valid for all machines of that kind. Machines with the same boot ID are treated as one.
    Clusters,
}

impl Pooling {
    /// Returns the ratio over all machines. `groups` is the result of [`Self::groups`]; `pairs`
    /// returns the pairs of one machine.
    pub(crate) fn ratio(
        self,
        groups: &[Vec<usize>],
        pairs: impl Fn(usize) -> Vec<(f64, f64)>,
        seed: u64,
    ) -> Option<RatioInterval> {
        let of_group = |group: &Vec<usize>| group.iter().flat_map(|one| pairs(*one)).collect();
        let groups: Vec<_> = groups.iter().map(of_group).collect();
        match self {
            Self::Strata => stratified_ratio(&groups, seed),
            Self::Clusters => clustered_ratio(&groups, seed),
        }
    }

    /// Returns the groups of machines that are treated as one machine: single machines, or the
    /// machines that have the same kernel.
    pub(crate) fn groups(self, machines: usize, boots: Vec<(usize, &str)>) -> Vec<Vec<usize>> {
        match self {
            Self::Strata => (0..machines).map(|machine| vec![machine]).collect(),
            Self::Clusters => by_kernel(machines, boots),
        }
    }

    /// Whether this is [`Self::Strata`], the pooling of all reports except those of campaigns.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(crate) fn is_strata(&self) -> bool {
        *self == Self::Strata
    }
}

/// Describes the differences between machines, in one sentence each. Each session has the name of
/// its machine.
pub(crate) fn differences(sessions: &[(&str, &Provenance)]) -> Vec<String> {
    let mut sentences: Vec<String> = shared_kernels(sessions).into_iter().collect();
    let machines = distinct(sessions.iter().map(|(machine, _)| *machine));
    if machines.len() < 2 {
        return sentences;
    }
    let mut values: BTreeMap<&str, BTreeMap<String, Vec<&str>>> = BTreeMap::new();
    for (machine, session) in sessions {
        for (name, value) in session.conditions_of_machine() {
            let found = values.entry(name).or_default().entry(value).or_default();
            if !found.contains(machine) {
                found.push(machine);
            }
        }
    }
    for (name, values) in values.iter().filter(|(_, values)| values.len() > 1) {
        let each = values.iter().map(|(value, machines)| {
            let value = if value.is_empty() { "not known" } else { value };
            format!("{value} on {}", machines.join(", "))
        });
        sentences.push(format!("the {name} differs: {}", each.collect::<Vec<_>>().join("; ")));
    }
    sentences
}

/// Groups machines that share a boot ID, directly or through other machines. Each machine is in one
/// group.
fn by_kernel(machines: usize, boots: Vec<(usize, &str)>) -> Vec<Vec<usize>> {
    let mut group: Vec<usize> = (0..machines).collect();
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    for (machine, boot) in boots {
        let known = group[*first.entry(boot).or_insert(machine)];
        let joined = group[machine];
        group.iter_mut().filter(|one| **one == joined).for_each(|one| *one = known);
    }
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (machine, group) in group.into_iter().enumerate() {
        groups.entry(group).or_default().push(machine);
    }
    groups.into_values().collect()
}

/// Describes nodes that are one machine, because they have the same boot ID.
fn shared_kernels(sessions: &[(&str, &Provenance)]) -> Option<String> {
    let machines = distinct(sessions.iter().map(|(machine, _)| *machine));
    let place = |name: &str| machines.iter().position(|one| *one == name);
    let boots = sessions
        .iter()
        .filter_map(|(name, session)| Some((place(name)?, session.boot.as_deref()?)));
    let kernels = by_kernel(machines.len(), boots.collect());
    let shared = kernels
        .iter()
        .filter(|nodes| nodes.len() > 1)
        .map(|nodes| nodes.iter().map(|node| machines[*node]).collect::<Vec<_>>().join(", "));
    let shared: Vec<String> = shared.collect();
    let count = match kernels.len() {
        1 => "one kernel".to_owned(),
        more => format!("{more} kernels"),
    };
    (!shared.is_empty()).then(|| {
        format!(
            "{} nodes, {count}: some nodes have the same boot ID, so they run on one machine ({}). \
             The interval over all machines treats them as one machine, because their ratios are \
             not independent",
            machines.len(),
            shared.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(boot: &str, kernel: &str) -> Provenance {
        let (boot, kernel) = (Some(boot.to_owned()), kernel.to_owned());
        Provenance { boot, kernel, ..Provenance::default() }
    }

    #[test]
    fn differences_are_reported_with_their_machines() {
        let (one, other, third) = (session("x", "6.1"), session("y", "6.18"), session("z", "6.1"));
        assert_eq!(differences(&[("a", &one)]), Vec::<String>::new());
        let found = differences(&[("a", &one), ("b", &other), ("c", &third), ("a", &one)]);
        assert_eq!(found, ["the kernel differs: 6.1 on a, c; 6.18 on b"]);
    }

    #[test]
    fn nodes_that_share_a_kernel_are_reported() {
        let one = session("x", "6.1");
        let found = differences(&[("n1", &one), ("n2", &one)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("2 nodes, one kernel: "), "{found:?}");
        assert!(found[0].contains("(n1, n2)"), "{found:?}");
        let other = session("y", "6.1");
        let found = differences(&[("n1", &one), ("n2", &one), ("m", &other)]);
        assert!(found[0].starts_with("3 nodes, 2 kernels: "), "{found:?}");
        // After a reboot n2 shares a kernel first with n1 and then with n3.
        let found = differences(&[("n1", &one), ("n2", &one), ("n2", &other), ("n3", &other)]);
        assert!(found[0].starts_with("3 nodes, one kernel: "), "{found:?}");
        assert!(found[0].contains("(n1, n2, n3)"), "{found:?}");
    }
}
