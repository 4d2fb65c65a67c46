//! The archive kind `s3`: how an archive is created, opened and taken over.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fslab_tier::archive::{
    Archive, ArchiveDescription, ArchiveKindSpec, Cipher, Encryption, FoundRecord, Meter,
    NewArchive, Proof, Purpose, Writer, WriterRecord,
};
use fslab_tier::{Cleanup, Error, Id, Result};

use crate::address::Location;
use crate::archive::S3Archive;
use crate::bucket::{Bucket, When};
use crate::checksums::probe_checksums;
use crate::credentials::Access;
use crate::keys::{CONTAINERS, ContainerKey, DESCRIPTION};
use crate::lease::{FoundLease, Lease, Refused, Wish};
use crate::marks::Marks;
use crate::objects::{Objects, Right};
use crate::probe::probe;
use crate::restore_options::RestoreOptions;
use crate::retention::Retention;
use crate::staging::Staging;
use crate::transport::{Cause, Failure, Transport};

/// The version of the bucket layout.
const VERSION: u32 = 1;

/// The kind `s3`.
pub const SPEC: ArchiveKindSpec = ArchiveKindSpec {
    name: "s3",
    help: "an S3-compatible store: s3://BUCKET/PREFIX, with credentials, region and endpoint from \
           the environment (AWS_...) or a profile (;profile=NAME)",
    local_path: |_| None,
    lock_file: |_| None,
    canonical: |location| Ok(OsString::from(location)),
    is_made: |location| Store::at(location).and_then(|store| store.describe()).is_ok(),
    check_place: |location| Store::at(location)?.check_place(),
    make: |location, new| Store::at(location)?.make(new),
    describe: |location| Store::at(location)?.describe(),
    open: |location, owner, purpose| {
        let store = Store::at(location)?;
        Ok(Arc::new(store.open(owner, purpose)?) as Arc<dyn Archive>)
    },
    take_over: |location, owner, writer| Store::at(location)?.take_over(owner, writer),
    holder: |location| Store::at(location)?.holder(),
    retention: |location| Ok(Store::at(location)?.retention()),
    refusal: |location, writer| {
        let store = Store::at(location)?;
        let description = store.describe()?;
        store.refusal(description.id, writer)
    },
};

/// The location of an archive in a store.
pub struct Store {
    label: String,
    lease: Duration,
    restore: RestoreOptions,
    bucket: Arc<Bucket>,
}

impl Store {
    /// Returns the location, with the credentials of the user who runs this program.
    fn at(location: &OsStr) -> Result<Self> {
        let label = format!("s3:{}", location.to_string_lossy());
        let parsed = Location::parse(location)
            .map_err(|what| Error::Refused { what: format!("archive '{label}': {what}") })?;
        let access = Access::find(&parsed)
            .map_err(|what| Error::Missing { archive: label.clone(), what })?;
        Self::of(label, parsed, access)
    }

    /// Returns the location, with the given access.
    ///
    /// # Errors
    /// Fails if TLS can't be set up.
    pub fn of(label: String, parsed: Location, access: Access) -> Result<Self> {
        let failed =
            |failure: Failure| Error::Remote { archive: label.clone(), source: failure.into_io() };
        // Stores with different endpoints may have buckets of the same name.
        let meter = Meter::of(&format!("{label} at {}", access.endpoint));
        let transport = Transport::new(access, parsed.stall, meter).map_err(failed)?;
        let transport = Arc::new(transport);
        let bucket = Arc::new(Bucket::new(transport, parsed.bucket, parsed.prefix));
        Ok(Self { label, lease: parsed.lease, restore: parsed.restore, bucket })
    }

    /// Returns the bucket, for tests.
    #[cfg(feature = "testing")]
    pub fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    fn no_archive(&self, what: impl Into<String>) -> Error {
        Error::NoRemoteArchive { archive: self.label.clone(), what: what.into() }
    }

