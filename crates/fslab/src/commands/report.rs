//! `fslab report`: renders a report again from its samples alone.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fslab_report::{History, Report, sample};
use fslab_stats::Margin;

/// Arguments of `fslab report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The samples of a comparison, or of several that are read together
    #[arg(required = true)]
    samples: Vec<PathBuf>,
    /// Instead of one report, tell what changed from run to run: each row's ratio to the baseline,
    /// and where its level changes
    #[arg(long, conflicts_with_all = ["margin", "html", "markdown", "csv", "parquet"])]
    history: bool,
    #[command(flatten)]
    shown: Shown,
}

/// What is made of samples, and where it goes.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Shown {
    /// Compare with this target, instead of the plan's baseline (may be given several times)
    #[arg(long, value_name = "NAME")]
    baseline: Vec<String>,
    /// Judge every row by this margin instead of the plan's: "2 %" (equal within it), or
    /// "at most 10 % slower"
    #[arg(long, value_name = "MARGIN")]
    margin: Option<Margin>,
    /// Print the computed figures as JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// Write the page here
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write tables in Markdown here
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the samples here as CSV, a line each
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the samples here as Parquet
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,
}

impl Args {
    /// Renders.
    pub fn run(self) -> Result<()> {
        if self.history {
            return self.shown.history(&self.samples);
        }
        self.shown.show(&self.samples, None)
    }
}

impl Shown {
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

    /// Computes the report of samples files, prints it and writes what was asked for; `page` is
    /// where the page goes unless another place was named.
    pub(super) fn show(&self, samples: &[PathBuf], page: Option<&Path>) -> Result<()> {
        let records = sample::read_all(samples)?;
        let mut report = Report::against(&records, &self.baseline, self.margin)?;
        report.workload_help = workload_help;
        let page = self.html.as_deref().or(page);
        let files = [
            ("html", page),
            ("markdown", self.markdown.as_deref()),
            ("csv", self.csv.as_deref()),
            ("parquet", self.parquet.as_deref()),
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
        Ok(())
    }
}

/// What the page says of a workload.
pub(super) fn workload_help(name: &str) -> &'static str {
    fslab_compare::workload::find(name).map_or("", |spec| spec.help)
}

/// Seed of the orders drawn to judge changes: the same files say the same.
const HISTORY_SEED: u64 = 1;

/// Writes a report by a renderer.
pub(super) fn write(name: &str, path: &Path, report: &Report) -> Result<()> {
    let Some(renderer) = fslab_report::find(name) else {
        bail_as!(Missing, "this fslab was built without {name}");
    };
    let bytes = (renderer.render)(report)?;
    fs::write(path, bytes).with_context(|| path.display().to_string())
}
