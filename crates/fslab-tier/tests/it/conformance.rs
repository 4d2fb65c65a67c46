//! The conformance suite and the model over the layer, and over one whose files go away between
//! operations.

use std::sync::Arc;

use fslab_vfs::testing::conformance::{cases, run_all, run_one};
use fslab_vfs::{FileSystem, HostFs, HostOptions, MemFs};

use crate::support::Bench;

#[test]
fn the_layer_conforms_over_memory() {
    let mut failures = Vec::new();
    for case in cases() {
        let memory = Arc::new(MemFs::default());
        let bench = Bench::over(Arc::clone(&memory) as Arc<dyn FileSystem>);
        if let Err(stop) = run_one(case, &*bench.fs) {
            failures.push(format!("{}: {stop}", case.name));
        } else if (memory.remembered(), memory.open_handles(), memory.inodes()) != (0, 0, 1) {
            failures.push(format!("{}: left something behind", case.name));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_layer_conforms_over_a_host_directory() {
    let scratch = tempfile::tempdir().unwrap();
    let make = || {
        let lower = HostFs::open(scratch.path(), &HostOptions::default()).unwrap();
        let bench = Bench::over(Arc::new(lower));
        Box::new(bench.fs as Arc<dyn FileSystem>) as Box<dyn FileSystem>
    };
    let report = run_all(&make, &[]);
    eprintln!("{report}");
    assert!(report.is_success());
}
