//! Random scripts and their guarantees: the bytes and names that may be found after a crash.

use std::collections::BTreeMap;
use std::sync::Arc;

use fslab_vfs::{FallocateMode, Ino, OpenMode, Result};
use fslab_vfs_testing::client::{Client, File};
use fslab_vfs_testing::crash::CrashFs;
use fslab_vfs_testing::crash::history::History;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

pub const NAMES: [&str; 3] = ["a", "b", "c"];

/// Maximum offset of a write; files have a few chunks of 4 KiB.
const OFFSET_MAX: u64 = 14_000;

/// All versions of a file's bytes during the script.
type Bytes = History<Arc<Vec<u8>>>;

/// The completed operations. Their times are counted in events of the lower file system.
pub struct Diary {
    pub files: Vec<Bytes>,
    names: History<BTreeMap<&'static str, usize>>,
    /// Steps and the events at which they ended, for failure messages.
    pub steps: Vec<(usize, String)>,
}

impl Diary {
    fn new() -> Self {
        let names = History::new(0, BTreeMap::new());
        Self { files: Vec::new(), names, steps: Vec::new() }
    }

    /// Treats all successful operations as synced, because there is no crash.
    pub fn confirm(&mut self) {
        self.files.iter_mut().for_each(History::confirm);
        self.names.confirm();
    }

    /// Returns the files that a name may refer to after a crash; `None` if the name may be missing.
    pub fn candidates(&self, name: &str, point: usize) -> Vec<Option<usize>> {
        self.names.allowed(point).map(|names| names.get(name).copied()).collect()
    }

    /// Returns the versions of a file that may be found after a crash at some point.
    pub fn versions(&self, id: usize, point: usize) -> Vec<&[u8]> {
        self.files[id].allowed(point).map(|bytes| &bytes[..]).collect()
    }
}

/// A running script: the layer, the test double under it, and the open files.
pub struct Script<'a> {
    crash: &'a CrashFs,
    client: &'a Client<'a>,
    /// Called after each step, so that planted bugs can't delay a call forever.
    after_step: &'a dyn Fn(),
    open: BTreeMap<usize, File<'a>>,
    names: BTreeMap<&'static str, usize>,
    diary: Diary,
}

impl<'a> Script<'a> {
    /// Runs `steps` random steps over a layer, or until the first error. Files are closed in any
    /// case.
    pub fn run(
        crash: &'a CrashFs,
        client: &'a Client<'a>,
        after_step: &'a dyn Fn(),
        (seed, steps): (u64, usize),
    ) -> (Diary, Result<()>) {
        let (open, names) = (BTreeMap::new(), BTreeMap::new());
        let mut script = Self { crash, client, after_step, open, names, diary: Diary::new() };
        let mut draws = Pcg64Mcg::seed_from_u64(seed);
        let ended = (0..steps).try_for_each(|_| {
            let text = script.step(&mut draws)?;
            (script.after_step)();
            script.diary.steps.push((crash.position(), text));
            Ok(())
        });
        let Self { open, diary, .. } = script;
        let closed = open.into_values().map(File::close).collect::<Vec<_>>();
        (diary, closed.into_iter().fold(ended, Result::and))
    }

    fn step(&mut self, draws: &mut Pcg64Mcg) -> Result<String> {
        let name = NAMES[draws.random_range(0..NAMES.len())];
        let other = NAMES[draws.random_range(0..NAMES.len())];
        let Some(id) = self.names.get(name).copied() else { return self.create(name) };
        let (offset, length) = (draws.random_range(0..OFFSET_MAX), draws.random_range(1..9000));
        let fill = draws.random_range(1..=255);
        match draws.random_range(0..20) {
            0..6 => self.write(id, offset, &bytes(fill, length as usize)),
            6..9 => {
                let end = self.diary.files[id].last().len() as u64;
                self.write(id, end.min(OFFSET_MAX), &bytes(fill, length as usize % 700 + 1))
            }
            9 => self.truncate(id, offset),
            10 => self.empty(id, offset, length, true),
            11 => self.empty(id, offset, length, false),
            12..15 => self.sync(id, draws.random_bool(0.5)),
            15 => self.close(id),
            16 if name != other => self.rename(name, other),
            17 => self.unlink(name),
            18 => self.sync_names(),
            _ => self.sync_all(),
        }
    }

