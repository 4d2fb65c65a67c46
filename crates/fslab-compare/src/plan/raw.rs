//! Converts TOML to a checked [`Plan`].

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::de::DeTable;
use toml::{Deserializer, Spanned};

use super::checks::{Result, checked, margin, size};
use super::source::Source;
use super::workloads::{self, RawWorkload};
use super::{Form, Plan, TargetPlan, targets};

const DEFAULT_ROUNDS: u32 = 10;

/// An interval of 2.5 % to either side distinguishes a difference of 5 % from no difference.
const DEFAULT_HALF_WIDTH_PERCENT: f64 = 2.5;

/// The limit aborts a run that hangs. A run of a sensible plan takes less than an hour.
const DEFAULT_RUN_LIMIT_SECONDS: u64 = 3600;

const DEFAULT_IMAGE_SIZE: u64 = 1 << 30;

/// The smallest image on which every supported file system can be made (XFS needs 300 MB).
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
    /// Read separately, because matrices are filled in first.
    #[serde(rename = "target")]
    _targets: Option<IgnoredAny>,
    #[serde(default)]
    workload: Vec<Spanned<RawWorkload>>,
}

/// Values that replace the plan's values in the quick form.
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
        // If the quick form sets only `rounds`, the maximum is the same number, not that of the
        // full plan.
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
    let wrong = |error| source.syntax_error(&error);
    let table = DeTable::parse(source.text).map_err(wrong)?;
    let targets = table.get_ref().get("target").cloned();
    let mut raw = RawPlan::deserialize(Deserializer::from(table)).map_err(wrong)?;
    if form == Form::Quick {
        raw.take_quick();
    }
    let targets = targets::targets(source, targets, form)?;
    let workloads = workloads::workloads(source, &raw.workload, form)?;
    let none = "`rounds`: must be at least 1";
    let rounds = checked(source, raw.rounds.as_ref(), DEFAULT_ROUNDS, |rounds| rounds > 0, none)?;
    let few = format!("`rounds_max`: must not be less than `rounds`, which is {rounds}");
    let no_share = "`half_width_percent`: must be above 0 and at most 100";
    let is_share = |percent| percent > 0.0 && percent <= 100.0;
    let width = raw.half_width_percent.as_ref();
    let no_time = "`run_limit_seconds`: must be at least 1";
    let (run_limit, default) = (raw.run_limit_seconds.as_ref(), DEFAULT_RUN_LIMIT_SECONDS);
    let image_size = raw.image_size.as_ref();
    let image_size = image_size.map(|raw| size(source, "image_size", raw, SMALLEST_IMAGE));
    Ok(Plan {
        name: raw.name,
        seed: raw.seed,
        rounds,
        rounds_max: checked(source, raw.rounds_max.as_ref(), rounds, |most| most >= rounds, few)?,
        half_width: checked(source, width, DEFAULT_HALF_WIDTH_PERCENT, is_share, no_share)? / 100.0,
        reruns_max: raw.reruns_max,
        image_size: image_size.transpose()?.unwrap_or(DEFAULT_IMAGE_SIZE),
        time_limit_seconds: raw.time_limit_seconds,
        run_limit_seconds: checked(source, run_limit, default, |seconds| seconds > 0, no_time)?,
        processors: raw.processors,
        baseline: baseline(source, raw.baseline.as_ref(), &targets)?,
        noise_floor: raw.noise_floor.unwrap_or(true),
        margin: margin(source, raw.margin.as_ref())?,
        targets,
        workloads,
        text: source.text.to_owned(),
        form,
        command: Vec::new(),
        programs: Vec::new(),
    })
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
    Err(source.unknown("`baseline`: no target is named", raw, names))
}
