//! Many programs that wait for recalls at a time.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fslab_vfs_testing::environment::number;
use rustix::process::{Pid, Signal, kill_process};

use crate::kept::kill_daemon;
use crate::support::{daemons_naming, fslab, require_mounting, run, soon};
use crate::tiering::{Tiered, noise};

/// Number of programs that read at a time; `FSLAB_TIER_READERS` replaces it.
const READERS: u64 = 1500;

/// Maximum number of threads of the daemon.
const THREADS_MAX: usize = 16;

/// A tier of offline files whose archive does not answer.
struct Stalled {
    tiered: Tiered,
    archive: String,
    /// The daemon of the mount over the archive.
    daemon: Pid,
    is_stopped: bool,
}

impl Stalled {
    fn new(files: u64, options: &[&str]) -> Self {
        let tiered = Tiered::mounted();
        fs::create_dir(tiered.path("d")).unwrap();
        fs::create_dir(tiered.beside("expected")).unwrap();
        for number in 0..files {
            let data = noise(number, 3000);
            fs::write(tiered.path("d").join(number.to_string()), &data).unwrap();
            fs::write(tiered.beside("expected").join(number.to_string()), &data).unwrap();
        }
        fs::write(tiered.path("resident"), "before").unwrap();
        let all = tiered.path("d");
        let all = all.to_str().unwrap();
        tiered.ok(&["archive", all]);
        tiered.ok(&["release", all]);
        tiered.umount();
        let archive = tiered.archive().to_str().unwrap().to_owned();
        let mounted = fslab(&["mount", "-l", "null", &archive, &archive]).output().unwrap();
        assert!(mounted.status.success());
        tiered.place().mount(&[&["-l", "tier:call-limit=0s"], options].concat());
        let found = daemons_naming(Path::new(&archive));
        let tier = daemons_naming(&tiered.place().point);
        let daemon = found.into_iter().find(|pid| !tier.contains(pid)).unwrap();
        let daemon = Pid::from_raw(daemon.cast_signed()).unwrap();
        kill_process(daemon, Signal::STOP).unwrap();
        Self { tiered, archive, daemon, is_stopped: true }
    }

    fn resume(&mut self) {
        if std::mem::take(&mut self.is_stopped) {
            kill_process(self.daemon, Signal::CONT).unwrap();
        }
    }

    /// Starts a program that compares a file with its bytes.
    fn reader(&self, number: u64) -> Child {
        let name = number.to_string();
        let mut compare = Command::new("cmp");
        compare.arg("-s").arg(self.tiered.path("d").join(&name));
        compare.arg(self.tiered.beside("expected").join(&name));
        compare.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// The programs that are listed as waiting.
    fn listed(&self) -> BTreeSet<u64> {
        let point = self.tiered.path("");
        let told = self.tiered.ok(&["queue", "--json", point.to_str().unwrap()]);
        let events = told.lines().map(|line| serde_json::from_str(line).unwrap());
        let pids = events.flat_map(|event: serde_json::Value| {
            let by = event.get("by").and_then(|by| by.as_array()).cloned().unwrap_or_default();
            by.into_iter().filter_map(|who| who.get("pid")?.as_u64())
        });
        pids.collect()
    }

    fn threads(&self) -> usize {
        let daemon = self.tiered.daemon();
        fs::read_dir(format!("/proc/{daemon}/task")).unwrap().count()
    }

    fn end(mut self, readers: Vec<Child>) {
        self.resume();
        for mut reader in readers {
            assert!(reader.wait().unwrap().success(), "wrong bytes or an error");
        }
        assert!(self.listed().is_empty());
        self.tiered.umount();
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        self.resume();
        let (code, said) = run(&["umount", "--lazy", &self.archive]);
        assert!(code == 0 || std::thread::panicking(), "{said}");
    }
}

fn kill(mut reader: Child) {
    kill_process(Pid::from_child(&reader), Signal::KILL).unwrap();
    assert!(!reader.wait().unwrap().success());
}

#[test]
fn many_waiting_programs_need_no_threads_and_hold_up_nobody() {
    require_mounting!();
    let count = number("FSLAB_TIER_READERS").unwrap_or(READERS);
    let stalled = Stalled::new(count, &[]);
    let mut readers: Vec<_> = (0..count).map(|number| stalled.reader(number)).collect();
    let pids: BTreeSet<_> = readers.iter().map(|reader| u64::from(reader.id())).collect();
    soon("all are listed", || stalled.listed() == pids);
    let threads = stalled.threads();
    assert!(threads <= THREADS_MAX, "{threads} threads");
    kill(readers.swap_remove(count as usize / 2));
    kill(readers.pop().unwrap());
    soon("the killed ones are not listed", || stalled.listed().len() == readers.len());
    let resident = stalled.tiered.path("resident");
    assert_eq!(fs::read(&resident).unwrap(), b"before");
    fs::write(&resident, "after").unwrap();
    fs::write(stalled.tiered.path("new"), "new").unwrap();
    assert_eq!(fs::read(&resident).unwrap(), b"after");
    stalled.end(readers);
}

#[test]
fn waiting_programs_wait_again_after_their_daemon_is_killed() {
    require_mounting!();
    let stalled = Stalled::new(40, &["-o", "keep=200"]);
    let mut readers: Vec<_> = (0..40).map(|number| stalled.reader(number)).collect();
    for _ in 0..3 {
        soon("all are listed", || stalled.listed().len() == readers.len());
        kill_daemon(stalled.tiered.place());
        kill(readers.pop().unwrap());
    }
    stalled.end(readers);
}
