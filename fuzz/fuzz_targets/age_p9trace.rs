//! Fuzzes the import of traces of Plan 9 file servers; see `fslab_age::testing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fslab_age::testing::check_p9trace(bytes));
