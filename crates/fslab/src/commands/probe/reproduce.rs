//! `fslab probe --reproduce`: the original's results beside today's.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use fslab_measure::probe::original::{CACHE, FOUND, PREFETCH, TWELVE, reproduce};
use fslab_measure::probe::timing::Timing;
use fslab_measure::probe::timing::validation::Extent;
use fslab_sys::signals::Interrupt;

use super::{Places, show};
use crate::commands::compare::host::Binary;

/// The original slept up to ten seconds; this many sleeps of up to two say more.
pub(super) const EXTENT: Extent = Extent { longest_sleep: Duration::from_millis(2048), repeats: 3 };

/// Reproduces, and prints the paper's values, the counted and the timed side by side.
pub(super) fn run(
    places: &Places,
    host: &Binary,
    timing: &Timing<'_>,
    interrupt: &Interrupt,
) -> Result<()> {
    let all = reproduce(&places.work, &places.fast, host, timing, interrupt)?;
    let mut table = show::plain(&["", "attribute", "original (ext4)", "counted", "timed"]);
    for (index, (attribute, original)) in FOUND.iter().enumerate() {
        for (kind, answers) in &all {
            let Some(answer) = answers.get(index) else { continue };
            let counted = match &answer.finding.answer {
                Ok((value, _)) => value.to_string(),
                Err(reason) => format!("not applicable: {reason}"),
            };
            let timed = show::by_timing(answer);
            table.add_row([kind.name(), attribute, original, &counted, &timed]);
        }
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "{table}\n")?;
    let validation = timing.clock.validation();
    writeln!(out, "original: ticks = 3E+09 x seconds - 5E+06, R^2 = 0.99999")?;
    writeln!(out, "{}\n", show::clock(validation))?;
    for point in &validation.regression.points {
        let (seconds, residual) = (point.seconds, point.residual_ns);
        writeln!(out, "{seconds:12.6} s {:15} ticks  residual {residual:8.0} ns", point.ticks)?;
    }
    if places.fast == places.work {
        writeln!(out, "\nImages were in {}; in memory timing is surer", places.work.display())?;
    }
    for explanation in [PREFETCH, CACHE, TWELVE] {
        writeln!(out, "\n{explanation}")?;
    }
    Ok(())
}
