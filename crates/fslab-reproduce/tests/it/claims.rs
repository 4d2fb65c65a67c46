//! Tests of claims: mistakes are reported, and the results of a run are found and judged.

use std::collections::BTreeMap;

use fslab_compare::Plan;
use fslab_compare::plan::Form;
use fslab_report::Report;
use fslab_report::sample::{Record, Sample};
use fslab_reproduce::{Agreement, Answers, Figure, Findings, Outcome, Paper, Ran, Row, Runs};

use crate::support::run;

const PLAN: &str = "name = \"tiny\"\nrounds = 3\n\
    [[target]]\nname = \"a\"\nin_process = \"mem:\"\n\
    [[target]]\nname = \"b\"\nin_process = \"mem:\"\n\
    [[target]]\nname = \"not there\"\nin_process = \"tape:\"\nneeds = \"a tape\"\n\
    [[workload]]\nname = \"stream\"\nsize = \"64 KiB\"\nrequest = \"4 KiB\"\n\
    [[workload]]\nname = \"file-copy\"\nlargest = \"2 KiB\"\nmost_files = 2\n";

const HEAD: &str = "title = \"T\"\nauthors = \"A\"\nabout = \"x\"\n";
const CLAIM: &str = "[[claim]]\nid = \"c\"\nplace = \"p\"\nsays = \"s <b>\"\nkind = \"measured\"\n";
const MEASURE: &str =
    "[claim.measure]\nplan = \"tiny\"\nworkload = \"stream\"\nphase = \"write\"\ntarget = \"b\"\n";
const AGAINST: &str = "against = { target = \"a\" }\n";

fn paper(text: &str) -> std::result::Result<Paper, String> {
    let plan = Plan::parse("tiny.toml", PLAN, Form::Full).unwrap();
    let plans = BTreeMap::from([("tiny".to_owned(), plan)]);
    Paper::parse("t", "t.toml", text, &plans).map_err(|error| error.to_string())
}

#[test]
fn wrong_claims_are_named_with_line_and_key() {
    let measure = |from: &str, to: &str| format!("{CLAIM}{}{AGAINST}", MEASURE.replace(from, to));
    let figure = |keys: &str| format!("{CLAIM}{keys}\nmissing = \"m\"");
    let cases = [
        (CLAIM.to_owned(), "t.toml:4:1: claim `c`: exactly one of"),
        (format!("{CLAIM}missing = \"m\"\nnot_reproduced = \"n\""), "exactly one of"),
        (format!("{CLAIM}mising = \"m\""), "t.toml:9:1: unknown field `mising`"),
        (
            format!("{0}missing = \"m\"\n{0}missing = \"m\"", CLAIM),
            "t.toml:11:6: `id`: `c` is used",
        ),
        (figure("paper = 3"), "t.toml:9:9: `paper`: needs a `unit`"),
        (figure("paper = 1\nunit = \"times\""), "t.toml:9:9: `paper`: set `margin`, in per cent"),
        (figure("paper = \"equal\"\nunit = \"times\""), "set `margin`, in per cent"),
        (
            figure("paper = \"same\"\nunit = \"times\""),
            "`paper`: must be a number, or the word \"equal\"",
        ),
        (
            figure("paper = \"equal\"\nunit = \"bytes\""),
            "`paper`: must be a number, or the word \"equal\"",
        ),
        (
            figure("paper = 2\nunit = \"times\""),
            "values from 1.50 to 2.50 round to this number; set `margin`",
        ),
        (figure("margin = 5\nunit = \"times\""), "t.toml:9:10: `margin`: must be above 0"),
        (figure("paper = 2\nmargin = 0\nunit = \"times\""), "`margin`: must be above 0"),
        (
            figure("").replace("measured", "input"),
            "claim `c`: an input or a definition needs a `note`",
        ),
        (measure("\"b\"\n", "\"b\"\nfrom_size = \"2 KiB\"\n"), "need `each = \"size\"`"),
        (measure("\"b\"\n", "\"b\"\ntake = \"least\"\n"), "need `each = \"size\"`"),
        (figure("paper = 3\nunit = \"tims\""), "`unit`: unknown `tims`; nearest: `times`"),
        (figure("paper = { from = 3, to = 2 }\nunit = \"times\""), "`paper`: must be a number, or"),
        (measure("tiny", "tony"), "t.toml:10:8: `plan`: unknown `tony`; nearest: `tiny`"),
        (measure("stream", "steam"), "t.toml:11:12: `workload`: unknown `steam`"),
        (measure("write", "wrote"), "t.toml:12:9: `phase`: unknown `wrote`; nearest: `write`"),
        (measure("\"b\"", "\"c\""), "t.toml:13:10: `target`: unknown `c`"),
        (format!("{CLAIM}{MEASURE}"), "needs `against`"),
        (measure("\"b\"\n", "\"b\"\nstatistic = \"value\"\n"), "a value or rate can't have it"),
        (
            format!("{CLAIM}read = {{ from = \"prober\", at = \"a..b\" }}"),
            "`a..b` is not a path into the output",
        ),
        (
            format!(
                "[[command]]\nname = \"prober\"\nrun = []\n{CLAIM}\
                 read = {{ from = \"probr\", at = \"a\" }}"
            ),
            "`from`: unknown `probr`; nearest: `prober`",
        ),
    ];
    for (text, expected) in cases {
        let error = paper(&format!("{HEAD}{text}")).expect_err(&text);
        assert!(error.contains(expected), "{error:?} does not contain {expected:?}");
    }
}

