//! Copying files into archives.
//!
//! 1. The catalogue says that an object is on its way: whatever happens, it is found again.
//! 2. The file is copied to as many archives as copies are asked for, and read back from each.
//! 3. The file is synced, and its xattr says durably which version archives hold, unless somebody
//!    began to change it meanwhile.
//! 4. The catalogue says that the object is a file's last version, and the one before is not.

use std::sync::Arc;

use fslab_vfs::{Attr, FileKind, Ino, Request};

use super::file::{FileState, Known, TieredFile};
use super::{FileUse, Tier};
use crate::archive::{Archive, ContainerKind, Upload};
use crate::catalogue::{ObjectRow, ObjectState};
use crate::error::{Error, Result};
use crate::id::Id;

use crate::limit::{Limit, Pace};
use crate::queue::Class;
use crate::runs::Runs;
use crate::stored::attributes::Attributes;
use crate::stored::format::{ATTRIBUTES_BYTES_MAX, KIND_FILE, PAGE_ENTRIES, PAGES_MAX, blocks_of};
use crate::stored::reader::ObjectReader;
use crate::stored::writer::{Heading, ObjectWriter, Sink};
use crate::stored::{BLOCK_BYTES, Location, Residency, Version, residency};

/// What archiving a file did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Archived {
    /// Copies were made of so many bytes.
    Now {
        /// Of the file.
        bytes: u64,
    },
    /// Archives held it already.
    Before,
}

/// A file on its way into archives.
struct Job<'a> {
    pace: Pace<'a>,
    file: &'a Arc<TieredFile>,
    path: &'a [u8],
    /// What the state of changes was when it began.
    changes: u64,
    attr: Attr,
    identity: Id,
    before: Option<Residency>,
}

/// All archives that take a copy, as one sink.
struct Copies<'a> {
    uploads: Vec<(String, Box<dyn Upload>)>,
    container: Id,
    pace: Pace<'a>,
    request: &'a Request,
}

impl Sink for Copies<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        for (archive, upload) in &mut self.uploads {
            self.pace.pass(bytes.len() as u64, self.request)?;
            upload.write(bytes).map_err(failed(archive, self.container))?;
        }
        Ok(())
    }
}

fn failed(archive: &str, container: Id) -> impl FnOnce(std::io::Error) -> Error {
    let archive = archive.to_owned();
    move |source| Error::Archive { archive, container, source }
}

impl Tier {
    /// Copies a file into archives, unless its present state is there.
    ///
    /// # Errors
    /// Where it is open for writing, was changed meanwhile, or an archive fails: the file is then
    /// as it was.
    pub fn archive(self: &Arc<Self>, ino: Ino, path: &[u8], request: &Request) -> Result<Archived> {
        self.archive_within(ino, path, request, None)
    }

    /// The same within a limit, beside the tier's own.
    ///
    /// # Errors
    /// As [`Self::archive`].
    pub fn archive_within(
        self: &Arc<Self>,
        ino: Ino,
        path: &[u8],
        request: &Request,
        limit: Option<&Limit>,
    ) -> Result<Archived> {
        let file_use = self.enter(ino);
        let Some(job) = self.begin_job(&file_use, path, request)? else {
            return Ok(Archived::Before);
        };
        let job = Job { pace: Pace([self.archive_limit.as_ref(), limit]), ..job };
        let archived = self.copy_out(&job, request);
        file_use.file.lock().is_archiving = false;
        archived
    }

