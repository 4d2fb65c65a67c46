//! Runs sca-life: everyday work with files, inside the mount.
//!
//! - a git clone, checked by git fsck
//! - a database with a write-ahead log
//! - packing and unpacking an archive
//! - a copy by rsync with links, sparse files, ACLs and xattrs
//! - a build by cargo
//!
//! Each result is checked. All results except the build are checked again after an unmount and a
//! new mount.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Options, Over, Suite, cargo_build};
use crate::stage::{Stage, Target};
use crate::tally::Tally;
use crate::{environment, process};

/// The suite `sca-life`.
pub const SUITE: Suite =
    Suite { name: "sca-life", program: None, over: Over::Stacks, quick: Options::NONE, run };

/// One kind of everyday work.
struct Part {
    name: &'static str,
    programs: &'static [&'static str],
    /// Does the work in the first folder, which is in the mount. The second folder is outside the
    /// mount.
    work: fn(&Path, &Path) -> Result<()>,
    /// Checks the result of `work`. The check is repeated after the target was unmounted and
    /// mounted again.
    check: fn(&Path, &Path) -> Result<()>,
}

const PARTS: &[Part] = &[
    Part { name: "git", programs: &["git"], work: git_clone, check: git_fsck },
    Part { name: "sqlite", programs: &["sqlite3"], work: sqlite_work, check: sqlite_check },
    Part { name: "tar", programs: &["tar"], work: tar_out_and_in, check: tar_compare },
    Part {
        name: "rsync",
        programs: &["rsync", "setfacl", "setfattr"],
        work: rsync,
        check: rsync_again,
    },
];

fn run(stage: &mut Stage, target: &Target, options: &Options) -> Result<Tally> {
    let outside = stage.beside("sca-life")?;
    make_tree(&outside.join("tree")).context("cannot make the tree to copy")?;
    let mut tally = Tally::default();
    let mut done = Vec::new();
    for part in PARTS {
        let name = format!("sca-life on {target}: {}", part.name);
        let missing =
            part.programs.iter().find(|program| environment::find_tool(program).is_none());
        if let Some(program) = missing {
            tally += Tally::skip(name, format!("{program} is not installed"));
            continue;
        }
        let folder = stage.directory().join(part.name);
        fs::create_dir(&folder)?;
        let worked = (part.work)(&folder, &outside).and_then(|()| (part.check)(&folder, &outside));
        tally += verdict(&name, worked);
        done.push((part, folder, format!("{name}, after mounting again")));
    }
    tally += cargo_build::run(stage, target, options)?;
    stage.remount()?;
    for (part, folder, name) in done {
        tally += verdict(&name, (part.check)(&folder, &outside));
    }
    Ok(tally)
}

fn verdict(name: &str, answer: Result<()>) -> Tally {
    let (word, tally) = match answer {
        Ok(()) => ("ok".to_owned(), Tally::pass()),
        Err(error) => (format!("FAILED: {error:#}"), Tally::fail(name)),
    };
    println!("{name}: {word}");
    tally
}

fn capture(program: &str, arguments: &[&str], folder: &Path) -> Result<String> {
    process::capture(environment::tool(program)?.args(arguments).current_dir(folder))
}

fn git_clone(folder: &Path, _outside: &Path) -> Result<()> {
    let source = environment::workspace_root();
    // With `--no-local`, git transfers all objects as if the source were on another machine.
    let mut git = environment::tool("git")?;
    git.args(["clone", "--quiet", "--no-local"]).arg(source).arg(folder.join("clone"));
    process::capture(&mut git).map(drop)
}

fn git_fsck(folder: &Path, _outside: &Path) -> Result<()> {
    let clone = folder.join("clone");
    let safe = format!("safe.directory={}", clone.display());
    capture("git", &["-c", &safe, "fsck", "--full", "--strict", "--no-dangling"], &clone)?;
    let changed = capture("git", &["-c", &safe, "status", "--porcelain"], &clone)?;
    ensure!(changed.is_empty(), "files of the clone changed: {changed}");
    Ok(())
}

const SQL: &str = "
PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;
CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);
CREATE INDEX i ON t(b);
WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<20000)
INSERT INTO t SELECT x, hex(randomblob(40)) FROM n;
UPDATE t SET b = b || 'updated' WHERE a % 7 = 0;
DELETE FROM t WHERE a % 11 = 0;
";

