//! `fslab probe --verify` and `--verify-matrix`: compare the prober's answers with the true values.

use std::io::Write;
use std::path::Path;

use anyhow::{Result, bail};
use fslab_probe::Options;
use fslab_probe::matrix::{Cell, How, Judged, judge};
use fslab_probe::timing::Timing;
use fslab_probe::truth::{Truth, Verdict};
use fslab_sys::signals::Interrupt;
use fslab_sys::usage::Instant;

use super::{cells, show};
use crate::output::{output, plain_table};

/// Prints, for each answer about one file system, whether it is right.
pub(super) fn directory(
    path: &Path,
    options: Options,
    timing: Option<&Timing<'_>>,
    interrupt: &Interrupt,
) -> Result<()> {
    let judged = judge(path, options, timing, interrupt)?;
    let mut header = vec!["attribute", "found", "is", "verdict"];
    header.extend(timing.is_some().then_some("by timing"));
    let mut table = plain_table(header);
    for one in &judged {
        let mut row = vec![
            one.attribute.to_owned(),
            show::found(&one.finding),
            truth(&one.truth),
            verdict(one.verdict).to_owned(),
        ];
        row.extend(timing.map(|_| timed(one)));
        table.add_row(row);
    }
    say!("{table}");
    let timed = judged.iter().filter_map(Judged::timing_verdict);
    let [.., wrong] = counts(judged.iter().map(|one| one.verdict).chain(timed));
    refuse_wrong(wrong)
}

/// Judges the answers about the file systems of the matrix whose names contain `text`. With
/// `short`, only the file systems of the short matrix are used.
pub(super) fn matrix(how: &How<'_>, short: bool, text: &str) -> Result<()> {
    let is_wanted = |cell: &Cell| (!short || cell.short) && cell.name().contains(text);
    let cells: Vec<Cell> = cells::all().into_iter().filter(is_wanted).collect();
    if cells.is_empty() {
        bail_as!(BadInput, "--cells: no file system has '{text}' in its name");
    }
    let (mut out, start) = (output(), Instant::now());
    let (mut sum_wrong, mut sum_missed) = (0, 0);
    for cell in &cells {
        let judged = cell.verify(how)?;
        let [right, missed, wrong] = counts(judged.iter().map(|one| one.verdict));
        write!(out, "{}: {right} right, {missed} not found, {wrong} wrong", cell.name())?;
        let timed_counts = counts(judged.iter().filter_map(Judged::timing_verdict));
        let [right, refused, timed_wrong] = timed_counts;
        if timed_counts != [0; 3] {
            write!(out, "; timed: {right} right, {refused} refused, {timed_wrong} wrong")?;
        }
        writeln!(out)?;
        for one in judged.iter().filter(|one| one.verdict != Verdict::Right) {
            let (found, truth) = (show::found(&one.finding), truth(&one.truth));
            writeln!(out, "  {}: found {found}, but the true value is {truth}", one.attribute)?;
        }
        for one in judged.iter().filter(|one| one.timing_verdict() == Some(Verdict::Wrong)) {
            let (timed, truth) = (timed(one), truth(&one.truth));
            writeln!(out, "  {}: timed {timed}, but the true value is {truth}", one.attribute)?;
        }
        (sum_wrong, sum_missed) = (sum_wrong + wrong + timed_wrong, sum_missed + missed);
    }
    let (count, seconds) = (cells.len(), start.elapsed().as_secs());
    writeln!(
        out,
        "{count} file systems in {seconds} s: {sum_wrong} wrong, {sum_missed} not found"
    )?;
    refuse_wrong(sum_wrong)
}

/// Counts the answers that are right, not found, and wrong.
fn counts(verdicts: impl Iterator<Item = Verdict> + Clone) -> [usize; 3] {
    [Verdict::Right, Verdict::NotFound, Verdict::Wrong]
        .map(|wanted| verdicts.clone().filter(|verdict| *verdict == wanted).count())
}

fn refuse_wrong(wrong: usize) -> Result<()> {
    if wrong > 0 {
        bail!("{wrong} answers are wrong; please report them with the output above");
    }
    Ok(())
}

fn timed(judged: &Judged) -> String {
    judged.timing.as_ref().map_or_else(String::new, show::timed)
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
