//! From TOML to a checked [`Plan`].

use fslab_vfs::Size;

use serde::Deserialize;
use toml::Spanned;

use super::checks::{Result, margin};
use super::source::Source;
use super::targets::{self, RawTarget};
use super::workloads::{self, RawWorkload};
use super::{Form, Plan, TargetPlan};
use fslab_report::nearest;

const DEFAULT_ROUNDS: u32 = 10;

/// An interval of 2.5 % either way tells 5 % from nothing.
const DEFAULT_HALF_WIDTH_PERCENT: f64 = 2.5;

/// No run of a sensible plan takes an hour; one that hangs would take for ever.
const DEFAULT_RUN_LIMIT_SECONDS: u64 = 3600;

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
    run_limit_seconds: Option<Spanned<u64>>,
    #[serde(default)]
    processors: Vec<usize>,
    baseline: Option<Spanned<String>>,
    margin: Option<Spanned<String>>,
    noise_floor: Option<bool>,
    quick: Option<RawQuick>,
    #[serde(default)]
    target: Vec<Spanned<RawTarget>>,
    #[serde(default)]
    workload: Vec<Spanned<RawWorkload>>,
}

/// What of the plan itself is otherwise in its quick form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawQuick {
    rounds: Option<Spanned<u32>>,
    rounds_max: Option<Spanned<u32>>,
    image_size: Option<Spanned<String>>,
    time_limit_seconds: Option<u64>,
    noise_floor: Option<bool>,
}

impl RawPlan {
    fn take_quick(&mut self) {
        let Some(quick) = self.quick.take() else { return };
        // Fewer rounds at least are also fewer at most, unless it is said how many.
        if quick.rounds.is_some() || quick.rounds_max.is_some() {
            self.rounds_max = quick.rounds_max;
        }
        self.rounds = quick.rounds.or(self.rounds.take());
        self.image_size = quick.image_size.or(self.image_size.take());
        self.time_limit_seconds = quick.time_limit_seconds.or(self.time_limit_seconds);
        self.noise_floor = quick.noise_floor.or(self.noise_floor);
    }
}

pub(super) fn parse(source: &Source<'_>, form: Form) -> Result<Plan> {
    let mut raw: RawPlan =
        toml::from_str(source.text).map_err(|error| source.syntax_error(&error))?;
    if form == Form::Quick {
        raw.take_quick();
    }
    let targets = targets::targets(source, &raw.target, form)?;
    let workloads = workloads::workloads(source, &raw.workload, form)?;
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
        run_limit_seconds: run_limit(source, raw.run_limit_seconds.as_ref())?,
        processors: raw.processors,
        baseline: baseline(source, raw.baseline.as_ref(), &targets)?,
        noise_floor: raw.noise_floor.unwrap_or(true),
        margin: margin(source, raw.margin.as_ref())?,
        targets,
        workloads,
        text: source.text.to_owned(),
        form,
        command: Vec::new(),
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

fn run_limit(source: &Source<'_>, raw: Option<&Spanned<u64>>) -> Result<u64> {
    match raw {
        Some(limit) if *limit.get_ref() == 0 => {
            Err(source.error(limit.span(), "`run_limit_seconds`: at least one second is needed"))
        }
        Some(limit) => Ok(*limit.get_ref()),
        None => Ok(DEFAULT_RUN_LIMIT_SECONDS),
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
    let size: Size = raw.get_ref().parse().map_err(|error| {
        source.error(raw.span(), format!("`image_size`: {:?}: {error}", raw.get_ref()))
    })?;
    if size.bytes() < SMALLEST_IMAGE {
        let least = Size::of(SMALLEST_IMAGE);
        return Err(source.error(raw.span(), format!("`image_size`: must be at least {least}")));
    }
    Ok(size.bytes())
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
