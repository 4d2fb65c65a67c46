//! A share is killed at every cell: the next run completes it, and no block is used twice.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use fslab_campaign::{Campaign, State};
use fslab_compare::Observer;
use fslab_report::sample::Note;
use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::support::{CELLS, PLAN, counted, create, lock, run, serial, share, summary};

/// The environment variable with the number of the last cell and the campaign's directory. If it is
/// set, this program runs as the share to be killed.
const VARIABLE: &str = "FSLAB_TEST_CUT";

/// Kills this process with SIGKILL when the given number of cells has begun.
struct KilledAt(u64);

impl Observer for KilledAt {
    fn progress(&mut self, _done: u64, _total: u64, next: &str) {
        self.0 -= u64::from(!next.is_empty());
        if self.0 == 0 {
            let own: Pid = getpid();
            kill_process(own, Signal::KILL).unwrap();
        }
    }

    fn note(&mut self, _note: &Note) {}
}

/// Runs as the share to be killed, if this program was started for that.
#[test]
fn killed_share() {
    let Some(told) = std::env::var_os(VARIABLE) else { return };
    let told = told.into_string().unwrap();
    let (cell, directory) = told.split_once(' ').unwrap();
    let campaign = Campaign::open(Path::new(directory)).unwrap();
    let scratch = Path::new(directory).parent().unwrap();
    let lock = lock(scratch);
    let run = share(&campaign, "1/1", scratch, &lock);
    run.run(&mut KilledAt(cell.parse().unwrap())).unwrap();
}

fn run_until_killed(campaign: &Campaign, cell: usize) {
    let directory = campaign.directory().to_str().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "cuts::killed_share"])
        .env(VARIABLE, format!("{cell} {directory}"))
        .output()
        .unwrap();
    assert_eq!(output.status.signal(), Some(9), "{output:?}");
}

#[test]
fn a_share_killed_at_every_cell_is_resumed() {
    let scratch = tempfile::tempdir().unwrap();
    let expected = serial(PLAN, scratch.path());
    for cell in 1..=CELLS {
        let place = scratch.path().join(cell.to_string());
        std::fs::create_dir(&place).unwrap();
        let campaign = create(&place.join("run"), PLAN).unwrap();
        run_until_killed(&campaign, cell);
        let found = summary(&campaign);
        // Blocks have two cells, and only complete blocks are used.
        let whole = (cell - 1) / 2 * 2;
        assert_eq!(found.done + found.disturbed, whole, "cell {cell}: {found:?}");
        let is_reported = State::of(&campaign).unwrap().records().is_ok();
        assert_eq!(is_reported, whole > 0, "cell {cell}");
        run(&campaign, "1/1", &place).unwrap().expect("samples");
        assert!(summary(&campaign).is_complete, "cell {cell}");
        assert_eq!(counted(&campaign), expected, "cell {cell}");
    }
}

/// A campaign that is killed repeatedly still completes, and each block is used once.
#[test]
fn repeatedly_killed_share_completes_eventually() {
    let scratch = tempfile::tempdir().unwrap();
    let campaign = create(&scratch.path().join("run"), PLAN).unwrap();
    for _ in 0..CELLS / 2 - 1 {
        run_until_killed(&campaign, 3);
        let unended: usize = summary(&campaign).hosts.iter().map(|host| host.unended).sum();
        assert!(unended > 0, "killed attempts are shown");
    }
    run(&campaign, "1/1", scratch.path()).unwrap().expect("samples");
    assert_eq!(State::of(&campaign).unwrap().attempts.len(), CELLS / 2);
    assert_eq!(counted(&campaign), serial(PLAN, scratch.path()));
}
