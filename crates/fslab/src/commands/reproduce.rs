//! `fslab reproduce`: repeats the measurements of papers, and compares the results with the papers'
//! claims.

mod asking;
mod library;
mod preparing;
mod running;
mod telling;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fslab_compare::plan::Form;
use fslab_reproduce::{Answers, Basis, Findings, Paper, Planned, Ran, Runs};
use serde_json::Value;

use self::library::Library;
use super::built_in;
use super::places;

/// The index page. It links to the pages of the papers.
const INDEX: &str = "index.html";

const FIGURES: &str = "figures";

/// The suffixes of a paper's pages.
const PAGE_FORMS: [&str; 3] = ["html", "md", "json"];

/// Arguments of `fslab reproduce`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The paper
    #[arg(default_value = library::ALL, value_parser = library::names())]
    paper: String,
    /// Use the quick forms of the plans. Each plan gets a share of the time limit, after which no
    /// new round of this plan begins. The remaining time goes to the plans with the fewest rounds.
    /// Rounds that other programs disturbed are marked, not repeated
    #[arg(long)]
    quick: bool,
    /// Time limit of a quick run, in minutes; each plan finishes its first round even after this
    /// limit
    #[arg(long, value_name = "N", default_value_t = running::QUICK_MINUTES, requires = "quick",
          value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: u64,
    /// Use the sizes of the papers, which takes many hours (the default)
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// A new or empty directory for pages and samples; with --samples, the directory of an earlier
    /// run is possible too [default: fslab-reproduce-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// List the plans, the claims and the estimated time, without running anything
    #[arg(short = 'n', long, conflicts_with_all = ["out", "samples"])]
    dry_run: bool,
    /// With --dry-run: list every claim and the source of its figure
    #[arg(short, long, requires = "dry_run")]
    verbose: bool,
    /// Show the results of an earlier run in DIR, without running anything
    #[arg(long, value_name = "DIR", conflicts_with_all = ["quick", "full", "seed", "work_dir"])]
    samples: Option<PathBuf>,
    /// Seed for all random choices [default: drawn from the clock]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// An existing directory for images and mount points [default: the output directory]
    #[arg(long, value_name = "DIR")]
    work_dir: Option<PathBuf>,
}

impl Args {
    /// Runs the plans and commands that the claims need, and writes the pages.
    pub fn run(self) -> Result<()> {
        let form = if self.quick { Form::Quick } else { Form::Full };
        let library = Library::open(&self.paper, form)?;
        if self.dry_run {
            return telling::describe(&library, self.minutes, self.verbose);
        }
        if let Some(samples) = &self.samples {
            let done = running::read_again(samples)?;
            let samples =
                fs::canonicalize(samples).with_context(|| samples.display().to_string())?;
            if let Some(out) = &self.out {
                places::make_out(out, is_own)?;
            }
            write(library, &done, self.out.as_deref().unwrap_or(&samples), &samples)?;
            return ended(&done);
        }
        let out = self.out.clone().unwrap_or_else(|| places::dated("fslab-reproduce"));
        let work_dir = self.work_dir.as_deref();
        if let Some(path) = work_dir.filter(|path| *path != out) {
            places::check_work_dir(path)?;
        }
        let seed = self.seed.unwrap_or_else(super::compare::seed_from_clock);
        let campaign = running::Campaign { out: &out, work_dir, seed, minutes: self.minutes };
        let done = campaign.run(&library)?;
        write(library, &done, &out, &out)?;
        ended(&done)
    }
}

/// Returns whether `fslab reproduce` writes a file or directory of this name into its output
/// directory.
fn is_own(name: &str) -> bool {
    let is_page = |name: &str| {
        let parts = name.rsplit_once('.').filter(|(_, form)| PAGE_FORMS.contains(form));
        parts.is_some_and(|(name, _)| built_in::PAPERS.iter().any(|paper| paper.name == name))
    };
    is_page(name)
        || [INDEX, FIGURES].contains(&name)
        || running::is_own(name)
        || library::plans().any(|plan| plan.name == name)
}

/// Fails if a plan or a command failed. Called after the pages are written.
fn ended(done: &running::Done) -> Result<()> {
    match done.failed.as_slice() {
        _ if done.interrupted => {
            bail!("interrupted; the pages contain the measurements so far")
        }
        [] => Ok(()),
        failed => {
            bail!("failed: {}; the pages contain the other measurements", failed.join(", "))
        }
    }
}

/// Writes a page for each paper, and a page that links to them.
fn write(library: Library, done: &running::Done, out: &Path, samples: &Path) -> Result<()> {
    fs::create_dir_all(out.join(FIGURES)).with_context(|| out.display().to_string())?;
    let runs = Runs::new(&library.papers, done.ran.clone(), done.answers.clone());
    let findings = library.papers.into_iter().map(|paper| {
        let plans = planned(&paper, &done.ran, samples, out);
        Findings::new(paper, &runs, telling::form(done), plans)
    });
    let findings: Vec<Findings> = findings.collect();
    let save = |name: String, text: String| {
        let path = out.join(name);
        fs::write(&path, text).with_context(|| path.display().to_string())
    };
    for found in &findings {
        let name = &found.paper.name;
        let [html, markdown, json] = PAGE_FORMS.map(|form| format!("{name}.{form}"));
        save(html, found.html()?)?;
        save(markdown, found.markdown())?;
        save(json, found.json()?)?;
        for drawn in found.charts.iter().filter(|drawn| !drawn.is_empty()) {
            save(format!("{FIGURES}/{name}-{}.svg", drawn.chart.id), drawn.svg())?;
        }
        say!("{name}: {}", found.summary());
    }
    save(INDEX.to_owned(), Findings::index(&findings)?)?;
    eprintln!("pages: {}", out.join(INDEX).display());
    Ok(())
}

/// Returns the plans that a paper's claims use, and the paths of their reports.
fn planned(paper: &Paper, ran: &BTreeMap<String, Ran>, samples: &Path, out: &Path) -> Vec<Planned> {
    let folder = if samples == out { PathBuf::new() } else { samples.to_owned() };
    let plan = |name: String| {
        let page = samples.join(&name).join("report.html");
        let page = page.exists().then(|| folder.join(&name).join("report.html"));
        let page = page.map(|page| page.display().to_string());
        let (page, reason, ran) = match ran.get(&name) {
            Some(Ran::Records(..)) => (page, None, true),
            Some(Ran::Broken(.., reason)) => (page, Some(reason.clone()), true),
            Some(Ran::Not(reason)) => (None, Some(reason.clone()), false),
            None => (None, Some("not requested".to_owned()), false),
        };
        Planned { name, page, reason, ran }
    };
    library::plans_of(std::slice::from_ref(paper)).into_iter().map(plan).collect()
}

/// Returns a text that compares a command's output with a paper's claims about this output, in the
/// form of the paper's page. The command itself prints this text.
pub(super) fn beside(paper: &str, command: &str, answer: Value) -> Result<String> {
    let library = Library::open(paper, Form::Full)?;
    let mut paper = library.papers.into_iter().next().context("there is no such paper")?;
    paper.claims.retain(|claim| matches!(claim.basis, Basis::Command(_)));
    paper.charts.clear();
    let runs = Runs::new(&[], BTreeMap::new(), Answers::from([(command.to_owned(), Ok(answer))]));
    Ok(Findings::new(paper, &runs, "No plan was run.", Vec::new()).markdown())
}
