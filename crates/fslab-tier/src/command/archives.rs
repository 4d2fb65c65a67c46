//! Attaching, retiring, draining and detaching archives. Each change is written to the home first,
//! and then applied in the engine.

use std::path::Path;

use fslab_vfs::Ino;

use super::Execution;
use crate::archive::{ArchiveAddress, ArchiveEntry, ArchiveUsage, Purpose};
use crate::error::{Error, Result};
use crate::event::{Event, go_on, report_problems};
use crate::home::{Home, writer_of};
use crate::id::Id;
use crate::rate_limit::RateLimit;

impl Execution<'_> {
    pub(super) fn attach(&mut self, address: &ArchiveAddress, key: Option<&Path>) -> Result<()> {
        let tier = self.tier;
        let places = address.local_path().zip(tier.lower().path_below(Ino::ROOT));
        if let Some(what) = places.and_then(|(archive, tree)| overlap(&archive, &tree)) {
            return Err(refused(what));
        }
        let mut home = self.home()?;
        let around = tier.surroundings();
        home.attach(address, around.identities.make(), key.map(Path::to_owned))?;
        // The archive that was just attached is the last entry of the home.
        let Some(entry) = home.description.archives.last().cloned() else { return Ok(()) };
        let before = tier.entry_named(&entry.id.to_string()).ok();
        let is_open = before.is_some_and(|before| {
            before.usage != ArchiveUsage::Detached
                && (before.address, before.key) == (entry.address.clone(), entry.key.clone())
        });
        let id = entry.id;
        tier.note_entry(entry.clone());
        if !is_open {
            let purpose = Purpose::Write(writer_of(tier.lower(), around)?);
            let (archive, problem) = home.open_archive(&entry, &purpose, around);
            tier.attach(archive);
            report_problems(self.tell, problem.map(|error| error.to_string()))?;
        }
        self.tell_state(id)
    }

    pub(super) fn retire(&mut self, archive: &str) -> Result<()> {
        let entry = self.retired(archive)?;
        self.tell_state(entry.id)
    }

    pub(super) fn drain(&mut self, archive: &str, limit: Option<&RateLimit>) -> Result<()> {
        let entry = self.retired(archive)?;
        let (tier, request) = (self.tier, self.request);
        let short = self.read_copies(&mut |heard| tier.drain(entry.id, request, limit, heard))?;
        // The scan adds the new copies to the xattrs of renamed files, which the drain did not
        // find.
        report_problems(self.tell, tier.scan(request)?.damaged)?;
        // The newest archived tree must also be in another archive, because a rebuild begins with
        // it.
        let archived = tier.archive_tree(request)?;
        report_problems(self.tell, archived.problems)?;
        let name = entry.address.label();
        let needed = (short > 0).then(|| {
            format!("{name} is still needed, because the other archives have too few copies")
        });
        report_problems(self.tell, needed)?;
        self.tell_state(entry.id)
    }

    pub(super) fn detach(&mut self, archive: &str) -> Result<()> {
        let (tier, mut home) = (self.tier, self.home()?);
        let entry = tier.entry_named(archive)?;
        if entry.usage != ArchiveUsage::Detached {
            let save = || home.set_usage(entry.id, ArchiveUsage::Detached);
            tier.detach(&entry, self.request, save)?;
        }
        self.tell_state(entry.id)
    }

    /// Checks that an archive can be retired, and returns its entry without retiring it.
    pub(super) fn retirable(&self, archive: &str) -> Result<ArchiveEntry> {
        let entry = self.attached(archive)?;
        self.home()?.change_usage(entry.id, ArchiveUsage::Retired)?;
        Ok(entry)
    }

    fn attached(&self, archive: &str) -> Result<ArchiveEntry> {
        let entry = self.tier.entry_named(archive)?;
        if entry.usage == ArchiveUsage::Detached {
            let name = entry.address.label();
            return Err(refused(format!("{name} is detached: attach it first")));
        }
        Ok(entry)
    }

    fn retired(&mut self, archive: &str) -> Result<ArchiveEntry> {
        let entry = self.attached(archive)?;
        let usage = ArchiveUsage::Retired;
        self.home()?.set_usage(entry.id, usage)?;
        self.tier.note_entry(ArchiveEntry { usage, ..entry.clone() });
        Ok(entry)
    }

    fn home(&self) -> Result<Home> {
        let home = self.tier.settings().home.as_deref();
        Home::read(home.ok_or_else(|| {
            refused("the tier has no home (the directory with its settings)".to_owned())
        })?)
    }

    fn tell_state(&mut self, archive: Id) -> Result<()> {
        let states = self.tier.archive_states()?;
        let state = states.into_iter().find(|state| state.archive == archive);
        state.map_or(Ok(()), |state| go_on((self.tell)(Event::Archive(state))))
    }
}

/// Checks that a path is outside of a tree and does not contain it. Returns a message if the check
/// fails. Both paths are absolute.
#[must_use]
pub fn overlap(place: &Path, tree: &Path) -> Option<String> {
    let (shown, shown_tree) = (place.display(), tree.display());
    if place.starts_with(tree) {
        Some(format!("{shown} must lie outside of the tree {shown_tree}"))
    } else if tree.starts_with(place) {
        Some(format!("{shown} contains the tree {shown_tree}; choose a directory beside the tree"))
    } else {
        None
    }
}

fn refused(what: String) -> Error {
    Error::Refused { what }
}
