//! `[[workload]]`: which workload, and what it is told.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::{Spanned, Value};

use super::checks::{Result, unique};
use super::matrix::combinations;
use super::source::Source;
use super::{Form, WorkloadPlan};
use crate::workload::{self, Parameters, Spec};
use fslab_report::nearest;
use fslab_stats::Margin;

/// `name`, `label`, `margin`, `matrix`, `quick`, and the parameters the named workload has.
pub(super) type RawWorkload = BTreeMap<Spanned<String>, Spanned<Value>>;

/// Keys of every workload.
const COMMON: [&str; 5] = ["name", "label", "margin", "matrix", "quick"];

pub(super) fn workloads(
    source: &Source<'_>,
    raw: &[Spanned<RawWorkload>],
    form: Form,
) -> Result<Vec<WorkloadPlan>> {
    let mut plans = Vec::new();
    for raw in raw {
        let meant = workload(source, raw, form)?;
        plans.extend(meant.into_iter().map(|plan| (plan, raw.span())));
    }
    unique(source, plans.iter().map(|(plan, span)| (&*plan.label, span.clone())))?;
    if plans.is_empty() {
        return Err(source.error(0..0, "the plan has no [[workload]]"));
    }
    Ok(plans.into_iter().map(|(plan, _)| plan).collect())
}

/// Those that one table means: several with a matrix, none where the quick form leaves it out.
fn workload(
    source: &Source<'_>,
    spanned: &Spanned<RawWorkload>,
    form: Form,
) -> Result<Vec<WorkloadPlan>> {
    let raw = spanned.get_ref();
    let Some((name, span)) = text(source, raw, "name")? else {
        return Err(source.error(spanned.span(), "a [[workload]] has no `name`"));
    };
    let spec = find(source, &name, span)?;
    let mut parameters = Parameters::default();
    for (key, value) in raw {
        if !COMMON.contains(&key.get_ref().as_str()) {
            parameter(source, spec, &mut parameters, key, value)?;
        }
    }
    let mut matrix = table(source, raw, "matrix")?;
    if !quicken(source, spec, raw, form, &mut parameters, &mut matrix)? {
        return Ok(Vec::new());
    }
    let label = text(source, raw, "label")?.map_or(name, |(label, _)| label);
    let one = WorkloadPlan { label, spec, parameters, margin: margin(source, raw)? };
    expand(source, one, matrix.as_ref())
}

fn find(source: &Source<'_>, name: &str, span: Range<usize>) -> Result<&'static Spec> {
    workload::find(name).ok_or_else(|| {
        let names = nearest(name, workload::WORKLOADS.iter().map(|spec| spec.name));
        source.error(span, format!("`name`: unknown workload `{name}`; nearest: {names}"))
    })
}

fn margin(source: &Source<'_>, raw: &RawWorkload) -> Result<Option<Margin>> {
    let Some((text, span)) = text(source, raw, "margin")? else { return Ok(None) };
    let margin = text.parse();
    margin.map(Some).map_err(|wrong| source.error(span, format!("`margin`: {wrong}")))
}

fn text(
    source: &Source<'_>,
    raw: &RawWorkload,
    key: &str,
) -> Result<Option<(String, Range<usize>)>> {
    match raw.get(key) {
        None => Ok(None),
        Some(value) => match value.get_ref() {
            Value::String(text) => Ok(Some((text.clone(), value.span()))),
            _ => Err(source.error(value.span(), format!("`{key}`: must be a string"))),
        },
    }
}

/// A table within a workload, and where it is.
type Table = (toml::Table, Range<usize>);

fn table(source: &Source<'_>, raw: &RawWorkload, key: &str) -> Result<Option<Table>> {
    let Some(value) = raw.get(key) else { return Ok(None) };
    match value.get_ref() {
        Value::Table(table) => Ok(Some((table.clone(), value.span()))),
        _ => Err(source.error(value.span(), format!("`{key}`: must be a table"))),
    }
}

/// Takes what `quick` says instead, where the quick form is meant; `false` where it leaves the
/// workload out. It is checked in either form.
fn quicken(
    source: &Source<'_>,
    spec: &Spec,
    raw: &RawWorkload,
    form: Form,
    parameters: &mut Parameters,
    matrix: &mut Option<Table>,
) -> Result<bool> {
    if raw.get("quick").is_some_and(|value| value.get_ref() == &Value::Boolean(false)) {
        return Ok(form == Form::Full);
    }
    let Some((mut quick, span)) = table(source, raw, "quick")? else { return Ok(true) };
    let mut changed = parameters.clone();
    let lists = match quick.remove("matrix") {
        Some(Value::Table(lists)) => Some((lists, span.clone())),
        Some(_) => return Err(source.error(span, "`quick`: `matrix` must be a table")),
        None => None,
    };
    for (key, value) in &quick {
        set(source, spec, &mut changed, key, value, &span)?;
    }
    if form == Form::Quick {
        *parameters = changed;
        *matrix = lists.or(matrix.take());
    }
    Ok(true)
}

fn expand(
    source: &Source<'_>,
    one: WorkloadPlan,
    matrix: Option<&Table>,
) -> Result<Vec<WorkloadPlan>> {
    let Some((lists, span)) = matrix else { return Ok(vec![one]) };
    let mut raw = BTreeMap::new();
    for (key, list) in lists {
        let Value::Array(list) = list else {
            return Err(source.error(span.clone(), format!("`matrix`: `{key}` must be a list")));
        };
        raw.insert(
            Spanned::new(span.clone(), key.clone()),
            Spanned::new(span.clone(), list.clone()),
        );
    }
    let raw = Spanned::new(span.clone(), raw);
    let mut plans = Vec::new();
    for combination in combinations(source, Some(&raw))? {
        let mut plan = WorkloadPlan { label: combination.name(&one.label), ..one.clone() };
        for (key, value) in &combination.values {
            set(source, one.spec, &mut plan.parameters, key, value, span)?;
        }
        plans.push(plan);
    }
    Ok(plans)
}

fn parameter(
    source: &Source<'_>,
    spec: &Spec,
    parameters: &mut Parameters,
    key: &Spanned<String>,
    value: &Spanned<Value>,
) -> Result<()> {
    let name = key.get_ref();
    let Some(parameter) = spec.parameters.iter().find(|parameter| parameter.name == name) else {
        return Err(source.error(key.span(), unknown(spec, name)));
    };
    parameters
        .set(parameter, value.get_ref())
        .map_err(|wrong| source.error(value.span(), format!("`{name}`: {wrong}")))
}

/// As [`parameter`], for a key within a table, whose own place is not known.
fn set(
    source: &Source<'_>,
    spec: &Spec,
    parameters: &mut Parameters,
    key: &str,
    value: &Value,
    span: &Range<usize>,
) -> Result<()> {
    let Some(parameter) = spec.parameters.iter().find(|parameter| parameter.name == key) else {
        return Err(source.error(span.clone(), unknown(spec, key)));
    };
    parameters
        .set(parameter, value)
        .map_err(|wrong| source.error(span.clone(), format!("`{key}`: {wrong}")))
}

fn unknown(spec: &Spec, name: &str) -> String {
    let names = nearest(name, spec.parameters.iter().map(|parameter| parameter.name));
    format!("workload `{}` has no parameter `{name}`; nearest: {names}", spec.name)
}
