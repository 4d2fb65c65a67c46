//! Fuzzes the reader of a tier's containers; see `fslab_tier::stored::testing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fslab_tier::stored::testing::check_container(bytes));
