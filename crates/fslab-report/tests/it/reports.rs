//! Tests of reports made only from samples: their content, and a page that needs no network.

use fslab_report::Provenance;
use fslab_report::sample::{
    Cache, CacheState, Device, End, EndReason, Note, NoteKind, Record, Sample, TargetRecord,
    ThreadTimes, of_threads,
};
use fslab_report::{Report, Verdict};

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

/// Makes a sample with about this time in milliseconds. One kind of noise is the same for all
/// targets of a round, another differs between targets.
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

pub fn records() -> Vec<Record> {
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
                    sample.contaminated = Some("other programs".to_owned());
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
    let disturbed = "6 of 60 samples were disturbed by other work on the machine; they are used";
    let text = fslab_report::terminal(&report).replace('\n', " ");
    assert!(text.contains(&format!("{disturbed}.")), "{text}");
    let page = fslab_report::html(&report).unwrap();
    assert!(page.contains(&format!("{disturbed}, and are hollow dots in the charts")), "{page}");
    let shape: Vec<_> = report.groups.iter().map(|g| (g.size_bytes, g.is_sum)).collect();
    assert_eq!(shape, [(None, true), (Some(0), false), (Some(1024), false)]);
    let [base, slow, same] = &report.groups[0].rows[..] else { panic!("three rows") };
    assert!(base.against[0].verdict == Verdict::Baseline && base.against[0].ratio.is_none());
    let ratio = slow.against[0].ratio.unwrap();
    assert!((2.4..2.6).contains(&ratio.ratio), "{ratio:?}");
    assert!((ratio.low..=ratio.high).contains(&2.5), "{ratio:?}");
    assert_eq!(slow.against[0].verdict, Verdict::Slower);
    let why = &slow.against[0].why;
    assert!(why.iter().any(|why| why == "3.10\u{d7} the device writes"), "{why:?}");
    assert_eq!(same.against[0].verdict, Verdict::NotShown, "{:?}", same.against[0].ratio);
    assert!(same.against[0].why.is_empty());
    assert_eq!(slow.operations, 20, "a sum covers both sizes");
}

/// Two targets take 2.5 times as long as the baseline. For one, the times of its thread show a
/// longer wait, and then longer use of a processor. For the other, these times are unknown.
#[test]
fn cause_of_a_difference_is_named_if_the_times_of_the_thread_prove_it() {
    let mut records = vec![provenance()];
    for round in 0..10 {
        for (target, milliseconds, share) in
            [("base", 10.0, Some(0.9)), ("slow", 25.0, Some(0.36)), (MALICE, 25.0, None)]
        {
            let mut sample = sample(target, round, milliseconds, None);
            sample.thread_times = share.map(|share| running(&sample, share)).into_iter().collect();
            records.push(Record::Sample(sample));
        }
    }
    let causes = |records: &[Record]| -> Vec<Option<String>> {
        let report = Report::new(records);
        report.groups[0].rows.iter().map(|row| row.against[0].cause.clone()).collect()
    };
    let [None, Some(cause), None] = &causes(&records)[..] else { panic!("a cause for one row") };
    let expected = "because the workload waited longer for a daemon, a device or a lock \
                    (if this time were that of the baseline, the ratio would be 1.00\u{d7} [";
    assert!(cause.starts_with(expected), "{cause}");
    let page = fslab_report::html(&Report::new(&records)).unwrap();
    assert!(page.contains("\u{d7} as long, because the workload waited longer"));
    for record in &mut records {
        if let Record::Sample(sample) = record
            && sample.target == "slow"
        {
            sample.thread_times = vec![running(sample, 0.9)];
        }
    }
    let [None, Some(cause), None] = &causes(&records)[..] else { panic!("a cause for one row") };
    assert!(cause.starts_with("because the workload used a processor longer"), "{cause}");
    let one = records.iter_mut().find_map(|record| match record {
        Record::Sample(sample) if sample.target == "slow" => Some(sample),
        _ => None,
    });
    one.unwrap().thread_times.clear();
    assert_eq!(causes(&records), [None, None, None], "the times of one round are unknown");
}

/// Returns the times of a thread that runs for a share of a sample's time.
fn running(sample: &Sample, share: f64) -> ThreadTimes {
    let running_ns = (sample.elapsed_ns as f64 * share) as u64;
    ThreadTimes { kind: "workload".to_owned(), threads: 1, running_ns, queued_ns: 0 }
}

