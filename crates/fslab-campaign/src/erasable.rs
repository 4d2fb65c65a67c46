//! The devices of this host that campaigns may erase, listed in `/etc/fslab/erasable`.
//!
//! A campaign's plan comes from another machine, where the same path may be a different disk. So a
//! plan contains a *role*, and only this list, which root keeps on each host, maps a role to a
//! device. A line is `ROLE DEVICE [SERIAL]`; `#` begins a comment. The safety checks of
//! `fslab compare` also apply to the device. If its line contains a serial number, the device is
//! erased whatever it contains, as with `--erase`. Otherwise a device with a file system is
//! refused. So a killed run, which leaves a file system on the device, blocks later runs.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fslab_compare::Plan;
use fslab_compare::plan::DevicePlan;

use crate::error::{Error, Result};

/// The path of the list on each host.
pub const ERASABLE: &str = "/etc/fslab/erasable";

/// The directory of device names that do not depend on the port of a device.
const BY_ID: &str = "/dev/disk/by-id";

/// Mode bits that let users other than the owner write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The devices that campaigns may erase on this host.
#[derive(Debug, Default)]
pub struct Erasable {
    list: PathBuf,
    devices: Vec<(String, DevicePlan)>,
}

impl Erasable {
    /// Reads a list. A missing file is treated as an empty list.
    ///
    /// # Errors
    /// Fails if users other than root and the caller may have written the list, or if a line is
    /// invalid.
    pub fn read(list: &Path) -> Result<Self> {
        let mut file = match File::open(list) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Self { list: list.to_owned(), ..Self::default() });
            }
            Err(error) => return Err(Error::file(list)(error)),
        };
        check_owner(list, &file.metadata().map_err(Error::file(list))?)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(Error::file(list))?;
        let mut devices: Vec<(String, DevicePlan)> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let wrong = |reason| Error::BadList { path: list.to_owned(), line: index + 1, reason };
            let Some((role, device)) = entry(line).map_err(wrong)? else { continue };
            if devices.iter().any(|(known, _)| *known == role) {
                return Err(wrong("an earlier line already has a device for this role"));
            }
            devices.push((role, device));
        }
        Ok(Self { list: list.to_owned(), devices })
    }

    /// Returns the plan with each role replaced by a device of this host.
    ///
    /// # Errors
    /// Fails on the first role without a device.
    pub fn place(&self, mut plan: Plan) -> Result<Plan> {
        for (target, device) in plan.devices_mut() {
            let role = device.path.display().to_string();
            let found = self.devices.iter().find(|(known, _)| *known == role);
            let Some((_, found)) = found else {
                let (target, list) = (target.to_owned(), self.list.clone());
                return Err(Error::NoDevice { target, role, list });
            };
            *device = found.clone();
        }
        Ok(plan)
    }
}

/// Refuses a plan in which a device is not specified by a role.
pub(crate) fn check_roles(plan: &Plan) -> Result<()> {
    let mut plan = plan.clone();
    for (target, device) in plan.devices_mut() {
        let role = device.path.display().to_string();
        if role.contains('/') {
            return Err(Error::DeviceByPath { target: target.to_owned() });
        }
        if !is_role(&role) {
            return Err(Error::OddRole { target: target.to_owned(), role });
        }
    }
    Ok(())
}

fn is_role(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    !name.is_empty() && name.bytes().all(|byte| is_letter(byte) || b"-_".contains(&byte))
}

fn check_owner(path: &Path, found: &fs::Metadata) -> Result<()> {
    let own = rustix::process::geteuid().as_raw();
    let reason = if !found.is_file() {
        "it is not a regular file"
    } else if found.uid() != 0 && found.uid() != own {
        "another user owns it"
    } else if found.mode() & WRITABLE_BY_OTHERS != 0 {
        "other users can write to it; run chmod go-w"
    } else {
        return Ok(());
    };
    Err(Error::UnsafeList { path: path.to_owned(), reason })
}

