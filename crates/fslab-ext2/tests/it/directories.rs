//! Tests directories that the engine and the kernel change alternately.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Command;
use std::sync::Arc;

use fslab_ext2::check::check;
use fslab_ext2::{HashVersion, MkfsOptions, VolumeOptions};
use fslab_vfs::{BlockDevice, Ino};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::environment::seed;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::mounted::{Mounted, can_mount};
use crate::support::{Image, has, options};

/// Suffixes of names with equal legacy hashes (see the unit tests of `dir`).
const LEGACY_COLLISIONS: [u32; 9] = [
    0x0098_6d22,
    0x08c3_0f9d,
    0x08f0_182d,
    0x1bfd_154b,
    0x1e48_1da1,
    0x2ea6_1219,
    0x4ce5_4322,
    0x51e3_198b,
    0x9bf9_5963,
];

/// Returns the names with these suffixes.
pub fn collisions() -> impl Iterator<Item = OsString> {
    LEGACY_COLLISIONS.iter().map(|end| format!("{}{end:08x}", "p".repeat(240)).into())
}

/// Returns a name of random bytes. Many names are long, so that trees grow with few names.
fn random_name(random: &mut Pcg64) -> OsString {
    let length = match random.random_range(0..3) {
        0 => random.random_range(4..=20),
        _ => random.random_range(100..=255),
    };
    let byte = |random: &mut Pcg64| match random.random_range(1..=255) {
        b'/' | b'.' => b'x',
        byte => byte,
    };
    OsString::from_vec((0..length).map(|_| byte(random)).collect())
}

/// A directory on an image that the engine and the kernel change alternately.
struct Turns {
    image: Image,
    names: BTreeSet<OsString>,
    random: Pcg64,
}

const DIRECTORY: &str = "names";

impl Turns {
    fn new(options: &MkfsOptions, random: Pcg64) -> Self {
        let image = Image::new(48 << 20, options);
        let engine = image.open();
        Client::new(&engine).mkdir(Ino::ROOT, DIRECTORY).unwrap();
        engine.sync().unwrap();
        Self { image, names: BTreeSet::new(), random }
    }

    fn check(&self, when: &str) {
        self.image.check(when);
        let device: Arc<dyn BlockDevice> = Arc::new(self.image.device());
        let report = check(device).unwrap();
        assert!(report.findings.is_empty(), "{when}: {:?}", report.findings);
    }

    fn plan(&mut self, more: usize, fewer: usize) -> (Vec<OsString>, Vec<OsString>) {
        let new: Vec<_> = (0..more).map(|_| random_name(&mut self.random)).collect();
        let old: Vec<_> = self.names.iter().cloned().collect();
        let gone: Vec<_> = old.sample(&mut self.random, fewer.min(old.len())).cloned().collect();
        let new: Vec<_> = new.into_iter().filter(|name| self.names.insert(name.clone())).collect();
        gone.iter().for_each(|name| {
            self.names.remove(name);
        });
        (new, gone)
    }

    fn engine_turn(&mut self, more: usize, fewer: usize, extra: Vec<OsString>) {
        let (mut new, gone) = self.plan(more, fewer);
        self.names.extend(extra.iter().cloned());
        new.extend(extra);
        let engine = self.image.open_with(VolumeOptions::default());
        let client = Client::new(&engine);
        let directory = client.lookup(Ino::ROOT, DIRECTORY).unwrap().ino;
        for name in &new {
            client.file(directory, name, b"").unwrap();
        }
        gone.iter().for_each(|name| client.unlink(directory, name).unwrap());
        for name in &self.names {
            client.lookup(directory, name).unwrap();
        }
        let listed: Vec<_> =
            client.list(directory).unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(listed.len(), self.names.len());
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), self.names);
        engine.sync().unwrap();
        drop(client);
        drop(engine);
        self.check("after the engine");
    }

    fn kernel_turn(&mut self, more: usize, fewer: usize) {
        let mounted = Mounted::new(&self.image.path());
        let directory = mounted.path().join(DIRECTORY);
        for name in &self.names {
            assert!(std::fs::symlink_metadata(directory.join(name)).is_ok(), "{name:?}");
        }
        let listed: BTreeSet<_> = std::fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(listed, self.names);
        let (new, gone) = self.plan(more, fewer);
        for name in &new {
            std::fs::File::create_new(directory.join(name)).unwrap();
        }
        gone.iter().for_each(|name| std::fs::remove_file(directory.join(name)).unwrap());
        mounted.unmount();
        self.check("after the kernel");
    }
}