/// Any target, or several targets at once, may be the baseline. If target and baseline are
/// exchanged, the ratio becomes its reciprocal.
#[test]
fn one_report_compares_against_several_baselines() {
    let records = records();
    let baselines = ["slow".to_owned(), "base".to_owned()];
    let report = Report::against(&records, &baselines, None).unwrap();
    let [base, slow, _] = &report.groups[0].rows[..] else { panic!("three rows") };
    let (there, back) = (base.against[0].ratio.unwrap(), slow.against[1].ratio.unwrap());
    assert!((there.ratio * back.ratio - 1.0).abs() < 1e-12);
    assert_eq!(base.against[0].verdict, Verdict::Faster);
    assert_eq!(slow.against[0].verdict, Verdict::Baseline);
    let text = fslab_report::terminal(&report);
    assert!(text.contains("against slow") && text.contains("against base"), "{text}");
    let page = fslab_report::html(&report).unwrap();
    assert!(page.contains("id=\"baseline\"") && page.contains("ratios to <b>slow</b>"));
    let error = Report::against(&records, &["bse".to_owned()], None).unwrap_err().to_string();
    assert!(error.contains("no target is named `bse`; nearest: `base`"), "{error}");
}

/// Among many comparisons of equal targets some intervals exclude 1 by chance. Holm's correction
/// prevents the verdict "faster" or "slower"; such rows are marked as possibly by chance.
#[test]
fn chance_differences_among_many_comparisons_are_not_shown() {
    let mut records = vec![provenance()];
    let mut random = 12_345_u64;
    let mut noise = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 40) as f64 / f64::from(1 << 24) - 0.5
    };
    for round in 0..10 {
        for workload in 0..60 {
            for target in ["base", "slow"] {
                let mut sample = sample(target, round, 10.0, None);
                sample.workload = format!("w{workload}");
                sample.elapsed_ns = (1e7 * (1.0 + 0.1 * noise())) as u64;
                records.push(Record::Sample(sample));
            }
        }
    }
    let report = Report::new(&records);
    let verdicts: Vec<Verdict> =
        report.groups.iter().map(|group| group.rows[1].against[0].verdict).collect();
    let count = |wanted: Verdict| verdicts.iter().filter(|verdict| **verdict == wanted).count();
    assert_eq!(count(Verdict::Slower) + count(Verdict::Faster), 0, "{verdicts:?}");
    assert!((1..=10).contains(&count(Verdict::Alone)), "{verdicts:?}");
    let overall = report.overall[0][1].unwrap();
    assert!(overall.count == 60 && (0.98..1.02).contains(&overall.mean), "{overall:?}");
}

#[test]
fn terminal_marks_differences_that_are_not_shown() {
    let text = fslab_report::terminal(&Report::new(&records()));
    assert!(text.contains("LEFT OUT gone"), "{text}");
    let line = |target: &str| {
        text.lines().find(|line| line.contains(target) && line.contains('[')).unwrap()
    };
    assert!(!line("slow").contains('~'), "{text}");
    assert!(line("alert").contains('~'), "{text}");
    assert!(text.contains("cold: 0 of 10 proven"), "{text}");
    assert!(text.contains("6 of 60 samples"), "{text}");
}

