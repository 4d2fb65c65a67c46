//! Tests a tier whose archive is accessed through the fault layer. No data is lost, no wrong data
//! is returned, and programs get the error that the mount option specifies.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fslab_vfs_testing::environment::number;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Place, daemons_naming, fslab, require_mounting, run, soon};
use crate::tiering::{FaultyArchive, Tiered, noise};

const MIB: usize = 1 << 20;

fn data(name: &str) -> Vec<u8> {
    noise(name.len() as u64, MIB + 7)
}

/// A tier with two files, one of which is offline.
struct Faulty {
    tiered: Tiered,
    archive: String,
}

impl Faulty {
    fn new() -> Self {
        let tiered = Tiered::mounted();
        for name in ["here", "elsewhere"] {
            fs::write(tiered.path(name), data(name)).unwrap();
        }
        tiered.of("archive", "elsewhere");
        tiered.of("release", "elsewhere");
        tiered.umount();
        let archive = tiered.archive().to_str().unwrap().to_owned();
        Self { tiered, archive }
    }

    /// Runs `work` while the archive returns errors. Then checks that both files and all copies are
    /// intact.
    fn under(&self, rules: &str, options: &str, work: impl FnOnce(&Tiered)) {
        let faulty = FaultyArchive::over(&self.tiered, rules);
        self.tiered.place().mount(&["-l", &format!("tier{options}")]);
        work(&self.tiered);
        self.tiered.umount();
        drop(faulty);
        self.tiered.place().mount(&["-l", "tier"]);
        for name in ["here", "elsewhere"] {
            assert!(fs::read(self.tiered.path(name)).unwrap() == data(name), "{rules}: {name}");
        }
        self.tiered.of("release", "elsewhere");
        let scrubbed = self.tiered.of("scrub", "");
        assert!(scrubbed.contains("repaired 0, damaged 0"), "{rules}: {scrubbed}");
        self.tiered.umount();
    }
}

fn read(tiered: &Tiered, name: &str) -> Result<Vec<u8>, Option<i32>> {
    fs::read(tiered.path(name)).map_err(|error| error.raw_os_error())
}

fn says(errno: Errno) -> Result<Vec<u8>, Option<i32>> {
    Err(Some(errno.raw_os_error()))
}

#[test]
fn wrong_data_from_an_archive_fails_the_read() {
    require_mounting!();
    let faulty = Faulty::new();
    for rules in [
        "read on /files/** error EIO",
        "read on /files/** flip at 5000",
        // A short read must be an error, because the kernel would fill the missing bytes with
        // zeros.
        "read on /files/** short 100",
    ] {
        faulty.under(rules, "", |tiered| {
            assert!(read(tiered, "elsewhere") == says(Errno::IO), "{rules}");
            assert!(read(tiered, "here") == Ok(data("here")), "{rules}");
        });
    }
}

/// `fslab umount` must not wait for the daemon's process to exit. The process can't exit before its
/// call to the archive returns.
#[test]
fn umount_does_not_wait_for_an_archive_that_hangs() {
    require_mounting!();
    let faulty = Faulty::new();
    let (tiered, archive) = (&faulty.tiered, &faulty.archive);
    // The kernel lets a process exit during a read, unless two of its threads read the same page.
    // The objects of small files share a page, because they are in one bundle. With two files, the
    // process could still exit in one of eight runs.
    let names = ["one", "two", "three", "four", "five", "six", "seven", "eight"];
    let small = tiered.path("small");
    tiered.place().mount(&["-l", "tier"]);
    fs::create_dir(&small).unwrap();
    names.iter().for_each(|name| fs::write(small.join(name), name).unwrap());
    tiered.of("archive", "small");
    tiered.of("release", "small");
    tiered.umount();
    let hanging = FaultyArchive::over(tiered, "read on /files/** delay 12s");
    let log = tiered.beside("log");
    let option = format!("log={}", log.display());
    tiered.place().mount(&["-l", "tier", "-o", &option]);
    // One command would read all files by one call.
    let mut recalls = names.map(|name| {
        let mut recall = fslab(&["tier", "recall", small.join(name).to_str().unwrap()]);
        recall.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
    });
    let point = tiered.path("");
    let point = point.to_str().unwrap();
    soon("the recalls have begun", || {
        let queue = tiered.ok(&["queue", point]);
        names.iter().all(|name| queue.contains(name))
    });
    // During this second, the calls to the archive begin. They hang for 12 s.
    std::thread::sleep(Duration::from_secs(1));
    let begun = Instant::now();
    let (code, said) = run(&["umount", point]);
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    assert!(code == 0 && said.contains("still waits for an unresponsive server"), "{code}: {said}");
    let logged = fs::read_to_string(&log).unwrap();
    let is_named = |line: &str| line.contains(archive) && line.contains("does not respond");
    assert!(logged.lines().any(is_named), "{logged}");
    recalls.iter_mut().for_each(|recall| assert!(!recall.wait().unwrap().success()));
    // The lock of the tree is released once the process has exited.
    soon("the tree is unlocked", || tiered.place().try_mount(&["-l", "tier"]).0 == 0);
    tiered.umount();
    drop(hanging);
    tiered.place().mount(&["-l", "tier"]);
    assert!(read(tiered, "elsewhere") == Ok(data("elsewhere")));
    tiered.umount();
}

