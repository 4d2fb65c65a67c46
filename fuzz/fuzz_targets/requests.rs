//! Bytes as a conversation of requests with a mount; see `fslab_fuse::testing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fslab_fuse::testing::check_conversation(bytes));
