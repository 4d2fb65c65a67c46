//! The files of the package and their paths.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::control::{self, Facts};
use super::files::{compress, compress_text, install, link, write};
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

/// Symbolic links in the documentation folder, and their targets. The documents refer to these
/// paths.
const LINKS: [(&str, &str); 3] = [
    ("plans", "../../fslab/plans"),
    ("LICENSE-APACHE", "../../common-licenses/Apache-2.0"),
    ("LICENSE-MIT", "copyright"),
];

/// Revision of the package within a version of the program.
const REVISION: &str = "-1";

/// Revision of a package that dpkg treats as older than one with [`REVISION`].
const OLDER: &str = "~older-1";

/// The age of a package. Packages of the same program differ only in their versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// The package with the current version.
    Current,
    /// An older package, which can be upgraded to the current one.
    Older,
}

/// Lays out the package in a folder. Returns the package's name, with version and architecture.
pub fn lay_out(fslab: &Path, age: Age, tree: &Path) -> Result<String> {
    let program = install(fslab, &tree.join("usr/bin/fslab"), 0o755)?;
    for helper in HELPERS {
        link("../bin/fslab", &tree.join("usr/sbin").join(helper))?;
    }
    strip(&tree.join("usr/bin/fslab"))?;
    manuals(fslab, tree)?;
    for (shell, path) in COMPLETIONS {
        let script = process::capture(Command::new(fslab).args(["completions", shell]))?;
        write(&tree.join(path), script.as_bytes())?;
    }
    // Install systemd units, and the scripts that dpkg runs.
    install_all("packaging/systemd", &tree.join("usr/lib/systemd/system"), 0o644)?;
    install_all("packaging/debian", &tree.join("DEBIAN"), 0o755)?;
    install_all("packaging/lintian", &tree.join("usr/share/lintian/overrides"), 0o644)?;
    documents(tree)?;
    let said = process::capture(Command::new(fslab).arg("--version"))?;
    let upstream = said.split_whitespace().nth(1).context("`fslab --version` prints no version")?;
    let version = format!("{upstream}{}", if age == Age::Older { OLDER } else { REVISION });
    let architecture = process::capture(Command::new("dpkg").arg("--print-architecture"))?;
    let architecture = architecture.trim();
    let libc = libc(&program);
    control::write_all(&Facts { version: &version, architecture, libc: &libc }, tree)?;
    Ok(format!("fslab_{version}_{architecture}"))
}

/// Strips the program. Its symbols are needed only by debuggers and make up most of the file. They
/// are kept if `strip` is not installed.
fn strip(program: &Path) -> Result<()> {
    let Some(tool) = environment::find_tool("strip") else { return Ok(()) };
    process::capture(Command::new(tool).arg("--strip-unneeded").arg(program)).map(drop)
}

/// Installs the manual pages of the program and of the mount helpers. A helper's page includes the
/// page of `fslab mount` or `fslab umount`.
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

/// Installs the plans and the documents for users, who may copy and change them. The program does
/// not read these files, because it contains the plans and the claims of papers itself.
///
/// The guide is installed as Markdown and not as a built book: its pages are readable, its links
/// work, and making the package needs no other tools.
fn documents(tree: &Path) -> Result<()> {
    let root = environment::workspace_root();
    let to = tree.join("usr/share/doc/fslab");
    install(&root.join("packaging/mount.conf"), &to.join("examples/mount.conf"), 0o644)?;
    install_all("plans", &tree.join("usr/share/fslab/plans"), 0o644)?;
    for (name, target) in LINKS {
        link(target, &to.join(name))?;
    }
    compress_text(&fs::read_to_string(root.join("CHANGELOG.md"))?, &to.join("changelog.gz"))?;
    for page in environment::files()?.iter().filter(|path| is_document(path)) {
        install(&root.join(page), &to.join(page), 0o644)?;
    }
    Ok(())
}

/// Returns whether a file is README.md, a page that README.md links to, a picture, or a paper's
/// list of claims.
fn is_document(path: &str) -> bool {
    const PAGES: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"];
    let of_guide = [".md", ".png", ".svg"].iter().any(|end| path.ends_with(end));
    let of_paper = path.starts_with("docs/reproduce/") && path.ends_with(".toml");
    PAGES.contains(&path) || path.starts_with("docs/") && of_guide || of_paper
}

/// Returns the oldest version of the C library that the program can run with. It is the newest
/// version among the symbols that the program needs.
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

#[cfg(test)]
mod tests {
    #[test]
    fn newest_glibc_symbol_sets_the_required_version() {
        let program = b"xGLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE";
        assert_eq!(super::libc(program), "2.34");
    }

    #[test]
    fn documents_are_chosen_by_path() {
        for (path, is_one) in [
            ("README.md", true),
            ("docs/guide/src/tutorials/compressing.md", true),
            ("docs/images/ratios.png", true),
            ("docs/reproduce/dmfs.toml", true),
            ("docs/book.toml", false),
            ("xtask/README.md", false),
            ("plans/sca.toml", false),
        ] {
            assert_eq!(super::is_document(path), is_one, "{path}");
        }
    }
}
