//! Tests of gates, and of metrics other than the time.

use fslab_report::sample::{Better, OwnMetric, Record, Sample};
use fslab_report::{Gate, Outcome, Provenance, Report};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Makes rounds of two targets. The second takes `times` as long and makes correspondingly fewer
/// transactions. The noise has a standard deviation of `noise`.
fn records(rounds: u32, times: f64, noise: f64, seed: u64) -> Vec<Record> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut noisy = || {
        let sum: f64 = (0..12).map(|_| random.random::<f64>()).sum();
        (noise * (sum - 6.0)).exp()
    };
    let provenance = Provenance {
        run: "run".to_owned(),
        baseline: "base".to_owned(),
        targets: vec!["base".to_owned(), "other".to_owned()],
        seed,
        ..Provenance::default()
    };
    let mut records = vec![Record::Provenance(Box::new(provenance))];
    for round in 0..rounds {
        for (target, level) in [("base", 1.0), ("other", times)] {
            let seconds = level * noisy();
            let metric = OwnMetric {
                name: "tps".to_owned(),
                value: 100.0 / seconds,
                unit: "1/s".to_owned(),
                better: Better::More,
            };
            records.push(Record::Sample(Sample {
                run: "run".to_owned(),
                target: target.to_owned(),
                workload: "w".to_owned(),
                phase: "run".to_owned(),
                round,
                operations: 10,
                elapsed_ns: (seconds * 1e9) as u64,
                user_ns: 5_000_000,
                metrics: vec![metric],
                ..Sample::default()
            }));
        }
    }
    records
}

fn outcomes(report: &Report, gate: &str) -> Vec<Outcome> {
    let gates: Vec<Gate> = vec![gate.parse().unwrap()];
    report.judge(&gates).unwrap().into_iter().map(|one| one.outcome).collect()
}

#[test]
fn gate_fails_only_if_the_whole_interval_exceeds_its_limit() {
    use Outcome::{Failed, NotDecided, Passed};
    let slower = Report::new(&records(10, 1.10, 0.01, 1));
    for (gate, expected) in [
        ("elapsed slower 5%", Failed),
        ("run.elapsed slower 5 %", Failed),
        ("w.run.elapsed on other worse 5%", Failed),
        ("elapsed slower 20%", Passed),
        ("elapsed slower 10%", NotDecided),
        ("elapsed faster 0%", Passed),
        // Less is worse for a rate.
        ("tps worse 5%", Failed),
        ("tps less 5%", Failed),
        ("tps more 5%", Passed),
        // Both take the same user time.
        ("user worse 1%", Passed),
    ] {
        assert_eq!(outcomes(&slower, gate), [expected], "{gate}");
    }
    let faster = Report::new(&records(10, 0.9, 0.01, 2));
    assert_eq!(outcomes(&faster, "elapsed slower 5%"), [Passed]);
    assert_eq!(outcomes(&faster, "elapsed faster 5%"), [Failed]);
    assert_eq!(outcomes(&faster, "tps worse 5%"), [Passed]);
}

#[test]
fn gate_without_enough_rounds_does_not_pass() {
    let one_round = Report::new(&records(1, 1.5, 0.01, 3));
    assert_eq!(outcomes(&one_round, "elapsed slower 5%"), [Outcome::NotMeasured]);
}

#[test]
fn unmatched_and_invalid_gates_are_refused() {
    let report = Report::new(&records(3, 1.0, 0.01, 4));
    let refused = |gate: &str| report.judge(&[gate.parse().unwrap()]).unwrap_err().to_string();
    assert!(refused("rum.elapsed slower 5%").contains("nearest: `run.elapsed`"));
    assert!(refused("elapsed on othr slower 5%").contains("nearest: `other`"));
    for wrong in ["", "elapsed", "elapsed slower", "elapsed slower 5", "elapsed odd 5%", "5%"] {
        assert!(wrong.parse::<Gate>().is_err(), "{wrong}");
    }
    assert!("elapsed slower -1%".parse::<Gate>().unwrap_err().contains("from 0 % to 1000 %"));
}

