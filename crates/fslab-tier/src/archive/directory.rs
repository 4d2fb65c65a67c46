//! A directory as an archive, on any file system, such as another disk or NFS.
//!
//! ```text
//! DIRECTORY/archive.toml     its description, with its identity and tier
//! DIRECTORY/lease            locked by the archive's writer and readers; names the last writer
//! DIRECTORY/writer.toml      the tree of the tier that writes to it
//! DIRECTORY/incoming/ID      a container that is being written
//! DIRECTORY/files/xx/ID      containers of files, by the first two digits
//! DIRECTORY/trees/ID         containers of archived trees
//! ```
//!
//! Invariant: a container with a name in `files` or `trees` is complete and durable. It is synced
//! first and then renamed to this name, and its directory is synced before success is reported.
//! Only the archive's owner may access its files.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use rustix::fs::{Advice, fadvise};

use super::description::{ArchiveDescription, Cipher, Encryption, settings_text};
use super::kind::{ArchiveKindSpec, NewArchive, Purpose};
use super::{
    Archive, Container, ContainerKind, Deletion, Key, Meter, Proof, RequestKind, Traffic, Upload,
    Writer,
};
use crate::atomic_write::{sync_directory_of, write_durably};
use crate::cleanup::{Cleanup, absent};
use crate::error::{Error, Result};
use crate::id::Id;
use crate::private;

mod confined_dir;
mod lease;
mod settings;
mod writer_record;

use confined_dir::ConfinedDir;
use lease::{LEASE, Right, is_fresh, lease_for, share_lease, take_lease};
use settings::{SETTINGS, VERSION, describe, directory_of};

const INCOMING: &str = "incoming";

pub(super) const SPEC: ArchiveKindSpec = ArchiveKindSpec {
    name: "dir",
    help: "a separate directory, on another disk or on NFS: dir:/mnt/archive, or the plain path",
    local_path: |location| Some(location.into()),
    lock_file: |location| Some(Path::new(location).join(LEASE)),
    canonical: |location| {
        let path = Path::new(location);
        path.canonicalize().map(Into::into).map_err(Error::file(path))
    },
    is_made: |location| Path::new(location).join(SETTINGS).exists(),
    check_place: |location| check_place(Path::new(location)),
    make: |location, new| make(Path::new(location), new),
    describe: |location| describe(Path::new(location)),
    open: |location, owner, purpose| {
        let root = Path::new(location);
        Ok(Arc::new(match purpose {
            Purpose::Write(writer) => DirectoryArchive::open_for(root, owner, writer.as_ref())?,
            Purpose::Read => DirectoryArchive::open_to_read(root, owner)?,
        }))
    },
    take_over: |location, owner, writer| {
        DirectoryArchive::take_over(Path::new(location), owner, writer)
    },
    holder: |location| DirectoryArchive::holder(Path::new(location)),
    retention: |_| Ok(None),
    refusal: |location, writer| {
        let root = Path::new(location);
        writer_record::refusal(root, writer, is_fresh(root))
    },
};

/// A directory as an archive.
#[derive(Debug)]
pub struct DirectoryArchive {
    root: PathBuf,
    label: String,
    description: ArchiveDescription,
    /// If another tree writes to the archive, the reason why the archive is read-only here.
    refusal: Option<String>,
    /// For each directory in `files`, whether this process has made the directory's name durable.
    /// The index is the directory's name as a hexadecimal number.
    durable: Arc<Mutex<[bool; 256]>>,
    meter: Arc<Meter>,
    /// The lease: exclusive for a writer, shared for readers.
    _lease: Option<File>,
}

