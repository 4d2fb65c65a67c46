//! Finds the program of a process in /proc.

use std::fs;
use std::io;
use std::path::PathBuf;

use fslab_tier::{Program, Programs};

/// The text that the kernel appends to the path of a removed file, for example after an upgrade.
const REMOVED: &str = " (deleted)";

/// The programs of this machine.
pub struct Running;

impl Programs for Running {
    /// Returns the program of a process or thread. FUSE requests contain the number of a thread,
    /// but the name of a program is that of its first thread.
    fn of(&self, pid: u32) -> Option<Program> {
        let status = text(&format!("/proc/{pid}/status")).ok()?;
        let first = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim();
        let name = text(&format!("/proc/{first}/comm")).ok()?;
        let groups = text(&format!("/proc/{first}/cgroup")).unwrap_or_default();
        Some(Program {
            name: name.trim_end_matches('\n').to_owned(),
            executable: fs::read_link(format!("/proc/{first}/exe")).ok().map(without_mark),
            // A line is `HIERARCHY:CONTROLLERS:PATH`.
            groups: groups
                .lines()
                .filter_map(|line| Some(line.splitn(3, ':').nth(2)?.into()))
                .collect(),
        })
    }
}

/// Reads a file as text. Invalid UTF-8 is replaced, because the kernel may have truncated a name
/// within a character.
fn text(path: &str) -> io::Result<String> {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn without_mark(path: PathBuf) -> PathBuf {
    match path.to_str().and_then(|text| text.strip_suffix(REMOVED)) {
        Some(text) => text.into(),
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;

    /// The kernel truncates this name to 15 bytes, which cuts its last character.
    #[test]
    fn program_name_truncated_within_a_character_is_found() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("d\u{e9}sindexeurs-\u{e9}");
        fs::copy("/bin/sh", &path).unwrap();
        let mut shell = Command::new(&path).stdin(Stdio::piped()).spawn().unwrap();
        // Until execve(2), the child has the same executable as this process.
        let own = Running.of(std::process::id()).unwrap();
        let known = (0..1000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            Running.of(shell.id()).filter(|known| known.executable != own.executable)
        });
        // `wait` closes the shell's standard input, so the shell exits.
        assert!(shell.wait().unwrap().success());
        let known = known.unwrap();
        assert_eq!(known.name, "d\u{e9}sindexeurs-\u{fffd}");
        assert_eq!(known.executable, path.canonicalize().ok());
    }

    #[test]
    fn own_process_is_found_with_its_executable_and_groups() {
        let own = Running.of(std::process::id()).unwrap();
        assert_eq!(own.executable, std::env::current_exe().ok());
        assert!(!own.name.is_empty() && own.name.len() <= 15, "{own:?}");
        assert!(own.groups.iter().all(|group| group.starts_with('/')), "{own:?}");
        assert_eq!(Running.of(0), None);
        assert_eq!(without_mark("/bin/a (deleted)".into()), PathBuf::from("/bin/a"));
    }
}
