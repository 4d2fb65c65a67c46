//! The shell in which a page's blocks run, isolated from the machine.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::blocks::Block;
use super::output;
use crate::process::Output;
use crate::tally::Tally;
use crate::{environment, process};

/// The text that the script prints before each block. It shows at which block the script ended.
const MARK: &str = "@@ block ";

/// The first line of a script, which makes it stop at the first failure.
const STRICT: &str = "set -eu -o pipefail\n";

/// Number of output lines in the report of a failure.
const LINES_TOLD: usize = 15;

/// Folders of the machine in which pages may make files. Each page gets an empty one.
const OWN: [&str; 2] = ["mnt", "srv"];

/// Folders of the machine to which pages may write. Each page gets its own writable layer over
/// them.
const OVERLAID: [&str; 2] = ["etc", "usr/sbin"];

/// Runs blocks in order until one fails. The failure contains the end of the output.
pub fn run(fslab: &Path, page: &str, blocks: &[&Block]) -> Result<Tally> {
    let scratch = tempfile::Builder::new().prefix("fslab-guide-").tempdir()?;
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755))?;
    let script = prepare(&scratch, fslab, blocks)?;
    let (home, bin) = (scratch.path().join("home"), scratch.path().join("bin"));
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = process::bash_in_namespaces();
    command.arg(script).current_dir(&home).env("HOME", &home);
    command.env("PATH", format!("{}:{path}:/usr/sbin:/sbin", bin.display()));
    command.env("FSLAB_GUIDE_CLONE", environment::workspace_root());
    judge(page, blocks, &process::output(&mut command)?)
}

/// Returns the tally for the output of a script that [`script_of`] made.
pub fn judge(page: &str, blocks: &[&Block], ended: &Output) -> Result<Tally> {
    let reached = ended.stdout.matches(MARK).count();
    if ended.status.success() {
        return Ok(compared(page, blocks, &ended.stdout));
    }
    let line = blocks.get(reached.saturating_sub(1)).map_or(0, |block| block.line);
    let since = ended.stdout.rsplit(MARK).next().unwrap_or_default();
    let said = format!("{since}\n{}", ended.stderr);
    let said: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = said[said.len().saturating_sub(LINES_TOLD)..].join("\n    ");
    let failure = format!("{page}:{line}: {}:\n    {last}", ended.status);
    Ok(Tally { passed: reached.saturating_sub(1), ..Tally::fail(failure) })
}

/// Compares the output of each block with the output on the page.
fn compared(page: &str, blocks: &[&Block], stdout: &str) -> Tally {
    let mut tally = Tally::default();
    for (block, found) in blocks.iter().zip(stdout.split(MARK).skip(1)) {
        match output::first_missing(&block.output, found) {
            None => tally += Tally { passed: 1, ..Tally::default() },
            Some(line) => {
                let line_no = block.line;
                tally += Tally::fail(format!(
                    "{page}:{line_no}: the commands do not print this line: {line}\n    they \
                     print:\n{found}"
                ));
            }
        }
    }
    tally
}

/// Returns a script for bash that runs blocks in order until one fails.
pub fn script_of(blocks: &[&Block]) -> String {
    let mut text = String::from(STRICT);
    for block in blocks {
        text.push_str(&format!("echo '{MARK}'{}\n", block.line));
        block.commands.lines().for_each(|line| push_command(&mut text, line));
    }
    text
}

/// Appends a line of commands. `set -e` does not stop the script if a command before `&&` fails, so
/// the exit status of a line with `&&` is checked.
fn push_command(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
    if line.contains(" && ") && !line.ends_with('\\') {
        text.push_str("[ $? -eq 0 ]\n");
    }
}

/// Makes the folders, the programs and the script.
fn prepare(scratch: &TempDir, fslab: &Path, blocks: &[&Block]) -> Result<std::path::PathBuf> {
    let at = |name: &str| scratch.path().join(name);
    for name in ["bin", "home"].iter().chain(&OWN) {
        fs::create_dir(at(name)).with_context(|| name.to_string())?;
    }
    symlink(fslab, at("bin/fslab")).with_context(|| fslab.display().to_string())?;
    // A replacement for sudo. The blocks run as root, and sudo may not be installed.
    let sudo = at("bin/sudo");
    fs::write(&sudo, "#!/bin/sh\nexec \"$@\"\n")?;
    fs::set_permissions(&sudo, fs::Permissions::from_mode(0o755))?;
    let mut text = String::from(STRICT);
    for name in OWN {
        let own = at(name);
        text.push_str(&format!("mount --bind '{}' /{name}\n", own.display()));
    }
    for name in OVERLAID {
        let (upper, work) = (at("upper").join(name), at("work").join(name));
        fs::create_dir_all(&upper).and_then(|()| fs::create_dir_all(&work)).context(name)?;
        let (upper, work) = (upper.display(), work.display());
        text.push_str(&format!(
            "mount -t overlay -o 'lowerdir=/{name},upperdir={upper},workdir={work}' page /{name}\n"
        ));
    }
    text.push_str(&script_of(blocks));
    let script = at("page.sh");
    fs::write(&script, text)?;
    Ok(script)
}
