//! Tests power cuts. At many points just before a flush of the device, some writes since the
//! previous flush are lost. e2fsck must then be able to repair the image, and every file whose
//! fsync had returned must exist under its name with its content.
//!
//! A block of the file system is written completely or not at all (see SEMANTICS). A split rewrites
//! a directory block, and no order of writes could protect against half a block.

use std::cell::{Cell, LazyCell};
use std::collections::BTreeMap;
use std::collections::HashSet;
use std::process::Command;
use std::sync::Arc;

use fslab_ext2::alloc::Clustering;
use fslab_ext2::{Ext2, KEPT_WORDS, MkfsOptions, Superblock, VolumeOptions, mkfs};
use fslab_vfs::{BlockDevice, Ino, OpenMode};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::crash::{CrashDevice, DeviceState, Plan};
use fslab_vfs_testing::environment::{number, seed};
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::support::{Image, has, options};
use crate::takeover::shared;

const IMAGE_BYTES: u64 = 20 << 20;
/// Default number of points at which the power is cut; the environment variable `FSLAB_EXT2_CUTS`
/// overrides it.
const CUTS: usize = 14;
/// Number of rounds of work; each ends with an fsync.
const ROUNDS: u32 = 3;
const DIRECTORIES: usize = 3;

/// A permitted state of a file after a power cut: its path and content.
#[derive(Clone)]
struct Choice {
    path: String,
    /// Bytes that must be present.
    bytes: Vec<u8>,
    /// Further writes: the first few of them may follow the required bytes, each complete.
    appended: Vec<Vec<u8>>,
}

impl Choice {
    /// Whether `contents` is this state, or a state that e2fsck may make of it. A pointer in an
    /// indirect block reaches the device before the inode with its size. e2fsck then extends the
    /// size to the end of the last block, so only zeros may follow the written bytes.
    fn is(&self, contents: &[u8], block_bytes: usize) -> bool {
        let Some(mut rest) = contents.strip_prefix(self.bytes.as_slice()) else { return false };
        for written in &self.appended {
            let Some(behind) = rest.strip_prefix(written.as_slice()) else { break };
            rest = behind;
        }
        let is_rounded = contents.len().is_multiple_of(block_bytes) && !self.appended.is_empty();
        let is_slack = rest.len() < block_bytes && rest.iter().all(|byte| *byte == 0);
        rest.is_empty() || (is_rounded && is_slack)
    }

    /// Returns the state after an fsync: all appended bytes must be present.
    fn settled(mut self) -> Self {
        self.bytes.extend(std::mem::take(&mut self.appended).into_iter().flatten());
        self
    }
}

#[test]
fn only_zeros_to_the_block_end_may_follow_written_bytes() {
    let appended = vec![vec![2; 700], vec![3; 200]];
    let choice = Choice { path: String::new(), bytes: vec![1; 1000], appended };
    let with = |tail: &[(u8, usize)]| {
        let bytes = tail.iter().flat_map(|(byte, count)| vec![*byte; *count]);
        choice.is(&[vec![1; 1000], bytes.collect()].concat(), 1024)
    };
    for right in [&[][..], &[(2, 700)], &[(2, 700), (3, 200)], &[(2, 700), (3, 200), (0, 148)]] {
        assert!(with(right), "{right:?}");
    }
    for wrong in [
        &[(2, 699)][..],
        &[(2, 700), (3, 199), (0, 149)],
        &[(2, 700), (3, 200), (0, 147)],
        &[(2, 700), (3, 200), (4, 148)],
        &[(2, 700), (3, 200), (0, 148 + 1024)],
    ] {
        assert!(!with(wrong), "{wrong:?}");
    }
}

/// The permitted states of each file, each valid from a position in the device's log.
#[derive(Default)]
struct Promises {
    files: BTreeMap<u32, Vec<(usize, Vec<Choice>)>>,
}

impl Promises {
    fn now(&self, file: u32) -> Vec<Choice> {
        self.files.get(&file).and_then(|states| states.last()).unwrap().1.clone()
    }

    fn set(&mut self, file: u32, position: usize, choices: Vec<Choice>) {
        self.files.entry(file).or_default().push((position, choices));
    }

    fn holding_at(&self, position: usize) -> impl Iterator<Item = &Vec<Choice>> {
        self.files.values().filter_map(move |states| {
            states.iter().rev().find(|state| state.0 <= position).map(|state| &state.1)
        })
    }
}

