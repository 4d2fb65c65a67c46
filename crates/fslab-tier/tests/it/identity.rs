//! Inode numbers that are reused for other files, or differ between sessions.

use fslab_vfs_testing::scratch;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use fslab_sys::mounts::Mount;
use fslab_tier::catalogue::Catalogue;
use fslab_tier::{Settings, own_request};
use fslab_vfs::{
    Cancellation, Errno, FileSystem, HostFs, HostOptions, Ino, MemFs, OpenMode, Request,
};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::skip::skip;
use tempfile::TempDir;

use crate::support::{Bench, MIB, TIER, noise, open};

/// Requests the first block of a file, but is interrupted before the block is recalled.
fn give_up_reading(bench: &Bench, ino: Ino) {
    let cancellation = Cancellation::new(Arc::new(AtomicU64::new(7)), 7);
    let request = Request { cancellation, ..Request::default() };
    let handle = bench.fs.open(&request, ino, OpenMode::empty()).unwrap().handle;
    let refused = bench.fs.read(&request, ino, handle, 0, &mut [0; 100]).unwrap_err();
    assert_eq!(refused.errno(), Errno::INTR);
    bench.fs.release(&request, ino, handle).unwrap();
}

/// Writes to the lower file, as the kernel does by itself for a resident file.
fn write_below(bench: &Bench, ino: Ino, data: &[u8]) {
    let below = bench.below();
    let file = below.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, data).unwrap();
    file.close().unwrap();
}

#[test]
fn recall_of_a_removed_file_does_not_write_to_a_reused_inode() {
    // One thread recalls one block after the other.
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

/// Opens a tree with two other file systems mounted in it, and looks these up in the given order.
fn host(root: &Path, order: [&str; 2]) -> Arc<dyn FileSystem> {
    let host = HostFs::open(root, &HostOptions::default()).unwrap();
    let client = Client::new(&host);
    for name in order {
        client.lookup(Ino::ROOT, name).unwrap();
    }
    drop(client);
    Arc::new(host)
}

fn has_user_xattrs(path: &Path) -> bool {
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(path, "user.test", b"", flags) != Err(rustix::io::Errno::OPNOTSUPP)
}

#[test]
fn stubs_on_other_devices_are_usable_in_any_order_of_lookups() {
    const TEST: &str = "stubs_on_other_devices_are_usable_in_any_order_of_lookups";
    if !rustix::process::geteuid().is_root() {
        return skip(TEST, "not root");
    }
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let mounts = ["a", "b"].map(|name| {
        let point = scratch.path().join(name);
        std::fs::create_dir(&point).unwrap();
        Mount::new(Path::new("tmpfs"), &point, "tmpfs", "").unwrap()
    });
    if !has_user_xattrs(mounts[0].target()) {
        return skip(TEST, "tmpfs has no xattrs of users");
    }
    let bench = Bench::over(host(scratch.path(), ["b", "a"]));
    let client = bench.client();
    for (seed, name) in [(1, "a"), (2, "b")] {
        let directory = client.lookup(Ino::ROOT, name).unwrap().ino;
        let ino = client.file(directory, "file", &noise(seed, MIB)).unwrap();
        bench.archive(ino, &format!("{name}/file")).unwrap();
        bench.release(ino, &format!("{name}/file")).unwrap();
    }
    drop(client);
    let (archives, around) = (bench.archives.clone(), bench.around.clone());
    drop(bench);
    let lower = host(scratch.path(), ["a", "b"]);
    let catalogue = Catalogue::in_memory().unwrap();
    let (tier, fs) = open(&lower, &Settings::of(TIER), &archives, catalogue, &around);
    let scanned = tier.scan(&own_request()).unwrap();
    assert_eq!((scanned.offline, scanned.damaged), (2, vec![]));
    let client = Client::new(&*fs);
    for (seed, name) in [(1, "a"), (2, "b")] {
        let directory = client.lookup(Ino::ROOT, name).unwrap().ino;
        let ino = client.lookup(directory, "file").unwrap().ino;
        assert!(client.contents(ino).unwrap() == noise(seed, MIB), "{name}");
    }
    drop(client);
    drop((fs, tier, lower));
    for mount in mounts {
        mount.unmount().unwrap();
    }
}
