//! An archive in a bucket.

use std::io::{self, ErrorKind};
use std::ops;
use std::sync::Arc;

use fslab_tier::Id;
use fslab_tier::archive::{
    Archive, Container, ContainerKind, Deletion, Meter, Proof, Retained, Staged, Traffic, Upload,
};

use crate::keys::folder;
use crate::marks::Marks;
use crate::objects::{Objects, Place, Right};
use crate::staging::Staging;
use crate::transport::{Failure, Range};
use crate::upload::{S3Upload, traffic_of_list, traffic_of_upload};

pub struct S3Archive(Arc<Objects>, Staging);

impl S3Archive {
    pub fn new(objects: Objects, staging: Staging) -> Self {
        Self(Arc::new(objects), staging)
    }
}

impl Archive for S3Archive {
    fn id(&self) -> Id {
        self.0.description.id
    }

    fn label(&self) -> &str {
        &self.0.label
    }

    fn refusal(&self) -> Option<String> {
        match &self.0.right {
            Right::Refused(why) => Some(why.clone()),
            Right::Write(_) | Right::Read => None,
        }
    }

    /// The transport itself ends a request that makes no progress, and limits the number of
    /// attempts.
    fn limits_its_calls(&self) -> bool {
        true
    }

    fn check(&self) -> io::Result<()> {
        self.0.check()
    }

    fn begin(&self, container: Container) -> io::Result<Box<dyn Upload>> {
        Ok(Box::new(S3Upload::begin(&self.0, container)?))
    }

    fn read(&self, container: Container, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let read = |place: &Place| {
            let left = place.length.saturating_sub(offset);
            let length = left.min(buffer.len() as u64);
            if length == 0 {
                return Ok(bytes::Bytes::new());
            }
            let range = Range { start: offset, length, whole: place.length };
            self.0.bucket.read(&place.key.to_string(), range)
        };
        let key = self.0.find(container)?.key;
        self.1.check(&key)?;
        let bytes = self.0.with_place(container, read)?;
        if !bytes.is_empty() {
            self.1.forget(&key);
        }
        let target = buffer.get_mut(..bytes.len());
        target.ok_or(ErrorKind::InvalidData)?.copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn stage(&self, container: Container) -> io::Result<Staged> {
        let stage = |place: &Place| self.1.stage(&self.0.bucket, &place.key);
        self.0.with_place(container, stage)
    }

    fn length(&self, container: Container) -> io::Result<u64> {
        Ok(self.0.find(container)?.length)
    }

    /// Stores list keys in order, so objects of the same container are adjacent.
    fn list(&self, kind: ContainerKind, visit: &mut dyn FnMut(Id, u64)) -> io::Result<()> {
        let marked = Marks::read(&self.0.bucket).map_err(Failure::into_io)?.objects();
        let mut last: Option<Place> = None;
        let mut tell = |place: Option<Place>| {
            place.into_iter().for_each(|place| visit(place.key.container.1, place.length));
        };
        let listed = self.0.bucket.list(folder(kind), &mut |key, length| {
            let Some(place) = self.0.place(key, length) else { return true };
            if marked.contains(&place.key) {
                return true;
            }
            match last {
                Some(known) if known.key.container == place.key.container => {
                    last = [known, place].into_iter().min_by_key(|place| place.key.rank());
                }
                _ => tell(last.replace(place)),
            }
            true
        });
        tell(last);
        listed.map_err(Failure::into_io)
    }

    /// Treats each container as a separate medium, because each is an object of its own.
    fn position(&self, container: Id, offset: u64) -> (u64, u64) {
        ((u128::from_be_bytes(container.0) >> 64) as u64, offset)
    }

    fn meter(&self) -> Option<Arc<Meter>> {
        Some(self.0.bucket.meter())
    }

    fn is_located(&self, container: Container) -> bool {
        self.0.is_known(container)
    }

    fn traffic_of_writing(&self, bytes: u64) -> Traffic {
        traffic_of_upload(bytes)
    }

    /// If the container is not located, a list finds its object first.
    fn traffic_of_reading(&self, range: ops::Range<u64>, _: u64, is_located: bool) -> Traffic {
        let list = if is_located { Traffic::default() } else { traffic_of_list() };
        list + Traffic::get(range.end.saturating_sub(range.start))
    }

    fn forget(&self, container: Container) {
        self.0.forget(container);
    }

    fn delete(&self, container: Container) -> io::Result<Deletion> {
        self.0.lease()?;
        let deletion = match self.0.versions(container)?.as_slice() {
            [] => {
                self.0.check()?;
                Deletion::Done
            }
            found => self.0.delete(found)?,
        };
        // Objects whose deletion was refused before are no longer found.
        let is_refused = self.0.retention.refuses(container);
        Ok(if is_refused { Deletion::Retained } else { deletion })
    }

    fn retained(&self) -> Option<Retained> {
        self.0.retention.retained()
    }

    fn retry_deletions(&self) -> io::Result<()> {
        self.0.retry_deletions()
    }

    fn proof(&self) -> Proof {
        self.0.proof
    }
}