/// Returns the directory that contains the last name of a path, and that name.
fn parent<'a>(client: &Client<'_>, path: &'a str) -> fslab_vfs::Result<(Ino, &'a str)> {
    let (directories, name) = path.rsplit_once('/').unwrap();
    let mut at = Ino::ROOT;
    for directory in directories.split('/') {
        at = client.lookup(at, directory)?.ino;
    }
    Ok((at, name))
}

/// The work during which the power is cut.
struct Work<'a> {
    client: Client<'a>,
    device: &'a CrashDevice,
    /// Returns a client of the next daemon on a kept mount, else of the same daemon.
    take_over: &'a dyn Fn() -> Client<'a>,
    random: Pcg64,
    promises: Promises,
    directories: Vec<Ino>,
    noise: Vec<(usize, String)>,
    count: u32,
    /// Number of file syncs that wrote only this file, and number of those that flushed everything.
    syncs: [u32; 2],
}

impl Work<'_> {
    /// Makes directories of many blocks; each block has names of tracked files.
    fn populate(&mut self) {
        let mut files = Vec::new();
        for number in 0..DIRECTORIES as u32 * 340 {
            if number % 6 > 0 {
                self.make_noise();
                continue;
            }
            let path = format!("d{}/{}", self.any_directory(), self.new_name("kept"));
            let length = if self.random.random_range(0..4) == 0 { 5000 } else { 0 };
            let bytes = self.bytes(length);
            self.write(&path, &bytes);
            files.push((number, Choice { path, bytes, appended: Vec::new() }));
        }
        self.sync_all();
        for (file, choice) in files {
            self.promises.set(file, self.device.position(), vec![choice]);
        }
    }

    fn run(&mut self) {
        for round in 0..ROUNDS {
            for _ in 0..6 {
                self.append();
                self.disturb();
            }
            self.clear_away();
            for _ in 0..40 {
                self.move_away();
                self.disturb();
            }
            self.replace();
            (0..3).for_each(|_| self.make_again());
            for number in 0..4 {
                self.promise(100_000 + round * 10 + number);
                self.disturb();
            }
            self.client = (self.take_over)();
            self.overwrite();
            if round == 0 {
                self.sync_all();
                self.settle();
            }
        }
    }

    fn any_directory(&mut self) -> usize {
        self.random.random_range(0..DIRECTORIES)
    }

    fn new_name(&mut self, kind: &str) -> String {
        self.count += 1;
        let fill = self.random.random_range(1..80);
        format!("{kind}{}-{:x}-{:x<fill$}", self.count, self.random.next_u64(), "")
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.random.random_range(0..=most)];
        self.random.fill_bytes(&mut bytes);
        bytes
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let (directory, name) = parent(&self.client, path).unwrap();
        self.client.file(directory, name, bytes).unwrap();
    }

    fn ino(&self, path: &str) -> Ino {
        let (directory, name) = parent(&self.client, path).unwrap();
        self.client.lookup(directory, name).unwrap().ino
    }

    fn sync(&mut self, path: &str) {
        let file = self.client.open(self.ino(path), OpenMode::READ_WRITE).unwrap();
        file.fsync(false).unwrap();
        // Only a full flush writes the free counts.
        let on_device = Superblock::read(self.device).unwrap().raw().s_free_inodes_count.get();
        let now = self.client.subject().statfs(&self.client.request(), Ino::ROOT).unwrap();
        self.syncs[usize::from(u64::from(on_device) == now.files_free)] += 1;
    }

    fn sync_all(&self) {
        self.client.subject().syncfs(&self.client.request(), Ino::ROOT).unwrap();
    }

    fn sync_one(&mut self) {
        let file = self.any_file();
        let last = self.promises.now(file).pop().unwrap().settled();
        self.sync(&last.path);
        self.promises.set(file, self.device.position(), vec![last]);
    }

    /// Creates and syncs a new file, sometimes in new directories.
    fn promise(&mut self, file: u32) {
        let bytes = self.bytes(70_000);
        let number = self.any_directory();
        let (mut directory, mut above) = (format!("d{number}"), self.directories[number]);
        for _ in 0..self.random.random_range(0..3) {
            let name = self.new_name("sub");
            above = self.client.mkdir(above, &name).unwrap();
            directory = format!("{directory}/{name}");
        }
        let path = format!("{directory}/{}", self.new_name("kept"));
        self.client.file(above, path.rsplit_once('/').unwrap().1, &bytes).unwrap();
        self.sync(&path);
        let choice = Choice { path, bytes, appended: Vec::new() };
        self.promises.set(file, self.device.position(), vec![choice]);
    }

    /// Records the permitted states after a sync of everything: all appended bytes must be present.
    fn settle(&mut self) {
        let files: Vec<u32> = self.promises.files.keys().copied().collect();
        for file in files {
            let last = self.promises.now(file).pop().unwrap().settled();
            self.promises.set(file, self.device.position(), vec![last]);
        }
    }

    fn any_file(&mut self) -> u32 {
        let files: Vec<u32> = self.promises.files.keys().copied().collect();
        *files.choose(&mut self.random).unwrap()
    }

    /// Appends to a file in several writes, while other files use the space after it.
    fn append(&mut self) {
        let file = self.any_file();
        let mut choices = self.promises.now(file);
        let ino = self.ino(&choices.last().unwrap().path);
        let before = self.device.position();
        let pieces: Vec<(Vec<u8>, usize, String)> = (0..self.random.random_range(1..6))
            .map(|_| (self.bytes(5000), self.any_directory(), self.new_name("noise")))
            .collect();
        let handle = self.client.open(ino, OpenMode::READ_WRITE).unwrap();
        let mut offset = self.client.attr(ino).unwrap().size;
        for (bytes, directory, noise) in pieces {
            for choice in &mut choices {
                choice.appended.push(bytes.clone());
            }
            // Record the states before the write, because parts of it may be on the device before
            // it returns.
            self.promises.set(file, before, choices.clone());
            handle.write_all(offset, &bytes).unwrap();
            offset += bytes.len() as u64;
            self.client.file(self.directories[directory], &noise, &[b'n'; 3000]).unwrap();
            self.noise.push((directory, noise));
        }
    }

    /// Replaces a file safely: writes a new file, syncs it, and renames it over the old one.
    fn replace(&mut self) {
        let file = self.any_file();
        let mut choices = self.promises.now(file);
        let old = choices.last().unwrap().clone();
        let (path, bytes) = (old.path.clone(), self.bytes(9000));
        let aside = format!("{}/{}", path.rsplit_once('/').unwrap().0, self.new_name("aside"));
        self.write(&aside, &bytes);
        self.sync(&aside);
        choices.push(Choice { path: path.clone(), bytes, appended: Vec::new() });
        self.promises.set(file, self.device.position(), choices);
        let (directory, name) = parent(&self.client, &path).unwrap();
        let aside = aside.rsplit_once('/').unwrap().1;
        self.client.rename(directory, aside, directory, name).unwrap();
    }

    /// Removes a file and creates it again with the same name.
    fn make_again(&mut self) {
        let file = self.any_file();
        let path = self.promises.now(file).pop().unwrap().path;
        // Until the new file is synced, the name may be missing.
        self.promises.set(file, self.device.position(), Vec::new());
        let (directory, name) = parent(&self.client, &path).unwrap();
        self.client.unlink(directory, name).unwrap();
        let bytes = self.bytes(9000);
        self.write(&path, &bytes);
        self.sync(&path);
        let choice = Choice { path, bytes, appended: Vec::new() };
        self.promises.set(file, self.device.position(), vec![choice]);
    }

    /// Overwrites bytes in place and syncs; before the sync the old or the new bytes may be
    /// present.
    fn overwrite(&mut self) {
        let file = self.any_file();
        let last = self.promises.now(file).pop().unwrap().settled();
        let bytes = self.bytes(last.bytes.len().min(1024));
        self.sync(&last.path);
        let handle = self.client.open(self.ino(&last.path), OpenMode::READ_WRITE).unwrap();
        let new = [&bytes[..], &last.bytes[bytes.len()..]].concat();
        let new = Choice { bytes: new, ..last.clone() };
        self.promises.set(file, self.device.position(), vec![last, new.clone()]);
        handle.write_all(0, &bytes).unwrap();
        handle.close().unwrap();
        self.sync(&new.path);
        self.promises.set(file, self.device.position(), vec![new]);
    }

    /// Moves a file, by rename or by link and unlink, into an existing or new directory. Removes
    /// the old directory if it becomes empty. The file has its old or new name at every point.
    fn move_away(&mut self) {
        let file = self.any_file();
        let mut choices = self.promises.now(file);
        let from = choices.last().unwrap().clone();
        let mut to = format!("d{}", self.any_directory());
        if self.random.random_range(0..4) == 0 {
            let (above, name) = (to.clone(), self.new_name("sub"));
            to = format!("{to}/{name}");
            let above = self.client.lookup(Ino::ROOT, &above).unwrap().ino;
            self.client.mkdir(above, &name).unwrap();
        }
        let path = format!("{to}/{}", self.new_name("moved"));
        choices.push(Choice { path: path.clone(), ..from.clone() });
        self.promises.set(file, self.device.position(), choices);
        let (old, old_name) = parent(&self.client, &from.path).unwrap();
        let (new, new_name) = parent(&self.client, &path).unwrap();
        if self.random.random_range(0..3) == 0 {
            let ino = self.client.lookup(old, old_name).unwrap().ino;
            self.client.link(ino, new, new_name).unwrap();
            self.client.unlink(old, old_name).unwrap();
        } else {
            self.client.rename(old, old_name, new, new_name).unwrap();
        }
        let alone = from.path.rsplit_once('/').unwrap().0;
        if alone.contains('/') {
            let (above, name) = parent(&self.client, alone).unwrap();
            self.client.rmdir(above, name).unwrap();
        }
    }

    fn make_noise(&mut self) {
        let (directory, name) = (self.any_directory(), self.new_name("noise"));
        let length = if self.random.random_range(0..3) == 0 { 6000 } else { 0 };
        let ino = self.directories[directory];
        self.client.file(ino, &name, &vec![b'n'; length]).unwrap();
        self.noise.push((directory, name));
    }

    /// Makes, renames, truncates and removes untracked files.
    fn disturb(&mut self) {
        for _ in 0..self.random.random_range(0..8) {
            self.make_noise();
            match self.random.random_range(0..5) {
                0 | 1 => self.unlink_noise(),
                2 => self.rename_noise(),
                3 => self.cut_noise(),
                _ => {}
            }
        }
        if self.random.random_range(0..6) == 0 {
            self.sync_one();
        }
    }

    /// Removes most untracked files, so that directories shrink around the tracked names.
    fn clear_away(&mut self) {
        let mut noise = std::mem::take(&mut self.noise);
        noise.shuffle(&mut self.random);
        self.noise = noise;
        (0..self.noise.len() * 3 / 5).for_each(|_| self.unlink_noise());
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
        let (to, new_name) = (self.any_directory(), self.new_name("renamed"));
        let (from_ino, to_ino) = (self.directories[directory], self.directories[to]);
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

/// Writes a state to an image file, for e2fsck.
pub fn image_of(state: &DeviceState, bytes: u64) -> Image {
    const PAGE: usize = 4096;
    let (image, memory) = (Image::empty(bytes), state.open().unwrap());
    let device = image.device();
    let mut page = [0; PAGE];
    for offset in (0..bytes).step_by(PAGE) {
        memory.read_at(offset, &mut page).unwrap();
        if page != [0; PAGE] {
            device.write_at(offset, &page).unwrap();
        }
    }
    image
}

pub fn repair(image: &Image) -> Result<(), String> {
    let output = Command::new("e2fsck").arg("-fy").arg(image.path()).output().unwrap();
    match output.status.code() {
        Some(0 | 1) => Ok(()),
        _ => Err(String::from_utf8_lossy(&output.stdout).into_owned()),
    }
}

fn keeps_promises(
    image: &Image,
    block_bytes: usize,
    promises: &Promises,
    position: usize,
) -> Result<(), String> {
    let ext2 = image.open();
    let client = Client::new(&ext2);
    let holds = |choice: &Choice| {
        found(&client, choice)
            .is_ok_and(|ino| choice.is(&client.contents(ino).unwrap(), block_bytes))
    };
    for choices in promises.holding_at(position) {
        if !choices.is_empty() && !choices.iter().any(holds) {
            let told: Vec<String> = choices.iter().map(|choice| told(&client, choice)).collect();
            return Err(format!("lost or changed: {}", told.join("; or ")));
        }
    }
    Ok(())
}

fn found(client: &Client<'_>, choice: &Choice) -> fslab_vfs::Result<Ino> {
    let (directory, name) = parent(client, &choice.path)?;
    Ok(client.lookup(directory, name)?.ino)
}

/// Describes the promised state and the state found.
fn told(client: &Client<'_>, choice: &Choice) -> String {
    let Choice { path, bytes, appended } = choice;
    let found = match found(client, choice) {
        Ok(ino) => format!("there are {}", client.contents(ino).unwrap().len()),
        Err(error) => error.to_string(),
    };
    let more = appended.concat().len();
    format!("{path}, {} bytes and up to {more} more: {found}", bytes.len())
}

/// Chooses some of the points after `begin` at which the power is cut.
fn points(all: Vec<usize>, begin: usize, cuts: usize, random: &mut Pcg64) -> HashSet<usize> {
    let all: Vec<usize> = all.into_iter().filter(|point| *point > begin).collect();
    all.sample(random, cuts).copied().collect()
}

#[track_caller]
fn survives(block_bytes: u32, options_of_volume: VolumeOptions, is_kept: bool) {
    if !has("e2fsck") {
        return;
    }
    let seed = seed();
    let cuts = number("FSLAB_EXT2_CUTS").map_or(CUTS, |cuts| cuts as usize);
    let device = Arc::new(CrashDevice::new(IMAGE_BYTES, u64::from(block_bytes)).unwrap());
    let made = MkfsOptions { bytes_per_inode: 4096, ..options(block_bytes) };
    mkfs(&*device, &made).unwrap();
    let device_of_mount: Arc<dyn BlockDevice> = Arc::clone(&device) as Arc<dyn BlockDevice>;
    let memory = shared(KEPT_WORDS);
    let open = || {
        let (device, options) = (Arc::clone(&device_of_mount), options_of_volume.clone());
        match is_kept {
            true => Ext2::open_kept(device, options, Arc::clone(&memory)).unwrap(),
            false => Ext2::open(device, options).unwrap(),
        }
    };
    // On a mount that is not kept, one daemon does all the work.
    let daemons: [LazyCell<Ext2, _>; ROUNDS as usize + 1] =
        std::array::from_fn(|_| LazyCell::new(open));
    let ext2 = &*daemons[0];
    let next = Cell::new(0);
    let take_over = || {
        next.set(next.get() + usize::from(is_kept));
        Client::new(&*daemons[next.get()])
    };
    let client = Client::new(ext2);
    let directories = (0..DIRECTORIES)
        .map(|index| client.mkdir(Ino::ROOT, format!("d{index}")).unwrap())
        .collect();
    ext2.sync().unwrap();
    let mut work = Work {
        client,
        device: &device,
        take_over: &take_over,
        random: Pcg64::seed_from_u64(seed),
        promises: Promises::default(),
        directories,
        noise: Vec::new(),
        count: 0,
        syncs: [0; 2],
    };
    work.populate();
    let begin = device.position();
    work.run();
    let [alone, all] = work.syncs;
    println!("{alone} syncs of one file, {all} of everything");
    assert!(alone > 5, "{alone} syncs of one file, {all} of everything");
    let log = device.log();
    let wanted = points(log.points_before_flushes(), begin, cuts, &mut work.random);
    let plan = Plan { seed, subsets: 4, prefixes: 2 };
    let states = log
        .for_each_state(&plan, &|point| wanted.contains(&point), &mut |state| {
            let image = image_of(state, IMAGE_BYTES);
            repair(&image)?;
            image.check("repaired by e2fsck");
            keeps_promises(&image, block_bytes as usize, &work.promises, state.point)
        })
        .unwrap_or_else(|problem| panic!("FSLAB_SEED={seed}: {problem}"));
    assert!(states > cuts.min(wanted.len()) * 2, "{states} states of {} points", wanted.len());
}

#[test]
fn fsynced_files_survive_power_cuts_at_1_kib() {
    survives(1024, VolumeOptions::default(), false);
}

#[test]
fn fsynced_files_survive_power_cuts_at_4_kib() {
    let smart = VolumeOptions { clustering: Clustering::Smart, ..VolumeOptions::default() };
    survives(4096, smart, false);
}

#[test]
fn fsynced_files_survive_power_cuts_after_daemons_were_killed() {
    survives(1024, VolumeOptions::default(), true);
}