impl DirectoryArchive {
    /// Makes an archive in an empty or missing directory. With a key, it is encrypted.
    ///
    /// # Errors
    /// If the directory contains files.
    pub fn init(root: &Path, id: Id, owner: Id, key: Option<&Key>) -> Result<()> {
        let cipher = Cipher::Chacha20Poly1305;
        let encryption = key.map(|key| Encryption { cipher, key: key.mark(id) });
        let description = ArchiveDescription { version: VERSION, id, owner, encryption };
        match private::create_dir(root) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(Error::file(root)(error));
            }
            Err(_) => {}
            Ok(()) => sync_directory_of(root).map_err(Error::file(root))?,
        }
        if root.join(SETTINGS).exists() {
            let what = "is already an archive; attach it with `fslab tier attach`".to_owned();
            return Err(Error::NoArchive { path: root.to_owned(), what });
        }
        let mut entries = fs::read_dir(root).map_err(Error::file(root))?;
        if entries.any(|entry| entry.map_or(true, |entry| entry.file_name() != "lost+found")) {
            let what = "is not empty; an archive needs its own directory".to_owned();
            return Err(Error::NoArchive { path: root.to_owned(), what });
        }
        let settings = root.join(SETTINGS);
        let text = settings_text(&settings, &description)?;
        for name in directories() {
            let path = root.join(name);
            private::create_dir(&path).map_err(Error::file(&path))?;
        }
        write_durably(&settings, text.as_bytes()).map_err(Error::file(root))
    }

    /// Opens an archive of a tier for writing, for a tree without a known identity. While it is
    /// open, no other process can open it.
    ///
    /// # Errors
    /// Like [`Self::open_for`].
    pub fn open(root: &Path, owner: Id) -> Result<Self> {
        Self::open_for(root, owner, None)
    }

    /// Opens an archive for writing, for a tree with a known identity. The tree becomes the
    /// archive's writer. If another tree already is the writer, the archive is opened for reading.
    /// While an archive is open for writing, no other process can open it.
    ///
    /// # Errors
    /// If it belongs to another tier, or is in use.
    pub fn open_for(root: &Path, owner: Id, writer: Option<&Writer>) -> Result<Self> {
        let description = Self::describe_own(root, owner)?;
        check_directories(root, Missing::IsWrong)?;
        if description.encryption.is_none() {
            private::warn_if_open(root, &directories());
        }
        let lease = match lease_for(root, writer)? {
            Right::Writes(lease) => lease,
            Right::Reads(refusal) => {
                let lease = share_lease(root)?;
                return Ok(Self { refusal: Some(refusal), ..Self::with(root, description, lease) });
            }
        };
        let archive = Self::with(root, description, Some(lease));
        archive.clear_incoming().map_err(Error::file(&root.join(INCOMING)))?;
        Ok(archive)
    }

    /// Makes a tree the writer of an archive of its tier, in place of the previous one.
    ///
    /// # Errors
    /// If it belongs to another tier, or is in use.
    pub fn take_over(root: &Path, owner: Id, writer: &Writer) -> Result<()> {
        Self::describe_own(root, owner)?;
        check_directories(root, Missing::IsWrong)?;
        let _lease = take_lease(root)?;
        writer_record::take_over(root, writer)
    }

    /// Describes the writer of an archive, with the time when it became the writer and the time of
    /// the last write.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn holder(root: &Path) -> Result<String> {
        let holder = writer_record::holder(root)?;
        let holder =
            holder.unwrap_or_else(|| "has no record of the tree that writes to it".to_owned());
        let written = last_write(root).map_err(Error::file(root))?;
        // A time before 1970, from a wrong clock, is shown as 1970.
        let seconds = written.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let written = writer_record::date(i64::try_from(seconds).unwrap_or(i64::MAX));
        Ok(format!("{holder}, last written to at {written}"))
    }

    /// Opens an archive of a tier for reading. While it is open, no process can open it for
    /// writing. Nothing is written, so the archive may be a snapshot, or on a write-protected disk.
    ///
    /// # Errors
    /// If it belongs to another tier, or another process writes to it.
    pub fn open_to_read(root: &Path, owner: Id) -> Result<Self> {
        let description = Self::describe_own(root, owner)?;
        // Many tools omit empty directories when they copy an archive.
        check_directories(root, Missing::IsEmpty)?;
        Ok(Self::with(root, description, share_lease(root)?))
    }

    fn describe_own(root: &Path, owner: Id) -> Result<ArchiveDescription> {
        let description = describe(root)?;
        if description.owner != owner {
            let what = format!("belongs to tier {}, not to {owner}", description.owner);
            return Err(Error::NoArchive { path: root.to_owned(), what });
        }
        Ok(description)
    }

    fn with(root: &Path, description: ArchiveDescription, lease: Option<File>) -> Self {
        let (root, label) = (root.to_owned(), root.display().to_string());
        let (refusal, durable) = (None, Arc::new(Mutex::new([false; 256])));
        let meter = Meter::of(&label);
        Self { root, label, description, refusal, durable, meter, _lease: lease }
    }

    fn check_writable(&self) -> io::Result<()> {
        match &self.refusal {
            Some(refusal) => Err(io::Error::new(ErrorKind::ReadOnlyFilesystem, refusal.clone())),
            None => Ok(()),
        }
    }

    /// Removes the containers that were unfinished when their writer ended. Other files are kept.
    fn clear_incoming(&self) -> io::Result<()> {
        let incoming = ConfinedDir::at(&self.root)?.directory(INCOMING)?;
        for name in incoming.names()? {
            let name = name?;
            if name.parse::<Id>().is_ok() {
                incoming.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Opens the directory of the archive. If that fails, checks whether the archive is
    /// unavailable.
    fn place(&self) -> io::Result<ConfinedDir> {
        ConfinedDir::at(&self.root).or_else(|error| self.check().and(Err(error)))
    }

    /// Opens a container for reading.
    fn open_container(&self, container: Container) -> io::Result<File> {
        ConfinedDir::at(&self.root)?.file(&path_of(container))
    }
}

/// Checks that a directory exists or can be made. Its parent directory must exist, because a
/// missing parent may mean that the archive's disk is not mounted.
fn check_place(root: &Path) -> Result<()> {
    let is_there = |place: &Path| place.as_os_str().is_empty() || place.is_dir();
    match root.parent() {
        Some(parent) if !is_there(parent) => Err(Error::NoArchive {
            path: root.to_owned(),
            what: format!("{} is not there: is its disk mounted?", parent.display()),
        }),
        _ => Ok(()),
    }
}

/// Makes an archive. After a failure nothing of the archive remains, unless another process created
/// files in its directory.
fn make(root: &Path, new: &NewArchive<'_>) -> Result<Cleanup> {
    let [incoming, files, trees] = directories();
    let mut made = Cleanup::default();
    made.add(absent(root, &[SETTINGS, incoming, files, trees]));
    match DirectoryArchive::init(root, new.id, new.owner, new.key) {
        Ok(()) => Ok(made),
        Err(error) => {
            if is_taken(&error) {
                made.keep();
            }
            Err(error)
        }
    }
}

/// Returns whether an error means that another process created files in the archive's directory.
fn is_taken(error: &Error) -> bool {
    match error {
        Error::File { source, .. } => source.kind() == ErrorKind::AlreadyExists,
        Error::NoArchive { .. } => true,
        _ => false,
    }
}

fn directories() -> [&'static str; 3] {
    [INCOMING, directory_of(ContainerKind::Files), directory_of(ContainerKind::Tree)]
}

/// Returns the time when a container was last added or removed, according to the modification times
/// of the directories.
fn last_write(root: &Path) -> io::Result<SystemTime> {
    let mut last = SystemTime::UNIX_EPOCH;
    let mut places: Vec<PathBuf> = directories().iter().map(|name| root.join(name)).collect();
    while let Some(place) = places.pop() {
        let found = fs::symlink_metadata(&place)?;
        last = last.max(found.modified()?);
        if place.ends_with(directory_of(ContainerKind::Files)) {
            for entry in fs::read_dir(&place)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    places.push(entry.path());
                }
            }
        }
    }
    Ok(last)
}

