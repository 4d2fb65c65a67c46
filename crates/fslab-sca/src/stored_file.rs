//! A file of the mount (empty, foreign or stored), with its open lower file.
//!
//! There is one [`StoredFile`] for each inode in use, however many handles exist. Readers share it;
//! a writer uses it exclusively.

mod classify;
mod heal;
mod mark;
mod steps;
mod writing;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fslab_vfs::rules::set_id;
use fslab_vfs::{
    Errno, FallocateMode, FileSystem, Handle, Ino, Request, Result, SeekTo, WriteOptions,
};
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};

use super::close::closing_in_steps;
use super::commit::{Steps, clear_end, commit, commit_with_slot, unless_gone};
use super::context::{Io, Settings, WhenToPack, is_full, too_large};
use super::format::SIZE_MAX;
use super::frame::Identity;
use super::garbage_collection::tend;
use super::log::Log;
use super::lower::LowerFile;
use super::pack::{self, Packed};
use super::pre_encode::PreEncoded;
use super::read_ahead::{ReadAhead, Slot};
use super::reclaim_policy::Due;
use super::size_xattr::{self, Clean, Mark};
use super::ticket::TicketQueue;
use super::writer::check_range;
use classify::classify;
use mark::MarkState;
use steps::InSteps;

/// A file in use.
pub struct StoredFile {
    fs: Arc<dyn FileSystem>,
    settings: Arc<Settings>,
    state: RwLock<State>,
    /// Ticket lock of writers: data is written in the order in which the writers arrived.
    turns: TicketQueue,
    /// Held while the file is committed or packed, or its content is moved. Taken before the state
    /// lock, never while holding it.
    maintenance: Mutex<()>,
    /// Held from the start to the end of packing, because two threads must not pack the same file.
    packing: Mutex<()>,
    /// Whether the next read must also read the lower file, so that its access time is updated.
    access_is_due: AtomicBool,
    /// Whether staging has begun since the last call of [`StoredFile::take_began_staging`].
    began_staging: AtomicBool,
}

/// An open file of the lower file system.
#[derive(Clone, Copy)]
pub struct OpenBelow {
    pub ino: Ino,
    pub handle: Handle,
    pub is_writable: bool,
    /// Whether the file was just created and has no size xattr. Its creator may lack the right to
    /// read its xattrs.
    pub is_new: bool,
}

struct State {
    lower: LowerFile,
    is_writable: bool,
    mark: MarkState,
    /// Whether the next request for the size will trust the size xattr.
    is_believed: bool,
    /// Whether the last user has closed the lower file. Its handle may already have been reused.
    is_closed: bool,
    /// The handle that was used before the file was opened for writing. A running sync may still
    /// use it.
    handle_before: Option<Handle>,
    /// Whether rebuilding a damaged index from the frames has failed. It is not tried again.
    heal_has_failed: bool,
    kind: Kind,
}

enum Kind {
    /// An empty file. The first write makes it a stored file. The truncation need not be durable
    /// before that write, because no later data can survive a crash without it.
    Empty,
    /// The content is not a stored file; it is served as it is.
    Foreign,
    /// A stored file according to a trusted size xattr. Its frames have not been read yet, because
    /// the user who opened it may be about to empty it.
    Unread(Clean),
    Stored(Box<Log>),
}

/// The position of a write: an offset, or the end of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    At(u64),
    End,
}

impl Place {
    /// Returns the offset in a file of this size.
    fn offset(self, size: u64) -> u64 {
        match self {
            Self::At(offset) => offset,
            Self::End => size,
        }
    }

    /// Returns the position after this many bytes were written.
    fn after(self, bytes: usize) -> Self {
        match self {
            Self::At(offset) => Self::At(offset + bytes as u64),
            Self::End => Self::End,
        }
    }
}

impl StoredFile {
    /// Truncates an open lower file, whatever it contains. [`Self::close`] closes it.
    pub fn open_emptied(
        fs: &Arc<dyn FileSystem>,
        settings: &Arc<Settings>,
        request: &Request,
        opened: OpenBelow,
        kill_set_id: bool,
    ) -> Result<Self> {
        let found = size_xattr::read(&**fs, request, opened.ino)?;
        let file = Self::of(fs, settings, opened, (Kind::Foreign, found.as_ref().into(), false));
        file.state.write().empty_below(request, kill_set_id)?;
        Ok(file)
    }

