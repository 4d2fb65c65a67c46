//! The two xattrs: the size of a stored file, for `stat` without opening it, and what is known of
//! the whole tree. Both are hidden from and can't be set through the mount.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use fslab_vfs::{Errno, Error, FileSystem, Ino, OpenMode, Request, Result, XattrMode};
use zerocopy::{FromBytes, IntoBytes};

use super::context::Session;
use super::format::{
    FLAG_PURE, MARK_NAME, MarkRecord, SHORT_MARK_BYTES, TREE_NAME, TreeRecord, VERSION,
};
use super::frame::Reference;

/// What an xattr says a file below is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A stored file that somebody was writing.
    Dirty,
    /// A stored file at rest.
    Clean(Clean),
    /// No stored file, whatever its bytes look like.
    Foreign,
}

/// A stored file at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clean {
    pub file_size: u64,
    pub stored_length: u64,
    pub sequence: u64,
    /// Everything was durable when this was written.
    pub durable: bool,
    pub session: u64,
    /// The last checkpoint, from which few reads lead to the last frame; none in marks of versions
    /// that did not say.
    pub checkpoint: Reference,
}

impl Clean {
    /// Whether it can be believed of a file of this length.
    pub fn holds(&self, stored_length: u64, session: &Session) -> bool {
        self.stored_length == stored_length && (self.durable || session.trusts(self.session))
    }
}

const STORED: u8 = 1;
const FOREIGN: u8 = 2;

/// Whether a name is one of ours, which the mount neither shows nor sets.
pub fn is_ours(name: &OsStr) -> bool {
    name == MARK_NAME || name == TREE_NAME
}

