//! `fslab age simulate --engine`: simulates ageing with the ext2 engine on a modelled disk.

use std::time::{Duration, Instant};

use anyhow::Result;
use fslab_age::in_process::{EngineVolume, HotFiles, OfSize};
use fslab_age::score::Score;
use fslab_age::simulate::{Disk, Settings, Variant};
use fslab_age::workload::Population;
use serde_json::{Value, json};

use super::operations::Source;
use super::tables::{Figure, Rates, megabytes, print_figures, print_rates, score, score_json};
use crate::units::{bytes, duration};

/// The parameters that all policies share.
pub(super) struct Task<'a> {
    pub source: &'a Source,
    pub settings: Settings,
    /// Bytes by which the volume is larger than in the workload.
    pub enlarged_bytes: u64,
    pub disk: &'static Disk,
    /// Whether to run the sequential benchmark of Smith and Seltzer's slides (1997) too.
    pub sequential: bool,
}

/// The results for one policy.
pub(super) struct Row {
    variant: Variant,
    volume_bytes: u64,
    enlarged_bytes: u64,
    block_bytes: u32,
    disk: &'static str,
    operations: u64,
    bytes_written: u64,
    no_space: u64,
    score: Score,
    hot: HotFiles,
    empty: Vec<OfSize>,
    aged: Vec<OfSize>,
    took: Duration,
}

impl Task<'_> {
    /// Ages a volume under a policy and measures it.
    pub fn measure(&self, variant: Variant) -> Result<Row> {
        let start = Instant::now();
        let (empty, mut aged) = (self.volume(variant)?, self.volume(variant)?);
        let empty = self.sequential.then(|| empty.sequential()).transpose()?;
        let mut population = Population::default();
        aged.age(self.source.operations()?.inspect(|operation| {
            // If the workload is inconsistent, `age` itself fails with the same error.
            if let Ok(operation) = operation {
                let _same_error = population.apply(operation);
            }
        }))?;
        let replayed = *aged.replayed();
        Ok(Row {
            variant,
            volume_bytes: self.settings.volume_bytes,
            enlarged_bytes: self.enlarged_bytes,
            block_bytes: self.settings.block_bytes,
            disk: self.disk.name,
            operations: replayed.operations,
            bytes_written: replayed.bytes_written,
            no_space: replayed.no_space + replayed.left_out,
            score: aged.score()?,
            // The sequential benchmark must run first, because measuring the hot files overwrites
            // them. The benchmark removes its own files.
            aged: self.sequential.then(|| aged.sequential()).transpose()?.unwrap_or_default(),
            hot: aged.hot_files(&population)?,
            empty: empty.unwrap_or_default(),
            took: start.elapsed(),
        })
    }

    fn volume(&self, variant: Variant) -> Result<EngineVolume> {
        Ok(EngineVolume::new(&self.settings, variant, self.disk)?)
    }
}

/// Prints the rows as JSON, with the same keys as a simulation without the engine.
pub(super) fn print_json(rows: &[Row]) -> Result<()> {
    let row = |row: &Row| -> Value {
        json!({
            "policy": row.variant.policy,
            "clustering": row.variant.clustering.name(),
            "volume_bytes": row.volume_bytes,
            "enlarged_bytes": row.enlarged_bytes,
            "block_bytes": row.block_bytes,
            "operations": row.operations,
            "bytes_written": row.bytes_written,
            "no_space": row.no_space,
            "score": score_json(&row.score),
            "hot": row.hot,
            "sequential": { "empty": row.empty, "aged": row.aged },
            "modelled_disk": row.disk,
            "took_ns": row.took.as_nanos() as u64,
        })
    };
    let rows: Vec<Value> = rows.iter().map(row).collect();
    say!("{}", serde_json::to_string_pretty(&rows)?);
    Ok(())
}

const FIGURES: &[Figure<Row>] = &[
    ("volume", |row| bytes(row.volume_bytes)),
    ("operations", |row| row.operations.to_string()),
    ("did not fit", |row| row.no_space.to_string()),
    ("files", |row| row.score.total.files.to_string()),
    ("split files", |row| row.score.total.split.to_string()),
    ("layout score", |row| score(row.score.total.score())),
    ("hot files", |row| row.hot.files.to_string()),
    ("hot files: read, MB/s", |row| megabytes(row.hot.modelled_read)),
    ("hot files: overwrite, MB/s", |row| megabytes(row.hot.modelled_write)),
    ("took", |row| duration(row.took.as_nanos() as u64)),
];

/// Prints the rows, one column each.
pub(super) fn print(rows: &[Row]) {
    let names: Vec<_> = rows.iter().map(|row| row.variant.name()).collect();
    print_figures(&names, rows, FIGURES, false);
    if let Some(first) = rows.first() {
        say!(
            "Rates in MB/s are modelled for the disk {}, from the requests that the engine \
             made.",
            first.disk
        );
    }
    let rates = |row: &Row| -> Rates {
        row.aged.iter().map(|one| (one.size_bytes, one.modelled_read)).collect()
    };
    let columns: Vec<_> = names.into_iter().zip(rows.iter().map(rates)).collect();
    print_rates("read, MB/s, aged, modelled", &columns);
}
