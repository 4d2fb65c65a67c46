//! Fuzzes the derivation of a workload from the entries of two snapshots; see `fslab_age::testing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fslab_age::testing::check_entries(bytes));
