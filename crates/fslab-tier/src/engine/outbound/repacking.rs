//! Repacking: copies the needed objects of a mostly unneeded bundle into a new bundle.
//!
//! The new bundle is made from the archives, so no file is recalled. It contains new objects of the
//! same versions. The files' xattrs durably refer to the new objects before the old ones are
//! deleted. The old bundle is deleted with the last of its objects. Replaced and removed objects
//! are not moved; they remain in the old bundle until they expire.

use std::collections::HashMap;
use std::sync::Arc;

use fslab_vfs::{Ino, Request};

use crate::archive::ContainerKind;
use crate::catalogue::{ObjectRow, ObjectState};
use crate::engine::Tier;
use crate::engine::files::residency_xattr::Durable;
use crate::engine::metrics::Counter;
use crate::engine::outbound::bundling::{BUNDLED_BYTES_MAX, Contents};
use crate::error::{Error, Result, shown};
use crate::id::Id;
use crate::lower::Found;
use crate::object::bundle::contents_of;
use crate::stored::{Attributes, Location, Residency, Version};

/// Maximum number of bundles that one expiry repacks, which bounds memory use.
const BUNDLES_MAX: usize = 64;

/// An object that is copied into a new bundle.
struct Moving {
    old: ObjectRow,
    /// The file of the object, with a lookup reference to its inode.
    found: Found,
    contents: Contents,
}

/// A summary of the objects of a bundle that have rows in the catalogue.
#[derive(Default)]
struct Needed {
    bytes: u64,
    /// Whether the bundle has an object to be moved.
    is_live: bool,
}

/// Returns whether a file may refer to an object, according to the catalogue.
fn is_live(row: &ObjectRow) -> bool {
    matches!(row.state, ObjectState::Live | ObjectState::Pending)
}

impl Tier {
    /// Repacks bundles in which less than half of the bytes are needed; returns their number.
    pub(in crate::engine) fn repack(self: &Arc<Self>, request: &Request) -> Result<u64> {
        let mut repacked = 0;
        for (container, rows) in self.mostly_unneeded()? {
            self.check_going(request)?;
            match self.repack_one(rows, request) {
                Ok(done) => repacked += u64::from(done),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                // The bundle remains unchanged, with its needed objects.
                Err(error) => tracing::warn!("can't repack bundle {container}: {error}"),
            }
        }
        self.counters.add(Counter::RepackedBundles, repacked);
        Ok(repacked)
    }

    /// Returns the bundles in which less than half of the bytes are needed, with the rows of their
    /// live and pending objects.
    fn mostly_unneeded(&self) -> Result<HashMap<Id, Vec<ObjectRow>>> {
        let mut needed: HashMap<Id, Needed> = HashMap::new();
        self.catalogue.for_each(&mut |row| {
            let Location { container, offset, length } = row.version.location;
            // An object at an offset above 0 is in a bundle, because a bundle begins with a list.
            if offset > 0 {
                let needed = needed.entry(container).or_default();
                needed.bytes += length;
                needed.is_live |= is_live(&row);
            }
            Ok(())
        })?;
        needed.retain(|container, needed| {
            needed.is_live && self.is_mostly_unneeded(*container, needed.bytes)
        });
        let chosen: Vec<Id> = needed.into_keys().take(BUNDLES_MAX).collect();
        let mut rows: HashMap<Id, Vec<ObjectRow>> = HashMap::new();
        self.catalogue.for_each(&mut |row| {
            let container = row.version.location.container;
            if is_live(&row) && chosen.contains(&container) {
                rows.entry(container).or_default().push(row);
            }
            Ok(())
        })?;
        Ok(rows)
    }

    fn is_mostly_unneeded(&self, container: Id, needed: u64) -> bool {
        let archives = self.archives();
        let mut lengths = archives.iter().filter_map(|archive| {
            Some((archive, archive.length((ContainerKind::Files, container)).ok()?))
        });
        let Some((archive, length)) = lengths.next() else { return false };
        // The first test excludes most bundles without reading their lists.
        needed * 2 < length
            && contents_of(archive, container, length)
                .is_ok_and(|contents| needed * 2 < length - 2 * contents.list_bytes)
    }

    /// Repacks a bundle. Returns `false` if that is not possible now; a later expiry may then
    /// repack it.
    fn repack_one(self: &Arc<Self>, rows: Vec<ObjectRow>, request: &Request) -> Result<bool> {
        let mut moving = Vec::new();
        for row in rows {
            self.check_going(request)?;
            let row = self.as_it_is(row)?;
            if !is_live(&row) {
                continue;
            }
            if self.is_partly_unavailable(&row.version) {
                return Ok(false);
            }
            match self.to_be_moved(row, request)? {
                Some(one) => moving.push(one),
                None => return Ok(false),
            }
        }
        if moving.is_empty() {
            return Ok(false);
        }
        let rows = self.with_copy_targets(|archives| {
            let container = self.around.identities.make();
            // The sequences do not change, so the new objects are not treated as later versions.
            let row = |Moving { old, .. }: &Moving| {
                let version = Version {
                    object: self.around.identities.make(),
                    location: Location { container, offset: 0, length: 0 },
                    copies: archives.iter().map(|archive| archive.id()).collect(),
                    ..old.version.clone()
                };
                ObjectRow { state: ObjectState::Pending, version, ..old.clone() }
            };
            let rows = moving.iter().map(row).collect();
            let contents = moving.iter().map(|one| &one.contents);
            self.put_bundle(rows, contents, archives, self.pace(request, None))
        })?;
        Ok(self.point_at(&moving, rows)? > 0)
    }

