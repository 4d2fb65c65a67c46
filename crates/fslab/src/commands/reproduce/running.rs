//! Runs the plans and the prober, or reads what an earlier run left.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use fslab_measure::plan::Form;
use fslab_measure::probe::Options;
use fslab_measure::probe::matrix::How;
use fslab_measure::reproduce::{Paper, Probes, Ran, probe};
use fslab_measure::sample::{self, EndReason, Record};
use fslab_measure::samples_path;
use fslab_sys::signals::Interrupt;

use super::super::compare::Wanted;
use super::super::compare::host::Binary;
use super::library::{Library, PLANS};
use crate::exit::{Code, Coded, one_line};

/// What all plans of a quick run may take together, in seconds. Each may go on to the end of its
/// first round.
pub(super) const QUICK_SECONDS: u64 = 600;

/// Answers of the prober are kept beside the samples.
const PROBES: &str = "probes.json";

/// What was measured.
pub(super) struct Done {
    pub ran: BTreeMap<String, Ran>,
    pub probes: Probes,
    pub interrupted: bool,
}

/// A run of everything that claims ask for.
pub(super) struct Campaign<'a> {
    pub out: &'a Path,
    pub work_dir: Option<&'a Path>,
    pub seed: u64,
}

impl Campaign<'_> {
    /// Runs the plans one after the other. One that can't be run says why; the others are run.
    pub fn run(&self, library: &Library) -> Result<Done> {
        self.make_out(library)?;
        let mut done =
            Done { ran: BTreeMap::new(), probes: self.probe(library)?, interrupted: false };
        for wanted in self.wanted(library) {
            let name = wanted.name;
            if done.interrupted {
                let reason = "the run was interrupted before this plan".to_owned();
                done.ran.insert(name.to_owned(), Ran::Not(reason));
                continue;
            }
            let samples = samples_path(&wanted.cells.out);
            let ran = match wanted.cells.run() {
                Ok(ended) => {
                    done.interrupted = ended == EndReason::Interrupted;
                    records(&samples)?
                }
                Err(error) => Ran::Not(one_line(&error)),
            };
            if let Ran::Not(reason) = &ran {
                eprintln!("plan {name} was not run: {reason}");
            }
            done.ran.insert(name.to_owned(), ran);
        }
        Ok(done)
    }

    fn make_out(&self, library: &Library) -> Result<()> {
        let plans = self.out.join("plans");
        if plans.exists() {
            let message = format!(
                "{} holds an earlier run; choose another --out, or show that one again with \
                 --samples",
                self.out.display()
            );
            return Err(Coded { code: Code::BadInput, message }.into());
        }
        fs::create_dir_all(&plans).with_context(|| plans.display().to_string())?;
        for (text, _) in &library.plans {
            let path = self.plan_file(text.name);
            fs::write(&path, text.text).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    fn plan_file(&self, name: &str) -> std::path::PathBuf {
        self.out.join("plans").join(format!("{name}.toml"))
    }

    fn wanted(&self, library: &Library) -> Vec<NamedCells> {
        let share = QUICK_SECONDS / library.plans.len().max(1) as u64;
        let cells = library.plans.iter().map(|(text, plan)| {
            let mut plan = plan.clone();
            if library.form == Form::Quick {
                plan.time_limit_seconds = Some(plan.time_limit_seconds.unwrap_or(share).min(share));
            }
            let (targets, workloads) = library.cells(text.name, &plan);
            let cells = Wanted {
                path: self.plan_file(text.name),
                plan,
                targets,
                workloads,
                out: self.out.join(text.name),
                work_dir: self.work_dir.map(Path::to_owned),
                seed: self.seed,
            };
            NamedCells { name: text.name, cells }
        });
        cells.collect()
    }

    fn probe(&self, library: &Library) -> Result<Probes> {
        let cells = library.papers.iter().flat_map(Paper::probed);
        let directory = self.work_dir.unwrap_or(self.out);
        let how = How {
            work_directory: directory,
            fast_directory: directory,
            host: &Binary::new()?,
            options: Options::default(),
            timing: None,
            interrupt: &Interrupt::on_signals().context("taking over SIGINT and SIGTERM")?,
        };
        let probes = probe(cells, &how);
        let path = self.out.join(PROBES);
        fs::write(&path, serde_json::to_vec_pretty(&probes)?)
            .with_context(|| path.display().to_string())?;
        Ok(probes)
    }
}

struct NamedCells {
    name: &'static str,
    cells: Wanted,
}

/// What each plan would take, in words.
pub(super) fn estimates(library: &Library) -> Vec<(&'static str, String)> {
    let campaign = Campaign { out: Path::new("."), work_dir: None, seed: 0 };
    let wanted = campaign.wanted(library).into_iter();
    wanted.map(|wanted| (wanted.name, wanted.cells.estimate())).collect()
}

/// What an earlier run left in its directory.
pub(super) fn read_again(directory: &Path) -> Result<Done> {
    let mut ran = BTreeMap::new();
    for plan in PLANS {
        let samples = samples_path(&directory.join(plan.name));
        let found = if samples.exists() {
            records(&samples)?
        } else {
            Ran::Not(format!("there is no {}", samples.display()))
        };
        ran.insert(plan.name.to_owned(), found);
    }
    if ran.values().all(|ran| matches!(ran, Ran::Not(_))) {
        let message = format!("{}: no samples of any plan are below it", directory.display());
        return Err(Coded { code: Code::BadInput, message }.into());
    }
    Ok(Done { ran, probes: read_probes(&directory.join(PROBES))?, interrupted: false })
}

fn read_probes(path: &Path) -> Result<Probes> {
    if !path.exists() {
        return Ok(Probes::new());
    }
    let name = || path.display().to_string();
    let text = fs::read(path).with_context(name)?;
    serde_json::from_slice(&text).with_context(name)
}

fn records(samples: &Path) -> Result<Ran> {
    let records = sample::read(samples)?;
    let form = match records.first() {
        Some(Record::Provenance(first)) => first.form,
        _ => Form::Full,
    };
    Ok(Ran::Records(form, records))
}
