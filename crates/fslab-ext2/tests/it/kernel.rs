//! Runs random scripts alternately with the engine and the kernel, and compares the results with a
//! model. After each turn, e2fsck finds no problem, the kernel finds every name, and all contents
//! equal the model's.

use std::collections::HashMap;

use fslab_ext2::dir::Hasher;
use fslab_ext2::{HashVersion, MkfsOptions};
use fslab_sys::loop_device::{LoopDevice, Options as LoopOptions};
use fslab_sys::mounts::Mount;
use fslab_vfs::{FileSystem, HostFs, HostOptions, MemFs};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::environment::{number, seed};

use crate::directories::collisions;
use crate::script::{Script, compare};
use crate::support::{Image, has, options};

/// Default number of scripts per block size; the environment variable `FSLAB_EXT2_SCRIPTS`
/// overrides it.
const SCRIPTS: u64 = 4;
const ROUNDS: u32 = 3;
const IMAGE_BYTES: u64 = 96 << 20;

fn can_mount() -> bool {
    let obstacle = match rustix::process::geteuid().is_root() {
        false => Some("not root"),
        true if !std::path::Path::new("/dev/loop-control").exists() => Some("no loop devices"),
        true => None,
    };
    if let Some(reason) = obstacle {
        fslab_vfs_testing::skip::skip("kernel", reason);
    }
    obstacle.is_none()
}

/// Changes the image through a kernel mount.
fn with_kernel(image: &Image, work: impl FnOnce(&Client<'_>)) {
    let device = LoopDevice::attach(&image.path(), LoopOptions::default()).unwrap();
    let point = tempfile::TempDir::new_in("/tmp").unwrap();
    let mount = Mount::new(device.path(), point.path(), "ext2", "dev,suid,acl,user_xattr").unwrap();
    {
        let host = HostFs::open(point.path(), &HostOptions::default()).unwrap();
        let client = Client::new(&host);
        work(&client);
        drop(client);
        host.shutdown().unwrap();
    }
    mount.unmount().unwrap();
    drop(device);
}

fn with_engine(image: &Image, work: impl FnOnce(&Client<'_>)) {
    let ext2 = image.open();
    let client = Client::new(&ext2);
    work(&client);
    // Drop the client first, because its references keep removed files as orphans, which e2fsck
    // would report.
    drop(client);
    ext2.sync().unwrap();
    image.check("after sync, while open");
    ext2.shutdown().unwrap();
}

/// Returns names with equal hashes: precomputed names for the hash function without a seed, and
/// pairs found by search for the others.
fn crowd(options: &MkfsOptions) -> Vec<String> {
    const NAMES: u32 = 160_000;
    let version = options.index.unwrap_or(HashVersion::HalfMd4);
    if version == HashVersion::Legacy {
        return collisions().map(|name| name.into_string().unwrap()).collect();
    }
    let hasher = Hasher::new(version, options.signed_hash, options.hash_seed);
    let (mut seen, mut found) = (HashMap::new(), Vec::new());
    for number in 0..NAMES {
        let name = format!("{:x<60}{number}", "");
        let hash = hasher.hash(name.as_bytes()).major;
        if let Some(other) = seen.insert(hash, number) {
            found.extend([format!("{:x<60}{other}", ""), name]);
        }
    }
    assert!(found.len() >= 2, "no two of {NAMES} names have one hash");
    found
}

fn run_script(image: &Image, seed: u64, crowd: &[String]) {
    let model = MemFs::default();
    let model = Client::new(&model);
    model.mkdir_mode(fslab_vfs::Ino::ROOT, "lost+found", 0o700).unwrap();
    let mut script = Script::new(seed).with_crowd(crowd.to_vec());
    for round in 0..ROUNDS {
        let when = |who: &str| format!("seed {seed}, round {round}, after the {who}");
        with_engine(image, |client| {
            script.run(client, &model, 120);
            compare(client, &model, &when("engine"));
        });
        image.check(&when("engine"));
        with_kernel(image, |client| {
            compare(client, &model, &when("engine, through the kernel"));
            script.run(client, &model, 60);
        });
        image.check(&when("kernel"));
        with_engine(image, |client| compare(client, &model, &when("kernel, by the engine")));
    }
}

#[track_caller]
fn agree(options: &MkfsOptions) {
    if !has("e2fsck") || !can_mount() {
        return;
    }
    let count = number("FSLAB_EXT2_SCRIPTS").unwrap_or(SCRIPTS);
    let first = seed();
    let legacy =
        MkfsOptions { index: options.index.and(Some(HashVersion::Legacy)), ..options.clone() };
    let kinds = [options, &legacy].map(|options| (options, crowd(options)));
    for seed in first..first + count {
        let (options, crowd) = &kinds[(seed % 2) as usize];
        run_script(&Image::new(IMAGE_BYTES, options), seed, crowd);
    }
}

#[test]
fn engine_and_kernel_agree_at_1_kib() {
    agree(&options(1024));
}

#[test]
fn engine_and_kernel_agree_at_2_kib() {
    agree(&MkfsOptions { inode_size: 128, ..options(2048) });
}

#[test]
fn engine_and_kernel_agree_at_4_kib() {
    agree(&options(4096));
}

#[test]
fn engine_and_kernel_agree_on_linear_directories() {
    agree(&MkfsOptions { index: None, ..options(1024) });
}

#[test]
fn images_of_mke2fs_are_filled_by_the_kernel_and_changed_by_the_engine() {
    if !has("e2fsck") || !has("mke2fs") || !can_mount() {
        return;
    }
    for block in ["1024", "2048", "4096"] {
        let image = Image::empty(IMAGE_BYTES);
        let made = std::process::Command::new("mke2fs")
            .args(["-q", "-F", "-t", "ext2", "-b", block, "-N", "12000"])
            .arg(image.path())
            .status()
            .unwrap();
        assert!(made.success());
        let (model, seed) = (MemFs::default(), seed());
        let model = Client::new(&model);
        model.mkdir_mode(fslab_vfs::Ino::ROOT, "lost+found", 0o700).unwrap();
        let mut script = Script::new(seed);
        with_kernel(&image, |client| script.run(client, &model, 200));
        with_engine(&image, |client| {
            compare(client, &model, &format!("seed {seed}, filled by the kernel"));
            script.run(client, &model, 200);
        });
        image.check(&format!("seed {seed}"));
        with_kernel(&image, |client| compare(client, &model, &format!("seed {seed}, at the end")));
    }
}
