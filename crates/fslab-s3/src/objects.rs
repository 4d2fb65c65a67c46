//! Maps the containers of an archive to objects: finds the valid object of a container, makes new
//! keys, and deletes objects.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_tier::archive::{ArchiveDescription, Container, Deletion, Proof};
use parking_lot::RwLock;
use quick_cache::sync::Cache;

use crate::bucket::Bucket;
use crate::keys::{ContainerKey, DESCRIPTION, begin_of, mark_key};
use crate::lease::Lease;
use crate::marks::mark;
use crate::retention::{Fate, Retention};
use crate::transport::{Cause, Failure};

/// The number of containers whose object is cached.
const REMEMBERED: usize = 1 << 16;

/// The maximum number of objects of a container. A container has more than one object only while a
/// damaged object is being replaced.
const VERSIONS_MAX: usize = 1000;

/// The objects of an archive, shared with its uploads.
pub struct Objects {
    pub bucket: Arc<Bucket>,
    /// The name of the archive, for messages.
    pub label: String,
    pub description: ArchiveDescription,
    /// Whether this process may write to the archive.
    pub right: Right,
    /// How new objects are proved.
    pub proof: Proof,
    /// The deleted objects that the store retains.
    pub retention: Retention,
    /// The number of keys that this session has created.
    named: AtomicU64,
    known: Cache<Container, Arc<Place>>,
    /// Marked objects that may still exist. They are ignored.
    deleted: RwLock<HashSet<ContainerKey>>,
}

/// The right to write to an archive, or the reason why it is read-only.
pub enum Right {
    /// Write, as long as the lease is held.
    Write(Arc<Lease>),
    /// Read only, because the caller opened the archive for reading.
    Read,
    /// Read only, for the reason in this text.
    Refused(String),
}

/// The location of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub key: ContainerKey,
    /// The size in bytes.
    pub length: u64,
}

impl Objects {
    /// Gives access to the objects of an archive, except the marked ones (`deleted`).
    pub fn new(
        bucket: Arc<Bucket>,
        label: String,
        description: ArchiveDescription,
        (right, proof): (Right, Proof),
        retention: Retention,
        deleted: HashSet<ContainerKey>,
    ) -> Self {
        let (named, known) = (AtomicU64::new(0), Cache::new(REMEMBERED));
        let deleted = RwLock::new(deleted);
        Self { bucket, label, description, right, proof, retention, named, known, deleted }
    }

    /// Returns the lease, for writing.
    ///
    /// # Errors
    /// Fails if the archive is read-only here, or if another writer has taken over.
    pub fn lease(&self) -> io::Result<&Lease> {
        match &self.right {
            Right::Write(lease) => match lease.why_lost() {
                None => Ok(lease),
                Some(why) => Err(io::Error::new(ErrorKind::NotConnected, why)),
            },
            Right::Read => {
                let what = "the archive is opened read-only";
                Err(io::Error::new(ErrorKind::ReadOnlyFilesystem, what))
            }
            Right::Refused(why) => Err(io::Error::new(ErrorKind::ReadOnlyFilesystem, why.clone())),
        }
    }

    /// Returns a key that was never used before.
    ///
    /// # Errors
    /// Fails if the archive is read-only here or the lease is lost.
    pub fn new_key(&self, container: Container) -> io::Result<ContainerKey> {
        let session = self.lease()?.session();
        Ok(ContainerKey { container, session, number: self.named.fetch_add(1, Ordering::SeqCst) })
    }

    /// Returns the objects of a container, the valid one first.
    pub fn versions(&self, container: Container) -> io::Result<Vec<Place>> {
        let mut found = Vec::new();
        self.bucket
            .list(&begin_of(container), &mut |key, length| {
                found.extend(self.place(key, length));
                found.len() < VERSIONS_MAX
            })
            .map_err(Failure::into_io)?;
        found.sort_by_key(|place| place.key.rank());
        Ok(found)
    }

    /// Parses a listed key. Returns `None` for keys that are not containers and for marked objects.
    pub fn place(&self, key: &str, length: u64) -> Option<Place> {
        let key = key.parse().ok()?;
        (!self.deleted.read().contains(&key)).then_some(Place { key, length })
    }

    /// Caches the location of a container.
    pub fn remember(&self, place: Place) {
        self.known.insert(place.key.container, Arc::new(place));
    }

    /// Removes a container from the cache.
    pub fn forget(&self, container: Container) {
        self.known.remove(&container);
    }

    /// Returns the location of a container.
    ///
    /// # Errors
    /// Fails with `NotFound` if the container does not exist.
    pub fn find(&self, container: Container) -> io::Result<Arc<Place>> {
        // Concurrent callers share one request.
        self.known.get_or_insert_with(&container, || {
            let place = *self.versions(container)?.first().ok_or(ErrorKind::NotFound)?;
            Ok(Arc::new(place))
        })
    }

