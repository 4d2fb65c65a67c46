//! Prints the planned steps of a comparison and their estimated time.

use std::time::Duration;

use anyhow::{Context, Result};
use fslab_compare::plan::{ImagePlan, Over, TargetKind, TargetPlan};
use fslab_compare::{Plan, check_stack, samples_path};
use fslab_report::{Cells, Choice, sample};

use super::durations::Durations;
use super::host::Binary;
use super::{Args, Comparison};
use crate::units::counted;

pub(super) fn run(args: &Args, plan: &Plan, seed: u64) -> Result<()> {
    plan.check_cells(&args.cells())?;
    let mut durations = Durations::load();
    if args.trial {
        let records = trial(args, plan, seed)?;
        durations.learn(&records, plan);
    }
    describe(args, plan, seed, &Binary::new()?);
    crate::output::print(estimate(args, plan, &durations));
    if !args.trial && has_untimed(args, plan, &durations) {
        say!("`--dry-run --trial` runs one round in a temporary directory, to time these runs");
    }
    Ok(())
}

/// Runs one round in a temporary directory.
fn trial(args: &Args, plan: &Plan, seed: u64) -> Result<Vec<sample::Record>> {
    let parent = args.work_dir.clone().unwrap_or_else(std::env::temp_dir);
    let directory = tempfile::TempDir::with_prefix_in("fslab-trial-", &parent)
        .with_context(|| parent.display().to_string())?;
    let cells = Cells { rounds: None, share: None, ..args.cells() };
    let comparison = Comparison {
        plan: Plan { rounds: 1, rounds_max: 1, ..plan.clone() },
        seed,
        remarks: Vec::new(),
        choice: Choice { cells, ..Choice::default() },
        command: String::new(),
        out: directory.path().to_owned(),
        resume: false,
    };
    comparison.measure()?;
    Ok(sample::read(&samples_path(directory.path()))?)
}

fn describe(args: &Args, plan: &Plan, seed: u64, host: &Binary) {
    let cells = args.cells();
    let Plan { rounds, rounds_max, baseline, .. } = plan;
    say!("{}: seed {seed}, baseline {baseline}", plan.name);
    if rounds_max > rounds {
        say!(
            "{rounds} rounds, and up to {rounds_max} until every interval is within \u{b1}{:.1} %",
            plan.half_width * 100.0
        );
    } else {
        say!("{}", counted((*rounds).into(), "round"));
    }
    if let Some(seconds) = plan.time_limit_seconds {
        say!("no round begins later than {} after the start", spoken(seconds as f64));
    }
    say!("\ntargets, each newly made for every run:");
    for target in plan.targets.iter().filter(|target| cells.hold_target(&target.name)) {
        say!("  {}: {}", target.name, made_of(target, plan));
        if let Err(error) = check_stack(target, host) {
            let what =
                if error.is_missing_prerequisite() { "will be left out" } else { "will fail" };
            say!("    {what}: {error}");
        }
    }
    if plan.second_copy().is_some() {
        say!("  a second copy of {baseline}, to measure the noise floor");
    }
    say!("\nworkloads, each run once per round on every target, in an order drawn from the seed:");
    let count = plan.workloads.len();
    for (number, workload) in plan.workloads.iter().enumerate() {
        let is_run = |round| cells.hold_block(round, number, &workload.label, count);
        if (0..*rounds_max).any(is_run) {
            say!("  {}: {}", workload.label, workload.spec.help);
        }
    }
}

fn made_of(target: &TargetPlan, plan: &Plan) -> String {
    let memory = target.memory.map(|bytes| format!(", with at most {} MiB of memory", bytes >> 20));
    let what = match &target.kind {
        TargetKind::Image { base, over } => image(base, plan) + &covered(over),
        TargetKind::Directory { path, cold } => {
            let cold =
                if *cold { ", made cold by dropping its files from the page cache" } else { "" };
            format!("a new directory in {}, never remounted{cold}", path.display())
        }
        TargetKind::InProcess { specification } => {
            format!("{specification}, within this process")
        }
    };
    what + &memory.unwrap_or_default()
}