#[test]
fn reader_of_a_slow_archive_gets_the_configured_error() {
    require_mounting!();
    let faulty = Faulty::new();
    for (late, errno) in [("EAGAIN", Errno::AGAIN), ("EIO", Errno::IO)] {
        let options = format!(":wait=200ms,late={late}");
        faulty.under("read on /files/** delay 3s", &options, |tiered| {
            let begun = Instant::now();
            assert!(read(tiered, "elsewhere") == says(errno), "{late}");
            let took = begun.elapsed();
            assert!(took >= Duration::from_millis(200), "{took:?}");
        });
    }
}

/// Number of waiting readers that get each signal; `FSLAB_TIER_SIGNALS` replaces it.
const SIGNALS: u64 = 2;

/// The daemon that serves an archive, stopped by SIGSTOP. Dropping this continues it.
struct Stopped(Pid);

impl Stopped {
    fn serving(archive: &Path) -> Self {
        let [daemon] = daemons_naming(archive)[..] else {
            panic!("exactly one daemon must serve the archive")
        };
        let daemon = Pid::from_raw(daemon as i32).unwrap();
        kill_process(daemon, Signal::STOP).unwrap();
        Self(daemon)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        kill_process(self.0, Signal::CONT).unwrap();
    }
}

/// Returns how long a program that waits for an offline file lives after a signal.
fn ended_by(tiered: &Tiered, signal: Signal) -> Duration {
    let mut reader = Command::new("cat")
        .arg(tiered.path("elsewhere"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let point = tiered.path("").to_str().unwrap().to_owned();
    soon("the reader waits", || tiered.ok(&["queue", &point]).contains("1 waiting"));
    let begun = Instant::now();
    kill_process(Pid::from_child(&reader), signal).unwrap();
    reader.wait().unwrap();
    begun.elapsed()
}

#[test]
fn reader_waiting_for_a_stalled_archive_is_interruptible() {
    require_mounting!();
    let faulty = Faulty::new();
    faulty.under("read on /files/** delay 0s", ":movers=1", |tiered| {
        let stopped = Stopped::serving(&tiered.archive());
        let times = number("FSLAB_TIER_SIGNALS").unwrap_or(SIGNALS);
        let signals = (0..times).flat_map(|_| [Signal::INT, Signal::KILL]);
        let mut ended: Vec<_> = signals.map(|signal| ended_by(tiered, signal)).collect();
        ended.sort();
        let (median, last) = (ended[ended.len() / 2], ended[ended.len() - 1]);
        eprintln!("{} readers ended after {median:?}, the last after {last:?}", ended.len());
        // This takes 50 ms on an idle machine. If the signal were ignored, the reader would wait
        // forever.
        assert!(last < Duration::from_secs(5), "{last:?}");
        assert!(tiered.path("elsewhere").exists());
        drop(stopped);
        assert!(read(tiered, "elsewhere") == Ok(data("elsewhere")));
    });
}

#[test]
fn failed_archiving_keeps_the_file_and_leaves_no_partial_object() {
    require_mounting!();
    let faulty = Faulty::new();
    for rules in [
        "create on /incoming/* error ENOSPC",
        "write on /incoming/* error EIO",
        "write on /incoming/* full 100000",
        "write on /incoming/* flip at 5000",
        "fsync on /incoming/* error EIO",
        "rename error EIO",
    ] {
        faulty.under(rules, "", |tiered| {
            let here = tiered.path("here");
            let (code, said) = run(&["tier", "archive", here.to_str().unwrap()]);
            assert!(code == 1 && said.contains("could not be processed"), "{rules}: {said}");
            let (code, _) = run(&["tier", "release", here.to_str().unwrap()]);
            assert!(code != 0, "{rules}: bytes without a copy are released");
            assert!(read(tiered, "here") == Ok(data("here")), "{rules}");
        });
        assert_eq!(entries(&faulty.tiered.archive().join("incoming")), 0, "{rules}");
    }
}

/// The archive's directories exist but may not be durable, as after a kill of the process that made
/// them. Then a file in such a directory is not durable either and must not be released.
#[test]
fn file_is_not_released_if_its_archive_cannot_sync() {
    require_mounting!();
    let faulty = Faulty::new();
    for digits in 0..=255 {
        let directory = faulty.tiered.archive().join(format!("files/{digits:02x}"));
        fs::create_dir_all(directory).unwrap();
    }
    for rules in ["fsyncdir on /files error EIO", "fsyncdir on /files/* error EIO"] {
        faulty.under(rules, "", |tiered| {
            let here = tiered.path("here");
            let (code, said) = run(&["tier", "archive", here.to_str().unwrap()]);
            assert!(code == 1 && said.contains("could not be processed"), "{rules}: {said}");
            let (code, _) = run(&["tier", "release", here.to_str().unwrap()]);
            assert!(code != 0, "{rules}: bytes without a copy are released");
        });
    }
}

#[test]
fn init_fails_if_the_archive_directory_cannot_be_synced() {
    require_mounting!();
    let place = Place::new();
    place.mount(&["-l", "fault:rules=fsyncdir on / error EIO"]);
    let (archive, tree) = (place.point.join("archive"), place.lower.with_file_name("tree"));
    fs::create_dir(&tree).unwrap();
    let home = place.lower.with_file_name("home");
    let [archive, home, tree] = [&archive, &home, &tree].map(|path| path.to_str().unwrap());
    let (code, said) = run(&["tier", "init", "--archive", archive, "--home", home, tree]);
    assert!(code != 0 && said.contains(archive), "{said}");
    assert_eq!(entries(&place.point), 0, "{said}");
    place.umount();
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}
