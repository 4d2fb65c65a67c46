//! `fslab sca pack`: stored files put in order, while nothing is mounted.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fslab_sca::Error;
use fslab_sca::{Packed, Tool};
use fslab_vfs::Size;
use indicatif::ProgressBar;

use super::Unknown;
use crate::exit::{Code, Coded};
use crate::units::counted;

/// What became of all files.
#[derive(Default)]
struct Totals {
    packed: u64,
    already: u64,
    given_up: u64,
    unknown: Unknown,
    freed_bytes: u64,
}

/// Packs files, and the stored files below directories; others below them are passed over. What
/// can't be packed is told, and keeps nothing else from being packed.
pub fn run(paths: &[PathBuf]) -> Result<()> {
    let bar = super::spinner()?;
    let mut totals = Totals::default();
    for path in paths {
        if path.is_dir() {
            pack_tree(path, &bar, &mut totals);
        } else {
            pack(path, &bar, &mut totals);
        }
    }
    bar.finish_and_clear();
    say!(
        "{} packed, {} freed; {} had nothing to gain",
        totals.packed,
        Size::of(totals.freed_bytes),
        totals.already
    );
    let left = totals.given_up + totals.unknown.count;
    if left == 0 {
        return Ok(());
    }
    let message = format!(
        "{} could not be packed and stay as they were; see `fslab sca check`",
        counted(left, "file")
    );
    let code = if totals.given_up > 0 { Code::Failure } else { totals.unknown.code() };
    Err(Coded { code, message }.into())
}

fn pack_tree(directory: &Path, bar: &ProgressBar, totals: &mut Totals) {
    if let Err(error) = pack_entries(directory, bar, totals) {
        bar.suspend(|| totals.unknown.note(directory, &error));
    }
}

fn pack_entries(directory: &Path, bar: &ProgressBar, totals: &mut Totals) -> Result<()> {
    let shown = directory.display();
    let entries = std::fs::read_dir(directory).with_context(|| format!("can't list {shown}"))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("can't list {shown}"))?;
        if fslab_vfs::is_lock_file_name(&entry.file_name()) {
            continue;
        }
        // Symbolic links are neither: nothing outside the tree is touched.
        let kind = entry.file_type().with_context(|| format!("can't list {shown}"))?;
        if kind.is_dir() {
            pack_tree(&entry.path(), bar, totals);
        } else if kind.is_file() && !is_plain(&entry.path()) {
            pack(&entry.path(), bar, totals);
        }
    }
    Ok(())
}

/// Whether a file is surely no stored file.
fn is_plain(path: &Path) -> bool {
    matches!(Tool::open(path), Err(Error::NoStoredFile { .. }))
}

fn pack(path: &Path, bar: &ProgressBar, totals: &mut Totals) {
    bar.set_message(path.display().to_string());
    if let Err(error) = try_to_pack(path, bar, totals) {
        bar.suspend(|| totals.unknown.note(path, &error.into()));
    }
}

fn try_to_pack(path: &Path, bar: &ProgressBar, totals: &mut Totals) -> Result<(), Error> {
    let done = fslab_sca::pack(path, &|_| bar.tick())?;
    match done.outcome {
        Packed::Now => totals.packed += 1,
        Packed::Already => totals.already += 1,
        Packed::GivenUp => {
            totals.given_up += 1;
            bar.suspend(|| say!("{}: not packed: a part of it can't be read", path.display()));
        }
    }
    totals.freed_bytes += done.before_bytes.saturating_sub(done.after_bytes);
    Ok(())
}
