//! Bytes as a snapshot and a workload; see `fslab_age::testing`.
#![no_main]

use std::panic::set_hook;

libfuzzer_sys::fuzz_target!(init: {
    // What the Parquet library brings out of damaged files is caught where they are read; the
    // fuzzer's own hook would end it before. What is not caught still ends the run.
    set_hook(Box::new(|_panic| {}));
}, |bytes: &[u8]| fslab_age::testing::check_tables(bytes));
