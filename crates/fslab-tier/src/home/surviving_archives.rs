//! The surviving archives of a lost tier, opened read-only before a rebuild.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{ArchiveEntry, ArchiveUsage, Home, refused};
use crate::archive::{self, Archive, ArchiveAddress, ArchiveDescription, Key, Purpose, key_of};
use crate::error::Result;
use crate::id::{Id, Identities};

/// Archives of one tier, opened read-only.
pub struct SurvivingArchives {
    /// The identity of the tier.
    pub tier: Id,
    /// The archives that the user specified, with their addresses and keys.
    pub attached: Vec<ArchiveEntry>,
    /// The opened archives: those that the user specified, and others that a home lists.
    pub archives: Vec<Arc<dyn Archive>>,
    /// The reasons why other archives of a home can't be used.
    pub problems: Vec<String>,
}

impl SurvivingArchives {
    /// Opens the archives that the user specified, and others that an existing home lists. Each
    /// archive gets the matching key, if there is one. Nothing is written.
    ///
    /// # Errors
    /// If a specified archive can't be opened, or the archives belong to different tiers.
    pub fn open(
        named: &[ArchiveAddress],
        keys: &[PathBuf],
        home: Option<&Home>,
        identities: &Arc<dyn Identities>,
    ) -> Result<Self> {
        keys.iter().try_for_each(|key| Key::read(key).map(drop))?;
        let first = named.first().ok_or_else(|| refused("no archive is given".to_owned()))?;
        let tier = match home {
            Some(home) => home.description.tier,
            None => first.describe()?.owner,
        };
        let (attached, archives, problems) = (Vec::new(), Vec::new(), Vec::new());
        let mut remains = Self { tier, attached, archives, problems };
        for address in named {
            remains.add_named(address, keys, home, identities)?;
        }
        if !keys.is_empty() && remains.attached.iter().all(|archive| archive.key.is_none()) {
            let what = "a key is given, but no archive is marked as encrypted. Somebody may have \
                replaced the archive by an unencrypted one; to use it anyway, omit --key";
            return Err(refused(what.to_owned()));
        }
        for known in home.iter().flat_map(|home| home.description.attached_archives()) {
            if remains.has(known.id) {
                continue;
            }
            let opened = known.address.describe().and_then(|found| {
                let key = fitting_key(&found, &known.address, keys, known.key.as_deref())?;
                archive::open(&known.address, (tier, &Purpose::Read), key.as_deref(), identities)
            });
            match opened {
                Ok(archive) => remains.archives.push(archive),
                Err(error) => remains.problems.push(format!("an archive is skipped: {error}")),
            }
        }
        Ok(remains)
    }

    fn add_named(
        &mut self,
        address: &ArchiveAddress,
        keys: &[PathBuf],
        home: Option<&Home>,
        identities: &Arc<dyn Identities>,
    ) -> Result<()> {
        let found = address.describe()?;
        if self.has(found.id) {
            return Ok(());
        }
        if found.owner != self.tier {
            return Err(refused("the archives belong to different tiers".to_owned()));
        }
        if found.encryption.is_none() && !keys.is_empty() {
            tracing::warn!(
                "{} is not encrypted, so anybody could have created it",
                address.label()
            );
        }
        let mut known = home.iter().flat_map(|home| &home.description.archives);
        let known = known.find(|known| known.id == found.id).and_then(|known| known.key.as_deref());
        let key = fitting_key(&found, address, keys, known)?;
        let (address, of) = (address.canonical()?, (self.tier, &Purpose::Read));
        self.archives.push(archive::open(&address, of, key.as_deref(), identities)?);
        self.attached.push(ArchiveEntry {
            id: found.id,
            address,
            key,
            usage: ArchiveUsage::Active,
        });
        Ok(())
    }

    fn has(&self, archive: Id) -> bool {
        self.archives.iter().any(|known| known.id() == archive)
    }
}

/// Returns the file with the key of an archive: one of the given files, or the one in a home. Fails
/// if the archive is not encrypted although the home has a key for it, because somebody else must
/// have made this archive.
fn fitting_key(
    found: &ArchiveDescription,
    archive: &ArchiveAddress,
    given: &[PathBuf],
    known: Option<&Path>,
) -> Result<Option<PathBuf>> {
    if found.encryption.is_none() {
        return key_of(found, archive, known).map(|_| None);
    }
    let mut files = given.iter().map(PathBuf::as_path).chain(known);
    let is_right = |file: &&Path| key_of(found, archive, Some(file)).is_ok();
    match files.clone().find(is_right) {
        Some(file) => Ok(Some(file.to_owned())),
        // No key fits, so the error of the first key is returned.
        None => key_of(found, archive, files.next()).map(|_| None),
    }
}
