//! The process that holds a lease, and whether it still runs.

use std::collections::BTreeSet;
use std::fs;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// The nonces of this process's sessions.
pub static SESSIONS: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// Returns the name of this process, for messages.
pub fn name() -> String {
    let system = rustix::system::uname();
    format!("process {} on {}", std::process::id(), system.nodename().to_string_lossy())
}

/// Returns an identifier of this process that is unique on this machine. It consists of the boot
/// identifier, the PID namespace, the process number, and the start time of the process. The
/// identifier is empty if `/proc` can't be read.
pub fn mark() -> String {
    let pid = std::process::id();
    match (place(), began(pid)) {
        (Some(place), Began::At(began)) => format!("{place}:{pid}:{began}"),
        _ => String::new(),
    }
}

/// Returns whether the holder has ended: its process ran on this machine and has exited, or it is
/// this process and the session has ended. Returns `false` for processes of other machines.
pub fn is_gone(mark: &str, nonce: &str) -> bool {
    let is_own = !mark.is_empty() && mark == self::mark();
    let nonce = u64::from_str_radix(nonce, 16).ok();
    is_own && nonce.is_some_and(|nonce| !SESSIONS.lock().contains(&nonce)) || has_ended(mark)
}

fn has_ended(mark: &str) -> bool {
    let parts: Vec<_> = mark.rsplitn(3, ':').collect();
    let [known, pid, of] = parts.as_slice() else { return false };
    let Ok(pid) = pid.parse() else { return false };
    place().is_some_and(|place| place == *of)
        && match began(pid) {
            Began::At(began) => began != *known,
            Began::Ended => true,
            Began::Unknown => false,
        }
}

fn place() -> Option<String> {
    let run = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let space = fs::read_link("/proc/self/ns/pid").ok()?;
    let space: String = space.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    Some(format!("{}:{space}", run.trim()))
}

/// The start time of a process.
enum Began {
    /// The start time, in clock ticks since boot.
    At(String),
    /// The process does not exist, or is dead.
    Ended,
    /// This process has no permission to see the start time.
    Unknown,
}

fn began(pid: u32) -> Began {
    let Ok(found) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        // /proc may hide processes of other users.
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let is_gone = pid.is_none_or(|pid| test_kill_process(pid) == Err(Errno::SRCH));
        return if is_gone { Began::Ended } else { Began::Unknown };
    };
    // The process name, in parentheses, may contain any characters.
    let fields: Option<Vec<_>> =
        found.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect());
    match fields.as_deref() {
        Some(["Z" | "X", ..]) => Began::Ended,
        Some(fields) => {
            fields.get(19).map_or(Began::Unknown, |began| Began::At((*began).to_owned()))
        }
        None => Began::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn only_an_ended_process_of_this_machine_counts_as_gone() {
        assert!(!has_ended(&mark()), "this one runs");
        let place = place().unwrap();
        let mut child = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        let Began::At(ticks) = began(pid) else { panic!("the child runs") };
        let of_child = format!("{place}:{pid}:{ticks}");
        assert!(!has_ended(&of_child));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(has_ended(&of_child));
        assert!(
            has_ended(&format!("{place}:{}:0", std::process::id())),
            "another process has its process number now"
        );
        for unknown in ["", "x", "other:1:2:3", ":::", "x:y"] {
            assert!(!has_ended(unknown), "{unknown}");
        }
        SESSIONS.lock().insert(7);
        assert!(!is_gone(&mark(), "7") && is_gone(&mark(), "8"), "a session of this process");
    }
}
