//! The deny list: programs that may not recall, such as indexers and `updatedb`. Their reads of
//! offline blocks fail at once, with the same error as a recall that takes too long.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use globset::{Glob, GlobMatcher};
use parking_lot::Mutex;

/// The number of bytes of a program's name that the kernel stores.
const NAME_BYTES: usize = 15;

/// Maximum number of programs whose first refusal is reported. Refusals of further programs are
/// only counted.
const TOLD_MAX: usize = 100;

/// The program that a process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The program's name as the kernel shows it, which is at most 15 bytes. If the kernel cut the
    /// name within a character, a replacement character takes the place of that character.
    pub name: String,
    /// The path of the program's file, if it can be read.
    pub executable: Option<PathBuf>,
    /// The control groups of the process.
    pub groups: Vec<String>,
}

/// Looks up the programs of processes.
pub trait Programs: Send + Sync {
    /// Returns the program of a process or thread, or `None` if it can't be read.
    fn of(&self, pid: u32) -> Option<Program>;
}

/// The programs that may not recall.
#[derive(Clone, Default)]
pub struct DenyList {
    rules: Vec<Rule>,
    programs: Option<Arc<dyn Programs>>,
    told: Arc<Mutex<HashSet<String>>>,
}

impl std::fmt::Debug for DenyList {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("DenyList").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl DenyList {
    /// Makes a list from its entries. An entry is a program's name (`updatedb`), the path of its
    /// file (`/usr/libexec/tracker*`), or a control group, including its descendants
    /// (`cgroup:/system.slice/plocate.service`).
    ///
    /// # Errors
    /// The first invalid entry, and the reason.
    pub fn new(entries: &[String], programs: Arc<dyn Programs>) -> Result<Self, String> {
        let rules = entries.iter().map(|entry| Rule::parse(entry)).collect::<Result<_, _>>()?;
        Ok(Self { rules, programs: Some(programs), ..Self::default() })
    }

    /// Returns the name of the program that a process runs, if it can be read.
    pub(crate) fn name_of(&self, pid: u32) -> Option<String> {
        Some(self.programs.as_ref()?.of(pid)?.name)
    }

    /// Returns the program that a process runs, if that program may not recall.
    pub(crate) fn refused(&self, pid: u32) -> Option<Program> {
        if self.rules.is_empty() {
            return None;
        }
        let program = self.programs.as_ref()?.of(pid)?;
        self.rules.iter().any(|rule| rule.fits(&program)).then_some(program)
    }

    /// Returns whether this is the first refusal of a program. Only the first one is reported.
    pub(crate) fn is_first(&self, program: &Program) -> bool {
        let mut told = self.told.lock();
        told.len() < TOLD_MAX && told.insert(program.name.clone())
    }
}

#[derive(Clone, Debug)]
enum Rule {
    Name(String),
    Executable(GlobMatcher),
    Group(String),
}

impl Rule {
    fn parse(entry: &str) -> Result<Self, String> {
        if let Some(group) = entry.strip_prefix("cgroup:") {
            if !group.starts_with('/') {
                return Err(format!(
                    "'{entry}': the path of a control group must begin with a slash"
                ));
            }
            return Ok(Self::Group(group.trim_end_matches('/').to_owned()));
        }
        if entry.starts_with('/') {
            let glob = Glob::new(entry).map_err(|error| error.to_string())?;
            return Ok(Self::Executable(glob.compile_matcher()));
        }
        if entry.is_empty() || entry.contains('/') {
            return Err(format!("'{entry}' is neither the name of a program nor an absolute path"));
        }
        Ok(Self::Name(kept(entry)))
    }

    fn fits(&self, program: &Program) -> bool {
        match self {
            Self::Name(name) => *name == program.name,
            Self::Executable(glob) => {
                program.executable.as_ref().is_some_and(|path| glob.is_match(path))
            }
            Self::Group(group) => program.groups.iter().any(|found| {
                found
                    .strip_prefix(&group[..])
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }),
        }
    }
}

/// Returns the part of a name that the kernel stores, as in [`Program::name`].
fn kept(name: &str) -> String {
    String::from_utf8_lossy(&name.as_bytes()[..name.len().min(NAME_BYTES)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Program {
        Program {
            name: "tracker-extract".to_owned(),
            executable: Some("/usr/libexec/tracker-extract-3".into()),
            groups: vec!["/user.slice/user-7.slice/search.service".to_owned()],
        }
    }

    #[test]
    fn rules_match_program_name_path_and_cgroup() {
        for (entry, fits) in [
            ("tracker-extract", true),
            ("tracker-extract-3", true),
            ("tracker", false),
            ("/usr/libexec/tracker-extract-3", true),
            ("/usr/libexec/tracker*", true),
            ("/usr/bin/tracker*", false),
            ("cgroup:/user.slice/user-7.slice", true),
            ("cgroup:/user.slice/user-7.slice/search.service/", true),
            ("cgroup:/user.slice/user-7", false),
            ("cgroup:/", true),
        ] {
            assert_eq!(Rule::parse(entry).unwrap().fits(&program()), fits, "{entry}");
        }
        assert!(!Rule::parse("/usr/**").unwrap().fits(&Program::default()));
        // The kernel cuts this name in the middle of its last character.
        let shown = String::from_utf8_lossy(&"d\u{e9}sindexeurs-\u{e9}".as_bytes()[..NAME_BYTES]);
        let cut = Program { name: shown.into_owned(), ..Program::default() };
        assert!(cut.name.ends_with(char::REPLACEMENT_CHARACTER));
        assert!(Rule::parse("d\u{e9}sindexeurs-\u{e9}").unwrap().fits(&cut));
        for entry in ["", "bin/updatedb", "cgroup:system.slice", "/usr/[bin"] {
            Rule::parse(entry).unwrap_err();
        }
    }
}
