//! `cargo xtask suite`: runs one external suite over chosen targets, with a chosen length.

use std::time::Instant;

use anyhow::Result;

use crate::stage::Target;
use crate::steps::{Context, build, named};
use crate::suites::{self, Options, SUITES};
use crate::summary;

/// The suite, its targets and its length.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// pjdfstest, fsx, cargo-build or sca-life
    suite: String,
    /// Target of the suite; may be repeated: ext4, bindfs, fslab:LAYER[+LAYER]..., layers over XFS
    /// or Btrfs (fslab@xfs:LAYER..., fslab@btrfs:LAYER...), or the ext2 engine, optionally with
    /// layers (fslab-ext2[:LAYER[+LAYER]...]) [default: every layer, and the ext2 engine]
    #[arg(long = "target")]
    targets: Vec<Target>,
    /// fsx: operations per seed
    #[arg(long, default_value_t = Options::default().operations)]
    operations: u32,
    /// fsx: number of seeds
    #[arg(long, default_value_t = Options::default().seeds)]
    seeds: u32,
    /// fsx: the first seed; the others follow it
    #[arg(long, env = "FSLAB_SEED", default_value_t = Options::default().first_seed)]
    seed: u32,
}

impl Args {
    /// Runs the suite and prints the summary; succeeds if nothing failed.
    pub fn run(&self) -> Result<bool> {
        let suite = *named("suite", &self.suite, SUITES.iter().map(|suite| (suite.name, suite)))?;
        let options =
            Options { operations: self.operations, seeds: self.seeds, first_seed: self.seed };
        let start = Instant::now();
        let context = Context::new()?;
        let fslab = build::program(&context)?;
        let tally = match self.targets.as_slice() {
            [] => suites::run(suite, &fslab, &suites::targets(suite, &context, false)?, &options)?,
            targets => suites::run(suite, &fslab, targets, &options)?,
        };
        println!("{} took {:.1} s", suite.name, start.elapsed().as_secs_f64());
        Ok(summary::close(&tally))
    }
}
