//! How the ratios of several machines become one, and what differs between machines.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::names::distinct;
use crate::provenance::Provenance;
use fslab_stats::{RatioInterval, clustered_ratio, stratified_ratio};

/// How the ratios of several machines become one.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// Each machine is a stratum: the interval holds for these machines.
    #[default]
    Strata,
    /// Each machine is a cluster, drawn from many: the interval holds for machines like these.
    Clusters,
}

impl Pooling {
    /// The ratio of pairs, by machine.
    pub(crate) fn ratio(self, machines: &[Vec<(f64, f64)>], seed: u64) -> Option<RatioInterval> {
        match self {
            Self::Strata => stratified_ratio(machines, seed),
            Self::Clusters => clustered_ratio(machines, seed),
        }
    }

    /// Whether it is that of all reports but campaigns'.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(crate) fn is_strata(&self) -> bool {
        *self == Self::Strata
    }
}

/// What differs between machines, a sentence each; sessions are given with their machines' names.
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

/// Nodes that are one machine: they were started together.
fn shared_kernels(sessions: &[(&str, &Provenance)]) -> Option<String> {
    let mut boots: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (machine, session) in sessions {
        let Some(boot) = &session.boot else { continue };
        let nodes = boots.entry(boot).or_default();
        if !nodes.contains(machine) {
            nodes.push(machine);
        }
    }
    let shared: Vec<&Vec<&str>> = boots.values().filter(|nodes| nodes.len() > 1).collect();
    let groups = shared.iter().map(|nodes| nodes.join(", ")).collect::<Vec<_>>();
    let nodes = distinct(sessions.iter().map(|(machine, _)| *machine)).len();
    let kernels = match boots.len() {
        1 => "one kernel".to_owned(),
        more => format!("{more} kernels"),
    };
    (!shared.is_empty()).then(|| {
        format!(
            "{nodes} nodes, {kernels}: nodes with the same boot ID run on one machine ({}), so \
             their ratios are not independent and say nothing of other machines",
            groups.join("; ")
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
    fn what_differs_is_said_with_the_machines() {
        let (one, other, third) = (session("x", "6.1"), session("y", "6.18"), session("z", "6.1"));
        assert_eq!(differences(&[("a", &one)]), Vec::<String>::new());
        let found = differences(&[("a", &one), ("b", &other), ("c", &third), ("a", &one)]);
        assert_eq!(found, ["the kernel differs: 6.1 on a, c; 6.18 on b"]);
    }

    #[test]
    fn nodes_of_one_kernel_are_called_one_machine() {
        let one = session("x", "6.1");
        let found = differences(&[("n1", &one), ("n2", &one)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("2 nodes, one kernel: "), "{found:?}");
        assert!(found[0].contains("(n1, n2)"), "{found:?}");
        let other = session("y", "6.1");
        let found = differences(&[("n1", &one), ("n2", &one), ("m", &other)]);
        assert!(found[0].starts_with("3 nodes, 2 kernels: "), "{found:?}");
    }
}
