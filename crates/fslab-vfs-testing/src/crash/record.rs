//! [`CrashFs`]: a file system in memory that records all changes and syncs.
//!
//! Invariant: one lock spans each change and its log entry, so that the log has the order of the
//! changes.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use parking_lot::Mutex;

use fslab_vfs::FileSystem;
use fslab_vfs::Result;
use fslab_vfs::{
    Attr, Entry, FallocateMode, FileKind, Handle, Ino, Name, OpenMode, Opened, RenameMode, Request,
    SetAttr, WriteOptions, XattrMode,
};
use fslab_vfs::{Capacity, MemFs};

use super::effect::{BLOCK_BYTES, Binding, Change, Effect, SECTOR_BYTES, Scope};
use super::image::Node;
use super::log::{Event, Log, State};

/// A file system in memory that shows the possible states after a crash. See [`super`].
#[derive(Debug)]
pub struct CrashFs {
    memory: MemFs,
    recorder: Mutex<Recorder>,
}

#[derive(Debug)]
struct Recorder {
    log: Log,
    /// The inode of each name, to determine which inode loses a name by a change.
    names: HashMap<(Ino, OsString), Ino>,
    /// The flags with which files were opened.
    modes: HashMap<Handle, OpenMode>,
}

impl Default for CrashFs {
    fn default() -> Self {
        Self::new(Capacity::default())
    }
}

impl State {
    /// Opens the state as another recording file system, to simulate a second crash. Everything in
    /// the state is durable.
    ///
    /// # Errors
    /// Only if the log is invalid.
    pub fn record(&self) -> Result<CrashFs> {
        let crash = CrashFs::default();
        let crash = if self.follows_times { crash.following_times() } else { crash };
        self.image.restore(&crash)?;
        crash.settle()?;
        Ok(crash)
    }
}

impl CrashFs {
    /// An empty file system.
    #[must_use]
    pub fn new(capacity: Capacity) -> Self {
        let memory = MemFs::new(capacity);
        let root = Node {
            kind: FileKind::Directory,
            permissions: fslab_vfs::Permissions::new(0o755),
            uid: 0,
            gid: 0,
            device: 0,
            size: 0,
            target: OsString::new(),
            modified: None,
            sectors: BTreeMap::new(),
            names: BTreeMap::new(),
            xattrs: BTreeMap::new(),
        };
        let (events, effects) = (Vec::new(), Vec::new());
        let log = Log { root, events, effects, follows_times: false };
        let recorder = Recorder { log, names: HashMap::new(), modes: HashMap::new() };
        Self { memory, recorder: Mutex::new(recorder) }
    }

    /// Also records the modification times of regular files. Call this before any change.
    #[must_use]
    pub fn following_times(mut self) -> Self {
        self.recorder.get_mut().log.follows_times = true;
        self
    }

    /// Adds an event for something that happened elsewhere, so that a crash is also simulated after
    /// it.
    pub fn mark(&self, text: &str) {
        self.recorder.lock().note(text.to_owned(), Vec::new());
    }

    /// Number of events so far: changes, syncs and marks.
    #[must_use]
    pub fn position(&self) -> usize {
        self.recorder.lock().log.events.len()
    }

    /// All events so far.
    #[must_use]
    pub fn log(&self) -> Log {
        self.recorder.lock().log.clone()
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// None.
    pub fn settle(&self) -> Result<()> {
        self.syncfs(&Request::default(), Ino::ROOT)
    }

    /// Returns the file system in its current state, as without a crash.
    #[must_use]
    pub fn memory(&self) -> &MemFs {
        &self.memory
    }
}

impl Recorder {
    fn note(&mut self, text: String, changes: Vec<Change>) {
        self.event(text, changes, Vec::new(), None);
    }

    fn note_sync(&mut self, text: String, scope: Scope) {
        self.event(text, Vec::new(), Vec::new(), Some(scope));
    }

