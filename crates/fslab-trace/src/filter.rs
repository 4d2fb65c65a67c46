//! Which records are wanted.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fslab_vfs::Operation;
use globset::{GlobBuilder, GlobMatcher};

use crate::record::Record;

/// Which records are wanted: those that fit everything that is asked. A list fits where any of its
/// values does; an empty list fits all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// These operations.
    pub operations: Vec<Operation>,
    /// About one of these inodes, or the answer is one.
    pub inodes: Vec<u64>,
    /// A name in it fits.
    pub names: Vec<Pattern>,
    /// The path of an inode it is about fits.
    pub paths: Vec<Pattern>,
    /// Asked for by these threads.
    pub pids: Vec<u32>,
    /// Asked for by these users.
    pub uids: Vec<u32>,
    /// Failed.
    pub failed: bool,
    /// Failed with one of these error numbers.
    pub errnos: Vec<u32>,
    /// Took at least so long.
    pub duration_ns_min: u64,
    /// Began no earlier than this after the trace did.
    pub start_ns_min: u64,
    /// Began before this.
    pub start_ns_end: Option<u64>,
}

/// Tells the path of an inode.
pub type Fits<'a> = dyn Fn(u64) -> Option<String> + 'a;

impl Filter {
    /// Whether a record is wanted; `path` tells where an inode is.
    #[must_use]
    pub fn accepts(&self, record: &Record, path: &Fits<'_>) -> bool {
        self.accepts_result(record)
            && any(&self.operations, |wanted| *wanted == record.operation)
            && any(&self.pids, |wanted| record.pid == Some(*wanted))
            && any(&self.uids, |wanted| record.uid == Some(*wanted))
            && any(&self.inodes, |wanted| inodes(record).any(|ino| ino == *wanted))
            && any(&self.names, |wanted| names(record).any(|name| matches(wanted, name)))
            && any(&self.paths, |wanted| {
                inodes(record).filter_map(path).any(|found| matches(wanted, found.as_bytes()))
            })
    }

    fn accepts_result(&self, record: &Record) -> bool {
        (!self.failed || record.errno != 0)
            && any(&self.errnos, |wanted| record.errno == *wanted)
            && record.duration_ns >= self.duration_ns_min
            && record.start_ns >= self.start_ns_min
            && self.start_ns_end.is_none_or(|end| record.start_ns < end)
    }
}

fn any<T>(wanted: &[T], fits: impl Fn(&T) -> bool) -> bool {
    wanted.is_empty() || wanted.iter().any(fits)
}

fn inodes(record: &Record) -> impl Iterator<Item = u64> {
    let all = [record.inode, record.parent, record.new_parent, record.from_inode];
    all.into_iter().chain([record.result_inode]).flatten()
}

fn names(record: &Record) -> impl Iterator<Item = &[u8]> {
    [&record.name, &record.new_name].into_iter().flatten().map(Vec::as_slice)
}

/// A pattern for names and paths, as in a shell: `*` and `?` stand for what is within a name, `**`
/// for any number of directories.
///
/// # Errors
/// What is wrong with it.
pub fn pattern(text: &str) -> Result<Pattern, globset::Error> {
    Ok(GlobBuilder::new(text).literal_separator(true).build()?.compile_matcher())
}

/// A pattern for names and paths.
pub type Pattern = GlobMatcher;

fn matches(pattern: &Pattern, found: &[u8]) -> bool {
    pattern.is_match(OsStr::from_bytes(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_asked_must_fit() {
        let mut record = Record::new(Operation::Lookup);
        (record.parent, record.name, record.errno) = (Some(1), Some(b"main.rs".to_vec()), 2);
        let path = |ino| (ino == 1).then(|| "/".to_owned());
        let accepts = |filter: Filter| filter.accepts(&record, &path);
        assert!(accepts(Filter::default()));
        let lookups = Filter { operations: vec![Operation::Lookup], ..Filter::default() };
        assert!(accepts(Filter { failed: true, errnos: vec![2], ..lookups.clone() }));
        assert!(!accepts(Filter { errnos: vec![5], ..lookups.clone() }));
        let (names, paths) = (vec![pattern("*.rs").unwrap()], vec![pattern("/").unwrap()]);
        assert!(accepts(Filter { names, paths, ..lookups.clone() }));
        assert!(!accepts(Filter { names: vec![pattern("*.c").unwrap()], ..lookups }));
        assert!(!accepts(Filter { operations: vec![Operation::Read], ..Filter::default() }));
        assert!(!accepts(Filter { start_ns_end: Some(0), ..Filter::default() }));
        assert!(!accepts(Filter { duration_ns_min: 1, ..Filter::default() }));
        assert!(!accepts(Filter { inodes: vec![7], ..Filter::default() }));
    }
}
