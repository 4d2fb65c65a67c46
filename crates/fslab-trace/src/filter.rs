//! Which records are wanted.

use fslab_vfs::Operation;

use crate::record::Record;

/// Which records are wanted: those that fit everything that is asked. A list fits where any of its
/// values does; an empty list fits all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// These operations.
    pub operations: Vec<Operation>,
    /// About one of these inodes, or the answer is one.
    pub inodes: Vec<u64>,
    /// A name in it fits a pattern with `*` and `?`.
    pub names: Vec<String>,
    /// The path of an inode it is about fits a pattern with `*` and `?`.
    pub paths: Vec<String>,
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

/// Whether bytes fit a pattern: `*` stands for any bytes, `?` for one.
fn matches(pattern: &str, found: &[u8]) -> bool {
    let pattern = pattern.as_bytes();
    let (mut at, mut from) = (0, 0);
    // Where to go on when the last `*` should have taken one byte more.
    let mut retry = None;
    while from < found.len() {
        match pattern.get(at) {
            Some(b'*') => {
                retry = Some((at, from));
                at += 1;
            }
            Some(wanted) if *wanted == b'?' || *wanted == found[from] => {
                (at, from) = (at + 1, from + 1);
            }
            _ => {
                let Some((star, taken)) = retry else { return false };
                (at, from) = (star + 1, taken + 1);
                retry = Some((star, taken + 1));
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_in_a_shell() {
        for (pattern, name, fits) in [
            ("*.rs", "main.rs", true),
            ("*.rs", "main.rsx", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*", "", true),
            ("", "a", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "xxaxxbxx", false),
            ("*ab", "aab", true),
        ] {
            assert_eq!(matches(pattern, name.as_bytes()), fits, "{pattern} {name}");
        }
    }

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
        assert!(accepts(Filter { names: vec!["*.rs".into()], paths: vec!["/".into()], ..lookups }));
        assert!(!accepts(Filter { operations: vec![Operation::Read], ..Filter::default() }));
        assert!(!accepts(Filter { start_ns_end: Some(0), ..Filter::default() }));
        assert!(!accepts(Filter { duration_ns_min: 1, ..Filter::default() }));
        assert!(!accepts(Filter { inodes: vec![7], ..Filter::default() }));
    }
}
