//! The xattrs of files and of the whole tree. One xattr stores the size of a stored file, so that
//! `stat` need not open the file. Another xattr describes the tree. The mount hides both, and the
//! xattrs of conversions, and does not let users set them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fslab_vfs::{Errno, Error, FileSystem, Ino, OpenMode, Request, Result, XattrMode};
use zerocopy::{FromBytes, IntoBytes};

use super::context::Session;
use super::format::{
    FLAG_PLAIN, FLAG_PURE, KEPT_NAME, MARK_NAME, MarkRecord, RUN_NAME, ReferenceRecord, TIMES_NAME,
    TREE_NAME, TreeRecord, VERSION,
};
use super::frame::Reference;
use super::lower::is_absence;

/// The mark of a lower file: its kind according to its size xattr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A stored file that was being written.
    Dirty,
    /// A stored file that was closed cleanly, with its state at that time.
    Clean(Clean),
    /// A file that is not a stored file, whatever its bytes look like.
    Foreign,
}

/// State of a stored file when it was closed cleanly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clean {
    pub file_size: u64,
    pub stored_length: u64,
    pub sequence: u64,
    /// Whether everything was durable when the mark was written.
    pub durable: bool,
    pub session: u64,
    /// The last checkpoint; the last frame is a few reads away from it. Older versions did not
    /// record it.
    pub checkpoint: Reference,
}

impl Clean {
    /// Whether this state is trusted for a file of the given length.
    pub fn holds(&self, stored_length: u64, session: &Session) -> bool {
        self.stored_length == stored_length && (self.durable || session.trusts(self.session))
    }
}

const STORED: u8 = 1;
const FOREIGN: u8 = 2;

/// States of a mark of kind [`FOREIGN`] that a conversion set. With `CONTENT`, the file had no size
/// xattr before. With `CONTENT_WITH_XATTR`, its earlier value follows.
const CONTENT: u8 = 1;
const CONTENT_WITH_XATTR: u8 = 2;

/// Whether a name belongs to an fslab xattr, which the mount hides and does not let users set.
pub fn is_ours(name: &OsStr) -> bool {
    [MARK_NAME, TREE_NAME, RUN_NAME, KEPT_NAME, TIMES_NAME].iter().any(|own| name == *own)
}

/// Reads the mark of a file (the content of its size xattr); `None` if there is no valid one.
pub fn read(fs: &dyn FileSystem, request: &Request, ino: Ino) -> Result<Option<Mark>> {
    Ok(value(fs, request, ino, MARK_NAME)?.and_then(|value| decode(&value)))
}