    fn failed(&self, failure: Failure) -> Error {
        match failure.cause {
            Cause::NoBucket => self.no_archive(failure.to_string()),
            _ => Error::Remote { archive: self.label.clone(), source: failure.into_io() },
        }
    }

    fn refused(&self, refused: Refused) -> Error {
        match refused {
            Refused::Held(why) | Refused::OtherTree(why) => self.no_archive(why),
            Refused::Failed(failure) => self.failed(failure),
            Refused::Tree(error) => error,
        }
    }

    /// Reads the description of the archive.
    ///
    /// # Errors
    /// Fails if there is no archive.
    pub fn describe(&self) -> Result<ArchiveDescription> {
        let found = self.bucket.find(DESCRIPTION).map_err(|failure| self.failed(failure))?;
        // The description of an archive whose creation was undone is empty.
        let found = found.filter(|found| !found.bytes.is_empty());
        let found = found.ok_or_else(|| {
            self.no_archive(format!("is not an archive: it has no {DESCRIPTION}"))
        })?;
        let text = std::str::from_utf8(&found.bytes);
        let text = text.map_err(|error| self.no_archive(format!("{DESCRIPTION}: {error}")))?;
        let description: ArchiveDescription = toml::from_str(text)
            .map_err(|error| self.no_archive(format!("{DESCRIPTION}: {}", error.message())))?;
        match description.version {
            VERSION => Ok(description),
            version => Err(self
                .no_archive(format!("has version {version}, which this fslab does not support"))),
        }
    }

    fn describe_own(&self, owner: Id) -> Result<ArchiveDescription> {
        let description = self.describe()?;
        if description.owner == owner {
            return Ok(description);
        }
        Err(self.no_archive(format!("belongs to tier {}, not to {owner}", description.owner)))
    }

    /// Checks that an archive can be created: the store must respond and honour conditional writes.
    fn check_place(&self) -> Result<()> {
        let found = probe(&self.bucket).map_err(|failure| self.failed(failure))?;
        found.refusal().map_or(Ok(()), |why| Err(self.no_archive(why)))
    }

    /// Creates an archive, unless another process creates one at the same location. Returns a
    /// cleanup that undoes the creation. The cleanup empties the description instead of deleting
    /// it, because objects with fixed keys are never deleted. If another process has replaced the
    /// description, the cleanup leaves it unchanged.
    ///
    /// # Errors
    /// Fails if an archive exists there, or if the store ignores conditional writes.
    pub fn make(&self, new: &NewArchive<'_>) -> Result<Cleanup> {
        self.check_place()?;
        let cipher = Cipher::Chacha20Poly1305;
        let encryption = new.key.map(|key| Encryption { cipher, key: key.mark(new.id) });
        let description =
            ArchiveDescription { version: VERSION, id: new.id, owner: new.owner, encryption };
        let text = toml::to_string(&description)
            .map_err(|error| self.no_archive(format!("{DESCRIPTION}: {error}")))?;
        let found = self.bucket.find(DESCRIPTION).map_err(|failure| self.failed(failure))?;
        let when = match &found {
            Some(found) if found.bytes.is_empty() => When::Matches(&found.tag),
            Some(_) => return Err(self.taken()),
            None => When::Absent,
        };
        for folder in CONTAINERS {
            if self.bucket.has_any(folder).map_err(|failure| self.failed(failure))? {
                let what = "is not empty; an archive needs its own prefix";
                return Err(self.no_archive(what));
            }
        }
        let tag = match self.bucket.put(DESCRIPTION, text.clone().into(), when) {
            Ok(tag) => tag,
            Err(failure) if failure.cause == Cause::Condition => {
                let found =
                    self.bucket.find(DESCRIPTION).map_err(|failure| self.failed(failure))?;
                // An earlier attempt of this request may have succeeded. Identities are random, so
                // equal contents prove that it did.
                let own = found.filter(|found| found.bytes == text.as_bytes());
                own.ok_or_else(|| self.taken())?.tag
            }
            Err(failure) => return Err(self.failed(failure)),
        };
        let (bucket, label) = (Arc::clone(&self.bucket), self.label.clone());
        Ok(Cleanup::by(move || {
            let emptied = bucket.put(DESCRIPTION, Bytes::new(), When::Matches(&tag));
            if let Err(failure) = emptied {
                tracing::warn!("{label}: can't remove the new archive after a failure: {failure}");
            }
        }))
    }

