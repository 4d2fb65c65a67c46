//! Performs steps on the target with several threads; each thread performs the steps of some
//! directories.

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

/// Size of a write request in bytes.
const REQUEST_BYTES: usize = 128 << 10;

/// Size of the buffer of incompressible bytes. It is larger than a request, so that requests write
/// different bytes.
const NOISE_BYTES: usize = 1 << 20;

type VfsResult<T> = fslab_vfs::Result<T>;

/// Performs steps on a target.
pub struct Performer<'a> {
    target: &'a dyn FileSystem,
    data: Data,
    when_full: WhenFull,
    owner: Option<Credentials>,
    /// The inodes of directories found so far, each with one lookup reference. The root is not
    /// included.
    directories: Mutex<HashMap<u64, Ino>>,
    /// Files that could not be created.
    missing: Mutex<HashSet<u64>>,
    room: Room,
    noise: Vec<u8>,
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

    /// Returns the numbers of the files that could not be created.
    pub fn missing(&self) -> Vec<u64> {
        let mut missing: Vec<_> = self.missing.lock().iter().copied().collect();
        missing.sort_unstable();
        missing
    }

    /// Adds files that an earlier replay could not create; their operations are skipped.
    pub fn skip_missing(&mut self, missing: Vec<u64>) {
        self.missing.get_mut().extend(missing);
    }

    pub fn sync(&self) -> Result<()> {
        let synced = self.target.syncfs(&self.request(&Operation::default()), Ino::ROOT);
        synced.map_err(Error::volume("can't sync the target"))
    }

    /// Performs the steps of a batch. The steps of one directory are performed by one thread, in
    /// order.
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
            replayed.add(&self.step(step, redo)?);
        }
        Ok(replayed)
    }

    /// Performs a step. If the target is out of space, retries the step with no other step running,
    /// after a sync.
    fn step(&self, step: &Step, redo: bool) -> Result<Replayed> {
        let operation = &step.operation;
        if self.missing.lock().contains(&operation.file) {
            if operation.kind == OperationKind::Remove {
                self.missing.lock().remove(&operation.file);
            }
            return Ok(Replayed { left_out: 1, ..Replayed::default() });
        }
        let Some(parent) = self.directory(step.directory) else {
            return self.without_directory(step, redo);
        };
        let (tried, late) = match self.room.beside_others(|| self.try_step(step, parent, redo)) {
            Err(error) if is_out_of_space(&error) => {
                // The retry is treated as a repetition, because the first attempt may have
                // performed a part of the operation.
                let again = || match self.try_step(step, parent, true) {
                    Err(error) if is_of_a_redo(&error) => Ok(0),
                    tried => tried,
                };
                (self.room.again(error, || self.sync(), again)?, 1)
            }
            tried => (tried, 0),
        };
        match tried {
            Ok(bytes_written) => {
                if operation.kind.may_free() {
                    self.room.note_freed();
                }
                Ok(Replayed { bytes_written, late, ..Replayed::default() })
            }
            Err(error) if self.when_full == WhenFull::Skip && is_full(&error) => {
                if operation.kind.makes() {
                    self.missing.lock().insert(operation.file);
                }
                Ok(Replayed { no_space: 1, ..Replayed::default() })
            }
            Err(error) if redo && is_of_a_redo(&error) => {
                Ok(Replayed { repeated: 1, ..Replayed::default() })
            }
            Err(source) => Err(failed(step, source)),
        }
    }

    fn without_directory(&self, step: &Step, redo: bool) -> Result<Replayed> {
        if self.missing.lock().contains(&step.directory) {
            if step.operation.kind.makes() {
                self.missing.lock().insert(step.operation.file);
            }
            return Ok(Replayed { left_out: 1, ..Replayed::default() });
        }
        if redo {
            return Ok(Replayed { repeated: 1, ..Replayed::default() });
        }
        Err(failed(step, Errno::NOENT.into()))
    }

    fn directory(&self, number: u64) -> Option<Ino> {
        if number == 0 { Some(Ino::ROOT) } else { self.directories.lock().get(&number).copied() }
    }

    /// Looks up a directory that has not been looked up yet, for example after resuming. A
    /// directory that does not exist is skipped, because a killed replay may have moved or removed
    /// it.
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
                Err(error) => return Err(Error::volume("can't look up a directory")(error)),
            };
        }
        Ok(())
    }

    fn try_step(&self, step: &Step, parent: Ino, redo: bool) -> VfsResult<u64> {
        let (target, operation) = (self.target, &step.operation);
        let request = &self.request(operation);
        let name = Name::new(OsStr::from_bytes(&step.name))?;
        match operation.kind {
            OperationKind::MakeDirectory => {
                let entry = match target.mkdir(request, parent, name, operation.mode) {
                    Err(error) if redo && error.errno() == Errno::EXIST => {
                        target.lookup(request, parent, name)?
                    }
                    made => made?,
                };
                self.directories.lock().insert(operation.file, entry.attr.ino);
            }
            OperationKind::Create => {
                let exclusive = if redo { OpenMode::TRUNCATE } else { OpenMode::EXCLUSIVE };
                let (mode, flags) = (0o100_000 | operation.mode, OpenMode::WRITE_ONLY | exclusive);
                let (entry, opened) = target.create(request, parent, name, mode, flags)?;
                let closed = self.close(request, entry.attr.ino, opened.handle);
                target.forget(entry.attr.ino, 1);
                closed?;
            }
            OperationKind::Symlink => {
                // A workload records the length of a symbolic link's target, but not the target.
                let to = OsString::from_vec(vec![b'x'; operation.length.clamp(1, 4095) as usize]);
                let entry = target.symlink(request, parent, name, &to)?;
                target.forget(entry.attr.ino, 1);
            }
            OperationKind::Write | OperationKind::Truncate => {
                let ino = target.lookup(request, parent, name)?.attr.ino;
                let changed = match operation.kind {
                    OperationKind::Write => self.write(request, operation, ino),
                    _ => self.set_size(request, ino, operation.length).map(|()| 0),
                };
                target.forget(ino, 1);
                return changed;
            }
            OperationKind::Remove => target.unlink(request, parent, name)?,
            OperationKind::RemoveDirectory => {
                target.rmdir(request, parent, name)?;
                if let Some(ino) = self.directories.lock().remove(&operation.file) {
                    target.forget(ino, 1);
                }
            }
            OperationKind::Rename => self.rename(request, step, (parent, name), redo)?,
        }
        Ok(0)
    }

    fn request(&self, operation: &Operation) -> Request {
        let recorded = Credentials { uid: operation.uid, gid: operation.gid };
        let time_ns = i64::try_from(operation.time_ns).unwrap_or(i64::MAX);
        Request {
            credentials: self.owner.clone().unwrap_or(recorded),
            now: Timestamp::from_ns(time_ns),
            ..Request::default()
        }
    }

    fn close(&self, request: &Request, ino: Ino, handle: Handle) -> VfsResult<()> {
        let flushed = self.target.flush(request, ino, handle);
        let released = self.target.release(request, ino, handle);
        match flushed {
            // Most file systems at the bottom of a stack do not implement flush.
            Err(error) if error.errno() != Errno::NOSYS => Err(error),
            _ => released,
        }
    }

    fn set_size(&self, request: &Request, ino: Ino, size: u64) -> VfsResult<()> {
        let changes = SetAttr { size: Some(size), ..SetAttr::default() };
        self.target.setattr(request, ino, None, &changes).map(drop)
    }

    fn write(&self, request: &Request, operation: &Operation, ino: Ino) -> VfsResult<u64> {
        let Operation { offset, length, .. } = *operation;
        if length == 0 {
            return Ok(0);
        }
        if self.data == Data::None {
            let size = self.target.getattr(request, ino, None)?.size.max(offset + length);
            return self.set_size(request, ino, size).map(|()| length);
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
        // Nearby files, and nearby offsets in a file, get different bytes.
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

    fn rename(
        &self,
        request: &Request,
        step: &Step,
        (parent, name): (Ino, Name<'_>),
        redo: bool,
    ) -> VfsResult<()> {
        let operation = &step.operation;
        let new_parent = self.directory(operation.directory).ok_or(Errno::NOENT)?;
        let new_name = Name::new(OsStr::from_bytes(&step.new_name))?;
        let rename = |mode| self.target.rename(request, parent, name, new_parent, new_name, mode);
        let is_same = (parent, name.as_bytes()) == (new_parent, new_name.as_bytes());
        // After a resume, the replay may create a file again that it had already renamed before it
        // was killed. Then the rename must replace the file at the new path.
        if is_same || redo {
            return rename(RenameMode::empty());
        }
        // In a workload, a file is removed before its name is reused. So a rename that replaced a
        // file would make the tree differ from the workload's tree.
        match rename(RenameMode::NO_REPLACE) {
            Err(error) if error.errno() == Errno::INVAL => {}
            renamed => return renamed,
        }
        // Some file systems do not support `RENAME_NOREPLACE`.
        match self.target.lookup(request, new_parent, new_name) {
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

/// Whether a repeated step may fail with this error. The killed replay may already have performed
/// the step, or a later step that removed its file.
fn is_of_a_redo(error: &fslab_vfs::Error) -> bool {
    matches!(error.errno(), Errno::NOENT | Errno::EXIST | Errno::STALE)
}

fn failed(step: &Step, source: fslab_vfs::Error) -> Error {
    let Step { operation, index, .. } = step;
    Error::Target { index: *index, kind: operation.kind.name(), file: operation.file, source }
}

/// Whether the error means that a limit is reached: space, quota, number of links or file size.
fn is_full(error: &fslab_vfs::Error) -> bool {
    matches!(error.errno(), Errno::NOSPC | Errno::DQUOT | Errno::MLINK | Errno::FBIG)
}
