//! Rows of the catalogue: what is known of an object.

use fslab_vfs::Timestamp;

use crate::id::Id;
use crate::stored::bytes::{Corrupt, Cursor, put_string, put_time};
use crate::stored::{Location, Version};

const VERSION: u8 = 1;

/// What an object is to the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectState {
    /// It is being written, or its writer ended before anybody knew.
    Pending,
    /// It is the last archived version of a file.
    Live,
    /// A later version has taken its place.
    Replaced,
    /// The file was removed.
    Removed,
}

/// What is known of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRow {
    /// What it is to the tree.
    pub state: ObjectState,
    /// The file.
    pub file: Id,
    /// The inode the file had.
    pub inode: Id,
    /// Where it is and what it holds.
    pub version: Version,
    /// Since when it has been in this state.
    pub since: Timestamp,
    /// The last scan that had begun when this was said, or that saw it.
    pub seen: u64,
    /// Where the file was, from the root of the tree.
    pub path: Vec<u8>,
}

/// What is to be said of an object, and what was said of it when that was found out.
#[derive(Clone, Debug)]
pub struct RowChange {
    /// None if it had no row.
    pub before: Option<ObjectRow>,
    /// The new row.
    pub after: ObjectRow,
}

impl ObjectRow {
    /// The row as somebody says it who knows: a scan that has begun by then is none that could tell
    /// better.
    pub(super) fn said_after(self, scan: u64) -> Self {
        Self { seen: self.seen.max(scan), ..self }
    }

    /// The row with what is said of it now.
    pub(super) fn turned(self, state: ObjectState, since: Timestamp, scan: u64) -> Self {
        Self { state, since, ..self }.said_after(scan)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let Self { state, file, inode, version, since, seen, path } = self;
        let mut out = vec![VERSION, *state as u8];
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
        out
    }

    pub(super) fn decode(object: Id, bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut from = Cursor(bytes);
        if from.byte()? != VERSION {
            return Err(Corrupt("a row is of another version"));
        }
        let state = state_of(from.byte()?)?;
        let (file, inode, container) = (from.id()?, from.id()?, from.id()?);
        let [offset, length, size, sequence, seen] = [(); 5].map(|()| from.u64());
        let (modified, since, root) = (from.time()?, from.time()?, from.hash()?);
        let count = from.u32()?;
        let copies = (0..count).map(|_| from.id()).collect::<Result<_, _>>()?;
        let path = from.string()?;
        from.end()?;
        let location = Location { container, offset: offset?, length: length? };
        let (size, sequence) = (size?, sequence?);
        let version = Version { object, location, size, sequence, modified, root, copies };
        Ok(Self { state, file, inode, version, since, seen: seen?, path })
    }
}

fn state_of(number: u8) -> Result<ObjectState, Corrupt> {
    use ObjectState::{Live, Pending, Removed, Replaced};
    let all = [Pending, Live, Replaced, Removed];
    let state = all.into_iter().find(|state| *state as u8 == number);
    state.ok_or(Corrupt("an object is in no known state"))
}
