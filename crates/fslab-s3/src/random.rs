//! Random numbers: names that nobody else has, and pauses that others do not make.

use rustix::rand::{GetRandomFlags, getrandom};

/// A random number.
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    // Up to 256 bytes are always given since Linux 3.17, once the kernel has started; until then it
    // waits, and a signal can end that.
    while getrandom(&mut bytes, GetRandomFlags::empty()) != Ok(bytes.len()) {}
    u64::from_ne_bytes(bytes)
}
