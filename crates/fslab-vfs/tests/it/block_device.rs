//! Tests each kind of block device: in memory and in a file.

use std::fs::File;
use std::path::Path;

use fslab_vfs::{BlockDevice, Errno, FileDevice, MemoryDevice};

const SIZE: u64 = 1 << 20;

/// Runs a test over a device of each kind, with [`SIZE`] zero bytes.
fn over_each(test: impl Fn(&dyn BlockDevice)) {
    test(&MemoryDevice::new(SIZE));
    let file = tempfile::tempfile().unwrap();
    file.set_len(SIZE).unwrap();
    test(&FileDevice::from_file(file).unwrap());
}

fn read(device: &dyn BlockDevice, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0xaa; length];
    device.read_at(offset, &mut buffer).unwrap();
    buffer
}

#[test]
fn new_device_is_zeros() {
    over_each(|device| {
        assert_eq!(device.size(), SIZE);
        assert_eq!(read(device, 0, SIZE as usize), vec![0; SIZE as usize]);
    });
}

#[test]
fn written_bytes_are_read() {
    over_each(|device| {
        let mut expected = vec![0; 50_000];
        for (offset, length) in [(0, 1), (4095, 2), (4096, 4096), (9999, 20_001), (49_999, 1)] {
            let data: Vec<u8> = (0..length).map(|index| (index % 251) as u8 + 1).collect();
            device.write_at(offset as u64, &data).unwrap();
            expected[offset..offset + length].copy_from_slice(&data);
            assert_eq!(read(device, 0, 50_000), expected);
        }
        device.flush().unwrap();
        assert_eq!(read(device, 0, 50_000), expected);
    });
}

#[test]
fn last_byte_can_be_used() {
    over_each(|device| {
        device.write_at(SIZE - 1, b"x").unwrap();
        assert_eq!(read(device, SIZE - 2, 2), b"\0x");
        device.write_at(SIZE, b"").unwrap();
        device.discard(SIZE, 0).unwrap();
    });
}

#[test]
fn ranges_outside_are_refused_whole() {
    over_each(|device| {
        for offset in [SIZE - 1, SIZE, u64::MAX - 1, u64::MAX] {
            let answer = device.read_at(offset, &mut [0; 2]);
            assert_eq!(answer.unwrap_err().errno(), Errno::INVAL);
            let answer = device.write_at(offset, b"xx");
            assert_eq!(answer.unwrap_err().errno(), Errno::NOSPC);
            assert_eq!(device.discard(offset, 2).unwrap_err().errno(), Errno::NOSPC);
        }
        assert_eq!(read(device, SIZE - 1, 1), b"\0");
    });
}

#[test]
fn discarded_ranges_read_as_zeros() {
    over_each(|device| {
        let mut expected = vec![7; 60_000];
        device.write_at(0, &expected).unwrap();
        for (offset, length) in [(0, 1), (100, 50), (4096, 8192), (20_000, 20_000), (59_999, 1)] {
            device.discard(offset as u64, length as u64).unwrap();
            expected[offset..offset + length].fill(0);
            assert_eq!(read(device, 0, 60_000), expected);
        }
    });
}

#[test]
fn memory_device_frees_discarded_space() {
    let device = MemoryDevice::new(1 << 50);
    device.write_at(1 << 49, &[1; 100_000]).unwrap();
    assert!(device.allocated() >= 100_000);
    device.discard(0, 1 << 50).unwrap();
    assert_eq!(device.allocated(), 0);
}

#[test]
fn threads_share_a_device() {
    over_each(|device| {
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                scope.spawn(move || {
                    for index in 0..100 {
                        let offset = (index * 4 + u64::from(thread)) * 1000;
                        device.write_at(offset, &[thread + 1; 1000]).unwrap();
                    }
                });
            }
        });
        for part in 0..400 {
            let expected = vec![(part % 4) as u8 + 1; 1000];
            assert_eq!(read(device, part * 1000, 1000), expected);
        }
    });
}

fn open(path: &Path) -> fslab_vfs::Result<FileDevice> {
    FileDevice::from_file(File::options().read(true).write(true).open(path)?)
}

#[test]
fn only_files_and_devices_are_opened() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(open(directory.path()).unwrap_err().errno(), Errno::ISDIR);
    let null = open("/dev/null".as_ref());
    assert_eq!(null.unwrap_err().errno(), Errno::INVAL);
}

#[test]
fn read_only_device_refuses_writes() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(SIZE).unwrap();
    let device = FileDevice::from_file(File::open(file.path()).unwrap()).unwrap();
    assert_eq!(read(&device, 0, 10), vec![0; 10]);
    assert_eq!(device.write_at(0, b"x").unwrap_err().errno(), Errno::BADF);
}

#[test]
fn read_beyond_a_truncated_file_fails_instead_of_zeros() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(SIZE).unwrap();
    let device = open(file.path()).unwrap();
    file.as_file().set_len(10).unwrap();
    let answer = device.read_at(0, &mut [0; 20]);
    assert_eq!(answer.unwrap_err().errno(), Errno::IO);
}
