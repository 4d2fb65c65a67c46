//! Steps on the target, by threads that each have some of the directories.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use fslab_vfs::{
    Credentials, Errno, FallocateMode, FileSystem, Handle, Ino, Name, OpenMode, RenameMode,
    Request, SetAttr, Timestamp, WriteOptions,
};
use parking_lot::Mutex;

use super::batch::Step;
use super::room::{Room, is_out_of_space};
use super::{Data, Replayed, Settings, WhenFull};
use crate::error::{Error, Result};
use crate::workload::{Operation, OperationKind, Population};

/// Bytes of a write request.
const REQUEST_BYTES: usize = 128 << 10;

/// Bytes that do not compress and do not repeat within two requests.
const NOISE_BYTES: usize = 1 << 20;

type VfsResult<T> = fslab_vfs::Result<T>;

/// Does steps on a target.
pub struct Performer<'a> {
    target: &'a dyn FileSystem,
    data: Data,
    when_full: WhenFull,
    owner: Option<Credentials>,
    /// The inodes of directories, each held by one lookup. The root is not among them.
    directories: Mutex<HashMap<u64, Ino>>,
    /// Files that could not be made.
    missing: Mutex<HashSet<u64>>,
    room: Room,
    noise: Vec<u8>,
}

/// How a step came out.
enum Outcome {
    Done {
        written: u64,
    },
    /// Done, but only alone and after everything was written back: until then it did not fit.
    DoneLate {
        written: u64,
    },
    /// The target is full.
    NoSpace,
    /// The file is missing because it did not fit.
    LeftOut,
    /// A replay that was killed has done it, or what comes after it.
    Repeated,
}

impl<'a> Performer<'a> {
    pub fn new(target: &'a dyn FileSystem, settings: &Settings) -> Self {
        let mut noise = vec![0; NOISE_BYTES];
        blake3::Hasher::new().update(b"fslab age").finalize_xof().fill(&mut noise);
        Self {
            target,
            data: settings.data,
            when_full: settings.when_full,
            owner: settings.owner.clone(),
            directories: Mutex::default(),
            missing: Mutex::default(),
            room: Room::default(),
            noise,
        }
    }

    /// Files that could not be made, by number.
    pub fn missing(&self) -> Vec<u64> {
        let mut missing: Vec<_> = self.missing.lock().iter().copied().collect();
        missing.sort_unstable();
        missing
    }

    /// Says which files an earlier replay could not make.
    pub fn skip_missing(&mut self, missing: Vec<u64>) {
        self.missing.get_mut().extend(missing);
    }

    /// Makes everything durable.
    pub fn sync(&self) -> Result<()> {
        let synced = self.target.syncfs(&self.request(&Operation::default()), Ino::ROOT);
        synced.map_err(Error::volume("writing back"))
    }

    /// Does the steps of a batch. Each directory's are done by one thread, in their order.
    pub fn perform(
        &self,
        steps: Vec<Step>,
        population: &Population,
        threads: usize,
        redo: bool,
    ) -> Result<Replayed> {
        for step in &steps {
            self.find_directory(step.directory, population)?;
            self.find_directory(step.operation.directory, population)?;
        }
        if threads <= 1 || steps.len() < 2 {
            return self.perform_some(steps.iter(), redo);
        }
        let mut shares: Vec<Vec<&Step>> = vec![Vec::new(); threads];
        for step in &steps {
            shares[(step.directory % threads as u64) as usize].push(step);
        }
        let work = |share: Vec<&Step>| self.perform_some(share.into_iter(), redo);
        let done = std::thread::scope(|scope| {
            let workers: Vec<_> =
                shares.into_iter().map(|share| scope.spawn(|| work(share))).collect();
            let joined = workers.into_iter().map(|worker| worker.join());
            joined
                .map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect::<Vec<_>>()
        });
        let mut total = Replayed::default();
        for replayed in done {
            total.add(&replayed?);
        }
        Ok(total)
    }

