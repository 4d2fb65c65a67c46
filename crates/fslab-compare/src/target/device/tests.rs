//! Tests with loop devices: unsuitable devices are refused and left unchanged.

use std::os::unix::fs::symlink;
use std::process::Command;

use fslab_sys::loop_device::{LoopDevice, Options};
use fslab_vfs_testing::skip::skip;
use tempfile::TempDir;

use super::*;

/// A loop device with a name in a fake /dev/disk/by-id.
struct Bench {
    around: Surroundings,
    plan: DevicePlan,
    device: LoopDevice,
    directory: TempDir,
}

impl Bench {
    fn new(what: &str) -> Option<Self> {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root || !Path::new("/dev/loop-control").exists() {
            skip(what, "no root or no loop devices");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("disk");
        File::create(&image).unwrap().set_len(320 << 20).unwrap();
        let device = LoopDevice::attach(&image, Options::default()).unwrap();
        let by_id = directory.path().join("by-id");
        fs::create_dir(&by_id).unwrap();
        let path = by_id.join("ata-MODEL_SERIAL1");
        symlink(device.path(), &path).unwrap();
        let around = Surroundings { by_id, ..Surroundings::default() };
        Some(Self { around, plan: DevicePlan { path, erase: Vec::new() }, device, directory })
    }

    /// Returns a hash of all bytes of the device.
    fn hash(&self) -> u32 {
        flush_buffers_of(self.device.file()).unwrap();
        crc32c::crc32c(&fs::read(self.device.path()).unwrap())
    }

    /// Asserts that the device is refused and unchanged, with and without its serial number.
    #[track_caller]
    fn is_always_refused(&mut self, expected: impl Fn(&Refusal) -> bool) {
        let before = self.hash();
        for erase in [vec![], vec!["SERIAL1".to_owned()]] {
            self.plan.erase = erase;
            match BlockDevice::claim(&self.plan, &self.around) {
                Err(Error::Device { refusal, .. }) => assert!(expected(&refusal), "{refusal:?}"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(self.hash(), before, "its bytes were changed");
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        let file = open(self.device.path(), OFlags::empty()).unwrap();
        file.write_all_at(bytes, at).unwrap();
        file.sync_all().unwrap();
    }

    fn make(&self, program: &str, arguments: &[&str]) {
        let mut command = Command::new(program);
        command.args(arguments).arg(self.device.path());
        let made = command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output().unwrap();
        assert!(made.status.success(), "{made:?}");
    }

    /// Makes a fake sysfs directory for the device.
    fn fake_sysfs(&mut self) -> PathBuf {
        let sysfs = self.directory.path().join("sysfs");
        let number = self.device.device_number();
        let own = sysfs.join(format!("{}:{}", number.major, number.minor));
        fs::create_dir_all(&own).unwrap();
        self.around.sysfs = sysfs;
        own
    }
}

#[test]
fn empty_device_is_taken_and_left_empty() {
    let Some(bench) = Bench::new("an empty device") else { return };
    for _ in 0..2 {
        let device = BlockDevice::claim(&bench.plan, &bench.around).unwrap();
        bench.make("mkfs.ext4", &["-q"]);
        assert_eq!(signatures::of(device.path()).unwrap().len(), 1);
        device.wipe().unwrap();
    }
}

#[test]
fn device_not_named_by_id_is_refused() {
    let Some(mut bench) = Bench::new("names of devices") else { return };
    bench.plan.path = bench.device.path().to_owned();
    bench.is_always_refused(|refusal| *refusal == Refusal::NotById);
    bench.plan.path = bench.around.by_id.join("../by-id/ata-MODEL_SERIAL1");
    bench.is_always_refused(|refusal| *refusal == Refusal::NotById);
    let file = bench.around.by_id.join("file");
    fs::write(&file, "text").unwrap();
    bench.plan.path = file;
    bench.is_always_refused(|refusal| *refusal == Refusal::NotBlock);
}

#[test]
fn mounted_device_is_refused() {
    let Some(mut bench) = Bench::new("a mounted device") else { return };
    bench.make("mkfs.ext4", &["-q"]);
    let place = bench.directory.path().join("mnt");
    fs::create_dir(&place).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-o", "ro,noload"]).arg(bench.device.path()).arg(&place);
    assert!(mount.status().unwrap().success());
    bench.is_always_refused(|refusal| matches!(refusal, Refusal::Mounted(_)));
    assert!(Command::new("umount").arg(&place).status().unwrap().success());
}

/// The partition is a second loop device. A fake sysfs lists it as a partition of the first.
#[test]
fn device_with_a_mounted_partition_is_refused() {
    let Some(mut bench) = Bench::new("a mounted partition") else { return };
    let Some(partition) = Bench::new("a mounted partition") else { return };
    partition.make("mkfs.ext4", &["-q"]);
    let name = partition.device.path().file_name().unwrap();
    let directory = bench.fake_sysfs().join(name);
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("partition"), "1\n").unwrap();
    let number = partition.device.device_number();
    fs::write(directory.join("dev"), format!("{}:{}\n", number.major, number.minor)).unwrap();
    let place = bench.directory.path().join("mnt");
    fs::create_dir(&place).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-o", "ro,noload"]).arg(partition.device.path()).arg(&place);
    assert!(mount.status().unwrap().success());
    let expected = partition.device.path().display().to_string();
    bench.is_always_refused(|refusal| *refusal == Refusal::Mounted(expected.clone()));
    assert!(Command::new("umount").arg(&place).status().unwrap().success());
    // After the unmount, the device is still refused, because of the partition's content.
    bench.plan.erase.clear();
    let refused = BlockDevice::claim(&bench.plan, &bench.around).unwrap_err().to_string();
    assert!(refused.contains("contains ext4, which would be lost"), "{refused}");
}

#[test]
fn swap_is_refused() {
    let Some(mut bench) = Bench::new("swap") else { return };
    bench.around.swaps = bench.directory.path().join("swaps");
    let line = format!("Filename Type\n{} partition 1 0 -2\n", bench.device.path().display());
    fs::write(&bench.around.swaps, line).unwrap();
    bench.is_always_refused(|refusal| matches!(refusal, Refusal::Swap(_)));
}

#[test]
fn held_device_is_refused() {
    let Some(mut bench) = Bench::new("a held device") else { return };
    fs::create_dir_all(bench.fake_sysfs().join("holders/dm-7")).unwrap();
    bench.is_always_refused(|refusal| matches!(refusal, Refusal::Held(_, by) if by == "dm-7"));
}

#[test]
fn exclusively_opened_device_is_refused() {
    let Some(mut bench) = Bench::new("a busy device") else { return };
    let _held = open(bench.device.path(), OFlags::EXCL).unwrap();
    bench.is_always_refused(|refusal| *refusal == Refusal::Busy);
}

/// Writes only the bytes of a signature, at each offset where it may lie.
#[test]
fn parts_of_md_lvm_and_btrfs_are_refused() {
    let md = &0xa92b_4efc_u32.to_le_bytes();
    let size = 320_u64 << 20;
    let cases: [(u64, &[u8], &str); 7] = [
        (4096, md, "md"),
        (0, md, "md"),
        (size - (8 << 10), md, "md"),
        (size - (64 << 10), md, "md"),
        (512, b"LABELONE", "LVM"),
        (0, b"LABELONE", "LVM"),
        (0x10040, b"_BHRfS_M", "Btrfs"),
    ];
    for (at, bytes, expected) in cases {
        let Some(mut bench) = Bench::new("parts of md, LVM and Btrfs") else { return };
        bench.put(at, bytes);
        bench.is_always_refused(
            |refusal| matches!(refusal, Refusal::Member(_, whole) if *whole == expected),
        );
    }
}

/// A device with any other known signature is erased only if its serial number is typed.
#[test]
fn signature_asks_for_the_serial_number() {
    let Some(mut bench) = Bench::new("a signature") else { return };
    for (program, what) in [("mkfs.ext4", "ext4"), ("mkswap", "swap")] {
        let arguments: &[&str] = if program == "mkswap" { &[] } else { &["-q"] };
        bench.make(program, arguments);
        let before = bench.hash();
        for erase in [vec![], vec!["SERIAL2".to_owned()], vec![String::new()]] {
            bench.plan.erase = erase;
            let error = BlockDevice::claim(&bench.plan, &bench.around).unwrap_err().to_string();
            assert!(error.contains(&format!("contains {what}")), "{error}");
            assert!(error.ends_with("use --erase SERIAL1") && !error.contains('\n'), "{error}");
        }
        assert_eq!(bench.hash(), before, "its bytes were changed");
        bench.plan.erase = vec!["SERIAL1".to_owned()];
        let device = BlockDevice::claim(&bench.plan, &bench.around).unwrap();
        assert_eq!(signatures::of(device.path()).unwrap(), []);
    }
}

/// The serial number that the driver reports has precedence over the one in the name. The suffix
/// `-partN` of a partition's name is not part of the serial number.
#[test]
fn serial_numbers_are_those_of_the_driver() {
    let directory = tempfile::tempdir().unwrap();
    let around = Surroundings { sysfs: directory.path().to_owned(), ..Surroundings::default() };
    let number = DeviceNumber { major: 8, minor: 16 };
    let plan = |name: &str| DevicePlan { path: around.by_id.join(name), erase: Vec::new() };
    assert_eq!(serial(&plan("ata-WDC_WD40_WD-WCC7"), number, &around), "WD-WCC7");
    assert_eq!(serial(&plan("ata-WDC_WD40_WD-WCC7-part1"), number, &around), "WD-WCC7");
    fs::create_dir_all(directory.path().join("8:16/device")).unwrap();
    fs::write(directory.path().join("8:16/device/serial"), " S4EW \n").unwrap();
    assert_eq!(serial(&plan("nvme-other_name"), number, &around), "S4EW");
}
