//! Fuzzes the ext2 engine with a damaged image; see `fslab_ext2::testing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fslab_ext2::testing::check_damaged(bytes).expect("the sample can be made");
});
