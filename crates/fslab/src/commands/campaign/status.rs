//! `fslab campaign status`: shows the progress of a campaign.

use std::time::Duration;

use anyhow::Result;
use fslab_campaign::{Campaign, Cell, CellState, State, Summary};

use super::Directory;
use crate::output::{plain_table, print_table};
use crate::units;

/// Arguments of `fslab campaign status`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    campaign: Directory,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Prints the status.
    pub fn run(self) -> Result<()> {
        let campaign = Campaign::open(&self.campaign.directory)?;
        let summary = State::of(&campaign)?.summary();
        if self.json {
            say!("{}", serde_json::to_string_pretty(&summary)?);
        } else {
            show(&summary);
        }
        Ok(())
    }
}

fn show(summary: &Summary) {
    let Summary { name, cells, done, disturbed, failed, missing, .. } = summary;
    let state = if summary.is_complete { "complete" } else { "not complete" };
    say!(
        "{name}: {state}, {}: {done} done, {disturbed} disturbed, {failed} failed, {missing} \
         missing",
        units::counted(*cells as u64, "cell")
    );
    if let Some(seconds) = summary.time_left_seconds.filter(|_| *missing > 0) {
        let left = units::rough(Duration::from_secs_f64(seconds.max(0.0)));
        say!("time left: {left} on one host");
    }
    if !summary.hosts.is_empty() {
        say!("");
        let mut table = plain_table(["host", "cells", "attempts", "not ended", "kernel"]);
        for host in &summary.hosts {
            let figures = [host.cells, host.attempts, host.unended].map(|count| count.to_string());
            let [cells, attempts, unended] = figures;
            table.add_row([&host.host, &cells, &attempts, &unended, &host.kernel]);
        }
        print_table(&table);
    }
    if !summary.open.is_empty() {
        say!("");
        let mut table = plain_table(["state", "workload", "round", "target", "host", "why"]);
        for cell in &summary.open {
            table.add_row(row(cell));
        }
        print_table(&table);
    }
}

fn row(cell: &Cell) -> [String; 6] {
    let state = match cell.state {
        CellState::Done => "done",
        CellState::Disturbed => "disturbed",
        CellState::Failed => "failed",
        CellState::Missing => "missing",
    };
    [
        state.to_owned(),
        cell.workload.clone(),
        (cell.round + 1).to_string(),
        cell.target.clone(),
        cell.host.clone().unwrap_or_default(),
        cell.reason.clone().unwrap_or_default(),
    ]
}
