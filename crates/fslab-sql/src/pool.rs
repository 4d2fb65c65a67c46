//! A memory pool for sort-merge joins.
//!
//! A sort fills all available memory before it uses temporary files, so no memory would be left to
//! merge the sorted files. This pool therefore reserves one half of the memory for merges and for
//! other work that can't use temporary files.

use std::fmt;

use datafusion::common::Result;
use datafusion::execution::memory_pool::{
    FairSpillPool, GreedyMemoryPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};

/// A pool with two halves: one for work that can use temporary files, one for all other work.
#[derive(Debug)]
pub struct Halves {
    spilling: FairSpillPool,
    other: GreedyMemoryPool,
    bytes: usize,
}

impl Halves {
    /// Makes a pool of `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        let half = bytes / 2;
        let (spilling, other) = (FairSpillPool::new(half), GreedyMemoryPool::new(half));
        Self { spilling, other, bytes }
    }

    fn of(&self, consumer: &MemoryConsumer) -> &dyn MemoryPool {
        if consumer.can_spill() { &self.spilling } else { &self.other }
    }
}

impl fmt::Display for Halves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "halves of {} bytes", self.bytes)
    }
}

impl MemoryPool for Halves {
    fn name(&self) -> &str {
        "halves"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.of(consumer).register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.of(consumer).unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.of(reservation.consumer()).grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.of(reservation.consumer()).shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.of(reservation.consumer()).try_grow(reservation, additional)
    }

    fn reserved(&self) -> usize {
        self.spilling.reserved() + self.other.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.bytes)
    }
}