    fn event(
        &mut self,
        text: String,
        changes: Vec<Change>,
        births: Vec<(Ino, Arc<Node>)>,
        sync: Option<Scope>,
    ) {
        let (event, first) = (self.log.events.len(), self.log.effects.len());
        self.log.effects.extend(changes.into_iter().map(|change| Effect { change, event }));
        let effects = first..self.log.effects.len();
        self.log.events.push(Event { text, effects, births, sync });
    }

    /// Binds or removes a name and returns the change.
    fn bind(&mut self, directory: Ino, name: &OsStr, ino: Option<Ino>) -> Binding {
        let key = (directory, name.to_owned());
        let loses = match ino {
            Some(ino) => self.names.insert(key, ino),
            None => self.names.remove(&key),
        };
        Binding { directory, name: name.to_owned(), ino, loses }
    }

    fn named(&self, directory: Ino, name: &OsStr) -> Option<Ino> {
        self.names.get(&(directory, name.to_owned())).copied()
    }

    /// Records the sync after a write if the handle was opened with O_DSYNC or O_SYNC.
    fn sync_after_write(&mut self, ino: Ino, handle: Handle) {
        let mode = self.modes.get(&handle).copied().unwrap_or(OpenMode::empty());
        if mode.contains(OpenMode::DATA_SYNC) {
            let data_only = !mode.contains(OpenMode::SYNC);
            self.note_sync(format!("synced write of {}", ino.0), Scope::File { ino, data_only });
        }
    }
}

impl CrashFs {
    fn attr(&self, ino: Ino) -> Result<Attr> {
        self.memory.getattr(&Request::default(), ino, None)
    }

    /// Returns the content with which a new inode is created. It is not part of any recorded
    /// effect.
    fn node(&self, recorder: &Recorder, attr: &Attr) -> Result<Arc<Node>> {
        let (request, ino) = (Request::default(), attr.ino);
        let target = match attr.kind {
            FileKind::Symlink => self.memory.readlink(&request, ino)?,
            _ => OsString::new(),
        };
        let mut xattrs = BTreeMap::new();
        let names = self.memory.listxattr(&request, ino)?;
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let name = OsStr::from_bytes(name);
            xattrs.insert(name.to_owned(), self.memory.getxattr(&request, ino, name)?);
        }
        let modified = recorder.log.follows_times.then_some(attr.modified);
        Ok(Arc::new(Node { modified, ..Node::new(attr, target, xattrs) }))
    }

    /// The modification time after a change of a file's contents or times, if times are recorded.
    fn time(&self, recorder: &Recorder, ino: Ino) -> Result<Option<Change>> {
        if !recorder.log.follows_times {
            return Ok(None);
        }
        Ok(Some(Change::Time { ino, modified: self.attr(ino)?.modified }))
    }

