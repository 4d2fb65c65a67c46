//! Signatures: bytes at fixed offsets that show what a block device or an image contains.
//!
//! Offsets and magic numbers are those that libblkid (util-linux) uses.

use crate::block_device::BlockDevice;
use crate::error::Result;

/// A known signature and its place on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The name that blkid(8) and wipefs(8) give it, such as `xfs`.
    pub name: &'static str,
    offset: u64,
    bytes: &'static [u8],
}

const fn known(name: &'static str, offset: u64, bytes: &'static [u8]) -> Signature {
    Signature { name, offset, bytes }
}

/// Known signatures, without those of ext2, ext3 and ext4.
const KNOWN: [Signature; 26] = [
    known("xfs", 0, b"XFSB"),
    known("btrfs", 0x10040, b"_BHRfS_M"),
    known("f2fs", 0x400, b"\x10\x20\xf5\xf2"),
    known("squashfs", 0, b"hsqs"),
    known("erofs", 0x400, b"\xe2\xe1\xf5\xe0"),
    known("iso9660", 0x8001, b"CD001"),
    known("ntfs", 3, b"NTFS    "),
    known("exfat", 3, b"EXFAT   "),
    known("vfat", 0x52, b"FAT32   "),
    known("vfat", 0x36, b"FAT16   "),
    known("vfat", 0x36, b"FAT12   "),
    known("gpt", 512, b"EFI PART"),
    known("dos", 510, b"\x55\xaa"),
    known("swap", 4096 - 10, b"SWAPSPACE2"),
    known("crypto_LUKS", 0, b"LUKS\xba\xbe"),
    known("LVM2_member", 0, b"LABELONE"),
    known("LVM2_member", 0x200, b"LABELONE"),
    known("LVM2_member", 0x400, b"LABELONE"),
    known("LVM2_member", 0x600, b"LABELONE"),
    known("linux_raid_member", 0, MD),
    known("linux_raid_member", 0x1000, MD),
    known("linux_raid_member", 0x800, MD),
    known("zfs_member", 0x3FD8, b"\x11\x7a\x0c\xb1\x7a\xda\x10\x02"),
    known("zfs_member", 0x3FD8, b"\x02\x10\xda\x7a\xb1\x0c\x7a\x11"),
    known("bcachefs", 0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    known("jfs", 0x8000, b"JFS1"),
];

/// The magic number of md's superblock.
const MD: &[u8] = &0xa92b_4efc_u32.to_le_bytes();

/// Older superblocks of md. Each pair is the distance from the end of the device, and the multiple
/// to which the position is rounded down.
const MD_AT_END: [(u64, u64); 2] = [(8 << 10, 4 << 10), (64 << 10, 64 << 10)];

/// Returns the known signatures on a device.
///
/// # Errors
/// Errors of reading the device.
pub fn signatures_of(device: &dyn BlockDevice) -> Result<Vec<Signature>> {
    let size = device.size();
    let at_end = MD_AT_END.map(|(before, multiple)| {
        known("linux_raid_member", size.saturating_sub(before) / multiple * multiple, MD)
    });
    let mut found = Vec::new();
    for signature in KNOWN.into_iter().chain(at_end) {
        if is_on(device, &signature)? && !found.contains(&signature) {
            found.push(signature);
        }
    }
    Ok(found)
}

/// Overwrites those signatures with zeros that are still on the device.
///
/// # Errors
/// Errors of reading and writing the device.
pub fn wipe_signatures(device: &dyn BlockDevice, found: &[Signature]) -> Result<()> {
    for signature in found {
        if is_on(device, signature)? {
            device.write_at(signature.offset, &vec![0; signature.bytes.len()])?;
        }
    }
    Ok(())
}

fn is_on(device: &dyn BlockDevice, signature: &Signature) -> Result<bool> {
    let mut bytes = vec![0; signature.bytes.len()];
    if signature.offset + bytes.len() as u64 > device.size() {
        return Ok(false);
    }
    device.read_at(signature.offset, &mut bytes)?;
    Ok(bytes == signature.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_device::MemoryDevice;

    #[test]
    fn each_known_signature_is_found_and_wiped() {
        for signature in KNOWN {
            let device = MemoryDevice::new(1 << 20);
            device.write_at(signature.offset, signature.bytes).unwrap();
            let names = signatures_of(&device).unwrap();
            assert!(names.iter().any(|found| found.name == signature.name), "{signature:?}");
            wipe_signatures(&device, &names).unwrap();
            assert_eq!(signatures_of(&device).unwrap(), []);
        }
    }

    #[test]
    fn empty_and_small_devices_have_no_signature() {
        for size in [0, 1, 511, 512, 4096, 1 << 20] {
            assert_eq!(signatures_of(&MemoryDevice::new(size)).unwrap(), []);
        }
    }
}
