//! Debian packages: which are needed for what, and installing the missing ones as root.

use std::process::Command;

use anyhow::Result;

use super::{Missing, Purpose};
use crate::{environment, process};

/// A package, known to be there by one of its programs.
struct Package {
    name: &'static str,
    program: &'static str,
    needed_for: &'static [Purpose],
    consequence: &'static str,
}

const BOTH: &[Purpose] = &[Purpose::Test, Purpose::Demo];
const TEST: &[Purpose] = &[Purpose::Test];

const PACKAGES: &[Package] = &[
    Package {
        name: "e2fsprogs",
        program: "mkfs.ext4",
        needed_for: BOTH,
        consequence: "no ext4: pjdfstest, fsx and ext4 comparisons are skipped",
    },
    Package {
        name: "xfsprogs",
        program: "mkfs.xfs",
        needed_for: BOTH,
        consequence: "tests over xfs and xfs comparisons are skipped",
    },
    Package {
        name: "btrfs-progs",
        program: "mkfs.btrfs",
        needed_for: BOTH,
        consequence: "tests over btrfs and btrfs comparisons are skipped",
    },
    Package {
        name: "squashfs-tools",
        program: "mksquashfs",
        needed_for: TEST,
        consequence: "comparisons with squashfs are skipped",
    },
    Package {
        name: "erofs-utils",
        program: "mkfs.erofs",
        needed_for: TEST,
        consequence: "comparisons with erofs are skipped",
    },
    Package {
        name: "make",
        program: "make",
        needed_for: TEST,
        consequence: "the workload `compile` is not tested",
    },
    Package {
        name: "python3-venv",
        program: "python3",
        needed_for: TEST,
        consequence: "files that are mapped are not tested, nor what other programs read in traces",
    },
    Package {
        name: "chromium",
        program: "chromium",
        needed_for: TEST,
        consequence: "reports are not opened in a browser",
    },
    Package {
        name: "fuse3",
        program: "fusermount3",
        needed_for: BOTH,
        consequence: "mounting as an ordinary user is skipped",
    },
    Package {
        name: "sshfs",
        program: "sshfs",
        needed_for: TEST,
        consequence: "mounts over a network file system are not tested",
    },
    Package {
        name: "openssh-sftp-server",
        program: "/usr/lib/openssh/sftp-server",
        needed_for: TEST,
        consequence: "mounts over a network file system are not tested",
    },
    Package {
        name: "systemd",
        program: "/lib/systemd/systemd",
        needed_for: TEST,
        consequence: "the units of the package are not tested under systemd",
    },
    Package {
        name: "bindfs",
        program: "bindfs",
        needed_for: BOTH,
        consequence: "comparisons with bindfs are skipped",
    },
    Package {
        name: "mergerfs",
        program: "mergerfs",
        needed_for: BOTH,
        consequence: "comparisons with mergerfs are skipped",
    },
    Package {
        name: "acl",
        program: "setfacl",
        needed_for: TEST,
        consequence: "tests that look at ACLs from outside are skipped",
    },
    Package {
        name: "attr",
        program: "setfattr",
        needed_for: TEST,
        consequence: "tests that look at extended attributes from outside are skipped",
    },
    Package {
        name: "sqlite3",
        program: "sqlite3",
        needed_for: TEST,
        consequence: "the database of the suite sca-life is skipped",
    },
    Package {
        name: "zstd",
        program: "zstd",
        needed_for: TEST,
        consequence: "what the layer zstd stores is not read by the tool",
    },
    Package {
        name: "lz4",
        program: "lz4",
        needed_for: TEST,
        consequence: "what the layer lz4 stores is not read by the tool",
    },
    Package {
        name: "pigz",
        program: "pigz",
        needed_for: TEST,
        consequence: "the layer gzip is not compared with it",
    },
    Package {
        name: "sharutils",
        program: "uuencode",
        needed_for: TEST,
        consequence: "the layer uuencode is not compared with the tool, nor read by uudecode",
    },
    Package {
        name: "rsync",
        program: "rsync",
        needed_for: TEST,
        consequence: "the copies of the suite sca-life are skipped",
    },
];

/// Installs the packages whose programs are missing; answers those that still are.
pub fn install(purpose: Purpose) -> Result<Vec<Missing>> {
    let absent = absent(purpose);
    if absent.is_empty() {
        return Ok(Vec::new());
    }
    let why_not = match environment::find_tool("apt-get") {
        None => Some("this machine has no apt-get"),
        Some(_) if !environment::is_root() => Some("only root may install packages"),
        Some(_) => None,
    };
    match why_not {
        Some(reason) => Ok(report(&absent, reason)),
        None => {
            let outcome = apt_install(&absent);
            let reason = outcome.err().map_or_else(String::new, |error| format!("{error:#}"));
            Ok(report(&self::absent(purpose), &reason))
        }
    }
}

fn absent(purpose: Purpose) -> Vec<&'static Package> {
    let needed = PACKAGES.iter().filter(|package| package.needed_for.contains(&purpose));
    needed.filter(|package| environment::find_tool(package.program).is_none()).collect()
}

fn report(absent: &[&'static Package], reason: &str) -> Vec<Missing> {
    let remedy = format!("{reason}; as root: apt-get install {}", names(absent).join(" "));
    let missing = |package: &&'static Package| Missing {
        what: format!("{} (Debian package {})", package.program, package.name),
        consequence: package.consequence.into(),
        remedy: remedy.clone(),
    };
    absent.iter().map(missing).collect()
}

fn names(packages: &[&'static Package]) -> Vec<&'static str> {
    packages.iter().map(|package| package.name).collect()
}

/// Tries with the package lists at hand first: fetching new ones takes longer than installing.
fn apt_install(packages: &[&'static Package]) -> Result<()> {
    println!("setup: installing {}", names(packages).join(" "));
    let install = || apt_get(&[&["install"], names(packages).as_slice()].concat());
    install().or_else(|_stale_lists| apt_get(&["update"]).and_then(|()| install()))
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    command.args(["-y", "-q", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120"]);
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    process::capture(&mut command).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_program_package_and_command() {
        let absent: Vec<_> = PACKAGES.iter().take(2).collect();
        let report = report(&absent, "only root may install packages");
        assert_eq!(report.len(), 2);
        let text = report[0].describe();
        for part in ["mkfs.ext4", "only root", "apt-get install e2fsprogs xfsprogs", "skipped"] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }
}