/// Reads an xattr; `None` if it is missing or unsupported.
pub fn value(
    fs: &dyn FileSystem,
    request: &Request,
    ino: Ino,
    name: &str,
) -> Result<Option<Vec<u8>>> {
    match fs.getxattr(request, ino, OsStr::new(name)) {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_absence(error.errno()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sets an xattr to a value, or removes it.
pub fn set(
    fs: &dyn FileSystem,
    request: &Request,
    ino: Ino,
    (name, value): (&str, Option<&[u8]>),
) -> Result<()> {
    let name = OsStr::new(name);
    let Some(value) = value else {
        return match fs.removexattr(request, ino, name) {
            Err(error) if is_absence(error.errno()) => Ok(()),
            answer => answer,
        };
    };
    fs.setxattr(request, ino, name, value, XattrMode::empty())
}

/// Values that show whether a file is still the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    pub size: u64,
    pub beginning_crc: u32,
}

/// Makes the mark of a plain file that a conversion encodes although it looks like a stored file.
/// It contains the earlier value of the xattr.
pub fn content(before: Option<&[u8]>, file: Fingerprint) -> Vec<u8> {
    let state = if before.is_some() { CONTENT_WITH_XATTR } else { CONTENT };
    let (file_size, sequence) = (file.size.into(), u64::from(file.beginning_crc).into());
    let record = MarkRecord { kind: FOREIGN, state, file_size, sequence, ..blank() };
    sealed(&record, before.unwrap_or_default())
}

/// Returns the earlier value of the xattr and the fingerprint from a mark made by [`content`].
/// Returns `None` if no conversion made it.
pub fn before_content(value: &[u8]) -> Option<(Option<Vec<u8>>, Fingerprint)> {
    decode(value)?;
    let (record, before) = MarkRecord::read_from_prefix(value).ok()?;
    let before = match (record.kind, record.state) {
        (FOREIGN, CONTENT) => None,
        (FOREIGN, CONTENT_WITH_XATTR) => Some(before.to_vec()),
        _ => return None,
    };
    let beginning_crc = record.sequence.get() as u32;
    Some((before, Fingerprint { size: record.file_size.get(), beginning_crc }))
}

/// Position of the checksum in a mark.
const CRC_RANGE: std::ops::Range<usize> = 4..8;

fn blank() -> MarkRecord {
    MarkRecord {
        version: VERSION,
        kind: STORED,
        state: 0,
        zero: 0,
        crc: 0.into(),
        file_size: 0.into(),
        stored_length: 0.into(),
        sequence: 0.into(),
        session: 0.into(),
    }
}

/// Writes the mark of a file.
pub fn write(fs: &dyn FileSystem, request: &Request, ino: Ino, mark: &Mark) -> Result<()> {
    fs.setxattr(request, ino, OsStr::new(MARK_NAME), &encode(mark), XattrMode::empty())
}

fn encode(mark: &Mark) -> Vec<u8> {
    let (mut record, mut checkpoint) = (blank(), Vec::new());
    match mark {
        Mark::Dirty => {}
        Mark::Foreign => record.kind = FOREIGN,
        Mark::Clean(clean) => {
            record.state = if clean.durable { 2 } else { 1 };
            record.file_size = clean.file_size.into();
            record.stored_length = clean.stored_length.into();
            record.sequence = clean.sequence.into();
            record.session = clean.session.into();
            if !clean.checkpoint.is_none() {
                checkpoint = clean.checkpoint.to_record().as_bytes().to_vec();
            }
        }
    }
    sealed(&record, &checkpoint)
}

/// Joins a mark and the data that follows it, and adds the checksum of both.
fn sealed(record: &MarkRecord, rest: &[u8]) -> Vec<u8> {
    let mut value = [record.as_bytes(), rest].concat();
    let crc = crc32c::crc32c(&value);
    value[CRC_RANGE].copy_from_slice(&crc.to_le_bytes());
    value
}

/// Decodes the value of the xattr, if it is valid.
pub fn decode(value: &[u8]) -> Option<Mark> {
    let (mut record, rest) = MarkRecord::read_from_prefix(value).ok()?;
    let crc = std::mem::take(&mut record.crc).get();
    let found = crc32c::crc32c_append(crc32c::crc32c(record.as_bytes()), rest);
    if record.version != VERSION || crc != found {
        return None;
    }
    match (record.kind, record.state) {
        (FOREIGN, CONTENT_WITH_XATTR) => Some(Mark::Foreign),
        (FOREIGN, _) if rest.is_empty() => Some(Mark::Foreign),
        (STORED, 0) if rest.is_empty() => Some(Mark::Dirty),
        (STORED, state @ 1..) => Some(Mark::Clean(Clean {
            file_size: record.file_size.get(),
            stored_length: record.stored_length.get(),
            sequence: record.sequence.get(),
            durable: state == 2,
            session: record.session.get(),
            checkpoint: match rest {
                // Older versions wrote no reference to a checkpoint.
                [] => Reference::NONE,
                rest => {
                    let record = ReferenceRecord::read_from_bytes(rest).ok()?;
                    Some(Reference::from_record(&record)).filter(|found| found.is_sound())?
                }
            },
        })),
        _ => None,
    }
}

/// Returns the error for a file with the mark of a stored file but without a valid head.
pub fn headless(ino: Ino) -> Error {
    let what = "a stored file with a damaged head, or of a later version";
    Error::Damaged { ino, offset: 0, what }
}

/// Begins a session over a tree. Returns the session, and whether xattrs are usable.
///
/// A tree that is empty at its first use is marked as pure. A file in it is foreign only if a user
/// adds it directly to the lower directory. A mount clears [`FLAG_PLAIN`]; a conversion keeps it.
pub fn begin_session(
    fs: &Arc<dyn FileSystem>,
    request: &Request,
    is_conversion: bool,
) -> Result<(Session, bool)> {
    let known = match tree(&**fs, request)? {
        Tree::Known(session) => session,
        Tree::New => Session { pure: is_empty(&**fs, request)?, ..Session::default() },
        Tree::NoXattrs => return Ok((Session::default(), false)),
    };
    let after = session_after(known);
    let session = Session { plain: after.plain && is_conversion, ..after };
    // The number must never be used again, so it is made durable before it is used.
    match write_tree(&**fs, request, &session).and_then(|()| sync_root(&**fs, request)) {
        Ok(()) => Ok((session, true)),
        Err(error) => match error.errno() {
            // The session can't be recorded; the next session will not trust its marks.
            Errno::ROFS => Ok((Session { number: 0, ..session }, true)),
            Errno::ACCESS | Errno::PERM => Ok((Session { number: 0, ..session }, false)),
            errno if is_absence(errno) => Ok((Session::default(), false)),
            _ => Err(error),
        },
    }
}

/// Content of a tree's xattr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tree {
    /// The last session.
    Known(Session),
    /// The xattr is missing or invalid.
    New,
    /// The file system has no xattrs.
    NoXattrs,
}

/// Reads the xattr of a tree.
pub fn tree(fs: &dyn FileSystem, request: &Request) -> Result<Tree> {
    match fs.getxattr(request, Ino::ROOT, OsStr::new(TREE_NAME)) {
        Ok(value) => Ok(decode_tree(&value).map_or(Tree::New, Tree::Known)),
        Err(error) if error.errno() == Errno::NODATA => Ok(Tree::New),
        Err(error) if is_absence(error.errno()) => Ok(Tree::NoXattrs),
        Err(error) => Err(error),
    }
}

/// Durably records whether all files of a tree are plain, see [`FLAG_PLAIN`].
pub fn set_plain(fs: &dyn FileSystem, request: &Request, plain: bool) -> Result<()> {
    let known = match tree(fs, request)? {
        Tree::Known(session) => session,
        Tree::New | Tree::NoXattrs => Session::default(),
    };
    write_tree(fs, request, &Session { plain, pure: known.pure && !plain, ..known })?;
    sync_root(fs, request)
}

/// Returns the session that follows `known`, whether or not `known` ended properly.
fn session_after(known: Session) -> Session {
    let number = known.number + 1;
    // If a session did not end properly, its marks and earlier ones are no longer trusted.
    let ended_well = known.number == known.durable;
    let durable_from = if ended_well { known.durable_from } else { number };
    Session { number, durable_from, ..known }
}

/// Returns the sessions whose marks will be trusted by the next mount of the tree that contains a
/// file. The tree is found by the file's path. If the tree is unknown, no marks are trusted.
pub fn session_above(path: &Path) -> Session {
    let known = tree_above(path).map(|(_, session)| session);
    // The next session has not begun, so it wrote no mark.
    known.map(|known| Session { number: 0, ..session_after(known) }).unwrap_or_default()
}

/// Returns the tree that contains a file or directory, and the last session of that tree.
pub fn tree_above(path: &Path) -> Option<(PathBuf, Session)> {
    let mut value = [0; size_of::<TreeRecord>()];
    path.ancestors().skip(1).find_map(|directory| {
        let length = rustix::fs::getxattr(directory, TREE_NAME, &mut value).ok()?;
        Some((directory.to_owned(), decode_tree(value.get(..length)?)?))
    })
}

/// Ends a session; all its files must be durable.
pub fn end_session(fs: &Arc<dyn FileSystem>, request: &Request, session: &Session) -> Result<()> {
    if session.number == 0 {
        return Ok(());
    }
    write_tree(&**fs, request, &Session { durable: session.number, ..*session })
}

/// Durably records that a tree may contain plain files. From then on, a file that begins with zeros
/// may be a plain file, not a lost stored file. This must be durable before the first plain file
/// is.
pub fn expect_foreign_files(fs: &dyn FileSystem, request: &Request) -> Result<()> {
    let Tree::Known(session) = tree(fs, request)? else { return Ok(()) };
    if !session.pure {
        return Ok(());
    }
    write_tree(fs, request, &Session { pure: false, ..session })?;
    sync_root(fs, request)
}

fn flag(is_set: bool, flag: u8) -> u8 {
    if is_set { flag } else { 0 }
}

fn write_tree(fs: &dyn FileSystem, request: &Request, session: &Session) -> Result<()> {
    let mut record = TreeRecord {
        version: VERSION,
        flags: flag(session.pure, FLAG_PURE) | flag(session.plain, FLAG_PLAIN),
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

pub fn sync_root(fs: &dyn FileSystem, request: &Request) -> Result<()> {
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
        plain: record.flags & FLAG_PLAIN != 0,
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

/// Returns the open flags for the lower file of a stored file.
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
        let short = Clean { checkpoint: Reference::NONE, ..clean };
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
    fn content_marks_keep_the_previous_xattr_value() {
        let earlier = encode(&Mark::Dirty);
        let file = Fingerprint { size: 7, beginning_crc: u32::MAX };
        let nested = content(Some(&earlier), file);
        for before in [None, Some(&b""[..]), Some(&earlier), Some(&nested)] {
            let value = content(before, file);
            assert_eq!(decode(&value), Some(Mark::Foreign));
            assert_eq!(before_content(&value), Some((before.map(<[u8]>::to_vec), file)));
            for index in 0..value.len() {
                let mut damaged = value.clone();
                damaged[index] ^= 1;
                assert_eq!(before_content(&damaged), None, "byte {index}");
            }
        }
        for mark in [Mark::Dirty, Mark::Foreign] {
            assert_eq!(before_content(&encode(&mark)), None);
            assert_eq!(decode(&[encode(&mark), vec![0]].concat()), None);
        }
    }

    #[test]
    fn marks_are_trusted_only_if_the_file_cannot_have_changed() {
        let session = Session { number: 7, durable_from: 4, durable: 5, ..Session::default() };
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
