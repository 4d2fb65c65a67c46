//! The programs that processes run, from /proc.

use std::fs;
use std::path::PathBuf;

use fslab_tier::{Program, Programs};

/// The kernel appends this to the path of a removed file, for example after an upgrade.
const REMOVED: &str = " (deleted)";

/// The programs of this machine.
pub struct Running;

impl Programs for Running {
    /// Returns the program of a process. The kernel reports threads; a program has the name of its
    /// first thread.
    fn of(&self, pid: u32) -> Option<Program> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let first = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim();
        let name = fs::read_to_string(format!("/proc/{first}/comm")).ok()?;
        let groups = fs::read_to_string(format!("/proc/{first}/cgroup")).unwrap_or_default();
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

fn without_mark(path: PathBuf) -> PathBuf {
    match path.to_str().and_then(|text| text.strip_suffix(REMOVED)) {
        Some(text) => text.into(),
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_known() {
        let own = Running.of(std::process::id()).unwrap();
        assert_eq!(own.executable, std::env::current_exe().ok());
        assert!(!own.name.is_empty() && own.name.len() <= 15, "{own:?}");
        assert!(own.groups.iter().all(|group| group.starts_with('/')), "{own:?}");
        assert_eq!(Running.of(0), None);
        assert_eq!(without_mark("/bin/a (deleted)".into()), PathBuf::from("/bin/a"));
    }
}
