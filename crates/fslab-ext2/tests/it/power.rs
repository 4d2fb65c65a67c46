//! Power cuts: what the device was given is recorded with its barriers. At many points the writes
//! since the last barrier are lost in part; e2fsck must then make the image whole, and every file
//! whose fsync had returned must be there, under its name, with its bytes.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

use fslab_ext2::{Ext2, VolumeOptions, mkfs};
use fslab_vfs::testing::client::Client;
use fslab_vfs::{BlockDevice, Ino, MemoryDevice, OpenMode};
use parking_lot::Mutex;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::script::seed;
use crate::support::{Image, has, options};

const IMAGE_BYTES: u64 = 12 << 20;
/// Points at which the power is cut, unless the environment says otherwise.
const CUTS: usize = 60;

enum Event {
    Write(u64, Vec<u8>),
    Discard(u64, u64),
    Flush,
}

/// Keeps everything that was written, in order.
struct Recorder {
    now: MemoryDevice,
    events: Mutex<Vec<Event>>,
}

impl Recorder {
    fn position(&self) -> usize {
        self.events.lock().len()
    }
}

impl BlockDevice for Recorder {
    fn size(&self) -> u64 {
        self.now.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> fslab_vfs::Result<()> {
        self.now.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> fslab_vfs::Result<()> {
        self.events.lock().push(Event::Write(offset, data.to_vec()));
        self.now.write_at(offset, data)
    }

    fn discard(&self, offset: u64, length: u64) -> fslab_vfs::Result<()> {
        self.events.lock().push(Event::Discard(offset, length));
        self.now.discard(offset, length)
    }

    fn flush(&self) -> fslab_vfs::Result<()> {
        self.events.lock().push(Event::Flush);
        self.now.flush()
    }
}

/// Where a file may be, and with which bytes.
type Choices = Vec<(String, Vec<u8>)>;

/// What must hold of each file from a position of the record on.
#[derive(Default)]
struct Promises {
    files: BTreeMap<u32, Vec<(usize, Choices)>>,
}

impl Promises {
    fn now(&self, file: u32) -> Choices {
        self.files.get(&file).and_then(|states| states.last()).unwrap().1.clone()
    }

    fn set(&mut self, file: u32, position: usize, choices: Choices) {
        self.files.entry(file).or_default().push((position, choices));
    }

    fn holding_at(&self, position: usize) -> impl Iterator<Item = &Choices> {
        self.files.values().filter_map(move |states| {
            states.iter().rev().find(|state| state.0 <= position).map(|state| &state.1)
        })
    }
}

/// The work during which the power fails.
struct Work<'a> {
    client: Client<'a>,
    device: &'a Recorder,
    random: Pcg64,
    promises: Promises,
    directories: Vec<Ino>,
    noise: Vec<(usize, String)>,
    count: u32,
}

impl Work<'_> {
    fn run(&mut self) {
        for file in 0..14 {
            self.promise(file);
            self.disturb();
            if file > 1 && self.random.random_range(0..2) == 0 {
                self.replace(file - 1);
            }
            self.disturb();
            if file > 0 {
                self.move_away(file - 1);
            }
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; self.random.random_range(1..30_000)];
        self.random.fill_bytes(&mut bytes);
        bytes
    }

    fn at(path: &str) -> (usize, &str) {
        let (directory, name) = path.split_once('/').unwrap();
        (directory.parse().unwrap(), name)
    }

    /// Writes a file and makes it durable.
    fn write(&mut self, path: &str, bytes: &[u8]) {
        let (directory, name) = Self::at(path);
        let directory = self.directories[directory];
        let (_, file) = self.client.create(directory, name, 0o600, OpenMode::EXCLUSIVE).unwrap();
        file.write_all(0, bytes).unwrap();
        file.fsync(false).unwrap();
    }

    fn promise(&mut self, file: u32) {
        let bytes = self.bytes();
        let path = format!("{}/kept{file}", file as usize % self.directories.len());
        self.write(&path, &bytes);
        self.promises.set(file, self.device.position(), vec![(path, bytes)]);
        self.settle();
    }

    /// An fsync of one file makes durable what was done to the others before it.
    fn settle(&mut self) {
        let files: Vec<u32> = self.promises.files.keys().copied().collect();
        for file in files {
            let last = self.promises.now(file).pop().unwrap();
            self.promises.set(file, self.device.position(), vec![last]);
        }
    }

    /// New contents, in the way of careful programs: aside, durable, and then over the old.
    fn replace(&mut self, file: u32) {
        let (path, old) = self.promises.now(file).pop().unwrap();
        let bytes = self.bytes();
        let (directory, name) = Self::at(&path);
        let aside = format!("{directory}/aside{file}");
        self.write(&aside, &bytes);
        self.settle();
        let choices = vec![(path.clone(), old), (path.clone(), bytes)];
        self.promises.set(file, self.device.position(), choices);
        let directory = self.directories[directory];
        self.client.rename(directory, Self::at(&aside).1, directory, name).unwrap();
    }

    /// To another directory: at every point under the old or the new name.
    fn move_away(&mut self, file: u32) {
        let choices = self.promises.now(file);
        let (path, _) = choices.last().unwrap().clone();
        let (from, name) = Self::at(&path);
        let to = self.random.random_range(0..self.directories.len());
        self.count += 1;
        let new_name = format!("moved{}-{}", self.count, "x".repeat(self.count as usize % 90));
        let moved = choices.iter().map(|(_, bytes)| (format!("{to}/{new_name}"), bytes.clone()));
        let both: Choices = choices.iter().cloned().chain(moved).collect();
        self.promises.set(file, self.device.position(), both);
        let (from, to) = (self.directories[from], self.directories[to]);
        self.client.rename(from, name, to, &new_name).unwrap();
    }

