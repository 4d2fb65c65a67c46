//! Surveys the target directory before a rebuild. Existing files are kept, and no other files are
//! made from their objects.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fslab_vfs::{Errno, FileKind, Ino, Request};

use super::{BATCH, Rebuilder};
use crate::error::{Error, Result, shown};
use crate::lower::{Found, names};
use crate::stored::Residency;
use crate::stored::residency::Unreadable;

impl Rebuilder<'_> {
    /// Walks over all existing files.
    pub(super) fn survey_existing(&mut self, request: &Request) -> Result<()> {
        let mut pending = vec![Vec::new()];
        while let Some(path) = pending.pop() {
            request.cancellation.check().or(Err(Error::Interrupted))?;
            let looked = self.look_into(&path, &mut pending);
            self.tell(looked);
            self.notes.write(BATCH)?;
        }
        self.notes.begin_making()
    }

    fn look_into(&mut self, path: &[u8], pending: &mut Vec<Vec<u8>>) -> Result<()> {
        let directory = Found::at(self.lower, path).map_err(Error::below(path))?;
        let names = match names(&**self.lower, directory.ino()) {
            // A directory that an ordinary user may not read contains no files of that user's tier.
            Err(error) if error.errno() == Errno::ACCESS => return Ok(()),
            names => names.map_err(Error::below(path))?,
        };
        for name in names {
            let inner = match path {
                [] => name.as_bytes().to_vec(),
                path => [path, name.as_bytes()].join(&b'/'),
            };
            // A failure at one file does not stop the survey of the others.
            let looked = self.look_at(directory.ino(), &name, inner, pending);
            self.tell(looked);
        }
        Ok(())
    }

    fn look_at(
        &mut self,
        directory: Ino,
        name: &OsStr,
        path: Vec<u8>,
        pending: &mut Vec<Vec<u8>>,
    ) -> Result<()> {
        let found = Found::below(self.lower, directory, name).map_err(Error::below(&path))?;
        if found.attr.kind == FileKind::Directory {
            pending.push(path);
            return Ok(());
        }
        self.rebuilt.kept += 1;
        if found.attr.kind == FileKind::Regular { self.note_kept(&path, &found) } else { Ok(()) }
    }

    /// Records the object that an existing file refers to, so that no other file is made from it.
    fn note_kept(&mut self, path: &[u8], found: &Found) -> Result<()> {
        let marks = self.around.marks;
        let is_own = |known: &Residency| self.around.is_of(known.inode, &found.attr);
        match self.residency(found) {
            Ok(Some(known)) if known.tier == self.tier && is_own(&known) => {
                self.note(known.file, &known.version, &found.attr, path);
            }
            Ok(Some(known)) if !known.offline.is_empty() => {
                self.tell_stub(
                    path,
                    "was copied in the lower directory from another file with offline bytes",
                );
            }
            Ok(_) => {
                let is_stub = marks.is_unbelieved_stub(&**self.lower, found.ino());
                if is_stub.map_err(Error::below(path))? {
                    self.tell_stub(
                        path,
                        "seems to have offline bytes, but the only record of them is an xattr that \
                         root does not trust",
                    );
                }
            }
            // Files of other users do not belong to this tier.
            Err(Unreadable::Below(error)) if error.errno() == Errno::ACCESS => {}
            Err(error) => self.rebuilt.problems.push(format!("{}: {error}", shown(path))),
        }
        Ok(())
    }

    /// Reports an existing stub whose bytes can't be recalled.
    fn tell_stub(&mut self, path: &[u8], what: &str) {
        let path = shown(path);
        self.rebuilt.problems.push(format!("{path}: {what}; remove it and rebuild again"));
    }
}
