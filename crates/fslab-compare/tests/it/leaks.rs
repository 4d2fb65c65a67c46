//! Tests that nothing remains mounted or attached after a run that was interrupted, killed or
//! panicked.
//!
//! A run that is to be killed is a separate process of this test program. An environment variable
//! makes the process run [`comparison_to_be_killed`].

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fslab_compare::remove_leftovers;
use fslab_sys::mounts;
use fslab_sys::signals::Interrupt;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Silent, TestHost, can_mount, directory_on_disk, has_program, run};

const VARIABLE: &str = "FSLAB_TEST_VICTIM";

/// A plan that takes so long that its run can be killed before it ends.
const PLAN: &str = r#"
name = "victim"
rounds = 1000
image_size = "320 MiB"
[[target]]
name = "layers"
filesystem = "ext4"
layers = ["stand-in"]
[[workload]]
name = "names"
files = 3000
"#;

/// Fails if a mount below the directory, or a loop device on an image below it, remains.
#[track_caller]
pub fn assert_nothing_left(directory: &Path) {
    let directory = directory.canonicalize().unwrap();
    assert_eq!(mounts_below(&directory), Vec::<PathBuf>::new(), "left mounted");
    // The kernel detaches a loop device when its last user has closed it, which may be a moment
    // later.
    let end = Instant::now() + Duration::from_secs(5);
    while !loops_below(&directory).is_empty() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(loops_below(&directory), Vec::<String>::new(), "left attached");
    let work = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name());
    let work: Vec<_> = work.filter(|n| n.to_string_lossy().starts_with("fslab-compare-")).collect();
    assert!(work.is_empty(), "left on disk: {work:?}");
}

fn mounts_below(directory: &Path) -> Vec<PathBuf> {
    let targets = mounts::list().unwrap().into_iter().map(|mount| mount.target);
    targets.filter(|target| target.starts_with(directory)).collect()
}

fn loops_below(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir("/sys/block").unwrap().map(|entry| entry.unwrap().path());
    entries
        .filter_map(|path| fs::read_to_string(path.join("loop/backing_file")).ok())
        .filter(|backing| Path::new(backing.trim()).starts_with(directory))
        .collect()
}

/// Runs the plan, if this program was started to be killed.
#[test]
fn comparison_to_be_killed() {
    let Some(directory) = std::env::var_os(VARIABLE) else { return };
    let interrupt = Interrupt::on_signals().unwrap();
    let outcome = run(PLAN, Path::new(&directory), &TestHost, interrupt, &mut Silent);
    outcome.unwrap();
}

/// A running comparison that is to be killed. Dropping it kills it in any case.
struct Victim(Child);

impl Victim {
    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Stops the process with all its threads.
    fn stop(&self) {
        self.send(Signal::STOP);
        while !self.is_at_rest() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether all threads are stopped or have exited.
    fn is_at_rest(&self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap();
        threads.map(|thread| thread.unwrap().path().join("stat")).all(|stat| {
            let Ok(stat) = fs::read_to_string(stat) else { return true };
            stat.rsplit(") ").next().unwrap().starts_with(['T', 'Z', 'X'])
        })
    }

    /// Waits until the process exits, and returns whether it was successful.
    fn wait(&mut self) -> bool {
        self.0.wait().unwrap().success()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        if let Err(error) = self.0.kill().and_then(|()| self.0.wait()) {
            eprintln!("can't end a victim: {error}");
        }
    }
}

/// Starts a victim and waits until it has mounted everything and written samples. The victim is
/// then stopped, so that everything remains mounted until it is killed or continued.
fn start(directory: &Path) -> Victim {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "leaks::comparison_to_be_killed"])
        .env(VARIABLE, directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut victim = Victim(child);
    let samples = fslab_compare::samples_path(directory);
    let full = directory.canonicalize().unwrap();
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        let runs = victim.0.try_wait().unwrap().is_none();
        assert!(runs && Instant::now() < end, "the victim does not start its work");
        let sampled = fs::read_to_string(&samples).is_ok_and(|text| text.contains("\"sample\""));
        if sampled && mounts_below(&full).len() == 2 {
            victim.stop();
            if mounts_below(&full).len() == 2 {
                return victim;
            }
            victim.send(Signal::CONT);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn ready(what: &str) -> bool {
    can_mount(what) && has_program(what, "bindfs")
}

#[test]
fn sigint_and_sigterm_leave_nothing_even_when_repeated() {
    if !ready("interrupted run") {
        return;
    }
    for signal in [Signal::INT, Signal::TERM] {
        let directory = directory_on_disk();
        let mut victim = start(directory.path());
        victim.send(signal);
        victim.send(Signal::CONT);
        std::thread::sleep(Duration::from_millis(20));
        victim.send(signal);
        assert!(victim.wait(), "the victim ends cleanly");
        assert_nothing_left(directory.path());
        let records = fslab_report::sample::read(&fslab_compare::samples_path(directory.path()));
        assert!(records.unwrap().len() > 3, "samples are kept");
    }
}

/// [`remove_leftovers`] removes the mounts of a killed run, but not those of a running one.
#[test]
fn leftovers_are_removed_only_if_their_run_has_died() {
    if !ready("killed run") {
        return;
    }
    let directory = directory_on_disk();
    let mut victim = start(directory.path());
    let mine = |found: Vec<fslab_compare::Leftover>| {
        let full = directory.path().canonicalize().unwrap();
        found.into_iter().filter(|left| left.directory.starts_with(&full)).collect::<Vec<_>>()
    };
    assert_eq!(mine(remove_leftovers(directory.path()).unwrap()), []);
    victim.send(Signal::KILL);
    assert!(!victim.wait());
    let found = mine(remove_leftovers(directory.path()).unwrap());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].removed && !found[0].mounts.is_empty(), "{found:?}");
    assert_nothing_left(directory.path());
}

/// A host that panics while a target is being made.
struct PanickingHost;

impl fslab_compare::Host for PanickingHost {
    fn mount_command(&self, _: &[String], _: &Path, _: &Path) -> Vec<std::ffi::OsString> {
        panic!("planted")
    }

    fn file_system(
        &self,
        specification: &str,
    ) -> Result<Box<dyn fslab_vfs::FileSystem>, fslab_compare::HostError> {
        TestHost.file_system(specification)
    }
}

#[test]
fn a_panic_leaves_no_mounts_or_files_behind() {
    if !can_mount("panic") {
        return;
    }
    let directory = directory_on_disk();
    let caught = std::panic::catch_unwind(|| {
        run(PLAN, directory.path(), &PanickingHost, Interrupt::default(), &mut Silent).map(|_| ())
    });
    assert!(caught.is_err(), "the planted panic is seen");
    assert_nothing_left(directory.path());
}
