//! Selects records of a trace.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fslab_trace::{Paths, Record};
use fslab_vfs::{Operation, errno_from_name};
use globset::{GlobBuilder, GlobMatcher};

use crate::units::parse_duration;

/// Selects the records that match all filters. A filter with several values matches any of them; an
/// empty filter matches every record.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Filter {
    /// Only this operation, such as lookup or write
    #[arg(long, short_alias = 'o', value_name = "NAME")]
    operation: Vec<Operation>,
    /// Only operations that use or return this inode
    #[arg(long, value_name = "NUMBER")]
    inode: Vec<u64>,
    /// Only operations on a file name that matches this pattern
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    name: Vec<GlobMatcher>,
    /// Only operations on a path that matches this pattern
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    path: Vec<GlobMatcher>,
    /// Only operations of this thread
    #[arg(long)]
    pid: Vec<u32>,
    /// Only operations of this user
    #[arg(long)]
    uid: Vec<u32>,
    /// Only operations that failed
    #[arg(long)]
    failed: bool,
    /// Only operations with this error: a name such as ENOENT, or a number
    #[arg(long, value_name = "NAME", value_parser = errno)]
    errno: Vec<u32>,
    /// Only operations that took at least this long
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    slower_than: Option<Duration>,
    /// Only operations that began at least this long after the start of the trace
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    from: Option<Duration>,
    /// Only operations that began less than this long after the start of the trace
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    until: Option<Duration>,
}

impl Filter {
    /// Returns whether a record is selected. `paths` must contain the effects of all earlier
    /// records.
    pub(super) fn accepts(&self, record: &Record, paths: &Paths) -> bool {
        self.accepts_result(record)
            && any(&self.operation, |wanted| *wanted == record.operation)
            && any(&self.pid, |wanted| record.pid == Some(*wanted))
            && any(&self.uid, |wanted| record.uid == Some(*wanted))
            && any(&self.inode, |wanted| inodes(record).any(|ino| ino == *wanted))
            && any(&self.name, |wanted| names(record).any(|name| matches(wanted, name)))
            && any(&self.path, |wanted| {
                let mut known = inodes(record).filter_map(|ino| paths.of(ino));
                known.any(|found| matches(wanted, found.as_bytes()))
            })
    }

    fn accepts_result(&self, record: &Record) -> bool {
        let began = Duration::from_nanos(record.start_ns);
        let took = Duration::from_nanos(record.duration_ns);
        (!self.failed || record.errno != 0)
            && any(&self.errno, |wanted| record.errno == *wanted)
            && self.slower_than.is_none_or(|least| took >= least)
            && self.from.is_none_or(|from| began >= from)
            && self.until.is_none_or(|end| began < end)
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

fn errno(text: &str) -> Result<u32, String> {
    let errno = errno_from_name(text).ok_or_else(|| format!("there is no error '{text}'"))?;
    Ok(errno.raw_os_error().cast_unsigned())
}

/// Parses a shell pattern for names and paths. `*` and `?` match within one name; `**` matches any
/// number of directories.
fn pattern(text: &str) -> Result<GlobMatcher, globset::Error> {
    Ok(GlobBuilder::new(text).literal_separator(true).build()?.compile_matcher())
}

fn matches(pattern: &GlobMatcher, found: &[u8]) -> bool {
    pattern.is_match(OsStr::from_bytes(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_must_match_every_filter() {
        let mut record = Record::new(Operation::Lookup);
        (record.parent, record.name, record.errno) = (Some(1), Some(b"main.rs".to_vec()), 2);
        let paths = Paths::default();
        let accepts = |filter: Filter| filter.accepts(&record, &paths);
        assert!(accepts(Filter::default()));
        let lookups = Filter { operation: vec![Operation::Lookup], ..Filter::default() };
        assert!(accepts(Filter { failed: true, errno: vec![2], ..lookups.clone() }));
        assert!(!accepts(Filter { errno: vec![5], ..lookups.clone() }));
        let (name, path) = (vec![pattern("*.rs").unwrap()], vec![pattern("/").unwrap()]);
        assert!(accepts(Filter { name, path, ..lookups.clone() }));
        assert!(!accepts(Filter { name: vec![pattern("*.c").unwrap()], ..lookups }));
        assert!(!accepts(Filter { operation: vec![Operation::Read], ..Filter::default() }));
        assert!(!accepts(Filter { until: Some(Duration::ZERO), ..Filter::default() }));
        let slower_than = Some(Duration::from_nanos(1));
        assert!(!accepts(Filter { slower_than, ..Filter::default() }));
        assert!(!accepts(Filter { inode: vec![7], ..Filter::default() }));
    }
}
