//! Bytes as a trace of a Plan 9 file server; see `fslab_age::testing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fslab_age::testing::check_p9trace(bytes));
