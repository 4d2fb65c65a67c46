//! Reads claims from TOML and checks them.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::super::answer::{Command, Reading};
use super::super::published::{Published, Scale, UNITS, Unit};
use super::super::quantity::Quantity;
use super::chart::{Axis, Chart, Form, Line};
use super::{
    Basis, Claim, EachOf, Extreme, Kind, Paper, Place, Preparation, Query, Setting, Statistic,
};
use fslab_compare::plan::{Plan, PlanError, Source};
use fslab_compare::workload;

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
    prepare: Vec<Preparation>,
    #[serde(default)]
    command: Vec<Command>,
    #[serde(default)]
    claim: Vec<Spanned<RawClaim>>,
    #[serde(default)]
    chart: Vec<Spanned<RawChart>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawClaim {
    id: Spanned<String>,
    place: String,
    says: String,
    paper: Option<Spanned<RawFigure>>,
    margin: Option<Spanned<f64>>,
    unit: Option<Spanned<String>>,
    kind: Kind,
    note: Option<String>,
    measure: Option<Spanned<RawMeasure>>,
    read: Option<Spanned<Reading>>,
    missing: Option<String>,
    not_reproduced: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawFigure {
    Number(f64),
    Range(RawRange),
    Word(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRange {
    from: Option<f64>,
    to: Option<f64>,
}

/// A `measure` table. A line of a chart uses the chart's table for missing keys.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMeasure {
    plan: Option<Spanned<String>>,
    workload: Option<Spanned<String>>,
    phase: Option<Spanned<OneOrMore>>,
    target: Option<Spanned<String>>,
    size: Option<Spanned<String>>,
    each: Option<EachOf>,
    files: Option<Vec<u64>>,
    from_size: Option<Spanned<String>>,
    take: Option<Extreme>,
    against: Option<RawAgainst>,
    quantity: Option<Quantity>,
    statistic: Option<Statistic>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawChart {
    id: Spanned<String>,
    place: String,
    title: String,
    #[serde(default)]
    form: Form,
    x: RawAxis,
    y: RawAxis,
    kind: Kind,
    note: Option<String>,
    measure: Option<RawMeasure>,
    line: Vec<Spanned<RawLine>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAxis {
    label: String,
    unit: Option<Spanned<String>>,
    #[serde(default)]
    logarithmic: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLine {
    name: String,
    category: Option<String>,
    kind: Option<Kind>,
    measure: Option<Spanned<RawMeasure>>,
    read: Option<Spanned<Reading>>,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// An `against` table. Missing keys are the same as in the `measure` table.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAgainst {
    workload: Option<Spanned<String>>,
    phase: Option<Spanned<OneOrMore>>,
    target: Option<Spanned<String>>,
    size: Option<Spanned<String>>,
}

impl RawMeasure {
    /// Returns the table. Missing keys are taken from `all`, the chart's table.
    fn or(&self, all: Option<&Self>) -> Self {
        let Some(all) = all else { return self.clone() };
        Self {
            plan: self.plan.clone().or_else(|| all.plan.clone()),
            workload: self.workload.clone().or_else(|| all.workload.clone()),
            phase: self.phase.clone().or_else(|| all.phase.clone()),
            target: self.target.clone().or_else(|| all.target.clone()),
            size: self.size.clone().or_else(|| all.size.clone()),
            each: self.each.or(all.each),
            files: self.files.clone().or_else(|| all.files.clone()),
            from_size: self.from_size.clone().or_else(|| all.from_size.clone()),
            take: self.take.or(all.take),
            against: self.against.clone().or_else(|| all.against.clone()),
            quantity: self.quantity.or(all.quantity),
            statistic: self.statistic.or(all.statistic),
        }
    }
}

impl Paper {
    /// Parses a file of claims. `file` is its name in error messages. Claims may use the `plans`,
    /// which must be in their full form.
    ///
    /// # Errors
    /// Returns the first mistake, with its file, line, column and key.
    pub fn parse(
        name: &str,
        file: &str,
        text: &str,
        plans: &BTreeMap<String, Plan>,
    ) -> std::result::Result<Self, PlanError> {
        let source = Source { file, text };
        let raw: RawPaper = toml::from_str(text).map_err(|error| source.syntax_error(&error))?;
        let reader = Reader { source, plans, commands: &raw.command };
        let claims =
            raw.claim.iter().map(|claim| reader.claim(claim)).collect::<Result<Vec<_>>>()?;
        let charts =
            raw.chart.iter().map(|chart| reader.chart(chart)).collect::<Result<Vec<_>>>()?;
        reader.source.unique("id", raw.claim.iter().map(|claim| named(&claim.get_ref().id)), "")?;
        reader.source.unique("id", raw.chart.iter().map(|chart| named(&chart.get_ref().id)), "")?;
        Ok(Self {
            name: name.to_owned(),
            title: raw.title,
            authors: raw.authors,
            year: raw.year,
            about: raw.about,
            settings: raw.setting,
            claims,
            charts,
            preparations: raw.prepare,
            commands: raw.command,
        })
    }
}

/// A place in a plan, as written in the file.
struct RawPlace<'a> {
    workload: &'a Spanned<String>,
    phases: &'a Spanned<OneOrMore>,
    target: &'a Spanned<String>,
    size: Option<&'a Spanned<String>>,
}

fn named(id: &Spanned<String>) -> (&str, Range<usize>) {
    (id.get_ref(), id.span())
}

struct Reader<'a> {
    source: Source<'a>,
    plans: &'a BTreeMap<String, Plan>,
    commands: &'a [Command],
}

impl Reader<'_> {
    fn chart(&self, spanned: &Spanned<RawChart>) -> Result<Chart> {
        let raw = spanned.get_ref();
        let lines = raw.line.iter().map(|line| self.line(raw, line));
        Ok(Chart {
            id: raw.id.get_ref().clone(),
            place: raw.place.clone(),
            title: raw.title.clone(),
            form: raw.form,
            x: self.axis(&raw.x)?,
            y: self.axis(&raw.y)?,
            note: raw.note.clone(),
            lines: lines.collect::<Result<_>>()?,
        })
    }

    fn axis(&self, raw: &RawAxis) -> Result<Axis> {
        let unit = raw.unit.as_ref().map(|unit| self.unit(unit)).transpose()?;
        Ok(Axis { label: raw.label.clone(), unit, logarithmic: raw.logarithmic })
    }

    fn line(&self, chart: &RawChart, spanned: &Spanned<RawLine>) -> Result<Line> {
        let raw = spanned.get_ref();
        let basis = match (&raw.measure, &raw.read, &chart.measure) {
            (None, Some(read), _) => self.read(read)?,
            (Some(measure), None, all) => {
                self.measure(&measure.get_ref().or(all.as_ref()), measure.span())?
            }
            (None, None, Some(all)) => self.measure(all, spanned.span())?,
            _ => {
                let message = format!("line `{}`: needs either `measure` or `read`", raw.name);
                return Err(self.source.error(spanned.span(), message));
            }
        };
        Ok(Line {
            name: raw.name.clone(),
            category: raw.category.clone(),
            kind: raw.kind.unwrap_or(chart.kind),
            basis,
        })
    }

    fn claim(&self, spanned: &Spanned<RawClaim>) -> Result<Claim> {
        let raw = spanned.get_ref();
        if raw.kind.why_not_counted().is_some() && raw.note.is_none() {
            let message = format!(
                "claim `{}`: an input or a definition needs a `note` that states why it can't fail",
                raw.id.get_ref()
            );
            return Err(self.source.error(spanned.span(), message));
        }
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
                Some(one) => Err(self.source.error(one.span(), "`paper`: needs a `unit`")),
            };
        };
        let unit = self.unit(unit)?;
        let margin = self.margin(raw)?;
        let Some(figure) = &raw.paper else {
            return Ok(Some(Published { low: None, high: None, margin: None, unit }));
        };
        let fail = |message: &str| Err(self.source.error(figure.span(), message));
        let (low, high) = match figure.get_ref() {
            RawFigure::Number(number) => (Some(*number), Some(*number)),
            RawFigure::Range(range) => (range.from, range.to),
            RawFigure::Word(word) if word == "equal" && unit.scale == Scale::Ratio => {
                let one = unit.of_base(1.0);
                (Some(one), Some(one))
            }
            RawFigure::Word(_) => {
                return fail(
                    "`paper`: must be a number, or the word \"equal\" if the unit is that of a \
                     ratio",
                );
            }
        };
        let ordered = low.zip(high).is_none_or(|(low, high)| low <= high);
        if !ordered || low.or(high).is_none() {
            return fail(
                "`paper`: must be a number, or `from`, `to` or both; `from` must not exceed `to`",
            );
        }
        let published = Published { low, high, margin, unit };
        if published.is_equality() && margin.is_none() {
            return fail(
                "`paper`: set `margin`, in per cent; no two measured figures are exactly equal",
            );
        }
        if published.is_vague() {
            let (low, high) = published.range();
            let (low, high) = (unit.number(low), unit.number(high));
            return fail(&format!(
                "`paper`: all values from {low} to {high} round to this number; set `margin`"
            ));
        }
        Ok(Some(published))
    }

    /// Returns the margin as a share.
    fn margin(&self, raw: &RawClaim) -> Result<Option<f64>> {
        let Some(margin) = &raw.margin else { return Ok(None) };
        let percent = *margin.get_ref();
        let is_usable = percent > 0.0 && percent <= 100.0;
        if is_usable && raw.paper.is_some() {
            return Ok(Some(percent / 100.0));
        }
        let message = "`margin`: must be above 0 and at most 100 per cent, and needs a `paper`";
        Err(self.source.error(margin.span(), message))
    }

    fn unit(&self, name: &Spanned<String>) -> Result<&'static Unit> {
        let names = UNITS.iter().map(|unit| unit.name);
        Unit::find(name.get_ref()).ok_or_else(|| self.unknown("unit", name, names))
    }

    fn basis(&self, raw: &RawClaim, span: Range<usize>) -> Result<Basis> {
        let measure = raw.measure.as_ref();
        let measure = measure.map(|raw| self.measure(raw.get_ref(), raw.span())).transpose()?;
        let read = raw.read.as_ref().map(|raw| self.read(raw)).transpose()?;
        let given = [
            measure,
            read,
            raw.missing.clone().map(Basis::Missing),
            raw.not_reproduced.clone().map(Basis::NotReproduced),
        ];
        let mut given = given.into_iter().flatten();
        match (given.next(), given.next()) {
            (Some(basis), None) => Ok(basis),
            _ => {
                let message = format!(
                    "claim `{}`: exactly one of `measure`, `read`, `missing` and `not_reproduced` \
                     must be set",
                    raw.id.get_ref()
                );
                Err(self.source.error(span, message))
            }
        }
    }

    /// Reads a `measure` table. `span` is its position in the file, for errors about missing keys.
    fn measure(&self, raw: &RawMeasure, span: Range<usize>) -> Result<Basis> {
        let lacks =
            |key: &str| self.source.error(span.clone(), format!("`measure`: `{key}` is missing"));
        let name = raw.plan.as_ref().ok_or_else(|| lacks("plan"))?;
        let plan = self
            .plans
            .get(name.get_ref())
            .ok_or_else(|| self.unknown("plan", name, self.plans.keys().map(String::as_str)))?;
        let workload = raw.workload.as_ref().ok_or_else(|| lacks("workload"))?;
        let phase = raw.phase.as_ref().ok_or_else(|| lacks("phase"))?;
        let target = raw.target.as_ref().ok_or_else(|| lacks("target"))?;
        let files = raw.files.clone().unwrap_or_default();
        let of = RawPlace { workload, phases: phase, target, size: raw.size.as_ref() };
        let against = raw.against.as_ref().map(|against| RawPlace {
            workload: against.workload.as_ref().unwrap_or(workload),
            phases: against.phase.as_ref().unwrap_or(phase),
            target: against.target.as_ref().unwrap_or(target),
            size: against.size.as_ref().or(raw.size.as_ref()),
        });
        let query = Query {
            plan: name.get_ref().clone(),
            of: self.place(plan, &of, &files)?,
            against: against.map(|place| self.place(plan, &place, &files)).transpose()?,
            each: raw.each,
            files,
            from_size: raw.from_size.as_ref().map(|size| self.size(size)).transpose()?,
            take: raw.take,
            quantity: raw.quantity.unwrap_or_default(),
            statistic: raw.statistic.unwrap_or_default(),
        };
        match query.contradiction() {
            Some(message) => Err(self.source.error(name.span(), message)),
            None => Ok(Basis::Plan(Box::new(query))),
        }
    }

    fn read(&self, raw: &Spanned<Reading>) -> Result<Basis> {
        let (reading, known) = (raw.get_ref(), || self.commands.iter().map(|c| c.name.as_str()));
        if known().any(|name| name == reading.from) {
            return Ok(Basis::Command(Box::new(reading.clone())));
        }
        let from = Spanned::new(raw.span(), reading.from.clone());
        Err(self.unknown("from", &from, known()))
    }

    /// Reads a place in a plan. If `files` is not empty, the plan must contain the workload for
    /// each of these numbers of files.
    fn place(&self, plan: &Plan, raw: &RawPlace<'_>, files: &[u64]) -> Result<Place> {
        let RawPlace { workload, phases, target, size } = raw;
        let targets = || plan.targets.iter().map(|target| target.name.as_str());
        if !targets().any(|name| name == target.get_ref()) {
            return Err(self.unknown("target", target, targets()));
        }
        let names = match phases.get_ref() {
            OneOrMore::One(name) => vec![name.clone()],
            OneOrMore::More(names) => names.clone(),
        };
        let place = Place {
            workload: workload.get_ref().clone(),
            phases: names,
            target: target.get_ref().clone(),
            size_bytes: size.map(|size| self.size(size)).transpose()?,
        };
        let labels = || plan.workloads.iter().map(|workload| workload.label.as_str());
        let each = files.iter().map(|count| place.at_files(*count).workload);
        let each: Vec<String> =
            if files.is_empty() { vec![place.workload.clone()] } else { each.collect() };
        for label in each {
            let known = plan.workloads.iter().find(|known| known.label == label);
            let label = Spanned::new(workload.span(), label);
            let known = known.ok_or_else(|| self.unknown("workload", &label, labels()))?;
            let has = |name: &&String| known.spec.phases.contains(&name.as_str());
            if let Some(name) = place.phases.iter().find(|name| !has(name)) {
                let named = Spanned::new(phases.span(), name.clone());
                return Err(self.unknown("phase", &named, known.spec.phases.iter().copied()));
            }
        }
        Ok(place)
    }

    fn size(&self, size: &Spanned<String>) -> Result<u64> {
        workload::bytes(&toml::Value::String(size.get_ref().clone()))
            .map_err(|wrong| self.source.error(size.span(), format!("`size`: {wrong}")))
    }

    fn unknown<'n>(
        &self,
        key: &str,
        name: &Spanned<String>,
        known: impl IntoIterator<Item = &'n str>,
    ) -> PlanError {
        self.source.unknown(&format!("`{key}`: unknown"), name, known)
    }
}
