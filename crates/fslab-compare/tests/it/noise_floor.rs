//! Tests of the noise floor: a hidden second copy of the baseline runs in every round, and reports
//! show its difference.

use std::collections::BTreeSet;

use fslab_compare::Plan;
use fslab_compare::plan::Form;
use fslab_report::Provenance;
use fslab_report::sample::{Record, Sample};
use fslab_report::{Report, Verdict};
use fslab_sys::signals::Interrupt;

use crate::support::{Silent, TestHost, directory_on_disk, run, samples};

const PLAN: &str = r#"
name = "small"
rounds = 8
baseline = "b"
[[target]]
name = "a"
in_process = "mem:"
[[target]]
name = "b"
in_process = "mem:"
[[workload]]
name = "stream"
size = "64 KiB"
request = "4 KiB"
"#;

const COPY: &str = "b, second copy";

fn rendered(name: &str, report: &Report) -> String {
    String::from_utf8((fslab_report::find(name).unwrap().render)(report).unwrap()).unwrap()
}

/// The second copy has samples but no row. Its position in a round is drawn at random, like that of
/// every target.
#[test]
fn second_copy_runs_in_every_round_and_has_no_row() {
    let directory = directory_on_disk();
    let interrupt = Interrupt::default();
    let (_, records) = run(PLAN, directory.path(), &TestHost, interrupt, &mut Silent).unwrap();
    let writes = samples(&records).into_iter().filter(|sample| sample.phase == "write");
    let copies: Vec<&Sample> = writes.filter(|sample| sample.target == COPY).collect();
    let rounds: BTreeSet<u32> = copies.iter().map(|sample| sample.round).collect();
    assert_eq!(rounds, (0..8).collect());
    let places: BTreeSet<u32> = copies.iter().map(|sample| sample.position).collect();
    assert!(places.len() > 1, "always at the same position: {places:?}");
    let report = Report::new(&records);
    assert_eq!(report.target_names, ["a", "b"]);
    for group in &report.groups {
        assert_eq!(group.rows.len(), 2, "{}", group.phase);
        let floor = group.noise_floor.as_ref().unwrap();
        assert_eq!(floor.ratio.rounds, 8);
        assert!(floor.metrics.iter().any(|floor| floor.metric == "processor-each"));
    }
    for name in ["terminal", "markdown", "html"] {
        let text = rendered(name, &report);
        assert!(text.contains("noise floor"), "{name}:\n{text}");
        let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(joined.contains("hidden second copy of b"), "{name}:\n{text}");
        assert!(!text.contains(COPY), "{name} shows the copy as a target:\n{text}");
    }
    let page = rendered("html", &report);
    let overview = page.split("<table class=\"overview\">").nth(1).unwrap();
    let overview = overview.split("</table>").next().unwrap();
    assert!(overview.contains("noise floor") && overview.contains("second copy"), "{overview}");
    let json: serde_json::Value = serde_json::from_str(&rendered("json", &report)).unwrap();
    assert!(json["groups"][0]["noise_floor"]["ratio"]["low"].is_f64(), "{json}");
    assert!(rendered("csv", &report).contains(COPY), "samples are all kept");
}

#[test]
fn plan_without_noise_floor_runs_no_second_copy() {
    let parse = |text: &str, form| Plan::parse("test", text, form).unwrap();
    assert_eq!(parse(PLAN, Form::Full).second_copy().unwrap().name, COPY);
    let without = format!("noise_floor = false\n{PLAN}");
    assert_eq!(parse(&without, Form::Full).second_copy(), None);
    let quick = PLAN.replace("[[workload]]", "[quick]\nnoise_floor = false\n[[workload]]");
    assert!(parse(&quick, Form::Full).second_copy().is_some());
    assert_eq!(parse(&quick, Form::Quick).second_copy(), None);
    // If a target already has the name, the copy gets another one.
    let taken = PLAN.replace("name = \"a\"", &format!("name = \"{COPY}\""));
    assert_ne!(parse(&taken, Form::Full).second_copy().unwrap().name, COPY);
    let directory = directory_on_disk();
    let interrupt = Interrupt::default();
    let (_, records) = run(&without, directory.path(), &TestHost, interrupt, &mut Silent).unwrap();
    assert!(samples(&records).iter().all(|sample| sample.target != COPY));
    let report = Report::new(&records);
    assert!(report.groups.iter().all(|group| group.noise_floor.is_none()));
    assert!(!fslab_report::terminal(&report).contains("oise floor"));
}

/// Returns noisy samples of three targets: the baseline, `slow`, which takes 3 % longer, and the
/// second copy, which takes `floor` times as long.
fn records(floor: f64) -> Vec<Record> {
    let provenance = Provenance {
        run: "r".to_owned(),
        baseline: "base".to_owned(),
        second_copy: Some("base, second copy".to_owned()),
        targets: vec!["base".to_owned(), "slow".to_owned()],
        workloads: vec!["names".to_owned()],
        ..Provenance::default()
    };
    let mut records = vec![Record::Provenance(Box::new(provenance))];
    for round in 0..12_u32 {
        let noise = 1.0 + 0.002 * f64::from(round % 3);
        // The copy's times vary around their mean, so that the interval of the noise floor has a
        // width.
        let swing = 1.0 + 0.05 * f64::from(round % 2);
        let times = [("base", 1.0), ("slow", 1.03 * noise), ("base, second copy", floor * swing)];
        for (target, factor) in times {
            records.push(Record::Sample(Sample {
                run: "r".to_owned(),
                target: target.to_owned(),
                workload: "names".to_owned(),
                phase: "create".to_owned(),
                round,
                elapsed_ns: (1e9 * factor) as u64,
                ..Sample::default()
            }));
        }
    }
    records
}

/// A ratio is marked if it lies within the noise floor: the interval of the ratio between the two
/// copies of the baseline.
#[test]
fn difference_within_the_noise_floor_is_marked() {
    for (floor, doubted) in [(1.0, true), (0.9, false)] {
        let report = Report::new(&records(floor));
        let row = &report.groups[0].rows[1];
        let against = &row.against[0];
        assert_eq!(against.verdict, Verdict::Slower);
        assert_eq!(against.within_noise_floor, doubted, "{:?}", report.groups[0].noise_floor);
        let text = fslab_report::terminal(&report);
        let line = text.lines().find(|line| line.contains("slow")).unwrap();
        assert_eq!(line.contains('\u{2020}'), doubted, "{text}");
        for name in ["markdown", "html"] {
            let text = rendered(name, &report);
            // The legend contains the sign once.
            assert_eq!(text.matches('\u{2020}').count() > 1, doubted, "{name}:\n{text}");
        }
        let json: serde_json::Value = serde_json::from_str(&rendered("json", &report)).unwrap();
        let mark = &json["groups"][0]["rows"][1]["against"][0]["within_noise_floor"];
        assert_eq!(mark, doubted);
    }
}
