//! Random scripts over a tier, and the bytes, times and names that are allowed after a crash.

use std::collections::BTreeMap;
use std::sync::Arc;

use fslab_tier::archive::ContainerKind;
use fslab_tier::{Found, Tier, WalkEntry, own_request};
use fslab_vfs::{FallocateMode, Ino, OpenMode, Timestamp};
use fslab_vfs_testing::client::{Client, File};
use fslab_vfs_testing::crash::CrashFs;
use fslab_vfs_testing::crash::history::History;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::support::MIB;

pub const NAMES: [&str; 2] = ["a", "b"];

/// The first number for owners of files. Each file has its own owner.
const FIRST_OWNER: u32 = 1000;

/// The maximum size of a file. Files have only a few blocks, mostly holes, because every written
/// sector increases the number of states after a crash.
const SIZE_MAX: u64 = 3 * MIB;

/// The history of one file in the script.
pub struct Story {
    bytes: History<Arc<Vec<u8>>>,
    /// The modification times of the file.
    times: History<Timestamp>,
}

/// The history of all files, by the events of the lower file system.
pub struct Diary {
    files: Vec<Story>,
    names: History<BTreeMap<&'static str, usize>>,
    /// The steps, with the event at which each ended, for failure messages.
    pub steps: Vec<(usize, String)>,
}

impl Diary {
    /// Returns the files that a name may refer to after a crash. They include `None` if the name
    /// may be missing.
    pub fn candidates(&self, name: &str, point: usize) -> Vec<Option<usize>> {
        self.names.allowed(point).map(|names| names.get(name).copied()).collect()
    }

    /// Returns the contents that a file may have after a crash.
    pub fn versions(&self, id: usize, point: usize) -> Vec<&[u8]> {
        self.files[id].bytes.allowed(point).map(|bytes| &bytes[..]).collect()
    }

    /// Returns whether a file may have this time after a crash.
    pub fn may_have_time(&self, id: usize, point: usize, time: Timestamp) -> bool {
        self.files[id].times.allowed(point).any(|allowed| *allowed == time)
    }
}

/// A running script.
pub struct Script<'a> {
    crash: &'a CrashFs,
    tier: Arc<Tier>,
    client: &'a Client<'a>,
    random: Pcg64,
    /// A file that is kept open across steps.
    held: Option<(usize, File<'a>)>,
    names: BTreeMap<&'static str, usize>,
    diary: Diary,
}

impl<'a> Script<'a> {
    /// Runs this number of random steps.
    pub fn run(
        crash: &'a CrashFs,
        tier: &Arc<Tier>,
        client: &'a Client<'a>,
        (seed, steps): (u64, usize),
    ) -> Diary {
        let random = Pcg64::seed_from_u64(seed);
        let names = History::new(crash.position(), BTreeMap::new());
        let diary = Diary { files: Vec::new(), names, steps: Vec::new() };
        let (tier, names) = (Arc::clone(tier), BTreeMap::new());
        let mut script = Self { crash, tier, client, random, held: None, names, diary };
        for _ in 0..steps {
            let step = script.step();
            script.diary.steps.push((crash.position(), step));
        }
        script.let_go();
        script.diary
    }

    fn step(&mut self) -> String {
        let name = NAMES[self.random.random_range(0..NAMES.len())];
        let Some(id) = self.names.get(name).copied() else { return self.create(name) };
        if self.tier.settings().copies > 1 && self.random.random_bool(0.2) {
            return if self.random.random_bool(0.5) { self.scrub() } else { self.link(name) };
        }
        match self.random.random_range(0..100) {
            0..8 => self.archive(name),
            8..14 => self.bundle(),
            14..24 => self.release(name),
            24..30 => self.read(id),
            30..44 => self.write(id),
            44..52 => self.truncate(id),
            52..56 => self.punch(id),
            56..64 => self.sync(id),
            64..67 => self.empty(id),
            67..70 => self.hold(id),
            70..73 => self.rename(name),
            73..75 => self.unlink(name),
            75..77 => self.sync_names(),
            77..79 => self.sync_all(),
            79..81 => self.expire(),
            81..83 => format!("scan: {:?}", self.tier.scan(&own_request())),
            83..86 => self.archive_a_change(id, name),
            86..90 => self.change_what_is_archived(id, name),
            90..94 => self.shrink_and_grow(id, name),
            94..98 => self.leave_a_bundle(id, name),
            _ => self.recall_some(id, name),
        }
    }

