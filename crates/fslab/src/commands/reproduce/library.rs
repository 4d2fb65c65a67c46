//! The papers and plans that are part of the program.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use fslab_compare::Plan;
use fslab_compare::plan::Form;
use fslab_reproduce::{Command, Paper, Preparation, Query};

use crate::commands::built_in::{self, PAPERS, Text};

/// Names of the plans that claims may use.
const CLAIM_PLANS: &[&str] = &[
    "fast-indexing",
    "fast-indexing-tools",
    "aging",
    "aging-policies",
    "dmfs",
    "names",
    "names-sizes",
    "names-millions",
    "attributes",
];

/// Returns the plans that claims may use.
pub(super) fn plans() -> impl Iterator<Item = &'static Text> {
    CLAIM_PLANS.iter().filter_map(|name| built_in::find(name))
}

/// The argument that selects all papers.
pub(super) const ALL: &str = "all";

/// Returns the names of papers that the command line accepts.
pub(super) fn names() -> PossibleValuesParser {
    PAPERS.iter().map(|paper| paper.name).chain([ALL]).collect::<Vec<_>>().into()
}

/// The requested papers, and the plans they need.
pub(super) struct Library {
    pub papers: Vec<Paper>,
    /// The plans in the requested form.
    pub plans: Vec<(&'static Text, Plan)>,
    pub form: Form,
    /// The full form of all plans, by name.
    full: BTreeMap<String, Plan>,
}

impl Library {
    /// Reads the claims of one paper, or of all papers.
    pub fn open(name: &str, form: Form) -> Result<Self> {
        let full = plans().map(|text| Ok((text.name.to_owned(), text.plan(Form::Full)?)));
        let full: BTreeMap<String, Plan> = full.collect::<Result<_>>()?;
        let wanted = PAPERS.iter().filter(|paper| [paper.name, ALL].contains(&name));
        let papers = wanted.map(|paper| {
            let file = format!("docs/reproduce/{}.toml", paper.name);
            Ok(Paper::parse(paper.name, &file, paper.text, &full)?)
        });
        let papers = papers.collect::<Result<Vec<Paper>>>()?;
        let named = plans_of(&papers);
        let texts = plans().filter(|text| named.contains(text.name));
        let plans = texts.map(|text| Ok((text, text.plan(form)?))).collect::<Result<_>>()?;
        Ok(Self { papers, plans, form, full })
    }

    /// Returns the number of rounds of a plan's full form.
    pub fn rounds(&self, name: &str) -> u32 {
        self.full[name].rounds
    }

    /// Returns the commands that the claims need, each once.
    pub fn commands(&self) -> Vec<&Command> {
        let mut commands: Vec<&Command> = Vec::new();
        for command in self.papers.iter().flat_map(|paper| &paper.commands) {
            if commands.iter().all(|known| known.name != command.name) {
                commands.push(command);
            }
        }
        commands
    }

    /// Returns the files that plans need before they are run.
    pub fn preparations(&self) -> Vec<&Preparation> {
        self.papers.iter().flat_map(|paper| &paper.preparations).collect()
    }

    /// Returns the names of the targets and of the workloads of `plan` that the claims use.
    pub fn cells(&self, name: &str, plan: &Plan) -> (Vec<String>, Vec<String>) {
        let queries: Vec<&Query> = self
            .papers
            .iter()
            .flat_map(Paper::queries)
            .filter(|query| query.plan == name)
            .collect();
        let places = || queries.iter().flat_map(|query| query.places());
        let targets = plan.targets.iter().map(|target| &target.name);
        let labels = plan.workloads.iter().map(|workload| &workload.label);
        (
            targets.filter(|name| places().any(|place| place.target == **name)).cloned().collect(),
            labels.filter(|label| places().any(|at| at.workload == **label)).cloned().collect(),
        )
    }
}

/// Returns the plans that papers use.
pub(super) fn plans_of(papers: &[Paper]) -> BTreeSet<String> {
    papers.iter().flat_map(Paper::queries).map(|query| query.plan.clone()).collect()
}

#[cfg(test)]
mod tests {
    use fslab_compare::plan::{Form, Over, TargetKind};
    use fslab_layers::LAYERS;
    use fslab_reproduce::{Basis, Claim, Paper};

    use super::{ALL, Library, plans};
    use crate::layers::FOREIGN;

    const README: &str = include_str!("../../../../../docs/reproduce/README.md");

    fn line(paper: &Paper) -> String {
        let count =
            |wanted: fn(&&Claim) -> bool| paper.claims.iter().filter(wanted).count().to_string();
        let cells = [
            format!("{}.toml", paper.name),
            paper.claims.len().to_string(),
            count(|claim| claim.published.as_ref().is_some_and(|one| one.is_number())),
            count(|claim| matches!(claim.basis, Basis::Plan(_))),
            count(|claim| matches!(claim.basis, Basis::Command(_))),
            count(|claim| matches!(claim.basis, Basis::Missing(_))),
            count(|claim| matches!(claim.basis, Basis::NotReproduced(_))),
            count(|claim| claim.kind.why_not_counted().is_some()),
            paper.charts.len().to_string(),
        ];
        format!("| {} |", cells.join(" | "))
    }

    /// Parsing a claim file also checks the names of plans, targets and workloads in it.
    #[test]
    fn every_claim_parses_and_matches_the_documented_counts() {
        for form in [Form::Full, Form::Quick] {
            let library = Library::open(ALL, form).unwrap_or_else(|error| panic!("{error:#}"));
            for command in library.papers.iter().flat_map(|paper| &paper.commands) {
                let same = library.commands().iter().any(|one| one.run == command.run);
                assert!(same, "two commands are called {}", command.name);
            }
            for paper in &library.papers {
                let line = line(paper);
                assert!(README.contains(&line), "docs/reproduce/README.md lacks: {line}");
            }
            for (text, plan) in &library.plans {
                let (targets, workloads) = library.cells(text.name, plan);
                assert!(!targets.is_empty() && !workloads.is_empty(), "{}", text.name);
            }
        }
    }

    #[test]
    fn only_targets_with_unknown_layers_declare_needs() {
        for text in plans() {
            let plan = text.plan(Form::Full).unwrap_or_else(|error| panic!("{error:#}"));
            for target in &plan.targets {
                let TargetKind::Image { over: Over::Layers(layers), .. } = &target.kind else {
                    continue;
                };
                let is_known = |layer: &String| {
                    let name = layer.split(':').next().unwrap_or_default();
                    LAYERS.iter().chain(FOREIGN).any(|spec| spec.name == name)
                };
                let waits = target.needs.is_some();
                let known = layers.iter().all(is_known);
                assert_eq!(waits, !known, "{}: `needs` of {}", text.name, target.name);
            }
        }
    }

    #[test]
    fn selecting_one_paper_loads_only_its_plans() {
        let library = Library::open("dmfs", Form::Quick).unwrap_or_else(|error| panic!("{error}"));
        let plans: Vec<_> = library.plans.iter().map(|(text, _)| text.name).collect();
        assert_eq!((library.papers.len(), plans), (1, vec!["dmfs"]));
    }
}
