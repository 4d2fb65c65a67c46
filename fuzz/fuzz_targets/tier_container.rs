//! Bytes as what an archive of a tier holds; see `fslab_tier::stored::testing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fslab_tier::stored::testing::check_container(bytes));
