//! Fuzzes the recovery of a stored file and later writes to it; see `fslab_sca::testing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fslab_sca::testing::check_recovery(bytes));
