//! `fslab age show`: a workload for people.

use std::path::PathBuf;

use anyhow::Result;
use fslab_age::DAY_NS;
use fslab_age::workload::{OperationKind, Population, WorkloadReader, hash_of_file};

use crate::units::bytes;

/// Arguments of `fslab age show`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the first so many operations too
    #[arg(long, short, default_value_t = 0)]
    operations: usize,
    /// The workload
    workload: PathBuf,
}

impl Args {
    /// Prints.
    pub fn run(self) -> Result<()> {
        let reader = WorkloadReader::open(&self.workload)?;
        let told = reader.provenance().clone();
        println!("source: {}\nseed: {}\nmade by: {}", told.source, told.seed, told.made_by);
        println!("volume: {}\nhash: {}", bytes(told.volume_bytes), hash_of_file(&self.workload)?);
        let mut population = Population::default();
        let (mut counts, mut written) = ([0_u64; OperationKind::ALL.len()], 0);
        for (index, operation) in reader.enumerate() {
            let operation = operation?;
            if index < self.operations {
                println!("{index} {operation:?}");
            }
            population.apply(&operation)?;
            counts[operation.kind as usize - 1] += 1;
            if operation.kind == OperationKind::Write {
                written += operation.length;
            }
        }
        for (kind, count) in OperationKind::ALL.iter().zip(counts) {
            println!("{:<9} {count}", kind.name());
        }
        let size: u64 = population.members().map(|(_, member)| member.size).sum();
        println!(
            "{} operations in {:.1} days, {} written; at the end {} files and directories, {}",
            population.operations(),
            population.last_ns() as f64 / DAY_NS as f64,
            bytes(written),
            population.len(),
            bytes(size),
        );
        println!("final tree: {}", population.checksum());
        Ok(())
    }
}
