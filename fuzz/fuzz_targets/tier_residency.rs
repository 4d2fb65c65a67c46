//! Fuzzes the parser of the residency xattr of tiered files; see `fslab_tier::stored::testing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fslab_tier::stored::testing::check_residency(bytes));