    /// The current sectors that overlap a range, up to the end of the file.
    fn sectors(&self, ino: Ino, offset: u64, length: u64) -> Result<Vec<Change>> {
        let size = self.attr(ino)?.size;
        let end = offset.saturating_add(length).min(size);
        let request = Request::default();
        let mode = OpenMode::NO_ACCESS_TIME;
        let handle = self.memory.open(&request, ino, mode)?.handle;
        let mut changes = Vec::new();
        for number in offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES) {
            let mut bytes = [0; SECTOR_BYTES as usize];
            self.memory.read(&request, ino, handle, number * SECTOR_BYTES, &mut bytes)?;
            changes.push(Change::Sector { ino, number, bytes: Arc::new(bytes) });
        }
        self.memory.release(&request, ino, handle)?;
        Ok(changes)
    }

    /// The changes made by a write to a range: sectors, and the size if it changed.
    fn written(&self, ino: Ino, before: u64, offset: u64, length: u64) -> Result<Vec<Change>> {
        let mut changes = self.sectors(ino, offset, length)?;
        let size = self.attr(ino)?.size;
        if size != before {
            changes.push(Change::Resize { ino, size, written: true });
        }
        Ok(changes)
    }

    fn born(
        &self,
        recorder: &mut Recorder,
        entry: &Entry,
        parent: Ino,
        name: Name<'_>,
    ) -> Result<()> {
        let ino = entry.attr.ino;
        let node = self.node(recorder, &entry.attr)?;
        let binding = recorder.bind(parent, name.as_os_str(), Some(ino));
        let text = format!("create {} as {}/{:?}", ino.0, parent.0, name.as_os_str());
        recorder.event(text, vec![Change::Names(vec![binding])], vec![(ino, node)], None);
        Ok(())
    }

    fn emptied_at_open(
        &self,
        recorder: &mut Recorder,
        ino: Ino,
        before: u64,
        mode: OpenMode,
    ) -> Result<()> {
        if !mode.contains(OpenMode::TRUNCATE) {
            return Ok(());
        }
        let resize = Change::Resize { ino, size: 0, written: false };
        let mut changes: Vec<_> = (before > 0).then_some(resize).into_iter().collect();
        // The time changes even if the file was empty.
        changes.extend(self.time(recorder, ino)?);
        if !changes.is_empty() {
            recorder.note(format!("truncate {} at open", ino.0), changes);
        }
        Ok(())
    }
}

