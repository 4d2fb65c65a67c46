//! Tests of reports on samples of several machines.

use fslab_report::Provenance;
use fslab_report::sample::{Record, Sample};
use fslab_report::{Gate, Outcome, Pooling, Report, Verdict};

/// Makes the records of a run on a machine, from the seconds of `base` and `other` in each round.
/// `None` stands for a missing sample.
fn run(machine: &str, rounds: &[(Option<f64>, Option<f64>)]) -> Vec<Record> {
    let mut records = vec![Record::Provenance(Box::new(Provenance {
        run: format!("run on {machine}"),
        machine: machine.to_owned(),
        baseline: "base".to_owned(),
        targets: vec!["base".to_owned(), "other".to_owned()],
        workloads: vec!["names".to_owned()],
        seed: 1,
        ..Provenance::default()
    }))];
    for (round, (base, other)) in rounds.iter().enumerate() {
        for (target, seconds) in [("base", base), ("other", other)] {
            let Some(seconds) = seconds else { continue };
            records.push(Record::Sample(Sample {
                run: format!("run on {machine}"),
                target: target.to_owned(),
                workload: "names".to_owned(),
                phase: "create".to_owned(),
                round: round as u32,
                elapsed_ns: (seconds * 1e9) as u64,
                ..Sample::default()
            }));
        }
    }
    records
}

/// Returns a small variation from round to round.
fn swing(round: usize) -> f64 {
    1.0 + 0.01 * (round % 3) as f64
}

/// On both machines `other` takes 1.2 times as long. Most samples of `other` are from the fast
/// machine, and most samples of the baseline are from the slow one. Combined figures would
/// therefore show it as faster (Simpson's paradox).
fn opposed() -> Vec<Record> {
    let fast: Vec<_> =
        (0..24).map(|round| ((round < 8).then_some(1.0), Some(1.2 * swing(round)))).collect();
    let slow: Vec<_> =
        (0..40).map(|round| (Some(10.0), (round < 8).then_some(12.0 * swing(round)))).collect();
    [run("fast", &fast), run("slow", &slow)].concat()
}

#[test]
fn ratios_are_formed_within_machines_and_figures_not_pooled() {
    let records = opposed();
    let mean = |target: &str| {
        let mut seconds = Vec::new();
        for record in &records {
            if let Record::Sample(sample) = record
                && sample.target == target
            {
                seconds.push(sample.seconds());
            }
        }
        seconds.iter().sum::<f64>() / seconds.len() as f64
    };
    assert!(mean("other") < 0.6 * mean("base"), "combined, it would be faster");
    let report = Report::new(&records);
    assert_eq!(report.machines, ["fast", "slow"]);
    let [base, other] = &report.groups[0].rows[..] else { panic!("two rows") };
    let against = &other.against[0];
    let ratio = against.ratio.unwrap();
    assert!((1.2..1.22).contains(&ratio.ratio), "{ratio:?}");
    assert_eq!((against.verdict, ratio.rounds), (Verdict::Slower, 16));
    for row in [base, other] {
        let [fast, slow] = &row.machines[..] else { panic!("a row for each machine") };
        assert!((1.0..1.3).contains(&fast.seconds.median), "{:?}", fast.seconds);
        assert!((10.0..12.3).contains(&slow.seconds.median), "{:?}", slow.seconds);
        assert_eq!(row.seconds.count, fast.seconds.count, "the figures are of one machine");
        assert_eq!(row.count(), fast.seconds.count + slow.seconds.count);
    }
    let of_machine = other.machines[1].against[0].ratio.unwrap();
    assert!((1.2..1.22).contains(&of_machine.ratio) && of_machine.rounds == 8, "{of_machine:?}");
}

#[test]
fn machines_have_equal_weight_in_a_ratio() {
    let few: Vec<_> = (0..6).map(|round| (Some(1.0), Some(1.2 * swing(round)))).collect();
    let many: Vec<_> = (0..60).map(|round| (Some(5.0), Some(4.75 * swing(round)))).collect();
    let report = Report::new(&[run("few", &few), run("many", &many)].concat());
    let ratio = report.groups[0].rows[1].against[0].ratio.unwrap();
    let expected = (1.2_f64 * 0.95).sqrt() * 1.01;
    assert!((ratio.ratio - expected).abs() < 0.003, "{ratio:?}, not {expected}");
}

