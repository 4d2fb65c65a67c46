//! Which process holds a lease, and whether it still runs.

use std::collections::BTreeSet;
use std::fs;

use parking_lot::Mutex;

/// The nonces of sessions that this process has.
pub static SESSIONS: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// A name of this process for messages.
pub fn name() -> String {
    let system = rustix::system::uname();
    format!("process {} on {}", std::process::id(), system.nodename().to_string_lossy())
}

/// What tells this process from every other one, on this machine: the kernel's run, the name space
/// of process numbers, the number, and when the process began.
pub fn mark() -> String {
    let pid = std::process::id();
    let found = place().zip(began(pid));
    found.map_or_else(String::new, |(place, began)| format!("{place}:{pid}:{began}"))
}

/// Whether a process of this very machine has ended, or is this one and has ended that session. Of
/// one of elsewhere nothing is known.
pub fn is_gone(mark: &str, nonce: &str) -> bool {
    let is_own = !mark.is_empty() && mark == self::mark();
    let nonce = u64::from_str_radix(nonce, 16).ok();
    is_own && nonce.is_some_and(|nonce| !SESSIONS.lock().contains(&nonce)) || has_ended(mark)
}

fn has_ended(mark: &str) -> bool {
    let parts: Vec<_> = mark.rsplitn(3, ':').collect();
    let [known, pid, of] = parts.as_slice() else { return false };
    let Ok(pid) = pid.parse() else { return false };
    place().is_some_and(|place| place == *of) && began(pid).as_deref() != Some(*known)
}

fn place() -> Option<String> {
    let run = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let space = fs::read_link("/proc/self/ns/pid").ok()?;
    let space: String = space.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    Some(format!("{}:{space}", run.trim()))
}

/// When a process began, in ticks since the kernel did; none of one that is not there, or is dead.
fn began(pid: u32) -> Option<String> {
    let found = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let fields: Vec<_> = found.rsplit_once(')')?.1.split_whitespace().collect();
    let is_dead = matches!(*fields.first()?, "Z" | "X");
    fields.get(19).filter(|_| !is_dead).map(|began| (*began).to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn only_a_process_of_this_machine_that_ended_is_gone() {
        assert!(!has_ended(&mark()), "this one runs");
        let place = place().unwrap();
        let mut child = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        let of_child = format!("{place}:{pid}:{}", began(pid).unwrap());
        assert!(!has_ended(&of_child));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(has_ended(&of_child));
        assert!(
            has_ended(&format!("{place}:{}:0", std::process::id())),
            "its number was given away"
        );
        for unknown in ["", "x", "other:1:2:3", ":::", "x:y"] {
            assert!(!has_ended(unknown), "{unknown}");
        }
        SESSIONS.lock().insert(7);
        assert!(!is_gone(&mark(), "7") && is_gone(&mark(), "8"), "a session of this process");
    }
}
