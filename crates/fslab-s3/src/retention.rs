//! Deleted objects that the store retains. There are two cases:
//!
//! - The store refuses to delete an object, because of a retention period or a legal hold. The
//!   object remains marked, so no writer refers to it, and the deletion is tried again later.
//! - The bucket has versioning: a deletion only adds a delete marker, and the object remains as an
//!   old version. fslab never deletes old versions, because versioning protects a bucket from its
//!   own writers. The bucket's lifecycle rules delete them.
//!
//! In both cases no space is freed, so such objects are counted.

use std::collections::BTreeMap;

use fslab_tier::archive::{Container, Retained};
use parking_lot::Mutex;

use crate::bucket::{Bucket, Lock, Result};
use crate::keys::{CONTAINERS, ContainerKey};
use crate::transport::Cause;

/// The maximum number of pages of old versions that are read when an archive is opened, for each
/// folder of containers. So opening an archive with many versions does not take long.
const PAGES_AT_OPEN: u32 = 2;

/// What happened to an object that was to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The object was deleted, or did not exist.
    Freed,
    /// The object can't be read any longer, but remains as an old version.
    OldVersion,
    /// The store refuses the deletion, because the object is locked.
    Refused,
}

/// The rules of a bucket for deleted objects, and the objects that it retains.
#[derive(Debug, Default)]
pub struct Retention {
    /// The name of the archive, for messages.
    label: String,
    has_versions: bool,
    /// The object lock of the bucket, for users.
    lock: Option<String>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The sizes of objects whose deletion was refused, in bytes.
    refused: BTreeMap<String, (ContainerKey, u64)>,
    /// The last reason for a refusal.
    why: String,
    old_versions: Count,
    has_reported: bool,
}

/// A number of old versions.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    objects: u64,
    bytes: u64,
    /// Whether there may be more versions.
    is_partial: bool,
}

impl Retention {
    /// Reads the rules of the bucket. A store that does not tell its rules counts as one that
    /// retains nothing, until an answer shows the opposite.
    pub fn read(bucket: &Bucket, label: &str) -> Self {
        let has_versions = known(bucket, "versioning", bucket.has_versions()).unwrap_or(false);
        let lock = known(bucket, "object lock", bucket.object_lock()).flatten();
        let (label, state) = (label.to_owned(), Mutex::default());
        Self { label, has_versions, lock, state }
    }

    /// Returns why the bucket retains deleted objects, for users. `None` if it frees their space.
    pub fn rules(&self) -> Option<String> {
        let lock = self.lock.as_deref();
        match (self.has_versions, lock) {
            (true, None) => Some(
                "the bucket has versioning, so deleted objects remain as old versions until its \
                 lifecycle rules delete them"
                    .to_owned(),
            ),
            (true, Some(lock)) => Some(format!(
                "the bucket has versioning and {lock}, so deleted objects remain as old versions \
                 until their retention has ended and its lifecycle rules delete them"
            )),
            (false, Some(lock)) => {
                Some(format!("the bucket has {lock}, so it may refuse to delete objects"))
            }
            (false, None) => None,
        }
    }

    /// Returns the retained objects and the reason. `None` if there are none and the bucket frees
    /// the space of deleted objects.
    pub fn retained(&self) -> Option<Retained> {
        let state = self.state.lock();
        let refused = state.refused.values().map(|(_, bytes)| bytes);
        let Count { objects, bytes, is_partial } = state.old_versions;
        let (objects, bytes) =
            (objects + refused.len() as u64, bytes.saturating_add(refused.sum()));
        let refusal = (!state.refused.is_empty())
            .then(|| format!("the store refuses to delete objects: {}", state.why));
        // A bucket whose versioning is suspended, or that does not tell it, may have old versions.
        let old_versions = (objects > state.refused.len() as u64 && !self.has_versions)
            .then(|| "the bucket retains old versions of deleted objects".to_owned());
        let reasons: Vec<_> = self.rules().into_iter().chain(old_versions).chain(refusal).collect();
        let reason = reasons.join("; ");
        (!reason.is_empty()).then_some(Retained { objects, bytes, is_partial, reason })
    }

    /// Returns whether the store refuses to delete an object of a container.
    pub fn refuses(&self, container: Container) -> bool {
        self.state.lock().refused.values().any(|(key, _)| key.container == container)
    }