/// Reads the mark of a file; `None` where there is none that is whole.
pub fn read(fs: &dyn FileSystem, request: &Request, ino: Ino) -> Result<Option<Mark>> {
    match fs.getxattr(request, ino, OsStr::new(MARK_NAME)) {
        Ok(value) => Ok(decode(&value)),
        Err(error) if is_absence(error.errno()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an errno says that an xattr is not there, or can't be.
pub fn is_absence(errno: Errno) -> bool {
    matches!(errno, Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS)
}

/// Writes the mark of a file.
pub fn write(fs: &dyn FileSystem, request: &Request, ino: Ino, mark: &Mark) -> Result<()> {
    fs.setxattr(request, ino, OsStr::new(MARK_NAME), &encode(mark), XattrMode::empty())
}

fn encode(mark: &Mark) -> Vec<u8> {
    let mut record = MarkRecord {
        version: VERSION,
        kind: STORED,
        state: 0,
        zero: 0,
        crc: 0.into(),
        file_size: 0.into(),
        stored_length: 0.into(),
        sequence: 0.into(),
        session: 0.into(),
        checkpoint: Reference::NONE.to_record(),
    };
    match mark {
        Mark::Dirty => {}
        Mark::Foreign => record.kind = FOREIGN,
        Mark::Clean(clean) => {
            record.state = if clean.durable { 2 } else { 1 };
            record.file_size = clean.file_size.into();
            record.stored_length = clean.stored_length.into();
            record.sequence = clean.sequence.into();
            record.session = clean.session.into();
            record.checkpoint = clean.checkpoint.to_record();
        }
    }
    let has_checkpoint = !Reference::from_record(&record.checkpoint).is_none();
    let length = if has_checkpoint { size_of::<MarkRecord>() } else { SHORT_MARK_BYTES };
    record.crc = crc32c::crc32c(&record.as_bytes()[..length]).into();
    record.as_bytes()[..length].to_vec()
}

fn decode(value: &[u8]) -> Option<Mark> {
    if ![SHORT_MARK_BYTES, size_of::<MarkRecord>()].contains(&value.len()) {
        return None;
    }
    let mut bytes = [0; size_of::<MarkRecord>()];
    bytes[..value.len()].copy_from_slice(value);
    let mut record = MarkRecord::read_from_bytes(&bytes).ok()?;
    let crc = std::mem::take(&mut record.crc).get();
    let known = &record.as_bytes()[..value.len()];
    if record.version != VERSION || crc != crc32c::crc32c(known) {
        return None;
    }
    match (record.kind, record.state) {
        (FOREIGN, _) => Some(Mark::Foreign),
        (STORED, 0) => Some(Mark::Dirty),
        (STORED, state) => Some(Mark::Clean(Clean {
            file_size: record.file_size.get(),
            stored_length: record.stored_length.get(),
            sequence: record.sequence.get(),
            durable: state == 2,
            session: record.session.get(),
            checkpoint: Reference::from_record(&record.checkpoint),
        })),
        _ => None,
    }
}

/// What a file is that has a mark of a stored one and no head that is known.
pub fn headless(ino: Ino) -> Error {
    let what = "a stored file whose head is damaged, or of a later version";
    Error::Damaged { ino, offset: 0, what }
}

/// Begins a session over a tree, and says whether xattrs can be had at all.
///
/// A tree that is empty when it is first used is marked as pure: no file in it is foreign unless
/// somebody puts one there behind the mount.
pub fn begin_session(fs: &Arc<dyn FileSystem>, request: &Request) -> Result<(Session, bool)> {
    let known = match fs.getxattr(request, Ino::ROOT, OsStr::new(TREE_NAME)) {
        Ok(value) => decode_tree(&value),
        Err(error) if error.errno() == Errno::NODATA => None,
        Err(error) if is_absence(error.errno()) => return Ok((Session::default(), false)),
        Err(error) => return Err(error),
    };
    let known = match known {
        Some(session) => session,
        None => Session { pure: is_empty(&**fs, request)?, ..Session::default() },
    };
    let session = session_after(known);
    // The number must never be given again, so it is made durable before it is used.
    match write_tree(&**fs, request, &session).and_then(|()| sync_root(&**fs, request)) {
        Ok(()) => Ok((session, true)),
        Err(error) => match error.errno() {
            // Nothing can be recorded: marks of this session will not be believed by the next.
            Errno::ROFS => Ok((Session { number: 0, ..session }, true)),
            Errno::ACCESS | Errno::PERM => Ok((Session { number: 0, ..session }, false)),
            errno if is_absence(errno) => Ok((Session::default(), false)),
            _ => Err(error),
        },
    }
}

/// The session that begins when another is over, however that ended.
fn session_after(known: Session) -> Session {
    let number = known.number + 1;
    // After a session that did not end well, what it and those before it left is not believed.
    let ended_well = known.number == known.durable;
    let durable_from = if ended_well { known.durable_from } else { number };
    Session { number, durable_from, ..known }
}

/// Which marks the next mount of the tree believes that a file is in, by its path. What can't be
/// found out is not believed.
pub fn session_above(path: &Path) -> Session {
    let mut value = [0; size_of::<TreeRecord>()];
    let known = path.ancestors().skip(1).find_map(|directory| {
        let length = rustix::fs::getxattr(directory, TREE_NAME, &mut value).ok()?;
        decode_tree(value.get(..length)?)
    });
    // It has not begun: nothing is marked by it yet.
    known.map(|known| Session { number: 0, ..session_after(known) }).unwrap_or_default()
}

/// Ends a session whose files are all durable.
pub fn end_session(fs: &Arc<dyn FileSystem>, request: &Request, session: &Session) -> Result<()> {
    if session.number == 0 {
        return Ok(());
    }
    write_tree(&**fs, request, &Session { durable: session.number, ..*session })
}

/// Plain files are about to come into a tree, and stay there: what begins with zeros need not be a
/// stored file that was lost. Durable before the first of them is.
pub fn expect_foreign_files(fs: &dyn FileSystem, request: &Request) -> Result<()> {
    let known = match fs.getxattr(request, Ino::ROOT, OsStr::new(TREE_NAME)) {
        Ok(value) => decode_tree(&value),
        Err(error) if is_absence(error.errno()) => None,
        Err(error) => return Err(error),
    };
    let Some(session) = known.filter(|known| known.pure) else { return Ok(()) };
    write_tree(fs, request, &Session { pure: false, ..session })?;
    sync_root(fs, request)
}

fn write_tree(fs: &dyn FileSystem, request: &Request, session: &Session) -> Result<()> {
    let mut record = TreeRecord {
        version: VERSION,
        flags: if session.pure { FLAG_PURE } else { 0 },
        zero: [0; 2],
        crc: 0.into(),
        session: session.number.into(),
        durable_from: session.durable_from.into(),
        durable: session.durable.into(),
    };
    record.crc = crc32c::crc32c(record.as_bytes()).into();
    let value = record.as_bytes();
    fs.setxattr(request, Ino::ROOT, OsStr::new(TREE_NAME), value, XattrMode::empty())
}

fn sync_root(fs: &dyn FileSystem, request: &Request) -> Result<()> {
    let handle = fs.opendir(request, Ino::ROOT)?;
    let synced = fs.fsyncdir(request, Ino::ROOT, handle, false);
    fs.releasedir(request, Ino::ROOT, handle)?;
    synced
}

fn decode_tree(value: &[u8]) -> Option<Session> {
    let mut record = TreeRecord::read_from_bytes(value).ok()?;
    let crc = std::mem::take(&mut record.crc).get();
    let is_whole = record.version == VERSION && crc == crc32c::crc32c(record.as_bytes());
    is_whole.then(|| Session {
        number: record.session.get(),
        durable_from: record.durable_from.get(),
        durable: record.durable.get(),
        pure: record.flags & FLAG_PURE != 0,
    })
}

fn is_empty(fs: &dyn FileSystem, request: &Request) -> Result<bool> {
    let handle = fs.opendir(request, Ino::ROOT)?;
    let mut empty = true;
    let listed = fs.readdir(request, Ino::ROOT, handle, 0, &mut |entry| {
        let is_dot = entry.name == "." || entry.name == "..";
        empty &= is_dot || entry.name == "lost+found";
        empty
    });
    fs.releasedir(request, Ino::ROOT, handle)?;
    listed.map(|()| empty)
}

/// Flags of an opening that have a meaning for a stored file's lower file.
pub fn lower_mode(writes: bool) -> OpenMode {
    if writes { OpenMode::READ_WRITE } else { OpenMode::empty() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_survive_encoding_and_fit_into_an_inode() {
        let clean = Clean {
            file_size: 1 << 40,
            stored_length: 12_345,
            sequence: 9,
            durable: true,
            session: 3,
            checkpoint: Reference { offset: 11_000, stored_length: 1000, header_crc: 5 },
        };
        // As it was written before marks led to checkpoints.
        let short = Clean { checkpoint: Reference::NONE, ..clean };
        assert_eq!(encode(&Mark::Clean(short)).len(), SHORT_MARK_BYTES);
        for mark in [Mark::Dirty, Mark::Foreign, Mark::Clean(short), Mark::Clean(clean)] {
            let value = encode(&mark);
            assert!(value.len() <= 64);
            assert_eq!(decode(&value), Some(mark));
            for index in 0..value.len() {
                let mut damaged = value.clone();
                damaged[index] ^= 1;
                assert_eq!(decode(&damaged), None, "byte {index}");
            }
        }
    }

    #[test]
    fn marks_are_believed_only_where_nothing_can_have_changed() {
        let session = Session { number: 7, durable_from: 4, durable: 5, pure: false };
        let clean = |durable, session| Clean {
            file_size: 1,
            stored_length: 2,
            sequence: 3,
            durable,
            session,
            checkpoint: Reference::NONE,
        };
        assert!(clean(true, 6).holds(2, &session));
        assert!(!clean(true, 6).holds(3, &session));
        assert!(clean(false, 7).holds(2, &session) && clean(false, 5).holds(2, &session));
        assert!(!clean(false, 6).holds(2, &session), "a session that did not end well");
        assert!(!clean(false, 3).holds(2, &session), "before such a session");
        assert!(!clean(false, 0).holds(2, &Session::default()));
    }
}
