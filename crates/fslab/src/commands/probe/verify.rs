//! `fslab probe --verify` and `--verify-matrix`: the prober beside the truth.

use std::io::Write;
use std::path::Path;

use anyhow::{Result, bail};
use comfy_table::{ContentArrangement, Table, presets};
use fslab_measure::probe::matrix::{Judged, MATRIX, judge};
use fslab_measure::probe::truth::{Truth, Verdict};

/// Judges the answers on one file system.
pub(super) fn directory(path: &Path) -> Result<()> {
    let judged = judge(path)?;
    let mut table = table(["attribute", "found", "is", "verdict"]);
    for one in &judged {
        table.add_row([one.attribute, &found(one), &truth(&one.truth), verdict(one.verdict)]);
    }
    writeln!(std::io::stdout(), "{table}")?;
    refuse_wrong(judged.iter().filter(|one| one.verdict == Verdict::Wrong).count())
}

/// Judges the answers on every file system of the matrix.
pub(super) fn matrix(work_directory: &Path) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let mut wrong = 0;
    for cell in MATRIX {
        let judged = cell.verify(work_directory)?;
        let of = |verdict| judged.iter().filter(move |one| one.verdict == verdict);
        wrong += of(Verdict::Wrong).count();
        writeln!(
            out,
            "{}: {} right, {} not found, {} wrong",
            cell.name(),
            of(Verdict::Right).count(),
            of(Verdict::NotFound).count(),
            of(Verdict::Wrong).count()
        )?;
        for one in judged.iter().filter(|one| one.verdict != Verdict::Right) {
            let truth = truth(&one.truth);
            writeln!(out, "  {}: found {}, is {truth}", one.attribute, found(one))?;
        }
    }
    refuse_wrong(wrong)
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

fn truth(truth: &Truth) -> String {
    match truth {
        Truth::Is(value) => value.to_string(),
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

fn table<const COLUMNS: usize>(header: [&str; COLUMNS]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    table
}
