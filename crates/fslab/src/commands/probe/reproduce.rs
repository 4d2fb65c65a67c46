//! `fslab probe --reproduce`: reproduces the four results of Hu and Bursum.
//! `fslab reproduce attributes` runs this command, and compares its output with the same claims.

use std::time::Duration;

use anyhow::Result;
use fslab_compare::Error;
use fslab_probe::matrix::How;
use fslab_probe::original::{FOUR, OnFileSystem, reproduce};
use fslab_probe::timing::Validation;
use fslab_probe::timing::validation::Extent;
use serde_json::{Value, json};

use super::show;
use crate::output::plain_table;

/// The sleeps that validate the cycle counter. The paper slept up to ten seconds. Sleeping more
/// often, up to two seconds each time, gives more information.
pub(super) const EXTENT: Extent = Extent { longest_sleep: Duration::from_millis(2048), repeats: 3 };

/// The paper, and the name of this command in its claims.
const PAPER: &str = "attributes";
const COMMAND: &str = "prober";

/// Finds the results, and prints them as JSON or next to the paper's claims. `clock` is the
/// validation of the clock, or the reason why no timing is done.
pub(super) fn run(
    how: &How<'_>,
    clock: std::result::Result<&Validation, &str>,
    as_json: bool,
) -> Result<()> {
    let not_timed = clock.err();
    let mut found = reproduce(how)?;
    if let Some(lacking) = lacking(&mut found) {
        return Err(lacking.into());
    }
    let mut answer = json!({
        "images_in": how.fast_directory,
        "file_systems": found.iter().map(|one| file_system(one, not_timed)).collect::<Vec<_>>(),
    });
    match clock {
        Ok(validation) => answer["cycle_counter"] = cycle_counter(validation),
        Err(reason) => answer["not_timed"] = json!(reason),
    }
    if as_json {
        say!("{answer:#}");
    } else {
        say!("{}\n", side_by_side(&found, not_timed));
        say!("{}", crate::commands::reproduce::beside(PAPER, COMMAND, answer)?);
    }
    Ok(())
}

/// If a missing prerequisite caused every result to fail, returns the error of one of them.
fn lacking(found: &mut [OnFileSystem]) -> Option<Error> {
    let mut answers = found.iter().flat_map(|one| &one.answers);
    let lacks = |answer: &fslab_compare::Result<_>| {
        answer.as_ref().is_err_and(Error::is_missing_prerequisite)
    };
    if !answers.all(lacks) {
        return None;
    }
    found.first_mut()?.answers.pop()?.err()
}

/// Returns a table of the results for each file system, found by counting and by timing.
fn side_by_side(found: &[OnFileSystem], not_timed: Option<&str>) -> comfy_table::Table {
    let mut table = plain_table(["attribute", "file system", "counted", "timed"]);
    for (index, attribute) in FOUR.iter().enumerate() {
        for one in found {
            let (counted, timed) = match &one.answers[index] {
                Ok(answer) => {
                    let timed = not_timed.map_or_else(|| show::by_timing(answer), str::to_owned);
                    (show::found(&answer.finding), timed)
                }
                Err(error) => (error.to_string(), String::new()),
            };
            table.add_row([attribute, one.kind.name(), &counted, &timed]);
        }
    }
    table
}

fn file_system(found: &OnFileSystem, not_timed: Option<&str>) -> Value {
    let refused = |reason: &str| json!({ "answer": null, "not_applicable": reason });
    let answers = FOUR.iter().zip(&found.answers).map(|(attribute, answer)| match answer {
        Ok(answer) => {
            let mut one = show::answer_as_json(answer);
            if let Some(reason) = not_timed {
                one["timing"] = refused(reason);
            }
            one
        }
        Err(error) => {
            let reason = error.to_string();
            json!({ "name": attribute, "not_applicable": reason, "timing": refused(&reason) })
        }
    });
    let mut one = json!({
        "file_system": found.kind.name(),
        "attributes": answers.collect::<Vec<_>>(),
    });
    match &found.growth {
        Ok(growth) => one["growth"] = json!(growth),
        Err(error) => one["growth"] = json!({ "not_applicable": error.to_string() }),
    }
    one
}

fn cycle_counter(validation: &Validation) -> Value {
    let mut counter = json!(validation);
    counter["seconds_per_tick"] = json!(1.0 / validation.regression.ticks_per_second);
    counter
}

#[cfg(test)]
mod tests {
    use fslab_sys::make_file_system::Kind;

    use super::*;

    fn nothing(errors: [Error; 2]) -> OnFileSystem {
        let growth = Err(Error::NoWorkers);
        OnFileSystem { kind: Kind::Ext2, answers: errors.map(Err).into(), growth }
    }

    #[test]
    fn missing_prerequisite_is_reported_if_every_answer_lacks_it() {
        let mut lacks = [(); 2].map(|()| nothing([Error::NoWorkers, Error::NoWorkers]));
        assert!(matches!(lacking(&mut lacks), Some(Error::NoWorkers)));
        let failed = nothing([Error::NoWorkers, Error::Interrupted]);
        assert!(lacking(&mut [nothing([Error::NoWorkers, Error::NoWorkers]), failed]).is_none());
    }
}
