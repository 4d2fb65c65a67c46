//! Inode numbers: used again for other files.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use fslab_tier::Settings;
use fslab_vfs::{Cancellation, Errno, Ino, MemFs, OpenMode, Request};

use crate::support::{Bench, MIB, TIER, noise};

/// Asks for the first block of a file and is signalled before it comes.
fn give_up_reading(bench: &Bench, ino: Ino) {
    let cancellation = Cancellation::new(Arc::new(AtomicU64::new(7)), 7);
    let request = Request { cancellation, ..Request::default() };
    let handle = bench.fs.open(&request, ino, OpenMode::empty()).unwrap().handle;
    let refused = bench.fs.read(&request, ino, handle, 0, &mut [0; 100]).unwrap_err();
    assert_eq!(refused.errno(), Errno::INTR);
    bench.fs.release(&request, ino, handle).unwrap();
}

/// Writes below, as the kernel does by itself where a file is wholly here.
fn write_below(bench: &Bench, ino: Ino, data: &[u8]) {
    let below = bench.below();
    let file = below.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, data).unwrap();
    file.close().unwrap();
}

#[test]
fn a_recall_that_outlives_its_file_does_not_reach_the_next_one_of_its_number() {
    // One thread recalls, one block after the other.
    let settings = Settings { movers: 1, ahead: 0, ..Settings::of(TIER) };
    let bench = Bench::with(Arc::new(MemFs::reusing_numbers()), settings, 1);
    let client = bench.client();
    let ino = bench.offline(&client, "first", &noise(1, MIB));
    let last = bench.offline(&client, "last", &noise(2, MIB));
    *bench.archives[0].faults().stalled.lock() = true;
    give_up_reading(&bench, ino);
    client.unlink(Ino::ROOT, "first").unwrap();
    client.forget(ino);
    let next = client.file(Ino::ROOT, "next", b"").unwrap();
    write_below(&bench, next, &noise(3, MIB));
    bench.archives[0].faults().resume();
    assert!(client.contents(last).unwrap() == noise(2, MIB));
    assert!(bench.below().contents(next).unwrap() == noise(3, MIB), "overwritten");
    assert_eq!(bench.below().listxattr(next).unwrap(), Vec::<String>::new());
    assert!(client.contents(next).unwrap() == noise(3, MIB));
    assert_ne!(next, ino);
    assert_eq!(client.file(Ino::ROOT, "again", b"").unwrap(), ino, "it is free by now");
}
