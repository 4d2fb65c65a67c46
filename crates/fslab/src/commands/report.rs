//! `fslab report`: renders a report again from its samples alone.

use std::path::PathBuf;

use anyhow::{Context, Result};
use fslab_measure::report::{self, Report};
use fslab_measure::sample;

/// Arguments of `fslab report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The samples of a comparison
    samples: PathBuf,
    /// Write the page here
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the computed report as JSON instead of tables
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Renders.
    pub fn run(self) -> Result<()> {
        let report = Report::new(&sample::read(&self.samples)?);
        if let Some(page) = &self.html {
            std::fs::write(page, report::html(&report)?)
                .with_context(|| page.display().to_string())?;
        }
        if self.json {
            println!("{}", report::json(&report)?);
        } else {
            print!("{}", report::terminal(&report)?);
        }
        Ok(())
    }
}
