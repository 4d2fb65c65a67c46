//! Tests a failing device: earlier durable data is kept, and a sync succeeds only if its data is
//! durable.

use fslab_ext2::check::check;
use fslab_ext2::format::{STATE_CLEAN, STATE_ERRORS, SUPERBLOCK_OFFSET};
use fslab_ext2::{MkfsOptions, Superblock, VolumeOptions};
use fslab_vfs::{BlockDevice, Errno, FileSystem, Ino, OpenMode};
use fslab_vfs_testing::client::Client;

use crate::support::{Fault, FaultyDevice, options};

/// Image size in bytes.
const BYTES: u64 = 2 << 20;
const BLOCK: usize = 1024;
/// Upper bound for the number of flushes in one sync.
const FLUSHES_MAX: i64 = 20;

#[test]
fn sync_with_a_failed_flush_fails_and_the_next_one_retries() {
    let mut failed = 0;
    for flushes in 0..FLUSHES_MAX {
        let device = FaultyDevice::new(BYTES, &options(BLOCK as u32));
        let ext2 = device.open(VolumeOptions::default());
        let client = Client::new(&ext2);
        client.file(Ino::ROOT, "file", &[1; 3 * BLOCK]).unwrap();
        device.fail_after(Fault::Flush, flushes);
        if ext2.sync().is_ok() {
            break;
        }
        failed += 1;
        ext2.sync().expect_err("nothing was made durable meanwhile");
        device.mend(Fault::Flush);
        ext2.sync().unwrap();
    }
    assert!((3..FLUSHES_MAX).contains(&failed), "{failed} orders in one sync");
}

/// Blocks of a removed file must not be overwritten until a flush succeeds, because until then the
/// device refers to them.
#[test]
fn freed_blocks_are_not_reused_before_a_successful_flush() {
    let mut failed = 0;
    for flushes in 0..FLUSHES_MAX {
        let made = MkfsOptions { reserved_percent: 0, ..options(BLOCK as u32) };
        let device = FaultyDevice::new(BYTES, &made);
        let ext2 = device.open(VolumeOptions::default());
        let client = Client::new(&ext2);
        let large = client.file(Ino::ROOT, "large", &[7; 1800 * BLOCK]).unwrap();
        let places = ext2.layout().unwrap().extents(large).unwrap();
        client.forget(large);
        ext2.sync().unwrap();
        client.unlink(Ino::ROOT, "large").unwrap();
        device.fail_after(Fault::Flush, flushes);
        if ext2.sync().is_ok() {
            break;
        }
        failed += 1;
        let refused = client.file(Ino::ROOT, "new", &[8; 1000 * BLOCK]).unwrap_err();
        assert!([Errno::IO, Errno::NOSPC].contains(&refused.errno()), "{refused}");
        for place in &places {
            let mut bytes = vec![0; place.length as usize];
            device.read_at(place.physical, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 7), "at {}", place.physical);
        }
        device.mend(Fault::Flush);
        client.file(Ino::ROOT, "newer", &[8; 1000 * BLOCK]).unwrap();
    }
    assert!((3..FLUSHES_MAX).contains(&failed), "{failed} orders in one sync");
}

/// Returns the superblock's state on the device: whether it is clean, and whether errors were
/// recorded.
fn state(device: &FaultyDevice) -> (bool, bool) {
    let state = Superblock::read(device).unwrap().raw().s_state.get();
    (state & STATE_CLEAN != 0, state & STATE_ERRORS != 0)
}

#[test]
fn invalid_orphans_do_not_block_access_to_other_files() {
    // Offset of `s_last_orphan` in the superblock.
    const LAST_ORPHAN: u64 = 232;
    // An unused inode, a reserved inode, and one that does not exist.
    for no in [100_u32, 7, 1 << 30] {
        let device = FaultyDevice::new(BYTES, &options(BLOCK as u32));
        let ext2 = device.open(VolumeOptions::default());
        Client::new(&ext2).file(Ino::ROOT, "file", b"bytes").unwrap();
        ext2.shutdown().unwrap();
        assert_eq!(state(&device), (true, false));
        device.write_at(SUPERBLOCK_OFFSET + LAST_ORPHAN, &no.to_le_bytes()).unwrap();
        let ext2 = device.open(VolumeOptions::default());
        let client = Client::new(&ext2);
        let file = client.lookup(Ino::ROOT, "file").unwrap().ino;
        assert_eq!(client.contents(file).unwrap(), b"bytes");
        drop(client);
        ext2.shutdown().unwrap();
        assert_eq!(state(&device), (false, true), "inode {no}");
        assert_eq!(Superblock::read(&*device).unwrap().raw().s_last_orphan.get(), 0);
    }
}

