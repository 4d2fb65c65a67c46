//! Fuzzes the reader of aged images; see `fslab_age::testing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fslab_age::testing::check_image(bytes));