    /// Files that nobody asked to be durable come, grow, move and go.
    fn disturb(&mut self) {
        for _ in 0..self.random.random_range(5..60) {
            self.count += 1;
            let directory = self.random.random_range(0..self.directories.len());
            let name = format!("noise{}-{:x}", self.count, self.random.next_u64());
            let length = self.random.random_range(0..9000);
            let ino = self.directories[directory];
            self.client.file(ino, &name, &vec![b'n'; length]).unwrap();
            self.noise.push((directory, name));
            match self.random.random_range(0..4) {
                0 => self.unlink_noise(),
                1 => self.rename_noise(),
                2 => self.cut_noise(),
                _ => {}
            }
        }
        if self.random.random_range(0..3) == 0 {
            (0..self.noise.len() * 2 / 3).for_each(|_| self.unlink_noise());
        }
    }

    fn some_noise(&mut self) -> (usize, String) {
        let at = self.random.random_range(0..self.noise.len());
        self.noise.swap_remove(at)
    }

    fn unlink_noise(&mut self) {
        let (directory, name) = self.some_noise();
        self.client.unlink(self.directories[directory], &name).unwrap();
    }

    fn rename_noise(&mut self) {
        let (directory, name) = self.some_noise();
        let to = self.random.random_range(0..self.directories.len());
        let (from_ino, to_ino) = (self.directories[directory], self.directories[to]);
        let new_name = format!("{name}-renamed");
        self.client.rename(from_ino, &name, to_ino, &new_name).unwrap();
        self.noise.push((to, new_name));
    }

    fn cut_noise(&mut self) {
        let (directory, name) = self.some_noise();
        let ino = self.client.lookup(self.directories[directory], &name).unwrap().ino;
        self.client.truncate(ino, self.random.random_range(0..20_000)).unwrap();
        self.noise.push((directory, name));
    }
}

/// The image as it may be after a cut: everything before the last barrier, and of what came after
/// it what chance lets through.
fn cut(events: &[Event], random: &mut Pcg64) -> Image {
    let image = Image::empty(IMAGE_BYTES);
    let device = image.device();
    let safe = events.iter().rposition(|event| matches!(event, Event::Flush)).unwrap_or(0);
    for (index, event) in events.iter().enumerate() {
        if index > safe && random.random_range(0..2) == 0 {
            continue;
        }
        match event {
            Event::Write(offset, data) => device.write_at(*offset, data).unwrap(),
            Event::Discard(offset, length) => device.discard(*offset, *length).unwrap(),
            Event::Flush => {}
        }
    }
    image
}

#[track_caller]
fn repaired(image: &Image, at: &str) {
    let output = Command::new("e2fsck").arg("-fy").arg(image.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{at}: {text}");
    image.check(at);
}

#[track_caller]
fn keeps_promises(image: &Image, promises: &Promises, position: usize, at: &str) {
    let ext2 = image.open();
    let client = Client::new(&ext2);
    for choices in promises.holding_at(position) {
        let holds = choices.iter().any(|(path, bytes)| {
            let (directory, name) = Work::at(path);
            let directory = client.lookup(Ino::ROOT, format!("d{directory}")).unwrap().ino;
            let found = client.lookup(directory, name);
            found.is_ok_and(|attr| client.contents(attr.ino).unwrap() == *bytes)
        });
        let paths: Vec<&String> = choices.iter().map(|(path, _)| path).collect();
        assert!(holds, "{at}: lost or changed: {paths:?}");
    }
}

#[track_caller]
fn survives(block_bytes: u32) {
    if !has("e2fsck") {
        return;
    }
    let seed = seed();
    eprintln!("FSLAB_SEED={seed}");
    let cuts = std::env::var("FSLAB_EXT2_CUTS").map_or(CUTS, |text| text.parse().unwrap());
    let device =
        Arc::new(Recorder { now: MemoryDevice::new(IMAGE_BYTES), events: Mutex::default() });
    mkfs(&*device, &options(block_bytes)).unwrap();
    let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as Arc<dyn BlockDevice>;
    let ext2 = Ext2::open(shared, VolumeOptions::default()).unwrap();
    let client = Client::new(&ext2);
    let directories =
        (0..3).map(|index| client.mkdir(Ino::ROOT, format!("d{index}")).unwrap()).collect();
    ext2.sync().unwrap();
    let begin = device.position();
    let mut work = Work {
        client,
        device: &device,
        random: Pcg64::seed_from_u64(seed),
        promises: Promises::default(),
        directories,
        noise: Vec::new(),
        count: 0,
    };
    work.run();
    let events = device.events.lock();
    let mut random = Pcg64::seed_from_u64(seed ^ 1);
    let barriers: Vec<usize> =
        (begin..events.len()).filter(|at| matches!(events[*at], Event::Flush)).collect();
    for index in 0..cuts {
        // Just before a barrier, most is at stake.
        let position = match index % 4 {
            0 => random.random_range(begin..=events.len()),
            _ => barriers[random.random_range(0..barriers.len())],
        };
        let at = format!("seed {seed}, cut at {position} of {}", events.len());
        let image = cut(&events[..position], &mut random);
        repaired(&image, &at);
        keeps_promises(&image, &work.promises, position, &at);
    }
    drop(events);
}

#[test]
fn fsynced_files_survive_power_cuts_at_1_kib() {
    survives(1024);
}

#[test]
fn fsynced_files_survive_power_cuts_at_4_kib() {
    survives(4096);
}
