//! The services that this program provides to layers, such as unpredictable random numbers.

use std::sync::Arc;

use fslab_layers::{RandomSource, StackContext};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

struct KernelRandom;

impl RandomSource for KernelRandom {
    fn draw(&self) -> u64 {
        let mut bytes = [0; 8];
        loop {
            match getrandom(&mut bytes, GetRandomFlags::empty()) {
                Ok(count) if count == bytes.len() => return u64::from_ne_bytes(bytes),
                Ok(_) | Err(Errno::INTR) => {}
                // Once its pool is initialised, getrandom(2) (Linux 3.17) always returns all
                // requested bytes, if they are at most 256.
                Err(error) => unreachable!("the kernel gives no random numbers: {error}"),
            }
        }
    }
}

/// Returns the context of this program's stacks, with random numbers from the kernel.
pub fn of_program() -> StackContext {
    StackContext::default().with_random_source(Arc::new(KernelRandom))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn kernel_random_numbers_vary_in_every_bit() {
        let drawn: HashSet<u64> = (0..1000).map(|_| KernelRandom.draw()).collect();
        assert_eq!(drawn.len(), 1000);
        let (all, none) = drawn.iter().fold((u64::MAX, 0), |(and, or), one| (and & one, or | one));
        assert_eq!((all, none), (0, u64::MAX));
    }
}
