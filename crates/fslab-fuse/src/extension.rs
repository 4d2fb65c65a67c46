//! Extensions after the body of a request that creates a file: labels of security modules, and the
//! relevant supplementary group of the caller.
//!
//! Each record begins with a header: the length of the record, including the header, and a number.
//! A number up to 31 is the count of labels in the record; a higher number is the kind of the
//! record. Records and labels are padded to eight bytes.

use std::ffi::OsString;

use fslab_vfs::Creation;

use crate::decode::{Malformed, Pieces};
use crate::protocol::request::{ExtHeader, Secctx, SuppGroups};

/// Up to this value, the number in a record's header is its count of labels.
const LABELS_MAX: u32 = 31;
/// The kind of a record of groups.
const GROUPS: u32 = 32;

/// Parses all records; unknown kinds are skipped, as the protocol requires.
pub(crate) fn parse(bytes: &[u8]) -> Result<Creation, Malformed> {
    let mut creation = Creation::default();
    let mut records = Pieces::new(bytes);
    while !records.is_empty() {
        let header: ExtHeader = records.take()?;
        let length = (header.size as usize).checked_sub(size_of::<ExtHeader>()).ok_or(Malformed)?;
        let mut record = Pieces::new(records.take_bytes(length)?);
        match header.kind {
            count if count <= LABELS_MAX => add_labels(&mut record, count, &mut creation)?,
            GROUPS => creation.groups = Some(take_groups(&mut record)?),
            _unknown => {}
        }
    }
    Ok(creation)
}

fn add_labels(
    record: &mut Pieces<'_>,
    count: u32,
    creation: &mut Creation,
) -> Result<(), Malformed> {
    for _ in 0..count {
        let before = record.remaining();
        let label: Secctx = record.take()?;
        let name: OsString = record.take_name()?.to_owned();
        let value = record.take_bytes(label.size as usize)?.to_vec();
        creation.labels.push((name, value));
        let used = before - record.remaining();
        record.take_bytes(used.next_multiple_of(8) - used)?;
    }
    Ok(())
}

fn take_groups(record: &mut Pieces<'_>) -> Result<Vec<u32>, Malformed> {
    let groups: SuppGroups = record.take()?;
    // An excessive count is harmless, because parsing fails at the end of the record.
    (0..groups.nr_groups).map(|_| record.take::<u32>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn labels_and_groups_are_found() {
        // One label: its header of 8 bytes, the name with its NUL (11 bytes) and the value (3
        // bytes) are padded to 24 bytes.
        let mut bytes = words(&[8 + 24, 1, 3, 0]);
        bytes.extend_from_slice(b"security.x\0abc\0\0");
        bytes.extend(words(&[16, GROUPS, 1, 4321]));
        let creation = parse(&bytes).unwrap();
        assert_eq!(creation.groups, Some(vec![4321]));
        assert_eq!(creation.labels, [("security.x".into(), b"abc".to_vec())]);
        assert_eq!(parse(&words(&[8, 0])).unwrap(), Creation::default());
        assert_eq!(parse(&words(&[16, 99, 1, 2])).unwrap(), Creation::default(), "unknown");
    }

    #[test]
    fn records_that_do_not_fit_are_malformed() {
        for bytes in [
            words(&[16, GROUPS, 2, 4321]),
            words(&[16, GROUPS, u32::MAX, 4321]),
            words(&[24, GROUPS, 1, 4321]),
            words(&[0, GROUPS]),
            words(&[4]),
            words(&[16, 1, u32::MAX, 0]),
            words(&[8, 31]),
        ] {
            assert_eq!(parse(&bytes), Err(Malformed), "{bytes:?}");
        }
    }
}
