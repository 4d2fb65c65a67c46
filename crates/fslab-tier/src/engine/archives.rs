//! The archives of the tier: attached ones, and known ones that are not attached.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::archive::{Archive, ArchiveEntry, ArchiveUsage, Usage};
use crate::catalogue::{ObjectRow, ObjectState};
use crate::engine::Tier;
use crate::engine::copies::first_answer;
use crate::error::{Error, Result};
use crate::event::ArchiveState;
use crate::id::Id;
use crate::stored::Version;

mod membership;
mod usage;

impl Tier {
    /// Returns the attached and available archives. First checks whether unavailable archives are
    /// available again. This may block for long, so the caller must not hold the lock of a file's
    /// state.
    #[must_use]
    pub fn archives(&self) -> Vec<Arc<dyn Archive>> {
        self.look_for_archives();
        let archives = self.archives.read();
        archives.iter().filter(|archive| archive.why_unavailable().is_none()).cloned().collect()
    }

    /// Returns the attached and available archives that contain a version.
    pub(crate) fn holders(&self, version: &Version) -> Vec<Arc<dyn Archive>> {
        let mut holders = self.holders_anywhere(version);
        holders.retain(|archive| archive.why_unavailable().is_none());
        holders
    }

    /// Returns the attached archives that contain a version, including unavailable ones.
    pub(super) fn holders_anywhere(&self, version: &Version) -> Vec<Arc<dyn Archive>> {
        let archives = self.archives.read();
        let holds = |archive: &&Arc<dyn Archive>| version.copies.contains(&archive.id());
        archives.iter().filter(holds).cloned().collect()
    }

    /// Returns whether an attached archive that contains a version is unavailable. Such an archive
    /// can neither return the version nor delete it.
    pub(super) fn is_partly_unavailable(&self, version: &Version) -> bool {
        self.holders_anywhere(version).iter().any(|archive| archive.why_unavailable().is_some())
    }

    pub(crate) fn look_for_archives(&self) {
        let mut archives = self.archives.read().clone();
        archives.retain(|archive| archive.look());
        if archives.is_empty() {
            return;
        }
        archives.iter().for_each(|archive| self.recalls.cold_storage.note_opened(archive.id()));
        self.queue().resume_postponed();
    }

    /// Returns the available archives, first those with a recorded copy of a version. The others
    /// may have a copy, too, because a scrub can't record new copies on a file that is renamed
    /// during the scrub.
    pub(super) fn may_hold(&self, version: &Version) -> Vec<Arc<dyn Archive>> {
        let mut archives = self.archives();
        archives.sort_by_key(|archive| !version.copies.contains(&archive.id()));
        archives
    }

    /// Calls `ask` with each archive that may contain a version, until a call returns a result.
    pub(super) fn ask_holders<T>(
        &self,
        version: &Version,
        mut ask: impl FnMut(&Arc<dyn Archive>) -> Result<T>,
    ) -> Result<T> {
        // The error `missing` means that no archive with a recorded copy is available. It is
        // returned instead of the errors of the other archives, because it is the actual cause.
        let missing = self.is_there(version).err();
        let answer =
            first_answer(self.may_hold(version), || self.no_copy(version), |one| ask(&one));
        answer.map_err(|error| missing.unwrap_or(error))
    }

    /// Returns the state of each archive that the tier's home lists, that is attached, or that has
    /// copies.
    ///
    /// # Errors
    /// Errors of the catalogue.
    pub fn archive_states(&self) -> Result<Vec<ArchiveState>> {
        self.look_for_archives();
        let mut ids: Vec<Id> = self.known_archives.read().iter().map(|known| known.id).collect();
        ids.extend(self.archives.read().iter().map(|archive| archive.id()));
        let mut held: BTreeMap<Id, (u64, u64)> = BTreeMap::new();
        let sources = self.catalogue.source_versions()?;
        self.each_copy(&mut |row, archive| {
            let (objects, bytes) = held.entry(archive).or_default();
            let is_source = sources.contains_key(&row.version.location.container);
            if row.state == ObjectState::Live || is_source {
                *objects += 1;
                *bytes += row.version.location.length;
            }
        })?;
        ids.extend(held.keys());
        let mut states: Vec<ArchiveState> = Vec::new();
        for id in ids {
            if states.iter().all(|state| state.archive != id) {
                let (objects, bytes) = held.get(&id).copied().unwrap_or_default();
                let traffic = self.usage_so_far(id)?;
                states.push(ArchiveState { objects, bytes, traffic, ..self.archive_state(id) });
            }
        }
        Ok(states)
    }

