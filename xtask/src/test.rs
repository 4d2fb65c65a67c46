//! `cargo xtask test`: every check of the project, in named steps; the whole of CI.
//!
//! A step that fails doesn't stop the others. The last line of the output holds the counts and
//! nothing else: `N passed, N failed, N skipped`.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::steps::{Context, STEPS, Step};
use crate::summary::{self, Done};
use crate::tally::Tally;
use crate::{environment, process};

/// Which steps to run.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run only these steps, in their usual order
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    only: Vec<String>,
    /// List the steps and do nothing
    #[arg(long)]
    list: bool,
}

impl Args {
    /// Runs the steps and prints the summary; succeeds if nothing failed.
    pub fn run(&self) -> Result<ExitCode> {
        let steps = chosen(&self.only)?;
        if self.list {
            steps.iter().for_each(|step| println!("{:<12} {}", step.name, step.help));
            return Ok(ExitCode::SUCCESS);
        }
        let context = Context::new()?;
        let mut done = Vec::new();
        for step in steps {
            done.push(timed(step, &context));
            if process::interrupted() {
                break;
            }
        }
        print!("{}", summary::render(&done));
        let good = done.iter().all(|step| step.tally.is_good()) && !process::interrupted();
        Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Step>> {
    let known: Vec<_> = STEPS.iter().map(|step| step.name).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("there is no step {unknown:?}; the steps are {}", known.join(", "));
    }
    let wanted = |step: &&Step| names.is_empty() || names.iter().any(|name| name == step.name);
    Ok(STEPS.iter().filter(wanted).collect())
}

fn timed(step: &Step, context: &Context) -> Done {
    println!("\n== {}: {}", step.name, step.help);
    let start = Instant::now();
    let tally = (step.run)(context)
        .unwrap_or_else(|error| Tally::fail(format!("{}: {error:#}", step.name)));
    let require_all = environment::switched_on("FSLAB_REQUIRE_ALL");
    let tally = if require_all { tally.requiring_all() } else { tally };
    let time = start.elapsed();
    println!("== {}: {} in {:.1} s", step.name, tally.counts(), time.as_secs_f64());
    Done { name: step.name, time, tally }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_chosen_by_name_and_keep_their_order() {
        let names = |only: &[&str]| -> Vec<_> {
            let only: Vec<_> = only.iter().map(ToString::to_string).collect();
            chosen(&only).unwrap().iter().map(|step| step.name).collect()
        };
        assert_eq!(names(&["clippy", "format"]), ["format", "clippy"]);
        assert_eq!(names(&[]).len(), STEPS.len());
        let error = chosen(&["fromat".to_owned()]).err().unwrap().to_string();
        assert!(error.contains("fromat") && error.contains("format"), "{error}");
    }
}
