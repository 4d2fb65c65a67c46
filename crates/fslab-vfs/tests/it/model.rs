//! Runs the model test over the leaves, and checks that it finds planted bugs.

use std::path::Path;

use fslab_vfs::{FallocateMode, FileSystem, Ino, MemFs, OpenMode};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::conformance::run_where;
use fslab_vfs_testing::model::{LeftOut, ModelConfig, Operation, check_against_model};
use fslab_vfs_testing::mutants::{CaughtBy, MUTANTS, Mutant};

use crate::host;

fn memory() -> Box<dyn FileSystem> {
    Box::new(MemFs::default())
}

/// An observer that changes nothing.
struct Null(Box<dyn FileSystem>);

impl FileSystem for Null {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.0)
    }
}

#[test]
fn observed_memory_agrees_with_memory() {
    let make = || Box::new(Null(memory())) as Box<dyn FileSystem>;
    let answer = check_against_model(&make, &ModelConfig::from_environment(200));
    assert!(answer.is_ok(), "{}", answer.unwrap_err());
}

#[test]
fn host_directories_agree_with_memory() {
    for directory in host::directories() {
        let path = directory.path();
        let mut config = ModelConfig::from_environment(200);
        config.left_out.extend(lacking(path));
        let answer = check_against_model(&|| host::make(path), &config);
        assert!(answer.is_ok(), "{}: {}", path.display(), answer.unwrap_err());
    }
}

/// Operations that the directory's file system lacks: tmpfs can't zero ranges, and a mount may not
/// support files without a name.
fn lacking(path: &Path) -> Vec<LeftOut> {
    let subject = host::make(path);
    let client = Client::new(&*subject);
    let mut left_out = Vec::new();
    let (_, file) = client.create(Ino::ROOT, "probe", 0o600, OpenMode::empty()).unwrap();
    if file.fallocate(0, 4096, FallocateMode::ZERO_RANGE).is_err() {
        left_out.push(LeftOut {
            reason: "no FALLOC_FL_ZERO_RANGE here",
            covers: |operation| {
                matches!(operation, Operation::Fallocate { mode, .. }
                    if mode.contains(FallocateMode::ZERO_RANGE))
            },
        });
    }
    client.unlink(Ino::ROOT, "probe").unwrap();
    if client.tmpfile(Ino::ROOT, 0o600, OpenMode::empty()).is_err() {
        left_out.push(LeftOut {
            reason: "no O_TMPFILE here",
            covers: |operation| matches!(operation, Operation::Tmpfile { .. }),
        });
    }
    left_out
}

#[test]
fn every_planted_bug_is_found() {
    let missed: Vec<&str> =
        MUTANTS.iter().filter(|mutant| !is_found(mutant)).map(|mutant| mutant.bug).collect();
    assert!(missed.is_empty(), "not found: {missed:#?}");
}

fn is_found(mutant: &Mutant) -> bool {
    let make = || (mutant.plant)(memory());
    match mutant.caught_by {
        CaughtBy::Model => match check_against_model(&make, &ModelConfig::from_environment(2000)) {
            Ok(()) => false,
            Err(found) => {
                eprintln!(
                    "{}: found by the model test in {} operations: {}",
                    mutant.bug,
                    found.operations.len(),
                    found.difference
                );
                true
            }
        },
        CaughtBy::Case(name) => {
            let report = run_where(&make, &[], &|case| case.name == name);
            eprintln!("{}: {report}", mutant.bug);
            report.failed.len() == 1
        }
    }
}
