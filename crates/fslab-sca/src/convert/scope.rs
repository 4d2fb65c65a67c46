//! Determines which files of a tree are stored files, and which ones only look like stored files.
//!
//! In a lower directory, every file that looks like a stored file is one, unless it is marked as a
//! foreign file. A mount applies the same rule. In any other tree, all files are plain, except
//! those that an unfinished run has encoded. The run records a key at the root, and gives its
//! stored files ids that are sealed with this key. Before it encodes a file, it marks all files
//! that look like stored files as foreign. A mount therefore shows the same bytes at any moment of
//! the run.
//!
//! Each step is durable before the next begins:
//!
//! - The tree is recorded as plain.
//! - The key is recorded.
//! - Files are marked.
//! - The end of the marking is recorded.
//! - Files are encoded.
//!
//! Once all files are encoded, the tree becomes a lower directory.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use fslab_vfs::{Attr, Errno, FileSystem, HostFs, HostOptions, Ino, Request, Result};
use zerocopy::{FromBytes, IntoBytes};

use super::{Conversion, Direction, Kept, Why, contents};
use crate::context::{own_request, seal};
use crate::error::Error;
use crate::format::{KEPT_NAME, MARK_NAME, RUN_NAME, RunRecord, VERSION};
use crate::size_xattr::{self, Mark, Tree};
use crate::superblock;
use crate::tools::Tool;

/// A rule that distinguishes stored files from files that only look like them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Files that look like stored files are stored files, except those marked as foreign.
    Form,
    /// Stored files are those whose id is sealed with the key of the unfinished run.
    Key(u64),
    /// No file is a stored file.
    Plain,
    /// The tree can't have the xattrs that record which files are stored files.
    Unrecorded,
}

impl Rule {
    /// Whether a file that looks like a stored file with this id is a stored file of the tree.
    pub fn admits(self, file_id: u64, is_foreign: bool) -> bool {
        !is_foreign
            && match self {
                Self::Plain => false,
                Self::Key(key) => seal(key, file_id) == file_id,
                Self::Form | Self::Unrecorded => true,
            }
    }
}

/// State of a tree before its conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    pub rule: Rule,
    /// Whether all files that look like stored files are marked.
    pub is_marked: bool,
    /// The lower directory that the tree is a part of.
    pub enclosing: Option<PathBuf>,
}

/// A tree can't be encoded because it is part of another tree whose files are all plain.
#[derive(Debug)]
pub struct PartOfPlainTree(pub PathBuf);

impl Scope {
    /// Determines the state of a tree without writing.
    pub fn find(
        lower: &dyn FileSystem,
        request: &Request,
        direction: Direction,
    ) -> Result<std::result::Result<Self, PartOfPlainTree>> {
        let above = lower.path_below(Ino::ROOT).and_then(|path| size_xattr::tree_above(&path));
        let scope = |rule| Ok(Ok(Self { rule, is_marked: false, enclosing: None }));
        match above {
            Some((path, session)) if !session.plain => {
                let enclosing = Some(path);
                return Ok(Ok(Self { rule: Rule::Form, is_marked: false, enclosing }));
            }
            Some((path, _)) => return Ok(Err(PartOfPlainTree(path))),
            None => {}
        }
        match (size_xattr::tree(lower, request)?, direction) {
            (Tree::NoXattrs, Direction::Encode) => scope(Rule::Unrecorded),
            (Tree::New, Direction::Encode) => scope(Rule::Plain),
            (Tree::NoXattrs | Tree::New, Direction::Decode) => scope(Rule::Form),
            (Tree::Known(session), _) if !session.plain => scope(Rule::Form),
            (Tree::Known(_), _) => match run(lower, request)? {
                Some((key, is_marked)) => {
                    Ok(Ok(Self { rule: Rule::Key(key), is_marked, enclosing: None }))
                }
                None => scope(Rule::Plain),
            },
        }
    }

