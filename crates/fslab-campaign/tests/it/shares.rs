//! Tests of shares: all shares together equal the serial comparison, and a share that is run twice
//! is used once.

use std::fs;
use std::path::Path;

use fslab_campaign::{Done, Error, HostLock, State};
use fslab_report::sample::{self, Record};
use fslab_report::{Pooling, Report};
use fslab_sys::signals::Interrupt;

use crate::support::{
    CELLS, PLAN, Silent, counted, create, lock, parse, places, run, serial, share, summary,
};

#[test]
fn shares_together_equal_the_serial_comparison() {
    let scratch = tempfile::tempdir().unwrap();
    let campaign = create(&scratch.path().join("run"), PLAN).unwrap();
    for text in ["3/3", "1/3", "2/3"] {
        run(&campaign, text, scratch.path()).unwrap().expect("samples");
    }
    let found = summary(&campaign);
    assert!(found.is_complete && found.cells == CELLS && found.missing == 0, "{found:?}");
    assert_eq!(counted(&campaign), serial(PLAN, scratch.path()));
}

/// The hidden second copy of the baseline has cells like every other target.
#[test]
fn the_second_copy_of_the_baseline_is_run_and_counted() {
    let scratch = tempfile::tempdir().unwrap();
    let text = PLAN.replace("noise_floor = false\n", "");
    let campaign = create(&scratch.path().join("run"), &text).unwrap();
    run(&campaign, "1/1", scratch.path()).unwrap();
    let found = summary(&campaign);
    assert!(found.is_complete && found.cells == CELLS / 2 * 3, "{found:?}");
    assert_eq!(counted(&campaign), serial(&text, scratch.path()));
}

/// Running the same share again measures nothing. If the number of shares changes, finished blocks
/// are still used.
#[test]
fn shares_run_twice_count_once() {
    let scratch = tempfile::tempdir().unwrap();
    let campaign = create(&scratch.path().join("run"), PLAN).unwrap();
    assert!(run(&campaign, "1/2", scratch.path()).unwrap().is_some());
    assert_eq!(run(&campaign, "1/2", scratch.path()).unwrap(), None);
    assert!(run(&campaign, "1/1", scratch.path()).unwrap().is_some());
    assert_eq!(run(&campaign, "2/2", scratch.path()).unwrap(), None);
    let found = summary(&campaign);
    assert!(found.is_complete && found.done + found.disturbed == CELLS, "{found:?}");
    assert_eq!(counted(&campaign), serial(PLAN, scratch.path()));
}

/// Two hosts run the same share at the same time. Each block is used once, and the report has as
/// many samples as a serial run.
#[test]
fn a_share_run_by_two_hosts_at_once_counts_once() {
    let scratch = tempfile::tempdir().unwrap();
    let campaign = create(&scratch.path().join("run"), PLAN).unwrap();
    let first = run(&campaign, "1/1", scratch.path()).unwrap().unwrap();
    // The file is moved away, so that the second host does not see it.
    let aside = scratch.path().join("aside");
    fs::rename(&first, &aside).unwrap();
    let second = run(&campaign, "1/1", scratch.path()).unwrap().expect("samples");
    fs::rename(&aside, &first).unwrap();
    [&first, &second].into_iter().for_each(|file| forget_interference(file));
    assert_eq!(State::of(&campaign).unwrap().attempts.len(), 2);
    assert_eq!(counted(&campaign), serial(PLAN, scratch.path()));
    let records = State::of(&campaign).unwrap().records().unwrap();
    let report = Report::pooled(&records, &[], None, Pooling::Clusters).unwrap();
    let samples: usize = places(&records).values().map(Vec::len).sum();
    assert_eq!((report.samples, report.superseded), (samples, 0));
    // Neither attempt has failed or disturbed cells, so the earlier one is used.
    let first = campaign_run(&first);
    let is_first = |record: &Record| match record {
        Record::Sample(sample) => sample.run == first,
        _ => true,
    };
    assert!(records.iter().all(is_first), "samples of the second attempt are used");
}

