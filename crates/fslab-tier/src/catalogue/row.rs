//! Rows of the catalogue: the facts recorded about an object.

use fslab_vfs::Timestamp;

use crate::id::Id;
use crate::stored::bytes::{Corrupt, Cursor, put_string, put_time};
use crate::stored::{BLOCK_BYTES, Location, Version};

/// The version of a row without sources.
const VERSION: u8 = 1;
/// The version of a row with a list of sources.
const VERSION_WITH_SOURCES: u8 = 2;
/// The number of sources in a row if they are unknown.
const UNKNOWN: u32 = u32::MAX;

/// The state of an object with respect to the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectState {
    /// The object is being written, or its writer ended before recording the result.
    Pending,
    /// The object is the last archived version of a file.
    Live,
    /// A later version has replaced the object.
    Replaced,
    /// The file was removed.
    Removed,
    /// The version is no longer kept, but later versions need blocks of the object.
    Source,
}

/// The recorded facts about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRow {
    /// The state of the object.
    pub state: ObjectState,
    /// The identity of the file.
    pub file: Id,
    /// The inode of the file when it was archived.
    pub inode: Id,
    /// The version, with its location in archives.
    pub version: Version,
    /// The time when the object entered its present state.
    pub since: Timestamp,
    /// The number of the last scan that found the object, or that had begun when the row was
    /// written.
    pub seen: u64,
    /// The path of the file from the root of the tree.
    pub path: Vec<u8>,
    /// The containers of the object's sources, which contain blocks of this version; `None` if they
    /// are unknown. A pending object may not need all of them, and an object in the state
    /// [`ObjectState::Source`] may have more. Otherwise they never change, so a row with unknown
    /// sources does not replace known ones.
    pub sources: Option<Vec<Id>>,
}

/// A new row of an object, and the row that it is based on.
#[derive(Clone, Debug)]
pub struct RowChange {
    /// `None` if the object had no row.
    pub before: Option<ObjectRow>,
    /// The new row.
    pub after: ObjectRow,
}

impl ObjectRow {
    /// Returns the sources of a version whose object was not read: none if such an object never has
    /// sources, and else unknown. Members of bundles, at an offset above 0, and files of one block
    /// have none.
    #[must_use]
    pub fn unread_sources(version: &Version) -> Option<Vec<Id>> {
        (!may_be_source(version)).then(Vec::new)
    }

    /// Returns whether the object has sources, or may have some.
    #[must_use]
    pub fn may_have_sources(&self) -> bool {
        self.sources.as_ref().is_none_or(|sources| !sources.is_empty())
    }

    /// Returns the exact sources of the object, if the row has them.
    #[must_use]
    pub fn known_sources(&self) -> Option<&Vec<Id>> {
        let is_exact = !matches!(self.state, ObjectState::Pending | ObjectState::Source);
        self.sources.as_ref().filter(|_| is_exact)
    }

    /// Returns whether other objects may refer to blocks of this object.
    #[must_use]
    pub fn may_be_source(&self) -> bool {
        may_be_source(&self.version)
    }

    /// Returns the row, marked as seen by scan number `scan`. The writer's information is at least
    /// as recent as that of the scan.
    pub(super) fn said_after(self, scan: u64) -> Self {
        Self { seen: self.seen.max(scan), ..self }
    }

    /// Returns the row with a new state.
    pub(super) fn turned(self, state: ObjectState, since: Timestamp, scan: u64) -> Self {
        // A row in the state `Source` does not list the sources of its object.
        let was_source = self.state == ObjectState::Source && state != ObjectState::Source;
        let sources = self.sources.clone().filter(|_| !was_source);
        Self { state, since, sources, ..self }.said_after(scan)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let Self { state, file, inode, version, since, seen, path, sources } = self;
        let has_sources = self.may_have_sources();
        let row_version = if has_sources { VERSION_WITH_SOURCES } else { VERSION };
        let mut out = vec![row_version, *state as u8];
        out.extend(file.0);
        out.extend(inode.0);
        out.extend(version.location.container.0);
        let Location { offset, length, .. } = version.location;
        for number in [offset, length, version.size, version.sequence, *seen] {
            out.extend(number.to_le_bytes());
        }
        put_time(&mut out, version.modified);
        put_time(&mut out, *since);
        out.extend(version.root);
        out.extend((version.copies.len() as u32).to_le_bytes());
        version.copies.iter().for_each(|archive| out.extend(archive.0));
        put_string(&mut out, path);
        if has_sources {
            let count = sources.as_ref().map_or(UNKNOWN, |sources| sources.len() as u32);
            out.extend(count.to_le_bytes());
            sources.iter().flatten().for_each(|container| out.extend(container.0));
        }
        out
    }

    pub(super) fn decode(object: Id, bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut from = Cursor(bytes);
        let row_version = from.byte()?;
        if !matches!(row_version, VERSION | VERSION_WITH_SOURCES) {
            return Err(Corrupt("a row has an unknown version"));
        }
        let state = state_of(from.byte()?)?;
        let (file, inode, container) = (from.id()?, from.id()?, from.id()?);
        let [offset, length, size, sequence, seen] = [(); 5].map(|()| from.u64());
        let (modified, since, root) = (from.time()?, from.time()?, from.hash()?);
        let count = from.u32()?;
        let copies = (0..count).map(|_| from.id()).collect::<Result<_, _>>()?;
        let path = from.string()?;
        let count = if row_version == VERSION { 0 } else { from.u32()? };
        let sources = match count {
            UNKNOWN => None,
            count => Some((0..count).map(|_| from.id()).collect::<Result<_, _>>()?),
        };
        from.end()?;
        let location = Location { container, offset: offset?, length: length? };
        let (size, sequence) = (size?, sequence?);
        let version = Version { object, location, size, sequence, modified, root, copies };
        Ok(Self { state, file, inode, version, since, seen: seen?, path, sources })
    }
}

/// Returns whether an object may have sources and be a source.
fn may_be_source(version: &Version) -> bool {
    version.location.offset == 0 && version.size > BLOCK_BYTES
}

fn state_of(number: u8) -> Result<ObjectState, Corrupt> {
    use ObjectState::{Live, Pending, Removed, Replaced, Source};
    let all = [Pending, Live, Replaced, Removed, Source];
    let state = all.into_iter().find(|state| *state as u8 == number);
    state.ok_or(Corrupt("an object has an unknown state"))
}