    fn file(&mut self, id: usize) -> Result<&File<'a>> {
        if !self.open.contains_key(&id) {
            let name =
                self.names.iter().find(|(_, named)| **named == id).map_or("", |(name, _)| name);
            let ino = self.client.lookup(Ino::ROOT, name)?.ino;
            self.open.insert(id, self.client.open(ino, OpenMode::READ_WRITE)?);
        }
        Ok(&self.open[&id])
    }

    /// Records a change of a file, and performs it.
    fn change(
        &mut self,
        id: usize,
        new: Vec<u8>,
        work: impl FnOnce(&File<'_>) -> Result<()>,
    ) -> Result<()> {
        let begun = self.crash.position();
        self.diary.files[id].begin(begun, Arc::new(new));
        work(self.file(id)?)?;
        self.diary.files[id].complete();
        Ok(())
    }

    fn create(&mut self, name: &'static str) -> Result<String> {
        let (begun, id, client) = (self.crash.position(), self.diary.files.len(), self.client);
        self.diary.files.push(History::new(begun, Arc::default()));
        let mut names = self.names.clone();
        names.insert(name, id);
        let create = || client.create(Ino::ROOT, name, 0o644, OpenMode::EXCLUSIVE);
        let (_, file) = self.change_names(names, create)?;
        self.open.insert(id, file);
        Ok(format!("create {name} as file {id}"))
    }

    /// Records a change of names, and performs it.
    fn change_names<T>(
        &mut self,
        new: BTreeMap<&'static str, usize>,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let begun = self.crash.position();
        self.names.clone_from(&new);
        self.diary.names.begin(begun, new);
        let done = work()?;
        self.diary.names.complete();
        Ok(done)
    }

    fn write(&mut self, id: usize, offset: u64, data: &[u8]) -> Result<String> {
        let mut new = self.diary.files[id].last().to_vec();
        let end = offset as usize + data.len();
        new.resize(new.len().max(end), 0);
        new[offset as usize..end].copy_from_slice(data);
        self.change(id, new, |file| file.write_all(offset, data))?;
        Ok(format!("write {} bytes of file {id} at {offset}", data.len()))
    }

    fn truncate(&mut self, id: usize, size: u64) -> Result<String> {
        let mut new = self.diary.files[id].last().to_vec();
        new.resize(size as usize, 0);
        self.change(id, new, |file| file.truncate(size).map(drop))?;
        Ok(format!("truncate file {id} to {size}"))
    }

    fn empty(&mut self, id: usize, offset: u64, length: u64, punch: bool) -> Result<String> {
        let mut new = self.diary.files[id].last().to_vec();
        let end = (offset + length) as usize;
        if !punch {
            new.resize(new.len().max(end), 0);
        }
        let end = end.min(new.len());
        if let Some(emptied) = new.get_mut(offset as usize..end) {
            emptied.fill(0);
        }
        let punching = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
        let mode = if punch { punching } else { FallocateMode::ZERO_RANGE };
        self.change(id, new, |file| file.fallocate(offset, length, mode))?;
        Ok(format!("empty {length} bytes of file {id} at {offset}, {mode:?}"))
    }

    fn sync(&mut self, id: usize, data_only: bool) -> Result<String> {
        self.file(id)?.fsync(data_only)?;
        self.note_synced(id);
        Ok(format!("sync file {id}, data only: {data_only}"))
    }

    fn note_synced(&mut self, id: usize) {
        (self.after_step)();
        let when = self.crash.position();
        self.diary.files[id].sync(when);
    }

    fn close(&mut self, id: usize) -> Result<String> {
        if let Some(file) = self.open.remove(&id) {
            file.close()?;
        }
        Ok(format!("close file {id}"))
    }

    fn rename(&mut self, name: &'static str, other: &'static str) -> Result<String> {
        let (mut names, client) = (self.names.clone(), self.client);
        let replaced = names.remove(name).and_then(|id| names.insert(other, id));
        self.change_names(names, || client.rename(Ino::ROOT, name, Ino::ROOT, other))?;
        replaced.map_or(Ok(String::new()), |id| self.close(id))?;
        Ok(format!("rename {name} to {other}"))
    }

    fn unlink(&mut self, name: &'static str) -> Result<String> {
        let (mut names, client) = (self.names.clone(), self.client);
        let unlinked = names.remove(name);
        self.change_names(names, || client.unlink(Ino::ROOT, name))?;
        unlinked.map_or(Ok(String::new()), |id| self.close(id))?;
        Ok(format!("unlink {name}"))
    }

    fn sync_names(&mut self) -> Result<String> {
        self.client.sync_directory(Ino::ROOT)?;
        (self.after_step)();
        self.diary.names.sync(self.crash.position());
        Ok("sync names".to_owned())
    }

    fn sync_all(&mut self) -> Result<String> {
        self.client.subject().syncfs(&self.client.request(), Ino::ROOT)?;
        let when = self.crash.position();
        for id in self.names.values().copied().collect::<Vec<_>>() {
            self.note_synced(id);
        }
        self.diary.names.sync(when);
        Ok("sync everything".to_owned())
    }
}

/// Returns bytes that depend on the write and the offset, and that compress a little.
fn bytes(fill: u8, length: usize) -> Vec<u8> {
    (0..length).map(|place| fill.wrapping_add((place / 16) as u8)).collect()
}
