//! Step `setup`: what the other steps need is there.

use anyhow::Result;

use super::{Context, Step};
use crate::setup::{self, Purpose};
use crate::tally::Tally;

/// The step.
pub const STEP: Step =
    Step { name: "setup", help: "packages, suites and toolchain are there", run };

fn run(_context: &Context) -> Result<Tally> {
    let missing = setup::install(Purpose::Test)?;
    let mut tally = if missing.is_empty() { Tally::pass() } else { Tally::default() };
    for thing in missing {
        tally += Tally::skip(format!("setup: {}", thing.what), thing.remedy);
    }
    Ok(tally)
}