/// A gate of 0 % fails for about 2.5 % of 500 comparisons of equal targets, because their interval
/// lies above 1 by chance. A gate of 1 % fails for fewer of them.
#[test]
fn equal_targets_rarely_fail_a_gate() {
    let failed = |gate: &str| {
        let fails = |seed: &u64| {
            let report = Report::new(&records(12, 1.0, 0.01, *seed));
            outcomes(&report, gate) == [Outcome::Failed]
        };
        (10_000..10_500).filter(fails).count()
    };
    let at_once = failed("elapsed slower 0%");
    assert!((4..=25).contains(&at_once), "{at_once} of 500");
    let beyond = failed("elapsed slower 1%");
    assert!(beyond <= 2, "{beyond} of 500");
}

#[test]
fn gate_over_many_rows_raises_no_extra_false_alarms() {
    let gate: Gate = "elapsed slower 0%".parse().unwrap();
    let alarm = |seed: &u64| {
        let mut all = Vec::new();
        for part in 0..10 {
            for record in records(12, 1.0, 0.01, seed * 10 + part) {
                match record {
                    Record::Sample(sample) => {
                        all.push(Record::Sample(Sample { workload: format!("w{part}"), ..sample }))
                    }
                    other if part == 0 => all.push(other),
                    _ => {}
                }
            }
        }
        let judged = Report::new(&all).judge(std::slice::from_ref(&gate)).unwrap();
        assert_eq!(judged.len(), 10);
        judged.iter().any(|one| one.outcome == Outcome::Failed)
    };
    let alarms = (2_000..2_100).filter(alarm).count();
    assert!(alarms <= 9, "{alarms} of 100");
}

#[test]
fn junit_has_a_case_for_each_row() {
    let report = Report::new(&records(10, 1.10, 0.01, 1));
    let gates = ["elapsed slower 5%", "elapsed slower 20%", "elapsed slower 10%"];
    let gates: Vec<Gate> = gates.iter().map(|gate| gate.parse().unwrap()).collect();
    let text = fslab_report::junit("a <plan>\u{1}", &report.judge(&gates).unwrap());
    assert!(text.contains("name=\"a &lt;plan&gt;\u{fffd}\" tests=\"3\" failures=\"1\""), "{text}");
    assert!(text.contains("skipped=\"1\""), "{text}");
    for part in
        ["<failure message=\"w, run on other: elapsed: 1.", "<skipped message=\"not decided"]
    {
        assert_eq!(text.matches(part).count(), 1, "{part}: {text}");
    }
}

#[test]
fn dashboards_get_one_file_per_direction() {
    let report = Report::new(&records(10, 1.10, 0.01, 1));
    let names = |renderer: &str| -> Vec<String> {
        let bytes = (fslab_report::find(renderer).unwrap().render)(&report).unwrap();
        let list: Vec<serde_json::Value> = serde_json::from_slice(&bytes).unwrap();
        assert!(list.iter().all(|one| one["value"].is_f64() && one["unit"].is_string()));
        list.into_iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("bigger-is-better"), ["w, run on base: tps", "w, run on other: tps"]);
    let smaller = names("smaller-is-better");
    assert!(smaller.contains(&"w, run on other: elapsed".to_owned()), "{smaller:?}");
    assert!(smaller.contains(&"w, run on other: user".to_owned()), "{smaller:?}");
    assert!(!smaller.iter().any(|name| name.ends_with("tps")), "{smaller:?}");
}

/// The verdict on a metric states the direction of the difference, and whether this is better.
#[test]
fn own_metrics_are_shown_with_their_verdict() {
    let text = fslab_report::terminal(&Report::new(&records(10, 1.10, 0.01, 1)));
    let line = text.lines().find(|line| line.contains("other") && line.contains("1/s")).unwrap();
    assert!(line.contains("less: worse"), "{line}");
}
