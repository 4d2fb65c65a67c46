//! A paper's claims. They are read from TOML and checked against their plans.
//!
//! `docs/reproduce/README.md` describes the keys.

mod chart;
mod reader;

use std::fmt;

use serde::{Deserialize, Serialize};

use super::answer::{Command, Reading};
use super::published::Published;
use super::quantity::Quantity;
use fslab_report::bytes;

pub use chart::{Axis, Chart, Form, Line};

/// A paper and its claims.
#[derive(Clone, Debug, Serialize)]
pub struct Paper {
    /// Short name, used for its file and on the command line.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Its authors.
    pub authors: String,
    /// Year of publication, if stated.
    pub year: Option<u32>,
    /// A few sentences on what this reproduction uses in place of the paper's systems.
    pub about: String,
    /// Conditions of the paper's measurements, and the conditions here.
    pub settings: Vec<Setting>,
    /// Files that must exist before plans run.
    pub preparations: Vec<Preparation>,
    /// Commands whose output claims and charts read.
    pub commands: Vec<Command>,
    /// Its claims; ids are unique.
    pub claims: Vec<Claim>,
    /// Charts in the paper's order; ids are unique.
    pub charts: Vec<Chart>,
}

/// A condition of the paper's measurements that is not a result.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// Name of the condition.
    pub what: String,
    /// The condition in the paper.
    pub paper: String,
    /// The condition here.
    pub here: String,
}

/// A file that plans use and that a command of fslab creates.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preparation {
    /// Name of the file in the plans and in the command.
    pub file: String,
    /// Arguments of the command.
    pub run: Vec<String>,
    /// Arguments in the quick form, if they are different.
    pub quick: Option<Vec<String>>,
    /// For an aged image, the file of the workload that must have been used to age it. An image
    /// aged by another workload is not used.
    pub workload: Option<String>,
}

/// A claim of a paper: a row of a table, a series of a figure, or a number.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// Stable identifier.
    pub id: String,
    /// Section, table or figure of the paper.
    pub place: String,
    /// The claim, in the words of this project.
    pub says: String,
    /// Published figures; `None` for a chart without numbers in the text.
    pub published: Option<Published>,
    /// The way in which this project gets its figure.
    pub kind: Kind,
    /// Source of the figure found here.
    pub basis: Basis,
    /// A note that explains the published figure and the figure found here.
    pub note: Option<String>,
}

/// The way in which a figure is obtained.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Measured on a running system.
    Measured,
    /// Simulated with the real algorithms on a device that keeps no data.
    Simulated,
    /// Calculated with a model of a device.
    Modelled,
    /// A parameter that was set here, or a figure to which a parameter was fitted.
    Input,
    /// True by definition, or because of the construction of the system under test.
    Definition,
}

/// Source of the figure for a claim.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Cells of a plan.
    Plan(Box<Query>),
    /// The output of a command.
    Command(Box<Reading>),
    /// fslab can't measure the claim yet. The text names the missing feature.
    Missing(String),
    /// The claim is deliberately not measured. The text states the reason.
    NotReproduced(String),
}

/// The value that a claim reads from the report of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Query {
    /// Name of the plan.
    pub plan: String,
    /// Place in the report that is read.
    pub of: Place,
    /// Place in the report to compare with; `None` if there is no comparison.
    pub against: Option<Place>,
    /// The parts with separate figures; `None` if one figure covers the whole place.
    pub each: Option<EachOf>,
    /// Numbers of files, with a figure for each. The number replaces `{files}` in the names of
    /// workloads.
    pub files: Vec<u64>,
    /// Smallest size of the sweep that is used.
    pub from_size: Option<u64>,
    /// Whether the claim is about the smallest or the largest figure; `None` for all figures.
    pub take: Option<Extreme>,
    /// The quantity of the samples.
    pub quantity: Quantity,
    /// The calculation on the quantity.
    pub statistic: Statistic,
}

/// The parts with separate figures.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum EachOf {
    /// Each size of a sweep.
    Size,
    /// Each tenth of the operations. The figure is the time from the start until that tenth was
    /// done.
    Tenth,
}

/// The smallest or the largest figure of a sweep.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Extreme {
    /// The smallest figure.
    Least,
    /// The largest figure.
    Most,
}

/// A place in a report: workload, phases, target and size.
#[derive(Clone, Debug, Serialize)]
pub struct Place {
    /// Label of the workload.
    pub workload: String,
    /// Phases. The figure is their sum.
    pub phases: Vec<String>,
    /// Name of the target.
    pub target: String,
    /// Size in a sweep; `None` for the sum over all sizes.
    pub size_bytes: Option<u64>,
}

/// A calculation on a quantity.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// The quantity of the place, divided by the quantity of the place to compare with.
    #[default]
    Ratio,
    /// The inverse of the ratio: how many times as fast, or as small.
    Speedup,
    /// The quantity itself.
    Value,
    /// Bytes per second of the quantity.
    Rate,
}