/// Parses the role and device of a line. Returns `None` for an empty line.
fn entry(line: &str) -> std::result::Result<Option<(String, DevicePlan)>, &'static str> {
    let line = line.split('#').next().unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    let (role, path, serial) = match words[..] {
        [] => return Ok(None),
        [role, path] => (role, path, None),
        [role, path, serial] => (role, path, Some(serial)),
        _ => return Err("a line must have the form `ROLE /dev/disk/by-id/NAME [SERIAL]`"),
    };
    if !is_role(role) {
        return Err("a role can contain only a-z, 0-9, `-` and `_`");
    }
    if Path::new(path).parent() != Some(Path::new(BY_ID)) {
        return Err("a device must be given as /dev/disk/by-id/NAME; its other names can change");
    }
    let erase = serial.map(str::to_owned).into_iter().collect();
    Ok(Some((role.to_owned(), DevicePlan { path: path.into(), erase })))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use fslab_compare::plan::Form;

    use super::*;

    fn plan(device: &str) -> Plan {
        let text = format!(
            "name = 'p'\n[[target]]\nname = 'raw'\nfilesystem = 'ext4'\ndevice = '{device}'\n\
             [[workload]]\nname = 'stream'\n"
        );
        Plan::parse("p", &text, Form::Full).unwrap()
    }

    fn list(text: &str) -> (tempfile::TempDir, PathBuf) {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("erasable");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        (scratch, path)
    }

    #[test]
    fn roles_resolve_to_devices_of_the_host() {
        let (_scratch, path) = list(
            "# of this host\n\nscratch /dev/disk/by-id/nvme-A_1 # fast\n\
             slow /dev/disk/by-id/ata-B S9\n",
        );
        let erasable = Erasable::read(&path).unwrap();
        let device = |role: &str| {
            let mut plan = erasable.place(plan(role)).unwrap();
            plan.devices_mut().map(|(_, device)| device.clone()).next().unwrap()
        };
        let fast = DevicePlan { path: "/dev/disk/by-id/nvme-A_1".into(), erase: Vec::new() };
        assert_eq!(device("scratch"), fast);
        assert_eq!(device("slow").erase, ["S9"]);
        let Err(Error::NoDevice { role, .. }) = erasable.place(plan("other")) else { panic!() };
        assert_eq!(role, "other");
    }

    #[test]
    fn host_without_a_list_allows_no_erasure() {
        let scratch = tempfile::tempdir().unwrap();
        let erasable = Erasable::read(&scratch.path().join("none")).unwrap();
        assert!(matches!(erasable.place(plan("scratch")), Err(Error::NoDevice { .. })));
    }

    #[test]
    fn plan_with_a_device_path_is_refused() {
        let by_path = check_roles(&plan("/dev/disk/by-id/nvme-A_1"));
        assert!(matches!(by_path, Err(Error::DeviceByPath { .. })), "{by_path:?}");
        assert!(matches!(check_roles(&plan("../x")), Err(Error::DeviceByPath { .. })));
        assert!(matches!(check_roles(&plan("A b")), Err(Error::OddRole { .. })));
        assert!(check_roles(&plan("scratch-1")).is_ok());
    }

    #[test]
    fn invalid_lines_and_group_writable_lists_are_refused() {
        for text in [
            "scratch",
            "scratch /dev/sda",
            "scratch /dev/disk/by-id/../sda",
            "scratch /dev/disk/by-id/a b c",
            "Scratch /dev/disk/by-id/a",
            "a /dev/disk/by-id/a\na /dev/disk/by-id/b",
        ] {
            let (_scratch, path) = list(text);
            let found = Erasable::read(&path);
            assert!(matches!(found, Err(Error::BadList { .. })), "{text}: {found:?}");
        }
        let (_scratch, path) = list("");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
        assert!(matches!(Erasable::read(&path), Err(Error::UnsafeList { .. })));
    }
}
