//! `fslab probe --verify` and `--verify-matrix`: the prober beside the truth.

use std::io::Write;
use std::path::Path;

use anyhow::{Result, bail};
use fslab_probe::Options;
use fslab_probe::matrix::{Cell, How, Judged, judge};
use fslab_probe::timing::Timing;
use fslab_probe::truth::{Truth, Verdict};
use fslab_sys::signals::Interrupt;
use fslab_sys::usage::Instant;

use super::{bad_input, cells, show};
use crate::output::output;

/// Which cells of the matrix.
pub(super) struct Only<'a> {
    /// Those of the short matrix.
    pub short: bool,
    /// Those whose names contain this.
    pub cells: Option<&'a str>,
}

impl Only<'_> {
    fn has(&self, cell: &Cell) -> bool {
        (!self.short || cell.short) && self.cells.is_none_or(|text| cell.name().contains(text))
    }
}

/// Judges the answers on one file system.
pub(super) fn directory(
    path: &Path,
    options: Options,
    timing: Option<&Timing<'_>>,
    interrupt: &Interrupt,
) -> Result<()> {
    let judged = judge(path, options, timing, interrupt)?;
    let mut header = vec!["attribute", "found", "is", "verdict"];
    header.extend(timing.is_some().then_some("by timing"));
    let mut table = show::plain(&header);
    for one in &judged {
        let mut row = vec![
            one.attribute.to_owned(),
            found(one),
            truth(&one.truth),
            verdict(one.verdict).to_owned(),
        ];
        row.extend(timing.map(|_| timed(one)));
        table.add_row(row);
    }
    say!("{table}");
    refuse_wrong(judged.iter().map(wrong).sum())
}

/// Judges the answers on every file system of the matrix.
pub(super) fn matrix(how: &How<'_>, only: &Only<'_>) -> Result<()> {
    let cells: Vec<Cell> = cells::all().into_iter().filter(|cell| only.has(cell)).collect();
    if cells.is_empty() {
        let text = only.cells.unwrap_or_default();
        bail!(bad_input(format!("no cell's name contains '{text}'")));
    }
    let mut out = output();
    let start = Instant::now();
    let (mut sum_wrong, mut sum_missed) = (0, 0);
    for cell in &cells {
        let judged = cell.verify(how)?;
        write_cell(&mut out, cell, &judged)?;
        sum_wrong += judged.iter().map(wrong).sum::<usize>();
        sum_missed += judged.iter().filter(|one| one.verdict == Verdict::NotFound).count();
    }
    let seconds = start.elapsed().as_secs();
    let count = cells.len();
    writeln!(
        out,
        "{count} file systems in {seconds} s: {sum_wrong} wrong, {sum_missed} not found"
    )?;
    refuse_wrong(sum_wrong)
}

fn write_cell(out: &mut dyn Write, cell: &Cell, judged: &[Judged]) -> Result<()> {
    let of = |verdict| judged.iter().filter(move |one| one.verdict == verdict).count();
    write!(
        out,
        "{}: {} right, {} not found, {} wrong",
        cell.name(),
        of(Verdict::Right),
        of(Verdict::NotFound),
        of(Verdict::Wrong)
    )?;
    let timed_verdicts: Vec<_> = judged.iter().filter_map(Judged::timing_verdict).collect();
    if !timed_verdicts.is_empty() {
        let of = |verdict| timed_verdicts.iter().filter(|one| **one == verdict).count();
        let (right, wrong) = (of(Verdict::Right), of(Verdict::Wrong));
        write!(out, "; timed: {right} right, {} refused, {wrong} wrong", of(Verdict::NotFound))?;
    }
    writeln!(out)?;
    for one in judged.iter().filter(|one| one.verdict != Verdict::Right) {
        let truth = truth(&one.truth);
        writeln!(out, "  {}: found {}, is {truth}", one.attribute, found(one))?;
    }
    for one in judged.iter().filter(|one| one.timing_verdict() == Some(Verdict::Wrong)) {
        writeln!(out, "  {}: timed {}, is {}", one.attribute, timed(one), truth(&one.truth))?;
    }
    Ok(())
}

fn wrong(judged: &Judged) -> usize {
    let verdicts = [Some(judged.verdict), judged.timing_verdict()];
    verdicts.into_iter().filter(|verdict| *verdict == Some(Verdict::Wrong)).count()
}

fn refuse_wrong(wrong: usize) -> Result<()> {
    if wrong > 0 {
        bail!("{wrong} answers are wrong; please report them with the output above");
    }
    Ok(())
}

fn found(judged: &Judged) -> String {
    match &judged.finding.answer {
        Ok((value, _)) => value.to_string(),
        Err(reason) => format!("not applicable: {reason}"),
    }
}

fn timed(judged: &Judged) -> String {
    match judged.timing.as_ref().map(|method| &method.outcome) {
        None => String::new(),
        Some(Ok(value)) => value.to_string(),
        Some(Err(reason)) => format!("refused: {reason}"),
    }
}

fn truth(truth: &Truth) -> String {
    match truth {
        Truth::Is(value) => value.to_string(),
        Truth::Within { low, high } => format!("{low} to {high} bytes"),
        Truth::NotApplicable => "not applicable".to_owned(),
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Right => "right",
        Verdict::NotFound => "not found",
        Verdict::Wrong => "WRONG",
    }
}
