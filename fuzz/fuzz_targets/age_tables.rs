//! Fuzzes the readers of snapshots and workloads; see `fslab_age::testing`.
#![no_main]

use std::panic::set_hook;

libfuzzer_sys::fuzz_target!(init: {
    // The Parquet library panics on some damaged files, and the reader catches these panics. The
    // fuzzer's own panic hook would abort before they are caught. Panics that are not caught still
    // end the run.
    set_hook(Box::new(|_panic| {}));
}, |bytes: &[u8]| fslab_age::testing::check_tables(bytes));
