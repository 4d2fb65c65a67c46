//! From TOML to a checked [`Plan`].

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use serde::Deserialize;
use toml::{Spanned, Value};

use super::source::{PlanError, Source};
use super::{ForeignMount, ImagePlan, Over, Plan, TargetKind, TargetPlan, WorkloadPlan};
use crate::names::nearest;
use crate::workload::{self, Parameters};
use fslab_sys::make_file_system::Kind;

type Result<T> = std::result::Result<T, PlanError>;

const DEFAULT_ROUNDS: u32 = 10;

/// An interval of 2.5 % either way tells 5 % from nothing.
const DEFAULT_HALF_WIDTH_PERCENT: f64 = 2.5;

const DEFAULT_IMAGE_SIZE: u64 = 1 << 30;

/// The smallest image every supported file system can be made on (XFS asks for 300 MB).
const SMALLEST_IMAGE: u64 = 320 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPlan {
    name: String,
    seed: Option<u64>,
    rounds: Option<Spanned<u32>>,
    rounds_max: Option<Spanned<u32>>,
    half_width_percent: Option<Spanned<f64>>,
    reruns_max: Option<u32>,
    image_size: Option<Spanned<String>>,
    time_limit_seconds: Option<u64>,
    baseline: Option<Spanned<String>>,
    #[serde(default)]
    target: Vec<Spanned<RawTarget>>,
    #[serde(default)]
    workload: Vec<Spanned<RawWorkload>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTarget {
    name: Spanned<String>,
    filesystem: Option<Spanned<String>>,
    #[serde(default)]
    mkfs: Vec<String>,
    #[serde(default)]
    mount: String,
    layers: Option<Spanned<Vec<String>>>,
    over: Option<Spanned<String>>,
    mount_command: Option<Spanned<Vec<String>>>,
    unmount_command: Option<Vec<String>>,
    version_command: Option<Vec<String>>,
    directory: Option<PathBuf>,
    in_process: Option<String>,
}

/// `name`, `label`, and the parameters the named workload has.
type RawWorkload = BTreeMap<Spanned<String>, Spanned<Value>>;

pub(super) fn parse(source: &Source<'_>) -> Result<Plan> {
    let raw: RawPlan = toml::from_str(source.text).map_err(|error| source.syntax_error(&error))?;
    let targets = targets(source, &raw.target)?;
    let workloads =
        raw.workload.iter().map(|raw| workload(source, raw)).collect::<Result<Vec<_>>>()?;
    unique(source, workloads.iter().zip(&raw.workload).map(|(w, raw)| (&*w.label, raw.span())))?;
    if workloads.is_empty() {
        return Err(source.error(0..0, "the plan has no [[workload]]"));
    }
    let rounds = rounds(source, raw.rounds.as_ref())?;
    Ok(Plan {
        name: raw.name,
        seed: raw.seed,
        rounds,
        rounds_max: rounds_max(source, raw.rounds_max.as_ref(), rounds)?,
        half_width: half_width(source, raw.half_width_percent.as_ref())?,
        reruns_max: raw.reruns_max,
        image_size: image_size(source, raw.image_size.as_ref())?,
        time_limit_seconds: raw.time_limit_seconds,
        baseline: baseline(source, raw.baseline.as_ref(), &targets)?,
        targets,
        workloads,
        text: source.text.to_owned(),
    })
}

fn rounds(source: &Source<'_>, raw: Option<&Spanned<u32>>) -> Result<u32> {
    match raw {
        Some(rounds) if *rounds.get_ref() == 0 => {
            Err(source.error(rounds.span(), "`rounds`: at least one round must be run"))
        }
        Some(rounds) => Ok(*rounds.get_ref()),
        None => Ok(DEFAULT_ROUNDS),
    }
}

fn rounds_max(source: &Source<'_>, raw: Option<&Spanned<u32>>, rounds: u32) -> Result<u32> {
    match raw {
        Some(most) if *most.get_ref() < rounds => Err(source.error(
            most.span(),
            format!("`rounds_max`: must not be below `rounds`, which is {rounds}"),
        )),
        Some(most) => Ok(*most.get_ref()),
        None => Ok(rounds),
    }
}

fn half_width(source: &Source<'_>, raw: Option<&Spanned<f64>>) -> Result<f64> {
    let Some(raw) = raw else { return Ok(DEFAULT_HALF_WIDTH_PERCENT / 100.0) };
    let percent = *raw.get_ref();
    if percent > 0.0 && percent <= 100.0 {
        return Ok(percent / 100.0);
    }
    let message = "`half_width_percent`: must be above 0 and at most 100";
    Err(source.error(raw.span(), message))
}

fn image_size(source: &Source<'_>, raw: Option<&Spanned<String>>) -> Result<u64> {
    let Some(raw) = raw else { return Ok(DEFAULT_IMAGE_SIZE) };
    let size: bytesize::ByteSize = raw.get_ref().parse().map_err(|error| {
        source.error(raw.span(), format!("`image_size`: {:?}: {error}", raw.get_ref()))
    })?;
    if size.as_u64() < SMALLEST_IMAGE {
        let least = bytesize::ByteSize(SMALLEST_IMAGE).display().iec();
        return Err(source.error(raw.span(), format!("`image_size`: must be at least {least}")));
    }
    Ok(size.as_u64())
}

fn baseline(
    source: &Source<'_>,
    raw: Option<&Spanned<String>>,
    targets: &[TargetPlan],
) -> Result<String> {
    let Some(raw) = raw else {
        return Ok(targets.first().map(|t| t.name.clone()).unwrap_or_default());
    };
    let names = targets.iter().map(|target| &*target.name);
    if names.clone().any(|name| name == raw.get_ref()) {
        return Ok(raw.get_ref().clone());
    }
    let message = format!(
        "`baseline`: no target is named `{}`; nearest: {}",
        raw.get_ref(),
        nearest(raw.get_ref(), names)
    );
    Err(source.error(raw.span(), message))
}

fn targets(source: &Source<'_>, raw: &[Spanned<RawTarget>]) -> Result<Vec<TargetPlan>> {
    let targets = raw.iter().map(|raw| target(source, raw)).collect::<Result<Vec<_>>>()?;
    unique(source, targets.iter().zip(raw).map(|(t, raw)| (&*t.name, raw.get_ref().name.span())))?;
    if targets.is_empty() {
        return Err(source.error(0..0, "the plan has no [[target]]"));
    }
    Ok(targets)
}

fn unique<'a>(
    source: &Source<'_>,
    names: impl Iterator<Item = (&'a str, std::ops::Range<usize>)>,
) -> Result<()> {
    let mut seen = HashSet::new();
    for (name, span) in names {
        if !seen.insert(name) {
            return Err(source.error(
                span,
                format!("`name`: `{name}` is used twice (a workload may be given a `label`)"),
            ));
        }
    }
    Ok(())
}

fn target(source: &Source<'_>, spanned: &Spanned<RawTarget>) -> Result<TargetPlan> {
    let raw = spanned.get_ref();
    let name = raw.name.get_ref().clone();
    let fail =
        |message: String| Err(source.error(spanned.span(), format!("target `{name}`: {message}")));
    let given = [
        ("filesystem", raw.filesystem.is_some()),
        ("mount_command", raw.mount_command.is_some()),
        ("directory", raw.directory.is_some()),
        ("in_process", raw.in_process.is_some()),
    ];
    let given: Vec<&str> = given.iter().filter(|(_, is)| *is).map(|(key, _)| *key).collect();
    let [kind] = given[..] else {
        let found = if given.is_empty() { "none".to_owned() } else { given.join(" and ") };
        return fail(format!(
            "exactly one of `filesystem`, `mount_command`, `directory`, `in_process` is needed, \
             found {found}"
        ));
    };
    if let Some(key) = misplaced(raw, kind) {
        return fail(format!("`{key}` has no meaning beside `{kind}`"));
    }
    Ok(TargetPlan { kind: target_kind(source, spanned)?, name })
}

/// A key that says nothing for a target of this kind.
fn misplaced(raw: &RawTarget, kind: &str) -> Option<&'static str> {
    let image = matches!(kind, "filesystem" | "mount_command");
    let foreign = kind == "mount_command";
    let keys = [
        ("mkfs", !raw.mkfs.is_empty() && !image),
        ("mount", !raw.mount.is_empty() && !image),
        ("layers", raw.layers.is_some() && kind != "filesystem"),
        ("over", raw.over.is_some() && !foreign),
        ("unmount_command", raw.unmount_command.is_some() && !foreign),
        ("version_command", raw.version_command.is_some() && !foreign),
    ];
    keys.into_iter().find(|(_, misplaced)| *misplaced).map(|(key, _)| key)
}

