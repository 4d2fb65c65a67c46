//! The control files of the package, its licence and its Debian changelog.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::files::{compress_text, write};
use crate::{environment, process};

/// Unit of `Installed-Size`, in bytes.
const SIZE_UNIT_BYTES: u64 = 1024;

/// The facts about a package that its control files contain.
pub struct Facts<'a> {
    /// Version with Debian revision.
    pub version: &'a str,
    /// Debian's name of the architecture.
    pub architecture: &'a str,
    /// The oldest version of the C library that has all needed symbols.
    pub libc: &'a str,
}

/// Writes the control files. All other files of the package must already exist.
pub fn write_all(facts: &Facts<'_>, tree: &Path) -> Result<()> {
    let root = environment::workspace_root();
    let documents = tree.join("usr/share/doc/fslab");
    write(&documents.join("copyright"), copyright(&root)?.as_bytes())?;
    let maintainer = maintainer()?;
    let changelog = changelog(facts.version, &maintainer, &last_commit("%aD")?);
    compress_text(&changelog, &documents.join("changelog.Debian.gz"))?;
    let files = files_below(tree)?;
    let control = control(facts, &maintainer, installed_size(tree, &files)?);
    write(&tree.join("DEBIAN/control"), control.as_bytes())?;
    let mut command = Command::new("md5sum");
    let is_plain = |name: &&String| {
        let kind = fs::symlink_metadata(tree.join(name)).map(|status| status.file_type());
        kind.is_ok_and(|kind| kind.is_file())
    };
    command.arg("--").args(files.iter().filter(is_plain)).current_dir(tree);
    write(&tree.join("DEBIAN/md5sums"), process::capture(&mut command)?.as_bytes())
}

/// Returns a property of the last commit, in a format of `git log`. The package contains the
/// commit's time, not the current time, so that packages of the same commit are identical.
pub fn last_commit(format: &str) -> Result<String> {
    let mut git = Command::new("git");
    git.current_dir(environment::workspace_root());
    git.args(["log", "-1", &format!("--format={format}")]);
    Ok(process::capture(&mut git)?.trim().to_owned())
}

/// Returns the name and address of the package's maintainer: from `DEBFULLNAME` and `DEBEMAIL`, as
/// Debian's tools do, or else from the last commit.
fn maintainer() -> Result<String> {
    let given = |variable: &str, format: &str| match std::env::var(variable) {
        Ok(value) if !value.is_empty() => Ok(value),
        _ => last_commit(format),
    };
    Ok(format!("{} <{}>", given("DEBFULLNAME", "%an")?, given("DEBEMAIL", "%ae")?))
}

fn control(facts: &Facts<'_>, maintainer: &str, size: u64) -> String {
    let Facts { version, architecture, libc } = facts;
    format!(
        "Package: fslab\nVersion: {version}\nArchitecture: {architecture}\n\
         Maintainer: {maintainer}\nInstalled-Size: {size}\n\
         Depends: libc6 (>= {libc}), libgcc-s1 (>= 4.2)\nRecommends: fuse3, e2fsprogs\n\
         Suggests: btrfs-progs, xfsprogs, zstd\nSection: utils\nPriority: optional\n\
         Description: layers over any directory, ext2 in user space, and benchmarks\n \
         fslab mounts layers over directories through FUSE. Layers compress files, move\n \
         them to archives, and record or disturb operations.\n .\n \
         It also makes, checks and repairs ext2 images without root, ages file systems,\n \
         probes their attributes, and compares them with confidence intervals.\n"
    )
}

fn changelog(version: &str, maintainer: &str, date: &str) -> String {
    format!(
        "fslab ({version}) unstable; urgency=medium\n\n  \
         * The changes of each version are in /usr/share/doc/fslab/changelog.gz.\n\n \
         -- {maintainer}  {date}\n"
    )
}

/// Returns the text of the licences. Debian has the Apache License in a common file.
fn copyright(root: &Path) -> Result<String> {
    let mit = fs::read_to_string(root.join("LICENSE-MIT")).context("LICENSE-MIT")?;
    Ok(format!(
        "fslab has two licences. Choose either: the MIT licence below, or the Apache License 2.0,\n\
         which is in /usr/share/common-licenses/Apache-2.0 on Debian systems.\n\n{mit}"
    ))
}

/// Returns the paths of all files and folders of a package except its control files, sorted.
fn files_below(tree: &Path) -> Result<Vec<String>> {
    let mut find = Command::new("find");
    find.current_dir(tree).args([".", "-mindepth", "1", "-path", "./DEBIAN", "-prune"]);
    find.args(["-o", "-mindepth", "1", "-printf", "%P\\n"]);
    let mut files: Vec<String> = process::capture(&mut find)?.lines().map(str::to_owned).collect();
    files.sort_unstable();
    Ok(files)
}

/// Returns the installed size as Debian counts it: a regular file takes whole units, and every
/// other entry takes one unit.
fn installed_size(tree: &Path, files: &[String]) -> Result<u64> {
    let mut size = 0;
    for name in files {
        let status = fs::symlink_metadata(tree.join(name)).with_context(|| name.clone())?;
        size += if status.is_file() { status.len().div_ceil(SIZE_UNIT_BYTES) } else { 1 };
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_files_have_the_form_that_dpkg_reads() {
        let facts = Facts { version: "0.1.0-1", architecture: "amd64", libc: "2.34" };
        let control = control(&facts, "A Person <person@example.org>", 7);
        assert!(control.ends_with('\n') && !control.contains("\n\n"), "{control}");
        assert!(control.contains("\nInstalled-Size: 7\n"), "{control}");
        let lines = control.lines().skip_while(|line| !line.starts_with("Description")).skip(1);
        assert!(lines.clone().count() > 3 && lines.clone().all(|line| line.starts_with(' ')));
        let changelog = changelog(
            "0.1.0-1",
            "A Person <person@example.org>",
            "Sat, 28 Nov 2026 20:00:00 +0000",
        );
        assert!(
            changelog.starts_with("fslab (0.1.0-1) ") && changelog.contains("\n\n -- A Person <")
        );
    }

    #[test]
    fn installed_size_counts_whole_units() {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir(tree.path().join("DEBIAN")).unwrap();
        fs::write(tree.path().join("DEBIAN/control"), "not counted").unwrap();
        fs::create_dir(tree.path().join("folder")).unwrap();
        fs::write(tree.path().join("folder/file"), vec![0; 1025]).unwrap();
        let files = files_below(tree.path()).unwrap();
        assert_eq!(files, ["folder", "folder/file"]);
        assert_eq!(installed_size(tree.path(), &files).unwrap(), 3);
    }
}