    fn begin_job<'a>(
        &self,
        file_use: &'a FileUse,
        path: &'a [u8],
        request: &Request,
    ) -> Result<Option<Job<'a>>> {
        let (file, below) = (&file_use.file, || Error::below(path));
        let not_now = |why| Error::NotNow { path: crate::error::shown(path), why };
        loop {
            let mut state = self.state(file).map_err(below())?;
            if state.writers > 0 {
                return Err(not_now("is open for writing"));
            }
            if state.is_archiving {
                return Err(not_now("is being archived already"));
            }
            let before = state.known().map(|known| known.recorded.clone());
            let is_done = before.as_ref().is_some_and(|before| self.is_archived(before));
            if is_done {
                return Ok(None);
            }
            if state.has_offline() {
                drop(state);
                self.recall(file, 0..u64::MAX, request, Class::Bulk).map_err(below())?;
                continue;
            }
            let attr = self.lower.getattr(&self.request(), file.ino(), None).map_err(below())?;
            if attr.kind != FileKind::Regular {
                return Err(not_now("is no regular file"));
            }
            if blocks_of(attr.size) > PAGES_MAX * PAGE_ENTRIES {
                return Err(not_now("is larger than an archive takes (2 PiB)"));
            }
            state.is_archiving = true;
            let identity = before.as_ref().map(|before| before.file);
            let identity = identity.unwrap_or_else(|| self.around.identities.make());
            let (pace, changes) = (Pace::default(), state.changes);
            return Ok(Some(Job { pace, file, path, changes, attr, identity, before }));
        }
    }

    fn is_archived(&self, before: &Residency) -> bool {
        !before.changed && self.holders(&before.version).len() >= self.settings.copies
    }

    fn copy_out(&self, job: &Job<'_>, request: &Request) -> Result<Archived> {
        let archives = self.chosen_archives()?;
        let row = self.pending_row(job, &archives)?;
        self.catalogue.put(std::slice::from_ref(&row))?;
        let done = self.copy_verified(job, &row, &archives, request);
        let done = done.and_then(|version| self.commit(job, row.clone(), version));
        if done.is_err() {
            self.take_back(&row, &archives);
        }
        done
    }

    /// The archives that take a copy: the first ones, in the order in which they were attached.
    pub(super) fn chosen_archives(&self) -> Result<Vec<Arc<dyn Archive>>> {
        let archives = self.archives();
        let (wanted, found) = (self.settings.copies, archives.len());
        if found < wanted.max(1) {
            return Err(Error::TooFewArchives { wanted: wanted.max(1), found });
        }
        Ok(archives.into_iter().take(wanted.max(1)).collect())
    }

    fn pending_row(&self, job: &Job<'_>, archives: &[Arc<dyn Archive>]) -> Result<ObjectRow> {
        let now = self.around.calendar.now();
        let location = Location { container: self.around.identities.make(), offset: 0, length: 0 };
        let version = Version {
            object: self.around.identities.make(),
            location,
            size: job.attr.size,
            sequence: self.catalogue.next_sequence(now)?,
            modified: job.attr.modified,
            root: [0; 32],
            copies: archives.iter().map(|archive| archive.id()).collect(),
        };
        Ok(ObjectRow {
            state: ObjectState::Pending,
            file: job.identity,
            inode: (self.around.tell)(&job.attr),
            version,
            since: now,
            seen: 0,
            path: job.path.to_vec(),
        })
    }

    fn copy_verified(
        &self,
        job: &Job<'_>,
        row: &ObjectRow,
        archives: &[Arc<dyn Archive>],
        request: &Request,
    ) -> Result<Version> {
        let container = row.version.location.container;
        let mut uploads = Vec::new();
        for archive in archives {
            let label = archive.label();
            let upload = archive.begin(ContainerKind::Files, container);
            uploads.push((label.to_owned(), upload.map_err(failed(label, container))?));
        }
        let mut copies = Copies { uploads, container, pace: job.pace, request };
        let (length, root) = self.write_object(job, row, &mut copies, request)?;
        for (archive, upload) in copies.uploads {
            upload.finish().map_err(failed(&archive, container))?;
        }
        let location = Location { length, ..row.version.location };
        let version = Version { location, root, ..row.version.clone() };
        archives.iter().try_for_each(|archive| verify(archive, &version, request, job.pace))?;
        Ok(version)
    }

    fn write_object(
        &self,
        job: &Job<'_>,
        row: &ObjectRow,
        sink: &mut dyn Sink,
        request: &Request,
    ) -> Result<(u64, [u8; 32])> {
        let attributes = self.attributes(&job.attr, job.path)?;
        let heading = Heading {
            kind: KIND_FILE,
            object: row.version.object,
            file: job.identity,
            tier: self.settings.tier,
            sequence: row.version.sequence,
            size: job.attr.size,
            created: row.since,
        };
        let mut writer = ObjectWriter::begin(sink, &heading, &attributes, self.settings.level)?;
        let below = || Error::below(job.path);
        let own = self.open_own(job.file.ino(), false).map_err(below())?;
        let mut buffer = vec![0; BLOCK_BYTES as usize];
        for block in 0..blocks_of(job.attr.size) {
            request.cancellation.check().or(Err(Error::Interrupted))?;
            let offset = block * BLOCK_BYTES;
            let length = (job.attr.size - offset).min(BLOCK_BYTES);
            if !own.has_data(offset, offset + length).map_err(below())? {
                writer.zeros(length)?;
                continue;
            }
            let bytes = &mut buffer[..length as usize];
            if own.read(offset, bytes).map_err(below())? != bytes.len() {
                return Err(changed_meanwhile(job.path));
            }
            writer.block(bytes)?;
        }
        writer.finish()
    }

    /// What is kept of a file beside its bytes.
    pub(super) fn attributes(&self, attr: &Attr, path: &[u8]) -> Result<Attributes> {
        let mut attributes = Attributes { path: path.to_vec(), ..Attributes::of(attr) };
        let below = || Error::below(path);
        if attr.kind == FileKind::Symlink {
            let target = self.lower.readlink(&self.request(), attr.ino).map_err(below())?;
            attributes.target = target.into_encoded_bytes();
        }
        attributes.xattrs = self.xattrs(attr.ino).map_err(below())?;
        let bytes: usize =
            attributes.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes + path.len() + attributes.target.len() > ATTRIBUTES_BYTES_MAX / 2 {
            let why = "has more xattrs than an archive takes (512 KiB)";
            return Err(Error::NotNow { path: crate::error::shown(path), why });
        }
        Ok(attributes)
    }

    fn xattrs(&self, ino: Ino) -> fslab_vfs::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        use std::os::unix::ffi::OsStrExt;
        let request = self.request();
        let names = match self.lower.listxattr(&request, ino) {
            Err(error) if error.errno() == fslab_vfs::Errno::OPNOTSUPP => return Ok(Vec::new()),
            names => names?,
        };
        let mut xattrs = Vec::new();
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let name = std::ffi::OsStr::from_bytes(name);
            if !residency::is_ours(name) {
                let value = self.lower.getxattr(&request, ino, name)?;
                xattrs.push((name.as_bytes().to_vec(), value));
            }
        }
        Ok(xattrs)
    }

    /// The file is what was copied: from here on it is archived.
    fn commit(&self, job: &Job<'_>, row: ObjectRow, version: Version) -> Result<Archived> {
        let below = || Error::below(job.path);
        let mut state = self.state(job.file).map_err(below())?;
        let attr = self.lower.getattr(&self.request(), job.file.ino(), None).map_err(below())?;
        let is_same = (attr.size, attr.modified) == (job.attr.size, job.attr.modified);
        if state.changes != job.changes || state.writers > 0 || !is_same {
            return Err(changed_meanwhile(job.path));
        }
        let residency = Residency {
            tier: self.settings.tier,
            file: job.identity,
            inode: row.inode,
            changed: false,
            moving: false,
            touched_seconds: state.known().map_or(0, |known| known.recorded.touched_seconds),
            version: version.clone(),
            offline: Runs::new(),
        };
        self.mark_archived(job.file, &mut state, residency).map_err(below())?;
        drop(state);
        let now = self.around.calendar.now();
        let mut rows = vec![ObjectRow { state: ObjectState::Live, version, since: now, ..row }];
        if let Some(before) = &job.before
            && let Some(old) = self.catalogue.get(before.version.object)?
        {
            rows.push(ObjectRow { state: ObjectState::Replaced, since: now, ..old });
        }
        self.catalogue.put(&rows)?;
        self.counted.archived(job.attr.size);
        Ok(Archived::Now { bytes: job.attr.size })
    }

    fn mark_archived(
        &self,
        file: &TieredFile,
        state: &mut FileState,
        residency: Residency,
    ) -> fslab_vfs::Result<()> {
        state.own(self, file.ino())?.sync()?;
        self.write_residency(file.ino(), &residency)?;
        let offline = residency.offline.clone();
        state.set_known(Known { recorded: residency, offline, unsynced: true });
        state.own(self, file.ino())?.sync()
    }

    /// Removes an object that no file needs. What can't be removed now is found by the next scan.
    fn take_back(&self, row: &ObjectRow, archives: &[Arc<dyn Archive>]) {
        let referenced = residency_names(&*self.lower, row, self);
        if referenced {
            return;
        }
        let container = row.version.location.container;
        let deleted = archives.iter().try_for_each(|archive| {
            archive
                .delete(ContainerKind::Files, container)
                .map_err(failed(archive.label(), container))
        });
        let removed =
            deleted.and_then(|()| self.catalogue.remove(std::slice::from_ref(row)).map(drop));
        if let Err(error) = removed {
            tracing::warn!(%error, "an object that nobody needs is left to the next scan");
        }
    }
}

