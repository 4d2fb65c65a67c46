//! Claims: what is wrong with them is named, and what a run shows is found and judged.

use std::collections::BTreeMap;

use fslab_measure::Plan;
use fslab_measure::plan::Form;
use fslab_measure::report::Report;
use fslab_measure::reproduce::{Agreement, Answers, Figure, Findings, Outcome, Paper, Ran, Runs};
use fslab_measure::sample::{Record, Sample};
use fslab_sys::signals::Interrupt;

use crate::support::{Silent, TestHost, run};

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
        (figure("paper = 3"), "t.toml:9:9: `paper`: has no `unit`"),
        (figure("paper = 3\nunit = \"tims\""), "`unit`: unknown `tims`; nearest: `times`"),
        (figure("paper = { from = 3, to = 2 }\nunit = \"times\""), "`paper`: a number, or"),
        (measure("tiny", "tony"), "t.toml:10:8: `plan`: unknown `tony`; nearest: `tiny`"),
        (measure("stream", "steam"), "t.toml:11:12: `workload`: unknown `steam`"),
        (measure("write", "wrote"), "t.toml:12:9: `phase`: unknown `wrote`; nearest: `write`"),
        (measure("\"b\"", "\"c\""), "t.toml:13:10: `target`: unknown `c`"),
        (format!("{CLAIM}{MEASURE}"), "needs `against`"),
        (measure("\"b\"\n", "\"b\"\nstatistic = \"value\"\n"), "a value or rate none"),
        (
            format!("{CLAIM}read = {{ from = \"prober\", at = \"a..b\" }}"),
            "`a..b` is no way into an answer",
        ),
        (
            format!(
                "[[command]]\nname = \"prober\"\nrun = []\n{CLAIM}read = {{ from = \"probr\", at = \"a\" }}"
            ),
            "`from`: unknown `probr`; nearest: `prober`",
        ),
    ];
    for (text, expected) in cases {
        let error = paper(&format!("{HEAD}{text}")).expect_err(&text);
        assert!(error.contains(expected), "{error:?} does not hold {expected:?}");
    }
}

fn claim(id: &str, paper: &str, measure: &str) -> String {
    let unit = if measure.contains("rate") { "MB/s" } else { "times" };
    let figure = if paper.is_empty() { String::new() } else { format!("paper = {paper}\n") };
    CLAIM.replace("\"c\"", &format!("\"{id}\""))
        + &figure
        + &format!("unit = \"{unit}\"\n{measure}")
}

/// A run in which `b` takes exactly twice the time of `a`.
fn doubled() -> Vec<Record> {
    let directory = tempfile::tempdir_in(".").unwrap();
    let ran = run(PLAN, directory.path(), &TestHost, Interrupt::default(), &mut Silent).unwrap();
    let records = ran.1;
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
fn figures_are_those_of_the_report_and_judged() {
    let sweep = MEASURE.replace("stream", "file-copy");
    let text = [
        claim("ratio", "2", &format!("{MEASURE}{AGAINST}")),
        claim("speedup", "2", &format!("{MEASURE}statistic = \"speedup\"\n{AGAINST}")),
        claim(
            "sum",
            "{ from = 3 }",
            &format!("{}{AGAINST}", MEASURE.replace("\"write\"", "[\"write\", \"overwrite\"]")),
        ),
        claim("sizes", "1", &format!("{sweep}each = \"size\"\n{AGAINST}")),
        claim("one-size", "2", &format!("{sweep}size = \"2 KiB\"\n{AGAINST}")),
        claim("rate", "5", &format!("{MEASURE}statistic = \"rate\"\n")),
        claim("tape", "2", &format!("{}{AGAINST}", MEASURE.replace("\"b\"", "\"not there\""))),
        claim("later", "2", "missing = \"needs more\"\n"),
    ];
    let paper = paper(&format!("{HEAD}{}", text.concat())).unwrap();
    let records = doubled();
    let report = Report::against(&records, &["a".to_owned()]).unwrap();
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