impl FileSystem for CrashFs {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.memory)
    }

    fn setattr(
        &self,
        request: &Request,
        ino: Ino,
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        let mut recorder = self.recorder.lock();
        let attr = self.memory.setattr(request, ino, handle, changes)?;
        let mut effects = Vec::new();
        if let Some(size) = changes.size {
            effects.push(Change::Resize { ino, size, written: false });
        }
        if changes.permissions.is_some() || changes.uid.is_some() || changes.gid.is_some() {
            let Attr { permissions, uid, gid, .. } = attr;
            effects.push(Change::Attributes { ino, permissions, uid, gid });
        }
        if changes.size.is_some() || changes.modified.is_some() {
            effects.extend(self.time(&recorder, ino)?);
        }
        if !effects.is_empty() {
            let size = changes.size.map_or(String::new(), |size| format!(", size {size}"));
            recorder.note(format!("set attributes of {}{size}", ino.0), effects);
        }
        Ok(attr)
    }

    fn mknod(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        device: u32,
    ) -> Result<Entry> {
        let mut recorder = self.recorder.lock();
        let entry = self.memory.mknod(request, parent, name, mode, device)?;
        self.born(&mut recorder, &entry, parent, name)?;
        Ok(entry)
    }

    fn mkdir(&self, request: &Request, parent: Ino, name: Name<'_>, mode: u32) -> Result<Entry> {
        let mut recorder = self.recorder.lock();
        let entry = self.memory.mkdir(request, parent, name, mode)?;
        self.born(&mut recorder, &entry, parent, name)?;
        Ok(entry)
    }

    fn symlink(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        target: &OsStr,
    ) -> Result<Entry> {
        let mut recorder = self.recorder.lock();
        let entry = self.memory.symlink(request, parent, name, target)?;
        self.born(&mut recorder, &entry, parent, name)?;
        Ok(entry)
    }

    fn unlink(&self, request: &Request, parent: Ino, name: Name<'_>) -> Result<()> {
        let mut recorder = self.recorder.lock();
        self.memory.unlink(request, parent, name)?;
        let binding = recorder.bind(parent, name.as_os_str(), None);
        let text = format!("unlink {}/{:?}", parent.0, name.as_os_str());
        recorder.note(text, vec![Change::Names(vec![binding])]);
        Ok(())
    }

    fn rmdir(&self, request: &Request, parent: Ino, name: Name<'_>) -> Result<()> {
        let mut recorder = self.recorder.lock();
        self.memory.rmdir(request, parent, name)?;
        let binding = recorder.bind(parent, name.as_os_str(), None);
        let text = format!("rmdir {}/{:?}", parent.0, name.as_os_str());
        recorder.note(text, vec![Change::Names(vec![binding])]);
        Ok(())
    }

    fn rename(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        new_parent: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Result<()> {
        let mut recorder = self.recorder.lock();
        self.memory.rename(request, parent, name, new_parent, new_name, mode)?;
        let (from, to) = (name.as_os_str(), new_name.as_os_str());
        let source = recorder.named(parent, from);
        let target = recorder.named(new_parent, to);
        // POSIX: a rename between two names of one file does nothing.
        if source == target {
            return Ok(());
        }
        let left = if mode.contains(RenameMode::EXCHANGE) { target } else { None };
        let bindings =
            vec![recorder.bind(parent, from, left), recorder.bind(new_parent, to, source)];
        let text = format!("rename {}/{from:?} to {}/{to:?}", parent.0, new_parent.0);
        recorder.note(text, vec![Change::Names(bindings)]);
        Ok(())
    }

    fn link(
        &self,
        request: &Request,
        ino: Ino,
        new_parent: Ino,
        new_name: Name<'_>,
    ) -> Result<Entry> {
        let mut recorder = self.recorder.lock();
        let entry = self.memory.link(request, ino, new_parent, new_name)?;
        let binding = recorder.bind(new_parent, new_name.as_os_str(), Some(ino));
        let text = format!("link {} as {}/{:?}", ino.0, new_parent.0, new_name.as_os_str());
        recorder.note(text, vec![Change::Names(vec![binding])]);
        Ok(entry)
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        let mut recorder = self.recorder.lock();
        let before = self.attr(ino)?.size;
        let opened = self.memory.open(request, ino, mode)?;
        recorder.modes.insert(opened.handle, mode);
        self.emptied_at_open(&mut recorder, ino, before, mode)?;
        Ok(opened)
    }

    fn create(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        let mut recorder = self.recorder.lock();
        let existing = recorder.named(parent, name.as_os_str());
        let before = existing.map_or(Ok(0), |ino| self.attr(ino).map(|attr| attr.size))?;
        let (entry, opened) = self.memory.create(request, parent, name, mode, flags)?;
        recorder.modes.insert(opened.handle, flags);
        match existing {
            Some(ino) => self.emptied_at_open(&mut recorder, ino, before, flags)?,
            None => self.born(&mut recorder, &entry, parent, name)?,
        }
        Ok((entry, opened))
    }

    fn tmpfile(
        &self,
        request: &Request,
        parent: Ino,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        let mut recorder = self.recorder.lock();
        let (entry, opened) = self.memory.tmpfile(request, parent, mode, flags)?;
        recorder.modes.insert(opened.handle, flags);
        let ino = entry.attr.ino;
        let births = vec![(ino, self.node(&recorder, &entry.attr)?)];
        recorder.event(format!("create {} without a name", ino.0), Vec::new(), births, None);
        Ok((entry, opened))
    }

    fn write(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<usize> {
        let mut recorder = self.recorder.lock();
        let before = self.attr(ino)?.size;
        let done = self.memory.write(request, ino, handle, offset, data, options)?;
        if done == 0 {
            return Ok(0);
        }
        let offset = if options.append { before } else { offset };
        let mut changes = self.written(ino, before, offset, done as u64)?;
        changes.extend(self.time(&recorder, ino)?);
        recorder.note(format!("write {done} bytes of {} at {offset}", ino.0), changes);
        recorder.sync_after_write(ino, handle);
        Ok(done)
    }

    fn release(&self, request: &Request, ino: Ino, handle: Handle) -> Result<()> {
        self.recorder.lock().modes.remove(&handle);
        self.memory.release(request, ino, handle)
    }

    fn fsync(&self, request: &Request, ino: Ino, handle: Handle, data_only: bool) -> Result<()> {
        let mut recorder = self.recorder.lock();
        self.memory.fsync(request, ino, handle, data_only)?;
        let name = if data_only { "fdatasync" } else { "fsync" };
        recorder.note_sync(format!("{name} {}", ino.0), Scope::File { ino, data_only });
        Ok(())
    }

    fn fsyncdir(&self, request: &Request, ino: Ino, handle: Handle, data_only: bool) -> Result<()> {
        let mut recorder = self.recorder.lock();
        self.memory.fsyncdir(request, ino, handle, data_only)?;
        recorder.note_sync(format!("fsync directory {}", ino.0), Scope::Directory(ino));
        Ok(())
    }

    fn syncs_whole_tree(&self) -> bool {
        true
    }

    fn syncfs(&self, request: &Request, ino: Ino) -> Result<()> {
        let mut recorder = self.recorder.lock();
        self.memory.syncfs(request, ino)?;
        recorder.note_sync("syncfs".to_owned(), Scope::Everything);
        Ok(())
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: Ino,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let mut recorder = self.recorder.lock();
        let before = self.attr(ino)?.permissions;
        self.memory.setxattr(request, ino, name, value, mode)?;
        let Attr { permissions, uid, gid, .. } = self.attr(ino)?;
        let mut changes =
            vec![Change::Xattr { ino, name: name.to_owned(), value: Some(value.to_vec()) }];
        // An ACL also sets permissions.
        if permissions != before {
            changes.push(Change::Attributes { ino, permissions, uid, gid });
        }
        recorder.note(format!("set xattr {name:?} of {}", ino.0), changes);
        Ok(())
    }

    fn removexattr(&self, request: &Request, ino: Ino, name: &OsStr) -> Result<()> {
        let mut recorder = self.recorder.lock();
        self.memory.removexattr(request, ino, name)?;
        let change = Change::Xattr { ino, name: name.to_owned(), value: None };
        recorder.note(format!("remove xattr {name:?} of {}", ino.0), vec![change]);
        Ok(())
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        length: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        let mut recorder = self.recorder.lock();
        let before = self.attr(ino)?.size;
        self.memory.fallocate(request, ino, handle, offset, length, mode)?;
        let mut changes = Vec::new();
        if mode.intersects(FallocateMode::PUNCH_HOLE | FallocateMode::ZERO_RANGE) {
            changes = self.emptied(ino, offset, offset.saturating_add(length))?;
        }
        let size = self.attr(ino)?.size;
        if size != before {
            changes.push(Change::Resize { ino, size, written: false });
        }
        changes.extend(self.time(&recorder, ino)?);
        let text = format!("fallocate {} at {offset}, {length} bytes, mode {mode:?}", ino.0);
        recorder.note(text, changes);
        Ok(())
    }

    fn copy_file_range(
        &self,
        request: &Request,
        source: (Ino, Handle, u64),
        target: (Ino, Handle, u64),
        length: u64,
    ) -> Result<u64> {
        let mut recorder = self.recorder.lock();
        let (ino, handle, offset) = target;
        let before = self.attr(ino)?.size;
        let done = self.memory.copy_file_range(request, source, target, length)?;
        if done > 0 {
            let mut changes = self.written(ino, before, offset, done)?;
            changes.extend(self.time(&recorder, ino)?);
            recorder.note(format!("copy {done} bytes to {} at {offset}", ino.0), changes);
            recorder.sync_after_write(ino, handle);
        }
        Ok(done)
    }
}

impl CrashFs {
    /// The changes made by emptying a range: whole blocks at once, and zeros in the sectors at its
    /// edges.
    fn emptied(&self, ino: Ino, start: u64, end: u64) -> Result<Vec<Change>> {
        let first = start.next_multiple_of(BLOCK_BYTES);
        let last = end / BLOCK_BYTES * BLOCK_BYTES;
        if first >= last {
            return self.sectors(ino, start, end - start);
        }
        let mut changes = vec![Change::Clear { ino, range: first..last }];
        if start < first {
            changes.extend(self.sectors(ino, start, first - start)?);
        }
        if last < end {
            changes.extend(self.sectors(ino, last, end - last)?);
        }
        Ok(changes)
    }
}
