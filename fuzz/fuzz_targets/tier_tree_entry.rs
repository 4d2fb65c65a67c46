//! Fuzzes the parser of entries of a tier's archived tree; see `fslab_tier::stored::testing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fslab_tier::stored::testing::check_tree_entry(bytes));