/// Rounds have the same numbers on each machine, but pairs are formed only within machines.
#[test]
fn rounds_of_different_machines_are_not_paired() {
    let only_base: Vec<_> = (0..8).map(|_| (Some(1.0), None)).collect();
    let only_other: Vec<_> = (0..8).map(|_| (None, Some(2.0))).collect();
    let report = Report::new(&[run("one", &only_base), run("two", &only_other)].concat());
    let against = &report.groups[0].rows[1].against[0];
    assert_eq!((against.ratio, against.verdict), (None, Verdict::TooFew));
}

#[test]
fn reports_show_each_machine() {
    let report = Report::new(&opposed());
    for name in ["terminal", "markdown", "html"] {
        let rendered = (fslab_report::find(name).unwrap().render)(&report).unwrap();
        let text = String::from_utf8(rendered).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("2 machines (fast, slow)"), "{name}: {text}");
        assert!(text.contains("Each machine has the same weight"), "{name}: {text}");
        assert!(text.contains("12.1 s"), "{name} lacks the median of the slow machine: {text}");
    }
    let text = fslab_report::terminal(&report);
    let line = text.lines().find(|line| line.contains(" other ")).unwrap();
    assert!(line.contains("[1.2") && !line.contains(" s "), "times of two machines: {line}");
    assert!(text.contains("  on slow"), "{text}");
    // A report on one machine has no such lines.
    let alone = Report::new(&run("alone", &[(Some(1.0), Some(2.0)); 6]));
    assert!(alone.groups[0].rows.iter().all(|row| !row.is_pooled()));
    assert!(!fslab_report::terminal(&alone).contains("machines"));
}

/// Two machines with one name are different if their processors differ. A resumed run and a
/// rebooted machine are the same machine.
#[test]
fn machines_of_one_name_are_distinguished_by_processor() {
    let rounds = [(Some(1.0), Some(2.0)); 6];
    let mut records = [run("same", &rounds), run("same", &rounds)].concat();
    let rename = |records: &mut [Record], processor: &str, run: &str| {
        for record in records {
            match record {
                Record::Provenance(found) => {
                    (found.processor, found.run) = (processor.to_owned(), run.to_owned());
                    found.boot = Some(run.to_owned());
                }
                Record::Sample(sample) => run.clone_into(&mut sample.run),
                _ => {}
            }
        }
    };
    let half = records.len() / 2;
    rename(&mut records[..half], "one", "a");
    rename(&mut records[half..], "two", "b");
    assert_eq!(Report::new(&records).machines, ["same", "same (2)"]);
    rename(&mut records[half..], "one", "b");
    assert_eq!(Report::new(&records).machines, ["same"]);
}

/// Nodes on one kernel are one cluster: their pairs are used as if one machine had measured them.
#[test]
fn nodes_of_one_boot_are_pooled_as_one_machine() {
    let rounds = |ratio: f64| -> Vec<_> {
        (0..6).map(|round| (Some(1.0), Some(ratio * swing(round)))).collect()
    };
    let booted = |machine: &str, boot: &str, ratio: f64| {
        let mut records = run(machine, &rounds(ratio));
        if let Record::Provenance(found) = &mut records[0] {
            found.boot = Some(boot.to_owned());
        }
        records
    };
    let ratio = |boot: &str| {
        let records = [booted("n1", "x", 1.1), booted("n2", boot, 1.3)].concat();
        let report = Report::pooled(&records, &[], None, Pooling::Clusters).unwrap();
        let row = report.groups[0].rows.iter().find(|row| row.target == "other").unwrap();
        assert_eq!(row.machines.len(), 2);
        let gate = ["elapsed slower 5%".parse::<Gate>().unwrap()];
        let judged = report.judge(&gate).unwrap().remove(0);
        (row.against[0].ratio.unwrap(), judged.outcome)
    };
    let ((one, gate_of_one), (two, gate_of_two)) = (ratio("x"), ratio("y"));
    assert_eq!((gate_of_one, gate_of_two), (Outcome::Failed, Outcome::NotDecided));
    assert!((one.ratio - two.ratio).abs() < 1e-9, "{one:?} {two:?}");
    assert!(one.low > 1.0 && one.high < 1.5, "{one:?}");
    // Two machines reveal little about others: Student's interval of two means is wide.
    assert!(two.low < 1.0 && two.high > 1.5, "{two:?}");
}