    /// Reads a live object; returns `None` if its file is no longer at the row's path.
    fn to_be_moved(&self, old: ObjectRow, request: &Request) -> Result<Option<Moving>> {
        let found = if old.state == ObjectState::Live { self.file_of(&old) } else { None };
        let Some(found) = found else { return Ok(None) };
        let contents = self.ask_holders(&old.version, |archive| {
            let reader = self.reader(archive, &old.version)?;
            if old.version.size > BUNDLED_BYTES_MAX {
                let path = shown(&old.path);
                let what = format!("{path}: its archived version is too large for a bundle");
                return Err(Error::Refused { what });
            }
            let attributes = Attributes { path: old.path.clone(), ..reader.attributes().clone() };
            let mut bytes = Vec::new();
            for block in 0..reader.blocks() {
                self.pace(request, None).pass(reader.stored_bytes(block)?)?;
                bytes.extend(reader.block(block)?);
            }
            Ok(Contents { attributes, bytes })
        })?;
        Ok(Some(Moving { old, found, contents }))
    }

    /// Returns a row with the present state of its object. If the file of a live row refers to
    /// another object, the row is first recorded as replaced, because its object can't be moved.
    /// Archiving a file during a scan can leave such a row.
    fn as_it_is(&self, row: ObjectRow) -> Result<ObjectRow> {
        let object = row.version.object;
        let names_another =
            |known: &Residency| row.state == ObjectState::Live && known.version.object != object;
        // An unreadable file may refer to this object.
        if !matches!(self.named_version(&row), Ok(Some(known)) if names_another(&known)) {
            return Ok(row);
        }
        let (state, since) = (ObjectState::Replaced, self.around.calendar.now());
        self.catalogue.turn(object, state, since)?;
        Ok(ObjectRow { state, since, ..row })
    }

    /// Returns the file of a row, if it is at the row's path and its residency is readable. The
    /// object of a file with an unreadable residency is not moved. It would be copied at every
    /// expiry, because the new location can't be recorded in the file's xattr.
    fn file_of(&self, row: &ObjectRow) -> Option<Found> {
        let found = Found::at(&self.lower, &row.path).ok()?;
        self.named_version(row).ok().flatten().map(|_| found)
    }

    /// Records the new locations in the files' xattrs; returns the number of files that now refer
    /// to them. An object is kept in the old bundle as long as its file refers to it there.
    fn point_at(self: &Arc<Self>, moving: &[Moving], rows: Vec<ObjectRow>) -> Result<usize> {
        let (mut kept, mut dead, mut old) = (Vec::new(), Vec::new(), Vec::new());
        for (one, row) in moving.iter().zip(rows) {
            if self.has_moved(one, &row) {
                kept.push((one.old.version.object, row));
                old.push(one.old.clone());
            } else if !self.may_name(one.found.ino(), row.version.object) {
                dead.push(row);
            }
        }
        // The new rows take over changes that were meanwhile recorded in the old rows, such as
        // removals.
        self.catalogue.take_over(&kept)?;
        self.delete_rows(&dead)?;
        // The new locations must be durable before the old objects are deleted.
        self.sync_tree().map_err(Error::below(b""))?;
        self.delete_rows(&old)?;
        Ok(kept.len())
    }

    /// Records the new location of an object in its file's xattr; returns whether that succeeded.
    /// An error is only logged, so that the other objects are still moved.
    fn has_moved(self: &Arc<Self>, one: &Moving, row: &ObjectRow) -> bool {
        let moved = self.change_place(one.found.ino(), &one.old.version, &row.version);
        moved.unwrap_or_else(|error| {
            let path = crate::error::shown(&row.path);
            tracing::warn!("can't move {path} to a new bundle: {error}");
            false
        })
    }

    /// Records the new location of a version in a file's xattr. Returns `false` if the file has
    /// another version, is being archived, or could not be synced.
    fn change_place(self: &Arc<Self>, ino: Ino, from: &Version, to: &Version) -> Result<bool> {
        let used = self.enter(ino);
        let mut state = self.state(&used.file).map_err(Error::below(b""))?;
        let known = state.known().filter(|known| known.recorded.version.object == from.object);
        let is_left_alone = state.is_archiving || state.sync_failed;
        let Some(known) = known.filter(|_| !is_left_alone) else { return Ok(false) };
        self.check_open()?;
        // Keeps the modification time in the xattr. A program may have set it after archiving,
        // which the catalogue does not record.
        let version = Version { modified: known.recorded.version.modified, ..to.clone() };
        // `Later` is sufficient if the following sync of the whole tree makes the new locations
        // durable.
        let durable = if self.lower.syncs_whole_tree() { Durable::Later } else { Durable::Now };
        let written = self.change_mark(&mut state, durable, |known| known.version = version);
        written.map_err(Error::below(b""))?;
        Ok(true)
    }
}
