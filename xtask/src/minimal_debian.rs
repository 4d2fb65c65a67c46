//! A minimal Debian as an archive, made by mmdebstrap from the package sources of this machine, and
//! a kernel from the same sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{environment, process};

/// Maximum age of an archive. An older one is replaced, so that a run need not install many
/// security updates.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Returns an archive with the required packages and the `included` ones, whose names are separated
/// by commas. Makes the archive if there is no recent one. The cached archive has the given name.
pub fn archive(name: &str, included: &str) -> Result<PathBuf> {
    let codename = codename()?;
    let folder = environment::cache()?;
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let archive = folder.join(format!("{name}-{codename}.tar"));
    if is_recent(&archive) {
        return Ok(archive);
    }
    println!("making a minimal Debian {codename} with mmdebstrap");
    let scratch = tempfile::tempdir_in(&folder)?;
    let sources = scratch.path().join("sources.list");
    fs::write(&sources, self::sources(&codename)?)?;
    let made = scratch.path().join("made.tar");
    let mut command = environment::tool("mmdebstrap")?;
    command.args(["--quiet", "--variant=minbase", &format!("--include={included}")]);
    command.args(proxies()?.iter().map(|option| format!("--aptopt={option}")));
    command.arg(codename).arg(&made).arg(&sources).env("TMPDIR", scratch.path());
    process::capture(&mut command)?;
    fs::rename(&made, &archive).with_context(|| archive.display().to_string())?;
    Ok(archive)
}

/// Returns the newest kernel among the backports for this machine's release, as a Debian package.
/// Downloads the package if there is no recent one. The package is not installed.
pub fn kernel() -> Result<PathBuf> {
    let codename = codename()?;
    let folder = environment::cache()?;
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let kernel = folder.join(format!("kernel-{codename}.deb"));
    if is_recent(&kernel) {
        return Ok(kernel);
    }
    println!("downloading a kernel of {codename}-backports");
    let scratch = tempfile::tempdir_in(&folder)?;
    let sources = backports(&sources(&codename)?, &codename);
    if sources.is_empty() {
        bail!("apt has no source of Debian {codename} with the component main");
    }
    let found = download_kernel(scratch.path(), &sources)?;
    fs::rename(&found, &kernel).with_context(|| kernel.display().to_string())?;
    Ok(kernel)
}

/// Returns the sources of backports that belong to the sources of a release.
fn backports(sources: &str, codename: &str) -> String {
    let line = |line: &str| {
        let parts: Vec<&str> = line.split(' ').collect();
        let ["deb", address, release, "main"] = parts[..] else { return None };
        (release == codename).then(|| format!("deb {address} {release}-backports main\n"))
    };
    sources.lines().filter_map(line).collect()
}

/// Downloads the kernel's package from these sources into an empty folder. The package lists of
/// this machine do not change.
fn download_kernel(folder: &Path, sources: &str) -> Result<PathBuf> {
    let place = folder.display();
    fs::create_dir_all(folder.join("lists/partial"))?;
    fs::write(folder.join("sources.list"), sources)?;
    let settings = folder.join("apt.conf");
    let text = format!(
        "Dir::Etc::sourcelist \"{place}/sources.list\";\nDir::Etc::sourceparts \"-\";\n\
         Dir::State::lists \"{place}/lists\";\nDir::Cache \"{place}\";\n\
         APT::Sandbox::User \"root\";\n"
    );
    fs::write(&settings, text)?;
    let apt = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.current_dir(folder).env("APT_CONFIG", &settings).args(arguments);
        process::capture(&mut command)
    };
    apt("apt-get", &["-q", "update"])?;
    let depends = apt("apt-cache", &["depends", &format!("linux-image-{}", architecture()?)])?;
    let name = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image-"));
    let name = name.context("the backports contain no kernel")?;
    apt("apt-get", &["-q", "download", &format!("linux-image-{name}")])?;
    let mut entries = fs::read_dir(folder)?.filter_map(Result::ok);
    let found = entries.find(|entry| entry.path().extension().is_some_and(|end| end == "deb"));
    Ok(found.context("apt-get downloaded no package")?.path())
}

/// Returns Debian's name of this machine's architecture.
fn architecture() -> Result<String> {
    let said = process::capture(Command::new("dpkg").arg("--print-architecture"))?;
    Ok(said.trim().to_owned())
}

fn is_recent(file: &Path) -> bool {
    let modified = fs::metadata(file).and_then(|status| status.modified());
    modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age < KEPT))
}

/// Unpacks an archive into an empty folder.
pub fn unpack(archive: &Path, root: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--numeric-owner", "-xf"]).arg(archive).arg("-C").arg(root);
    process::capture(&mut tar).map(drop)
}

/// Returns the name of this machine's release of Debian.
fn codename() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
    let value = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let value = value.context("/etc/os-release has no VERSION_CODENAME")?;
    Ok(value.trim_matches('"').to_owned())
}

/// Returns the Debian sources that apt uses on this machine, as lines of sources.list.
fn sources(codename: &str) -> Result<String> {
    let mut apt = Command::new("apt-get");
    apt.args(["indextargets", "--format", "$(ORIGIN)\t$(REPO_URI)\t$(RELEASE)\t$(COMPONENT)"]);
    let lines = lines_of_debian(&process::capture(apt.arg("Created-By: Packages"))?, codename);
    if lines.is_empty() {
        bail!("apt has no sources of Debian {codename} or no package lists; run `apt-get update`");
    }
    Ok(lines)
}

fn lines_of_debian(targets: &str, codename: &str) -> String {
    let line = |target: &str| {
        let parts: Vec<&str> = target.split('\t').collect();
        let ["Debian", address, release, component] = parts[..] else { return None };
        let is_wanted = release.split(['-', '/']).next() == Some(codename);
        is_wanted.then(|| format!("deb {address} {release} {component}\n"))
    };
    targets.lines().filter_map(line).collect()
}

/// Returns this machine's proxies as options of apt.
fn proxies() -> Result<Vec<String>> {
    let mut apt = Command::new("apt-config");
    let dump = process::capture(apt.args(["dump", "--no-empty", "--format", "%f \"%v\";%n"]))?;
    let is_proxy = |line: &&str| line.starts_with("Acquire::") && line.contains("::Proxy ");
    Ok(dump.lines().filter(is_proxy).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_sources_of_this_debian_are_used() {
        let targets = "Debian\ta://x/\tbookworm\tmain\nDebian\ta://x/\tbookworm-updates\tmain\n\
                       Debian\ta://x/\tsid\tmain\nOther\tb://y/\tbookworm\tmain\n";
        let lines = "deb a://x/ bookworm main\ndeb a://x/ bookworm-updates main\n";
        assert_eq!(super::lines_of_debian(targets, "bookworm"), lines);
        assert_eq!(super::backports(lines, "bookworm"), "deb a://x/ bookworm-backports main\n");
    }
}