    fn perform_some<'s>(
        &self,
        steps: impl Iterator<Item = &'s Step>,
        redo: bool,
    ) -> Result<Replayed> {
        let mut replayed = Replayed::default();
        for step in steps {
            replayed.operations += 1;
            match self.step(step, redo)? {
                Outcome::Done { written } => replayed.bytes_written += written,
                Outcome::DoneLate { written } => {
                    replayed.bytes_written += written;
                    replayed.late += 1;
                }
                Outcome::NoSpace => replayed.no_space += 1,
                Outcome::LeftOut => replayed.left_out += 1,
                Outcome::Repeated => replayed.repeated += 1,
            }
        }
        Ok(replayed)
    }

    fn step(&self, step: &Step, redo: bool) -> Result<Outcome> {
        let file = step.operation.file;
        if self.missing.lock().contains(&file) {
            if matches!(step.operation.kind, OperationKind::Remove) {
                self.missing.lock().remove(&file);
            }
            return Ok(Outcome::LeftOut);
        }
        let Some(parent) = self.directory(step.directory) else {
            return self.without_directory(step, redo);
        };
        match self.room.beside_others(|| self.try_step(step, parent, redo)) {
            Err(error) if is_out_of_space(&error) => self.step_again(step, parent, redo, error),
            tried => self.outcome(step, redo, tried.map(|written| Outcome::Done { written })),
        }
    }

    /// Does a step that did not fit once more, alone, after everything was written back.
    fn step_again(
        &self,
        step: &Step,
        parent: Ino,
        redo: bool,
        error: fslab_vfs::Error,
    ) -> Result<Outcome> {
        // A part of it may have been done.
        let again = || match self.try_step(step, parent, true) {
            Err(error) if is_of_a_redo(&error) => Ok(0),
            tried => tried,
        };
        let tried = self.room.again(error, || self.sync(), again)?;
        self.outcome(step, redo, tried.map(|written| Outcome::DoneLate { written }))
    }

    fn outcome(&self, step: &Step, redo: bool, tried: VfsResult<Outcome>) -> Result<Outcome> {
        let operation = &step.operation;
        match tried {
            Ok(outcome) => {
                if operation.kind.may_free() {
                    self.room.note_freed();
                }
                Ok(outcome)
            }
            Err(error) if self.when_full == WhenFull::Skip && is_full(&error) => {
                if operation.kind.makes() {
                    self.missing.lock().insert(operation.file);
                }
                Ok(Outcome::NoSpace)
            }
            Err(error) if redo && is_of_a_redo(&error) => Ok(Outcome::Repeated),
            Err(source) => Err(failed(step, source)),
        }
    }

    /// The directory is gone: a killed replay removed it later, or it did not fit.
    fn without_directory(&self, step: &Step, redo: bool) -> Result<Outcome> {
        if self.missing.lock().contains(&step.directory) {
            if step.operation.kind.makes() {
                self.missing.lock().insert(step.operation.file);
            }
            return Ok(Outcome::LeftOut);
        }
        if redo {
            return Ok(Outcome::Repeated);
        }
        Err(failed(step, Errno::NOENT.into()))
    }

    fn directory(&self, number: u64) -> Option<Ino> {
        if number == 0 { Some(Ino::ROOT) } else { self.directories.lock().get(&number).copied() }
    }

    /// Looks a directory up that is not known yet, as after a resumption. One that is not there
    /// stays unknown: a killed replay may have moved or removed it.
    fn find_directory(&self, number: u64, population: &Population) -> Result<()> {
        let mut unknown = Vec::new();
        let mut at = number;
        while self.directory(at).is_none() {
            let Some(member) = population.get(at) else { return Ok(()) };
            unknown.push((at, member));
            at = member.directory;
        }
        let request = self.request(&Operation::default());
        for (number, member) in unknown.into_iter().rev() {
            let Some(parent) = self.directory(member.directory) else { return Ok(()) };
            let name = member.name_of(number);
            let found = Name::new(OsStr::from_bytes(&name)).map_err(fslab_vfs::Error::from);
            match found.and_then(|name| self.target.lookup(&request, parent, name)) {
                Ok(entry) => self.directories.lock().insert(number, entry.attr.ino),
                Err(error) if is_of_a_redo(&error) => return Ok(()),
                Err(error) => return Err(Error::volume("looking a directory up")(error)),
            };
        }
        Ok(())
    }

    fn try_step(&self, step: &Step, parent: Ino, redo: bool) -> VfsResult<u64> {
        let operation = &step.operation;
        let name = Name::new(OsStr::from_bytes(&step.name))?;
        match operation.kind {
            OperationKind::MakeDirectory => self.make_directory(operation, parent, name, redo)?,
            OperationKind::Create => self.create(operation, parent, name, redo)?,
            OperationKind::Symlink => self.symlink(operation, parent, name)?,
            OperationKind::Write => return self.write(operation, parent, name),
            OperationKind::Truncate => self.truncate(operation, parent, name)?,
            OperationKind::Remove => self.target.unlink(&self.request(operation), parent, name)?,
            OperationKind::RemoveDirectory => self.remove_directory(operation, parent, name)?,
            OperationKind::Rename => self.rename(step, parent, name, redo)?,
        }
        Ok(0)
    }

    fn request(&self, operation: &Operation) -> Request {
        let recorded = Credentials { uid: operation.uid, gid: operation.gid };
        let seconds = (operation.time_ns / 1_000_000_000).cast_signed();
        let nanoseconds = (operation.time_ns % 1_000_000_000) as u32;
        Request {
            credentials: self.owner.clone().unwrap_or(recorded),
            now: Timestamp { seconds, nanoseconds },
            ..Request::default()
        }
    }

    fn make_directory(
        &self,
        operation: &Operation,
        parent: Ino,
        name: Name<'_>,
        redo: bool,
    ) -> VfsResult<()> {
        let request = self.request(operation);
        let made = self.target.mkdir(&request, parent, name, operation.mode);
        let entry = match made {
            Err(error) if redo && error.errno() == Errno::EXIST => {
                self.target.lookup(&request, parent, name)?
            }
            made => made?,
        };
        self.directories.lock().insert(operation.file, entry.attr.ino);
        Ok(())
    }

    fn create(
        &self,
        operation: &Operation,
        parent: Ino,
        name: Name<'_>,
        redo: bool,
    ) -> VfsResult<()> {
        let request = self.request(operation);
        let exclusive = if redo { OpenMode::TRUNCATE } else { OpenMode::EXCLUSIVE };
        let flags = OpenMode::WRITE_ONLY | exclusive;
        let (entry, opened) =
            self.target.create(&request, parent, name, 0o100_000 | operation.mode, flags)?;
        let released = self.close(&request, entry.attr.ino, opened.handle);
        self.target.forget(entry.attr.ino, 1);
        released
    }

    fn symlink(&self, operation: &Operation, parent: Ino, name: Name<'_>) -> VfsResult<()> {
        // Where links led is not part of a workload; how long they are is.
        let target = OsString::from_vec(vec![b'x'; operation.length.clamp(1, 4095) as usize]);
        let entry = self.target.symlink(&self.request(operation), parent, name, &target)?;
        self.target.forget(entry.attr.ino, 1);
        Ok(())
    }

    fn close(&self, request: &Request, ino: Ino, handle: Handle) -> VfsResult<()> {
        let flushed = self.target.flush(request, ino, handle);
        let released = self.target.release(request, ino, handle);
        match flushed {
            // Most leaves have nothing to do there.
            Err(error) if error.errno() != Errno::NOSYS => Err(error),
            _ => released,
        }
    }

    fn write(&self, operation: &Operation, parent: Ino, name: Name<'_>) -> VfsResult<u64> {
        let request = self.request(operation);
        let ino = self.target.lookup(&request, parent, name)?.attr.ino;
        let written = self.write_inode(&request, operation, ino);
        self.target.forget(ino, 1);
        written
    }

    fn write_inode(&self, request: &Request, operation: &Operation, ino: Ino) -> VfsResult<u64> {
        let Operation { offset, length, .. } = *operation;
        if length == 0 {
            return Ok(0);
        }
        if self.data == Data::None {
            let attr = self.target.getattr(request, ino, None)?;
            let size = Some(attr.size.max(offset + length));
            self.target.setattr(request, ino, None, &SetAttr { size, ..SetAttr::default() })?;
            return Ok(length);
        }
        let handle = self.target.open(request, ino, OpenMode::WRITE_ONLY)?.handle;
        let written = match self.data {
            Data::Fallocate => {
                let mode = FallocateMode::empty();
                self.target.fallocate(request, ino, handle, offset, length, mode)
            }
            _ => self.write_bytes(request, operation, ino, handle),
        };
        let closed = self.close(request, ino, handle);
        written.and(closed).map(|()| length)
    }

    fn write_bytes(
        &self,
        request: &Request,
        operation: &Operation,
        ino: Ino,
        handle: Handle,
    ) -> VfsResult<()> {
        let (mut offset, end) = (operation.offset, operation.offset + operation.length);
        // Files, and places of a file, that are near each other have different bytes.
        let mut place = (operation.file.wrapping_mul(0x9e37_79b9) % 524_287) as usize;
        while offset < end {
            let length = (end - offset).min(REQUEST_BYTES as u64) as usize;
            let bytes = &self.noise[place..place + length];
            let options = WriteOptions::default();
            offset += self.target.write(request, ino, handle, offset, bytes, options)? as u64;
            place = (place + 65_537) % (NOISE_BYTES - REQUEST_BYTES);
        }
        Ok(())
    }

    fn truncate(&self, operation: &Operation, parent: Ino, name: Name<'_>) -> VfsResult<()> {
        let request = self.request(operation);
        let ino = self.target.lookup(&request, parent, name)?.attr.ino;
        let changes = SetAttr { size: Some(operation.length), ..SetAttr::default() };
        let changed = self.target.setattr(&request, ino, None, &changes);
        self.target.forget(ino, 1);
        changed.map(|_attr| ())
    }

    fn remove_directory(
        &self,
        operation: &Operation,
        parent: Ino,
        name: Name<'_>,
    ) -> VfsResult<()> {
        self.target.rmdir(&self.request(operation), parent, name)?;
        if let Some(ino) = self.directories.lock().remove(&operation.file) {
            self.target.forget(ino, 1);
        }
        Ok(())
    }

    fn rename(&self, step: &Step, parent: Ino, name: Name<'_>, redo: bool) -> VfsResult<()> {
        let operation = &step.operation;
        let new_parent = self.directory(operation.directory).ok_or(Errno::NOENT)?;
        let new_name = Name::new(OsStr::from_bytes(&step.new_name))?;
        let request = self.request(operation);
        let rename = |mode| self.target.rename(&request, parent, name, new_parent, new_name, mode);
        let is_same = (parent, name.as_bytes()) == (new_parent, new_name.as_bytes());
        // A resumed replay may have made the source again beside the file that it had renamed.
        if is_same || redo {
            return rename(RenameMode::empty());
        }
        // A workload removes a file before its name is used again: replacing one would leave
        // another tree than the workload's.
        match rename(RenameMode::NO_REPLACE) {
            Err(error) if error.errno() == Errno::INVAL => {}
            renamed => return renamed,
        }
        // Not every file system knows that mode.
        match self.target.lookup(&request, new_parent, new_name) {
            Ok(entry) => {
                self.target.forget(entry.attr.ino, 1);
                Err(Errno::EXIST.into())
            }
            Err(error) if error.errno() == Errno::NOENT => rename(RenameMode::empty()),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Performer<'_> {
    fn drop(&mut self) {
        for (_, ino) in self.directories.get_mut().drain() {
            self.target.forget(ino, 1);
        }
    }
}

/// What a step may find that has been done before, or whose file a later one removed.
fn is_of_a_redo(error: &fslab_vfs::Error) -> bool {
    matches!(error.errno(), Errno::NOENT | Errno::EXIST | Errno::STALE)
}

fn failed(step: &Step, source: fslab_vfs::Error) -> Error {
    let Step { operation, index, .. } = step;
    Error::Target { index: *index, kind: operation.kind.name(), file: operation.file, source }
}

/// Whether an errno says that there is no room, of whatever kind.
fn is_full(error: &fslab_vfs::Error) -> bool {
    matches!(error.errno(), Errno::NOSPC | Errno::DQUOT | Errno::MLINK | Errno::FBIG)
}
