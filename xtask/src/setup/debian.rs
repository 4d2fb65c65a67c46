//! Lists the required Debian packages, and installs the missing ones if run as root.

use std::process::Command;

use anyhow::{Result, anyhow};

use super::{Missing, Purpose};
use crate::{environment, process};

/// A package. It is treated as installed if its program is found.
struct Package {
    name: &'static str,
    program: &'static str,
    /// The consequence of its absence.
    consequence: &'static str,
}

const fn package(name: &'static str, program: &'static str, consequence: &'static str) -> Package {
    Package { name, program, consequence }
}

/// Packages for tests and the demo.
const BOTH: &[Package] = &[
    package("e2fsprogs", "mkfs.ext4", "no ext4: pjdfstest, fsx and ext4 comparisons are skipped"),
    package("xfsprogs", "mkfs.xfs", "tests over xfs and xfs comparisons are skipped"),
    package("btrfs-progs", "mkfs.btrfs", "tests over btrfs and btrfs comparisons are skipped"),
    package("fuse3", "fusermount3", "mounting as an ordinary user is skipped"),
    package("bindfs", "bindfs", "comparisons with bindfs are skipped"),
    package("mergerfs", "mergerfs", "comparisons with mergerfs are skipped"),
];

/// Packages for testing fslab's own Debian package.
const PACKAGE: &[Package] = &[
    package("mmdebstrap", "mmdebstrap", "the package is not tested in a clean Debian"),
    package("lintian", "lintian", "the package is not checked against Debian's rules"),
];

/// Packages for the virtual machine.
const VM: &[Package] = &[
    package("qemu-system-x86", "qemu-system-x86_64", NO_VM),
    package("mmdebstrap", "mmdebstrap", NO_VM),
    package("cpio", "cpio", NO_VM),
    package("e2fsprogs", "mkfs.ext4", NO_VM),
];

const NO_VM: &str = "suspend, reboot and reset are not tested";

/// Packages only for tests.
const TEST: &[Package] = &[
    package("squashfs-tools", "mksquashfs", "comparisons with squashfs are skipped"),
    package("erofs-utils", "mkfs.erofs", "comparisons with erofs are skipped"),
    package("make", "make", "the workload `compile` is not tested"),
    package(
        "python3-venv",
        "python3",
        "memory-mapped files, and reading traces with other programs, are not tested",
    ),
    package("chromium", "chromium", "reports are not opened in a browser"),
    package("sshfs", "sshfs", "mounts over a network file system are not tested"),
    package(
        "openssh-sftp-server",
        "/usr/lib/openssh/sftp-server",
        "mounts over a network file system are not tested",
    ),
    package(
        "systemd",
        "/lib/systemd/systemd",
        "the units of the package are not tested under systemd",
    ),
    package("nfs-ganesha-vfs", "ganesha.nfsd", "exports by NFS are not tested"),
    package("rpcbind", "rpcbind", "exports by NFS are not tested"),
    package("libnfs-utils", "nfs-cp", "exports by NFS are not tested"),
    package("samba", "smbd", "exports by Samba are not tested"),
    package("smbclient", "smbclient", "exports by Samba are not tested"),
    package("iproute2", "ip", "exports by NFS and Samba are not tested"),
    package("acl", "setfacl", "tests that read ACLs with other programs are skipped"),
    package(
        "attr",
        "setfattr",
        "tests that read extended attributes with other programs are skipped",
    ),
    package(
        "sqlite3",
        "sqlite3",
        "the database of the suite sca-life is skipped, and the workload `sqlite` is not tested",
    ),
    package("postgresql", "pg_ctlcluster", "the workload `pgbench` is not tested"),
    package("git", "git", "the workload `git` is not tested"),
    package("fio", "fio", "the workload `fio` is not tested"),
    package("linux-perf", "perf", "`--record perf` is not tested"),
    package(
        "zstd",
        "zstd",
        "reading stored files of the layer zstd with this program is not tested",
    ),
    package("lz4", "lz4", "reading stored files of the layer lz4 with this program is not tested"),
    package("pigz", "pigz", "the layer gzip is not compared with pigz"),
    package(
        "sharutils",
        "uuencode",
        "the layer uuencode is not compared with uuencode and uudecode",
    ),
    package(
        "rsync",
        "rsync",
        "the copies of the suite sca-life are skipped, and the workload `rsync` is not tested",
    ),
];

/// Packages for the cluster.
const CLUSTER: &[Package] = &[
    package("slurmctld", "slurmctld", "the cluster can't be started"),
    package("slurmd", "slurmd", "the cluster can't be started"),
    package("slurm-client", "sbatch", "the cluster can't be started"),
    package("munge", "munged", "the cluster can't be started"),
    IPROUTE,
];

/// Packages for `cargo xtask cluster sql`.
const SQL: &[Package] = &[IPROUTE, package("curl", "curl", "the cluster can't be started")];

const IPROUTE: Package = package("iproute2", "ip", "the cluster can't be started");

/// Installs the packages of missing programs. Returns those that are still missing.
pub fn install(purpose: Purpose) -> Result<Vec<Missing>> {
    let absent = absent(purpose);
    if absent.is_empty() {
        return Ok(Vec::new());
    }
    let tried = match environment::find_tool("apt-get") {
        None => Err(anyhow!("this machine has no apt-get")),
        Some(_) if !environment::is_root() => Err(anyhow!("only root may install packages")),
        Some(_) => apt_install(&absent),
    };
    let reason = tried.err().map_or_else(String::new, |error| format!("{error:#}"));
    Ok(report(&self::absent(purpose), &reason))
}

fn absent(purpose: Purpose) -> Vec<&'static Package> {
    let needed: &[&[Package]] = match purpose {
        Purpose::Test => &[BOTH, TEST],
        Purpose::Demo => &[BOTH],
        Purpose::Cluster => &[CLUSTER],
        Purpose::Sql => &[SQL],
        Purpose::Package => &[PACKAGE],
        Purpose::Vm => &[VM],
    };
    let needed = needed.iter().copied().flatten();
    needed.filter(|package| environment::find_tool(package.program).is_none()).collect()
}

fn report(absent: &[&'static Package], reason: &str) -> Vec<Missing> {
    let remedy = format!("{reason}; as root: apt-get install {}", names(absent).join(" "));
    let missing = |package: &&'static Package| {
        let what = format!("{} (Debian package {})", package.program, package.name);
        Missing::new(what, package.consequence, &remedy)
    };
    absent.iter().map(missing).collect()
}

fn names(packages: &[&'static Package]) -> Vec<&'static str> {
    packages.iter().map(|package| package.name).collect()
}

/// Installs packages. Tries the existing package lists first, because fetching new ones takes
/// longer than installing.
fn apt_install(packages: &[&'static Package]) -> Result<()> {
    println!("setup: installing {}", names(packages).join(" "));
    let install = || apt_get(&[&["install"], names(packages).as_slice()].concat());
    install().or_else(|_stale_lists| apt_get(&["update"]).and_then(|()| install()))
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    command.args(["-y", "-q", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120"]);
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    // At this runlevel, packages do not start their daemons. A test that needs a daemon starts it.
    command.env("RUNLEVEL", "1");
    process::capture(&mut command).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_program_package_and_command() {
        let absent: Vec<_> = BOTH.iter().take(2).collect();
        let report = report(&absent, "only root may install packages");
        assert_eq!(report.len(), 2);
        let text = report[0].describe();
        for part in ["mkfs.ext4", "only root", "apt-get install e2fsprogs xfsprogs", "skipped"] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }
}
