//! Signatures on a block device, found by wipefs(8) of util-linux. Signatures of devices that are
//! never erased are also searched for here.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::error::{Error, Result};

/// A signature, with the name that wipefs gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signature(String);

/// Bytes and their offsets that show that a device is a member of a larger one, which may be in use
/// elsewhere.
const MEMBERS: [(&str, u64, &[u8]); 10] = [
    ("btrfs", 0x10040, b"_BHRfS_M"),
    ("LVM2_member", 0, b"LABELONE"),
    ("LVM2_member", 0x200, b"LABELONE"),
    ("LVM2_member", 0x400, b"LABELONE"),
    ("LVM2_member", 0x600, b"LABELONE"),
    ("linux_raid_member", 0, MD),
    ("linux_raid_member", 0x1000, MD),
    ("linux_raid_member", 0x800, MD),
    ("zfs_member", 0x3FD8, b"\x11\x7a\x0c\xb1\x7a\xda\x10\x02"),
    ("zfs_member", 0x3FD8, b"\x02\x10\xda\x7a\xb1\x0c\x7a\x11"),
];

/// The magic number of md's superblock.
const MD: &[u8] = &0xa92b_4efc_u32.to_le_bytes();

/// Older superblocks of md: their distance from the end of the device, and the multiple to which
/// their position is rounded down.
const MD_AT_END: [(u64, u64); 2] = [(8 << 10, 4 << 10), (64 << 10, 64 << 10)];

impl Signature {
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Returns the kind of larger device, such as a RAID array, of which a device with this
    /// signature is a member. Such a device is never erased.
    pub fn member_of(&self) -> Option<&'static str> {
        match &*self.0 {
            "btrfs" => Some("Btrfs"),
            "LVM2_member" | "LVM1_member" => Some("LVM"),
            name if name.contains("raid_member") => Some("md"),
            "zfs_member" => Some("ZFS"),
            "bcache" => Some("bcache"),
            _ => None,
        }
    }
}

/// Returns the signatures on a device, those found by wipefs first.
pub(super) fn of(path: &Path) -> Result<Vec<Signature>> {
    let mut found = by_wipefs(path)?;
    let file = File::open(path).map_err(Error::file(path))?;
    let mut end = 0;
    if let Ok(size) = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)) {
        end = size;
    }
    let at_end = MD_AT_END.map(|(before, multiple)| {
        let at = end.saturating_sub(before) / multiple * multiple;
        ("linux_raid_member", at, MD)
    });
    for (name, at, magic) in MEMBERS.into_iter().chain(at_end) {
        let mut bytes = vec![0; magic.len()];
        let fits = at + magic.len() as u64 <= end;
        if fits {
            file.read_exact_at(&mut bytes, at).map_err(Error::file(path))?;
        }
        let signature = Signature(name.to_owned());
        if fits && bytes == magic && !found.contains(&signature) {
            found.push(signature);
        }
    }
    Ok(found)
}

fn by_wipefs(path: &Path) -> Result<Vec<Signature>> {
    const PROGRAM: &str = "wipefs";
    let mut command = Command::new(PROGRAM);
    command.args(["--noheadings", "--output", "TYPE"]).arg(path);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let output =
        command.output().map_err(|source| Error::Start { program: PROGRAM.to_owned(), source })?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let command = format!("{PROGRAM} {}", path.display());
        return Err(Error::Command { command, status: output.status, message });
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.split_whitespace().map(|name| Signature(name.to_owned())).collect())
}
