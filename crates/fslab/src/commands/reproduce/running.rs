//! Runs the commands and the plans, or reads the results of an earlier run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use fslab_compare::plan::Form;
use fslab_compare::{Plan, samples_path};
use fslab_report::sample::{self, EndReason, Record};
use fslab_reproduce::{Answers, Ran};
use fslab_sys::signals::Interrupt;
use fslab_sys::usage::Instant;

use super::super::compare::Args as Cells;
use super::library::{Library, plans as claim_plans};
use super::{asking, preparing};
use crate::commands::places;
use crate::exit::one_line;

/// Default time limit for all commands and plans of a quick run, in minutes. Even after this limit,
/// each plan still completes one round.
pub(super) const QUICK_MINUTES: u64 = 10;

/// The file with the results of commands, in the directory of the samples.
const ANSWERS: &str = "answers.json";

/// The folder to which the plans of a run are written.
const PLAN_FILES: &str = "plans";

/// Returns whether a run writes a file or directory of this name, apart from pages and the samples
/// of plans.
pub(super) fn is_own(name: &str) -> bool {
    [ANSWERS, PLAN_FILES, preparing::FOLDER].contains(&name)
}

/// The results of a run.
pub(super) struct Done {
    pub ran: BTreeMap<String, Ran>,
    pub answers: Answers,
    pub interrupted: bool,
    /// The commands and plans that failed, by name.
    pub failed: Vec<String>,
}

impl Done {
    /// Runs cells of a plan and records the result. Returns how the run ended; `None` after an
    /// error.
    fn run(&mut self, wanted: Wanted, goes_on: bool) -> Option<EndReason> {
        let Wanted { name, cells, plan, out } = wanted;
        let samples = samples_path(&out);
        let (reason, failure) = match cells.run_cells(plan, out, goes_on) {
            Ok(reason) => (Some(reason), None),
            Err(error) => (None, Some(one_line(&error))),
        };
        self.interrupted = reason == Some(EndReason::Interrupted);
        self.take(name, kept(&samples, failure));
        reason
    }

    /// Records the result of a plan. If the result is an error, also prints it.
    fn take(&mut self, name: &str, ran: Ran) {
        let trouble = match &ran {
            Ran::Records(..) => None,
            Ran::Broken(.., reason) => Some(format!("plan {name} is incomplete: {reason}")),
            Ran::Not(reason) => Some(format!("plan {name} has no samples: {reason}")),
        };
        if let Some(trouble) = trouble {
            eprintln!("{trouble}");
            self.failed.push(format!("plan {name}"));
        }
        self.ran.insert(name.to_owned(), ran);
    }
}

/// A run of all commands and plans that the claims need.
pub(super) struct Campaign<'a> {
    pub out: &'a Path,
    pub work_dir: Option<&'a Path>,
    pub seed: u64,
    /// Time limit of a quick run, in minutes.
    pub minutes: u64,
}

