//! Finds the signatures on a block device with wipefs(8) of util-linux. For devices that must never
//! be erased, fslab also searches for the signatures itself.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use fslab_vfs::{FileDevice, signatures_of};

use crate::error::{Error, Result};

/// A signature, identified by the name that wipefs uses for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signature(String);

impl Signature {
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Returns the kind of larger device, such as a RAID array, that a device with this signature
    /// belongs to. A member of a larger device is never erased.
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
    let device = File::open(path).map_err(Error::file(path))?;
    let known = FileDevice::from_file(device).and_then(|device| signatures_of(&device));
    for signature in known.map_err(|error| Error::file(path)(error.errno().into()))? {
        let signature = Signature(signature.name.to_owned());
        // Signatures of other formats are left to wipefs, which has more exact names for them.
        if signature.member_of().is_some() && !found.contains(&signature) {
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