/// A report states whether file systems were on images or on devices.
#[test]
fn the_terminal_names_images_and_devices() {
    let line = |loops: &[Option<bool>]| {
        let mut records = records();
        records.remove(1);
        let target = |direct: &Option<bool>| {
            let (name, mkfs) = (format!("{direct:?}"), Some("mkfs.ext4".to_owned()));
            let loop_direct_io = *direct;
            Record::Target(TargetRecord { name, mkfs, loop_direct_io, ..Default::default() })
        };
        records.splice(1..1, loops.iter().map(target));
        let text = fslab_report::terminal(&Report::new(&records));
        text.lines()
            .find(|line| line.contains("used a new file system"))
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(line(&[]), "");
    for (loops, places) in [
        (&[Some(true)][..], "on images of 1 GiB"),
        (&[None], "on devices"),
        (&[Some(false), None], "on images of 1 GiB and on devices"),
    ] {
        assert_eq!(line(loops), format!("Each run used a new file system, {places}."));
    }
}

#[test]
fn the_terminal_names_the_targets_on_copies_of_an_image() {
    let mut records = records();
    let made = |name: &str, copied_bytes| {
        let (name, mkfs) = (name.to_owned(), Some("mkfs.ext4".to_owned()));
        let loop_direct_io = Some(true);
        Record::Target(TargetRecord {
            name,
            mkfs,
            loop_direct_io,
            copied_bytes,
            ..Default::default()
        })
    };
    records.splice(1..1, [made("aged", Some(64 << 20)), made("new", None)]);
    let text = fslab_report::terminal(&Report::new(&records));
    assert!(text.contains("Each run on aged used a new copy of its image of 64 MiB.\n"), "{text}");
    assert!(
        text.contains("Each other run used a new file system, on images of 1 GiB.\n"),
        "{text}"
    );
}

/// Makes a report that is judged by a margin. Checks that a margin in the plan and one given for
/// the report have the same effect.
fn with_margin(margin: &str) -> Report {
    let mut records = records();
    let Record::Provenance(provenance) = &mut records[0] else { panic!("a provenance") };
    provenance.margins.all = Some(margin.parse().unwrap());
    let planned = Report::new(&records);
    let given = Report::against(&self::records(), &[], Some(margin.parse().unwrap())).unwrap();
    assert_eq!(fslab_report::json(&planned).unwrap(), fslab_report::json(&given).unwrap());
    planned
}

/// With a margin, no report says "no difference shown": a row is equal, slower, or not decided
/// because its interval is too wide.
#[test]
fn rows_are_judged_by_the_margin_of_the_plan() {
    let rendered = |name: &str, report: &Report| {
        String::from_utf8((fslab_report::find(name).unwrap().render)(report).unwrap()).unwrap()
    };
    for (margin, verdict, words) in [
        ("5 %", Verdict::Equal, "equal within 5 %"),
        ("at most 5 % slower", Verdict::AtMostSlower, "at most 5 % slower"),
        ("0.01 %", Verdict::NotDecided, "not decided whether equal within 0.01 %"),
    ] {
        let report = with_margin(margin);
        let [base, slow, same] = &report.groups[0].rows[..] else { panic!("three rows") };
        let found = [base, slow, same].map(|row| row.against[0].verdict);
        assert_eq!(found, [Verdict::Baseline, Verdict::Slower, verdict], "{margin}");
        for name in ["terminal", "markdown", "html"] {
            let text = rendered(name, &report);
            assert!(text.contains(words), "{name} lacks {words:?}:\n{text}");
            assert!(!text.contains("no difference shown"), "{name}: {margin}");
        }
        let json: serde_json::Value = serde_json::from_str(&rendered("json", &report)).unwrap();
        let against = &json["groups"][0]["rows"][2]["against"][0];
        assert_eq!(against["verdict"], serde_json::to_value(verdict).unwrap());
        assert_eq!(against["margin"], margin);
    }
}

#[test]
fn page_escapes_text_and_makes_no_network_requests() {
    let page = fslab_report::html(&Report::new(&records())).unwrap();
    assert!(!page.contains(MALICE), "unescaped");
    assert_eq!(page.matches("<script").count(), 1, "only its own script");
    for reference in ["http:", "https:", "url(", "@import", " src=", "<link", "<img", "<iframe"] {
        assert!(!page.contains(reference), "{reference} in the page");
    }
    assert!(page.contains("default-src 'none'"));
    for part in [
        "<svg",
        "class=\"hole\"",
        "<details class=\"data\">",
        "\u{25b2} 2.5",
        "fslab compare --seed 5",
        "3.10\u{d7} the device writes",
        "Left out: gone",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    // Times are drawn on two axes, linear and logarithmic: 3 targets x 10 rounds for the sum, and 3
    // x 10 x 2 for the sizes. The 2 x 10 ratios are drawn once. Each disturbed sample, 1 in 10,
    // also has a hole, which is drawn like a dot.
    let dots = 2 * (30 + 60) + 20;
    assert_eq!(page.matches("h0").count(), dots + dots / 10);
}

/// A killed run, one without a baseline, and one with a single round can be reported too.
#[test]
fn partial_samples_make_a_report() {
    let whole = records();
    for count in [1, 2, 4, 7] {
        let report = Report::new(&whole[..count]);
        assert!(report.end.is_none());
        assert!(fslab_report::html(&report).unwrap().contains("the run did not finish"));
        assert!(fslab_report::terminal(&report).contains("did not finish"));
        fslab_report::json(&report).unwrap();
    }
    let without =
        whole.into_iter().filter(|r| !matches!(r, Record::Sample(s) if s.target == "base"));
    let report = Report::new(&without.collect::<Vec<_>>());
    assert!(report.groups.iter().flat_map(|g| &g.rows).all(|row| row.against[0].ratio.is_none()));
    fslab_report::html(&report).unwrap();
}

#[test]
fn records_round_trip_through_json() {
    for record in records() {
        let line = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), record);
    }
}

