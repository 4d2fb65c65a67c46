//! Checks that the stability level of each part follows from the evidence in `docs/stability.toml`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::expect;
use crate::support::fslab;

const FILE: &str = include_str!("../../../../../docs/stability.toml");

/// The levels from the lowest to the highest, as `fslab list` prints them.
const LEVELS: [&str; 3] = ["experimental", "beta", "stable"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stability {
    proof: Vec<Proof>,
    part: Vec<Part>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Proof {
    key: String,
    promise: u32,
    what: String,
    beta: u64,
    stable: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    name: String,
    names: Vec<String>,
    changed: String,
    #[serde(default)]
    not_needed: Vec<String>,
    reason: Option<String>,
    shown: BTreeMap<String, Shown>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shown {
    amount: u64,
    on: String,
    by: String,
}

impl Part {
    /// Returns the amount of evidence for the current code; 0 if there is none.
    fn amount(&self, proof: &Proof) -> u64 {
        let shown = self.shown.get(&proof.key).filter(|shown| shown.on >= self.changed);
        shown.map_or(0, |shown| shown.amount)
    }

    /// Returns the level that one kind of evidence allows, as an index of [`LEVELS`].
    fn level_by(&self, proof: &Proof) -> usize {
        let amount = self.amount(proof);
        match self.not_needed.contains(&proof.key) {
            true => 2,
            false => usize::from(amount >= proof.beta) + usize::from(amount >= proof.stable),
        }
    }

    fn level(&self, proofs: &[Proof]) -> &'static str {
        LEVELS[proofs.iter().map(|proof| self.level_by(proof)).min().unwrap()]
    }
}

/// Returns whether a text has the form `YYYY-MM-DD`.
fn is_day(text: &str) -> bool {
    let matches = |(letter, form): (char, char)| match form {
        '0' => letter.is_ascii_digit(),
        form => letter == form,
    };
    text.len() == 10 && text.chars().zip("0000-00-00".chars()).all(matches)
}

fn stability() -> Stability {
    toml::from_str(FILE).unwrap()
}

/// Returns the level of each layer and leaf as the program prints it.
fn listed() -> BTreeMap<String, String> {
    let output = fslab(&["list", "--json"]).output().unwrap();
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let entries = ["layers", "leaves"].map(|section| all[section].as_array().unwrap());
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let entries = entries.into_iter().flatten();
    entries.map(|entry| (text(&entry["name"]), text(&entry["stability"]))).collect()
}

#[test]
fn stability_levels_follow_from_recorded_evidence() {
    let Stability { proof: proofs, part: parts } = stability();
    let is_proof = |key: &String| proofs.iter().any(|proof| proof.key == *key);
    let mut computed = BTreeMap::new();
    for part in &parts {
        assert!(part.shown.keys().chain(&part.not_needed).all(is_proof), "{part:?}");
        assert_eq!(part.reason.is_some(), !part.not_needed.is_empty(), "{part:?}");
        let days = part.shown.values().map(|shown| &shown.on).chain([&part.changed]);
        // Dates in this form are ordered like their text.
        assert!(days.clone().all(|day| is_day(day)), "{part:?}");
        for name in &part.names {
            let earlier = computed.insert(name.clone(), part.level(&proofs).to_owned());
            assert_eq!(earlier, None, "{name} is in two parts");
        }
    }
    assert_eq!(listed(), computed);
    expect("docs/guide/src/reference/stability.md", &page(&proofs, &parts));
}

#[test]
fn missing_small_or_outdated_evidence_lowers_the_level() {
    let proofs = [Proof {
        key: "kills".to_owned(),
        promise: 2,
        what: String::new(),
        beta: 300,
        stable: 3000,
    }];
    let level = |amount, on: &str| {
        let shown = Shown { amount, on: on.to_owned(), by: String::new() };
        let part = Part {
            name: String::new(),
            names: Vec::new(),
            changed: "2026-11-20".to_owned(),
            not_needed: Vec::new(),
            reason: None,
            shown: BTreeMap::from([("kills".to_owned(), shown)]),
        };
        part.level(&proofs)
    };
    assert_eq!(level(299, "2026-11-20"), "experimental");
    assert_eq!(level(300, "2026-11-20"), "beta");
    assert_eq!(level(9000, "2026-11-19"), "experimental");
    assert_eq!(level(3000, "2026-12-01"), "stable");
}

const INTRODUCTION: &str = "\
# Stability levels

A level states which evidence exists for a part of fslab, not how much its authors trust it.

- **experimental**: its tests pass, but long tests are missing or too short. A mount prints a
  warning. Keep other copies of your files.
- **beta**: tests of the present code reached every amount in the column *beta*, without a lost or
  wrong byte.
- **stable**: the same with the amounts in the column *stable*.

Evidence that is older than the last change of a part's code does not count. Formats are versioned
at each level: [formats and versions](formats.md) lists which version reads which.

## What a level demands

The numbers of the promises are those in [promises in short](promises.md).

";

fn page(proofs: &[Proof], parts: &[Part]) -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str("| promise | proof | beta | stable |\n|---|---|---|---|\n");
    for Proof { promise, what, beta, stable, .. } in proofs {
        let (beta, stable) = (grouped(*beta), grouped(*stable));
        page.push_str(&format!("| {promise} | {what} | {beta} | {stable} |\n"));
    }
    for part in parts {
        page.push_str(&format!("\n## {}: {}\n\n", capitalised(&part.name), part.level(proofs)));
        let names: Vec<String> = part.names.iter().map(|name| format!("`{name}`")).collect();
        page.push_str(&format!("{}.", names.join(", ")));
        page.push_str(&format!(" The code of this part last changed on {}.", part.changed));
        if let Some(reason) = &part.reason {
            page.push_str(&format!(" Some proofs are not needed, because {reason}."));
        }
        page.push_str("\n\n| proof | shown | on | by | allows |\n|---|---|---|---|---|\n");
        for proof in proofs.iter().filter(|proof| !part.not_needed.contains(&proof.key)) {
            page.push_str(&row(part, proof));
        }
    }
    page
}

fn row(part: &Part, proof: &Proof) -> String {
    let allows = LEVELS[part.level_by(proof)];
    match part.shown.get(&proof.key) {
        Some(Shown { amount, on, by }) => {
            let outdated = if *on < part.changed { " (outdated)" } else { "" };
            let amount = grouped(*amount);
            format!("| {} | {amount}{outdated} | {on} | {by} | {allows} |\n", proof.what)
        }
        None => format!("| {} | 0 | - | - | {allows} |\n", proof.what),
    }
}

/// Formats a number with a comma between groups of three digits.
fn grouped(amount: u64) -> String {
    let digits = amount.to_string();
    let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    groups.iter().map(|group| String::from_utf8_lossy(group)).collect::<Vec<_>>().join(",")
}

fn capitalised(text: &str) -> String {
    text[..1].to_uppercase() + &text[1..]
}