/// How a missing directory is treated when an archive is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    IsWrong,
    IsEmpty,
}

/// Checks the directories of an archive. A symbolic link would redirect reads, writes and
/// deletions.
fn check_directories(root: &Path, missing: Missing) -> Result<()> {
    let place = ConfinedDir::at(root).map_err(Error::file(root))?;
    for name in directories() {
        match place.has_directory(name) {
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                let what = format!("is damaged: {error}");
                return Err(Error::NoArchive { path: root.to_owned(), what });
            }
            Err(error) if error.kind() == ErrorKind::NotFound && missing == Missing::IsEmpty => {}
            found => found.map_err(Error::file(&root.join(name)))?,
        }
    }
    Ok(())
}

/// Returns the directory that contains the name of a container.
fn home_of((kind, container): Container) -> String {
    let directory = directory_of(kind);
    match kind {
        ContainerKind::Files => format!("{directory}/{}", digits_of(container)),
        ContainerKind::Tree => directory.to_owned(),
    }
}

fn digits_of(container: Id) -> String {
    format!("{:02x}", container.0[0])
}

fn path_of(container: Container) -> PathBuf {
    Path::new(&home_of(container)).join(container.1.to_string())
}

impl Archive for DirectoryArchive {
    fn id(&self) -> Id {
        self.description.id
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn refusal(&self) -> Option<String> {
        self.refusal.clone()
    }

    /// Reads the description, because the directory may exist but be empty while the disk is not
    /// mounted.
    fn check(&self) -> io::Result<()> {
        let found = describe(&self.root).map_err(unseen)?;
        if found.id == self.description.id {
            return Ok(());
        }
        Err(not_here(format!("{} now contains archive {}", self.label, found.id)))
    }

    fn begin(&self, (kind, container): Container) -> io::Result<Box<dyn Upload>> {
        self.check_writable()?;
        let name = container.to_string();
        let file = ConfinedDir::at(&self.root)?.directory(INCOMING)?.create(&name)?;
        self.meter.count(Traffic::of(RequestKind::Put));
        let (root, durable) = (self.root.clone(), Arc::clone(&self.durable));
        let (is_finished, meter) = (false, Arc::clone(&self.meter));
        Ok(Box::new(DirectoryUpload { file, root, kind, container, durable, meter, is_finished }))
    }

    fn read(&self, container: Container, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.meter.count(Traffic::of(RequestKind::Get));
        let file = self.open_container(container)?;
        let mut done = 0;
        while done < buffer.len() {
            match file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.meter.received(done as u64);
        Ok(done)
    }

    fn length(&self, container: Container) -> io::Result<u64> {
        ConfinedDir::at(&self.root)?.length(&path_of(container))
    }

    fn list(&self, kind: ContainerKind, visit: &mut dyn FnMut(Id, u64)) -> io::Result<()> {
        self.meter.count(Traffic::of(RequestKind::List));
        let (root, top) = (self.place()?, directory_of(kind));
        let place = match (root.directory(top), kind) {
            // Many tools omit empty directories when they copy an archive.
            (Err(error), ContainerKind::Tree) if error.kind() == ErrorKind::NotFound => {
                return self.check();
            }
            (opened, _) => opened?,
        };
        if kind == ContainerKind::Tree {
            return list_directory(&place, visit);
        }
        // After an error in one directory, the containers in the other directories are still
        // listed.
        let mut listed = Ok(());
        for name in place.names()? {
            let name = name?;
            if is_digits(&name) {
                let place = root.directory(&format!("{top}/{name}"));
                listed = listed.and(place.and_then(|place| list_directory(&place, visit)));
            }
        }
        listed
    }

    /// Also drops the kernel's cached pages. They may contain written bytes that never reached the
    /// disk.
    fn forget(&self, container: Container) {
        // If the file can't be opened, the next read of the container reports the error.
        let Ok(file) = self.open_container(container) else { return };
        if let Err(error) = fadvise(&file, 0, None, Advice::DontNeed) {
            tracing::debug!(
                %error,
                "{}: can't drop the cached pages, so a check reads the file from memory instead of \
                 the disk",
                container.1
            );
        }
    }

    fn free_bytes(&self) -> Option<u64> {
        let found = rustix::fs::statvfs(&self.root).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn meter(&self) -> Option<Arc<Meter>> {
        Some(Arc::clone(&self.meter))
    }

    /// Treats each container as a separate medium, because offsets can be compared only within one
    /// file.
    fn position(&self, container: Id, offset: u64) -> (u64, u64) {
        ((u128::from_be_bytes(container.0) >> 64) as u64, offset)
    }

    fn delete(&self, container: Container) -> io::Result<Deletion> {
        self.check_writable()?;
        self.meter.count(Traffic::of(RequestKind::Delete));
        let place = self.place()?.directory(&home_of(container));
        match place.and_then(|place| place.remove(&container.1.to_string())) {
            Err(error) if error.kind() == ErrorKind::NotFound => self.check()?,
            removed => removed?,
        }
        Ok(Deletion::Done)
    }
}

/// Converts an error that occurred while reading the description. Most errors mean that the archive
/// is unavailable. The exceptions are a lack of memory, descriptors or permissions in this process.
fn unseen(error: Error) -> io::Error {
    use fslab_vfs::Errno;
    match error {
        Error::File { source, .. }
            if matches!(
                Errno::from_io_error(&source),
                Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::ACCESS | Errno::PERM)
            ) =>
        {
            source
        }
        error => not_here(error.to_string()),
    }
}

fn not_here(what: String) -> io::Error {
    io::Error::new(ErrorKind::NotConnected, what)
}

/// Returns whether a name is two hexadecimal digits, as for a directory of containers. Other
/// directories are ignored.
fn is_digits(name: &str) -> bool {
    name.len() == 2 && name.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

/// Calls `visit` with each container of a directory. Names that are not identities are ignored. Any
/// other name is listed, even if it is not a regular file; reading it then fails.
fn list_directory(directory: &ConfinedDir, visit: &mut dyn FnMut(Id, u64)) -> io::Result<()> {
    for name in directory.names()? {
        let name = name?;
        let Ok(id) = name.parse() else { continue };
        match directory.bytes_of(&name) {
            Ok(bytes) => visit(id, bytes),
            // The container was deleted after its name was read.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

struct DirectoryUpload {
    file: File,
    root: PathBuf,
    kind: ContainerKind,
    container: Id,
    durable: Arc<Mutex<[bool; 256]>>,
    meter: Arc<Meter>,
    is_finished: bool,
}

impl DirectoryUpload {
    /// Opens the directory of the container. A missing directory is made durably.
    fn target(&self, root: &ConfinedDir) -> io::Result<ConfinedDir> {
        if self.kind == ContainerKind::Files {
            let (files, digits) = (root.directory(directory_of(self.kind))?, self.container.0[0]);
            let is_new = match files.make(&digits_of(self.container)) {
                Ok(()) => true,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
                Err(error) => return Err(error),
            };
            // Syncs even an existing directory, because the process that made it may not have
            // synced its name.
            if is_new || !self.durable.lock()[usize::from(digits)] {
                files.sync()?;
                self.durable.lock()[usize::from(digits)] = true;
            }
        }
        root.directory(&home_of((self.kind, self.container)))
    }

    fn remove(&self) -> io::Result<()> {
        ConfinedDir::at(&self.root)?.directory(INCOMING)?.remove(&self.container.to_string())
    }
}

impl Upload for DirectoryUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.meter.sent(bytes.len() as u64);
        self.file.write_all(bytes)
    }

    fn finish(mut self: Box<Self>) -> io::Result<Proof> {
        self.file.sync_all()?;
        let root = ConfinedDir::at(&self.root)?;
        let target = self.target(&root)?;
        root.directory(INCOMING)?.rename(&self.container.to_string(), &target)?;
        self.is_finished = true;
        target.sync()?;
        Ok(Proof::ReadBack)
    }
}

impl Drop for DirectoryUpload {
    fn drop(&mut self) {
        if !self.is_finished
            && let Err(error) = self.remove()
        {
            let (root, left) = (self.root.display(), self.container);
            tracing::warn!(%error, "can't remove {root}/{INCOMING}/{left}; the next start removes \
                it");
        }
    }
}

#[cfg(test)]
mod tests {
    use fslab_vfs::Errno;

    use super::*;

    fn made() -> (tempfile::TempDir, DirectoryArchive) {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().join("archive");
        DirectoryArchive::init(&root, Id([1; 16]), Id([2; 16]), None).unwrap();
        let archive = DirectoryArchive::open(&root, Id([2; 16])).unwrap();
        (scratch, archive)
    }

    #[test]
    fn unfinished_container_is_invisible() {
        let (_scratch, archive) = made();
        for kind in [ContainerKind::Files, ContainerKind::Tree] {
            let id = Id([7; 16]);
            let mut upload = archive.begin((kind, id)).unwrap();
            upload.write(b"hello ").unwrap();
            assert!(archive.length((kind, id)).is_err());
            drop(upload);
            let mut upload = archive.begin((kind, id)).unwrap();
            upload.write(b"hello").unwrap();
            upload.finish().unwrap();
            let mut buffer = [0; 9];
            assert_eq!(archive.read((kind, id), 1, &mut buffer).unwrap(), 4);
            assert_eq!(&buffer[..4], b"ello");
            let mut found = Vec::new();
            archive.list(kind, &mut |id, length| found.push((id, length))).unwrap();
            assert_eq!(found, [(id, 5)]);
            archive.delete((kind, id)).unwrap();
            archive.delete((kind, id)).unwrap();
            assert!(archive.length((kind, id)).is_err());
        }
    }

    #[test]
    fn local_check_error_does_not_make_an_archive_unavailable() {
        for (errno, is_known) in
            [(Errno::MFILE, false), (Errno::ACCESS, false), (Errno::IO, true), (Errno::STALE, true)]
        {
            let source = io::Error::from_raw_os_error(errno.raw_os_error());
            let error = Error::file(Path::new(SETTINGS))(source);
            assert_eq!(unseen(error).kind() == ErrorKind::NotConnected, is_known, "{errno}");
        }
    }

    #[test]
    fn archives_are_private_to_their_owner() {
        use std::os::unix::fs::MetadataExt;
        let (_scratch, archive) = made();
        for kind in [ContainerKind::Files, ContainerKind::Tree] {
            let mut upload = archive.begin((kind, Id([7; 16]))).unwrap();
            upload.write(b"hello").unwrap();
            upload.finish().unwrap();
        }
        let _being_written = archive.begin((ContainerKind::Files, Id([8; 16]))).unwrap();
        let mut places = vec![archive.root.clone()];
        let mut seen = 0;
        while let Some(place) = places.pop() {
            let about = fs::symlink_metadata(&place).unwrap();
            let mode = if about.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(about.mode() & 0o7777, mode, "{}", place.display());
            seen += 1;
            if about.is_dir() {
                places.extend(fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        assert_eq!(
            seen, 10,
            "root, settings, lease, three directories, one two-digit directory, three files"
        );
    }

    #[test]
    fn archive_has_one_writer_of_its_own_tier() {
        let (_scratch, archive) = made();
        let second = DirectoryArchive::open(&archive.root, Id([2; 16])).unwrap_err().to_string();
        let holder = format!("being written by another fslab: process {} on ", std::process::id());
        assert!(second.contains(&holder), "{second}");
        fs::write(archive.root.join(LEASE), "").unwrap();
        let second = DirectoryArchive::open(&archive.root, Id([2; 16])).unwrap_err().to_string();
        assert!(second.contains("by another fslab, or"), "without a signature: {second}");
        let other = DirectoryArchive::open(&archive.root, Id([3; 16])).unwrap_err().to_string();
        assert!(other.contains("belongs to tier 0202"), "{other}");
        let root = archive.root.clone();
        let read = || DirectoryArchive::open_to_read(&root, Id([2; 16]));
        let third = read().unwrap_err().to_string();
        assert!(third.contains("being written by another fslab"), "{third}");
        let again = DirectoryArchive::init(&archive.root, Id([4; 16]), Id([2; 16]), None);
        assert!(again.unwrap_err().to_string().contains("is already an archive"));
        drop(archive);
        let readers = [read().unwrap(), read().unwrap()];
        assert!(
            DirectoryArchive::open(&root, Id([2; 16])).is_err(),
            "a directory that is open for reading can't be opened for writing"
        );
        drop(readers);
        fs::remove_file(root.join(LEASE)).unwrap();
        assert!(read().is_ok(), "opening for reading creates no files");
        assert!(!root.join(LEASE).exists());
    }

    #[test]
    fn only_the_writing_tree_may_write_and_delete() {
        use crate::stored::WriterMark;
        let writer = |number| {
            let mark = WriterMark { id: Id([number; 16]), is_rebuilt: false, root: Id([9; 16]) };
            let tree = Some(format!("/tree{number}").into());
            Writer { mark, tree, since: Default::default(), openings: None }
        };
        let (_scratch, archive) = made();
        let (root, owner) = (archive.root.clone(), Id([2; 16]));
        drop(archive);
        let (kind, container) = (ContainerKind::Files, Id([7; 16]));
        let first = DirectoryArchive::open_for(&root, owner, Some(&writer(1))).unwrap();
        first.begin((kind, container)).unwrap().finish().unwrap();
        drop(first);
        // A writer without a known tree identity may not write either.
        for other in [None, Some(&writer(2))] {
            let archive = DirectoryArchive::open_for(&root, owner, other).unwrap();
            let begun = archive.begin((kind, Id([8; 16]))).map(drop).unwrap_err();
            let deleted = archive.delete((kind, container)).unwrap_err();
            for error in [begun, deleted] {
                assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
                let told = "is written by another tree, /tree1 on ";
                assert!(error.to_string().starts_with(told), "{error}");
            }
            assert_eq!(archive.length((kind, container)).unwrap(), 0);
            let together = DirectoryArchive::open_to_read(&root, owner);
            assert!(together.is_ok(), "several processes may read at the same time");
        }
        DirectoryArchive::take_over(&root, owner, &writer(2)).unwrap();
        let archive = DirectoryArchive::open_for(&root, owner, Some(&writer(2))).unwrap();
        assert!(DirectoryArchive::take_over(&root, owner, &writer(1)).is_err(), "it is in use");
        archive.delete((kind, container)).unwrap();
    }

    #[test]
    fn unfinished_containers_are_removed_at_the_next_start() {
        let (_scratch, archive) = made();
        let root = archive.root.clone();
        let left = root.join(INCOMING).join(Id([9; 16]).to_string());
        fs::write(&left, "x").unwrap();
        drop(archive);
        DirectoryArchive::open(&root, Id([2; 16])).unwrap();
        assert!(!left.exists());
    }
}
