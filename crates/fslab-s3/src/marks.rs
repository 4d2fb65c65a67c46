//! Marks of objects that are about to be deleted.
//!
//! A delete request may be delayed until long after another writer has taken over the archive. So a
//! writer marks an object first, then renews its lease, and only then deletes the object. If the
//! renewal succeeds, every later writer finds the mark and never refers to the object. If the
//! renewal fails, the writer deletes nothing.
//!
//! The next session resolves all marks that it finds, and then marks its epoch as begun. From then
//! on, marks of earlier sessions are invalid. A mark that appears later belongs to a former writer
//! whose renewal failed.

use std::collections::HashSet;

use bytes::Bytes;

use crate::bucket::{Bucket, When};
use crate::keys::{ContainerKey, DELETED, Session, mark_key, mark_of};
use crate::lease::{Epochs, Lease};
use crate::retention::{Fate, Retention};
use crate::transport::Failure;

/// The maximum number of marks to read, far more than a writer leaves behind.
const MARKS_MAX: usize = 1_000_000;

/// The marks that were found in an archive.
#[derive(Debug, Default)]
pub struct Marks {
    found: Vec<(Session, ContainerKey)>,
    /// The marks that are no longer valid.
    stale: Vec<(Session, ContainerKey)>,
}

impl Marks {
    /// Reads the marks, and separates the valid ones from those that are no longer valid.
    ///
    /// # Errors
    /// Fails if a request fails or there are too many marks.
    pub fn read(bucket: &Bucket) -> Result<Self, Failure> {
        let mut found = Vec::new();
        bucket.list(DELETED, &mut |key, _| {
            found.extend(mark_of(key));
            found.len() <= MARKS_MAX
        })?;
        if found.len() > MARKS_MAX {
            return Err(Failure::wrong("the archive has too many marks of deleted objects"));
        }
        if found.is_empty() {
            return Ok(Self::default());
        }
        let begun = Epochs::read(bucket)?.begun.unwrap_or(0);
        let (found, stale) =
            found.into_iter().partition(|(session, _): &(Session, _)| session.epoch >= begun);
        Ok(Self { found, stale })
    }

    pub fn objects(&self) -> HashSet<ContainerKey> {
        self.found.iter().map(|(_, object)| *object).collect()
    }

    /// Deletes the objects that earlier writers marked. Returns those that could not be deleted
    /// yet. The marks must have been read before the lease was taken: a later mark belongs to a
    /// writer whose renewal failed.
    ///
    /// # Errors
    /// Fails if a stale mark can't be deleted or an object can't be marked again. Objects that
    /// can't be deleted remain marked.
    pub fn settle(
        self,
        bucket: &Bucket,
        lease: &Lease,
        retention: &Retention,
    ) -> Result<HashSet<ContainerKey>, Failure> {
        for (session, object) in &self.stale {
            bucket.delete(&mark_key(*session, object))?;
        }
        let mut left = HashSet::new();
        for (session, object) in self.found {
            let old = mark_key(session, &object);
            let deleted = retention.delete(bucket, &object, None).and_then(|fate| match fate {
                Fate::Refused => Ok(fate),
                Fate::Freed | Fate::OldVersion => bucket.delete(&old).map(|_| fate),
            });
            if let Ok(Fate::Freed | Fate::OldVersion) = deleted {
                continue;
            }
            // The old mark becomes invalid when this session begins, so this session marks the
            // object again.
            mark(bucket, lease.session(), &object)?;
            left.insert(object);
            if let Err(failure) = deleted {
                tracing::warn!(
                    "{bucket}: can't delete object {object}; a later start tries again: {failure}"
                );
            }
        }
        Ok(left)
    }
}

pub fn mark(bucket: &Bucket, session: Session, object: &ContainerKey) -> Result<(), Failure> {
    // Some stores do not keep empty objects.
    let text = Bytes::from(format!("{session}\n"));
    bucket.put(&mark_key(session, object), text, When::Always).map(drop)
}
