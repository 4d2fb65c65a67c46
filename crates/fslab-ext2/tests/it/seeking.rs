//! Tests that listings continue from any earlier position, as after `seekdir`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::Arc;

use fslab_ext2::{Ext2, Form, HashVersion, MkfsOptions, VolumeOptions, mkfs};
use fslab_vfs::{BlockDevice, FileSystem, Ino, MemoryDevice};
use fslab_vfs_testing::client::{Client, Listed};
use fslab_vfs_testing::environment::seed;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::support::{in_memory, options};

fn kinds() -> [MkfsOptions; 3] {
    [
        MkfsOptions { bytes_per_inode: 1024, ..options(1024) },
        MkfsOptions { bytes_per_inode: 1024, index: None, ..options(1024) },
        MkfsOptions { bytes_per_inode: 1024, ..options(4096) },
    ]
}

/// Lists a directory from a position to its end, `room` entries at a time.
fn rest(client: &Client<'_>, directory: Ino, from: u64, room: usize) -> Vec<Listed> {
    let listing = client.opendir(directory).unwrap();
    let (mut all, mut offset): (Vec<Listed>, _) = (Vec::new(), from);
    loop {
        let piece = listing.next(offset, room).unwrap();
        let Some(last) = piece.last() else { return all };
        offset = last.next_offset;
        all.extend(piece);
    }
}

#[test]
fn listing_resumes_from_every_earlier_position() {
    let mut random = Pcg64::seed_from_u64(seed());
    for made in kinds() {
        for names in [0, 1, 20, 1500] {
            let ext2 = in_memory(16 << 20, &made);
            let client = Client::new(&ext2);
            let directory = client.mkdir(Ino::ROOT, "names").unwrap();
            for number in 0..names {
                client.file(directory, format!("name{number}"), b"").unwrap();
            }
            let whole = rest(&client, directory, 0, 100);
            assert_eq!(whole.len(), names + 2);
            for _ in 0..100 {
                let at = random.random_range(0..=whole.len());
                let from = if at == 0 { 0 } else { whole[at - 1].next_offset };
                let room = random.random_range(1..600);
                assert!(rest(&client, directory, from, room) == whole[at..], "from entry {at}");
            }
            drop(client);
            ext2.shutdown().unwrap();
        }
    }
}

/// Each remaining name is listed exactly once after every earlier position, regardless of other
/// names that are added and removed.
#[test]
fn positions_stay_valid_while_names_are_added_and_removed() {
    let mut random = Pcg64::seed_from_u64(seed());
    for made in kinds() {
        let ext2 = in_memory(24 << 20, &made);
        let client = Client::new(&ext2);
        let directory = client.mkdir(Ino::ROOT, "names").unwrap();
        // Every third name is kept.
        let mut count = 0;
        let mut passing: Vec<String> = Vec::new();
        let stays = |number: u32| number.is_multiple_of(3);
        for _ in 0..1200 {
            client.file(directory, format!("name{count}"), b"").unwrap();
            if !stays(count) {
                passing.push(format!("name{count}"));
            }
            count += 1;
        }
        let whole = rest(&client, directory, 0, 50);
        for _ in 0..40 {
            for _ in 0..random.random_range(1..80) {
                if random.random() && !passing.is_empty() {
                    let gone = passing.swap_remove(random.random_range(0..passing.len()));
                    client.unlink(directory, gone).unwrap();
                } else {
                    client.file(directory, format!("new{count}"), b"").unwrap();
                    passing.push(format!("new{count}"));
                    count += 1;
                }
            }
            let at = random.random_range(1..whole.len());
            let found = rest(&client, directory, whole[at - 1].next_offset, 30);
            let names: BTreeSet<OsString> = found.iter().map(|one| one.name.clone()).collect();
            assert_eq!(names.len(), found.len(), "a name was listed twice");
            let expected = whole[at..].iter().filter(|one| {
                let name = one.name.to_string_lossy();
                name.strip_prefix("name").is_some_and(|number| stays(number.parse().unwrap()))
            });
            for one in expected {
                assert!(names.contains(&one.name), "{:?} is missing from entry {at} on", one.name);
            }
        }
        drop(client);
        ext2.shutdown().unwrap();
    }
}

