//! Makes snapshots from the history of a git repository: its tree after each commit, or at the end
//! of each day or week. The size of a file is that of its blob.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{BufWriter, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::paths::Directories;
use super::{Entry, EntryKind, NameKey, SnapshotWriter, Taken};
use crate::error::{Error, Result};

/// The interval at which snapshots are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// After each commit.
    Commit,
    /// At the end of each day that has a commit.
    Day,
    /// At the end of each week that has a commit.
    Week,
}

impl Every {
    fn period_s(self) -> i64 {
        match self {
            Self::Commit => 1,
            Self::Day => 86_400,
            Self::Week => 7 * 86_400,
        }
    }
}

/// The history of a repository: the current commit and its first-parent ancestors, oldest first.
pub struct History {
    repository: PathBuf,
    commits: Vec<Commit>,
    /// Sizes of blobs by object name.
    sizes: HashMap<String, u64>,
}

struct Commit {
    time_s: i64,
    changes: Vec<Change>,
}

struct Change {
    /// The blob at the path after the commit; `None` if the path was removed or is not a file.
    blob: Option<String>,
    mode: u32,
    path: Vec<u8>,
}

impl History {
    /// Reads a repository's history.
    ///
    /// # Errors
    /// Fails if git is missing or fails.
    pub fn read(repository: &Path) -> Result<Self> {
        let mut log = git(repository);
        log.args(["log", "--reverse", "--first-parent", "-m", "--raw", "--no-renames"]);
        log.args(["--no-abbrev", "-z", "--format=%x01%ct"]);
        let text = output(&mut log)?;
        let commits = parse(&text)?;
        let sizes = sizes(repository, &commits)?;
        Ok(Self { repository: repository.to_owned(), commits, sizes })
    }

    /// Makes a history from output of `git log`; the sizes of files are made up.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn of_log(text: &[u8]) -> Result<Self> {
        let commits = parse(text)?;
        let changes = commits.iter().flat_map(|commit| &commit.changes);
        let blobs = changes.filter_map(|change| change.blob.clone());
        let sizes = blobs.map(|blob| (blob.clone(), blob.len() as u64)).collect();
        Ok(Self { repository: PathBuf::from("made up"), commits, sizes })
    }

    /// Returns the number of commits.
    #[must_use]
    pub fn commits(&self) -> usize {
        self.commits.len()
    }

    /// Writes a snapshot for each period into a directory. Returns the paths of the snapshots in
    /// order.
    ///
    /// # Errors
    /// Fails on I/O errors.
    pub fn write(
        &self,
        every: Every,
        directory: &Path,
        key: Option<&NameKey>,
    ) -> Result<Vec<PathBuf>> {
        let mut tree = Tree::default();
        let mut written = Vec::new();
        let mut latest = i64::MIN;
        for (index, commit) in self.commits.iter().enumerate() {
            // The clocks of committers differ, so commit times may decrease. The times of snapshots
            // must not decrease.
            latest = latest.max(commit.time_s);
            tree.apply(commit, latest, &self.sizes)?;
            let period = latest.div_euclid(every.period_s());
            let next = self.commits.get(index + 1).map(|next| next.time_s.max(latest));
            let ends = next.is_none_or(|next| next.div_euclid(every.period_s()) > period);
            if ends || every == Every::Commit {
                let path = directory.join(format!("{:08}.parquet", written.len()));
                tree.write(&path, self.taken(latest, key.is_some()), key)?;
                written.push(path);
            }
        }
        Ok(written)
    }

    fn taken(&self, time_s: i64, anonymised: bool) -> Taken {
        let source = match anonymised {
            true => "a git history".to_owned(),
            false => format!("git {}", self.repository.display()),
        };
        Taken {
            taken_ns: time_s.saturating_mul(1_000_000_000),
            source,
            anonymised,
            ..Taken::default()
        }
    }
}

/// The files and directories at one commit.
#[derive(Default)]
struct Tree {
    files: BTreeMap<Vec<u8>, File>,
    directories: Directories,
    numbers: u64,
}

struct File {
    number: u64,
    blob: String,
    mode: u32,
    size: u64,
    born_s: i64,
    modified_s: i64,
}

impl Tree {
    fn apply(&mut self, commit: &Commit, time_s: i64, sizes: &HashMap<String, u64>) -> Result<()> {
        // A removed file and a new file with the same blob are treated as a rename.
        let mut gone: HashMap<String, File> = HashMap::new();
        for change in commit.changes.iter().filter(|change| change.blob.is_none()) {
            if let Some(file) = self.files.remove(&change.path) {
                gone.insert(file.blob.clone(), file);
            }
        }
        for change in &commit.changes {
            let Some(blob) = &change.blob else { continue };
            let unknown = || failed(format!("git reports no size for the blob {blob}"));
            let size = sizes.get(blob).copied().ok_or_else(unknown)?;
            if let Some(file) = self.files.get_mut(&change.path) {
                file.modified_s = if file.blob == *blob { file.modified_s } else { time_s };
                (file.blob, file.mode, file.size) = (blob.clone(), change.mode, size);
                continue;
            }
            let file = gone.remove(blob).unwrap_or_else(|| {
                self.numbers += 1;
                let (number, blob) = (self.numbers, blob.clone());
                let (born_s, modified_s) = (time_s, time_s);
                File { number, blob, mode: change.mode, size, born_s, modified_s }
            });
            self.files.insert(change.path.clone(), file);
        }
        Ok(())
    }

