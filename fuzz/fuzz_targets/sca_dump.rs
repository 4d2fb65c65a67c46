//! Fuzzes the dump of a stored file; see `fslab_sca::testing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fslab_sca::testing::check_dump(bytes));
