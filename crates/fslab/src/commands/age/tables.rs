//! Prints and draws the results for aged volumes.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use comfy_table::{CellAlignment, Table, presets};
use fslab_age::score::{Class, Score, Series, Sums, chart_by_size, chart_over_time};
use fslab_age::simulate::{Aged, BySize, FirstSwitch, Variant};
use serde_json::{Value, json};

use crate::units::{bytes, counted, duration};

/// One row of the table.
pub(super) struct Row {
    pub variant: Variant,
    pub aged: Aged,
    /// Bytes by which the volume is larger than in the workload.
    pub enlarged_bytes: u64,
    pub sequential: Option<Sequential>,
    pub took: Duration,
}

/// Modelled results of the sequential benchmark of Smith and Seltzer's slides (1997).
#[derive(serde::Serialize)]
pub(super) struct Sequential {
    pub empty: Vec<BySize>,
    pub aged: Vec<BySize>,
    /// The point at which a growing file leaves its first block group, on the empty volume.
    pub first_switch: FirstSwitch,
}

impl Row {
    /// Returns the row as a series of a chart.
    pub fn series(&self) -> Series {
        let name = self.variant.name();
        let points = self.aged.points.iter();
        let points = points.filter_map(|point| Some((point.day as f64, point.score?)));
        Series { name, points: points.collect() }
    }
}

/// Figures of the paper: the name, and the values for ffs and ffs-noswitch.
const PAPER: &[(&str, &str, &str)] = &[
    ("files", "33,797", "33,797"),
    ("split files", "4,312 (12.8 %)", "9,155 (27.1 %)"),
    ("hot files", "3,207", "3,207"),
    ("hot files: over 12 blocks", "119", "119"),
    ("hot files: layout score", "0.928", "0.931"),
    ("hot files: split", "327", "594"),
    ("hot files: read, MB/s", "0.81", "0.84"),
    ("hot files: overwrite, MB/s", "0.49", "0.50"),
];

/// Returns a table with this header. All columns but the first are right-aligned.
pub(super) fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(head.to_vec());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

pub(super) fn score(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |score| format!("{score:.4}"))
}

fn split(sums: &Sums) -> String {
    let share = sums.split_share().unwrap_or_default();
    format!("{} ({:.1} %)", sums.split, 100.0 * share)
}

pub(super) fn megabytes(bytes_a_second: f64) -> String {
    format!("{:.2}", bytes_a_second / 1e6)
}

/// Prints simulations, one column each.
pub(super) fn print_simulations(rows: &[Row], paper: bool) {
    let names: Vec<_> = rows.iter().map(|row| row.variant.name()).collect();
    print_figures(&names, rows, FIGURES, paper);
    if let Some(row) = rows.first() {
        say!("Rates in MB/s are modelled for the disk {}, not measured.", row.aged.disk);
    }
}

