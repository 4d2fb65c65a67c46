//! From TOML to checked claims.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::super::published::{Published, UNITS, Unit};
use super::super::quantity::Quantity;
use super::{Basis, Claim, Kind, Paper, Place, Query, Setting, Statistic};
use crate::names::nearest;
use crate::plan::source::Source;
use crate::plan::{Plan, PlanError};
use crate::probe;
use crate::workload;

type Result<T> = std::result::Result<T, PlanError>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPaper {
    title: String,
    authors: String,
    year: Option<u32>,
    about: String,
    #[serde(default)]
    setting: Vec<Setting>,
    #[serde(default)]
    claim: Vec<Spanned<RawClaim>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawClaim {
    id: Spanned<String>,
    place: String,
    says: String,
    paper: Option<Spanned<RawFigure>>,
    unit: Option<Spanned<String>>,
    kind: Kind,
    note: Option<String>,
    measure: Option<RawMeasure>,
    probe: Option<RawProbe>,
    missing: Option<String>,
    not_reproduced: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawFigure {
    Number(f64),
    Range(RawRange),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRange {
    from: Option<f64>,
    to: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMeasure {
    plan: Spanned<String>,
    workload: Spanned<String>,
    phase: Spanned<OneOrMore>,
    target: Spanned<String>,
    size: Option<Spanned<String>>,
    #[serde(default)]
    each_size: bool,
    against: Option<RawAgainst>,
    #[serde(default)]
    quantity: Quantity,
    #[serde(default)]
    statistic: Statistic,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// What is not said is as in the measure itself.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAgainst {
    workload: Option<Spanned<String>>,
    phase: Option<Spanned<OneOrMore>>,
    target: Option<Spanned<String>>,
    size: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProbe {
    on: Spanned<String>,
    attribute: Spanned<String>,
}

/// Reads a file of claims.
pub(super) fn paper(
    name: &str,
    file: &str,
    text: &str,
    plans: &BTreeMap<String, Plan>,
) -> Result<Paper> {
    let reader = Reader { source: Source { file, text }, plans };
    let raw: RawPaper = toml::from_str(text).map_err(|error| reader.source.syntax_error(&error))?;
    let mut claims: Vec<Claim> = Vec::new();
    for raw in &raw.claim {
        let claim = reader.claim(raw)?;
        if claims.iter().any(|other| other.id == claim.id) {
            let message = format!("`id`: `{}` is used twice", claim.id);
            return Err(reader.source.error(raw.get_ref().id.span(), message));
        }
        claims.push(claim);
    }
    Ok(Paper {
        name: name.to_owned(),
        title: raw.title,
        authors: raw.authors,
        year: raw.year,
        about: raw.about,
        settings: raw.setting,
        claims,
    })
}

/// A file that is being read.
struct Reader<'a> {
    source: Source<'a>,
    plans: &'a BTreeMap<String, Plan>,
}

impl Reader<'_> {
    fn claim(&self, spanned: &Spanned<RawClaim>) -> Result<Claim> {
        let raw = spanned.get_ref();
        Ok(Claim {
            id: raw.id.get_ref().clone(),
            place: raw.place.clone(),
            says: raw.says.clone(),
            published: self.published(raw)?,
            kind: raw.kind,
            basis: self.basis(raw, spanned.span())?,
            note: raw.note.clone(),
        })
    }

    fn published(&self, raw: &RawClaim) -> Result<Option<Published>> {
        let Some(unit) = &raw.unit else {
            return match &raw.paper {
                None => Ok(None),
                Some(one) => Err(self.source.error(one.span(), "`paper`: has no `unit`")),
            };
        };
        let name = unit.get_ref();
        let names = UNITS.iter().map(|unit| unit.name);
        let unit = Unit::find(name).ok_or_else(|| self.unknown("unit", unit, names))?;
        let Some(figure) = &raw.paper else {
            return Ok(Some(Published { low: None, high: None, unit }));
        };
        let (low, high) = match figure.get_ref() {
            RawFigure::Number(number) => (Some(*number), Some(*number)),
            RawFigure::Range(range) => (range.from, range.to),
        };
        let ordered = low.zip(high).is_none_or(|(low, high)| low <= high);
        if !ordered || low.or(high).is_none() {
            let message = "`paper`: a number, or `from` and `to` in this order, or one of them";
            return Err(self.source.error(figure.span(), message));
        }
        Ok(Some(Published { low, high, unit }))
    }

    fn basis(&self, raw: &RawClaim, span: Range<usize>) -> Result<Basis> {
        let measure = raw.measure.as_ref().map(|raw| self.measure(raw)).transpose()?;
        let probe = raw.probe.as_ref().map(|raw| self.probe(raw)).transpose()?;
        let given = [
            measure.map(|query| Basis::Plan(Box::new(query))),
            probe,
            raw.missing.clone().map(Basis::Missing),
            raw.not_reproduced.clone().map(Basis::NotReproduced),
        ];
        let mut given = given.into_iter().flatten();
        match (given.next(), given.next()) {
            (Some(basis), None) => Ok(basis),
            _ => {
                let message = format!(
                    "claim `{}`: exactly one of `measure`, `probe`, `missing` and \
                     `not_reproduced` must be there",
                    raw.id.get_ref()
                );
                Err(self.source.error(span, message))
            }
        }
    }

    fn measure(&self, raw: &RawMeasure) -> Result<Query> {
        let plan = self.plans.get(raw.plan.get_ref()).ok_or_else(|| {
            self.unknown("plan", &raw.plan, self.plans.keys().map(String::as_str))
        })?;
        let of = self.place(plan, &raw.workload, &raw.phase, &raw.target, raw.size.as_ref())?;
        let against = raw.against.as_ref().map(|against| {
            self.place(
                plan,
                against.workload.as_ref().unwrap_or(&raw.workload),
                against.phase.as_ref().unwrap_or(&raw.phase),
                against.target.as_ref().unwrap_or(&raw.target),
                against.size.as_ref().or(raw.size.as_ref()),
            )
        });
        let against = against.transpose()?;
        let compares = matches!(raw.statistic, Statistic::Ratio | Statistic::Speedup);
        if compares != against.is_some() {
            let message = "`measure`: a ratio or speed-up needs `against`, a value or rate none";
            return Err(self.source.error(raw.plan.span(), message));
        }
        Ok(Query {
            plan: raw.plan.get_ref().clone(),
            of,
            against,
            each_size: raw.each_size,
            quantity: raw.quantity,
            statistic: raw.statistic,
        })
    }

    fn place(
        &self,
        plan: &Plan,
        workload: &Spanned<String>,
        phases: &Spanned<OneOrMore>,
        target: &Spanned<String>,
        size: Option<&Spanned<String>>,
    ) -> Result<Place> {
        let labels = || plan.workloads.iter().map(|workload| workload.label.as_str());
        let known = plan.workloads.iter().find(|known| known.label == *workload.get_ref());
        let known = known.ok_or_else(|| self.unknown("workload", workload, labels()))?;
        let targets = || plan.targets.iter().map(|target| target.name.as_str());
        if !targets().any(|name| name == target.get_ref()) {
            return Err(self.unknown("target", target, targets()));
        }
        let names = match phases.get_ref() {
            OneOrMore::One(name) => vec![name.clone()],
            OneOrMore::More(names) => names.clone(),
        };
        for name in &names {
            if !known.spec.phases.contains(&name.as_str()) {
                let named = Spanned::new(phases.span(), name.clone());
                return Err(self.unknown("phase", &named, known.spec.phases.iter().copied()));
            }
        }
        Ok(Place {
            workload: workload.get_ref().clone(),
            phases: names,
            target: target.get_ref().clone(),
            size_bytes: size.map(|size| self.size(size)).transpose()?,
        })
    }

    fn size(&self, size: &Spanned<String>) -> Result<u64> {
        workload::bytes(&toml::Value::String(size.get_ref().clone()))
            .map_err(|wrong| self.source.error(size.span(), format!("`size`: {wrong}")))
    }

    fn probe(&self, raw: &RawProbe) -> Result<Basis> {
        let cells: Vec<String> =
            probe::matrix::native().iter().map(probe::matrix::Cell::name).collect();
        let attributes = || probe::ATTRIBUTES.iter().map(|attribute| attribute.name);
        if !cells.contains(raw.on.get_ref()) {
            return Err(self.unknown("on", &raw.on, cells.iter().map(String::as_str)));
        }
        if !attributes().any(|name| name == raw.attribute.get_ref()) {
            return Err(self.unknown("attribute", &raw.attribute, attributes()));
        }
        let (cell, attribute) = (raw.on.get_ref().clone(), raw.attribute.get_ref().clone());
        Ok(Basis::Probe { cell, attribute })
    }

    fn unknown<'n>(
        &self,
        key: &str,
        name: &Spanned<String>,
        known: impl IntoIterator<Item = &'n str>,
    ) -> PlanError {
        let nearest = nearest(name.get_ref(), known);
        let message = format!("`{key}`: unknown `{}`; nearest: {nearest}", name.get_ref());
        self.source.error(name.span(), message)
    }
}