fn target_kind(source: &Source<'_>, spanned: &Spanned<RawTarget>) -> Result<TargetKind> {
    let raw = spanned.get_ref();
    if let Some(path) = &raw.directory {
        return Ok(TargetKind::Directory { path: path.clone() });
    }
    if let Some(specification) = &raw.in_process {
        return Ok(TargetKind::InProcess { specification: specification.clone() });
    }
    let (key, kind) = match (&raw.filesystem, &raw.over) {
        (Some(kind), _) => ("filesystem", kind),
        (None, Some(kind)) => ("over", kind),
        (None, None) => {
            let message = format!(
                "target `{}`: `mount_command` needs `over`, the file system it is mounted over",
                raw.name.get_ref()
            );
            return Err(source.error(spanned.span(), message));
        }
    };
    let base = ImagePlan {
        kind: file_system(source, key, kind)?,
        mkfs: raw.mkfs.clone(),
        mount: raw.mount.clone(),
    };
    Ok(TargetKind::Image { base, over: over(source, raw)? })
}

fn file_system(source: &Source<'_>, key: &str, raw: &Spanned<String>) -> Result<Kind> {
    raw.get_ref().parse().map_err(|error| {
        let names = nearest(raw.get_ref(), Kind::ALL.map(Kind::name));
        source.error(raw.span(), format!("`{key}`: {error}; nearest: {names}"))
    })
}