    /// Archives a file and then changes it, to detect a missing record of the change.
    fn change_what_is_archived(&mut self, id: usize, name: &'static str) -> String {
        let archived = [self.archive(name), self.sync(id)].join("; ");
        [archived, self.write(id)].join("; ")
    }

    /// Archives a file of several blocks, and then a version of it that refers to blocks of the
    /// first one.
    fn archive_a_change(&mut self, id: usize, name: &'static str) -> String {
        let grown = if self.last(id).len() as u64 > MIB {
            String::new()
        } else {
            self.resize(id, SIZE_MAX)
        };
        let before = [grown, self.write(id), self.archive(name)].join("; ");
        let after = [self.write(id), self.archive(name)].join("; ");
        let left = if self.random.random_bool(0.5) { self.release(name) } else { self.sync(id) };
        [before, after, left, self.expire()].join("; ")
    }

    /// Truncates a released file and extends it again, to detect a missing record of the
    /// truncation.
    fn shrink_and_grow(&mut self, id: usize, name: &'static str) -> String {
        let away = [self.archive(name), self.release(name)].join("; ");
        let cut = self.random.random_range(0..2) * MIB + self.random.random_range(0..2) * 5000;
        let size = cut + self.random.random_range(1..2 * MIB);
        // While the file is in use, its xattr may be out of date.
        let file = self.open(id, OpenMode::READ_WRITE);
        let shrunk = [self.resize(id, cut), self.sync(id)].join("; ");
        let stays = self.random.random_bool(0.5);
        let file = if stays { Some(file) } else { file.close().map(|()| None).unwrap() };
        let grown = self.resize(id, size);
        file.map_or(Ok(()), File::close).unwrap();
        format!("{away}; {shrunk}; held: {stays}; {grown}")
    }

    fn recall_some(&mut self, id: usize, name: &'static str) -> String {
        let away = [self.archive(name), self.release(name)].join("; ");
        [away, self.read(id), self.read(id)].join("; ")
    }

    fn archive(&mut self, name: &'static str) -> String {
        let ino = self.ino(name);
        format!("archive {name}: {:?}", self.tier.archive(ino, name.as_bytes(), &own_request()))
    }

    /// Archives all files in one bundle.
    fn bundle(&mut self) -> String {
        let (request, lower) = (own_request(), self.tier.lower());
        let mut archiver = self.tier.archiver(&request, None, Some(SIZE_MAX + MIB));
        let mut said = vec!["bundle".to_owned()];
        let mut told = |path: &[u8], outcome| {
            said.push(format!("{}: {outcome:?}", String::from_utf8_lossy(path)));
            Ok(())
        };
        for name in self.names.keys() {
            let (path, found) = (name.as_bytes(), Found::at(lower, name.as_bytes()).unwrap());
            archiver.archive(&WalkEntry { path, found: &found }, &mut told).unwrap();
        }
        archiver.finish(&mut told).unwrap();
        said.join(" ")
    }

    /// Makes most of a bundle unneeded, so that a repack moves the other members.
    fn leave_a_bundle(&mut self, id: usize, name: &'static str) -> String {
        let bundled = [self.bundle(), self.release(name)].join("; ");
        let changed = [self.write(id), self.archive(name)].join("; ");
        format!("{bundled}; {changed}; {}", self.expire())
    }

    fn expire(&self) -> String {
        format!("expire: {:?}", self.tier.expire(&own_request()))
    }

    /// Scrubs after one archive lost or damaged a container.
    fn scrub(&mut self) -> String {
        let archives = self.tier.archives();
        let archive = &archives[self.random.random_range(0..archives.len())];
        let mut containers = Vec::new();
        let note = &mut |id, length| containers.push((id, length));
        archive.list(ContainerKind::Files, note).unwrap();
        if containers.is_empty() {
            return "nothing to scrub".to_owned();
        }
        let (id, length) = containers[self.random.random_range(0..containers.len())];
        let is_lost = self.random.random_bool(0.5);
        if is_lost {
            archive.delete((ContainerKind::Files, id)).unwrap();
        } else {
            let mut bytes = vec![0; length as usize];
            archive.read((ContainerKind::Files, id), 0, &mut bytes).unwrap();
            bytes[self.random.random_range(0..length as usize)] ^= 1;
            let mut upload = archive.begin((ContainerKind::Files, id)).unwrap();
            upload.write(&bytes).unwrap();
            upload.finish().unwrap();
        }
        let scrubbed = self.tier.scrub(&own_request());
        format!("scrub without {id} of {}, lost: {is_lost}: {scrubbed:?}", archive.label())
    }

