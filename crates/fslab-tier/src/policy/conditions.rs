//! Conditions on the path, owner, size and age of a file. Rules of a policy and queries use them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use globset::{Glob, GlobMatcher};
use serde::Deserialize;

/// A property of a file that rules can select.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileType {
    /// The file has an execute permission bit.
    Executable,
    /// The file takes less space than its size, counting offline bytes as resident. It has holes,
    /// or the file system compresses it.
    Sparse,
    /// The file has several hard links.
    Linked,
}

/// The facts about a file that rules and queries use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The path from the root of the tree.
    pub path: Vec<u8>,
    /// The size in bytes.
    pub size: u64,
    /// The user ID of the owner.
    pub uid: u32,
    /// The group ID.
    pub gid: u32,
    /// The properties of the file. [`FileType::Sparse`] is determined only if a rule uses it.
    pub types: Vec<FileType>,
    /// The time since the last modification.
    pub unchanged: Duration,
    /// The time since the last read or modification.
    pub unused: Duration,
    /// The time since the file was created, written to or recalled.
    pub here_for: Duration,
    /// Whether the owner has pinned the file.
    pub is_pinned: bool,
    /// The xattrs that rules use.
    pub xattrs: Vec<(String, Vec<u8>)>,
}

/// Conditions that must all hold. An empty list matches all files.
pub(crate) struct Conditions {
    pub paths: Vec<GlobMatcher>,
    pub users: Vec<u32>,
    pub groups: Vec<u32>,
    /// Minimum size in bytes.
    pub larger: u64,
    /// Exclusive upper limit of the size in bytes.
    pub smaller: u64,
    /// Minimum time since the last modification.
    pub unchanged: Duration,
    /// Minimum time since the last read or modification.
    pub unused: Duration,
}

impl Conditions {
    pub fn hold_for(&self, facts: &Facts) -> bool {
        let path = Path::new(OsStr::from_bytes(&facts.path));
        let has_path = self.paths.is_empty() || self.paths.iter().any(|glob| glob.is_match(path));
        let has_owner = is_one_of(&self.users, &facts.uid) && is_one_of(&self.groups, &facts.gid);
        let has_size = facts.size >= self.larger && facts.size < self.smaller;
        let is_old = facts.unchanged >= self.unchanged && facts.unused >= self.unused;
        has_path && has_owner && has_size && is_old
    }
}

/// Returns whether a value matches a condition. An empty condition matches all values.
pub(crate) fn is_one_of<T: PartialEq>(wanted: &[T], found: &T) -> bool {
    wanted.is_empty() || wanted.contains(found)
}

/// Parses a pattern for paths.
pub(crate) fn glob(text: &str) -> Result<GlobMatcher, String> {
    Ok(Glob::new(text).map_err(|error| error.to_string())?.compile_matcher())
}

/// Checks a pattern of a query, and returns it unchanged.
///
/// # Errors
/// The pattern is invalid.
pub fn parse_pattern(text: &str) -> Result<String, String> {
    glob(text).map(|_| text.to_owned())
}
