//! `fslab worker`: started by `fslab compare` for parts of workloads that several processes perform
//! at the same time.

use anyhow::Result;

/// Arguments of `fslab worker`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The task, as JSON
    task: String,
}

impl Args {
    /// Performs the task when standard input gives the start signal, and prints the measurements.
    pub fn run(self) -> Result<()> {
        let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
        Ok(fslab_compare::worker::run(&self.task, &mut input, &mut output)?)
    }
}
