//! Tests compatibility with earlier versions. mkfs still makes identical images. An image of the
//! first version can be read and changed, and is left clean.

use std::path::PathBuf;
use std::sync::Arc;

use fslab_ext2::{BlockSize, Ext2, HashVersion, MkfsOptions, VolumeOptions, mkfs};
use fslab_vfs::{BlockDevice, FileKind, Ino, MemoryDevice};
use fslab_vfs_testing::client::Client;

use crate::support::{Image, NOW, has, options};

const IMAGE_BYTES: u64 = 2 << 20;
const BLOCK: usize = 1024;

/// The 64-bit FNV-1a hash, which is sufficient to detect a change.
fn digest(device: &MemoryDevice) -> u64 {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Equal arguments produce equal images in all versions of this program. If a digest must change,
/// mention in the changelog that images differ.
#[test]
fn mkfs_images_match_recorded_digests() {
    let small = options(1024);
    let linear = MkfsOptions { index: None, inode_size: 128, ..options(2048) };
    let tea = MkfsOptions {
        index: Some(HashVersion::Tea),
        signed_hash: false,
        label: b"golden".to_vec(),
        uuid: [9; 16],
        large_directories: true,
        reserved_percent: 1,
        ..options(4096)
    };
    let simulated = MkfsOptions { simulation: true, ..options(16_384) };
    let digests = [small, linear, tea, simulated].map(|options| {
        let device = MemoryDevice::new(40 << 20);
        mkfs(&device, &options).unwrap();
        format!("{:016x}", digest(&device))
    });
    assert_eq!(digests, DIGESTS);
}

const DIGESTS: [&str; 4] =
    ["bef5badabd365082", "bdf14485bf0d21b8", "f325b9d971d68811", "6bad0c2c63c6f7c7"];

fn path() -> PathBuf {
    PathBuf::from("tests/golden/version-1.blocks")
}

fn name(number: u32) -> String {
    format!("{number} {}", "n".repeat(number as usize % 90))
}

/// Fills an image with files of all kinds.
fn fill(client: &Client<'_>) {
    let many = client.mkdir(Ino::ROOT, "many").unwrap();
    for number in 0..120 {
        client.file(many, name(number), &vec![b'm'; number as usize]).unwrap();
    }
    let file = client.file(Ino::ROOT, "large", &vec![7; 300_000]).unwrap();
    client.truncate(file, 100_000_000).unwrap();
    client.link(file, many, "second name").unwrap();
    client.setxattr(file, "user.small", b"value").unwrap();
    client.setxattr(file, "user.long", &[1; 500]).unwrap();
    client.symlink(Ino::ROOT, "fast", "target").unwrap();
    client.symlink(Ino::ROOT, "slow", "t".repeat(300)).unwrap();
    client.mknod(Ino::ROOT, "null", 0o020_666, 0x103).unwrap();
}

/// Writes the golden file. Used with `FSLAB_BLESS` if there is no such file, or for a new version
/// of the format.
fn make_the_golden_image() {
    let device = Arc::new(MemoryDevice::new(IMAGE_BYTES));
    mkfs(&*device, &MkfsOptions { block_size: BlockSize::MIN, now: NOW, ..options(1024) }).unwrap();
    let ext2 = Ext2::open(device.clone(), VolumeOptions::default()).unwrap();
    fill(&Client::new(&ext2));
    fslab_vfs::FileSystem::shutdown(&ext2).unwrap();
    let mut out = Vec::new();
    let mut block = [0; BLOCK];
    for index in 0..(IMAGE_BYTES as usize / BLOCK) as u32 {
        device.read_at(u64::from(index) * BLOCK as u64, &mut block).unwrap();
        if block != [0; BLOCK] && block != [7; BLOCK] {
            out.extend_from_slice(&index.to_le_bytes());
            out.extend_from_slice(&block);
        }
    }
    std::fs::create_dir_all(path().parent().unwrap()).unwrap();
    std::fs::write(path(), out).unwrap();
}

/// Reads the golden image. The file contains each nonzero block after its number, except for the
/// data of the large file, which is one repeated byte.
fn golden() -> Image {
    let image = Image::empty(IMAGE_BYTES);
    let device = image.device();
    for piece in std::fs::read(path()).unwrap().chunks_exact(4 + BLOCK) {
        let (number, bytes) = piece.split_first_chunk::<4>().unwrap();
        device.write_at(u64::from(u32::from_le_bytes(*number)) * BLOCK as u64, bytes).unwrap();
    }
    image
}

#[test]
fn an_image_of_the_first_version_is_read_and_changed() {
    if std::env::var_os("FSLAB_BLESS").is_some() {
        make_the_golden_image();
    }
    let image = golden();
    if has("e2fsck") {
        image.check("as it was made");
    }
    let ext2 = image.open();
    {
        let client = Client::new(&ext2);
        let many = client.lookup(Ino::ROOT, "many").unwrap().ino;
        assert_eq!(client.names(many).unwrap().len(), 121);
        for number in 0..120 {
            let found = client.lookup(many, name(number)).unwrap();
            assert!(client.contents(found.ino).unwrap() == vec![b'm'; number as usize]);
        }
        let large = client.lookup(Ino::ROOT, "large").unwrap();
        assert_eq!((large.size, large.links), (100_000_000, 2));
        assert_eq!(client.getxattr(large.ino, "user.small").unwrap(), b"value");
        assert_eq!(client.getxattr(large.ino, "user.long").unwrap(), [1; 500]);
        let slow = client.lookup(Ino::ROOT, "slow").unwrap().ino;
        assert_eq!(client.readlink(slow).unwrap().len(), 300);
        let null = client.lookup(Ino::ROOT, "null").unwrap();
        assert_eq!((null.kind, null.device), (FileKind::CharDevice, 0x103));
        for number in (0..120).step_by(2) {
            client.unlink(many, name(number)).unwrap();
        }
        client.truncate(large.ino, 5).unwrap();
    }
    fslab_vfs::FileSystem::shutdown(&ext2).unwrap();
    if has("e2fsck") {
        image.check("changed");
    }
}