    fn taken(&self) -> Error {
        self.no_archive("is already an archive; attach it with `fslab tier attach`")
    }

    /// Opens the archive.
    ///
    /// # Errors
    /// Fails if the archive belongs to another tier or is in use.
    pub fn open(&self, owner: Id, purpose: &Purpose) -> Result<S3Archive> {
        let description = self.describe_own(owner)?;
        let failed = |failure| self.failed(failure);
        let (mut retention, mut proof) = (Retention::default(), Proof::ReadBack);
        let (right, deleted) = match purpose {
            Purpose::Read => (Right::Read, self.marked()?),
            Purpose::Write(writer) => {
                retention = Retention::read(&self.bucket, &self.label);
                self.right(description.id, writer.as_ref(), &retention)?
            }
        };
        if let Right::Write(_) = right {
            proof = probe_checksums(&self.bucket).map_err(failed)?;
            retention.count_first(&self.bucket).map_err(failed)?;
        }
        let (bucket, label) = (Arc::clone(&self.bucket), self.label.clone());
        let right = (right, proof);
        let objects = Objects::new(bucket, label, description, right, retention, deleted);
        Ok(S3Archive::new(objects, Staging::new(self.restore)))
    }

    /// Returns the marked objects, which the next writer will delete.
    fn marked(&self) -> Result<HashSet<ContainerKey>> {
        let marks = Marks::read(&self.bucket).map_err(|failure| self.failed(failure))?;
        Ok(marks.objects())
    }

    /// Determines whether a tree may write or only read. If the tree may write, takes the lease,
    /// and resolves the marks and unfinished uploads of earlier writers. Also returns the marked
    /// objects.
    fn right(
        &self,
        archive: Id,
        writer: Option<&Writer>,
        retention: &Retention,
    ) -> Result<(Right, HashSet<ContainerKey>)> {
        let conditions = probe(&self.bucket).map_err(|failure| self.failed(failure))?;
        let refusal = match conditions.refusal() {
            Some(why) => Some(format!("is opened read-only, because {why}")),
            None => self.refusal(archive, writer)?,
        };
        if let Some(refusal) = refusal {
            return Ok((Right::Refused(refusal), self.marked()?));
        }
        let record = |found: FoundRecord| {
            let known = match &found {
                FoundRecord::Tree(known) => Some(known.clone()),
                FoundRecord::Nothing | FoundRecord::Damaged => None,
            };
            // Another tree may have become the writer since the check above.
            let refusal = self.refusal_of(found, archive, writer).map_err(Refused::Tree)?;
            refusal.map_or(Ok(()), |why| Err(Refused::OtherTree(why)))?;
            Ok(match writer {
                Some(writer) => Some(WriterRecord::of_opening(writer, archive, known.as_ref())),
                None => known,
            })
        };
        match self.take_lease(&record, retention) {
            Ok((lease, left)) => Ok((Right::Write(lease), left)),
            Err(Refused::OtherTree(why)) => Ok((Right::Refused(why), self.marked()?)),
            Err(refused) => Err(self.refused(refused)),
        }
    }

