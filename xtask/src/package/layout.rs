//! The files of the package and their paths.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{environment, process};

/// Names of the mount helpers. mount(8) looks for the first two for `-t fslab` and `-t fuse.fslab`;
/// umount(8) looks for the third.
pub const HELPERS: [&str; 3] = ["mount.fslab", "mount.fuse.fslab", "umount.fuse.fslab"];

/// Shells, and the paths of their completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/fslab"),
    ("zsh", "usr/share/zsh/vendor-completions/_fslab"),
    ("fish", "usr/share/fish/vendor_completions.d/fslab.fish"),
];

/// Lays out the package in a folder. Returns its name with version and architecture.
pub fn lay_out(fslab: &Path, tree: &Path) -> Result<String> {
    let program = install(fslab, &tree.join("usr/bin/fslab"), 0o755)?;
    for helper in HELPERS {
        let link = tree.join("usr/sbin").join(helper);
        fs::create_dir_all(tree.join("usr/sbin"))?;
        symlink("../bin/fslab", &link).with_context(|| link.display().to_string())?;
    }
    strip(&tree.join("usr/bin/fslab"))?;
    manuals(fslab, tree)?;
    for (shell, path) in COMPLETIONS {
        let script = process::capture(Command::new(fslab).args(["completions", shell]))?;
        write(&tree.join(path), script.as_bytes())?;
    }
    // Systemd units, and the scripts that dpkg runs.
    install_all("packaging/systemd", &tree.join("usr/lib/systemd/system"), 0o644)?;
    install_all("packaging/debian", &tree.join("DEBIAN"), 0o755)?;
    documents(tree)?;
    let said = process::capture(Command::new(fslab).arg("--version"))?;
    let version = said.split_whitespace().nth(1).context("`fslab --version` prints no version")?;
    let architecture = process::capture(Command::new("dpkg").arg("--print-architecture"))?;
    let architecture = architecture.trim();
    let control = control(version, architecture, &libc(&program));
    write(&tree.join("DEBIAN/control"), control.as_bytes())?;
    Ok(format!("fslab_{version}_{architecture}"))
}

fn control(version: &str, architecture: &str, libc: &str) -> String {
    format!(
        "Package: fslab\nVersion: {version}\nArchitecture: {architecture}\n\
         Maintainer: The fslab maintainers <fslab@localhost>\nSection: utils\nPriority: optional\n\
         Depends: libc6 (>= {libc}), libgcc-s1\nRecommends: fuse3, e2fsprogs\n\
         Suggests: xfsprogs, btrfs-progs\n\
         Description: file-system laboratory you can also live in\n \
         Layers over any directory through FUSE, an ext2 in user space, ageing, probing and\n \
         honest comparison of file systems, in one program.\n"
    )
}

/// Strips the program. Symbols are only for debuggers and make up most of the file. Without the
/// tool they are kept.
fn strip(program: &Path) -> Result<()> {
    let Some(tool) = environment::find_tool("strip") else { return Ok(()) };
    process::capture(Command::new(tool).arg("--strip-unneeded").arg(program)).map(drop)
}

/// Installs the manual pages of the program, and those of the helpers, which are the pages of its
/// commands.
fn manuals(fslab: &Path, tree: &Path) -> Result<()> {
    let pages = tempfile::tempdir()?;
    process::capture(Command::new(fslab).arg("man").arg(pages.path()))?;
    for entry in fs::read_dir(pages.path())? {
        let page = entry?.path();
        let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
        compress(&page, &tree.join(format!("usr/share/man/man1/{name}.gz")))?;
    }
    for helper in HELPERS {
        let command = if helper.starts_with('u') { "umount" } else { "mount" };
        let page = pages.path().join(helper);
        fs::write(&page, format!(".so man1/fslab-{command}.1\n"))?;
        compress(&page, &tree.join(format!("usr/share/man/man8/{helper}.8.gz")))?;
    }
    Ok(())
}

/// Installs every file of a folder of the project.
fn install_all(folder: &str, to: &Path, mode: u32) -> Result<()> {
    let folder = environment::workspace_root().join(folder);
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        install(&entry.path(), &to.join(entry.file_name()), mode)?;
    }
    Ok(())
}

fn documents(tree: &Path) -> Result<()> {
    let root = environment::workspace_root();
    let to = tree.join("usr/share/doc/fslab");
    install(&root.join("packaging/mount.conf"), &to.join("examples/mount.conf"), 0o644)?;
    compress(&root.join("CHANGELOG.md"), &to.join("changelog.gz"))?;
    // The guide and the pages that it links to: plain files, whose links lead to each other.
    for page in environment::files()?.iter().filter(|path| is_of_guide(path)) {
        install(&root.join(page), &to.join(page), 0o644)?;
    }
    let read = |name: &str| fs::read_to_string(root.join(name)).with_context(|| name.to_owned());
    let copyright = format!(
        "Either of the two licences below, as you choose.\n\n{}\n\n{}",
        read("LICENSE-MIT")?,
        read("LICENSE-APACHE")?
    );
    write(&to.join("copyright"), copyright.as_bytes())
}

/// Whether a file is a page of the book or a picture.
fn is_of_guide(path: &str) -> bool {
    path.starts_with("docs/") && [".md", ".png", ".svg"].iter().any(|end| path.ends_with(end))
}

/// Returns the oldest version of the C library that has every versioned symbol which the program
/// needs.
fn libc(program: &[u8]) -> String {
    const PREFIX: &[u8] = b"GLIBC_2.";
    let minors = program.windows(PREFIX.len() + 2).filter(|window| window.starts_with(PREFIX));
    let minors = minors.filter_map(|window| {
        let digits = window[PREFIX.len()..].iter().take_while(|byte| byte.is_ascii_digit());
        let digits: Vec<u8> = digits.copied().collect();
        String::from_utf8(digits).ok()?.parse::<u32>().ok()
    });
    format!("2.{}", minors.max().unwrap_or_default())
}

/// Compresses by gzip without a time stamp, so that equal inputs make equal packages. gzip appends
/// the `.gz` of `to`.
fn compress(from: &Path, to: &Path) -> Result<()> {
    let plain = to.with_extension("");
    install(from, &plain, 0o644)?;
    process::capture(Command::new("gzip").args(["-9", "-n"]).arg(&plain)).map(drop)
}

fn install(from: &Path, to: &Path, mode: u32) -> Result<Vec<u8>> {
    let bytes = fs::read(from).with_context(|| from.display().to_string())?;
    write(to, &bytes)?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(bytes)
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().context("a file without a folder")?;
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    fs::write(path, bytes).with_context(|| path.display().to_string())?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn newest_glibc_symbol_sets_the_required_version() {
        let program = b"xGLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE";
        assert_eq!(super::libc(program), "2.34");
        let control = super::control("0.1.0", "amd64", "2.34");
        assert!(control.ends_with('\n') && !control.contains("\n\n"), "{control}");
    }
}
