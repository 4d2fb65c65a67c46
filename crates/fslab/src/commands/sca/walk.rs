//! Visits the stored files that the arguments of a command select: files, and the files below
//! directories.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fslab_sca::{Error, Tool};
use fslab_sys::mounts::MountEntry;
use fslab_vfs::Errno;

use crate::exit::{Code, one_line};
use crate::progress::Progress;
use crate::units;

/// A walk that calls a function for each stored file.
pub struct Walk<'a, F> {
    progress: &'a Progress,
    work: F,
    /// The path on the command line that is being walked.
    named: &'a Path,
    /// A tree that is in use. Its remaining files are skipped.
    in_use: Option<PathBuf>,
    outcome: Outcome,
}

/// Counts of skipped and failed files.
#[derive(Default)]
pub struct Outcome {
    /// Files that are not stored files, found in directories.
    pub plain_files: u64,
    /// Stored files. Empty files are included, because layers store empty content as an empty file.
    /// The function of the walk is not called for empty files.
    pub stored_files: u64,
    /// The exit code of each file or directory that failed.
    failed: Vec<Code>,
    /// The number of failures that are directories; each of these is in use.
    failed_directories: u64,
}

/// Calls `work` for each stored file at or below `paths`. If a file can't be opened, or `work`
/// fails for it, the error is printed on standard error and the walk continues.
pub fn each<F>(paths: &[PathBuf], progress: &Progress, work: F) -> Outcome
where
    F: FnMut(&Path, Tool) -> Result<()>,
{
    if progress.is_seen() {
        let (files, bytes) = paths.iter().map(|path| size_of(path)).fold((0, 0), sum);
        progress.expect(files, bytes);
    }
    let mut walk =
        Walk { progress, work, named: Path::new(""), in_use: None, outcome: Outcome::default() };
    for path in paths {
        (walk.named, walk.in_use) = (path, None);
        if path.is_dir() { walk.directory(path) } else { walk.named_file(path) }
    }
    walk.outcome
}

/// Returns whether the error means that the file's tree is mounted, or used by another tool.
fn is_in_use(error: &Error) -> bool {
    matches!(error, Error::StoredFile { source, .. } if source.errno() == Errno::BUSY)
}

fn sum(one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    (one.0 + other.0, one.1 + other.1)
}

/// Returns whether a directory is the root of a tree that fslab locks.
fn has_lock(directory: &Path) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| fslab_vfs::is_lock_file_name(&entry.file_name()))
}

/// Returns the mount point of the fslab mount whose lower directory is `tree`, if there is one.
fn mount_over(tree: &Path) -> Option<PathBuf> {
    let tree = tree.canonicalize().ok()?;
    let is_of_it = |mount: &MountEntry| {
        mount.file_system == "fuse.fslab"
            && Path::new(&mount.source).canonicalize().is_ok_and(|source| source == tree)
    };
    fslab_sys::mounts::list().ok()?.into_iter().find(is_of_it).map(|mount| mount.target)
}

/// Counts the files and bytes at and below a path. Unreadable files are not counted.
pub fn size_of(path: &Path) -> (u64, u64) {
    let Ok(found) = path.symlink_metadata() else { return (0, 0) };
    if !found.is_dir() {
        return if found.is_file() { (1, found.len()) } else { (0, 0) };
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| size_of(&entry.path())).fold((0, 0), sum)
}