    /// Determines the kind of an open lower file. [`Self::close`] closes it.
    pub fn open(
        fs: &Arc<dyn FileSystem>,
        settings: &Arc<Settings>,
        request: &Request,
        opened: OpenBelow,
    ) -> Result<Self> {
        if opened.is_new {
            return Ok(Self::of(fs, settings, opened, (Kind::Empty, MarkState::Void, false)));
        }
        let OpenBelow { ino, handle, .. } = opened;
        let lower = LowerFile { fs: Arc::clone(fs), ino, handle };
        let io = Io::new(&lower, request, settings);
        // The xattr is read even if this mount keeps no sizes, because the size xattr that another
        // mount wrote must be invalidated before a change.
        let found = size_xattr::read(&**fs, request, ino)?;
        if let Some(Mark::Clean(clean)) = &found
            && opened.is_writable
            && clean.holds(io.lower.length(request)?, &settings.session)
        {
            let kind = Kind::Unread(*clean);
            return Ok(Self::of(fs, settings, opened, (kind, MarkState::Given, true)));
        }
        Ok(Self::of(fs, settings, opened, classify(io, found)?))
    }

    /// Reads the frames of a file in state `Unread`.
    fn look_into(&self, request: &Request) -> Result<()> {
        if !matches!(self.state.read().kind, Kind::Unread(_)) {
            return Ok(());
        }
        let mut state = self.state.write();
        if let Kind::Unread(clean) = state.kind {
            let io = state.io(request, &self.settings);
            let (kind, _, is_believed) = classify(io, Some(Mark::Clean(clean)))?;
            (state.kind, state.is_believed) = (kind, state.is_believed && is_believed);
        }
        Ok(())
    }

    fn of(
        fs: &Arc<dyn FileSystem>,
        settings: &Arc<Settings>,
        OpenBelow { ino, handle, is_writable, .. }: OpenBelow,
        (kind, mark, is_believed): (Kind, MarkState, bool),
    ) -> Self {
        let lower = LowerFile { fs: Arc::clone(fs), ino, handle };
        Self {
            fs: Arc::clone(fs),
            settings: Arc::clone(settings),
            state: RwLock::new(State {
                lower,
                is_writable,
                mark,
                is_believed,
                is_closed: false,
                handle_before: None,
                heal_has_failed: false,
                kind,
            }),
            turns: TicketQueue::default(),
            maintenance: Mutex::default(),
            packing: Mutex::default(),
            access_is_due: AtomicBool::new(true),
            began_staging: AtomicBool::new(false),
        }
    }

    /// Makes sure that the lower file is open for writing.
    pub fn make_writable(&self, request: &Request) -> Result<()> {
        // A waiting writer would block all readers, so the common case takes only the read lock.
        if self.state.read().is_writable {
            return Ok(());
        }
        let mut state = self.state.write();
        if state.is_writable {
            return Ok(());
        }
        let ino = state.lower.ino;
        let opened = self.fs.open(request, ino, size_xattr::lower_mode(true))?;
        state.handle_before = Some(std::mem::replace(&mut state.lower.handle, opened.handle));
        state.is_writable = true;
        Ok(())
    }

    /// Returns the handle of the lower file.
    pub fn lower_handle(&self) -> Handle {
        self.state.read().lower.handle
    }

    /// Calls `ask` with the handle of the lower file, which is not closed during the call. Returns
    /// `None` if the file is already closed.
    pub fn while_open<T>(&self, ask: impl FnOnce(Handle) -> T) -> Option<T> {
        let state = self.state.read();
        (!state.is_closed).then(|| ask(state.lower.handle))
    }

    /// Closes the lower file.
    pub fn close(&self, request: &Request) -> Result<()> {
        let mut state = self.state.write();
        state.is_closed = true;
        let before = state.handle_before.take();
        let released = before.map(|handle| self.fs.release(request, state.lower.ino, handle));
        self.fs.release(request, state.lower.ino, state.lower.handle)?;
        released.unwrap_or(Ok(()))
    }

