//! `fslab report`: renders a report. It needs only the samples files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fslab_compare::plan::Plan;
use fslab_report::sample::Record;
use fslab_report::{Gate, History, Judgement, Outcome, Pooling, Report, nearest, sample};
use fslab_stats::Margin;

/// Arguments of `fslab report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The samples file of a comparison, or its directory; several files are combined into one
    /// report
    #[arg(required = true)]
    samples: Vec<PathBuf>,
    /// Show how each row changed from run to run, instead of one report
    #[arg(long, conflicts_with_all = ["margin", "html", "markdown", "csv", "parquet",
          "metric", "fail_if", "smaller_is_better", "bigger_is_better"])]
    history: bool,
    #[command(flatten)]
    shown: Shown,
}

/// The outputs of a report, and their files.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Shown {
    /// Compare with this target, instead of the plan's baseline (may be given several times)
    #[arg(long, value_name = "NAME")]
    baseline: Vec<String>,
    /// Judge every row by this margin instead of the plan's, such as "2 %" (smaller differences
    /// count as equal) or "at most 10 % slower"
    #[arg(long, value_name = "MARGIN")]
    margin: Option<Margin>,
    /// Print a table of this metric too, such as processor-each or device-written-bytes (may be
    /// given several times); the page and --json have all metrics
    #[arg(long, value_name = "NAME")]
    metric: Vec<String>,
    /// Fail with exit code 5 if the measurements show that a row is beyond this limit (a gate). An
    /// example is "create.elapsed slower 5%" (may be given several times). A gate is a metric
    /// (`elapsed`, or one of --metric), then slower, faster, more, less or worse, then an amount.
    /// `PHASE.` or `WORKLOAD.PHASE.` may precede the metric, and `on TARGET` may follow it
    #[arg(long, value_name = "GATE")]
    fail_if: Vec<Gate>,
    /// Also fail if a gate is not decided, for example because the interval contains the limit
    #[arg(long, requires = "fail_if")]
    fail_undecided: bool,
    /// Write the results of the gates (--fail-if) to this file, as JUnit XML
    #[arg(long, value_name = "FILE", requires = "fail_if")]
    junit: Option<PathBuf>,
    /// Print the computed figures as JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// Write the page to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write tables in Markdown to this file
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the samples to this file as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the samples to this file as Parquet
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,
    /// Write the figures for which smaller is better to this file, as JSON for a benchmark
    /// dashboard (github-action-benchmark, tool customSmallerIsBetter)
    #[arg(long, value_name = "FILE")]
    smaller_is_better: Option<PathBuf>,
    /// Write the figures for which bigger is better to this file (tool customBiggerIsBetter)
    #[arg(long, value_name = "FILE")]
    bigger_is_better: Option<PathBuf>,
}

impl Args {
    /// Renders the report.
    pub fn run(self) -> Result<()> {
        let file_of = |path: &PathBuf| {
            if path.is_dir() { fslab_compare::samples_path(path) } else { path.clone() }
        };
        let samples: Vec<PathBuf> = self.samples.iter().map(file_of).collect();
        if self.history {
            return self.shown.history(&samples);
        }
        self.shown.show(&samples, None)?.refuse()
    }
}

impl Shown {
    /// Refuses gates that can't match any row in a report of this plan.
    pub(super) fn check_gates(&self, plan: &Plan) -> Result<()> {
        let owned: Vec<(&str, Vec<String>)> =
            plan.workloads.iter().map(|one| (one.label.as_str(), one.phases())).collect();
        let phases: Vec<(&str, &str)> = owned
            .iter()
            .flat_map(|(label, phases)| phases.iter().map(move |phase| (*label, phase.as_str())))
            .collect();
        let targets: Vec<&str> = plan.targets.iter().map(|target| target.name.as_str()).collect();
        self.fail_if.iter().try_for_each(|gate| Ok(gate.check(&phases, &targets)?))
    }

    fn history(&self, samples: &[PathBuf]) -> Result<()> {
        let records = sample::read_all(samples)?;
        let history = History::of(&records, &self.baseline, HISTORY_SEED)?;
        if self.json {
            say!("{}", serde_json::to_string_pretty(&history)?);
        } else {
            crate::output::print(fslab_report::history_text(&history));
        }
        Ok(())
    }

