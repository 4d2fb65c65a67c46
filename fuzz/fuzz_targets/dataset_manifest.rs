//! Fuzzes the parser of the manifests of data sets; see `fslab_dataset::testing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fslab_dataset::testing::check_manifest(bytes));