    /// Deletes an object, which must be marked. If its fate is [`Fate::Refused`], the mark must be
    /// kept. `length` is the size of the object in bytes, if it is known.
    ///
    /// # Errors
    /// Fails if the request fails for another reason than a lock.
    pub fn delete(&self, bucket: &Bucket, key: &ContainerKey, length: Option<u64>) -> Result<Fate> {
        let name = key.to_string();
        let failure = match bucket.delete(&name) {
            Ok(is_marked) => {
                self.state.lock().refused.remove(&name);
                return if is_marked {
                    self.note_versions(bucket, &name, length)
                } else {
                    Ok(Fate::Freed)
                };
            }
            Err(failure) if matches!(failure.cause, Cause::Locked | Cause::Denied) => failure,
            Err(failure) => return Err(failure),
        };
        // If the store does not tell the lock of the object, its refusal is the reason.
        let Lock { length: found, why } = bucket.lock_of(&name).unwrap_or_default();
        let why = match why {
            None if failure.cause == Cause::Denied => return Err(failure),
            why => why.unwrap_or_else(|| failure.to_string()),
        };
        let bytes = length.or(found).unwrap_or(0);
        let mut state = self.state.lock();
        state.refused.insert(name.clone(), (*key, bytes));
        state.why.clone_from(&why);
        self.report(&mut state, &format!("the store refuses to delete {name}: {why}"));
        Ok(Fate::Refused)
    }

    /// Counts the old versions of an object to which a delete marker was added.
    fn note_versions(&self, bucket: &Bucket, name: &str, length: Option<u64>) -> Result<Fate> {
        let mut found = Count::default();
        match found.add(bucket, name, u32::MAX) {
            Ok(()) => {}
            Err(failure) if failure.cause == Cause::Unavailable => return Err(failure),
            // The list needs a separate permission. The marker shows that the object remains.
            Err(failure) => {
                tracing::debug!("{}: can't list old versions: {failure}", self.label);
                found = Count { objects: 1, bytes: length.unwrap_or(0), is_partial: false };
            }
        }
        if found.objects == 0 {
            return Ok(Fate::Freed);
        }
        let mut state = self.state.lock();
        state.old_versions.objects += found.objects;
        state.old_versions.bytes += found.bytes;
        self.report(&mut state, &format!("{name} remains as an old version"));
        Ok(Fate::OldVersion)
    }

    /// Logs the first retained object. The others are only counted, because there may be very many.
    fn report(&self, state: &mut State, what: &str) {
        if !std::mem::replace(&mut state.has_reported, true) {
            tracing::warn!(
                "{}: {what}. Its space is not freed; `fslab tier archives` counts such objects",
                self.label
            );
        }
    }

    /// Returns the objects whose deletion was refused.
    pub fn refused(&self) -> Vec<ContainerKey> {
        self.state.lock().refused.values().map(|(key, _)| *key).collect()
    }

    /// Counts old versions, when the archive is opened.
    ///
    /// # Errors
    /// Fails if the store can't be reached.
    pub fn count_first(&self, bucket: &Bucket) -> Result<()> {
        self.count(bucket, PAGES_AT_OPEN)
    }

    /// Counts all old versions.
    ///
    /// # Errors
    /// Fails if the store can't be reached.
    pub fn count_all(&self, bucket: &Bucket) -> Result<()> {
        self.count(bucket, u32::MAX)
    }

    fn count(&self, bucket: &Bucket, pages: u32) -> Result<()> {
        if !self.has_versions && self.state.lock().old_versions.objects == 0 {
            return Ok(());
        }
        let mut found = Count::default();
        for folder in CONTAINERS {
            match found.add(bucket, folder, pages) {
                Ok(()) => {}
                Err(failure) if failure.cause == Cause::Unavailable => return Err(failure),
                Err(failure) => {
                    tracing::debug!("{}: can't list old versions: {failure}", self.label);
                    found.is_partial = true;
                }
            }
        }
        self.state.lock().old_versions = found;
        Ok(())
    }
}

impl Count {
    /// Adds the old versions of containers whose keys begin with `begin`.
    fn add(&mut self, bucket: &Bucket, begin: &str, pages: u32) -> Result<()> {
        let is_complete = bucket.list_versions(begin, pages, &mut |key, length, is_latest| {
            if !is_latest && key.parse::<ContainerKey>().is_ok() {
                self.objects += 1;
                self.bytes = self.bytes.saturating_add(length);
            }
        })?;
        self.is_partial |= !is_complete;
        Ok(())
    }
}

/// Returns a rule, or `None` if the store does not tell it. Reading it may need a permission of its
/// own, and stores answer unknown requests in many ways.
fn known<T>(bucket: &Bucket, what: &str, rule: Result<T>) -> Option<T> {
    rule.inspect_err(|failure| {
        tracing::debug!("{bucket}: can't read the bucket's {what}: {failure}");
    })
    .ok()
}