    /// Computes the report of samples files, prints it, and writes the requested files. `page` is
    /// the default path of the HTML page. Returns the judgements of the gates.
    pub(super) fn show(&self, samples: &[PathBuf], page: Option<&Path>) -> Result<Gates> {
        self.show_records(&sample::read_all(samples)?, page, Pooling::Strata)
    }

    /// Like [`Self::show`], but for records. `pooling` is the way to pool the ratios of several
    /// machines.
    pub(super) fn show_records(
        &self,
        records: &[Record],
        page: Option<&Path>,
        pooling: Pooling,
    ) -> Result<Gates> {
        let mut report = Report::pooled(records, &self.baseline, self.margin, pooling)?;
        report.workload_help = workload_help;
        report.shown_metrics = self.known_metrics(&report)?;
        let judgements = report.judge(&self.fail_if)?;
        let page = self.html.as_deref().or(page);
        let files = [
            ("html", page),
            ("markdown", self.markdown.as_deref()),
            ("csv", self.csv.as_deref()),
            ("parquet", self.parquet.as_deref()),
            ("smaller-is-better", self.smaller_is_better.as_deref()),
            ("bigger-is-better", self.bigger_is_better.as_deref()),
        ];
        for (name, path) in files {
            if let Some(path) = path {
                write(name, path, &report)?;
            }
        }
        if self.json {
            say!("{}", fslab_report::json(&report)?);
        } else {
            crate::output::print(fslab_report::terminal(&report));
        }
        if let Some(page) = page {
            eprintln!("report: {}", page.display());
        }
        if let Some(path) = &self.junit {
            let text = fslab_report::junit(&report.provenance.plan_name, &judgements);
            fs::write(path, text).with_context(|| path.display().to_string())?;
        }
        Ok(Gates { judgements, undecided_fails: self.fail_undecided })
    }

    /// Returns the requested metrics. Fails if the report lacks one of them.
    fn known_metrics(&self, report: &Report) -> Result<Vec<String>> {
        let rows = report.phases().flat_map(|group| &group.rows);
        let known: BTreeSet<&str> =
            rows.flat_map(|row| &row.metrics).map(|metric| metric.metric.as_str()).collect();
        if let Some(name) = self.metric.iter().find(|name| !known.contains(name.as_str())) {
            let near = nearest(name, known);
            bail_as!(BadInput, "--metric {name}: the report has no such metric; nearest: {near}");
        }
        Ok(self.metric.clone())
    }
}

/// The judgements of the gates on a report.
#[must_use]
pub(super) struct Gates {
    judgements: Vec<Judgement>,
    undecided_fails: bool,
}

impl Gates {
    /// Prints the judgements; fails if a gate fails.
    pub(super) fn refuse(&self) -> Result<()> {
        for one in &self.judgements {
            let outcome = match one.outcome {
                Outcome::Passed => "passed",
                Outcome::Failed => "FAILED",
                Outcome::NotDecided => "not decided",
                Outcome::NotMeasured => "not measured",
            };
            eprintln!("gate {outcome}: {}", one.text());
        }
        let count = |outcome| self.judgements.iter().filter(|one| one.outcome == outcome).count();
        let all = self.judgements.len();
        let undecided = count(Outcome::NotDecided) + count(Outcome::NotMeasured);
        match count(Outcome::Failed) {
            0 if undecided > 0 && self.undecided_fails => {
                bail_as!(Regression, "gates: {undecided} of {all} rows are not decided")
            }
            0 => Ok(()),
            failed => bail_as!(Regression, "gates: {failed} of {all} rows failed"),
        }
    }
}

/// Returns the description of a workload for the HTML page.
pub(super) fn workload_help(name: &str) -> &'static str {
    fslab_compare::workload::find(name).map_or("", |spec| spec.help)
}

/// Seed of the random permutations that judge changes in `--history`. It is fixed, so that equal
/// files give equal results.
const HISTORY_SEED: u64 = 1;

/// Writes a report with the renderer of this name.
pub(super) fn write(name: &str, path: &Path, report: &Report) -> Result<()> {
    let Some(renderer) = fslab_report::find(name) else {
        bail_as!(Missing, "this fslab was built without the report format {name}");
    };
    let bytes = (renderer.render)(report)?;
    fs::write(path, bytes).with_context(|| path.display().to_string())
}
