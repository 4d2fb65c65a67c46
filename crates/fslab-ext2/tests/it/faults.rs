//! A device that fails: what was promised is not taken back, and nothing is promised that is not so.

use fslab_ext2::format::{STATE_CLEAN, STATE_ERRORS, SUPERBLOCK_OFFSET};
use fslab_ext2::{MkfsOptions, Superblock, VolumeOptions};
use fslab_vfs::testing::client::Client;
use fslab_vfs::{BlockDevice, Errno, FileSystem, Ino};

use crate::support::{Fault, FaultyDevice, options};

/// Of an image.
const BYTES: u64 = 2 << 20;
const BLOCK: usize = 1024;
/// More orders to make durable than one sync gives.
const FLUSHES_MAX: i64 = 20;

#[test]
fn a_sync_whose_order_failed_is_none_and_the_next_one_asks_again() {
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

/// Bytes of a removed file, which the device leads to until an order to make durable succeeds, are
/// not written over before one does.
#[test]
fn what_was_freed_is_not_used_again_before_the_device_confirmed_it() {
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

/// What the superblock on the device says: whether all is in order, and whether errors were seen.
fn state(device: &FaultyDevice) -> (bool, bool) {
    let state = Superblock::read(device).unwrap().raw().s_state.get();
    (state & STATE_CLEAN != 0, state & STATE_ERRORS != 0)
}

#[test]
fn orphans_that_can_not_be_freed_keep_nobody_from_the_other_files() {
    // Of `s_last_orphan` within the superblock.
    const LAST_ORPHAN: u64 = 232;
    // One that was never used, a reserved one, one that doesn't exist.
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
