//! The budget of processor time for each step, so that CI stays fast as tests are added.
//!
//! A step fails above 150 % of its budget, and causes a warning above 80 %. Too much elapsed time
//! only causes a warning, because it includes the machine's other work. On a machine slower than
//! the reference machine, the budget is larger in proportion.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::summary::Done;
use crate::tally::Tally;
use crate::{environment, steps};

const FILE: &str = "xtask/budget.toml";

/// Shares of the budget above which a step causes a warning or fails.
const WARN: f64 = 0.8;
const FAIL: f64 = 1.5;

/// Iterations of the loop that measures the speed of the machine.
const TURNS: u32 = 4_000_000;

/// Contents of the budget file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figures {
    elapsed_min: f64,
    loop_s: f64,
    cpu_s: BTreeMap<String, f64>,
}

/// The budget for this machine.
pub struct Budget {
    figures: Figures,
    /// How many times slower this machine is than the reference; at least 1.
    slowness: f64,
}

impl Budget {
    /// Reads the budget and measures the speed of the machine.
    pub fn read() -> Result<Self> {
        let text = fs::read_to_string(environment::workspace_root().join(FILE)).context(FILE)?;
        let figures: Figures = toml::from_str(&text).context(FILE)?;
        for step in steps::all() {
            ensure!(figures.cpu_s.contains_key(step.name), "{FILE} has no step {}", step.name);
        }
        for name in figures.cpu_s.keys() {
            steps::find(name).context(FILE)?;
        }
        let slowness = (looping_s() / figures.loop_s).max(1.0);
        Ok(Self { figures, slowness })
    }

    /// Adds a failure to a step far above its budget, or prints a warning about a step that needs
    /// most of its budget.
    pub fn judge(&self, step: &mut Done) {
        let Some(budget_s) = self.figures.cpu_s.get(step.name) else { return };
        let share = step.cpu_s / (budget_s * self.slowness);
        let message = format!(
            "{} took {:.0} s of processor time, {:.0} % of its budget",
            step.name,
            step.cpu_s,
            share * 100.0
        );
        if share > FAIL {
            step.tally += Tally::fail(format!("budget: {message} ({FILE})"));
        } else if share > WARN {
            println!("warning: {message}");
        }
    }

    /// Returns a line about the elapsed time. `is_whole` is set for a run of all steps.
    pub fn of_elapsed(&self, elapsed: Duration, is_whole: bool) -> String {
        let (minutes, most) = (elapsed.as_secs_f64() / 60.0, self.figures.elapsed_min);
        let slowness = match self.slowness {
            slowness if slowness > 1.0 => {
                format!("; this machine is {slowness:.2} times slower than the reference")
            }
            _ => String::new(),
        };
        let word = if is_whole && minutes > most { "warning: " } else { "" };
        format!("{word}{minutes:.1} of {most} minutes in the budget{slowness}\n")
    }
}

/// Returns the time for a fixed amount of work in seconds: the shortest of three runs.
fn looping_s() -> f64 {
    let once = || {
        let start = std::time::Instant::now();
        let mut number = 1_u64;
        for _ in 0..TURNS {
            number ^= number << 13;
            number ^= number >> 7;
            number = std::hint::black_box(number ^ (number << 17));
        }
        start.elapsed().as_secs_f64()
    };
    (0..3).map(|_| once()).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(cpu_s: f64, slowness: f64) -> usize {
        let cpu = BTreeMap::from([("unit".to_owned(), 100.0)]);
        let figures = Figures { elapsed_min: 25.0, loop_s: 1.0, cpu_s: cpu };
        let tally = Tally::pass();
        let mut done = Done { name: "unit", time: Duration::ZERO, cpu_s, tally };
        Budget { figures, slowness }.judge(&mut done);
        done.tally.failed.len()
    }

    #[test]
    fn a_step_far_above_its_budget_fails() {
        assert_eq!(judged(90.0, 1.0), 0);
        assert_eq!(judged(149.0, 1.0), 0);
        assert_eq!(judged(151.0, 1.0), 1);
        assert_eq!(judged(151.0, 2.0), 0, "on a slower machine");
    }

    #[test]
    fn budget_file_names_every_step() {
        Budget::read().unwrap();
    }
}