/// Removes the interference notes from samples, because they influence which attempt is used.
fn forget_interference(file: &Path) {
    let text = fs::read_to_string(file).unwrap();
    let lines = text.lines().map(|line| {
        let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
        record.as_object_mut().unwrap().remove("contaminated");
        format!("{record}\n")
    });
    fs::write(file, lines.collect::<String>()).unwrap();
}

/// Returns the name of the run that wrote a samples file.
fn campaign_run(file: &Path) -> String {
    let records = sample::read(file).unwrap();
    let Some(Record::Provenance(provenance)) = records.first() else { panic!("no provenance") };
    provenance.run.clone()
}

/// A host runs one share at a time, of any campaign. A second share is refused, or waits.
#[test]
fn second_share_on_a_host_is_refused_or_waits() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("host.lock");
    let held = lock(scratch.path());
    let refused = HostLock::take(Some(&path), None);
    assert!(matches!(refused, Err(Error::HostInUse { .. })), "{refused:?}");
    let interrupt = Interrupt::default();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| HostLock::take(Some(&path), Some(&interrupt)));
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(!waiting.is_finished(), "it did not wait");
        drop(held);
        waiting.join().unwrap().unwrap();
    });
}

/// Failed cells are listed with host and reason, and are run again only on request.
#[test]
fn failed_cells_are_listed_and_run_again_on_request() {
    let scratch = tempfile::tempdir().unwrap();
    let text = format!("{PLAN}[[workload]]\nname = \"command\"\ncommand = [\"false\"]\n");
    let campaign = create(&scratch.path().join("run"), &text).unwrap();
    run(&campaign, "1/1", scratch.path()).unwrap();
    let found = summary(&campaign);
    assert_eq!((found.failed, found.missing, found.is_complete), (8, 0, false), "{found:?}");
    let open = found.open.iter().find(|cell| cell.workload == "command").unwrap();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_eq!(open.host.as_deref(), Some(&*host));
    assert!(open.reason.as_deref().is_some_and(|reason| !reason.is_empty()), "{open:?}");
    assert_eq!(run(&campaign, "1/1", scratch.path()).unwrap(), None);
    let lock = lock(scratch.path());
    let mut again = share(&campaign, "1/1", scratch.path(), &lock);
    again.retry = true;
    assert!(matches!(again.run(&mut Silent).unwrap(), Done::Ran { .. }));
    // Cells that were done are not counted twice.
    let counted = counted(&campaign);
    assert!(counted.values().all(|samples| samples.len() == 1), "{counted:?}");
    let records = State::of(&campaign).unwrap().records().unwrap();
    let report = Report::pooled(&records, &[], None, Pooling::Clusters).unwrap();
    let notes: Vec<_> = report.notes.iter().map(|note| note.text.as_str()).collect();
    assert!(notes.iter().any(|note| note.contains("8 failed")), "{notes:?}");
}

#[test]
fn time_left_is_estimated_from_completed_cells() {
    let scratch = tempfile::tempdir().unwrap();
    let campaign = create(&scratch.path().join("run"), PLAN).unwrap();
    assert_eq!(summary(&campaign).time_left_seconds, None);
    run(&campaign, "1/2", scratch.path()).unwrap();
    let half = summary(&campaign).time_left_seconds.unwrap();
    assert!(half > 0.0, "{half}");
    run(&campaign, "2/2", scratch.path()).unwrap();
    assert_eq!(summary(&campaign).time_left_seconds, Some(0.0));
}

/// Opening a campaign returns the record that was created. A second creation in its directory is
/// refused, and a directory that is not a campaign can't be opened.
#[test]
fn campaign_is_created_once_and_can_be_opened() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("run");
    let made = create(&directory, PLAN).unwrap();
    let opened = fslab_campaign::Campaign::open(&directory).unwrap();
    assert_eq!(opened.frozen(), made.frozen());
    assert_eq!(opened.plan().rounds, parse(PLAN).rounds);
    assert!(matches!(create(&directory, PLAN), Err(Error::NotEmpty { .. })));
    let other = fslab_campaign::Campaign::open(scratch.path());
    assert!(matches!(other, Err(Error::NoCampaign { .. })), "{other:?}");
    let names: Vec<_> = fs::read_dir(scratch.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "the refused campaign left files: {names:?}");
}