    /// The logical size; `None` for a foreign file, whose size is that of the lower file.
    pub fn size(&self) -> Option<u64> {
        match &self.state.read().kind {
            Kind::Empty => Some(0),
            Kind::Foreign => None,
            Kind::Unread(clean) => Some(clean.file_size),
            Kind::Stored(log) => Some(log.size()),
        }
    }

    pub fn read(
        &self,
        request: &Request,
        offset: u64,
        buffer: &mut [u8],
        ahead: Option<&ReadAhead>,
    ) -> Result<usize> {
        self.look_into(request)?;
        self.healing(request, || self.read_once(request, offset, buffer, ahead))
    }

    fn read_once(
        &self,
        request: &Request,
        offset: u64,
        buffer: &mut [u8],
        ahead: Option<&ReadAhead>,
    ) -> Result<usize> {
        let state = self.state.read();
        let io = Io { ahead, ..state.io(request, &self.settings) };
        let count = match &state.kind {
            Kind::Empty | Kind::Unread(_) => 0,
            Kind::Foreign => return io.lower.read_into(request, offset, buffer),
            Kind::Stored(log) => log.map.read(io, offset, buffer)?,
        };
        if self.access_is_due.swap(false, Ordering::Relaxed) {
            io.lower.read_into(request, 0, &mut [0])?;
        }
        Ok(count)
    }

    /// Records a read and returns the chunks to decode in advance with [`Self::decode_ahead`].
    pub fn to_decode_ahead(&self, ahead: &ReadAhead, read: Range<u64>) -> Vec<(u64, Arc<Slot>)> {
        let Kind::Stored(log) = &self.state.read().kind else { return Vec::new() };
        let workers = self.settings.workers.count() as u64;
        let keeps_all_busy = read.end - read.start >= workers * log.map.chunk_bytes();
        if keeps_all_busy || !log.identity().codec.compresses {
            return Vec::new();
        }
        ahead.note(read, log.map.chunk_bytes(), workers)
    }

    /// Decodes a chunk for a later reader.
    ///
    /// A worker never waits for the file's lock, because the lock's holder may wait for a worker.
    /// The worker takes the lock before it fills the slot. A reader likewise takes the lock before
    /// it waits for the slot.
    pub fn decode_ahead(&self, request: &Request, chunk: u64, slot: &Slot) {
        let state = self.state.try_read();
        match state.as_ref().map(|state| (&state.kind, state)) {
            Some((Kind::Stored(log), state)) if !state.is_closed => {
                slot.fill(|| log.map.decode_ahead(state.io(request, &self.settings), chunk));
            }
            _ => slot.fill(|| None),
        }
    }

    /// Locks the file, invalidates its size xattr if necessary, and changes it with `work`. If
    /// `work` fails because the index is damaged, rebuilds the index and runs `work` again.
    fn change<T>(
        &self,
        request: &Request,
        mut work: impl FnMut(&mut State) -> Result<T>,
    ) -> Result<T> {
        self.healing(request, || work(&mut *self.to_be_changed(request)?))
    }

