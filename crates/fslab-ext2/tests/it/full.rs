//! Tests images without a free block or inode: operations fail, but no data is lost or damaged.

use fslab_ext2::MkfsOptions;
use fslab_vfs::{Errno, Ino, OpenMode};
use fslab_vfs_testing::client::Client;

use crate::support::{Image, has, options};

fn errno<T>(answer: fslab_vfs::Result<T>) -> Option<Errno> {
    answer.err().map(|error| error.errno())
}

#[test]
fn filling_an_image_returns_nospc_and_keeps_it_clean() {
    if !has("e2fsck") {
        return;
    }
    for block in [1024, 2048, 4096] {
        let image = Image::new(8 << 20, &MkfsOptions { reserved_percent: 0, ..options(block) });
        let ext2 = image.open();
        let client = Client::new(&ext2);
        let (_, file) = client.create(Ino::ROOT, "large", 0o600, OpenMode::EXCLUSIVE).unwrap();
        let piece = vec![7; 70_000];
        let mut size = 0;
        let refused = loop {
            match file.write(size, &piece) {
                Ok(length) => size += length as u64,
                Err(error) => break error.errno(),
            }
        };
        assert_eq!(refused, Errno::NOSPC);
        assert!(size > 6 << 20, "only {size} bytes fit");
        assert_eq!(file.attr().unwrap().size, size);
        // Each of these operations needs a block and must not leave anything behind when it fails.
        let long = "l".repeat(200);
        for index in 0..40 {
            let name = format!("directory{index}");
            assert_eq!(errno(client.mkdir(Ino::ROOT, &name)), Some(Errno::NOSPC));
            assert_eq!(errno(client.symlink(Ino::ROOT, &name, &long)), Some(Errno::NOSPC));
        }
        file.close().unwrap();
        drop(client);
        ext2.sync().unwrap();
        image.check(&format!("full, blocks of {block}"));
        let client = Client::new(&ext2);
        client.unlink(Ino::ROOT, "large").unwrap();
        client.mkdir(Ino::ROOT, "room again").unwrap();
        drop(client);
        ext2.sync().unwrap();
        image.check(&format!("room again, blocks of {block}"));
    }
}

#[test]
fn all_names_are_found_after_blocks_run_out() {
    if !has("e2fsck") {
        return;
    }
    let options = MkfsOptions { bytes_per_inode: 1024, reserved_percent: 0, ..options(1024) };
    let image = Image::new(2 << 20, &options);
    let ext2 = image.open();
    let client = Client::new(&ext2);
    let long = "n".repeat(220);
    let name = |index: u32| format!("{index}{long}");
    let mut made = 0;
    while errno(client.file(Ino::ROOT, name(made), b"x")).is_none() {
        made += 1;
    }
    assert!(made > 300, "only {made}");
    for index in 0..made {
        assert!(client.exists(Ino::ROOT, name(index)).unwrap(), "{index}");
    }
    drop(client);
    ext2.sync().unwrap();
    image.check("full of names");
}

#[test]
fn exhausted_inodes_return_nospc_and_can_be_reused() {
    if !has("e2fsck") {
        return;
    }
    let image = Image::new(4 << 20, &MkfsOptions { bytes_per_inode: 65_536, ..options(1024) });
    let ext2 = image.open();
    let client = Client::new(&ext2);
    let mut made = 0;
    while errno(client.file(Ino::ROOT, format!("{made}"), b"")).is_none() {
        made += 1;
    }
    assert_eq!(errno(client.mkdir(Ino::ROOT, "more")), Some(Errno::NOSPC));
    assert_eq!(errno(client.tmpfile(Ino::ROOT, 0o600, OpenMode::READ_WRITE)), Some(Errno::NOSPC));
    drop(client);
    let client = Client::new(&ext2);
    client.unlink(Ino::ROOT, "0").unwrap();
    client.mkdir(Ino::ROOT, "more").unwrap();
    drop(client);
    ext2.sync().unwrap();
    image.check("without inodes");
}

#[test]
fn ordinary_users_cannot_use_reserved_blocks() {
    let image = Image::new(8 << 20, &MkfsOptions { reserved_percent: 50, ..options(1024) });
    let ext2 = image.open();
    let root = Client::new(&ext2);
    let home = root.mkdir_mode(Ino::ROOT, "home", 0o777).unwrap().ino;
    let user = root.as_user(1000, 1000);
    let (_, file) = user.create(home, "file", 0o600, OpenMode::EXCLUSIVE).unwrap();
    let mut size = 0;
    while let Ok(length) = file.write(size, &[1; 4096]) {
        size += length as u64;
    }
    assert!(size > 2 << 20 && size < 4 << 20, "{size} bytes of 8 MiB, half of it reserved");
    root.file(home, "of root", &vec![1; 1 << 20]).unwrap();
}
