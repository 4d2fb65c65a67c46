//! The package in use: installed by dpkg below a folder with a database of its own, run from there
//! in a mount namespace where its files appear in their places, and removed. The machine's own
//! files and packages stay as they are.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::tally::Tally;
use crate::{environment, process};

/// What must be in the package.
const FILES: [&str; 8] = [
    "usr/bin/fslab",
    "usr/sbin/mount.fslab",
    "usr/sbin/mount.fuse.fslab",
    "usr/share/man/man1/fslab-mount.1.gz",
    "usr/share/man/man8/mount.fslab.8.gz",
    "usr/share/bash-completion/completions/fslab",
    "usr/share/doc/fslab/copyright",
    "usr/share/doc/fslab/changelog.gz",
];

/// In a namespace of mounts: `/usr` with the package's files in their places. What is in the page
/// of the manual, the completions, and both ways by which mount(8) finds the helper.
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
        // What it depends on is the machine's, which this database does not know.
        process::capture(dpkg(&tree).args(["--force-depends", "--install"]).arg(package))?;
        for file in FILES {
            fs::symlink_metadata(tree.join(file)).with_context(|| format!("lacks {file}"))?;
        }
        Ok(())
    });
    if tally.is_good() {
        tally += step("use", || used(&tree, place.path()));
        tally += step("remove", || {
            process::capture(dpkg(&tree).args(["--force-depends", "--purge", "fslab"]))?;
            anyhow::ensure!(!tree.join("usr/bin/fslab").exists(), "the program stayed");
            Ok(())
        });
    }
    Ok(tally)
}

fn dpkg(tree: &Path) -> Command {
    let mut command = Command::new("dpkg");
    command.arg(format!("--root={}", tree.display())).env("PATH", path());
    command.arg(format!("--log={}", tree.join("dpkg.log").display()));
    command
}

/// dpkg wants the system administrator's folders.
fn path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

fn used(tree: &Path, place: &Path) -> Result<()> {
    let scratch = place.join("scratch");
    fs::create_dir(&scratch)?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]);
    command.args(["--mount-proc", "bash", "-c", USE]);
    command.env("TREE", tree).env("SCRATCH", &scratch).env("PATH", path());
    let said = process::capture(&mut command)?;
    let kinds = said.lines().filter(|line| line.starts_with("fuse")).count();
    anyhow::ensure!(kinds == 2, "findmnt did not see both mounts: {said}");
    Ok(())
}

fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Tally {
    match work() {
        Ok(()) => Tally::pass(),
        Err(error) => Tally::fail(format!("package[{name}]: {error:#}")),
    }
}