    fn write(&mut self, path: &Path, taken: Taken, key: Option<&NameKey>) -> Result<()> {
        let mut writer = SnapshotWriter::new(path);
        let hide = |name: &[u8]| key.map_or_else(|| name.to_vec(), |key| key.hide(name));
        let mut used = BTreeSet::new();
        for (path, file) in &self.files {
            let path = path.split(|byte| *byte == b'/').map(hide).collect::<Vec<_>>().join(&b'/');
            let numbers = &mut self.numbers;
            let mut number = |_path: &[u8]| {
                *numbers += 1;
                *numbers
            };
            let (directory, name) = self.directories.place(&path, &mut number);
            note_parents(&path, &mut used);
            writer.push(file.entry(directory, name))?;
        }
        self.directories.write(&mut writer, &Entry::default(), |path| used.contains(path))?;
        writer.finish(&taken).map(|_rows| ())
    }
}

/// Adds all parent directories of a path to `used`.
fn note_parents(path: &[u8], used: &mut BTreeSet<Vec<u8>>) {
    for (place, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
        if !used.contains(&path[..place]) {
            used.insert(path[..place].to_vec());
        }
    }
}

impl File {
    fn entry(&self, directory: u64, name: &[u8]) -> Entry {
        let kind = if self.mode == 0o120_000 { EntryKind::Symlink } else { EntryKind::File };
        let modified_ns = self.modified_s.saturating_mul(1_000_000_000);
        Entry {
            inode: self.number,
            directory,
            kind,
            size: self.size,
            modified_ns,
            changed_ns: modified_ns,
            born_ns: self.born_s.saturating_mul(1_000_000_000),
            mode: if self.mode & 0o111 == 0 { 0o644 } else { 0o755 },
            links: 1,
            name: name.to_vec().into(),
            ..Entry::default()
        }
    }
}

fn git(repository: &Path) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(repository).args(["-c", "core.quotepath=off"]);
    command.stdin(Stdio::null());
    command
}

fn failed(message: impl Into<String>) -> Error {
    Error::Program { program: "git", message: message.into() }
}

fn missing(source: std::io::Error) -> Error {
    Error::NoProgram { program: "git", source }
}

fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().map_err(missing)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// Parses the output of `git log --raw -z`.
fn parse(text: &[u8]) -> Result<Vec<Commit>> {
    let mut commits: Vec<Commit> = Vec::new();
    let mut tokens = text.split(|byte| *byte == 0).map(|token| token.trim_ascii_start());
    while let Some(token) = tokens.next() {
        if let [1, time @ ..] = token {
            let time = std::str::from_utf8(time).ok().and_then(|time| time.trim().parse().ok());
            let time_s = time.ok_or_else(|| failed("git printed a commit without a time"))?;
            commits.push(Commit { time_s, changes: Vec::new() });
        } else if let [b':', change @ ..] = token {
            let path = tokens.next().unwrap_or_default().to_vec();
            let change =
                std::str::from_utf8(change).ok().and_then(|change| parse_change(change, path));
            let change =
                change.ok_or_else(|| failed("git printed a change that can't be parsed"))?;
            commits
                .last_mut()
                .ok_or_else(|| failed("git printed a change before the first commit"))?
                .changes
                .push(change);
        }
    }
    Ok(commits)
}

/// Parses a change: `100644 100644 OLD NEW M`, and the path.
fn parse_change(change: &str, path: Vec<u8>) -> Option<Change> {
    let mut words = change.split_ascii_whitespace();
    let mode = u32::from_str_radix(words.nth(1)?, 8).ok()?;
    let blob = words.nth(1)?.to_owned();
    // The mode is 0 if the path was removed, and 160000 if it is a nested repository.
    let is_file = mode & 0o170_000 != 0 && mode != 0o160_000;
    Some(Change { blob: is_file.then_some(blob), mode, path })
}

/// Returns the sizes of all blobs in these commits. Blobs that the repository lacks are omitted.
fn sizes(repository: &Path, commits: &[Commit]) -> Result<HashMap<String, u64>> {
    let changes = commits.iter().flat_map(|commit| &commit.changes);
    let blobs: HashSet<&str> = changes.filter_map(|change| change.blob.as_deref()).collect();
    let names = list_of(&blobs).map_err(|error| failed(error.to_string()))?;
    let mut command = git(repository);
    command.args(["cat-file", "--batch-check=%(objectname) %(objectsize)"]).stdin(names);
    let told = output(&mut command)?;
    let size = |line: &str| {
        let (blob, size) = line.split_once(' ')?;
        Some((blob.to_owned(), size.parse().ok()?))
    };
    Ok(String::from_utf8_lossy(&told).lines().filter_map(size).collect())
}

/// Writes the blob names to a temporary file, one per line, and rewinds it.
fn list_of(blobs: &HashSet<&str>) -> std::io::Result<std::fs::File> {
    let mut names = BufWriter::new(tempfile::tempfile()?);
    blobs.iter().try_for_each(|blob| writeln!(names, "{blob}"))?;
    names.rewind()?;
    Ok(names.into_inner()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blob_of_unknown_size_is_an_error() {
        let change = Change { blob: Some("b1".to_owned()), mode: 0o100_644, path: b"a".to_vec() };
        let commit = Commit { time_s: 1, changes: vec![change] };
        let mut tree = Tree::default();
        let message = tree.apply(&commit, 1, &HashMap::new()).unwrap_err().to_string();
        assert!(message.contains("the blob b1"), "{message}");
        tree.apply(&commit, 1, &HashMap::from([("b1".to_owned(), 7)])).unwrap();
        assert_eq!(tree.files[b"a".as_slice()].size, 7);
    }
}