fn sqlite_work(folder: &Path, _outside: &Path) -> Result<()> {
    capture("sqlite3", &["-bail", "base", SQL], folder)?;
    // A second process writes the log of the first process back to the database.
    capture("sqlite3", &["-bail", "base", "PRAGMA wal_checkpoint(TRUNCATE); VACUUM;"], folder)?;
    capture("sqlite3", &["-bail", "base", "UPDATE t SET b='late' WHERE a=1;"], folder).map(drop)
}

fn sqlite_check(folder: &Path, _outside: &Path) -> Result<()> {
    let sql = "PRAGMA integrity_check; SELECT count(*), sum(b LIKE '%updated') FROM t; \
               SELECT b FROM t WHERE a=1;";
    let answer = capture("sqlite3", &["-bail", "base", sql], folder)?;
    // Every eleventh of 20000 rows is deleted, and every seventh of the others is updated.
    ensure!(answer.trim() == "ok\n18182|2598\nlate", "the database returned {answer:?}");
    Ok(())
}

/// Returns the path of the archive, as an argument of tar.
fn archive(folder: &Path) -> Result<String> {
    folder
        .join("tree.tar")
        .into_os_string()
        .into_string()
        .ok()
        .context("the archive's path is not UTF-8")
}

fn tar_out_and_in(folder: &Path, outside: &Path) -> Result<()> {
    let archive = archive(folder)?;
    let kept = ["--acls", "--xattrs", "--xattrs-include=*", "--sparse", "--numeric-owner"];
    capture("tar", &[&["-cf", &archive][..], &kept, &["."]].concat(), &outside.join("tree"))?;
    let copy = folder.join("copy");
    fs::create_dir(&copy)?;
    capture("tar", &[&["-xpf", &archive][..], &kept].concat(), &copy).map(drop)
}

fn tar_compare(folder: &Path, outside: &Path) -> Result<()> {
    for tree in [folder.join("copy"), outside.join("tree")] {
        capture("tar", &["-df", &archive(folder)?, "--numeric-owner"], &tree)?;
    }
    Ok(())
}

fn rsync_command(folder: &Path, outside: &Path) -> Result<String> {
    let mut rsync = environment::tool("rsync")?;
    rsync.args(["-aHAXS", "--itemize-changes", "--checksum"]);
    rsync.arg(format!("{}/", outside.join("tree").display()));
    rsync.arg(format!("{}/", folder.join("copy").display()));
    process::capture(&mut rsync)
}

fn rsync(folder: &Path, outside: &Path) -> Result<()> {
    let copied = rsync_command(folder, outside)?;
    ensure!(copied.lines().count() > 50, "the first run copied only {copied:?}");
    Ok(())
}

/// Runs rsync again. It compares contents by checksum, and must find nothing to copy.
fn rsync_again(folder: &Path, outside: &Path) -> Result<()> {
    let copied = rsync_command(folder, outside)?;
    ensure!(copied.is_empty(), "the second run copied files again: {copied}");
    Ok(())
}

/// Makes files of many sizes and kinds, with links, holes, ACLs, xattrs, owners and times.
fn make_tree(tree: &Path) -> Result<()> {
    for folder in ["a/b/c", "empty", "many"] {
        fs::create_dir_all(tree.join(folder))?;
    }
    for number in 0..100_usize {
        let content: Vec<u8> =
            (0..number * number * 40).map(|place| (place * number / 7) as u8).collect();
        fs::write(tree.join("many").join(format!("file {number}")), content)?;
    }
    fs::hard_link(tree.join("many/file 9"), tree.join("a/hard"))?;
    symlink("../many/file 9", tree.join("a/soft"))?;
    symlink("nowhere", tree.join("a/b/dangling"))?;
    let sparse = fs::File::create(tree.join("a/b/c/sparse"))?;
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"in the middle", 5 << 20)?;
    sparse.set_len(9 << 20)?;
    dress(tree)
}

fn dress(tree: &Path) -> Result<()> {
    if environment::find_tool("setfattr").is_some() && environment::find_tool("setfacl").is_some() {
        capture("setfattr", &["-n", "user.note", "-v", "kept", "many/file 8"], tree)?;
        capture("setfacl", &["-m", "u:1:rw,g:2:r", "many/file 7"], tree)?;
        capture("setfacl", &["-d", "-m", "u:1:rwx", "a"], tree)?;
    }
    let mut chown = Command::new("chown");
    process::capture(chown.args(["1:2", "many/file 6"]).current_dir(tree))?;
    let mut touch = Command::new("touch");
    touch.args(["-d", "2001-02-03 04:05:06.789012345", "many/file 5", "a/b"]);
    process::capture(touch.current_dir(tree)).map(drop)
}