impl<F: FnMut(&Path, Tool) -> Result<()>> Walk<'_, F> {
    fn directory(&mut self, directory: &Path) {
        if let Err(error) = self.entries(directory) {
            self.fail(directory, &error);
        }
    }

    fn entries(&mut self, directory: &Path) -> Result<()> {
        let cant = || format!("can't list {}", directory.display());
        for entry in std::fs::read_dir(directory).with_context(cant)? {
            if self.in_use.is_some() {
                return Ok(());
            }
            let entry = entry.with_context(cant)?;
            // `file_type` does not follow symbolic links, so the walk never leaves the tree.
            let kind = entry.file_type().with_context(cant)?;
            if kind.is_dir() {
                self.directory(&entry.path());
                self.in_use.take_if(|tree| *tree == entry.path());
            } else if kind.is_file() && !fslab_vfs::is_lock_file_name(&entry.file_name()) {
                self.file(&entry.path(), false);
            }
        }
        Ok(())
    }

    fn named_file(&mut self, path: &Path) {
        self.file(path, true);
    }

    /// Visits a file. An empty file is only counted: it can't be opened as a stored file, because
    /// it has no codec.
    fn file(&mut self, path: &Path, is_named: bool) {
        if path.metadata().is_ok_and(|found| found.is_file() && found.len() == 0) {
            self.outcome.stored_files += 1;
            return self.progress.add(path, 0);
        }
        let tool = match Tool::open(path) {
            Err(Error::NoStoredFile { .. }) if !is_named => {
                self.outcome.plain_files += 1;
                let bytes = path.metadata().map_or(0, |found| found.len());
                return self.progress.add(path, bytes);
            }
            Err(error) if !is_named && is_in_use(&error) => return self.leave_tree_of(path),
            Err(error) => return self.fail(path, &error.into()),
            Ok(tool) => tool,
        };
        self.outcome.stored_files += 1;
        let stored_bytes = tool.stored_bytes();
        if let Err(error) = (self.work)(path, tool) {
            self.fail(path, &error);
        }
        self.progress.add(path, stored_bytes);
    }

    /// Skips the rest of a tree that is in use. The tree is the outermost directory with a lock
    /// file, at or below the path on the command line. Without a lock file, it is that path.
    fn leave_tree_of(&mut self, file: &Path) {
        let above = file.ancestors().skip(1).take_while(|path| path.starts_with(self.named));
        let tree = above.filter(|path| has_lock(path)).last().unwrap_or(self.named).to_owned();
        self.progress.print(|| eprintln!("fslab: {}", in_use(&tree)));
        self.outcome.failed.push(Code::BadInput);
        self.outcome.failed_directories += 1;
        self.in_use = Some(tree);
    }

    fn fail(&mut self, path: &Path, error: &anyhow::Error) {
        let (shown, line) = (path.display().to_string(), one_line(error));
        let about = if line.contains(&shown) { String::new() } else { format!("{shown}: ") };
        self.progress.print(|| eprintln!("fslab: {about}{line}"));
        self.outcome.failed.push(Code::of(error));
    }
}

/// Returns the error message for a tree that is in use. It contains the mount point, if known.
pub fn in_use(tree: &Path) -> String {
    let user = match mount_over(tree) {
        Some(point) => format!("by the mount on {}: unmount it first", point.display()),
        None => "by a mount or another fslab command: unmount it, or wait until the command ends"
            .to_owned(),
    };
    format!("{} is in use {user}", tree.display())
}

impl Outcome {
    /// Returns the number of files and directories that failed.
    pub fn failures(&self) -> u64 {
        self.failed.len() as u64
    }

    /// Returns whether the walk found only failures, so that there are no figures to print.
    pub fn is_nothing_but_failures(&self) -> bool {
        self.failures() > 0 && self.stored_files + self.plain_files == 0
    }

    /// Fails if any file failed.
    ///
    /// # Errors
    /// Returns an error with the number of files that could not be `done`, and with the exit code
    /// of the first failure.
    pub fn refuse_failures(&self, done: &str) -> Result<()> {
        let directories = self.failed_directories;
        let counted = match (self.failures() - directories, directories) {
            (0, 0) => return Ok(()),
            (0, 1) => "1 directory".to_owned(),
            (0, more) => format!("{more} directories"),
            (files, 0) => units::counted(files, "file"),
            (files, 1) => format!("{} and 1 directory", units::counted(files, "file")),
            (files, more) => format!("{} and {more} directories", units::counted(files, "file")),
        };
        Err(self.first_code().error(format!("{counted} could not be {done}; see above")))
    }

    /// Returns the exit code of the first failure.
    pub fn first_code(&self) -> Code {
        self.failed.first().copied().unwrap_or(Code::Success)
    }
}