const TWICE: &str = "2\nmargin = 10";
const EQUAL: &str = "\"equal\"\nmargin = 5";

fn claim(id: &str, paper: &str, measure: &str) -> String {
    let unit = if measure.contains("rate") { "MB/s" } else { "times" };
    let figure = if paper.is_empty() { String::new() } else { format!("paper = {paper}\n") };
    CLAIM.replace("\"c\"", &format!("\"{id}\""))
        + &figure
        + &format!("unit = \"{unit}\"\n{measure}")
}

/// Returns the records of a run in which `b` takes exactly twice the time of `a`.
fn doubled() -> Vec<Record> {
    let directory = tempfile::tempdir_in(".").unwrap();
    let records = run(PLAN, directory.path());
    let times: BTreeMap<_, _> =
        records.iter().filter_map(sample).map(|s| (key(s), s.elapsed_ns)).collect();
    let double = |record: Record| match record {
        Record::Sample(sample) if sample.target == "b" => {
            let base = times[&(
                sample.workload.clone(),
                sample.phase.clone(),
                sample.size_bytes,
                sample.round,
                "a".to_owned(),
            )];
            Record::Sample(Sample { elapsed_ns: base * 2, ..sample })
        }
        other => other,
    };
    records.clone().into_iter().map(double).collect()
}

fn sample(record: &Record) -> Option<&Sample> {
    match record {
        Record::Sample(sample) => Some(sample),
        _ => None,
    }
}

type Key = (String, String, Option<u64>, u32, String);

fn key(sample: &Sample) -> Key {
    let Sample { workload, phase, size_bytes, round, target, .. } = sample.clone();
    (workload, phase, size_bytes, round, target)
}

#[track_caller]
fn figures(outcome: &Outcome) -> &[Figure] {
    match outcome {
        Outcome::Figures(figures) => figures,
        other => panic!("{other:?}"),
    }
}

