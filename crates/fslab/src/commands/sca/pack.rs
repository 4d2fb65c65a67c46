//! `fslab sca pack`: stored files put in order, while nothing is mounted.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fslab_sca::{Error, Packed, Tool};
use fslab_vfs::Size;
use indicatif::ProgressBar;

use super::code_of_unknown;
use crate::exit::Code;
use crate::units::counted;

/// What became of all files.
#[derive(Default)]
struct Totals {
    packed: u64,
    already: u64,
    given_up: u64,
    /// Exit codes of those with which nothing could be done.
    unknown: Vec<Code>,
    freed_bytes: u64,
}

/// Packs files, and the stored files below directories; others below them are passed over. What
/// can't be packed is told, and keeps nothing else from being packed.
pub fn run(paths: &[PathBuf]) -> Result<()> {
    let bar = super::spinner()?;
    let mut totals = Totals::default();
    for path in paths {
        let pack = if path.is_dir() { pack_tree } else { pack };
        pack(path, &bar, &mut totals);
    }
    bar.finish_and_clear();
    say!(
        "{} packed, {} freed; {} had nothing to gain",
        totals.packed,
        Size::of(totals.freed_bytes),
        totals.already
    );
    let left = totals.given_up + totals.unknown.len() as u64;
    if left == 0 {
        return Ok(());
    }
    let code = totals.unknown.first().filter(|_| totals.given_up == 0).unwrap_or(&Code::Failure);
    let files = counted(left, "file");
    Err(code
        .error(format!("{files} could not be packed and stay as they were; see `fslab sca check`")))
}

fn pack_tree(directory: &Path, bar: &ProgressBar, totals: &mut Totals) {
    if let Err(error) = pack_entries(directory, bar, totals) {
        bar.suspend(|| totals.unknown.push(code_of_unknown(directory, &error)));
    }
}

fn pack_entries(directory: &Path, bar: &ProgressBar, totals: &mut Totals) -> Result<()> {
    let cant = || format!("can't list {}", directory.display());
    for entry in std::fs::read_dir(directory).with_context(cant)? {
        let entry = entry.with_context(cant)?;
        if fslab_vfs::is_lock_file_name(&entry.file_name()) {
            continue;
        }
        // Symbolic links are neither: nothing outside the tree is touched.
        let kind = entry.file_type().with_context(cant)?;
        if kind.is_dir() {
            pack_tree(&entry.path(), bar, totals);
        } else if kind.is_file() {
            // Others than stored files are passed over; it is closed again before it is packed.
            let is_plain = matches!(Tool::open(&entry.path()), Err(Error::NoStoredFile { .. }));
            if !is_plain {
                pack(&entry.path(), bar, totals);
            }
        }
    }
    Ok(())
}

fn pack(path: &Path, bar: &ProgressBar, totals: &mut Totals) {
    bar.set_message(path.display().to_string());
    let done = match fslab_sca::pack(path, &|_| bar.tick()) {
        Ok(done) => done,
        Err(error) => {
            return bar.suspend(|| totals.unknown.push(code_of_unknown(path, &error.into())));
        }
    };
    match done.outcome {
        Packed::Now => totals.packed += 1,
        Packed::Already => totals.already += 1,
        Packed::GivenUp => {
            totals.given_up += 1;
            bar.suspend(|| say!("{}: not packed: a part of it can't be read", path.display()));
        }
    }
    totals.freed_bytes += done.before_bytes.saturating_sub(done.after_bytes);
}