    /// Begins or resumes an encoding run; a new run uses `key`.
    pub fn begin_encoding(
        &mut self,
        lower: &dyn FileSystem,
        request: &Request,
        key: u64,
    ) -> Result<()> {
        match self.rule {
            // A completed run may have left its record.
            Rule::Form => return size_xattr::set(lower, request, Ino::ROOT, (RUN_NAME, None)),
            Rule::Key(_) | Rule::Unrecorded => return Ok(()),
            Rule::Plain => {}
        }
        let begun = size_xattr::set_plain(lower, request, true)
            .and_then(|()| set_run(lower, request, (key, false)));
        self.rule = match begun {
            Ok(()) => Rule::Key(key),
            Err(error) if matches!(error.errno(), Errno::ACCESS | Errno::PERM) => Rule::Unrecorded,
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// Returns the key that seals the ids of encoded files.
    pub fn key(&self) -> Option<u64> {
        if let Rule::Key(key) = self.rule { Some(key) } else { None }
    }
}

/// The files of a tree that decoding treats as stored files.
pub struct DecodedFiles(Scope);

impl DecodedFiles {
    /// Determines the state of a tree without writing or locking.
    ///
    /// # Errors
    /// The tree can't be read.
    pub fn find(root: &Path) -> crate::Result<Self> {
        let failed = |source| Error::StoredFile { path: root.to_owned(), source };
        let lower = HostFs::open(root, &HostOptions::default()).map_err(failed)?;
        let scope = Scope::find(&lower, &own_request(), Direction::Decode).map_err(failed)?;
        let scope = scope.map_err(|PartOfPlainTree(path)| Error::PartOfPlainTree { path })?;
        Ok(Self(scope))
    }

    /// Whether a file is a stored file of the tree, and does not only look like one.
    #[must_use]
    pub fn has(&self, tool: &Tool) -> bool {
        self.0.rule.admits(tool.identity().file_id, tool.is_foreign())
    }
}

fn run(lower: &dyn FileSystem, request: &Request) -> Result<Option<(u64, bool)>> {
    let value = size_xattr::value(lower, request, Ino::ROOT, RUN_NAME)?;
    let record = value.and_then(|value| RunRecord::read_from_bytes(&value).ok());
    Ok(record.and_then(|mut record| {
        let crc = std::mem::take(&mut record.crc).get();
        let is_whole = record.version == VERSION && crc == crc32c::crc32c(record.as_bytes());
        is_whole.then(|| (record.key.get(), record.surveyed != 0))
    }))
}

/// Durably sets the record of a run.
fn set_run(lower: &dyn FileSystem, request: &Request, (key, marked): (u64, bool)) -> Result<()> {
    let surveyed = u8::from(marked);
    let (zero, crc) = ([0; 2], 0.into());
    let mut record = RunRecord { version: VERSION, surveyed, zero, crc, key: key.into() };
    record.crc = crc32c::crc32c(record.as_bytes()).into();
    size_xattr::set(lower, request, Ino::ROOT, (RUN_NAME, Some(record.as_bytes())))?;
    size_xattr::sync_root(lower, request)
}

/// Whether a mount would recognise a file with this beginning as a stored file, of this version or
/// a later one.
pub fn looks_stored(beginning: &[u8]) -> bool {
    superblock::identify(beginning).is_some() || superblock::is_newer(beginning)
}

impl Conversion {
    /// Whether a lower file is a stored file of this tree. Returns an error if its head is damaged
    /// or of a later version. Such a file must not be treated as plain, because its copy could no
    /// longer be recognised.
    pub(super) fn is_stored(&self, attr: &Attr) -> Kept<bool> {
        if self.scope.rule == Rule::Plain {
            return Ok(false);
        }
        let found = size_xattr::read(&*self.lower, &self.request, attr.ino)?;
        if found == Some(Mark::Foreign) {
            return Ok(false);
        }
        let beginning = contents::beginning(&*self.lower, &self.request, attr.ino)?;
        let identity = superblock::identify(&beginning);
        let is_newer = superblock::is_newer(&beginning);
        match (self.scope.rule, identity) {
            (Rule::Key(key), Some(identity)) => Ok(seal(key, identity.file_id) == identity.file_id),
            (Rule::Key(_), None) if is_newer => Ok(false),
            (Rule::Unrecorded, _) if looks_stored(&beginning) => Err(Why::Unrecorded),
            (Rule::Form, Some(_)) => Ok(true),
            (_, None) if found.is_some() || is_newer => Err(size_xattr::headless(attr.ino).into()),
            _ => Ok(false),
        }
    }

    /// Whether a plain file of this tree looks like a stored file.
    pub(super) fn is_lookalike(&self, ino: Ino) -> Result<bool> {
        Ok(looks_stored(&contents::beginning(&*self.lower, &self.request, ino)?))
    }

    /// Durably marks a file as foreign if it is plain but looks like a stored file. A file that
    /// can't be marked is skipped. It can't be converted either; the conversion reports that.
    pub(super) fn mark_lookalike(&self, attr: &Attr) -> Result<()> {
        let Rule::Key(key) = self.scope.rule else { return Ok(()) };
        if attr.size == 0 || self.direction == Direction::Decode || self.is_of_others(attr) {
            return Ok(());
        }
        match self.mark_unless_sealed(key, attr.ino) {
            Err(error) if is_of_the_file(&error) => Ok(()),
            answer => answer,
        }
    }

    fn mark_unless_sealed(&self, key: u64, ino: Ino) -> Result<()> {
        let (lower, request) = (&*self.lower, &self.request);
        let before = size_xattr::value(lower, request, ino, MARK_NAME)?;
        let found = before.as_deref().and_then(size_xattr::decode);
        if found == Some(Mark::Foreign) {
            return Ok(());
        }
        let beginning = contents::beginning(lower, request, ino)?;
        let is_lookalike = match superblock::identify(&beginning) {
            Some(identity) => seal(key, identity.file_id) != identity.file_id,
            // After all files that look stored were marked, this may be a file that the run has
            // encoded, with a damaged head.
            None => superblock::is_newer(&beginning) || found.is_some() && !self.scope.is_marked,
        };
        if !is_lookalike {
            return Ok(());
        }
        let content = size_xattr::content(before.as_deref(), self.fingerprint(ino, &beginning)?);
        self.with_right_to_write(ino, &|| {
            size_xattr::set(lower, request, ino, (MARK_NAME, Some(&content)))
        })?;
        self.lookalikes.fetch_add(1, Ordering::Relaxed);
        contents::sync(lower, request, ino)
    }

    /// Ends the marking of files that look like stored files: warns about their number, and records
    /// for a resumed run that all of them are marked.
    pub(super) fn note_all_marked(&self) -> Result<()> {
        let files = self.lookalikes.load(Ordering::Relaxed);
        if files > 0 {
            tracing::warn!(
                files,
                "some files are stored files of other trees; they are encoded again, like ordinary \
                 files"
            );
        }
        match (self.scope.rule, self.direction) {
            (Rule::Key(key), Direction::Encode) if !self.scope.is_marked => {
                set_run(&*self.lower, &self.request, (key, true))
            }
            _ => Ok(()),
        }
    }

    /// Ends a run. If some files were not converted, the next run continues it.
    pub(super) fn end_run(&self, is_complete: bool) -> Result<()> {
        match (is_complete, self.direction, self.scope.rule) {
            (true, ..) => self.end_complete_run(),
            // The next run uses the key to recognise the files that are still encoded.
            (false, Direction::Decode, Rule::Key(_) | Rule::Plain) => self.restore_marks(),
            (false, ..) => Ok(()),
        }
    }

    fn end_complete_run(&self) -> Result<()> {
        let (lower, request) = (&*self.lower, &self.request);
        let is_whole = self.scope.enclosing.is_none();
        let end = || size_xattr::set(lower, request, Ino::ROOT, (RUN_NAME, None));
        match (self.direction, self.scope.rule) {
            (_, Rule::Unrecorded) => Ok(()),
            (Direction::Encode, Rule::Key(_)) => {
                size_xattr::set_plain(lower, request, false)?;
                end()
            }
            (Direction::Encode, _) => Ok(()),
            (Direction::Decode, Rule::Form) if !is_whole => Ok(()),
            (Direction::Decode, Rule::Form) => {
                end()?;
                size_xattr::sync_root(lower, request)?;
                match size_xattr::set_plain(lower, request, true) {
                    // If the tree can't be recorded as plain, the marks of foreign files are kept.
                    Err(error) if crate::lower::is_absence(error.errno()) => Ok(()),
                    Err(error) if matches!(error.errno(), Errno::ACCESS | Errno::PERM) => Ok(()),
                    Err(error) => Err(error),
                    Ok(()) => self.restore_marks(),
                }
            }
            (Direction::Decode, Rule::Key(_)) => {
                self.restore_marks()?;
                end()
            }
            (Direction::Decode, Rule::Plain) => self.restore_marks(),
        }
    }

    /// Restores the xattr that a file had before a conversion marked the file as foreign, if the
    /// file is unchanged.
    pub(super) fn restore_mark(&self, ino: Ino) -> Result<()> {
        let (lower, request) = (&*self.lower, &self.request);
        let Some(value) = size_xattr::value(lower, request, ino, MARK_NAME)? else { return Ok(()) };
        let Some((before, file)) = size_xattr::before_content(&value) else { return Ok(()) };
        let beginning = contents::beginning(lower, request, ino)?;
        let is_as_it_was = self.fingerprint(ino, &beginning)? == file;
        self.with_right_to_write(ino, &|| match is_as_it_was {
            true => size_xattr::set(lower, request, ino, (MARK_NAME, before.as_deref())),
            false => size_xattr::write(lower, request, ino, &Mark::Foreign),
        })
    }

    /// Returns the size xattr of a file, and the xattr that keeps the fslab xattrs of its original.
    pub(super) fn own_xattrs(&self, ino: Ino) -> Result<[Option<Vec<u8>>; 2]> {
        let value = |name| size_xattr::value(&*self.lower, &self.request, ino, name);
        Ok([value(MARK_NAME)?, value(KEPT_NAME)?])
    }
}

/// Whether an error means that this file can't be read or changed by this user.
fn is_of_the_file(error: &fslab_vfs::Error) -> bool {
    let errno = error.errno();
    let is_full = matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::RANGE | Errno::TOOBIG);
    is_full || matches!(errno, Errno::ACCESS | Errno::PERM) || crate::lower::is_absence(errno)
}
