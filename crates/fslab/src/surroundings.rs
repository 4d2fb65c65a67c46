//! What layers get from the program: a clock, and numbers that nobody can guess.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_layers::{Draws, Surroundings};

/// A keyed hash of a count; the key comes from the kernel.
#[derive(Default)]
struct KeyedDraws {
    key: RandomState,
    count: AtomicU64,
}

impl Draws for KeyedDraws {
    fn draw(&self) -> u64 {
        self.key.hash_one(self.count.fetch_add(1, Ordering::Relaxed))
    }
}

/// Those of this program.
pub fn of_program() -> Surroundings {
    Surroundings::default().with_draws(Arc::new(KeyedDraws::default()))
}