/// Runs of one plan and seed on one machine are one campaign. Their rounds are paired, even if each
/// run has only one of the targets. Differences between the runs are reported.
#[test]
fn runs_are_merged_and_their_differences_named() {
    let split = |run: &str, target: &str, kernel: &str| {
        let Record::Provenance(mut provenance) = provenance() else { panic!("a provenance") };
        provenance.run = run.to_owned();
        provenance.kernel = kernel.to_owned();
        let mut records = vec![Record::Provenance(provenance)];
        for round in 0..10 {
            let time = if target == "slow" { 25.0 } else { 10.0 };
            let sample = Sample { run: run.to_owned(), ..sample(target, round, time, None) };
            records.push(Record::Sample(sample));
        }
        records
    };
    let first = split("a", "base", "Linux 6.1");
    let records = [first.clone(), split("b", "slow", "Linux 6.9")].concat();
    let report = Report::new(&records);
    let slow = report.groups[0].rows.iter().find(|row| row.target == "slow").unwrap();
    assert_eq!(slow.against[0].verdict, Verdict::Slower);
    assert_eq!(report.further_runs.len(), 1);
    let named = report.notes.iter().any(|note| {
        note.text.contains("kernel") && note.text.contains("6.1") && note.text.contains("6.9")
    });
    assert!(named, "{:?}", report.notes);
    // Samples that are given twice are used once.
    let twice = Report::new(&[first.clone(), first].concat());
    assert_eq!(twice.samples, 10);
    assert!(twice.notes.iter().any(|note| note.text.contains("given twice")));
}

/// The report uses the last attempt of a block. It states only the number of samples of earlier
/// attempts.
#[test]
fn only_the_last_attempt_of_a_block_is_used() {
    let mut records = records();
    let again: Vec<Record> = records
        .iter()
        .filter_map(|record| match record {
            Record::Sample(sample) if sample.round == 3 => {
                let contaminated = None;
                Some(Record::Sample(Sample { attempt: 1, contaminated, ..sample.clone() }))
            }
            _ => None,
        })
        .collect();
    records.extend(again);
    let report = Report::new(&records);
    assert_eq!((report.samples, report.superseded, report.contaminated), (60, 6, 0));
}

/// The order of rows and phases follows from plan and workload, not from the order of samples.
#[test]
fn the_order_of_samples_does_not_matter() {
    let records = records();
    let mut samples: Vec<Record> =
        records.iter().filter(|record| matches!(record, Record::Sample(_))).cloned().collect();
    samples.reverse();
    let shape = |records: &[Record]| -> Vec<(String, Option<u64>, Vec<String>)> {
        let groups = Report::new(records).groups;
        let rows =
            |group: &fslab_report::Group| group.rows.iter().map(|row| row.target.clone()).collect();
        groups.iter().map(|group| (group.phase.clone(), group.size_bytes, rows(group))).collect()
    };
    let reversed = [vec![provenance()], samples].concat();
    assert_eq!(shape(&records), shape(&reversed));
}

fn rendered(name: &str) -> String {
    let renderer = fslab_report::find(name).unwrap();
    String::from_utf8((renderer.render)(&Report::new(&records())).unwrap()).unwrap()
}

#[test]
fn markdown_escapes_text_from_plans() {
    let text = rendered("markdown");
    assert!(!text.contains(MALICE) && !text.contains("<script"), "{text}");
    assert!(text.contains("| file-copy | write, all sizes | 1 | 2.5"), "{text}");
    assert!(text.contains("| ~ |"), "{text}");
}

#[test]
fn csv_has_a_line_for_each_sample() {
    let text = rendered("csv");
    let mut lines = text.split("\r\n");
    let header = lines.next().unwrap();
    assert!(header.starts_with("run,target,workload,phase,size_bytes,round,"), "{header}");
    assert_eq!(lines.filter(|line| !line.is_empty()).count(), 60);
    assert!(text.contains("\"<script>alert('x')</script> & \"\"more\"\"\""), "{text}");
}

/// With thirty workloads on eight targets, the terminal shows an overview and the page folds
/// workloads.
#[test]
fn a_large_report_stays_readable() {
    let report = Report::new(&large());
    let text = fslab_report::terminal(&report);
    let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(text.lines().count() < 130, "{} lines", text.lines().count());
    assert!(longest < 200, "{longest} columns");
    let page = fslab_report::html(&report).unwrap();
    assert!(page.len() < 6 << 20, "{} bytes", page.len());
    assert_eq!(page.matches("<details class=\"workload\"").count(), 30);
    assert!(!page.contains(" open><summary>") && page.contains("id=\"find\""));
}

