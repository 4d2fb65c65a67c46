//! A histogram of latencies in bounded memory, after Gil Tene's HdrHistogram. It covers nanoseconds
//! to minutes. Each power of two is divided into 16 equal parts, so the width of a bucket is at
//! most 1/16 of its values.
//!
//! It is implemented here because no crate records without a lock and without `&mut`.
//!
//! Worked example: the highest bit of 1000 ns is 512 = 16 << 5. 1000 >> 5 is 31, the last of the 16
//! parts of that power; the bucket contains 992 to 1023 ns.

use std::sync::atomic::{AtomicU64, Ordering};

/// The base-2 logarithm of the number of parts of each power of two.
const PART_BITS: u32 = 4;
const PARTS: u64 = 1 << PART_BITS;

/// The upper bound of the last bucket (18 minutes). It also counts longer latencies.
const LONGEST_NS: u64 = (1 << 40) - 1;

pub(super) const BUCKETS: usize = index(LONGEST_NS) + 1;

/// Counters that many threads increment.
pub(super) struct Counts<const N: usize>(pub [AtomicU64; N]);

impl<const N: usize> Default for Counts<N> {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; N])
    }
}

/// Number of latencies in each bucket.
pub(super) type Histogram = Counts<BUCKETS>;

impl Histogram {
    pub fn record(&self, latency_ns: u64) {
        self.0[index(latency_ns)].fetch_add(1, Ordering::Relaxed);
    }

    /// Adds the counts to `sums`.
    pub fn add_to(&self, sums: &mut Vec<u64>) {
        sums.resize(BUCKETS, 0);
        for (sum, count) in sums.iter_mut().zip(&self.0) {
            *sum += count.load(Ordering::Relaxed);
        }
    }
}

const fn index(latency_ns: u64) -> usize {
    let latency_ns = if latency_ns > LONGEST_NS { LONGEST_NS } else { latency_ns };
    if latency_ns < PARTS {
        return latency_ns as usize;
    }
    let shift = latency_ns.ilog2() - PART_BITS;
    let part = (latency_ns >> shift) - PARTS;
    ((shift as u64 + 1) * PARTS + part) as usize
}

/// The largest latency of a bucket.
pub(super) fn upper_ns(index: usize) -> u64 {
    let index = index as u64;
    if index < PARTS {
        return index;
    }
    let (shift, part) = (index / PARTS - 1, index % PARTS + PARTS);
    ((part + 1) << shift) - 1
}

/// The latency not exceeded by `share` of all counted ones; 0 if none was counted.
pub(super) fn percentile_ns(counts: &[u64], share: f64) -> u64 {
    let all: u64 = counts.iter().sum();
    let wanted = ((all as f64 * share).ceil() as u64).max(1);
    let mut seen = 0;
    let reached = counts.iter().position(|count| {
        seen += count;
        seen >= wanted
    });
    reached.map_or(0, upper_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_contiguous_and_at_most_a_sixteenth_wide() {
        assert_eq!((index(1000), upper_ns(index(1000))), (index(992), 1023));
        assert_eq!(index(u64::MAX), BUCKETS - 1);
        for bucket in 0..BUCKETS {
            let upper = upper_ns(bucket);
            assert_eq!(index(upper), bucket);
            let width = if bucket == 0 { 1 } else { upper - upper_ns(bucket - 1) };
            assert!(width == 1 || width * PARTS <= upper, "bucket {bucket} is {width} wide");
            if bucket + 1 < BUCKETS {
                assert_eq!(index(upper + 1), bucket + 1);
            }
        }
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_latencies() {
        let mut counts = [0; BUCKETS];
        for latency in 1..=1000_u64 {
            counts[index(latency * 1000)] += 1;
        }
        for (share, exact) in [(0.5, 500_000), (0.99, 990_000), (1.0, 1_000_000), (0.0, 1000)] {
            let found = percentile_ns(&counts, share);
            assert!(found >= exact && found <= exact + exact / 16, "{share}: {found}");
        }
        assert_eq!(percentile_ns(&[0; BUCKETS], 0.5), 0);
    }
}
