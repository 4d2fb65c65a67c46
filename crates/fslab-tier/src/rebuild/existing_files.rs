//! Surveys the directory before a rebuild: existing files stay, and their objects need no other
//! file.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fslab_vfs::{Errno, FileKind, Ino, Request};

use super::{BATCH, Rebuilder};
use crate::error::{Error, Result, shown};
use crate::lower::{Found, names};
use crate::stored::Residency;
use crate::stored::residency::Unreadable;

impl Rebuilder<'_> {
    /// Looks at everything there is.
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
            // Whoever may not look there has no file there.
            Err(error) if error.errno() == Errno::ACCESS => return Ok(()),
            names => names.map_err(Error::below(path))?,
        };
        for name in names {
            let inner = match path {
                [] => name.as_bytes().to_vec(),
                path => [path, name.as_bytes()].join(&b'/'),
            };
            // Of what can't be looked at nothing is known, but of the rest it is.
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

    /// What is there may name an object, and then no other file is made of that.
    fn note_kept(&mut self, path: &[u8], found: &Found) -> Result<()> {
        let marks = self.around.marks;
        let is_own = |known: &Residency| self.around.is_of(known.inode, &found.attr);
        match marks.read(&**self.lower, found.ino()) {
            Ok(Some(known)) if known.tier == self.tier && is_own(&known) => {
                self.note(known.file, &known.version, &found.attr, path);
            }
            Ok(Some(known)) if !known.offline.is_empty() => {
                self.tell_stub(path, "is a copy of a stub that was made in another place");
            }
            Ok(_) => {
                let is_stub = marks.is_unbelieved_stub(&**self.lower, found.ino());
                if is_stub.map_err(Error::below(path))? {
                    self.tell_stub(path, "is a stub by a mark that root does not believe");
                }
            }
            // Of others, who have no files in this tier.
            Err(Unreadable::Below(error)) if error.errno() == Errno::ACCESS => {}
            Err(error) => self.rebuilt.problems.push(format!("{}: {error}", shown(path))),
        }
        Ok(())
    }

    /// The bytes of such a file are in no file here.
    fn tell_stub(&mut self, path: &[u8], what: &str) {
        let path = shown(path);
        self.rebuilt.problems.push(format!("{path}: {what}; remove it and rebuild again"));
    }
}