/// Makes the records of thirty workloads with two phases, on eight targets.
pub fn large() -> Vec<Record> {
    let Record::Provenance(mut provenance) = provenance() else { panic!("a provenance") };
    provenance.plan_name = "Thirty workloads on eight targets".to_owned();
    provenance.targets = (0..8).map(|target| format!("target number {target}")).collect();
    provenance.baseline = "target number 0".to_owned();
    provenance.workloads = (0..30).map(|workload| format!("workload-{workload}")).collect();
    let mut records = vec![Record::Provenance(provenance.clone())];
    for (index, workload) in provenance.workloads.iter().enumerate() {
        for (place, target) in provenance.targets.iter().enumerate() {
            for (phase, round) in (0..20).map(|number| (["read", "write"][number % 2], number / 2))
            {
                let time = 10.0 + (index * place % 7) as f64;
                let sample = Sample {
                    workload: workload.clone(),
                    phase: phase.to_owned(),
                    ..sample(target, round as u32, time, None)
                };
                records.push(Record::Sample(sample));
            }
        }
    }
    records
}

/// Samples of every earlier format can be read.
#[test]
fn samples_of_format_1_are_read() {
    let path = std::path::Path::new("testdata/samples-1.jsonl");
    let records = fslab_report::sample::read(path).unwrap();
    let report = Report::new(&records);
    assert_eq!((report.samples, report.superseded), (2, 0));
    let row = &report.groups[0].rows[1];
    assert_eq!((row.target.as_str(), row.proven), ("xfs", 1));
    for text in [fslab_report::terminal(&report), fslab_report::html(&report).unwrap()] {
        assert!(text.contains("too few rounds: no ratio is shown"), "{text}");
    }
}

/// Older samples have one histogram of reads and writes together; newer ones have one for each
/// direction. Reports show either kind.
#[test]
fn latencies_of_old_and_new_samples_are_shown() {
    for (latencies, operations) in [
        (r#"[{"operation":"request","count":9,"p99_ns":5000}]"#, vec!["request"]),
        (
            r#"[{"operation":"read","count":7,"p99_ns":5000},
                {"operation":"write","count":2,"p99_ns":90000}]"#,
            vec!["read", "write"],
        ),
    ] {
        let line = format!(
            r#"{{"record":"sample","run":"0123abcd","target":"base","workload":"random-io",
            "phase":"random","elapsed_ns":5000000,"latencies":{latencies}}}"#
        );
        let sample: Record = serde_json::from_str(&line).unwrap();
        let report = Report::new(&[provenance(), sample]);
        let found = &report.groups[0].rows[0].latencies;
        let names: Vec<&str> = found.iter().map(|figures| &*figures.operation).collect();
        assert_eq!(names, operations);
        let page = fslab_report::html(&report).unwrap();
        assert!(operations.iter().all(|name| page.contains(&format!(">{name}</td>"))), "{page}");
        let json = fslab_report::json(&report).unwrap();
        let has = |name: &&str| json.contains(&format!("\"operation\": \"{name}\""));
        assert!(operations.iter().all(has), "{json}");
    }
}

/// A sweep over threads has a phase for each number of threads. One chart with all of them is shown
/// with the first phase.
#[test]
fn thread_sweep_has_a_phase_per_count_and_one_chart() {
    let mut records = vec![provenance()];
    for round in 0..6 {
        for threads in [4, 1, 2] {
            for operation in ["create", "stat"] {
                let one = sample("base", round, 40.0 / f64::from(threads), None);
                let phase = of_threads(operation, threads);
                records.push(Record::Sample(Sample { phase, threads: Some(threads), ..one }));
            }
        }
    }
    let report = Report::new(&records);
    let phases: Vec<_> = report.phases().map(|group| group.phase.as_str()).collect();
    assert_eq!(phases.len(), 6, "{phases:?}");
    assert!(phases.contains(&"create, 1 thread") && phases.contains(&"stat, 4 threads"));
    let operations: Vec<_> = report.phases().map(|group| group.operation()).collect();
    assert_eq!(operations.iter().filter(|operation| **operation == "create").count(), 3);
    let page = (fslab_report::find("html").unwrap().render)(&report).unwrap();
    let page = String::from_utf8(page).unwrap();
    assert_eq!(page.matches("operations a second by the number of threads").count(), 2);
}
