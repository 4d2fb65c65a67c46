//! A location for an archive, with the credentials of the test servers.

use std::ffi::OsStr;
use std::sync::Arc;

use fslab_tier::archive::{Archive, NewArchive, Proof, Purpose, Writer};
use fslab_tier::{Id, Result};
use object_store::aws::AwsCredential;

use super::server::{ACCESS_KEY, BUCKET, SECRET_KEY};
use crate::address::Location;
use crate::credentials::Access;
use crate::kind::Store;
use crate::transport::Failure;

/// A location for an archive.
pub struct Place(Store);

/// What a bucket keeps of deleted objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// The bucket keeps nothing.
    Nothing,
    /// The bucket has versioning.
    Versions,
    /// The bucket has versioning and an object lock for a day.
    Locked,
}

const VERSIONING: &str =
    "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
const LOCK: &str = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule>\
    <DefaultRetention><Mode>COMPLIANCE</Mode><Days>1</Days></DefaultRetention></Rule>\
    </ObjectLockConfiguration>";

impl Place {
    /// Returns a location in the bucket of a server on loopback. `name` is the prefix, followed by
    /// options such as `;lease=2`.
    ///
    /// # Errors
    /// Fails if the name is invalid.
    pub fn new(port: u16, name: &str) -> Result<Self> {
        Self::in_bucket(port, BUCKET, name)
    }

    /// Returns a location in another bucket.
    ///
    /// # Errors
    /// Fails if a name is invalid.
    pub fn in_bucket(port: u16, bucket: &str, name: &str) -> Result<Self> {
        let location = format!("//{bucket}/{name}");
        let wrong = |what: String| fslab_tier::Error::Refused { what };
        let parsed = Location::parse(OsStr::new(&location)).map_err(wrong)?;
        let endpoint = format!("http://127.0.0.1:{port}");
        let endpoint = endpoint.parse().map_err(|error| wrong(format!("{error}")))?;
        let (key_id, secret_key) = (ACCESS_KEY.to_owned(), SECRET_KEY.to_owned());
        let credential = AwsCredential { key_id, secret_key, token: None };
        let access = Access { credential, region: "us-east-1".to_owned(), endpoint };
        Store::of(format!("s3:{location}"), parsed, access).map(Self)
    }

    /// Creates the bucket.
    ///
    /// # Errors
    /// Fails if a request fails.
    pub fn make_bucket(&self, keeping: Keeping) -> std::io::Result<()> {
        let lock = ("x-amz-bucket-object-lock-enabled", "true");
        let lock = Some(lock).filter(|_| keeping == Keeping::Locked);
        let bucket = self.0.bucket();
        let made = bucket.configure(None, lock, "").and_then(|()| match keeping {
            Keeping::Nothing => Ok(()),
            Keeping::Versions => bucket.configure(Some("versioning"), None, VERSIONING),
            Keeping::Locked => bucket.configure(Some("object-lock"), None, LOCK),
        });
        made.map_err(Failure::into_io)
    }

    /// Moves the objects whose key begins with a text to a storage class.
    ///
    /// # Errors
    /// Fails if a request fails.
    pub fn set_class(&self, begin: &str, class: &'static str) -> std::io::Result<()> {
        let (bucket, mut keys) = (self.0.bucket(), Vec::new());
        let listed = bucket.list(begin, &mut |key, _| {
            keys.push(key.to_owned());
            true
        });
        let moved =
            listed.and_then(|()| keys.iter().try_for_each(|key| bucket.set_class(key, class)));
        moved.map_err(Failure::into_io)
    }

    /// Creates an archive at this location.
    ///
    /// # Errors
    /// Fails if an archive exists at this location.
    pub fn make(&self, id: Id, owner: Id) -> Result<()> {
        self.0.make(&NewArchive { id, owner, key: None }).map(fslab_tier::Cleanup::keep)
    }

    /// Opens the archive for writing.
    ///
    /// # Errors
    /// Fails if the archive is in use.
    pub fn open(&self, owner: Id, writer: Option<Writer>) -> Result<Arc<dyn Archive>> {
        Ok(Arc::new(self.0.open(owner, &Purpose::Write(writer))?))
    }

    /// Opens the archive for reading.
    ///
    /// # Errors
    /// Fails if there is no archive.
    pub fn open_to_read(&self, owner: Id) -> Result<Arc<dyn Archive>> {
        Ok(Arc::new(self.0.open(owner, &Purpose::Read)?))
    }

    /// Makes a tree the writer of the archive.
    ///
    /// # Errors
    /// Fails if the archive is in use.
    pub fn take_over(&self, owner: Id, writer: &Writer) -> Result<()> {
        self.0.take_over(owner, writer)
    }

    /// Returns whether the store compares the hash in the signature of a request with its body.
    ///
    /// # Errors
    /// Fails if a request fails.
    pub fn verifies_signed_hash(&self) -> std::io::Result<bool> {
        crate::checksums::verifies_signed_hash(self.0.bucket()).map_err(Failure::into_io)
    }

    /// Counts the unfinished multipart uploads under the location.
    ///
    /// # Errors
    /// Fails if a request fails.
    pub fn unfinished_uploads(&self) -> std::io::Result<usize> {
        Ok(self.0.bucket().begun_parts().map_err(Failure::into_io)?.len())
    }

    /// Returns how the store proves new objects.
    ///
    /// # Errors
    /// Fails if a request fails.
    pub fn proof(&self) -> std::io::Result<Proof> {
        crate::checksums::probe_checksums(self.0.bucket()).map_err(Failure::into_io)
    }

    /// Returns the identity in the archive's description.
    ///
    /// # Errors
    /// Fails if there is no archive.
    pub fn id(&self) -> Result<Id> {
        Ok(self.0.describe()?.id)
    }
}
