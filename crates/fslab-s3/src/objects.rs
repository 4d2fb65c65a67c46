//! The containers of an archive as objects: which one counts, new names, and deletion.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_tier::archive::{ArchiveDescription, Container};
use parking_lot::RwLock;
use quick_cache::sync::Cache;

use crate::bucket::Bucket;
use crate::keys::{ContainerKey, DESCRIPTION, begin_of, mark_key};
use crate::lease::Lease;
use crate::marks::mark;
use crate::transport::{Cause, Failure};

/// Containers of which the object is remembered.
const REMEMBERED: usize = 1 << 16;

/// Objects with one container: more than one only while a damaged one is replaced.
const VERSIONS_MAX: usize = 1000;

/// The objects of an archive, which it shares with its uploads.
pub struct Objects {
    /// Its objects.
    pub bucket: Arc<Bucket>,
    /// Its name for messages.
    pub label: String,
    /// What it says of itself.
    pub description: ArchiveDescription,
    /// What may be done with it.
    pub right: Right,
    /// Counts objects that this session named.
    named: AtomicU64,
    known: Cache<Container, Arc<Place>>,
    /// Objects that are marked, and that may be there still: they no longer count.
    deleted: RwLock<HashSet<ContainerKey>>,
}

/// What an archive may do.
pub enum Right {
    /// Write, as long as it has the lease.
    Write(Arc<Lease>),
    /// Read. Nobody asked for more.
    Read,
    /// Read, because of this.
    Refused(String),
}

/// Where a container is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The object.
    pub key: ContainerKey,
    /// Its bytes.
    pub length: u64,
}

impl Objects {
    /// Those of an archive whose description was read, but for those that must not be referred to.
    pub fn new(
        bucket: Arc<Bucket>,
        label: String,
        description: ArchiveDescription,
        right: Right,
        deleted: HashSet<ContainerKey>,
    ) -> Self {
        let (named, known) = (AtomicU64::new(0), Cache::new(REMEMBERED));
        let deleted = RwLock::new(deleted);
        Self { bucket, label, description, right, named, known, deleted }
    }

    /// The lease, to write.
    ///
    /// # Errors
    /// If this is only read, or somebody took over.
    pub fn lease(&self) -> io::Result<&Lease> {
        match &self.right {
            Right::Write(lease) => match lease.why_lost() {
                None => Ok(lease),
                Some(why) => Err(io::Error::new(ErrorKind::NotConnected, why)),
            },
            Right::Read => {
                let what = "the archive is opened to read";
                Err(io::Error::new(ErrorKind::ReadOnlyFilesystem, what))
            }
            Right::Refused(why) => Err(io::Error::new(ErrorKind::ReadOnlyFilesystem, why.clone())),
        }
    }

    /// A name that no object had.
    ///
    /// # Errors
    /// If this is only read.
    pub fn new_key(&self, container: Container) -> io::Result<ContainerKey> {
        let session = self.lease()?.session();
        Ok(ContainerKey { container, session, number: self.named.fetch_add(1, Ordering::SeqCst) })
    }

    /// The objects with a container, the one that counts first.
    ///
    /// # Errors
    /// Failures of the request.
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

    /// What a name in a list is; none where it is no container, or one that is deleted.
    pub fn place(&self, key: &str, length: u64) -> Option<Place> {
        let key = key.parse().ok()?;
        (!self.deleted.read().contains(&key)).then_some(Place { key, length })
    }

    /// Remembers where a container is.
    pub fn remember(&self, place: Place) {
        self.known.insert(place.key.container, Arc::new(place));
    }

    /// Forgets where a container is.
    pub fn forget(&self, container: Container) {
        self.known.remove(&container);
    }

    /// Where a container is.
    ///
    /// # Errors
    /// `NotFound` if it is nowhere.
    pub fn find(&self, container: Container) -> io::Result<Arc<Place>> {
        if let Some(known) = self.known.get(&container) {
            return Ok(known);
        }
        let place = *self.versions(container)?.first().ok_or(ErrorKind::NotFound)?;
        self.remember(place);
        Ok(Arc::new(place))
    }

    /// Does something with the object of a container, which may have been replaced meanwhile.
    ///
    /// # Errors
    /// What that failed with; `NotFound` if there is no such container.
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

    /// Marks objects, if this is still the writer. From then on they do not count, whether or not
    /// they can be deleted.
    ///
    /// # Errors
    /// Failures of the requests; all objects count then, for this session.
    pub fn mark(&self, objects: &[Place]) -> io::Result<()> {
        let lease = self.lease()?;
        for place in objects {
            mark(&self.bucket, lease.session(), &place.key).map_err(Failure::into_io)?;
        }
        // What is marked now is not referred to by whoever takes over after this.
        lease.fence()?;
        self.deleted.write().extend(objects.iter().map(|place| place.key));
        objects.iter().for_each(|place| self.forget(place.key.container));
        Ok(())
    }

    /// Deletes objects that were marked.
    ///
    /// # Errors
    /// Failures of the requests; some may be deleted, and the next writer deletes the others.
    pub fn delete_marked(&self, objects: &[Place]) -> io::Result<()> {
        let lease = self.lease()?;
        for place in objects {
            self.bucket.delete(&place.key.to_string()).map_err(Failure::into_io)?;
            let mark = mark_key(lease.session(), &place.key);
            if let Err(failure) = self.bucket.delete(&mark) {
                tracing::debug!("{mark} stays for now: {failure}");
            }
        }
        Ok(())
    }

    /// Deletes objects, if this is still the writer.
    ///
    /// # Errors
    /// Failures of the requests; some may be deleted.
    pub fn delete(&self, objects: &[Place]) -> io::Result<()> {
        self.mark(objects)?;
        self.delete_marked(objects)
    }

    /// Checks that the archive is where it was.
    ///
    /// # Errors
    /// `NotConnected` if it is not.
    pub fn check(&self) -> io::Result<()> {
        let gone = |what: String| io::Error::new(ErrorKind::NotConnected, what);
        let found = self.bucket.find(DESCRIPTION).map_err(Failure::into_io)?;
        let found = found.ok_or_else(|| gone(format!("{} has no {DESCRIPTION}", self.label)))?;
        let text = std::str::from_utf8(&found.bytes).unwrap_or_default();
        match toml::from_str::<ArchiveDescription>(text) {
            Ok(found) if found.id == self.description.id => Ok(()),
            Ok(found) => Err(gone(format!("{} has archive {} now", self.label, found.id))),
            Err(_) => Err(gone(format!("{} has another {DESCRIPTION} now", self.label))),
        }
    }
}
