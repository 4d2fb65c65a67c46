//! Describes a run: the planned steps before the run, and afterwards the form of the plans.

use anyhow::Result;
use fslab_compare::plan::Form;
use fslab_reproduce::{Basis, Claim, Paper, Ran};

use super::library::Library;
use super::running::{Done, estimates};
use crate::units::counted;

/// Prints the plans with their estimated durations, and where the claims' figures come from. With
/// `with_claims`, prints each claim. `minutes` is the time limit of a quick run.
pub(super) fn describe(library: &Library, minutes: u64, with_claims: bool) -> Result<()> {
    say!("plans, reduced to the measurements that the claims need:");
    // If there are preparations, which are listed below, they make the images that targets need.
    let is_all_there = library.preparations().is_empty();
    for ((_, plan), (name, estimate)) in library.plans.iter().zip(estimates(library, minutes)?) {
        say!("  {name}: {}; {}", plan.name, estimate.trim());
        for target in &plan.targets {
            if let Some(needs) = target.needs.as_ref().filter(|_| is_all_there) {
                say!("    {} needs {needs}", target.name);
            }
        }
    }
    for preparation in library.preparations() {
        say!("  {} is made by this command if it is missing", preparation.file);
    }
    for command in library.commands() {
        say!("  command {}: fslab {}", command.name, command.run.join(" "));
    }
    if library.form == Form::Quick {
        say!("  no round begins more than {minutes} minutes after the start of the run");
    }
    for paper in &library.papers {
        say!("\n{}: {} ({})", paper.name, paper.title, tally(paper));
        let claims = paper.claims.iter().filter(|_| with_claims);
        claims.for_each(|claim| say!("  {}", line(claim)));
    }
    if !with_claims {
        say!("\n--verbose lists the claims");
    }
    Ok(())
}

fn tally(paper: &Paper) -> String {
    let count = |wanted: fn(&Basis) -> bool| {
        paper.claims.iter().filter(|claim| wanted(&claim.basis)).count()
    };
    format!(
        "{} claims: {} by plans, {} by commands, {} missing, {} not reproduced; {}",
        paper.claims.len(),
        count(|basis| matches!(basis, Basis::Plan(_))),
        count(|basis| matches!(basis, Basis::Command(_))),
        count(|basis| matches!(basis, Basis::Missing(_))),
        count(|basis| matches!(basis, Basis::NotReproduced(_))),
        counted(paper.charts.len() as u64, "chart"),
    )
}

fn line(claim: &Claim) -> String {
    let published = claim.published.as_ref().map(fslab_reproduce::Published::words);
    let from = match &claim.basis {
        Basis::Plan(query) => query.to_string(),
        Basis::Command(reading) => format!("command {}: {}", reading.from, reading.at),
        Basis::Missing(reason) => format!("MISSING: {reason}"),
        Basis::NotReproduced(reason) => format!("not reproduced: {reason}"),
    };
    let published = published.filter(|words| !words.is_empty());
    let published = published.map(|words| format!(" = {words}")).unwrap_or_default();
    format!("{} ({}){published}: {from}", claim.id, claim.place)
}

/// Returns a sentence that states in which form the plans were run.
pub(super) fn form(done: &Done) -> &'static str {
    let forms = |wanted: Form| done.ran.values().filter_map(Ran::form).any(|form| form == wanted);
    match (forms(Form::Quick), forms(Form::Full)) {
        (true, true) => {
            "Some plans were run in their quick form, with smaller sizes and fewer rounds than the \
             paper's; see each plan's own report."
        }
        (true, false) => {
            "Quick: the plans' short forms were run, with smaller sizes, fewer rounds and fewer \
             kinds of data than the paper's. The `quick` keys in each plan's own report show the \
             differences."
        }
        (false, true) => "Full: the sizes are the paper's own.",
        (false, false) => "No plan was run.",
    }
}