    /// Takes the lease, and resolves the marks and unfinished uploads of earlier writers. Returns
    /// the marked objects that could not be deleted.
    fn take_lease(
        &self,
        record: &dyn Fn(FoundRecord) -> std::result::Result<Option<WriterRecord>, Refused>,
        retention: &Retention,
    ) -> std::result::Result<(Arc<Lease>, HashSet<ContainerKey>), Refused> {
        let marks = RefCell::new(Marks::default());
        let before_writing = || {
            *marks.borrow_mut() = Marks::read(&self.bucket)?;
            Ok(())
        };
        let wish = Wish { lease: self.lease, record, before_writing: &before_writing };
        let lease = Lease::take(&self.bucket, &wish)?;
        let left = marks.take().settle(&self.bucket, &lease, retention)?;
        self.drop_unfinished(&lease)?;
        lease.note_begun()?;
        Ok((lease, left))
    }

    /// Aborts unfinished uploads of earlier writers. Uploads of other programs are kept.
    fn drop_unfinished(&self, lease: &Lease) -> std::result::Result<(), Failure> {
        let begun = match self.bucket.begun_parts() {
            Ok(begun) => begun,
            // Listing uploads needs a separate permission.
            Err(failure) if [Cause::Unsupported, Cause::Denied].contains(&failure.cause) => {
                tracing::warn!(
                    "{}: can't remove unfinished uploads, because the store does not list them: \
                     {failure}",
                    self.label
                );
                return Ok(());
            }
            Err(failure) => return Err(failure),
        };
        for (key, upload) in begun {
            let is_earlier = key
                .parse::<ContainerKey>()
                .is_ok_and(|found| found.session.epoch < lease.session().epoch);
            if !is_earlier {
                continue;
            }
            if let Err(failure) = self.bucket.drop_parts(&key, &upload) {
                tracing::warn!("{}: can't remove an unfinished upload: {failure}", self.label);
            }
        }
        Ok(())
    }

    fn refusal(&self, archive: Id, writer: Option<&Writer>) -> Result<Option<String>> {
        let failed = |failure| self.failed(failure);
        let found = FoundLease::read(&self.bucket).map_err(failed)?;
        self.refusal_of(found.writer(&self.bucket).map_err(failed)?, archive, writer)
    }

    fn refusal_of(
        &self,
        found: FoundRecord,
        archive: Id,
        writer: Option<&Writer>,
    ) -> Result<Option<String>> {
        let failed = |failure| self.failed(failure);
        // Whether the archive has containers matters only for a rebuilt tree.
        let is_asked = writer.is_some_and(|writer| writer.mark.is_rebuilt);
        let mut is_fresh = true;
        for folder in CONTAINERS.into_iter().filter(|_| is_asked) {
            is_fresh &= !self.bucket.has_any(folder).map_err(failed)?;
        }
        found.refusal((archive, &self.label), writer, is_fresh)
    }

    /// Makes a tree the writer of the archive.
    ///
    /// # Errors
    /// Fails if the archive belongs to another tier or is in use.
    pub fn take_over(&self, owner: Id, writer: &Writer) -> Result<()> {
        let description = self.describe_own(owner)?;
        self.check_place()?;
        let record = |_: FoundRecord| {
            WriterRecord::of_take_over(writer, description.id).map(Some).map_err(Refused::Tree)
        };
        // The lease is released immediately. The tree takes the lease again when the tree is
        // opened.
        let retention = Retention::read(&self.bucket, &self.label);
        self.take_lease(&record, &retention).map(drop).map_err(|refused| self.refused(refused))
    }

    /// Returns why the bucket retains deleted objects; `None` if it frees their space.
    fn retention(&self) -> Option<String> {
        Retention::read(&self.bucket, &self.label).rules()
    }

    fn holder(&self) -> Result<String> {
        let failed = |failure| self.failed(failure);
        let found = FoundLease::read(&self.bucket).map_err(failed)?;
        Ok(match found.writer(&self.bucket).map_err(failed)? {
            FoundRecord::Tree(known) => known.holder(),
            FoundRecord::Nothing | FoundRecord::Damaged => {
                "has no record of the tree that writes to it".to_owned()
            }
        })
    }
}
