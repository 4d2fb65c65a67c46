//! Fuzzes the import of CSV lists of files; see `fslab_age::testing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fslab_age::testing::check_csv(bytes));