#[test]
fn claim_figures_match_the_report_and_are_judged() {
    let sweep = MEASURE.replace("stream", "file-copy");
    let text = [
        claim("ratio", TWICE, &format!("{MEASURE}{AGAINST}")),
        claim("speedup", TWICE, &format!("{MEASURE}statistic = \"speedup\"\n{AGAINST}")),
        claim(
            "sum",
            "{ from = 3 }",
            &format!("{}{AGAINST}", MEASURE.replace("\"write\"", "[\"write\", \"overwrite\"]")),
        ),
        claim("sizes", EQUAL, &format!("{sweep}each = \"size\"\n{AGAINST}")),
        claim("one-size", TWICE, &format!("{sweep}size = \"2 KiB\"\n{AGAINST}")),
        claim("rate", "5", &format!("{MEASURE}statistic = \"rate\"\n")),
        claim("tape", TWICE, &format!("{}{AGAINST}", MEASURE.replace("\"b\"", "\"not there\""))),
        claim("later", TWICE, "missing = \"needs more\"\n"),
    ];
    let paper = paper(&format!("{HEAD}{}", text.concat())).unwrap();
    let records = doubled();
    let report = Report::against(&records, &["a".to_owned()], None).unwrap();
    let ran = BTreeMap::from([("tiny".to_owned(), Ran::Records(Form::Full, records))]);
    let runs = Runs::new(std::slice::from_ref(&paper), ran, Answers::new());
    let found = Findings::new(paper, &runs, "form", Vec::new());
    let row = |id: &str| found.rows.iter().find(|row| row.id == id).unwrap();
    let (ratio, theirs) =
        (figures(&row("ratio").outcome)[0], report.groups[0].rows[1].against[0].ratio.unwrap());
    assert_eq!((ratio.value, ratio.interval.unwrap().0), (theirs.ratio, theirs.low));
    assert!((ratio.value - 2.0).abs() < 1e-6 && ratio.rounds == 3, "{ratio:?}");
    let agreements: Vec<_> = found.rows.iter().map(|row| row.agreement).collect();
    use Agreement::{Agrees, Differs, Missing, NotCompared};
    let expected =
        [Agrees, Differs, Agreement::SameDirection, Differs, Agrees, NotCompared, Missing, Missing];
    assert_eq!(agreements, expected);
    let sizes: Vec<_> =
        figures(&row("sizes").outcome).iter().map(|figure| figure.at.unwrap().value).collect();
    assert_eq!(sizes, [0.0, 1024.0, 2048.0]);
    assert!(row("tape").sentence.contains("a tape"), "{}", row("tape").sentence);
    let (page, text) = (found.html().unwrap(), found.markdown());
    assert!(page.contains("s &#60;b&#62;") && !page.contains("s <b>"), "texts are escaped");
    assert!(text.contains("needs more") && found.json().unwrap().contains("\"same_direction\""));
    assert!(Findings::index(&[found]).unwrap().contains("t.html"));
}

/// Returns the findings for a claim about a sweep in which `b` takes twice the time of `a`, except
/// at 2 KiB.
fn of_sweep(factor_at_2_kib: u64, claim: &str) -> Row {
    let paper = paper(&format!("{HEAD}{claim}")).unwrap();
    let planted = |record: Record| match record {
        Record::Sample(sample) if sample.target == "b" && sample.size_bytes == Some(2048) => {
            Record::Sample(Sample { elapsed_ns: sample.elapsed_ns / 2 * factor_at_2_kib, ..sample })
        }
        other => other,
    };
    let records = doubled().into_iter().map(planted).collect();
    let ran = BTreeMap::from([("tiny".to_owned(), Ran::Records(Form::Full, records))]);
    let runs = Runs::new(std::slice::from_ref(&paper), ran, Answers::new());
    Findings::new(paper, &runs, "form", Vec::new()).rows.remove(0)
}

/// At one of three sizes, the target is slower than published.
#[test]
fn one_size_outside_the_range_fails_a_claim_over_a_sweep() {
    let sweep = format!("{}each = \"size\"\n", MEASURE.replace("stream", "file-copy"));
    let range = "{ from = 1.8, to = 2.2 }";
    let whole = claim("sizes", range, &format!("{sweep}{AGAINST}"));
    let row = of_sweep(2, &whole);
    assert_eq!(row.agreement, Agreement::Agrees, "{}", row.sentence);
    let row = of_sweep(6, &whole);
    assert_eq!(row.agreement, Agreement::Partly, "{}", row.sentence);
    assert_eq!(row.sentence, "Agrees at 2 of 3 points; differs at 2 KiB.");
    let from = claim("large", range, &format!("{sweep}from_size = \"2 KiB\"\n{AGAINST}"));
    let row = of_sweep(6, &from);
    assert_eq!((row.agreement, row.points.len()), (Agreement::SameDirection, 1));
    for (end, expected) in [("least", Agreement::Agrees), ("most", Agreement::SameDirection)] {
        let extreme = claim(end, range, &format!("{sweep}take = \"{end}\"\n{AGAINST}"));
        let row = of_sweep(6, &extreme);
        assert_eq!((row.agreement, row.points.len()), (expected, 1), "{end}");
    }
}

