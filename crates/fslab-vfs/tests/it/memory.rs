//! Tests guarantees that only the memory leaf gives: its limits, and that it forgets inodes.

use fslab_vfs::{Capacity, Errno, FallocateMode, FileSystem, Ino, MemFs, OpenMode, XattrMode};
use fslab_vfs_testing::client::Client;

const PAGE: u64 = 4096;

fn small(pages: u64) -> MemFs {
    MemFs::new(Capacity { bytes: pages * PAGE, inodes: 8 })
}

fn errno<T>(answer: fslab_vfs::Result<T>) -> Option<Errno> {
    answer.err().map(|error| error.errno())
}

fn pages_free(memory: &MemFs) -> u64 {
    let client = Client::new(memory);
    memory.statfs(&client.request(), Ino::ROOT).unwrap().blocks_free
}

#[test]
fn full_file_system_writes_what_fits() {
    let memory = small(4);
    let client = Client::new(&memory);
    let (_, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::empty()).unwrap();
    assert_eq!(file.write(0, &[1; 6 * PAGE as usize]).unwrap(), 4 * PAGE as usize);
    assert_eq!(errno(file.write(4 * PAGE, b"x")), Some(Errno::NOSPC));
    assert_eq!(file.attr().unwrap().size, 4 * PAGE);
    assert_eq!(file.write(0, b"overwriting needs no space").unwrap(), 26);
    assert_eq!(pages_free(&memory), 0);
}

#[test]
fn truncate_punch_and_unlink_free_space() {
    let memory = small(4);
    let client = Client::new(&memory);
    let (attr, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::empty()).unwrap();
    file.write_all(0, &[1; 4 * PAGE as usize]).unwrap();
    file.truncate(PAGE + 1).unwrap();
    assert_eq!(pages_free(&memory), 2);
    let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    file.fallocate(0, PAGE, punch).unwrap();
    assert_eq!(pages_free(&memory), 3);
    client.unlink(Ino::ROOT, "file").unwrap();
    assert_eq!(pages_free(&memory), 3, "an open file keeps its space");
    file.close().unwrap();
    client.forget(attr.ino);
    assert_eq!(pages_free(&memory), 4);
}

#[test]
fn reservation_is_whole_or_nothing() {
    let memory = small(4);
    let client = Client::new(&memory);
    let (_, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::empty()).unwrap();
    assert_eq!(errno(file.fallocate(0, 5 * PAGE, FallocateMode::empty())), Some(Errno::NOSPC));
    assert_eq!((file.attr().unwrap().size, pages_free(&memory)), (0, 4));
    // A request far beyond the capacity must be refused at once, not page by page.
    let all = i64::MAX as u64;
    assert_eq!(errno(file.fallocate(0, all, FallocateMode::empty())), Some(Errno::NOSPC));
    file.fallocate(PAGE, 3 * PAGE, FallocateMode::empty()).unwrap();
    assert_eq!(pages_free(&memory), 1);
    file.write_all(PAGE, &[1; 3 * PAGE as usize]).unwrap();
    assert_eq!(pages_free(&memory), 1);
}

#[test]
fn inodes_are_bounded() {
    let memory = small(4);
    let client = Client::new(&memory);
    for index in 0..7 {
        client.mkdir(Ino::ROOT, format!("{index}")).unwrap();
    }
    assert_eq!(errno(client.mkdir(Ino::ROOT, "more")), Some(Errno::NOSPC));
    let all = memory.statfs(&client.request(), Ino::ROOT).unwrap();
    assert_eq!((all.files, all.files_free), (8, 0));
    client.rmdir(Ino::ROOT, "0").unwrap();
    assert_eq!(errno(client.mkdir(Ino::ROOT, "more")), Some(Errno::NOSPC), "it is remembered");
    client.forget(client.lookup(Ino::ROOT, "1").unwrap().ino);
    drop(client);
    assert!(Client::new(&memory).mkdir(Ino::ROOT, "more").is_ok());
}

#[test]
fn link_count_is_limited_as_on_ext4() {
    let memory = MemFs::default();
    let client = Client::new(&memory);
    let ino = client.file(Ino::ROOT, "0", b"").unwrap();
    for index in 1..65_000 {
        client.link(ino, Ino::ROOT, format!("{index}")).unwrap();
    }
    assert_eq!(errno(client.link(ino, Ino::ROOT, "more")), Some(Errno::MLINK));
    client.unlink(Ino::ROOT, "7").unwrap();
    assert!(client.link(ino, Ino::ROOT, "more").is_ok());
}

