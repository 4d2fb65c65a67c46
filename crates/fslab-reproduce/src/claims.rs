//! A paper's claims, read from TOML once and checked as a whole against the plans they name.
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

/// A paper and what it claims.
#[derive(Clone, Debug, Serialize)]
pub struct Paper {
    /// Its short name: of the file, and on the command line.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Who wrote it.
    pub authors: String,
    /// When it appeared, where it says so.
    pub year: Option<u32>,
    /// What stands for what here, in a few sentences.
    pub about: String,
    /// The conditions it measured under, beside those here.
    pub settings: Vec<Setting>,
    /// What plans want to have before they are run.
    pub preparations: Vec<Preparation>,
    /// The commands whose answers claims and charts read.
    pub commands: Vec<Command>,
    /// Its claims; ids are unique.
    pub claims: Vec<Claim>,
    /// Its charts, in its order; ids are unique.
    pub charts: Vec<Chart>,
}

/// A condition of the paper's measurements that is no result.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// What it is about.
    pub what: String,
    /// What the paper says.
    pub paper: String,
    /// What is done here.
    pub here: String,
}

/// A file that plans name and that a command of this programme makes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preparation {
    /// Its name, in the plans and in the command.
    pub file: String,
    /// The command's arguments.
    pub run: Vec<String>,
    /// Those of the quick form, where it makes less.
    pub quick: Option<Vec<String>>,
    /// The file of the workload that it must be of, where it is an aged image: one of another
    /// workload is not measured in its place.
    pub workload: Option<String>,
}

/// One table row, figure series or number.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// A name that stays.
    pub id: String,
    /// Where in the paper.
    pub place: String,
    /// What it says, in our words.
    pub says: String,
    /// Its figures; `None` for a chart without numbers in the text.
    pub published: Option<Published>,
    /// How this project comes to its figure.
    pub kind: Kind,
    /// From what.
    pub basis: Basis,
    /// What a reader of both figures must know.
    pub note: Option<String>,
}

/// How a figure is come by.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// On a running system.
    Measured,
    /// By the real algorithms over a device that keeps no data.
    Simulated,
    /// Computed from a model of a device.
    Modelled,
    /// Set here: a parameter, or a figure that a parameter was fitted to.
    Input,
    /// True by definition, or by the construction of the system under test.
    Definition,
}

/// What a claim's own figure is made from.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Cells of a plan.
    Plan(Box<Query>),
    /// The answer of a command.
    Command(Box<Reading>),
    /// No part of this fslab can measure it yet: what it needs.
    Missing(String),
    /// It is not measured by intention: why.
    NotReproduced(String),
}

/// What is read from the report of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Query {
    /// The plan's name.
    pub plan: String,
    /// What is read.
    pub of: Place,
    /// What it is held against; `None` for a figure of its own.
    pub against: Option<Place>,
    /// What each is a figure of its own of, instead of all together.
    pub each: Option<EachOf>,
    /// Numbers of files, a figure each: they take the place of `{files}` in the workloads' names.
    pub files: Vec<u64>,
    /// The smallest size of the sweep that is looked at.
    pub from_size: Option<u64>,
    /// Which of the figures the claim is about, where it is about one of them.
    pub take: Option<Extreme>,
    /// What of the samples.
    pub quantity: Quantity,
    /// What is made of it.
    pub statistic: Statistic,
}

/// What each is a figure of its own of.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum EachOf {
    /// A size of a sweep.
    Size,
    /// A tenth of the operations: the time until it was done.
    Tenth,
}

/// An end of a sweep's figures.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Extreme {
    /// The least of them.
    Least,
    /// The greatest of them.
    Most,
}

/// Where in a report.
#[derive(Clone, Debug, Serialize)]
pub struct Place {
    /// The workload's label.
    pub workload: String,
    /// Phases; of several, the sum.
    pub phases: Vec<String>,
    /// The target.
    pub target: String,
    /// The size in a sweep; `None` for the sum over all.
    pub size_bytes: Option<u64>,
}

/// What is made of a quantity.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// How many times as much as what it is held against.
    #[default]
    Ratio,
    /// How many times as fast, or as small.
    Speedup,
    /// The quantity itself.
    Value,
    /// Bytes in a second of it.
    Rate,
}

impl Paper {
    /// Who wrote it, and when.
    #[must_use]
    pub fn source(&self) -> String {
        let year = self.year.map(|year| format!(", {year}")).unwrap_or_default();
        format!("{}{year}", self.authors)
    }

    /// What is read from reports.
    pub fn queries(&self) -> impl Iterator<Item = &Query> {
        self.bases().filter_map(|basis| match basis {
            Basis::Plan(query) => Some(&**query),
            _ => None,
        })
    }

    /// What claims and the lines of charts are made from.
    fn bases(&self) -> impl Iterator<Item = &Basis> {
        let lines = self.charts.iter().flat_map(|chart| &chart.lines);
        self.claims.iter().map(|claim| &claim.basis).chain(lines.map(|line| &line.basis))
    }
}

impl Kind {
    /// In a word.
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

    /// Why a claim of this kind can't fail and is not counted; `None` where it can.
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
            Some(EachOf::Size) => ", each size",
            Some(EachOf::Tenth) => ", each tenth",
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

/// What stands for a number of files in the name of a workload.
const FILES: &str = "{files}";

impl Place {
    pub(super) fn at_files(&self, count: u64) -> Self {
        Self { workload: self.workload.replace(FILES, &count.to_string()), ..self.clone() }
    }
}

impl Query {
    /// Why its parts can't go together; `None` where they can.
    fn contradiction(&self) -> Option<&'static str> {
        let compares = matches!(self.statistic, Statistic::Ratio | Statistic::Speedup);
        if compares != self.against.is_some() {
            return Some("`measure`: a ratio or speed-up needs `against`, a value or rate none");
        }
        if self.each.is_some() && !self.files.is_empty() {
            return Some("`measure`: `each` and `files` don't go together");
        }
        if (self.from_size.is_some() || self.take.is_some()) && self.each != Some(EachOf::Size) {
            return Some("`measure`: `from_size` and `take` need `each = \"size\"`");
        }
        let tenth = self.each == Some(EachOf::Tenth);
        let is_time = self.statistic == Statistic::Value && self.quantity == Quantity::Elapsed;
        (tenth && !is_time).then_some("`measure`: `each = \"tenth\"` needs `statistic = \"value\"`")
    }

    /// The places it reads, on both sides.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        let of_each = self.at_files().into_iter().map(|(_, query)| query);
        let all: Vec<Self> =
            if self.files.is_empty() { vec![self.clone()] } else { of_each.collect() };
        all.into_iter().flat_map(|query| std::iter::once(query.of).chain(query.against))
    }

    /// A query for each number of files.
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
