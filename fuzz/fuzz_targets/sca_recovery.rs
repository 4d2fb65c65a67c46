//! Bytes as a stored file that is recovered and written on; see `fslab_sca::testing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fslab_sca::testing::check_recovery(bytes));