impl Paper {
    /// Returns the authors and the year.
    #[must_use]
    pub fn source(&self) -> String {
        let year = self.year.map(|year| format!(", {year}")).unwrap_or_default();
        format!("{}{year}", self.authors)
    }

    /// Returns all queries of claims and charts.
    pub fn queries(&self) -> impl Iterator<Item = &Query> {
        self.bases().filter_map(|basis| match basis {
            Basis::Plan(query) => Some(&**query),
            _ => None,
        })
    }

    /// Returns the sources of claims and of the lines of charts.
    fn bases(&self) -> impl Iterator<Item = &Basis> {
        let lines = self.charts.iter().flat_map(|chart| &chart.lines);
        self.claims.iter().map(|claim| &claim.basis).chain(lines.map(|line| &line.basis))
    }
}

impl Kind {
    /// Returns the name, in one word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Simulated => "simulated",
            Self::Modelled => "modelled",
            Self::Input => "input",
            Self::Definition => "definition",
        }
    }

    /// Returns the reason why a claim of this kind can't fail and is not counted; `None` if it can
    /// fail.
    #[must_use]
    pub fn why_not_counted(self) -> Option<&'static str> {
        match self {
            Self::Measured | Self::Simulated | Self::Modelled => None,
            Self::Input => Some("the figure is set here, or a parameter was fitted to it"),
            Self::Definition => Some("the claim is true by definition or construction"),
        }
    }
}

impl Extreme {
    fn name(self) -> &'static str {
        match self {
            Self::Least => "least",
            Self::Most => "greatest",
        }
    }
}

impl Statistic {
    fn name(self) -> &'static str {
        match self {
            Self::Ratio => "ratio",
            Self::Speedup => "speed-up",
            Self::Value => "value",
            Self::Rate => "rate",
        }
    }
}

impl fmt::Display for Query {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (quantity, statistic) = (self.quantity.name(), self.statistic.name());
        write!(formatter, "{}: {statistic} of {quantity} of {}", self.plan, self.of)?;
        self.against.iter().try_for_each(|place| write!(formatter, ", against {place}"))?;
        let each = match self.each {
            Some(EachOf::Size) => ", for each size",
            Some(EachOf::Tenth) => ", for each tenth of the operations",
            None => "",
        };
        formatter.write_str(each)?;
        if let [first, .., last] = self.files.as_slice() {
            write!(formatter, ", {} numbers of files from {first} to {last}", self.files.len())?;
        }
        let from = self.from_size.map(|size| format!(" from {}", bytes(size)));
        let take = self.take.map(|end| format!(", the {}", end.name()));
        [from, take].iter().flatten().try_for_each(|part| formatter.write_str(part))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.size_bytes.map(|size| format!(", {}", bytes(size))).unwrap_or_default();
        let phases = self.phases.join(" + ");
        write!(formatter, "{} ({}, {phases}{size})", self.target, self.workload)
    }
}

/// Placeholder for a number of files in the name of a workload.
const FILES: &str = "{files}";

impl Place {
    pub(super) fn at_files(&self, count: u64) -> Self {
        Self { workload: self.workload.replace(FILES, &count.to_string()), ..self.clone() }
    }
}

impl Query {
    /// Returns an error message if keys of the query contradict each other.
    fn contradiction(&self) -> Option<&'static str> {
        let compares = matches!(self.statistic, Statistic::Ratio | Statistic::Speedup);
        if compares != self.against.is_some() {
            return Some(
                "`measure`: a ratio or speed-up needs `against`; a value or rate can't have it",
            );
        }
        if self.each.is_some() && !self.files.is_empty() {
            return Some("`measure`: `each` and `files` can't be used together");
        }
        if (self.from_size.is_some() || self.take.is_some()) && self.each != Some(EachOf::Size) {
            return Some("`measure`: `from_size` and `take` need `each = \"size\"`");
        }
        let tenth = self.each == Some(EachOf::Tenth);
        let is_time = self.statistic == Statistic::Value && self.quantity == Quantity::Elapsed;
        (tenth && !is_time).then_some(
            "`measure`: `each = \"tenth\"` needs `statistic = \"value\"` and the elapsed time",
        )
    }

    /// Returns the places that the query reads, on both sides.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        let of_each = self.at_files().into_iter().map(|(_, query)| query);
        let all: Vec<Self> =
            if self.files.is_empty() { vec![self.clone()] } else { of_each.collect() };
        all.into_iter().flat_map(|query| std::iter::once(query.of).chain(query.against))
    }

    /// Returns a query for each number of files.
    pub(super) fn at_files(&self) -> Vec<(u64, Self)> {
        let of = |count: u64| Self {
            of: self.of.at_files(count),
            against: self.against.as_ref().map(|place| place.at_files(count)),
            files: Vec::new(),
            ..self.clone()
        };
        self.files.iter().map(|count| (*count, of(*count))).collect()
    }
}