#[test]
fn largest_file_ends_at_the_largest_offset() {
    let memory = MemFs::default();
    let client = Client::new(&memory);
    let (_, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::empty()).unwrap();
    let largest = i64::MAX as u64;
    assert_eq!(file.write(largest - 2, b"abc").unwrap(), 2, "what fits is written");
    assert_eq!(file.attr().unwrap().size, largest);
    assert_eq!(file.read(largest - 3, 100).unwrap(), b"\0ab");
    assert_eq!(errno(file.write(largest, b"x")), Some(Errno::FBIG));
    assert_eq!(errno(file.truncate(largest + 1)), Some(Errno::FBIG));
}

#[test]
fn space_for_extended_attributes_is_limited() {
    let memory = MemFs::default();
    let client = Client::new(&memory);
    let ino = client.file(Ino::ROOT, "file", b"").unwrap();
    let value = vec![1; 64 << 10];
    for index in 0..16 {
        client.setxattr(ino, &format!("user.{index}"), &value).unwrap();
    }
    let more = client.setxattr_mode(ino, "user.more", b"x", XattrMode::empty());
    assert_eq!(errno(more), Some(Errno::NOSPC));
    client.setxattr(ino, "user.0", b"a shorter value makes room").unwrap();
    client.setxattr(ino, "user.more", b"x").unwrap();
}

#[test]
fn closed_handles_and_forgotten_inodes_are_refused() {
    let memory = MemFs::default();
    let client = Client::new(&memory);
    let (attr, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::empty()).unwrap();
    let handle = file.handle;
    file.close().unwrap();
    let read = memory.read(&client.request(), attr.ino, handle, 0, &mut [0; 10]);
    assert_eq!(errno(read), Some(Errno::BADF));
    client.unlink(Ino::ROOT, "file").unwrap();
    assert_eq!(client.attr(attr.ino).unwrap().links, 0);
    client.forget(attr.ino);
    assert_eq!(errno(client.attr(attr.ino)), Some(Errno::STALE));
    assert_eq!(memory.inodes(), 1);
}

#[test]
fn readdir_callback_may_call_the_file_system() {
    let memory = MemFs::default();
    let client = Client::new(&memory);
    for index in 0..200 {
        client.file(Ino::ROOT, format!("{index}"), b"").unwrap();
    }
    let request = client.request();
    let handle = memory.opendir(&request, Ino::ROOT).unwrap();
    let mut found = 0;
    memory
        .readdir(&request, Ino::ROOT, handle, 0, &mut |entry| {
            if entry.name != "." && entry.name != ".." {
                found += usize::from(client.lookup(Ino::ROOT, entry.name).is_ok());
            }
            true
        })
        .unwrap();
    memory.releasedir(&request, Ino::ROOT, handle).unwrap();
    assert_eq!(found, 200);
}

#[test]
fn writing_removes_file_capabilities() {
    const CAPABILITY: &str = "security.capability";
    let memory = MemFs::default();
    let client = Client::new(&memory);
    let (attr, file) = client.create(Ino::ROOT, "file", 0o755, OpenMode::empty()).unwrap();
    client.setxattr(attr.ino, CAPABILITY, b"value").unwrap();
    file.write_all(0, b"x").unwrap();
    assert_eq!(errno(client.getxattr(attr.ino, CAPABILITY)), Some(Errno::NODATA));
}

#[test]
fn inode_numbers_are_reused_only_on_request() {
    for (memory, is_reused) in [(MemFs::reusing_numbers(), true), (MemFs::default(), false)] {
        let client = Client::new(&memory);
        let first = client.file(Ino::ROOT, "first", b"first").unwrap();
        let generation = |name: &str| {
            let name = fslab_vfs::Name::new(name.as_ref()).unwrap();
            let entry = memory.lookup(&client.request(), Ino::ROOT, name).unwrap();
            memory.forget(entry.attr.ino, 1);
            entry.generation
        };
        let before = generation("first");
        client.unlink(Ino::ROOT, "first").unwrap();
        assert_ne!(client.file(Ino::ROOT, "second", b"").unwrap(), first, "it is remembered");
        client.forget(first);
        let third = client.file(Ino::ROOT, "third", b"").unwrap();
        assert_eq!((third == first, generation("third") != before), (is_reused, is_reused));
    }
}