    fn release(&mut self, name: &'static str) -> String {
        let ino = self.ino(name);
        format!("release {name}: {:?}", self.tier.release(ino, name.as_bytes(), 0))
    }

    fn ino(&self, name: &str) -> Ino {
        self.client.lookup(Ino::ROOT, name).unwrap().ino
    }

    fn ino_of(&self, id: usize) -> Ino {
        let named = self.names.iter().find(|(_, named)| **named == id);
        self.ino(named.unwrap().0)
    }

    fn last(&self, id: usize) -> Arc<Vec<u8>> {
        Arc::clone(self.diary.files[id].bytes.last())
    }

    fn open(&self, id: usize, mode: OpenMode) -> File<'a> {
        self.client.open(self.ino_of(id), mode).unwrap()
    }

    fn create(&mut self, name: &'static str) -> String {
        let (begun, id) = (self.crash.position(), self.diary.files.len());
        let bytes = History::new(begun, Arc::default());
        self.diary.files.push(Story { bytes, times: History::new(begun, Timestamp::default()) });
        let mut names = self.names.clone();
        names.insert(name, id);
        let owner = FIRST_OWNER + id as u32;
        let client = self.client.as_user(owner, owner);
        self.change_names(names, || {
            let created = client.create(Ino::ROOT, name, 0o644, OpenMode::EXCLUSIVE);
            created.unwrap().1.close().unwrap();
        });
        self.note_time(id);
        format!("create {name} as file {id}")
    }

    fn change_names(&mut self, new: BTreeMap<&'static str, usize>, work: impl FnOnce()) {
        self.names.clone_from(&new);
        self.diary.names.begin(self.crash.position(), new);
        work();
        self.diary.names.complete();
    }

    /// Calls `work` to change a file, and records the old and new bytes and times.
    fn change(&mut self, id: usize, new: Vec<u8>, work: impl FnOnce(&Self)) {
        let begun = self.crash.position();
        let story = &mut self.diary.files[id];
        story.bytes.begin(begun, Arc::new(new));
        story.times.begin(begun, Timestamp::default());
        work(self);
        self.diary.files[id].bytes.complete();
        self.note_time(id);
    }

    /// Records the modification time after a change. The time is not known in advance.
    fn note_time(&mut self, id: usize) {
        let modified = self.client.attr(self.ino_of(id)).unwrap().modified;
        let times = &mut self.diary.files[id].times;
        times.amend(modified);
        times.complete();
    }

    fn read(&mut self, id: usize) -> String {
        let expected = self.last(id);
        let offset = self.random.random_range(0..=expected.len());
        let file = self.open(id, OpenMode::empty());
        let found = file.read(offset as u64, 10).unwrap();
        file.close().unwrap();
        assert_eq!(found, expected[offset..expected.len().min(offset + 10)], "at {offset}");
        format!("read file {id} at {offset}")
    }

    fn write(&mut self, id: usize) -> String {
        let mut version = self.last(id).to_vec();
        let is_whole = self.random.random_bool(0.1);
        let (offset, length) = if is_whole {
            (self.random.random_range(0..=version.len() as u64 / MIB) * MIB, MIB)
        } else {
            let most = (version.len() as u64 + 5000).min(SIZE_MAX);
            (self.random.random_range(0..=most), self.random.random_range(1..2000))
        };
        let mut data = vec![0; length as usize];
        // Most bytes of a whole block remain zero, and are written like other bytes.
        let random = data.len().min(3000);
        self.random.fill_bytes(&mut data[..random]);
        let end = (offset + length) as usize;
        version.resize(version.len().max(end), 0);
        version[offset as usize..end].copy_from_slice(&data);
        self.change(id, version, |script| {
            let file = script.open(id, OpenMode::READ_WRITE);
            file.write_all(offset, &data).unwrap();
            file.close().unwrap();
        });
        format!("write {length} bytes of file {id} at {offset}")
    }

    fn truncate(&mut self, id: usize) -> String {
        let size = match self.random.random_range(0..3) {
            0 => self.random.random_range(0..=SIZE_MAX / MIB) * MIB,
            _ => self.random.random_range(0..SIZE_MAX),
        };
        self.resize(id, size)
    }

    fn resize(&mut self, id: usize, size: u64) -> String {
        let mut version = self.last(id).to_vec();
        version.resize(size as usize, 0);
        self.change(id, version, |script| {
            script.client.truncate(script.ino_of(id), size).unwrap();
        });
        format!("truncate file {id} to {size}")
    }

    fn empty(&mut self, id: usize) -> String {
        self.change(id, Vec::new(), |script| {
            script.open(id, OpenMode::READ_WRITE | OpenMode::TRUNCATE).close().unwrap();
        });
        format!("open and truncate file {id}")
    }

    fn punch(&mut self, id: usize) -> String {
        let mut version = self.last(id).to_vec();
        let size = version.len() as u64;
        let offset = self.random.random_range(0..=size);
        let length = self.random.random_range(1..2 * MIB);
        version[offset as usize..(offset + length).min(size) as usize].fill(0);
        self.change(id, version, |script| {
            let file = script.open(id, OpenMode::READ_WRITE);
            let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
            file.fallocate(offset, length, mode).unwrap();
            file.close().unwrap();
        });
        format!("punch {length} bytes of file {id} at {offset}")
    }

    fn sync(&mut self, id: usize) -> String {
        let data_only = self.random.random_bool(0.5);
        let file = self.open(id, OpenMode::empty());
        file.fsync(data_only).unwrap();
        file.close().unwrap();
        self.note_synced(id, data_only);
        format!("sync file {id}, data only: {data_only}")
    }

    fn note_synced(&mut self, id: usize, data_only: bool) {
        let (when, story) = (self.crash.position(), &mut self.diary.files[id]);
        story.bytes.sync(when);
        if !data_only {
            story.times.sync(when);
        }
    }

    fn hold(&mut self, id: usize) -> String {
        let held = self.held.as_ref().map(|(held, _)| *held);
        self.let_go();
        if held != Some(id) {
            let writes = self.random.random_bool(0.5);
            let mode = if writes { OpenMode::READ_WRITE } else { OpenMode::empty() };
            let file = self.open(id, mode);
            self.held = Some((id, file));
        }
        format!("hold file {id} instead of {held:?}")
    }

    fn let_go(&mut self) {
        if let Some((_, file)) = self.held.take() {
            file.close().unwrap();
        }
    }

    fn link(&mut self, name: &'static str) -> String {
        let (other, ino, client) = (other(name), self.ino(name), self.client);
        let mut names = self.names.clone();
        if names.contains_key(other) {
            return self.unlink(other);
        }
        names.insert(other, names[name]);
        self.change_names(names, || {
            client.link(ino, Ino::ROOT, other).unwrap();
        });
        format!("link {name} as {other}")
    }

    fn rename(&mut self, name: &'static str) -> String {
        let other = other(name);
        // A rename from one name of a file to another of its names does nothing.
        if self.names.get(other) == self.names.get(name) {
            return self.unlink(name);
        }
        let (mut names, client) = (self.names.clone(), self.client);
        if let Some(id) = names.remove(name) {
            names.insert(other, id);
        }
        self.change_names(names, || client.rename(Ino::ROOT, name, Ino::ROOT, other).unwrap());
        format!("rename {name} to {other}")
    }

    fn unlink(&mut self, name: &'static str) -> String {
        let (mut names, client) = (self.names.clone(), self.client);
        names.remove(name);
        self.change_names(names, || client.unlink(Ino::ROOT, name).unwrap());
        format!("unlink {name}")
    }

    fn sync_names(&mut self) -> String {
        self.client.sync_directory(Ino::ROOT).unwrap();
        self.diary.names.sync(self.crash.position());
        "sync names".to_owned()
    }

    fn sync_all(&mut self) -> String {
        self.client.subject().syncfs(&self.client.request(), Ino::ROOT).unwrap();
        for id in self.names.values().copied().collect::<Vec<_>>() {
            self.note_synced(id, false);
        }
        self.diary.names.sync(self.crash.position());
        "sync everything".to_owned()
    }
}

fn other(name: &str) -> &'static str {
    if name == NAMES[0] { NAMES[1] } else { NAMES[0] }
}
