//! Reports from samples alone: what they say, and that the page asks nothing of any network.

use fslab_measure::provenance::Provenance;
use fslab_measure::report::{self, Report};
use fslab_measure::sample::{
    Cache, CacheState, Device, End, EndReason, Note, NoteKind, Record, Sample, TargetRecord,
};

const MALICE: &str = "<script>alert('x')</script> & \"more\"";

fn provenance() -> Record {
    Record::Provenance(Box::new(Provenance {
        run: "0123abcd".to_owned(),
        plan_name: MALICE.to_owned(),
        plan: format!("# {MALICE}"),
        command: "fslab compare --seed 5".to_owned(),
        baseline: "base".to_owned(),
        targets: vec!["base".to_owned(), "slow".to_owned(), MALICE.to_owned()],
        workloads: vec!["file-copy".to_owned()],
        seed: 5,
        rounds: 10,
        image_size: 1 << 30,
        ..Provenance::default()
    }))
}

/// A time in milliseconds with some noise that differs by round but not by target, and some that
/// differs by both.
fn sample(target: &str, round: u32, milliseconds: f64, size: Option<u64>) -> Sample {
    let common = 1.0 + 0.1 * f64::from(round % 3);
    let own = 1.0 + 0.005 * f64::from((round * 7 + target.len() as u32) % 5);
    Sample {
        run: "0123abcd".to_owned(),
        target: target.to_owned(),
        workload: "file-copy".to_owned(),
        phase: "write".to_owned(),
        size_bytes: size,
        round,
        operations: 10,
        bytes: 10 << 20,
        elapsed_ns: (milliseconds * common * own * 1e6) as u64,
        device: Some(Device { writes: 100, sectors_written: 20_480, ..Device::default() }),
        cache: Cache { asked: CacheState::Cold, ..Cache::default() },
        ..Sample::default()
    }
}

fn records() -> Vec<Record> {
    let mut records = vec![
        provenance(),
        Record::Target(TargetRecord { name: "base".to_owned(), ..TargetRecord::default() }),
        Record::Note(Note {
            kind: NoteKind::LeftOut,
            target: Some("gone".to_owned()),
            workload: None,
            text: MALICE.to_owned(),
        }),
    ];
    for round in 0..10 {
        for (target, milliseconds) in [("base", 10.0), ("slow", 25.0), (MALICE, 10.0)] {
            for size in [0, 1024] {
                let mut sample = sample(target, round, milliseconds, Some(size));
                if target == "slow" {
                    sample.device =
                        Some(Device { writes: 310, sectors_written: 20_480, ..Device::default() });
                }
                if round == 3 {
                    sample.contaminated = Some("other programmes".to_owned());
                }
                records.push(Record::Sample(sample));
            }
        }
    }
    records.push(Record::End(End { reason: EndReason::Finished, rounds: 10, elapsed_seconds: 9 }));
    records
}

#[test]
fn the_model_pairs_rounds_sums_sweeps_and_gives_reasons() {
    let report = Report::new(&records());
    assert_eq!((report.samples, report.contaminated), (60, 6));
    let shape: Vec<_> = report.groups.iter().map(|g| (g.size_bytes, g.is_sum)).collect();
    assert_eq!(shape, [(None, true), (Some(0), false), (Some(1024), false)]);
    let [base, slow, same] = &report.groups[0].rows[..] else { panic!("three rows") };
    assert!(base.is_baseline && base.ratio.is_none());
    let ratio = slow.ratio.unwrap();
    assert!(ratio.shows_difference() && (2.4..2.6).contains(&ratio.ratio), "{ratio:?}");
    assert!((ratio.low..=ratio.high).contains(&2.5), "{ratio:?}");
    assert!(slow.why.iter().any(|why| why == "3.10\u{d7} the device writes"), "{:?}", slow.why);
    assert!(!same.ratio.unwrap().shows_difference(), "{:?}", same.ratio);
    assert!(same.why.is_empty());
    assert_eq!(slow.operations, 20, "a sum holds both sizes");
}

#[test]
fn the_terminal_marks_what_is_not_shown() {
    let text = report::terminal(&Report::new(&records())).unwrap();
    assert!(text.contains("LEFT OUT gone"), "{text}");
    let line = |target: &str| {
        text.lines().find(|line| line.contains(target) && line.contains('[')).unwrap()
    };
    assert!(!line("slow").contains('~'), "{text}");
    assert!(line("alert").contains('~'), "{text}");
    assert!(text.contains("cold: 0 of 10 proven"), "{text}");
    assert!(text.contains("6 of 60 samples"), "{text}");
}

#[test]
fn the_page_escapes_everything_and_asks_nothing_of_a_network() {
    let page = report::html(&Report::new(&records())).unwrap();
    assert!(!page.contains(MALICE), "unescaped");
    assert_eq!(page.matches("<script").count(), 1, "only its own script");
    for reference in ["http:", "https:", "url(", "@import", " src=", "<link", "<img", "<iframe"] {
        assert!(!page.contains(reference), "{reference} in the page");
    }
    assert!(page.contains("default-src 'none'"));
    for part in [
        "<svg",
        "class=\"dot hollow\"",
        "<details>",
        "\u{25b2} 2.5",
        "fslab compare --seed 5",
        "3.10\u{d7} the device writes",
        "Left out: gone",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    // 3 targets x 10 rounds of the sum's times, 2 x 10 ratios, and the sweep's 3 x 10 x 2.
    assert_eq!(page.matches("<circle").count(), 30 + 20 + 60);
}

/// A run that was killed, one without a baseline and one with a single round are reported too.
#[test]
fn partial_samples_make_a_report() {
    let whole = records();
    for count in [1, 2, 4, 7] {
        let report = Report::new(&whole[..count]);
        assert!(report.end.is_none());
        assert!(report::html(&report).unwrap().contains("the run did not end"));
        assert!(report::terminal(&report).unwrap().contains("did not end"));
        report::json(&report).unwrap();
    }
    let without =
        whole.into_iter().filter(|r| !matches!(r, Record::Sample(s) if s.target == "base"));
    let report = Report::new(&without.collect::<Vec<_>>());
    assert!(report.groups.iter().flat_map(|g| &g.rows).all(|row| row.ratio.is_none()));
    report::html(&report).unwrap();
}

#[test]
fn records_round_trip_through_json() {
    for record in records() {
        let line = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), record);
    }
}
