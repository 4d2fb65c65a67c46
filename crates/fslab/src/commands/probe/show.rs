//! Formats the prober's answers as a table and as JSON.

use std::path::Path;

use comfy_table::Table;
use fslab_probe::timing::Validation;
use fslab_probe::{Answer, Comparison, Confidence, Finding, Method};
use serde_json::json;

use crate::output::plain_table;

/// Formats answers as a table. It has a column for timing if any answer was timed.
pub(super) fn as_table(answers: &[Answer], explain: bool) -> Table {
    let timed = answers.iter().any(|answer| answer.timing.is_some());
    let mut header = vec!["attribute", "value", "found by"];
    header.extend(timed.then_some("by timing"));
    let mut table = plain_table(header);
    for answer in answers {
        let sureness = match &answer.finding.answer {
            Ok((_, Confidence::Agreed)) => "two methods",
            Ok((_, Confidence::Single)) => "one method",
            Err(_) => "",
        };
        let value = found(&answer.finding);
        let mut row = vec![answer.attribute.name.to_owned(), value, sureness.to_owned()];
        row.extend(timed.then(|| by_timing(answer)));
        table.add_row(row);
        if explain {
            table.add_row(["", answer.attribute.help, ""]);
            for method in answer.finding.methods.iter().chain(&answer.timing) {
                table.add_row(["", &explained(method), ""]);
            }
        }
    }
    table
}

/// Formats the value found by counting, or the reason why there is none.
pub(super) fn found(finding: &Finding) -> String {
    match &finding.answer {
        Ok((value, _)) => value.to_string(),
        Err(reason) => format!("not applicable: {reason}"),
    }
}

/// Formats the value found by timing, or the reason why there is none.
pub(super) fn timed(method: &Method) -> String {
    match &method.outcome {
        Ok(value) => value.to_string(),
        Err(reason) => format!("refused: {reason}"),
    }
}

/// Formats the value found by timing, and whether it agrees with the value found by counting.
pub(super) fn by_timing(answer: &Answer) -> String {
    let Some(method) = &answer.timing else { return String::new() };
    let verdict = match answer.comparison().filter(|_| method.outcome.is_ok()) {
        Some(Comparison::Agree) => ": agrees",
        Some(Comparison::Differ) => ": DIFFERS",
        _ => "",
    };
    timed(method) + verdict
}

fn explained(method: &Method) -> String {
    const PAIRS: usize = 24;
    let evidence: Vec<_> =
        method.series.iter().take(PAIRS).map(|point| format!("{}:{}", point.x, point.y)).collect();
    let more = if method.series.len() > PAIRS { " ..." } else { "" };
    let outcome = match &method.outcome {
        Ok(value) => value.to_string(),
        Err(reason) => reason.clone(),
    };
    format!("  by {}: {outcome}  {}{more}", method.name, evidence.join(" "))
}

/// Formats the validation of the cycle counter.
pub(super) fn clock(validation: &Validation) -> String {
    let Validation { clock_source, processors, went_back, regression, overhead, stolen, .. } =
        validation;
    format!(
        "cycle counter: invariant, clock source {clock_source}; {processors} processors compared, \
         {went_back} readings went back\n\
         ticks = {:.6e} x seconds {:+.3e}, R^2 = {:.9} over {} sleeps; largest residual {:.0} ns\n\
         an empty interval takes {} ticks (median {}, 99 % below {}); steal time {:.2} %",
        regression.ticks_per_second,
        regression.intercept,
        regression.r_squared,
        regression.points.len(),
        regression.residual_max_ns,
        overhead.least,
        overhead.median,
        overhead.percentile_99,
        100.0 * stolen
    )
}

/// Converts all answers to JSON, with their evidence.
pub(super) fn as_json(
    file_system: &str,
    path: &Path,
    answers: &[Answer],
    validation: Option<&Validation>,
) -> serde_json::Value {
    let attributes: Vec<_> = answers.iter().map(answer_as_json).collect();
    let mut all = json!({ "path": path, "file_system": file_system, "attributes": attributes });
    if let Some(validation) = validation {
        all["cycle_counter"] = json!(validation);
    }
    all
}

/// Converts the answer for one attribute to JSON, with its evidence.
pub(super) fn answer_as_json(answer: &Answer) -> serde_json::Value {
    let (value, confidence, reason) = match &answer.finding.answer {
        Ok((value, confidence)) => (Some(value), Some(confidence), None),
        Err(reason) => (None, None, Some(reason)),
    };
    let mut one = json!({
        "name": answer.attribute.name,
        "answer": value,
        "confidence": confidence,
        "not_applicable": reason,
        "methods": answer.finding.methods,
    });
    if let Some(method) = &answer.timing {
        one["timing"] = json!(method);
        one["timing_compares"] = json!(answer.comparison().map(|comparison| match comparison {
            Comparison::Agree => "agrees",
            Comparison::Differ => "differs",
            Comparison::Unknown => "unknown",
        }));
    }
    one
}
