//! Random numbers, for unique names and random pauses.

use rustix::rand::{GetRandomFlags, getrandom};

pub fn random() -> u64 {
    let mut bytes = [0; 8];
    // Since Linux 3.17 the kernel returns up to 256 bytes in full once its random generator is
    // ready. Before that the call waits, and a signal can interrupt it.
    while getrandom(&mut bytes, GetRandomFlags::empty()) != Ok(bytes.len()) {}
    u64::from_ne_bytes(bytes)
}