/// A row of a table of results: its name, and the function that formats the value of a result.
pub(super) type Figure<T> = (&'static str, fn(&T) -> String);

/// Prints figures with one column for each result. With `paper`, adds two columns with the figures
/// from the paper.
pub(super) fn print_figures<T>(names: &[String], rows: &[T], figures: &[Figure<T>], paper: bool) {
    let mut head = vec![""];
    head.extend(names.iter().map(String::as_str));
    if paper {
        head.extend(["paper: baseline", "paper: NoSwitch"]);
    }
    let mut table = table(&head);
    for (name, value) in figures {
        let mut cells = vec![(*name).to_owned()];
        cells.extend(rows.iter().map(value));
        if paper {
            let told = PAPER.iter().find(|(figure, ..)| figure == name);
            let told = told.map_or(("", ""), |(_, baseline, noswitch)| (*baseline, *noswitch));
            cells.extend([told.0.to_owned(), told.1.to_owned()]);
        }
        table.add_row(cells);
    }
    say!("{table}");
}

const FIGURES: &[Figure<Row>] = &[
    ("volume", |row| bytes(row.aged.volume_bytes)),
    ("operations", |row| row.aged.operations.to_string()),
    ("written", |row| bytes(row.aged.written)),
    ("days", |row| format!("{:.0}", row.aged.days)),
    ("refused: no space", |row| row.aged.no_space.to_string()),
    ("in use", |row| format!("{:.1} %", 100.0 * row.aged.used)),
    ("files", |row| row.aged.score.total.files.to_string()),
    ("bytes in files", |row| bytes(row.aged.bytes)),
    ("layout score", |row| score(row.aged.score.total.score())),
    ("split files", |row| split(&row.aged.score.total)),
    ("hot files", |row| row.aged.hot.sums.files.to_string()),
    ("hot files: bytes", |row| bytes(row.aged.hot.bytes)),
    ("hot files: over 12 blocks", |row| row.aged.hot.large.to_string()),
    ("hot files: layout score", |row| score(row.aged.hot.score)),
    ("hot files: split", |row| row.aged.hot.sums.split.to_string()),
    ("hot files: read, MB/s", |row| megabytes(row.aged.hot.modelled_read)),
    ("hot files: overwrite, MB/s", |row| megabytes(row.aged.hot.modelled_write)),
    ("all files: read, MB/s", |row| megabytes(row.aged.modelled_read)),
    ("free extents", |row| row.aged.free.pieces.to_string()),
    ("largest free extent", |row| bytes(row.aged.free.largest)),
    ("free space in extents < 1 MiB", |row| {
        format!("{:.1} %", 100.0 * row.aged.free.share_below(1 << 20))
    }),
    ("distance to next file, median", |row| {
        let distance = row.aged.score.distances.figures();
        distance.map_or_else(|| "-".to_owned(), |distance| bytes(distance.median))
    }),
    ("took", |row| duration(row.took.as_nanos() as u64)),
];

/// Prints the sequential benchmark if it was modelled, one line for each size.
pub(super) fn print_sequential(rows: &[Row]) {
    let rates = |sizes: &[BySize]| -> Rates {
        sizes.iter().map(|one| (one.size_bytes, one.modelled_read)).collect()
    };
    let mut columns = Vec::new();
    for row in rows {
        if let Some(Sequential { empty, aged, .. }) = &row.sequential {
            let name = row.variant.name();
            columns.push((format!("{name}, empty"), rates(empty)));
            columns.push((format!("{name}, aged"), rates(aged)));
        }
    }
    print_rates("read, MB/s, modelled", &columns);
}

/// File sizes, and read rates in bytes per second.
pub(super) type Rates = Vec<(u64, f64)>;

/// Prints rates by size, if there are any, with one column for each result.
pub(super) fn print_rates(what: &str, columns: &[(String, Rates)]) {
    let Some((_, first)) = columns.first().filter(|(_, rates)| !rates.is_empty()) else { return };
    let names = columns.iter().map(|(name, _)| name.as_str());
    let mut table = table(&std::iter::once(what).chain(names).collect::<Vec<_>>());
    for (index, (size, _)) in first.iter().enumerate() {
        let rate = |(_, rates): &(String, Rates)| rates.get(index).map(|one| megabytes(one.1));
        let rates = columns.iter().map(|column| rate(column).unwrap_or_default());
        table.add_row(std::iter::once(bytes(*size)).chain(rates).collect::<Vec<_>>());
    }
    say!("\n{table}");
}

/// Prints simulations as JSON.
pub(super) fn print_json(rows: &[Row]) -> Result<()> {
    let row = |row: &Row| {
        json!({
            "policy": row.variant.policy,
            "clustering": row.variant.clustering.name(),
            "volume_bytes": row.aged.volume_bytes,
            "operations": row.aged.operations,
            "bytes_written": row.aged.written,
            "days": row.aged.days,
            "no_space": row.aged.no_space,
            "used": row.aged.used,
            "bytes": row.aged.bytes,
            "score": score_json(&row.aged.score),
            "free": row.aged.free,
            "hot": row.aged.hot,
            "modelled_disk": row.aged.disk,
            "modelled_read": row.aged.modelled_read,
            "over_time": row.aged.points,
            "split_by_distance": row.aged.distant,
            "sequential": row.sequential,
            "block_bytes": row.aged.score.block_bytes,
            "enlarged_bytes": row.enlarged_bytes,
            "took_ns": row.took.as_nanos() as u64,
        })
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    say!("{}", serde_json::to_string_pretty(&rows)?);
    Ok(())
}

/// Converts a score to JSON.
pub(super) fn score_json(value: &Score) -> Value {
    let class = |class: &Class| {
        let mut one = json!(class);
        one["from_bytes"] = json!(class.from_blocks * value.block_bytes);
        one
    };
    let classes: Vec<Value> = value.classes().iter().map(class).collect();
    json!({
        "block_bytes": value.block_bytes,
        "total": value.total,
        "score": value.total.score(),
        "split_share": value.total.split_share(),
        "by_size": classes,
        "pieces_by_log2_blocks": value.piece_sizes,
        "distance": value.distances.figures(),
        "free": value.free,
        "left_out": value.untold,
        "shared_bytes": value.shared_bytes,
    })
}

/// Prints a score by size, followed by the other figures.
pub(super) fn print_score(value: &Score) {
    let head = ["from blocks", "files", "blocks", "breaks", "split", "score", "extents this large"];
    let mut table = table(&head);
    let row = |name: String, sums: &Sums, pieces: u64| {
        let counts = [sums.files, sums.blocks, sums.breaks, sums.split];
        let [files, blocks, breaks, split] = counts.map(|count| count.to_string());
        [name, files, blocks, breaks, split, score(sums.score()), pieces.to_string()]
    };
    let classes = value.classes();
    let logs: BTreeSet<u32> = classes.iter().map(|class| class.from_blocks.ilog2()).collect();
    for log in logs.into_iter().chain(value.piece_sizes.keys().copied()).collect::<BTreeSet<_>>() {
        let sums = classes.iter().find(|class| class.from_blocks.ilog2() == log);
        let sums = sums.map_or_else(Sums::default, |class| class.sums);
        let pieces = value.piece_sizes.get(&log).copied().unwrap_or_default();
        table.add_row(row((1_u64 << log).to_string(), &sums, pieces));
    }
    table.add_row(row("all".to_owned(), &value.total, value.piece_sizes.values().sum()));
    if value.total.files == 0 {
        say!("no file has blocks, so there is no score");
    } else {
        say!("{table}");
        say!("blocks of {} bytes", value.block_bytes);
    }
    for (reason, count) in &value.untold {
        say!("left out: {}, {reason}", counted(*count, "file"));
    }
    if value.shared_bytes > 0 {
        say!("shared: {}, counted for every file that shares them", bytes(value.shared_bytes));
    }
    if let Some(distance) = value.distances.figures() {
        say!(
            "distance from a file to the next one of its directory: median {}, 90 % below {}, mean \
             {}, {:.1} % adjacent",
            bytes(distance.median),
            bytes(distance.p90),
            bytes(distance.mean as u64),
            100.0 * distance.adjacent,
        );
    }
    match &value.free {
        Some(free) => say!(
            "free: {} in {} extents, the largest {}, {:.1} % of it in extents below 1 MiB",
            bytes(free.bytes),
            free.pieces,
            bytes(free.largest),
            100.0 * free.share_below(1 << 20),
        ),
        None => say!("free: this file system does not report its free extents"),
    }
}

/// Writes scores over days as an SVG.
pub(super) fn write_chart(path: &Path, series: &[Series]) -> Result<()> {
    std::fs::write(path, chart_over_time(series)).with_context(|| path.display().to_string())
}

/// Writes the scores of files by size as an SVG.
pub(super) fn write_by_size(path: &Path, name: &str, value: &Score) -> Result<()> {
    let drawn = chart_by_size(name, value, &bytes);
    std::fs::write(path, drawn).with_context(|| path.display().to_string())
}
