//! The workloads of a plan: `[[workload]]` with its parameters.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::{Spanned, Value};

use super::checks::{Result, margin};
use super::matrix::combinations;
use super::source::Source;
use super::{Form, WorkloadPlan};
use crate::workload::{self, Parameters, Spec};

/// A table `[[workload]]`: the keys `name`, `label`, `margin`, `matrix`, `quick`, and the
/// parameters of the workload with this name.
pub(super) type RawWorkload = BTreeMap<Spanned<String>, Spanned<Value>>;

/// Keys that every workload may have.
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
    let labels = plans.iter().map(|(plan, span)| (&*plan.label, span.clone()));
    source.unique("name", labels, "; give one of them another `label`")?;
    if plans.is_empty() {
        return Err(source.error(0..0, "the plan has no [[workload]]"));
    }
    Ok(plans.into_iter().map(|(plan, _)| plan).collect())
}

/// Returns the workloads that one table defines: several if it has a matrix, none if the quick form
/// leaves it out.
fn workload(
    source: &Source<'_>,
    spanned: &Spanned<RawWorkload>,
    form: Form,
) -> Result<Vec<WorkloadPlan>> {
    let raw = spanned.get_ref();
    let Some(name) = text(source, raw, "name")? else {
        return Err(source.error(spanned.span(), "a [[workload]] has no `name`"));
    };
    let spec = workload::find(name.get_ref()).ok_or_else(|| {
        let names = workload::WORKLOADS.iter().map(|spec| spec.name);
        source.unknown("`name`: unknown workload", &name, names)
    })?;
    let mut parameters = Parameters::default();
    for (key, value) in raw {
        if !COMMON.contains(&key.get_ref().as_str()) {
            set(source, spec, &mut parameters, key, value)?;
        }
    }
    let mut matrix = table(source, raw, "matrix")?;
    if !quicken(source, spec, raw, form, &mut parameters, &mut matrix)? {
        return Ok(Vec::new());
    }
    let label = text(source, raw, "label")?.unwrap_or(name).into_inner();
    let margin = margin(source, text(source, raw, "margin")?.as_ref())?;
    let plan = WorkloadPlan { label, spec, parameters, margin };
    expand(source, plan, matrix.as_ref(), spanned.span())
}

fn text(source: &Source<'_>, raw: &RawWorkload, key: &str) -> Result<Option<Spanned<String>>> {
    let Some(value) = raw.get(key) else { return Ok(None) };
    match value.get_ref() {
        Value::String(text) => Ok(Some(Spanned::new(value.span(), text.clone()))),
        _ => Err(source.error(value.span(), format!("`{key}`: must be a string"))),
    }
}

/// A table within a workload, and its position.
type Table = (toml::Table, Range<usize>);

fn table(source: &Source<'_>, raw: &RawWorkload, key: &str) -> Result<Option<Table>> {
    let Some(value) = raw.get(key) else { return Ok(None) };
    match value.get_ref() {
        Value::Table(table) => Ok(Some((table.clone(), value.span()))),
        _ => Err(source.error(value.span(), format!("`{key}`: must be a table"))),
    }
}

/// Applies the table `quick` in the quick form; returns `false` if the workload is left out. The
/// table is checked in both forms.
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
        let (key, value) = (Spanned::new(span.clone(), key.clone()), value.clone());
        set(source, spec, &mut changed, &key, &Spanned::new(span.clone(), value))?;
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
    at: Range<usize>,
) -> Result<Vec<WorkloadPlan>> {
    let Some((lists, span)) = matrix else { return Ok(vec![checked(source, one, at)?]) };
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
        for (key, value) in combination.values {
            let value = Spanned::new(span.clone(), value);
            set(source, one.spec, &mut plan.parameters, &Spanned::new(span.clone(), key), &value)?;
        }
        plans.push(checked(source, plan, at.clone())?);
    }
    Ok(plans)
}

/// Returns a workload after checking that its parameters are consistent.
fn checked(source: &Source<'_>, plan: WorkloadPlan, at: Range<usize>) -> Result<WorkloadPlan> {
    match (plan.spec.construct)(&plan.parameters, 0).check() {
        Ok(()) => Ok(plan),
        Err(wrong) => Err(source.error(at, format!("workload `{}`: {wrong}", plan.label))),
    }
}

fn set(
    source: &Source<'_>,
    spec: &Spec,
    parameters: &mut Parameters,
    key: &Spanned<String>,
    value: &Spanned<Value>,
) -> Result<()> {
    let name = key.get_ref();
    let Some(parameter) = spec.parameters.iter().find(|parameter| parameter.name == name) else {
        let what = format!("workload `{}` has no parameter", spec.name);
        let names = spec.parameters.iter().map(|parameter| parameter.name);
        return Err(source.unknown(&what, key, names));
    };
    parameters
        .set(parameter, value.get_ref())
        .map_err(|wrong| source.error(value.span(), format!("`{name}`: {wrong}")))
}
