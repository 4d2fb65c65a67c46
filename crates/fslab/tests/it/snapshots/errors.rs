//! Compares the messages for invalid command lines with those in a snapshot file.

use std::fs;
use std::process::Stdio;

use tempfile::TempDir;

use super::{expect, shown, without_scratch};
use crate::support::fslab;

/// Invalid command lines. Each runs in a directory with an empty directory `low`, an empty
/// directory `mnt`, a plain file `plain`, and an ext2 image `disk.ext2`.
const WRONG: &[&[&str]] = &[
    &["mont", "low", "mnt"],
    &["mount"],
    &["mount", "low"],
    &["mount", "nowhere", "mnt"],
    &["mount", "low", "nowhere"],
    &["mount", "plain", "mnt"],
    &["mount", "low", "plain"],
    &["mount", "-l", "zsdt", "low", "mnt"],
    &["mount", "-l", "zstd:levle=3", "low", "mnt"],
    &["mount", "-l", "zstd:level=99", "low", "mnt"],
    &["mount", "-o", "fast", "low", "mnt"],
    &["mount", "-o", "threads=0", "low", "mnt"],
    &["mount", "-o", "keep,transport=uring", "low", "mnt"],
    &["mount", "--lazy", "low", "mnt"],
    &["mount", "ext2:nowhere", "mnt"],
    &["mount", "ext2:plain", "mnt"],
    &["mount", "ext2:disk.ext2?policy=best", "mnt"],
    &["mount", "-l", "tier", "low", "low"],
    &["umount", "mnt"],
    &["umount", "nowhere"],
    &["status", "mnt"],
    &["stats", "mnt"],
    &["stats", "--watch", "1ms", "mnt"],
    &["list", "zsdt"],
    &["sca"],
    &["sca", "stat"],
    &["sca", "stat", "nowhere"],
    &["sca", "verify", "plain"],
    &["sca", "cat", "low"],
    &["sca", "repair", "plain"],
    &["sca", "encode", "plain"],
    &["tier", "state", "low"],
    &["tier", "init", "--archive", "archive", "--home", "low/home", "low"],
    &["tier", "recall", "--range", "5", "low"],
    &["ext2", "mkfs", "new.ext2"],
    &["ext2", "mkfs", "disk.ext2", "8MiB"],
    &["ext2", "mkfs", "--block-size", "1000", "new.ext2", "8MiB"],
    &["ext2", "mkfs", "--uuid", "+1234567-1234-1234-1234-123456789abc", "new.ext2", "8MiB"],
    &["ext2", "ls", "plain"],
    &["ext2", "cat", "disk.ext2", "/nowhere"],
    &["ext2", "tune", "disk.ext2"],
    &["age", "simulate", "nowhere.parquet"],
    &["age", "simulate", "--profile", "smith98"],
    &["age", "replay", "plain", "low"],
    &["trace", "show", "nowhere"],
    &["compare", "nowhere.toml"],
    &["compare", "dmsf"],
    &["compare", "plain"],
    &["compare", "--fail-if", "create faster", "--dry-run"],
    &["report", "plain"],
    &["campaign", "new", "nowhere.toml", "campaign"],
    &["campaign", "new", "in-process", "low/../mnt/../."],
    &["campaign", "run", "low", "--share", "3/2"],
    &["campaign", "run", "low", "--share", "1/2"],
    &["campaign", "status", "nowhere"],
    &["campaign", "submit", "low", "--slurm", "--local", "2"],
    &["reproduce", "hitree"],
    &["probe", "nowhere"],
    &["probe", "--only", "blok-size", "."],
];

#[test]
fn errors_are_one_line_and_as_recorded() {
    let scratch = TempDir::new().unwrap();
    for name in ["low", "mnt"] {
        fs::create_dir(scratch.path().join(name)).unwrap();
    }
    fs::write(scratch.path().join("plain"), "a plain file\n").unwrap();
    let run = |words: &[&str]| {
        let mut command = fslab(words);
        command.current_dir(scratch.path()).env("COLUMNS", "100").stdin(Stdio::null());
        command.output().unwrap()
    };
    assert!(run(&["ext2", "mkfs", "disk.ext2", "8MiB"]).status.success());
    let mut text = String::new();
    for words in WRONG {
        let output = run(words);
        let told = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code().unwrap_or(-1);
        assert!((1..=4).contains(&code), "{words:?}: {code} {told}");
        assert!(!told.contains("os error"), "{words:?}: {told}");
        // If only the subcommand is missing, the command prints its help, which has several lines.
        if *words != ["sca"] {
            let lines: Vec<&str> = told.lines().collect();
            assert!(lines.iter().all(|line| line.starts_with("fslab: ")), "{words:?}: {told}");
            assert!(lines.len() <= 2, "{words:?}: {told}");
            text.push_str(&format!(
                "$ {}\n{}({code})\n\n",
                shown(words),
                without_scratch(&told, scratch.path())
            ));
        }
    }
    let left: Vec<_> = fs::read_dir(scratch.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !["low", "mnt", "plain", "disk.ext2"].contains(&name.as_str()))
        .collect();
    assert!(left.is_empty(), "a refused command has left {left:?}");
    expect("crates/fslab/tests/it/snapshots/errors.txt", &text);
}
