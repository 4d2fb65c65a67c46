//! `fslab worker`: performs a part of a workload. `fslab compare` starts several of these processes
//! if the parts run at the same time.

use anyhow::Result;

/// Arguments of `fslab worker`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The task, as JSON
    task: String,
}

impl Args {
    /// Waits for the start signal on standard input, performs the task, and prints the
    /// measurements.
    pub fn run(self) -> Result<()> {
        let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
        Ok(fslab_compare::worker::run(&self.task, &mut input, &mut output)?)
    }
}