fn image(base: &ImagePlan, plan: &Plan) -> String {
    let kind = base.kind.name();
    let size = match &base.device {
        None => format!("of {} MiB", plan.image_size >> 20),
        Some(device) => format!("on {}, which is erased", device.path.display()),
    };
    let mut text = match (&base.recorded, base.mkfs.as_slice()) {
        (Some(image), _) => {
            let of = base.aged_workload.as_ref().map(|hash| format!(" of workload {hash}"));
            format!("{kind} from the image {}{}", image.display(), of.unwrap_or_default())
        }
        (None, []) => format!("{kind} {size}"),
        (None, options) => format!("{kind} {size}, made with {}", options.join(" ")),
    };
    if !base.mount.is_empty() {
        text.push_str(&format!(", mounted with {}", base.mount));
    }
    let source = base.source.as_ref().map(|path| format!(", containing {}", path.display()));
    let filled = base.fill_percent.map(|percent| format!(", filled to {percent} %"));
    text + &source.unwrap_or_default() + &filled.unwrap_or_default()
}

fn covered(over: &Over) -> String {
    match over {
        Over::Nothing => String::new(),
        Over::Layers(layers) => format!(", under layers {}", layers.join(" / ")),
        Over::Command(command) => format!(", under `{}`", command.mount.join(" ")),
        Over::Overlay(options) if options.is_empty() => ", under overlay".to_owned(),
        Over::Overlay(options) => format!(", under overlay with {options}"),
        Over::Engine(options) => format!(", mounted by fslab's engine with {options}"),
    }
}

/// Returns the target and the workload of every run, for the minimum number of rounds.
fn chosen<'a>(cells: &Cells, plan: &'a Plan) -> Vec<(&'a str, &'a str)> {
    let mut runs = Vec::new();
    for round in 0..plan.rounds {
        for (index, workload) in plan.workloads.iter().enumerate() {
            if cells.hold_block(round, index, &workload.label, plan.workloads.len()) {
                let copy = plan.second_copy().map(|_| &*plan.baseline);
                let names = plan.targets.iter().map(|target| &*target.name).chain(copy);
                let names = names.filter(|name| cells.hold_target(name));
                runs.extend(names.map(|name| (name, &*workload.label)));
            }
        }
    }
    runs
}

/// Returns the number of runs for the minimum number of rounds. It includes the runs of the second
/// copy of the baseline.
fn runs_in_all(plan: &Plan) -> usize {
    let in_a_block = plan.targets.len() + usize::from(plan.second_copy().is_some());
    plan.rounds as usize * in_a_block * plan.workloads.len()
}

fn has_untimed(args: &Args, plan: &Plan, durations: &Durations) -> bool {
    let runs = chosen(&args.cells(), plan);
    runs.iter().any(|(target, workload)| durations.of(plan, target, workload).is_none())
}

pub(super) fn estimate(args: &Args, plan: &Plan, durations: &Durations) -> String {
    let runs = chosen(&args.cells(), plan);
    let known: Vec<Option<f64>> =
        runs.iter().map(|(target, workload)| durations.of(plan, target, workload)).collect();
    let seconds: f64 = known.iter().flatten().sum();
    let unknown = known.iter().filter(|seconds| seconds.is_none()).count();
    if known.is_empty() {
        return "\nno run is selected\n".to_owned();
    }
    let counted = match (known.len(), runs_in_all(plan)) {
        (chosen, all) if chosen < all => format!("{chosen} of {all} runs"),
        (_, all) => format!("{all} runs"),
    };
    if unknown == known.len() {
        return format!("\n{counted}, which have not been timed on this machine yet\n");
    }
    let most = f64::from(plan.rounds_max) / f64::from(plan.rounds);
    let limit = plan.time_limit_seconds.map_or(f64::INFINITY, |seconds| seconds as f64);
    let mut text = format!("\n{counted} take about {}", spoken(seconds.min(limit)));
    if plan.rounds_max > plan.rounds {
        text.push_str(&format!(", and at most {}", spoken((seconds * most).min(limit))));
    }
    if unknown > 0 {
        text.push_str(&format!(
            ", not counting {unknown} runs that have not been timed on this machine yet"
        ));
    }
    text + "\n"
}

pub(super) fn spoken(seconds: f64) -> String {
    let whole = Duration::from_secs(seconds.ceil() as u64).as_secs();
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}