#[test]
fn engine_and_kernel_change_a_directory_in_turns() {
    const TEST: &str = "engine_and_kernel_change_a_directory_in_turns";
    if !has("e2fsck") || !can_mount(TEST) {
        return;
    }
    let mut random = Pcg64::seed_from_u64(seed());
    for block in [1024, 2048, 4096] {
        for (version, signed) in HashVersion::ALL.into_iter().zip([true, false, true]) {
            let mut hash_seed = [0; 4];
            random.fill(&mut hash_seed);
            let options = MkfsOptions {
                index: Some(version),
                signed_hash: signed,
                hash_seed,
                bytes_per_inode: 4096,
                ..options(block)
            };
            let mut turns = Turns::new(&options, Pcg64::seed_from_u64(random.next_u64()));
            let count = 400 * block as usize / 1024;
            // Names with equal hashes, only for the hash function without a seed.
            let one_hash: Vec<_> =
                collisions().filter(|_| version == HashVersion::Legacy).collect();
            turns.engine_turn(count, 0, one_hash);
            for _ in 0..3 {
                turns.kernel_turn(count, count / 2);
                turns.engine_turn(count, count, Vec::new());
            }
            turns.engine_turn(0, usize::MAX, Vec::new());
            turns.kernel_turn(10, 0);
        }
    }
}

#[test]
fn images_of_mke2fs_filled_by_the_kernel_are_changed_and_left_clean() {
    const TEST: &str = "images_of_mke2fs_filled_by_the_kernel_are_changed_and_left_clean";
    if !has("e2fsck") || !can_mount(TEST) {
        return;
    }
    let random = Pcg64::seed_from_u64(seed());
    for (block, extra) in [("1024", "dir_index"), ("4096", "dir_index"), ("1024", "^dir_index")] {
        let image = Image::empty(48 << 20);
        let output = Command::new("mke2fs")
            .args(["-q", "-F", "-t", "ext2", "-b", block, "-i", "4096", "-O", extra])
            .arg(image.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let mounted = Mounted::new(&image.path());
        std::fs::create_dir(mounted.path().join(DIRECTORY)).unwrap();
        mounted.unmount();
        let mut turns = Turns { image, names: BTreeSet::new(), random: random.clone() };
        turns.kernel_turn(800, 0);
        turns.engine_turn(300, 400, Vec::new());
        turns.kernel_turn(300, 200);
        turns.engine_turn(0, usize::MAX, Vec::new());
        turns.kernel_turn(20, 0);
    }
}

#[test]
fn directories_of_mke2fs_d_are_read_and_changed() {
    if !has("e2fsck") || !has("mke2fs") {
        return;
    }
    let tree = tempfile::TempDir::new_in("/tmp").unwrap();
    std::fs::create_dir(tree.path().join(DIRECTORY)).unwrap();
    let mut random = Pcg64::seed_from_u64(seed());
    let names: BTreeSet<_> = (0..600).map(|_| random_name(&mut random)).collect();
    for name in &names {
        std::fs::File::create(tree.path().join(DIRECTORY).join(name)).unwrap();
    }
    let image = Image::empty(16 << 20);
    let output = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext2", "-b", "1024", "-d"])
        .arg(tree.path())
        .arg(image.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut turns = Turns { image, names, random };
    turns.engine_turn(300, 500, Vec::new());
    assert!(turns.names.iter().all(|name| !OsStr::as_bytes(name).is_empty()));
}