    /// Returns whether [`Self::find`] needs no request.
    pub fn is_known(&self, container: Container) -> bool {
        self.known.contains_key(&container)
    }

    /// Calls `ask` with the location of a container. If this fails because the object was replaced,
    /// calls `ask` again with the new location.
    ///
    /// # Errors
    /// Fails with the error of `ask`, or with `NotFound` if the container does not exist.
    pub fn with_place<T>(
        &self,
        container: Container,
        ask: impl Fn(&Place) -> Result<T, Failure>,
    ) -> io::Result<T> {
        let place = self.find(container)?;
        match ask(&place) {
            Err(failure) if failure.cause == Cause::NotFound => {
                self.known.remove(&container);
                let now = self.find(container)?;
                if now.key == place.key {
                    return Err(failure.into_io());
                }
                ask(&now).map_err(Failure::into_io)
            }
            answer => answer.map_err(Failure::into_io),
        }
    }

    /// Marks objects for deletion, if this process is still the writer. From then on the objects
    /// are ignored, even if they can't be deleted.
    ///
    /// # Errors
    /// Fails if a request fails. All objects are then still valid in this session.
    pub fn mark(&self, objects: &[Place]) -> io::Result<()> {
        let lease = self.lease()?;
        for place in objects {
            mark(&self.bucket, lease.session(), &place.key).map_err(Failure::into_io)?;
        }
        // If this renewal succeeds, every later writer sees the marks and ignores the marked
        // objects.
        lease.fence()?;
        self.deleted.write().extend(objects.iter().map(|place| place.key));
        objects.iter().for_each(|place| self.forget(place.key.container));
        Ok(())
    }

    /// Deletes marked objects. Returns whether the store retains one of them.
    ///
    /// # Errors
    /// Fails if a request fails. Some objects may already be deleted then; the next writer deletes
    /// the others.
    pub fn delete_marked(&self, objects: &[Place]) -> io::Result<Deletion> {
        let mut deletion = Deletion::Done;
        for place in objects {
            if self.delete_one(&place.key, Some(place.length))? != Fate::Freed {
                deletion = Deletion::Retained;
            }
        }
        Ok(deletion)
    }

    /// Deletes a marked object, and its mark unless the store refuses to delete the object.
    fn delete_one(&self, key: &ContainerKey, length: Option<u64>) -> io::Result<Fate> {
        let session = self.lease()?.session();
        let fate = self.retention.delete(&self.bucket, key, length).map_err(Failure::into_io)?;
        if fate != Fate::Refused {
            let mark = mark_key(session, key);
            if let Err(failure) = self.bucket.delete(&mark) {
                tracing::debug!("can't delete {mark} for now: {failure}");
            }
        }
        Ok(fate)
    }

    /// Tries again to delete the objects that the store refused to delete, and counts the old
    /// versions.
    ///
    /// # Errors
    /// Fails if a request fails, or if another writer has taken over.
    pub fn retry_deletions(&self) -> io::Result<()> {
        let refused = self.retention.refused();
        if !refused.is_empty() {
            self.lease()?.fence()?;
        }
        let mut problem = None;
        for key in refused {
            match self.delete_one(&key, None) {
                Err(error) if problem.is_none() => problem = Some(error),
                _ => {}
            }
        }
        self.retention.count_all(&self.bucket).map_err(Failure::into_io)?;
        problem.map_or(Ok(()), Err)
    }

    /// Deletes objects, if this process is still the writer.
    ///
    /// # Errors
    /// Fails if a request fails. Some objects may already be deleted then.
    pub fn delete(&self, objects: &[Place]) -> io::Result<Deletion> {
        self.mark(objects)?;
        self.delete_marked(objects)
    }

    /// Checks that the location still contains the same archive.
    ///
    /// # Errors
    /// Fails with `NotConnected` if it does not, or if the request fails.
    pub fn check(&self) -> io::Result<()> {
        let gone = |what: String| io::Error::new(ErrorKind::NotConnected, what);
        let found = self.bucket.find(DESCRIPTION).map_err(Failure::into_io)?;
        let found = found.ok_or_else(|| gone(format!("{} has no {DESCRIPTION}", self.label)))?;
        let text = std::str::from_utf8(&found.bytes).unwrap_or_default();
        match toml::from_str::<ArchiveDescription>(text) {
            Ok(found) if found.id == self.description.id => Ok(()),
            Ok(found) => Err(gone(format!("{} now contains archive {}", self.label, found.id))),
            Err(_) => Err(gone(format!("{} now has another {DESCRIPTION}", self.label))),
        }
    }
}