/// Moving a name back and forth flushes the device in between. If that flush fails, all names still
/// exist and refer to the same inodes.
#[test]
fn a_rename_that_fails_changes_no_name() {
    for replaces in [false, true] {
        let device = FaultyDevice::new(BYTES, &options(BLOCK as u32));
        let ext2 = device.open(VolumeOptions::default());
        let client = Client::new(&ext2);
        let [one, other] = ["one", "other"].map(|name| client.mkdir(Ino::ROOT, name).unwrap());
        client.file(one, "there", b"there").unwrap();
        client.file(other, "back", b"back").unwrap();
        if replaces {
            client.file(one, "new", b"replaced").unwrap();
        }
        ext2.sync().unwrap();
        client.rename(one, "there", other, "there").unwrap();
        device.fail_after(Fault::Write, 0);
        client.rename(other, "back", one, "new").unwrap_err();
        device.mend(Fault::Write);
        let is = |directory, name, bytes: &[u8]| {
            let ino = client.lookup(directory, name).unwrap().ino;
            assert_eq!(client.contents(ino).unwrap(), bytes, "{name}");
        };
        is(other, "back", b"back");
        assert_eq!(client.exists(one, "new").unwrap(), replaces);
        if replaces {
            is(one, "new", b"replaced");
        }
        client.rename(other, "back", one, "new").unwrap();
        is(one, "new", b"back");
        drop(client);
        ext2.shutdown().unwrap();
        assert_eq!(state(&device), (true, false));
        let report = check(device).unwrap();
        assert!(report.is_clean(), "{:?}", report.findings);
    }
}

/// Damage in one block of a directory does not prevent the removal of names in its other blocks.
/// The image records the damage.
#[test]
fn names_beside_damage_can_be_removed_and_damage_is_recorded() {
    const NAMES: u32 = 60;
    let device = FaultyDevice::new(BYTES, &options(BLOCK as u32));
    let ext2 = device.open(VolumeOptions::default());
    let client = Client::new(&ext2);
    let directory = client.mkdir(Ino::ROOT, "names").unwrap();
    let name = |number: u32| format!("{number}-{:n<60}", "");
    for number in 0..NAMES {
        client.file(directory, name(number), b"").unwrap();
    }
    drop(client);
    ext2.shutdown().unwrap();
    assert_eq!(state(&device), (true, false));
    let places = ext2.layout().unwrap().extents(directory).unwrap();
    // The last leaf begins with a record of length 0.
    let last = places.last().unwrap();
    device.write_at(last.physical + last.length - BLOCK as u64 + 4, &[0; 2]).unwrap();
    drop(ext2);
    let ext2 = device.open(VolumeOptions::default());
    let client = Client::new(&ext2);
    client.list(directory).unwrap_err();
    ext2.sync().unwrap();
    assert_eq!(state(&device), (false, true), "after damage was read");
    let free = || ext2.statfs(&client.request(), Ino::ROOT).unwrap().files_free;
    let (before, mut removed) = (free(), 0);
    for number in 0..NAMES {
        let answer = Client::new(&ext2).unlink(directory, name(number));
        match client.exists(directory, name(number)) {
            Ok(true) => panic!("{number} is there: {answer:?}"),
            Ok(false) => {
                answer.unwrap();
                removed += 1;
            }
            Err(_) => assert!(answer.is_err(), "{number}"),
        }
    }
    assert!(removed > NAMES / 2 && removed < u64::from(NAMES).try_into().unwrap(), "{removed}");
    assert_eq!(free(), before + u64::from(removed));
    drop(client);
    ext2.shutdown().unwrap();
    assert_eq!(state(&device), (false, true));
}

#[test]
fn undeletable_removed_file_does_not_block_other_writes() {
    // Offset of the pointer to the first indirect block, in an inode of 256 bytes.
    const INDIRECT: u64 = 40 + 12 * 4;
    const INODE_BYTES: u64 = 256;
    let device = FaultyDevice::new(BYTES, &options(BLOCK as u32));
    let ext2 = device.open(VolumeOptions::default());
    let client = Client::new(&ext2);
    let ino = client.file(Ino::ROOT, "large", &[7; 20 * BLOCK]).unwrap();
    let table = u64::from(ext2.groups()[0].inode_table.0) * BLOCK as u64;
    drop(client);
    ext2.shutdown().unwrap();
    drop(ext2);
    let mut pointer = [0; 4];
    device.read_at(table + (ino.0 - 1) * INODE_BYTES + INDIRECT, &mut pointer).unwrap();
    let indirect = u64::from(u32::from_le_bytes(pointer)) * BLOCK as u64;
    device.write_at(indirect, &u32::MAX.to_le_bytes()).unwrap();
    let ext2 = device.open(VolumeOptions::default());
    let client = Client::new(&ext2);
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    client.lookup(Ino::ROOT, "large").unwrap();
    client.unlink(Ino::ROOT, "large").unwrap();
    client.mkdir(Ino::ROOT, "kept").unwrap();
    ext2.shutdown().unwrap_err();
    assert_eq!(state(&device), (false, true));
    let again = device.open(VolumeOptions::default());
    Client::new(&again).lookup(Ino::ROOT, "kept").unwrap();
    file.close().unwrap();
}

#[test]
fn reading_succeeds_if_access_times_cannot_be_written() {
    let device = FaultyDevice::new(BYTES, &options(BLOCK as u32));
    let ext2 = device.open(VolumeOptions { dirty_bytes_max: 0, ..VolumeOptions::default() });
    let client = Client::new(&ext2);
    let file = client.file(Ino::ROOT, "file", b"bytes").unwrap();
    let link = client.symlink(Ino::ROOT, "link", "target").unwrap();
    client.mkdir(Ino::ROOT, "directory").unwrap();
    device.fail_after(Fault::Write, 0);
    client.mkdir(Ino::ROOT, "refused").unwrap_err();
    assert_eq!(client.contents(file).unwrap(), b"bytes");
    assert_eq!(client.readlink(link.ino).unwrap(), "target");
    assert_eq!(client.list(Ino::ROOT).unwrap().len(), 4);
}
