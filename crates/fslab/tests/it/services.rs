//! Tests the commands in the packaged systemd units, without systemd.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fslab_sys::mounts::Mount;

use crate::support::{Place, is_mounted, require_mounting, run, soon};
use crate::tiering::{Tiered, noise};

const MIB: usize = 1 << 20;

/// Number of times that the daemon is killed.
const KILLS: u64 = 5;

/// Returns a command of a packaged unit, converted to a shell command.
fn command_of(key: &str, unit: &str, instance: &Path) -> Option<String> {
    let folder = Path::new("../../packaging/systemd");
    let unit = fs::read_to_string(folder.join(unit)).unwrap();
    let line = unit.lines().find_map(|line| line.strip_prefix(&format!("{key}=")))?;
    let line = line.trim_start_matches('-').replace("$$", "$");
    let line = line.replace("%f", instance.to_str().unwrap());
    Some(line.replace("/usr/bin/fslab", env!("CARGO_BIN_EXE_fslab")))
}

fn shell(command: &str, place: &Place) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env("OPTIONS", "-l tier").stderr(Stdio::null());
    shell.env("LOWER", &place.lower).env("MOUNT_POINT", &place.point);
    shell
}

#[test]
fn tier_unit_runs_each_step_even_if_an_earlier_one_failed() {
    require_mounting!();
    let tiered = Tiered::over(None);
    fs::write(tiered.tree().join("file"), "bytes").unwrap();
    fs::write(tiered.beside("home/policy.toml"), "nothing = that anybody understands").unwrap();
    let step = command_of("ExecStart", "fslab-tier-policy@.service", tiered.tree()).unwrap();
    let trees = || fs::read_dir(tiered.beside("archive/trees")).unwrap().count();
    let code = || shell(&step, tiered.place()).status().unwrap().code();
    assert_eq!((code(), trees()), (Some(3), 1), "{step}");
    let rule = "[[rule]]\naction = \"archive\"\npaths = [\"**\"]\n";
    fs::write(tiered.beside("home/policy.toml"), rule).unwrap();
    assert_eq!((code(), trees()), (Some(0), 2), "{step}");
}

fn serve(place: &Place) -> Child {
    let command = command_of("ExecStart", "fslab@.service", Path::new("")).unwrap();
    let daemon = shell(&format!("exec {command}"), place).spawn().unwrap();
    let inner = place.point.join("inner/there");
    soon("the directory is mounted", || is_mounted(&place.point) && fs::read(&inner).is_ok());
    daemon
}

fn name(number: u64) -> String {
    format!("file{number}")
}

/// The results of a program that reads files continuously.
#[derive(Default)]
struct Seen {
    is_over: AtomicBool,
    /// The number of the file that is read next.
    number: AtomicU64,
    right: AtomicU64,
    errors: AtomicU64,
    zeros: AtomicU64,
}

impl Seen {
    fn read_on(&self, directory: &Path, data: &[u8]) {
        while !self.is_over.load(Ordering::SeqCst) {
            let name = name(self.number.load(Ordering::SeqCst));
            let count = match fs::read(directory.join(name)) {
                Err(_) => &self.errors,
                Ok(found) if found == data => &self.right,
                Ok(_) => &self.zeros,
            };
            count.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// While a killed mount is replaced, programs never see the directory below it. The mount covers
/// its own lower directory, in which the released files read as zeros.
#[test]
fn replacing_a_killed_mount_never_exposes_the_lower_directory() {
    require_mounting!();
    let place = Place::new();
    let beside = |name: &str| place.lower.with_file_name(name).to_str().unwrap().to_owned();
    let (archive, home) = (beside("archive"), beside("home"));
    let tree = place.lower.to_str().unwrap().to_owned();
    let init = ["tier", "init", "--archive", &archive, "--home", &home, &tree];
    assert_eq!(run(&init), (0, String::new()));
    // Another file system is mounted inside the lower directory, and must be visible in the mount
    // too.
    fs::create_dir(place.lower.join("inner")).unwrap();
    let inner = Mount::new(Path::new("none"), &place.lower.join("inner"), "tmpfs", "").unwrap();
    fs::write(place.lower.join("inner/there"), "still").unwrap();
    // `place` is rebound, so that it is dropped before `inner`: its mount covers that of `inner`.
    let mut place = place;
    place.point.clone_from(&place.lower);
    let data = noise(3, MIB);
    let mut daemon = serve(&place);
    (0..=KILLS).for_each(|number| fs::write(place.point.join(name(number)), &data).unwrap());
    for action in ["archive", "release"] {
        assert_eq!(run(&["tier", action, &tree]), (0, String::new()));
    }
    let seen = Arc::new(Seen::default());
    let reader = {
        let (seen, place, data) = (Arc::clone(&seen), place.point.clone(), data.clone());
        std::thread::spawn(move || seen.read_on(&place, &data))
    };
    for number in 1..=KILLS {
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        // Each round reads a file that is still offline, which needs the new daemon.
        seen.number.store(number, Ordering::SeqCst);
        if let Some(command) = command_of("ExecStopPost", "fslab@.service", Path::new("")) {
            shell(&command, &place).status().unwrap();
        }
        let before = seen.right.load(Ordering::SeqCst);
        daemon = serve(&place);
        soon("the file is read again", || seen.right.load(Ordering::SeqCst) > before + 1);
    }
    seen.is_over.store(true, Ordering::SeqCst);
    reader.join().unwrap();
    let [errors, zeros] = [&seen.errors, &seen.zeros].map(|count| count.load(Ordering::SeqCst));
    assert!(errors > 0 && zeros == 0, "{errors} errors, {zeros} times zeros");
    let stop = command_of("ExecStop", "fslab@.service", Path::new("")).unwrap();
    assert!(shell(&stop, &place).status().unwrap().success());
    assert!(daemon.wait().unwrap().success() && !is_mounted(&place.point));
    inner.unmount().unwrap();
}
