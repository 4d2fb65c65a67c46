//! What is told, for people or as JSON.

use std::io::Write;

use anyhow::{Context, Result};
use fslab_tier::command::{Command, Event, State};

use super::access::Access;
use crate::exit::{Code, Coded};
use crate::output::output;
use crate::units;

/// Asks and shows what is told.
pub fn run(access: Access, command: &Command, json: bool) -> Result<()> {
    let mut shown = Shown { json, told: 0, problems: 0, error: None, failed: None };
    access.ask(command, &mut |event| shown.show(event))?;
    if let Some(note) = nothing_in(command).filter(|_| shown.told == 0 && !json) {
        say!("{note}");
    }
    if matches!(command, Command::Release { .. }) && shown.told > shown.problems && !json {
        say!("without the mount, files that were released read as zeros");
    }
    shown.end()
}

/// What it means that nothing was told.
fn nothing_in(command: &Command) -> Option<&'static str> {
    match command {
        Command::State { recursive: false, .. } => Some("no files there; -r for those below"),
        Command::State { .. } => Some("no files there"),
        Command::Queue => Some("no recall is waiting"),
        _ => None,
    }
}

struct Shown {
    json: bool,
    /// Things that were told, but for the end.
    told: u64,
    problems: u64,
    error: Option<String>,
    failed: Option<std::io::Error>,
}

impl Shown {
    fn show(&mut self, event: Event) -> bool {
        match &event {
            Event::Problem { .. } => self.problems += 1,
            Event::End { error } => self.error.clone_from(error),
            _ => {}
        }
        self.told += u64::from(!matches!(&event, Event::End { error: None }));
        let line = if self.json { serde_json::to_string(&event).ok() } else { as_line(&event) };
        let written = match (&event, line) {
            (Event::Problem { .. }, Some(line)) if !self.json => {
                eprintln!("fslab: {line}");
                Ok(())
            }
            (_, Some(line)) => writeln!(output(), "{line}"),
            (_, None) => Ok(()),
        };
        if let Err(error) = written {
            self.failed = Some(error);
            return false;
        }
        true
    }

    fn end(self) -> Result<()> {
        if let Some(error) = self.failed {
            return Err(error).context("can't write to standard output");
        }
        let message = match (self.error, self.problems) {
            (Some(error), _) => error,
            (None, 0) => return Ok(()),
            (None, 1) => "one file could not be done; see above".to_owned(),
            (None, problems) => format!("{problems} files could not be done; see above"),
        };
        Err(Coded { code: Code::Failure, message }.into())
    }
}

/// A line for people; nothing where there is nothing to say.
fn as_line(event: &Event) -> Option<String> {
    Some(match event {
        Event::Done { what, path, bytes } => {
            format!("{what:<10} {:>10}  {path}", units::bytes(*bytes))
        }
        Event::Problem { what } => what.clone(),
        Event::State(state) => state_line(state),
        Event::Usage { path, files, bytes, resident_bytes, archived_bytes } => format!(
            "{files} files, {}; here {}, in archives {}  {path}",
            units::bytes(*bytes),
            units::bytes(*resident_bytes),
            units::bytes(*archived_bytes)
        ),
        Event::Waiting { path, block, class, user, waiters, waited_ms } => format!(
            "{class:<8} user {user:<6} {waiters} waiting {:>8}  block {block} of {path}",
            units::duration(waited_ms * 1_000_000)
        ),
        Event::Version { object, path, bytes, state, since } => {
            let when = jiff::Timestamp::from_second(*since)
                .map_or_else(|_| since.to_string(), |time| time.to_string());
            format!("{object} {state:<8} {:>10} {when}  {path}", units::bytes(*bytes))
        }
        Event::Total { figures } => {
            let words = figures.iter().map(|(name, value)| match name.strip_suffix("_bytes") {
                Some(name) => format!("{name} {}", units::bytes(*value)),
                None => format!("{name} {value}"),
            });
            words.collect::<Vec<_>>().join(", ")
        }
        Event::End { .. } => return None,
    })
}

/// As `ls` of DMFS: `a` for archived, `A` for archived and not here; `p` in between, `!` damaged.
fn state_line(state: &State) -> String {
    let letter = match (&state.state[..], state.changed) {
        ("offline", _) => 'A',
        ("partly-resident", _) => 'p',
        ("archived", _) => 'a',
        ("changed", _) => 'c',
        ("damaged", _) => '!',
        _ => '-',
    };
    format!(
        "{letter} {:<15} {:>10} of {:>10} here  copies {}  {}",
        state.state,
        units::bytes(state.resident_bytes),
        units::bytes(state.bytes),
        state.copies.len(),
        state.path
    )
}