/// Records the positions in a filled directory, then lets it shrink to a few names and grow again.
/// Asserts that the kept names are found from every position.
#[track_caller]
fn assert_positions_outlast(ext2: &dyn FileSystem, is_kept: impl Fn(usize) -> bool) {
    let client = Client::new(ext2);
    let directory = client.lookup(Ino::ROOT, "names").unwrap().ino;
    let whole = rest(&client, directory, 0, 50);
    let mut kept = Vec::new();
    for (at, one) in whole.iter().enumerate().filter(|(_, one)| !is_dot(&one.name)) {
        if is_kept(at) {
            kept.push((at, one.name.clone()));
        } else {
            client.unlink(directory, &one.name).unwrap();
        }
    }
    let see = |when: &str| {
        for (at, one) in whole.iter().enumerate() {
            let found = rest(&client, directory, one.next_offset, 50);
            let names: BTreeSet<_> = found.iter().map(|one| &one.name).collect();
            assert_eq!(names.len(), found.len(), "{when}: a name was listed twice");
            for (place, name) in &kept {
                let is_listed = names.contains(name);
                assert_eq!(is_listed, *place > at, "{when}: {name:?}, {place}, from entry {at} on");
            }
        }
    };
    see("small");
    for number in 0..300 {
        client.file(directory, format!("again{number}"), b"").unwrap();
    }
    see("grown");
}

fn is_dot(name: &OsString) -> bool {
    name == "." || name == ".."
}

/// Makes a file system with a directory `names` that was filled with these options.
fn filled(made: &MkfsOptions, form: Option<Form>, names: u32) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    mkfs(&*device, made).unwrap();
    let options = VolumeOptions { form, ..VolumeOptions::default() };
    let ext2 = Ext2::open(Arc::clone(&device) as Arc<dyn BlockDevice>, options).unwrap();
    let client = Client::new(&ext2);
    let directory = client.mkdir(Ino::ROOT, "names").unwrap();
    for number in 0..names {
        client.file(directory, format!("name{number}"), b"").unwrap();
    }
    drop(client);
    ext2.shutdown().unwrap();
    device
}

#[test]
fn positions_of_an_indexed_directory_stay_valid_on_a_linear_volume() {
    let made = MkfsOptions { bytes_per_inode: 1024, ..options(1024) };
    let device = filled(&made, None, 400);
    let linear = VolumeOptions { form: Some(Form::Linear), ..VolumeOptions::default() };
    let ext2 = Ext2::open(device, linear).unwrap();
    assert_positions_outlast(&ext2, |at| at % 40 == 2);
    ext2.shutdown().unwrap();
}

#[test]
fn positions_of_a_linear_directory_stay_valid_on_an_indexed_volume() {
    let made = MkfsOptions { bytes_per_inode: 1024, ..options(1024) };
    let device = filled(&made, Some(Form::Linear), 400);
    let ext2 = Ext2::open(device, VolumeOptions::default()).unwrap();
    assert_positions_outlast(&ext2, |at| at < 10);
    ext2.shutdown().unwrap();
}

/// The hash function in the superblock is changed, as `tune2fs -E hash_alg` does.
#[test]
fn positions_stay_valid_after_the_hash_function_changes() {
    let made = MkfsOptions { bytes_per_inode: 1024, ..options(1024) };
    let device = filled(&made, None, 400);
    let hash_version = 1024 + 252;
    device.write_at(hash_version, &[HashVersion::Tea.code()]).unwrap();
    let ext2 = Ext2::open(device, VolumeOptions::default()).unwrap();
    assert_positions_outlast(&ext2, |at| at % 40 == 2);
    ext2.shutdown().unwrap();
}

#[test]
fn listings_by_inode_are_sorted_and_resume_from_every_position() {
    let mut random = Pcg64::seed_from_u64(seed());
    for made in kinds() {
        let device = Arc::new(MemoryDevice::new(16 << 20));
        mkfs(&*device, &made).unwrap();
        let by_inode = VolumeOptions { list_by_inode: true, ..VolumeOptions::default() };
        let ext2 = Ext2::open(device, by_inode).unwrap();
        let client = Client::new(&ext2);
        let directory = client.mkdir(Ino::ROOT, "names").unwrap();
        for number in 0..1500 {
            client.file(directory, format!("name{}", number * 7919 % 1500), b"").unwrap();
        }
        let listing = client.opendir(directory).unwrap();
        let whole = rest(&client, directory, 0, 100);
        let inodes: Vec<Ino> = whole[2..].iter().map(|listed| listed.ino).collect();
        assert!(inodes.len() == 1500 && inodes.is_sorted(), "{inodes:?}");
        assert_eq!(whole[0].name, ".");
        assert_eq!(whole[1].name, "..");
        for _ in 0..100 {
            let at = random.random_range(1..whole.len());
            let next = listing.next(whole[at - 1].next_offset, 1).unwrap();
            assert_eq!(next[0].name, whole[at].name, "from entry {at}");
        }
        // A new listing contains new names, and so does a listing that is restarted.
        client.unlink(directory, "name0").unwrap();
        client.file(directory, "other", b"").unwrap();
        let again = rest(&client, directory, 0, 100);
        assert!(again.len() == whole.len() && again[2..].is_sorted_by_key(|listed| listed.ino));
        assert!(again.iter().any(|listed| listed.name == "other"));
        assert!(listing.next(0, usize::MAX).unwrap() == again);
    }
}
