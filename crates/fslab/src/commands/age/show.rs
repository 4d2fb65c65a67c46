//! `fslab age show`: shows the content of a workload.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use fslab_age::DAY_NS;
use fslab_age::workload::{
    Operation, OperationKind, Population, WorkloadReader, brief_source, identity_of_file,
};
use serde_json::{Value, json};

use crate::output::output;
use crate::units::bytes;

/// Arguments of `fslab age show`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print this many operations too
    #[arg(long, short_alias = 'o', value_name = "COUNT", default_value_t = 0)]
    operations: usize,
    /// Print JSON
    #[arg(long, conflicts_with_all = ["operations", "hot_days"])]
    json: bool,
    /// Print only the paths of files that changed in the last DAYS days, one per line. The workload
    /// `hot-files` of a plan accepts the output as its parameter `list`
    #[arg(long, value_name = "DAYS")]
    hot_days: Option<u32>,
    /// With --hot-days: write the paths to this file
    #[arg(long, value_name = "FILE", requires = "hot_days")]
    output: Option<PathBuf>,
    /// The workload
    workload: PathBuf,
}

impl Args {
    /// Prints the workload, or the paths of hot files.
    pub fn run(self) -> Result<()> {
        if let Some(days) = self.hot_days {
            return self.list_hot(days);
        }
        let reader = WorkloadReader::open(&self.workload)?;
        let (told, hash) = (reader.provenance().clone(), identity_of_file(&self.workload)?);
        let source = brief_source(&told.source);
        if !self.json {
            say!("source: {source}\nseed: {}\nmade by: {}", told.seed, told.made_by);
            say!("volume: {}\nhash: {hash}", bytes(told.volume_bytes));
        }
        let Summary { population, counts, written } = Summary::of(reader, |index, operation| {
            if index < self.operations {
                say!("{index} {}", line(operation));
            }
        })?;
        let kinds = OperationKind::ALL.iter().map(|kind| kind.name()).zip(counts);
        if self.json {
            let counts: serde_json::Map<String, Value> =
                kinds.map(|(name, count)| (name.to_owned(), count.into())).collect();
            say!(
                "{:#}",
                json!({
                    "source": source.to_string(),
                    "seed": told.seed,
                    "made_by": told.made_by,
                    "volume_bytes": told.volume_bytes,
                    "hash": hash.to_string(),
                    "operations": population.operations(),
                    "counts": counts,
                    "days": population.last_ns() as f64 / DAY_NS as f64,
                    "written_bytes": written,
                    "final_files": population.len(),
                    "final_bytes": final_bytes(&population),
                    "final_tree": population.checksum()?.to_string(),
                })
            );
            return Ok(());
        }
        kinds.for_each(|(name, count)| say!("{name:<9} {count}"));
        say!("{}", totals(&population, written));
        say!("final tree: {}", population.checksum()?);
        Ok(())
    }

    fn list_hot(&self, days: u32) -> Result<()> {
        let mut population = Population::default();
        for operation in WorkloadReader::open(&self.workload)? {
            population.apply(&operation?)?;
        }
        let mut lines = Vec::new();
        for path in population.hot_paths(days) {
            lines.extend(path);
            lines.push(b'\n');
        }
        match &self.output {
            Some(file) => std::fs::write(file, lines).with_context(|| file.display().to_string()),
            None => Ok(output().write_all(&lines)?),
        }
    }
}

struct Summary {
    /// The files and directories that exist at the end of the workload.
    population: Population,
    /// Operations of each kind.
    counts: [u64; OperationKind::ALL.len()],
    /// Bytes written.
    written: u64,
}

impl Summary {
    /// Reads a workload. `look` receives each operation and its index, before it is applied.
    fn of(reader: WorkloadReader, mut look: impl FnMut(usize, &Operation)) -> Result<Self> {
        let mut population = Population::default();
        let (mut counts, mut written) = ([0; OperationKind::ALL.len()], 0);
        for (index, operation) in reader.enumerate() {
            let operation = operation?;
            look(index, &operation);
            population.apply(&operation)?;
            counts[operation.kind as usize - 1] += 1;
            if operation.kind == OperationKind::Write {
                written += operation.length;
            }
        }
        Ok(Self { population, counts, written })
    }
}

/// Returns a line that describes what replaying a workload would do.
///
/// # Errors
/// Fails if the workload is damaged.
pub(super) fn extent(reader: WorkloadReader) -> Result<String> {
    let Summary { population, written, .. } = Summary::of(reader, |_, _| {})?;
    Ok(totals(&population, written))
}

fn totals(population: &Population, written: u64) -> String {
    format!(
        "{} operations in {:.1} days, {} written; at the end {} files and directories, {}",
        population.operations(),
        population.last_ns() as f64 / DAY_NS as f64,
        bytes(written),
        population.len(),
        bytes(final_bytes(population)),
    )
}

fn final_bytes(population: &Population) -> u64 {
    population.members().map(|(_, member)| member.size).sum()
}

/// Formats an operation as readable text: its day, its kind, and its parameters.
fn line(operation: &Operation) -> String {
    let Operation { time_ns, kind, file, directory, offset, length, mode, uid, gid, .. } =
        operation;
    let day = *time_ns as f64 / DAY_NS as f64;
    let made =
        if kind.makes() { format!(" mode={mode:o} owner={uid}:{gid}") } else { String::new() };
    let name = String::from_utf8_lossy(&operation.name_of()).escape_debug().to_string();
    let place = match kind {
        OperationKind::Write | OperationKind::Truncate => {
            format!("offset={offset} length={length}")
        }
        OperationKind::Remove | OperationKind::RemoveDirectory => String::new(),
        _ => format!("directory={directory} name={name} length={length}"),
    };
    format!("day {day:.4} {} file={file} {place}{made}", kind.name()).trim_end().to_owned()
}