#[test]
fn equality_is_judged_by_its_margin() {
    let same = |margin: &str| {
        let measure = format!("{}{AGAINST}", MEASURE.replace("\"b\"", "\"a\""));
        of_sweep(2, &claim("same", &format!("\"equal\"\nmargin = {margin}"), &measure))
    };
    assert_eq!(same("5").agreement, Agreement::Agrees);
    let twice = of_sweep(2, &claim("twice", EQUAL, &format!("{MEASURE}{AGAINST}")));
    assert_eq!(twice.agreement, Agreement::Differs);
    assert_eq!(twice.published, "equal within 5 %");
}

/// Returns the ratio of system times in three rounds, as figures and as text. `b` has the given
/// times, and `a` has 100 ns in each round.
fn of_system_times(times: [u64; 3]) -> (Outcome, String) {
    let measure = format!("{MEASURE}quantity = \"system\"\n{AGAINST}");
    let paper = paper(&format!("{HEAD}{}", claim("system", TWICE, &measure))).unwrap();
    let timed = |record: Record| match record {
        Record::Sample(sample) => {
            let b = sample.target == "b";
            let system_ns = if b { times[sample.round as usize] } else { 100 };
            Record::Sample(Sample { system_ns, daemon_cpu_ns: None, ..sample })
        }
        other => other,
    };
    let records = doubled().into_iter().map(timed).collect();
    let ran = BTreeMap::from([("tiny".to_owned(), Ran::Records(Form::Full, records))]);
    let runs = Runs::new(std::slice::from_ref(&paper), ran, Answers::new());
    let row = Findings::new(paper, &runs, "form", Vec::new()).rows.remove(0);
    (row.outcome, row.measured)
}

/// The time is 0 if it is below the resolution of the kernel's clock. Only this round is left out,
/// and the text of the figure states this.
#[test]
fn zero_time_excludes_only_its_own_round() {
    let (outcome, measured) = of_system_times([200, 0, 200]);
    let figure = figures(&outcome)[0];
    assert!((figure.value - 2.0).abs() < 1e-9 && figure.rounds == 2, "{figure:?}");
    assert!(measured.ends_with("(1 round left out because a value is 0)"), "{measured}");
    let (outcome, _) = of_system_times([0, 300, 0]);
    let figure = figures(&outcome)[0];
    assert_eq!((figure.rounds, figure.zero_rounds, figure.interval), (1, 2, None));
    let (outcome, _) = of_system_times([0; 3]);
    let reason = "one side is 0 in each of 3 rounds, so there is no ratio".to_owned();
    assert_eq!(outcome, Outcome::Missing(reason));
}

const CHARTS: &str = r#"
[[command]]
name = "ask"
run = ["answer"]

[[claim]]
id = "nine"
place = "p"
says = "nine files"
paper = 9
unit = "files"
kind = "simulated"
read = { from = "ask", at = "rows[name=b].n" }

[[claim]]
id = "input"
place = "p"
says = "nine files were asked for"
paper = 9
unit = "files"
kind = "input"
note = "set here"
read = { from = "ask", at = "rows[name=b].n" }

[[claim]]
id = "definition"
place = "p"
says = "four files are"
paper = 9
unit = "files"
kind = "definition"
note = "by its meaning"
read = { from = "ask", at = "rows[name=a].n" }

[[chart]]
id = "over-time"
place = "figure 1"
title = "Score <over> time"
x = { label = "time", unit = "days" }
y = { label = "score", unit = "of 1" }
kind = "simulated"
[[chart.line]]
name = "simulated"
[chart.line.read]
from = "ask"
at = "rows[name=a].scores"
each = { at = "day", is = "score", unit = "days" }
[[chart.line]]
name = "real"
read = { from = "ask", at = "rows[name=c].scores" }