fn over(source: &Source<'_>, raw: &RawTarget) -> Result<Over> {
    if let Some(layers) = &raw.layers {
        let none = layers.get_ref().is_empty();
        let layers = layers.get_ref().clone();
        return Ok(if none { Over::Nothing } else { Over::Layers(layers) });
    }
    let Some(command) = &raw.mount_command else { return Ok(Over::Nothing) };
    for place in ["{lower}", "{mountpoint}"] {
        if !command.get_ref().iter().skip(1).any(|word| word.contains(place)) {
            let message = format!("`mount_command`: no argument holds {place}");
            return Err(source.error(command.span(), message));
        }
    }
    Ok(Over::Command(ForeignMount {
        mount: command.get_ref().clone(),
        unmount: raw.unmount_command.clone(),
        version: raw.version_command.clone(),
    }))
}

fn workload(source: &Source<'_>, spanned: &Spanned<RawWorkload>) -> Result<WorkloadPlan> {
    let raw = spanned.get_ref();
    let text = |key: &str| match raw.get(key) {
        None => Ok(None),
        Some(value) => match value.get_ref() {
            Value::String(text) => Ok(Some((text.clone(), value.span()))),
            _ => Err(source.error(value.span(), format!("`{key}`: must be a string"))),
        },
    };
    let Some((name, span)) = text("name")? else {
        return Err(source.error(spanned.span(), "a [[workload]] has no `name`"));
    };
    let Some(spec) = workload::find(&name) else {
        let names = nearest(&name, workload::WORKLOADS.iter().map(|spec| spec.name));
        return Err(
            source.error(span, format!("`name`: unknown workload `{name}`; nearest: {names}"))
        );
    };
    let mut parameters = Parameters::default();
    for (key, value) in raw {
        if !matches!(key.get_ref().as_str(), "name" | "label") {
            parameter(source, spec, &mut parameters, key, value)?;
        }
    }
    let label = text("label")?.map_or_else(|| name.clone(), |(label, _)| label);
    Ok(WorkloadPlan { label, spec, parameters })
}

fn parameter(
    source: &Source<'_>,
    spec: &workload::Spec,
    parameters: &mut Parameters,
    key: &Spanned<String>,
    value: &Spanned<Value>,
) -> Result<()> {
    let name = key.get_ref();
    let Some(parameter) = spec.parameters.iter().find(|parameter| parameter.name == name) else {
        let names = nearest(name, spec.parameters.iter().map(|parameter| parameter.name));
        let message =
            format!("workload `{}` has no parameter `{name}`; nearest: {names}", spec.name);
        return Err(source.error(key.span(), message));
    };
    parameters
        .set(parameter, value.get_ref())
        .map_err(|wrong| source.error(value.span(), format!("`{name}`: {wrong}")))
}
