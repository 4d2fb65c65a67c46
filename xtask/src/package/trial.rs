//! Tests the package. dpkg installs it below a folder with a separate package database. The
//! installed program runs in a mount namespace, in which the package's files appear at their final
//! paths. Then dpkg removes the package. The machine's own files and packages do not change.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::tally::Tally;
use crate::{environment, process};

/// Files that the package must contain.
const FILES: [&str; 22] = [
    "usr/bin/fslab",
    "usr/sbin/mount.fslab",
    "usr/sbin/mount.fuse.fslab",
    "usr/sbin/umount.fuse.fslab",
    "usr/share/man/man1/fslab-mount.1.gz",
    "usr/share/man/man8/mount.fslab.8.gz",
    "usr/share/man/man8/umount.fuse.fslab.8.gz",
    "usr/share/bash-completion/completions/fslab",
    "usr/lib/systemd/system/fslab@.service",
    "usr/lib/systemd/system/fslab-tier-policy@.service",
    "usr/lib/systemd/system/fslab-tier-policy@.timer",
    "usr/share/doc/fslab/examples/mount.conf",
    "usr/share/doc/fslab/copyright",
    "usr/share/doc/fslab/changelog.gz",
    "usr/share/doc/fslab/changelog.Debian.gz",
    "usr/share/doc/fslab/README.md",
    "usr/share/doc/fslab/docs/README.md",
    "usr/share/doc/fslab/docs/guide/src/tutorials/compressing.md",
    "usr/share/doc/fslab/docs/images/ratios.png",
    "usr/share/doc/fslab/docs/reproduce/aging.toml",
    "usr/share/doc/fslab/plans/default.toml",
    "usr/share/fslab/plans/default.toml",
];

/// A script that runs in a mount namespace with the package's files in `/usr`. It tests the
/// version, the manual page, the completions, the two file system types for which mount(8) runs the
/// helper, and two forms of umount(8).
const USE: &str = r#"
set -eu
mount -t overlay -o "lowerdir=$TREE/usr:/usr" overlay /usr
cd "$SCRATCH"
/usr/bin/fslab --version
zgrep -q 'fslab-mount' /usr/share/man/man1/fslab-mount.1.gz
bash -c '. /usr/share/bash-completion/completions/fslab && complete -p fslab'
mkdir lower point
for type in fslab fuse.fslab; do
  mount -t $type -o layer=null lower point
  findmnt -n -o FSTYPE point
  echo "by $type" > point/$type
  fslab umount point
  grep -q "by $type" lower/$type
done
# umount(8) waits for the daemon, which uses its lower directory until it exits.
for form in "umount" "umount -c"; do
  fslab mount -o busy_timeout=0 -l zstd -l 'fault:rules=syncfs delay 300ms' lower point
  echo "by $form" > point/written
  $form point
done
"#;

/// A script that runs in a second mount namespace with the package's files in `/usr`. If systemd is
/// installed, it must accept the units. The script runs the units' commands as systemd would, with
/// the example configuration of a mount.
const SERVE: &str = r#"
set -eu
mount -t overlay -o "lowerdir=$TREE/usr:/usr" overlay /usr
cd "$SCRATCH"
units=/usr/lib/systemd/system
if command -v systemd-analyze; then
  systemd-analyze verify --man=no \
    $units/fslab@x.service $units/fslab-tier-policy@x.timer 2> said || true
  grep fslab said && exit 1
fi
mkdir packed files photos
set -a
. /usr/share/doc/fslab/examples/mount.conf
LOWER=$PWD/packed MOUNT_POINT=$PWD/files
set +a
command_of() { sed -n 's|\$\$|$|g'"; s|%f|$PWD/photos|; s|^$1=-*||p" "$units/$2"; }
sh -c "exec $(command_of ExecStart fslab@.service)" &
tries=0
until findmnt -n -o FSTYPE files; do tries=$((tries + 1)); [ $tries -lt 300 ]; sleep 0.1; done
seq 100000 > files/numbers
sh -c "$(command_of ExecStop fslab@.service)"
wait
[ "$(fslab sca cat packed/numbers | tail -n 1)" = 100000 ]
seq 1000 > photos/one
fslab tier init --archive "$PWD/archive" --home "$PWD/home" photos
printf '[[rule]]\naction = "archive"\npaths = ["**"]\n' > home/policy.toml
sh -c "$(command_of ExecStart fslab-tier-policy@.service)"
fslab tier state photos/one
"#;

/// Installs, uses and removes the package.
pub fn run(package: &Path) -> Result<Tally> {
    if let Some(reason) = environment::why_no_mounts() {
        return Ok(Tally::skip("package", reason));
    }
    let place = tempfile::Builder::new().prefix("fslab-package-").tempdir()?;
    let tree = place.path().join("root");
    let database = tree.join("var/lib/dpkg");
    for folder in ["updates", "info", "triggers"] {
        fs::create_dir_all(database.join(folder))?;
    }
    fs::write(database.join("status"), "")?;
    let mut tally = Tally::default();
    tally += step("install", || {
        // The packages that fslab depends on are in the machine's database, but not in this
        // separate database.
        process::capture(dpkg(&tree).args(["--force-depends", "--install"]).arg(package))?;
        has_files(&tree)
    });
    if tally.is_good() {
        tally += step("use", || {
            let said = in_namespace(USE, &tree, &place.path().join("used"))?;
            let kinds = said.lines().filter(|line| line.starts_with("fuse")).count();
            anyhow::ensure!(kinds == 2, "findmnt did not see both mounts: {said}");
            Ok(())
        });
        tally +=
            step("services", || in_namespace(SERVE, &tree, &place.path().join("served")).map(drop));
        tally += step("remove", || {
            process::capture(dpkg(&tree).args(["--force-depends", "--purge", "fslab"]))?;
            anyhow::ensure!(!tree.join("usr/bin/fslab").exists(), "the program was not removed");
            Ok(())
        });
    }
    Ok(tally)
}

/// Checks that the files of the package exist below a root directory.
pub fn has_files(root: &Path) -> Result<()> {
    for file in FILES {
        fs::symlink_metadata(root.join(file))
            .with_context(|| format!("the package lacks {file}"))?;
    }
    Ok(())
}

fn dpkg(tree: &Path) -> Command {
    let mut command = Command::new("dpkg");
    command.arg(format!("--root={}", tree.display())).env("PATH", path());
    // Run the package's scripts without chroot, because there is no shell below the folder. The
    // scripts check that they do not run on the machine itself.
    command.arg("--force-script-chrootless");
    command.arg(format!("--log={}", tree.join("dpkg.log").display()));
    command
}

/// Returns the search path with the system administrator's folders, which dpkg needs.
fn path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

/// Runs a script in separate namespaces, in a new folder.
fn in_namespace(script: &str, tree: &Path, scratch: &Path) -> Result<String> {
    fs::create_dir(scratch)?;
    let mut bash = process::bash_in_namespaces();
    bash.args(["-c", script]).env("TREE", tree).env("SCRATCH", scratch).env("PATH", path());
    process::capture(&mut bash)
}

fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Tally {
    match work() {
        Ok(()) => Tally::pass(),
        Err(error) => Tally::fail(format!("package[{name}]: {error:#}")),
    }
}