    pub(crate) fn archive_state(&self, id: Id) -> ArchiveState {
        let (known, attached) = (self.known_archive(id), self.attached(id));
        let away = attached.as_ref().and_then(|archive| archive.why_unavailable());
        let is_attached = attached.is_some() && away.is_none();
        let free_bytes = attached.as_ref().and_then(|archive| archive.free_bytes());
        let refusal = attached.as_ref().and_then(|archive| archive.refusal());
        let accepts = is_attached && refusal.is_none();
        let proof = attached.as_ref().filter(|_| accepts).map(|archive| archive.proof());
        let retained = attached.and_then(|archive| archive.retained());
        ArchiveState {
            archive: id,
            address: known.as_ref().map(|known| known.address.to_string()),
            attached: is_attached,
            refusal,
            away,
            usage: self.usage_of(id),
            encrypted: known.is_some_and(|known| known.key.is_some()),
            free_bytes: free_bytes.filter(|_| is_attached),
            objects: 0,
            bytes: 0,
            proof,
            retained,
            traffic: Usage::default(),
        }
    }

    fn known_archive(&self, id: Id) -> Option<ArchiveEntry> {
        self.known_archives.read().iter().find(|known| known.id == id).cloned()
    }

    fn attached(&self, id: Id) -> Option<Arc<dyn Archive>> {
        self.archives.read().iter().find(|archive| archive.id() == id).cloned()
    }

    pub(super) fn has_archive(&self, id: Id) -> bool {
        self.archives.read().iter().any(|archive| archive.id() == id)
    }

    pub(super) fn is_attached(&self, id: Id) -> bool {
        self.attached(id).is_some_and(|archive| archive.why_unavailable().is_none())
    }

    /// Returns the name of an archive for messages, attached or not.
    fn name_of_archive(&self, id: Id) -> String {
        match self.known_archive(id) {
            Some(known) => format!("{id} ({})", known.address.label()),
            None => id.to_string(),
        }
    }

    /// Returns the names of archives that have a copy of a version, but are unavailable or not
    /// attached. The names are for messages.
    pub(super) fn missing_holders(&self, version: &Version) -> Vec<String> {
        let missing = version.copies.iter().filter(|id| !self.is_attached(**id));
        missing.map(|id| self.name_of_archive(*id)).collect()
    }

    /// Returns the names of the unavailable archives, for messages.
    pub(super) fn unavailable_archives(&self) -> Vec<String> {
        let archives = self.archives.read().clone();
        let unavailable = archives.iter().filter(|archive| archive.why_unavailable().is_some());
        unavailable.map(|archive| self.name_of_archive(archive.id())).collect()
    }

    /// Fails if no archive with a recorded copy of a version is attached and available.
    pub(super) fn is_there(&self, version: &Version) -> Result<()> {
        if self.holders(version).is_empty() { Err(self.no_copy(version)) } else { Ok(()) }
    }

    pub(super) fn no_copy(&self, version: &Version) -> Error {
        Error::NoCopy { missing: self.missing_holders(version) }
    }

    /// Returns a message for each archive whose copies can't be verified, because it is unavailable
    /// or not attached. Detached archives are skipped.
    pub(super) fn missing_archives(&self) -> Result<Vec<String>> {
        self.look_for_archives();
        let mut missing: BTreeMap<Id, u64> = BTreeMap::new();
        self.each_copy(&mut |_, archive| *missing.entry(archive).or_default() += 1)?;
        missing.retain(|archive, _| {
            !self.is_attached(*archive) && self.usage_of(*archive) != ArchiveUsage::Detached
        });
        let line = |(archive, copies): (&Id, &u64)| {
            let archive = self.name_of_archive(*archive);
            format!("archive {archive} is not attached, so {copies} copies were not checked")
        };
        Ok(missing.iter().map(line).collect())
    }

    /// Calls `visit` for each copy in the catalogue, with the object and the archive. Copies of
    /// pending objects are skipped.
    fn each_copy(&self, visit: &mut dyn FnMut(&ObjectRow, Id)) -> Result<()> {
        self.catalogue.for_each(&mut |row| {
            if row.state != ObjectState::Pending {
                row.version.copies.iter().for_each(|archive| visit(&row, *archive));
            }
            Ok(())
        })
    }
}
