//! `fslab age chart`: draws the scores over time of several replays and simulations in one chart.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fslab_age::score::Series;
use serde::Deserialize;

use super::tables::write_chart;
use crate::exit::Code;

/// Arguments of `fslab age chart`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The SVG file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Output files of `fslab age replay --json --score-every DAYS` and `fslab age simulate
    /// --json`. NAME=FILE labels a replay with NAME instead of its target
    #[arg(required = true, value_name = "[NAME=]FILE")]
    results: Vec<String>,
}

/// The parts of a JSON result that are drawn.
#[derive(Deserialize)]
#[serde(untagged)]
enum Told {
    Simulations(Vec<Simulation>),
    Replay(Replay),
}

#[derive(Deserialize)]
struct Simulation {
    policy: String,
    clustering: String,
    over_time: Vec<Point>,
}

#[derive(Deserialize)]
struct Replay {
    target: String,
    over_time: Vec<Scored>,
}

#[derive(Deserialize)]
struct Scored {
    day: u64,
    score: Point,
}

#[derive(Deserialize)]
struct Point {
    /// Present only in the output of simulations.
    #[serde(default)]
    day: u64,
    score: Option<f64>,
}

impl Args {
    /// Draws the chart.
    pub fn run(self) -> Result<()> {
        let mut series = Vec::new();
        for named in &self.results {
            let whole = Path::new(named);
            let parts = named.split_once('=').filter(|_| !whole.exists());
            let (name, path) =
                parts.map_or((None, whole), |(name, path)| (Some(name), path.as_ref()));
            series.extend(read(path, name)?);
        }
        if series.iter().all(|line| line.points.is_empty()) {
            bail_as!(
                BadInput,
                "none of the files contains scores over time; replay with --score-every DAYS"
            );
        }
        write_chart(&self.output, &series)?;
        say!("drew {} curves in {}", series.len(), self.output.display());
        Ok(())
    }
}

/// Reads a result and returns its series. `name` replaces the target in the label of a replay.
pub(super) fn read(path: &Path, name: Option<&str>) -> Result<Vec<Series>> {
    let text = std::fs::read(path).with_context(|| path.display().to_string())?;
    let told = serde_json::from_slice(&text).map_err(|error| {
        let shown = path.display();
        Code::BadInput.error(format!("{shown} is not a JSON result of fslab age: {error}"))
    })?;
    Ok(match told {
        Told::Simulations(rows) => rows.into_iter().map(simulated).collect(),
        Told::Replay(replay) => {
            let name = name.map_or(replay.target, str::to_owned);
            let point = |at: Scored| Some((at.day as f64, at.score.score?));
            vec![Series { name, points: replay.over_time.into_iter().filter_map(point).collect() }]
        }
    })
}

fn simulated(row: Simulation) -> Series {
    let point = |at: Point| Some((at.day as f64, at.score?));
    let name = format!("{} {}, simulated", row.policy, row.clustering);
    Series { name, points: row.over_time.into_iter().filter_map(point).collect() }
}
