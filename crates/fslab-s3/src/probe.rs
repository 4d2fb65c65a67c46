//! Tests whether a store honours conditional writes. fslab never writes to a store that ignores
//! them, because two writers could overwrite each other.

use bytes::Bytes;

use crate::bucket::{Bucket, Tag, When};
use crate::keys::PROBES;
use crate::random::random;
use crate::transport::{Cause, Failure};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The store honours conditions.
    Honoured,
    /// The store ignores this condition.
    Ignored(&'static str),
}

impl Found {
    /// Returns the message for users, if the store can't be written to.
    pub fn refusal(self) -> Option<String> {
        match self {
            Self::Honoured => None,
            Self::Ignored(which) => Some(format!(
                "its store ignores {which}, so two writers could destroy each other's data; use a \
                 store with conditional writes"
            )),
        }
    }
}

/// Tests conditional writes with a temporary object, which is deleted afterwards.
pub fn probe(bucket: &Bucket) -> Result<Found, Failure> {
    let key = format!("{PROBES}{:016x}", random());
    let found = try_conditions(bucket, &key);
    if let Err(failure) = bucket.delete(&key) {
        tracing::debug!("can't delete {key}: {failure}");
    }
    found
}

fn try_conditions(bucket: &Bucket, key: &str) -> Result<Found, Failure> {
    let written = write(bucket, key, "1", When::Absent).or_else(|failure| match failure.cause {
        Cause::Wrong | Cause::Unsupported | Cause::Damaged => {
            tracing::info!("{bucket}: the store refuses checksums, so none are sent: {failure}");
            bucket.omit_checksums();
            write(bucket, key, "1", When::Absent)
        }
        _ => Err(failure),
    });
    let first = match written? {
        Some(tag) => tag,
        // The object already exists, because an earlier attempt of this request succeeded.
        None => bucket.get(key)?.tag,
    };
    if write(bucket, key, "2", When::Absent)?.is_some() {
        return Ok(Found::Ignored("the condition If-None-Match"));
    }
    let second = match write(bucket, key, "3", When::Matches(&first))? {
        Some(tag) => tag,
        None => bucket.get(key)?.tag,
    };
    if second == first {
        return Ok(Found::Ignored("changed content when it computes ETags"));
    }
    if write(bucket, key, "4", When::Matches(&first))?.is_some() {
        return Ok(Found::Ignored("the condition If-Match"));
    }
    let held = bucket.get(key)?;
    if held.tag != second || held.bytes != "3" {
        return Ok(Found::Ignored("the last write"));
    }
    Ok(Found::Honoured)
}

/// Writes the object. Returns `None` if the condition does not hold.
fn write(
    bucket: &Bucket,
    key: &str,
    body: &'static str,
    when: When<'_>,
) -> Result<Option<Tag>, Failure> {
    match bucket.put(key, Bytes::from_static(body.as_bytes()), when) {
        Ok(tag) => Ok(Some(tag)),
        Err(failure) if failure.cause == Cause::Condition => Ok(None),
        Err(failure) => Err(failure),
    }
}