/// Whether the file that a row is about names its object: then it must stay.
pub(super) fn residency_names(
    lower: &dyn fslab_vfs::FileSystem,
    row: &ObjectRow,
    tier: &Tier,
) -> bool {
    let found = crate::lower::Found::at(&tier.lower, &row.path);
    let Ok(found) = found else { return true };
    if (tier.around.tell)(&found.attr) != row.inode {
        return true;
    }
    match residency::read(lower, &tier.request(), found.ino()) {
        Ok(Some(residency)) => residency.version.object == row.version.object,
        Ok(None) => false,
        Err(_) => true,
    }
}

fn changed_meanwhile(path: &[u8]) -> Error {
    Error::NotNow { path: crate::error::shown(path), why: "was changed while it was archived" }
}

/// Reads a copy back.
pub(super) fn verify(
    archive: &Arc<dyn Archive>,
    version: &Version,
    request: &Request,
    pace: Pace<'_>,
) -> Result<()> {
    let reader = ObjectReader::open(archive, version)?;
    for block in 0..reader.blocks() {
        request.cancellation.check().or(Err(Error::Interrupted))?;
        if !reader.is_zeros(block)? {
            pace.pass(reader.stored_bytes(block)?, request)?;
            reader.block(block)?;
        }
    }
    Ok(())
}
