//! Fuzzes the replay and simulation of a workload's operations; see `fslab_age::testing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fslab_age::testing::check_operations(bytes));