    /// Locks the file for a change. After that, the next frame can be appended, and an emptied file
    /// has no foreign mark.
    fn to_be_changed(&self, request: &Request) -> Result<RwLockWriteGuard<'_, State>> {
        loop {
            self.look_into(request)?;
            let state = self.state.write();
            self.access_is_due.store(true, Ordering::Relaxed);
            match &state.kind {
                Kind::Stored(log) if !log.journal.is_end_clear() => {}
                Kind::Empty if state.mark == MarkState::Foreign => {
                    drop(state);
                    self.void_foreign_mark(request)?;
                    continue;
                }
                _ => return Ok(state),
            }
            drop(state);
            let Some(file) = self.in_steps(request) else { continue };
            let _turn = file.turn();
            unless_gone(clear_end(&file))?;
        }
    }

    /// Returns the maintenance that the last changes made due.
    pub fn due(&self) -> Due {
        match &self.state.read().kind {
            Kind::Stored(log) => log.due(&self.settings),
            Kind::Empty | Kind::Foreign | Kind::Unread(_) => Due::Nothing,
        }
    }

    /// Runs the maintenance that is due: a commit, or garbage collection. Errors are only logged,
    /// because the changes have already taken effect. If an error affects durability, the next sync
    /// returns it.
    pub fn tend(&self, request: &Request) {
        let Some(file) = self.in_steps(request) else { return };
        let _turn = file.turn();
        if let Err(error) = unless_gone(tend(&file)) {
            let file = self.state.read().lower.name();
            tracing::warn!(%error, file, "can't commit a stored file or collect its garbage");
        }
    }

    /// Frees space with commits when the disk is full. Returns `false` if there is no garbage, or
    /// no slot could be written.
    fn make_room(&self, request: &Request) -> Result<bool> {
        let Some(file) = self.in_steps(request) else { return Ok(false) };
        let _turn = file.turn();
        if unless_gone(file.look(|_, log| Ok(log.garbage.bytes() == 0)))?.unwrap_or(true) {
            return Ok(false);
        }
        // The second commit joins small frames.
        Ok(unless_gone(commit_with_slot(&file))?.unwrap_or(false))
    }

    /// Returns the stored file for an operation in steps; `None` for an empty, foreign or unread
    /// file.
    fn in_steps<'a>(&'a self, request: &'a Request) -> Option<InSteps<'a>> {
        match &self.state.read().kind {
            Kind::Stored(log) => {
                Some(InSteps { file: self, request, file_id: log.identity().file_id })
            }
            Kind::Empty | Kind::Foreign | Kind::Unread(_) => None,
        }
    }

    /// Sets the size. The times are updated even if the size does not change.
    pub fn set_size(&self, request: &Request, size: u64, kill_set_id: bool) -> Result<()> {
        if size > SIZE_MAX {
            return Err(too_large());
        }
        if size == 0 {
            let mut state = self.state.write();
            self.access_is_due.store(true, Ordering::Relaxed);
            return state.empty(request, kill_set_id);
        }
        self.change(request, |state| {
            if matches!(state.kind, Kind::Foreign) {
                state.mark_foreign(request)?;
                return state.lower.truncate(request, size);
            }
            if size == state.stored_size() {
                return state.lower.touch(request, kill_set_id);
            }
            let (io, log) = state.begin_change(request, &self.settings)?;
            log.set_size(io, size, WriteOptions { kill_set_id, ..WriteOptions::default() })
        })
    }

    /// Reserves a range (without a guarantee of space), or makes it read as zeros.
    pub fn fallocate(
        &self,
        request: &Request,
        offset: u64,
        length: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        check_range(offset, length)?;
        check_mode(mode)?;
        self.change(request, |state| {
            state.fallocate(request, &self.settings, (offset, length), mode)
        })
    }

    /// Returns the offset of the next data or hole.
    pub fn seek(&self, request: &Request, offset: u64, to: SeekTo) -> Result<u64> {
        self.look_into(request)?;
        self.healing(request, || self.seek_once(request, offset, to))
    }

    fn seek_once(&self, request: &Request, offset: u64, to: SeekTo) -> Result<u64> {
        let state = self.state.read();
        match &state.kind {
            Kind::Empty | Kind::Unread(_) => Err(Errno::NXIO.into()),
            Kind::Foreign => {
                let lower = &state.lower;
                lower.fs.lseek(request, lower.ino, lower.handle, offset, to)
            }
            Kind::Stored(log) => log.map.seek(state.io(request, &self.settings), offset, to),
        }
    }

    /// Makes the file durable.
    pub fn sync(&self, request: &Request, data_only: bool) -> Result<()> {
        let is_writable = self.state.read().is_writable;
        let Some(file) = self.in_steps(request).filter(|_| is_writable) else {
            let lower = self.state.read().lower.clone();
            return lower.sync(request, data_only);
        };
        let _turn = file.turn();
        unless_gone(commit(&file, data_only)).map(drop)
    }

    /// Whether there is enough garbage to pack the file when the mount is idle.
    pub fn wants_packing(&self) -> bool {
        let state = self.state.read();
        let Kind::Stored(log) = &state.kind else { return false };
        log.wants_packing(&self.settings)
    }

    /// Packs the file if that is worthwhile; other users may access the file during the packing.
    /// After each step `goes_on` receives the number of bytes written and decides whether to
    /// continue. The file is not locked during this call.
    pub fn pack(&self, request: &Request, goes_on: &mut dyn FnMut(u64) -> bool) -> Result<Packed> {
        self.look_into(request)?;
        // Whether packing is worthwhile is checked for every file to be packed. A damaged index is
        // rebuilt here, so that later checks do not find the damage again.
        let gains = || {
            let file = self.in_steps(request);
            let gains = file.map_or(Ok(false), |file| pack::gains_by_packing(&file));
            Ok(unless_gone(gains)?.unwrap_or(false))
        };
        if !self.healing(request, gains)? {
            return Ok(Packed::Already);
        }
        self.pack_now(request, goes_on)
    }

    /// Packs the file, whether or not that is worthwhile. See [`Self::pack`].
    pub fn pack_now(
        &self,
        request: &Request,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Packed> {
        let Some(_alone) = self.packing.try_lock() else { return Ok(Packed::GivenUp) };
        let Some(file) = self.in_steps(request) else { return Ok(Packed::GivenUp) };
        Ok(unless_gone(pack::pack(&file, goes_on))?.unwrap_or(Packed::GivenUp))
    }

    /// Leaves the file in a state that the next mount opens quickly. Called each time a writer
    /// closes the file, and when the last user closes it.
    pub fn settle(&self, request: &Request) -> Result<()> {
        self.end_staging(request)?;
        self.give_back_at_close(request)?;
        let mut state = self.state.write();
        if state.was_changed() {
            let (io, log) = state.io_and_log(request, &self.settings)?;
            log.settle(io)?;
            if log.missing_closing().is_some() {
                drop(state);
                self.write_closing(request)?;
                state = self.state.write();
            }
        }
        state.keep_size(request, &self.settings);
        Ok(())
    }

    /// Appends the seek table of a packed file, if its container has one. If another user changes
    /// the file during this call, nothing is appended.
    fn write_closing(&self, request: &Request) -> Result<()> {
        let Some(file) = self.in_steps(request) else { return Ok(()) };
        match unless_gone(closing_in_steps(&file))?.flatten() {
            Some(closing) => self.append_closing(&file, closing),
            None => Ok(()),
        }
    }

    /// Appends a seek table, unless the file was changed after the table was made. `sequence` is
    /// the number of the last frame at that time.
    fn append_closing(&self, file: &InSteps<'_>, (table, sequence): (Vec<u8>, u64)) -> Result<()> {
        let mut state = self.state.write();
        if !state.was_changed() {
            return Ok(());
        }
        let (io, log) = state.io_and_log(file.request, &self.settings)?;
        let is_same = log.identity().file_id == file.file_id
            && log.journal.sequence() == sequence
            && log.missing_closing().is_some();
        if is_same { log.write_closing(io, &table) } else { Ok(()) }
    }

    /// Frees space or packs at close, if there is enough garbage. If the disk is full, the file is
    /// left unchanged.
    fn give_back_at_close(&self, request: &Request) -> Result<()> {
        let state = self.state.read();
        let Kind::Stored(log) = &state.kind else { return Ok(()) };
        if !state.was_changed() {
            return Ok(());
        }
        let is_to_be_packed =
            self.settings.packing == WhenToPack::Close && log.wants_packing(&self.settings);
        let is_worth_a_sync = log.wants_commit_at_close(&self.settings);
        drop(state);
        let done = match (is_to_be_packed, is_worth_a_sync) {
            (true, _) => self.pack(request, &mut |_| true).map(drop),
            (false, true) => self.sync(request, true),
            (false, false) => Ok(()),
        };
        match done {
            Err(error) if is_full(&error) => Ok(()),
            answer => answer,
        }
    }
}

