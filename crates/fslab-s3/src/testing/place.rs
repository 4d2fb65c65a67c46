//! A location for an archive, with the credentials of the test servers.

use std::ffi::OsStr;
use std::sync::Arc;

use fslab_tier::archive::{Archive, NewArchive, Purpose, Writer};
use fslab_tier::{Id, Result};
use object_store::aws::AwsCredential;

use super::server::{ACCESS_KEY, BUCKET, SECRET_KEY};
use crate::address::Location;
use crate::credentials::Access;
use crate::kind::Store;

/// A location for an archive.
pub struct Place(Store);

impl Place {
    /// Returns a location in the bucket of a server on loopback. `name` is the prefix, followed by
    /// options such as `;lease=2`.
    ///
    /// # Errors
    /// Fails if the name is invalid.
    pub fn new(port: u16, name: &str) -> Result<Self> {
        let location = format!("//{BUCKET}/{name}");
        let wrong = |what: String| fslab_tier::Error::Refused { what };
        let parsed = Location::parse(OsStr::new(&location)).map_err(wrong)?;
        let endpoint = format!("http://127.0.0.1:{port}");
        let endpoint = endpoint.parse().map_err(|error| wrong(format!("{error}")))?;
        let (key_id, secret_key) = (ACCESS_KEY.to_owned(), SECRET_KEY.to_owned());
        let credential = AwsCredential { key_id, secret_key, token: None };
        let access = Access { credential, region: "us-east-1".to_owned(), endpoint };
        Store::of(format!("s3:{location}"), parsed, access).map(Self)
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

    /// Returns the identity in the archive's description.
    ///
    /// # Errors
    /// Fails if there is no archive.
    pub fn id(&self) -> Result<Id> {
        Ok(self.0.describe()?.id)
    }
}