impl Campaign<'_> {
    /// Runs the commands and then the plans, one after the other. A failure is printed, and the
    /// remaining ones are still run.
    pub fn run(&self, library: &Library) -> Result<Done> {
        self.make_out(library)?;
        let start = Instant::now();
        let mut done = self.ask(library)?;
        for index in 0..library.plans.len() {
            let wanted = self.wanted(library, index, start.elapsed())?;
            if done.interrupted {
                let reason = "the run was interrupted before this plan".to_owned();
                done.ran.insert(wanted.name.to_owned(), Ran::Not(reason));
            } else {
                done.run(wanted, false);
            }
        }
        if library.form == Form::Quick {
            self.use_rest(library, start, &mut done)?;
        }
        Ok(done)
    }

    /// Uses the remaining minutes for more rounds of the plans with the fewest rounds.
    fn use_rest(&self, library: &Library, start: Instant, done: &mut Done) -> Result<()> {
        let mut stuck = BTreeSet::new();
        while !done.interrupted {
            let left = Duration::from_secs(self.minutes * 60).saturating_sub(start.elapsed());
            let names = library.plans.iter().map(|(text, _)| text.name).enumerate();
            let spent = names.filter_map(|(index, name)| {
                let Some(Ran::Records(_, records)) = done.ran.get(name) else { return None };
                let spent = Spent::of(index, records, library.rounds(name))?;
                (!stuck.contains(&index)).then_some(spent)
            });
            let Some((index, rounds)) = Spent::next(spent.collect(), left) else { break };
            let mut wanted = self.wanted(library, index, Duration::ZERO)?;
            (wanted.plan.rounds, wanted.plan.rounds_max) = (rounds, rounds);
            wanted.plan.time_limit_seconds = Some(left.as_secs());
            if done.run(wanted, true) != Some(EndReason::Finished) {
                stuck.insert(index);
            }
        }
        Ok(())
    }

    fn make_out(&self, library: &Library) -> Result<()> {
        let plans = self.out.join(PLAN_FILES);
        if plans.exists() {
            bail_as!(
                BadInput,
                "{} contains an earlier run; choose another --out, or show that run again with \
                 --samples",
                self.out.display()
            );
        }
        places::make_out(self.out, super::is_own)?;
        fs::create_dir_all(&plans).with_context(|| plans.display().to_string())?;
        for (text, _) in &library.plans {
            let path = self.plan_file(text.name);
            fs::write(&path, text.text).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    fn plan_file(&self, name: &str) -> std::path::PathBuf {
        self.out.join(PLAN_FILES).join(format!("{name}.toml"))
    }

    /// Returns a plan with its share of the remaining time as its limit. `taken` is the time that
    /// the run has already used.
    fn wanted(&self, library: &Library, index: usize, taken: Duration) -> Result<Wanted> {
        let (text, plan) = &library.plans[index];
        let mut plan = plan.clone();
        preparing::point_to(&mut plan, self.out, &library.preparations())?;
        if library.form == Form::Quick {
            // Interference is only marked: there is no time to repeat a block.
            plan.reruns_max = Some(0);
            let left = (self.minutes * 60).saturating_sub(taken.as_secs());
            let share = left / (library.plans.len() - index) as u64;
            let share = plan.time_limit_seconds.map_or(share, |limit| limit.min(share));
            plan.time_limit_seconds = Some(share);
        }
        let cells = Cells::of_cells(
            self.plan_file(text.name),
            library.form,
            library.cells(text.name, &plan),
            self.work_dir.map(Path::to_owned),
            self.seed,
        );
        Ok(Wanted { name: text.name, cells, plan, out: self.out.join(text.name) })
    }

    fn ask(&self, library: &Library) -> Result<Done> {
        let interrupt =
            Interrupt::on_signals().context("can't install handlers for SIGINT and SIGTERM")?;
        let (mut answers, mut failed) = (Answers::new(), Vec::new());
        for command in library.commands() {
            if interrupt.is_raised() {
                break;
            }
            let answer = asking::ask(command, self.work_dir);
            if let Err(reason) = &answer {
                eprintln!("command {} gave no result: {reason}", command.name);
                failed.push(format!("command {}", command.name));
            }
            answers.insert(command.name.clone(), answer);
        }
        let preparations = library.preparations();
        failed.extend(preparing::prepare(&preparations, library.form, self.out, &interrupt)?);
        let path = self.out.join(ANSWERS);
        fs::write(&path, serde_json::to_vec(&answers)?)
            .with_context(|| path.display().to_string())?;
        Ok(Done { ran: BTreeMap::new(), answers, interrupted: interrupt.is_raised(), failed })
    }
}

/// A plan to run: the cells that claims need, and the directory of their samples.
struct Wanted {
    name: &'static str,
    cells: Cells,
    plan: Plan,
    out: PathBuf,
}

/// The time that a plan has used for its rounds.
#[derive(Clone, Copy, Debug)]
struct Spent {
    /// The index of the plan.
    index: usize,
    /// The number of completed rounds, and the maximum number of rounds.
    rounds: u32,
    most: u32,
    /// Total time of the completed rounds.
    time: Duration,
}

impl Spent {
    /// Adds up the time of a plan's sessions. Returns `None` if no round was completed.
    fn of(index: usize, records: &[Record], most: u32) -> Option<Self> {
        let ends = records.iter().filter_map(|record| match record {
            Record::End(end) => Some(end),
            _ => None,
        });
        let rounds = ends.clone().map(|end| end.rounds).max().filter(|rounds| *rounds > 0)?;
        let seconds: u64 = ends.map(|end| end.elapsed_seconds).sum();
        Some(Self { index, rounds, most, time: Duration::from_secs(seconds.max(1)) })
    }

    fn each(&self) -> Duration {
        self.time / self.rounds
    }

    /// Returns the index of the plan that gets more rounds in the remaining time, and its new
    /// number of rounds. Of the plans with time for another round, it is the one with the fewest
    /// rounds. Its share is the remaining time, divided equally among these plans.
    fn next(plans: Vec<Self>, left: Duration) -> Option<(usize, u32)> {
        let has_room = |plan: &Self| plan.rounds < plan.most && plan.each() <= left;
        let plans: Vec<Self> = plans.into_iter().filter(has_room).collect();
        let next = plans.iter().min_by_key(|plan| (plan.rounds, plan.index))?;
        let share = left.as_secs_f64() / plans.len() as f64;
        let more = (share / next.each().as_secs_f64()) as u32;
        Some((next.index, next.rounds.saturating_add(more.max(1)).min(next.most)))
    }
}

/// Returns the name of each plan, with a sentence that estimates its duration.
pub(super) fn estimates(library: &Library, minutes: u64) -> Result<Vec<(&'static str, String)>> {
    let campaign = Campaign { out: Path::new("."), work_dir: None, seed: 0, minutes };
    let wanted = |index| campaign.wanted(library, index, Duration::ZERO);
    let wanted = (0..library.plans.len()).map(wanted);
    wanted.map(|one| one.map(|one| (one.name, one.cells.estimate(&one.plan)))).collect()
}

/// Reads the results of an earlier run. Unreadable samples affect only their own plan.
pub(super) fn read_again(directory: &Path) -> Result<Done> {
    let path = directory.join(ANSWERS);
    let name = || path.display().to_string();
    let answers = match path.exists() {
        true => serde_json::from_slice(&fs::read(&path).with_context(name)?).with_context(name)?,
        false => Answers::new(),
    };
    let mut done = Done { ran: BTreeMap::new(), answers, interrupted: false, failed: Vec::new() };
    let samples = |name: &str| samples_path(&directory.join(name));
    let (there, missing): (Vec<&str>, Vec<&str>) =
        claim_plans().map(|plan| plan.name).partition(|name| samples(name).exists());
    if done.answers.is_empty() && there.is_empty() {
        bail_as!(BadInput, "{} contains no samples of any plan", directory.display());
    }
    for name in missing {
        let reason = format!("there is no {}", samples(name).display());
        done.ran.insert(name.to_owned(), Ran::Not(reason));
    }
    for name in there {
        done.take(name, kept(&samples(name), None));
    }
    Ok(done)
}

/// Returns the samples of a plan, even if an error ended its run.
fn kept(samples: &Path, failure: Option<String>) -> Ran {
    let records = match sample::read(samples) {
        Ok(records) => records,
        Err(error) => return Ran::Not(failure.unwrap_or_else(|| one_line(&error.into()))),
    };
    let form = sample::sessions(&records).next().map_or(Form::Full, |first| first.form);
    let unended = || "its run was killed, or is still in progress".to_owned();
    let failure = failure.or_else(|| (!sample::is_ended(&records)).then(unended));
    let has_samples = records.iter().any(|record| matches!(record, Record::Sample(_)));
    match failure {
        None => Ran::Records(form, records),
        Some(reason) if has_samples => Ran::Broken(form, records, reason),
        Some(reason) => Ran::Not(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(lines: &[&str]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), lines.join("\n") + "\n").unwrap();
        file
    }

    /// Of the plans with time for another round, the one with the fewest rounds gets more. It gets
    /// as many rounds as fit into its share of the time, at least one, and never more than in its
    /// full form.
    #[test]
    fn remaining_time_goes_to_the_plan_with_the_fewest_rounds() {
        let seconds = Duration::from_secs;
        let plan = |index, rounds, time| Spent { index, rounds, most: 10, time: seconds(time) };
        let plans = vec![plan(0, 1, 66), plan(1, 3, 30), plan(2, 1, 49)];
        let next = |left| Spent::next(plans.clone(), seconds(left));
        assert_eq!(next(106), Some((0, 2)));
        assert_eq!(next(60), Some((2, 2)));
        assert_eq!(next(40), Some((1, 7)));
        assert_eq!(next(9), None);
        assert_eq!(next(3 * 5 * 66), Some((0, 6)));
        assert_eq!(next(100_000), Some((0, 10)));
        let full = vec![plan(0, 10, 10)];
        assert_eq!(Spent::next(full, seconds(100)), None);
        let end = |rounds, elapsed_seconds| {
            let reason = EndReason::TimeLimit;
            Record::End(sample::End { reason, rounds, elapsed_seconds })
        };
        let spent = Spent::of(0, &[end(1, 60), end(3, 90)], 10).unwrap();
        assert_eq!((spent.rounds, spent.each()), (3, seconds(50)));
        assert!(Spent::of(0, &[end(0, 60)], 10).is_none(), "no round was ended");
    }

    const PROVENANCE: &str = r#"{"record":"provenance","run":"1","form":"quick"}"#;
    const SAMPLE: &str = r#"{"record":"sample","run":"1"}"#;
    const END: &str = r#"{"record":"end","reason":"finished","rounds":1,"elapsed_seconds":1}"#;

    /// Samples measured before an error are kept, together with the error. Without any samples, the
    /// plan is reported as not measured.
    #[test]
    fn samples_measured_before_an_error_are_kept() {
        let cut = written(&[PROVENANCE, SAMPLE]);
        let full = || Some("the disk is full".to_owned());
        let Ran::Broken(Form::Quick, records, reason) = kept(cut.path(), full()) else {
            panic!("the sample is lost");
        };
        assert_eq!((records.len(), reason.as_str()), (2, "the disk is full"));
        assert!(matches!(kept(cut.path(), None), Ran::Broken(..)), "it was killed");
        let whole = written(&[PROVENANCE, SAMPLE, END]);
        assert!(matches!(kept(whole.path(), None), Ran::Records(Form::Quick, _)));
        let nothing = written(&[PROVENANCE]);
        assert!(
            matches!(kept(nothing.path(), full()), Ran::Not(reason) if reason.ends_with("full"))
        );
        let wrong = written(&[PROVENANCE, "{"]);
        assert!(matches!(kept(wrong.path(), None), Ran::Not(reason) if reason.contains("line 2")));
    }
}
