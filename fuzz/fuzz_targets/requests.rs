//! Fuzzes a FUSE session with a sequence of requests; see `fslab_fuse::testing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fslab_fuse::testing::check_conversation(bytes));
