//! `fslab worker`: what `fslab compare` starts for the parts of workloads that are done by several
//! processes at a time.

use anyhow::Result;

/// Arguments of `fslab worker`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to do, as JSON
    task: String,
}

impl Args {
    /// Does it, told when to begin on standard input, and says what was measured.
    pub fn run(self) -> Result<()> {
        let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
        Ok(fslab_compare::worker::run(&self.task, &mut input, &mut output)?)
    }
}
