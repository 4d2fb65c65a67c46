//! The samples files of a campaign. Each attempt at a share has its own file, written by one
//! process.
//!
//! A file is named `KKK-of-NNN.TIME.HOST.PID.jsonl`. The name has the suffix `.part` while the
//! attempt runs, and keeps it if the attempt is killed. Names are unique, so an attempt never
//! writes to or replaces the file of another attempt.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use fslab_report::sample::{self, EndReason, Record};
use fslab_report::{Provenance, Share};
use jiff::Timestamp;

use crate::campaign::Campaign;
use crate::error::{Error, Result};
use crate::format::ATTEMPTS;

const WHOLE: &str = ".jsonl";
const PART: &str = ".jsonl.part";

/// The measurements of one process for one share.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The samples file.
    pub file: PathBuf,
    /// The share that was requested.
    pub share: Share,
    /// Whether the attempt ended by itself. If not, it is running or was killed.
    pub is_ended: bool,
    /// The host, time and program of the attempt.
    pub provenance: Provenance,
    /// All complete records of the file.
    pub(crate) records: Vec<Record>,
}

impl Attempt {
    /// Returns the reason for the end of the attempt, if it has ended by itself.
    #[must_use]
    pub fn reason(&self) -> Option<EndReason> {
        self.records.iter().rev().find_map(|record| match record {
            Record::End(end) => Some(end.reason),
            _ => None,
        })
    }
}

/// Returns the two names of a new attempt's file: the name while the attempt runs, and the name
/// after it has finished.
pub(crate) fn new_files(campaign: &Campaign, share: Share, now: Timestamp) -> (PathBuf, PathBuf) {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    let host: String = host.chars().filter(|letter| is_plain(*letter)).collect();
    let time = now.strftime("%Y%m%dT%H%M%S");
    let (nanoseconds, process) = (now.subsec_nanosecond(), std::process::id());
    let Share { number, of } = share;
    let name = format!("{number:03}-of-{of:03}.{time}-{nanoseconds:09}.{host}.{process}");
    let directory = campaign.directory().join(ATTEMPTS);
    (directory.join(format!("{name}{PART}")), directory.join(format!("{name}{WHOLE}")))
}

/// Splits a file name into the share and the remaining text, by which attempts are sorted.
fn parse(name: &str) -> Option<(Share, &str)> {
    let name = name.strip_suffix(PART).or_else(|| name.strip_suffix(WHOLE))?;
    let (share, rest) = name.split_once('.')?;
    Some((share.replace("-of-", "/").parse().ok()?, rest))
}

/// Returns all attempts with at least one record, in the order in which they began. Files with
/// other names are ignored, such as the temporary files of network file systems.
pub(crate) fn all(campaign: &Campaign) -> Result<Vec<Attempt>> {
    let directory = campaign.directory().join(ATTEMPTS);
    let mut names = Vec::new();
    for entry in fs::read_dir(&directory).map_err(Error::file(&directory))? {
        let name = entry.map_err(Error::file(&directory))?.file_name();
        names.extend(name.into_string().ok().filter(|name| parse(name).is_some()));
    }
    names.sort_by(|one, other| order(one).cmp(&order(other)));
    // A file that was renamed during the listing may be listed under both names. After sorting, the
    // final name comes first, and is kept.
    names.dedup_by(|later, first| stem(later) == stem(first));
    let mut found = Vec::new();
    for name in &names {
        found.extend(read(campaign, &directory, name)?);
    }
    Ok(found)
}

fn order(name: &str) -> (&str, &str) {
    (parse(name).map_or("", |(_, rest)| rest), name)
}

/// Returns the name of an attempt without the suffix that shows whether it has ended.
fn stem(name: &str) -> &str {
    name.strip_suffix(PART).or_else(|| name.strip_suffix(WHOLE)).unwrap_or(name)
}

/// Returns the result of reading a file, or `None` if the file was renamed after the listing. On a
/// network file system, opening a renamed file may also fail with `ESTALE`, because the client has
/// cached the file's old handle.
fn found<T>(read: fslab_report::Result<T>) -> Result<Option<T>> {
    match read {
        Err(fslab_report::Error::File { source, .. })
            if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::StaleNetworkFileHandle) =>
        {
            Ok(None)
        }
        other => Ok(Some(other?)),
    }
}

/// Reads an attempt. Returns `None` if the attempt was killed before its first record.
fn read(campaign: &Campaign, directory: &Path, name: &str) -> Result<Option<Attempt>> {
    let Some((share, _)) = parse(name) else { return Ok(None) };
    let listed = directory.join(name);
    let whole = directory.join(format!("{}{WHOLE}", stem(name)));
    let (file, is_ended, records) = match name.ends_with(PART) {
        false => (listed, true, sample::read(&whole)?),
        true => match found(sample::read_prefix(&listed))? {
            Some(records) => (listed, false, records),
            // The attempt has ended since the listing, or its process removed the file.
            None => match found(sample::read(&whole))? {
                Some(records) => (whole, true, records),
                None => return Ok(None),
            },
        },
    };
    let Some(Record::Provenance(first)) = records.first() else { return Ok(None) };
    let provenance = (**first).clone();
    check(campaign, &file, &records, &provenance)?;
    Ok(Some(Attempt { file, share, is_ended, provenance, records }))
}

/// Refuses samples of another campaign.
fn check(campaign: &Campaign, file: &Path, records: &[Record], first: &Provenance) -> Result<()> {
    let foreign = |what| Err(Error::Foreign { path: file.to_owned(), what });
    let frozen = campaign.frozen();
    if first.plan != campaign.plan().text || first.form != frozen.form {
        return foreign("plan");
    }
    if first.seed != frozen.seed {
        return foreign("seed");
    }
    for record in records {
        let Record::Sample(sample) = record else { continue };
        let same = |block: &&crate::format::Block| {
            block.round == sample.round && block.workload == sample.workload
        };
        match frozen.blocks.iter().find(same) {
            Some(block) if block.seed == sample.seed && sample.run == first.run => {}
            _ => return foreign("list of cells"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempt_names_contain_the_share_and_sort_by_time() {
        let share = Share { number: 2, of: 12 };
        let name = "002-of-012.20261128T120000-000000001.n1.77.jsonl.part";
        assert_eq!(parse(name).map(|(share, _)| share), Some(share));
        let later = "001-of-012.20261128T120001-000000000.n1.77.jsonl";
        assert!(order(name) < order(later));
        for other in [".nfs00001", "002-of-012.jsonl.swp", "x.jsonl", "0-of-1.a.jsonl"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
