//! Marks of objects that are about to be deleted.
//!
//! A request to delete may be held up on its way, until long after somebody else writes to the
//! archive. So a writer marks an object first, then renews its lease, and only then deletes. If the
//! renewal succeeded, whoever takes over later finds the mark, and never refers to the object; if
//! it failed, the writer deletes nothing.
//!
//! A mark of a session counts for those that begin later, until one of them has settled all that it
//! found and says so in its epoch. A mark that turns up behind that is of a former writer whose
//! renewal failed.

use std::collections::HashSet;

use bytes::Bytes;

use crate::bucket::{Bucket, When};
use crate::keys::{ContainerKey, DELETED, Session, mark_key, mark_of};
use crate::lease::{Epochs, Lease};
use crate::transport::Failure;

/// Marks that are read at most: far more than a writer leaves behind.
const MARKS_MAX: usize = 1_000_000;

/// Objects that nobody may refer to any more.
#[derive(Debug, Default)]
pub struct Marks {
    found: Vec<(Session, ContainerKey)>,
    /// Those that do not count.
    stale: Vec<(Session, ContainerKey)>,
}

impl Marks {
    /// Reads the marks that count.
    ///
    /// # Errors
    /// Failures of the requests, or too many marks.
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

    /// The objects.
    pub fn objects(&self) -> HashSet<ContainerKey> {
        self.found.iter().map(|(_, object)| *object).collect()
    }

    /// Deletes the objects that earlier writers marked, and answers those that stay for now. The
    /// marks are those that were read before the lease was taken: a later one is of a writer whose
    /// renewal failed.
    ///
    /// # Errors
    /// If nothing can be read; what can't be deleted stays marked.
    pub fn settle(self, bucket: &Bucket, lease: &Lease) -> Result<HashSet<ContainerKey>, Failure> {
        for (session, object) in &self.stale {
            bucket.delete(&mark_key(*session, object))?;
        }
        let mut left = HashSet::new();
        for (session, object) in self.found {
            let deleted = bucket.delete(&object.to_string());
            match deleted.and_then(|()| bucket.delete(&mark_key(session, &object))) {
                Ok(()) => {}
                Err(failure) => {
                    tracing::warn!("an object of an archive is deleted later: {failure}");
                    // A mark of this session counts for those after it.
                    mark(bucket, lease.session(), &object)?;
                    left.insert(object);
                }
            }
        }
        Ok(left)
    }
}

/// Marks an object.
///
/// # Errors
/// Failures of the request.
pub fn mark(bucket: &Bucket, session: Session, object: &ContainerKey) -> Result<(), Failure> {
    // Some stores keep no empty objects.
    let text = Bytes::from(format!("{session}\n"));
    bucket.put(&mark_key(session, object), text, When::Always).map(drop)
}