impl State {
    fn io<'a>(&'a self, request: &'a Request, settings: &'a Settings) -> Io<'a> {
        Io::new(&self.lower, request, settings)
    }

    /// Returns the stored file for a change. Unlike [`Self::begin_change`], this does not
    /// invalidate the size xattr.
    fn io_and_log<'a>(
        &'a mut self,
        request: &'a Request,
        settings: &'a Settings,
    ) -> Result<(Io<'a>, &'a mut Log)> {
        let io = Io::new(&self.lower, request, settings);
        match &mut self.kind {
            Kind::Stored(log) => Ok((io, log)),
            // Callers handle other kinds of files before this.
            _ => Err(Errno::IO.into()),
        }
    }

    fn stored_size(&self) -> u64 {
        if let Kind::Stored(log) = &self.kind { log.size() } else { 0 }
    }

    /// Returns the stored file for a change, and invalidates its size xattr first.
    fn begin_change<'a>(
        &'a mut self,
        request: &'a Request,
        settings: &'a Settings,
    ) -> Result<(Io<'a>, &'a mut Log)> {
        self.void_mark(request)?;
        if matches!(self.kind, Kind::Empty) {
            let identity = Identity {
                codec: settings.codec,
                chunk_log2: settings.chunk_log2,
                file_id: settings.new_file_id(request, self.lower.ino),
            };
            self.kind = Kind::Stored(Box::new(Log::new(identity)));
        }
        self.io_and_log(request, settings)
    }

    fn empty(&mut self, request: &Request, kill_set_id: bool) -> Result<()> {
        if matches!(self.kind, Kind::Empty) && self.lower.length(request)? == 0 {
            return self.lower.touch(request, kill_set_id);
        }
        self.empty_below(request, kill_set_id)
    }

    fn empty_below(&mut self, request: &Request, kill_set_id: bool) -> Result<()> {
        // A foreign file keeps its mark until a stored file is begun. If this call fails or nothing
        // is written after it, the file must still be marked as foreign.
        self.void_mark(request)?;
        self.lower.empty(request, kill_set_id)?;
        (self.kind, self.heal_has_failed) = (Kind::Empty, false);
        Ok(())
    }

    fn fallocate(
        &mut self,
        request: &Request,
        settings: &Settings,
        (offset, length): (u64, u64),
        mode: FallocateMode,
    ) -> Result<()> {
        if matches!(self.kind, Kind::Foreign) {
            self.mark_foreign(request)?;
            let lower = &self.lower;
            return lower.fs.fallocate(request, lower.ino, lower.handle, offset, length, mode);
        }
        let kill_set_id = !set_id::may_keep(request);
        let options = WriteOptions { kill_set_id, ..WriteOptions::default() };
        let (before, end) = (self.stored_size(), offset + length);
        let extends = !mode.contains(FallocateMode::KEEP_SIZE) && end > before;
        let zeroes = mode.intersects(FallocateMode::PUNCH_HOLE | FallocateMode::ZERO_RANGE);
        if zeroes && offset < before {
            let (io, log) = self.begin_change(request, settings)?;
            log.zero(io, offset, length, options)?;
        }
        if extends {
            let (io, log) = self.begin_change(request, settings)?;
            log.set_size(io, end, options)?;
        } else {
            self.lower.touch(request, kill_set_id)?;
        }
        Ok(())
    }

    /// Writes as much of `data` as possible, at least one byte.
    fn write(
        &mut self,
        request: &Request,
        settings: &Settings,
        (place, data): (Place, &[u8]),
        prepared: &mut PreEncoded,
        options: WriteOptions,
    ) -> Result<usize> {
        if matches!(self.kind, Kind::Foreign) {
            return self.write_foreign(request, place, data, options);
        }
        let offset = place.offset(self.stored_size());
        if offset >= SIZE_MAX {
            return Err(too_large());
        }
        let length = (SIZE_MAX - offset).min(data.len() as u64) as usize;
        let (io, log) = self.begin_change(request, settings)?;
        log.write(io, (offset, &data[..length]), prepared, options)?;
        log.note_write_for_staging(offset, length);
        Ok(length)
    }

    fn write_foreign(
        &mut self,
        request: &Request,
        place: Place,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<usize> {
        self.mark_foreign(request)?;
        let offset = match place {
            Place::At(offset) => offset,
            Place::End => self.lower.length(request)?,
        };
        let lower = &self.lower;
        lower.fs.write(request, lower.ino, lower.handle, offset, data, options)
    }
}

/// Accepts reserving, zeroing and punching. Moving ranges is not supported.
fn check_mode(mode: FallocateMode) -> Result<()> {
    let reserve_or_zero = FallocateMode::KEEP_SIZE | FallocateMode::ZERO_RANGE;
    let punch = FallocateMode::KEEP_SIZE | FallocateMode::PUNCH_HOLE;
    if reserve_or_zero.contains(mode) || mode == punch {
        Ok(())
    } else {
        Err(Errno::OPNOTSUPP.into())
    }
}

#[cfg(test)]
mod tests;
