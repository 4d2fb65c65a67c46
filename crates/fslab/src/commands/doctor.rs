//! `fslab doctor`: reports the supported and missing features of this kernel, machine and user,
//! with advice.

mod checks;

use anyhow::Result;
use comfy_table::{Cell, Color};
use serde_json::json;

use crate::output::{plain_table, print_table};

/// Arguments of `fslab doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Makes a trial mount in the directory for temporary files, and removes it. Changes nothing else.
The exit code is 4 if mounts are impossible; other missing things are only reported.";

/// The purpose for which a feature is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Mounts,
    Speed,
    Comparisons,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Yes,
    /// The feature works, but with a limitation.
    Limited,
    No,
}

struct Finding {
    part: Part,
    name: &'static str,
    state: State,
    /// A description of the result.
    found: String,
    /// Advice; empty if nothing needs to be done.
    advice: String,
}

impl Args {
    /// Runs the checks and prints their results.
    pub fn run(self) -> Result<()> {
        let findings = checks::all();
        if self.json {
            let all: Vec<_> = findings.iter().map(Finding::as_json).collect();
            say!("{:#}", json!({ "checks": all }));
        } else {
            show(&findings);
        }
        let is_fatal = |one: &&Finding| one.name == checks::TRIAL_MOUNT && one.state == State::No;
        match findings.iter().find(is_fatal) {
            Some(fatal) => bail_as!(Missing, "nothing can be mounted: {}", fatal.found),
            None => Ok(()),
        }
    }
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Mounts => "mounts",
            Self::Speed => "speed",
            Self::Comparisons => "comparisons",
        }
    }
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Limited => "limited",
            Self::No => "no",
        }
    }
}

impl State {
    fn colour(self) -> Color {
        match self {
            Self::Yes => Color::Green,
            Self::Limited => Color::Yellow,
            Self::No => Color::Red,
        }
    }
}

impl Finding {
    fn as_json(&self) -> serde_json::Value {
        json!({
            "part": self.part.name(),
            "name": self.name,
            "state": self.state.name(),
            "found": self.found,
            "advice": self.advice,
        })
    }
}

fn show(findings: &[Finding]) {
    for part in [Part::Mounts, Part::Speed, Part::Comparisons] {
        let mut table = plain_table([part.name(), "", "found"]);
        for one in findings.iter().filter(|one| one.part == part) {
            let state = Cell::new(one.state.name()).fg(one.state.colour());
            table.add_row([Cell::new(one.name), state, Cell::new(&one.found)]);
        }
        print_table(&table);
        say!("");
    }
    let to_do: Vec<_> = findings.iter().filter(|one| !one.advice.is_empty()).collect();
    if to_do.is_empty() {
        say!("Nothing is missing.");
        return;
    }
    say!("Suggestions:");
    to_do.iter().for_each(|one| say!("- {}: {}", one.name, one.advice));
}