[[chart]]
id = "bars"
place = "figure 2"
title = "Bars"
form = "bars"
x = { label = "kind" }
y = { label = "files", unit = "files" }
kind = "simulated"
[[chart.line]]
name = "FFS"
category = "one"
read = { from = "ask", at = "rows[name=a].n" }
[[chart.line]]
name = "NoSwitch"
category = "one"
read = { from = "ask", at = "rows[name=b].n" }
"#;

/// Returns the findings for a paper whose charts are read from the output of a command.
pub fn charted() -> Findings {
    let paper = paper(&format!("{HEAD}{CHARTS}")).unwrap();
    let answer = serde_json::json!({ "rows": [
        { "name": "a", "n": 4, "scores": [
            { "day": 0, "score": 1.0 }, { "day": 10, "score": 0.9 }, { "day": 20, "score": 0.7 },
        ] },
        { "name": "b", "n": 9 },
    ]});
    let answers = Answers::from([("ask".to_owned(), Ok(answer))]);
    Findings::new(paper, &Runs::new(&[], BTreeMap::new(), answers), "form", Vec::new())
}

/// Inputs and definitions are always shown, and are counted separately.
#[test]
fn claims_are_counted_by_kind_and_verdict() {
    let found = charted();
    assert_eq!(
        found.summary(),
        "3 claims: 1 simulated (agrees 1), 1 input (not counted 1), 1 definition (not counted 1)"
    );
    let page = found.html().unwrap();
    assert!(page.contains("Not counted: the figure is set here"), "{page}");
    assert!(page.contains("Not counted: the claim is true by definition"), "{page}");
    let json: serde_json::Value = serde_json::from_str(&found.json().unwrap()).unwrap();
    assert_eq!(json["counts"]["simulated"]["agrees"], 1, "{}", json["counts"]);
    assert_eq!(json["counts"]["input"]["not_counted"], 1, "{}", json["counts"]);
    assert_eq!(json["rows"][0]["points"][0], "agrees");
}

#[test]
fn charts_are_drawn_from_answers_and_name_missing_series() {
    let found = charted();
    assert_eq!(found.rows[0].agreement, Agreement::Agrees, "{:?}", found.rows[0]);
    let [over_time, bars] = found.charts.as_slice() else { panic!("{:?}", found.charts) };
    assert_eq!(over_time.table().len(), 3);
    assert_eq!(over_time.table()[2], ["simulated", "day 20", "0.700 of 1"]);
    let reasons = over_time.reasons();
    assert!(over_time.svg().contains("real (missing)"));
    assert!(reasons.len() == 1 && reasons[0].starts_with("real: the output of `ask` has no value"));
    assert_eq!(bars.table()[1], ["NoSwitch", "one", "9.00 files"]);
    for drawn in &found.charts {
        let svg = drawn.svg();
        assert!(svg.starts_with("<svg xmlns") && svg.contains("prefers-color-scheme: dark"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(!svg.contains("<over>") && svg.contains(&drawn.caption), "{svg}");
    }
    // The heights of the two bars have the ratio 9 to 4.
    let heights: Vec<f64> = bars
        .inline()
        .split("class=\"column\"")
        .filter_map(|rect| rect.split("height=\"").nth(1)?.split('"').next()?.parse().ok())
        .filter(|height| *height > 12.0)
        .collect();
    assert!((heights[1] / heights[0] - 9.0 / 4.0).abs() < 0.01, "{heights:?}");
}

#[test]
fn invalid_charts_are_refused_with_a_reason() {
    for (from, to, expected) in [
        (
            "read = { from = \"ask\", at = \"rows[name=c].scores\" }\n",
            "",
            "line `real`: needs either",
        ),
        ("unit = \"days\" }\ny", "unit = \"dys\" }\ny", "`unit`: unknown `dys`; nearest: `days`"),
        ("id = \"bars\"", "id = \"over-time\"", "`id`: `over-time` is used twice"),
    ] {
        let text = CHARTS.replace(from, to);
        assert_ne!(text, CHARTS, "{from}");
        let error = paper(&format!("{HEAD}{text}")).expect_err(expected);
        assert!(error.contains(expected), "{error:?} does not contain {expected:?}");
    }
}
