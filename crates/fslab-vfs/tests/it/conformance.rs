//! Runs the conformance suite over the memory leaf.

use std::sync::Arc;

use fslab_vfs::MemFs;
use fslab_vfs_testing::conformance::{cases, run_one};

#[test]
fn conformance_case_names_are_unique_and_at_least_120() {
    let names: std::collections::BTreeSet<_> = cases().map(|case| case.name).collect();
    assert_eq!(names.len(), cases().count());
    assert!(names.len() >= 120, "only {} cases", names.len());
}

/// Runs the cases one by one, so that leaks of each are found.
#[test]
fn memory_passes_every_case_and_leaks_nothing() {
    let mut failures = Vec::new();
    for case in cases() {
        let memory = Arc::new(MemFs::default());
        if let Err(stop) = run_one(case, &*memory) {
            failures.push(format!("{}: {stop}", case.name));
        } else if (memory.remembered(), memory.open_handles(), memory.inodes()) != (0, 0, 1) {
            failures.push(format!(
                "{}: left {} inodes, {} remembered, {} handles",
                case.name,
                memory.inodes(),
                memory.remembered(),
                memory.open_handles()
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
