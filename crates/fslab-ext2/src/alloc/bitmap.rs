//! The block or inode bitmap of a group, in a form that can be searched word by word.
//!
//! As on disk, a set bit marks a block or inode in use. Two summaries shorten most searches. The
//! first has one bit per word, set if the word contains a free bit. The second is an upper bound
//! for the length of the longest free run.

use std::cell::Cell;
use std::ops::Range;

const WORD: u32 = 64;

/// A group's bitmap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitmap {
    words: Box<[u64]>,
    /// One bit per word: 1 if the word has a free bit.
    free_words: Box<[u64]>,
    length: u32,
    free: u32,
    /// Upper bound for the length of the longest run of free bits.
    longest: Cell<u32>,
}

impl Bitmap {
    /// Makes a bitmap of `length` free bits.
    #[must_use]
    pub fn new(length: u32) -> Self {
        Self::from_words(vec![0; length.div_ceil(WORD) as usize].into(), length)
    }

    /// Reads the first `length` bits of a bitmap block; missing bytes are treated as free.
    #[must_use]
    pub fn from_bytes(bytes: &[u8], length: u32) -> Self {
        let mut words = vec![0; length.div_ceil(WORD) as usize];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(whole);
        }
        Self::from_words(words.into(), length)
    }

    fn from_words(mut words: Box<[u64]>, length: u32) -> Self {
        // Mark the bits past the end as in use, so that no search returns them.
        if let (Some(last), rest @ 1..) = (words.last_mut(), length % WORD) {
            *last |= u64::MAX << rest;
        }
        let used: u32 = words.iter().map(|word| word.count_ones()).sum();
        let free = words.len() as u32 * WORD - used;
        let mut free_words = vec![0; words.len().div_ceil(WORD as usize)];
        for (at, word) in words.iter().enumerate() {
            free_words[at / 64] |= u64::from(*word != u64::MAX) << (at % 64);
        }
        let free_words = free_words.into();
        Self { words, free_words, length, free, longest: Cell::new(free) }
    }

    /// Returns the number of bits.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Returns the number of free bits.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Whether a bit is free; `false` for a bit past the end.
    #[must_use]
    #[inline]
    pub fn is_free(&self, at: u32) -> bool {
        at < self.length && self.words[(at / WORD) as usize] >> (at % WORD) & 1 == 0
    }

    /// Returns the first free bit at or after `from`.
    #[must_use]
    #[inline]
    pub fn next_free(&self, from: u32) -> Option<u32> {
        if from >= self.length {
            return None;
        }
        let at = (from / WORD) as usize;
        let here = !self.words[at] & u64::MAX << (from % WORD);
        if here != 0 {
            return Some(at as u32 * WORD + here.trailing_zeros());
        }
        let at = self.next_free_word(at + 1)?;
        Some(at as u32 * WORD + (!self.words[at]).trailing_zeros())
    }

    fn next_free_word(&self, from: usize) -> Option<usize> {
        let first = from / 64;
        let mut mask = u64::MAX << (from % 64);
        for (at, summary) in self.free_words.iter().enumerate().skip(first) {
            if summary & mask != 0 {
                return Some(at * 64 + (summary & mask).trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        None
    }

    /// Returns the exclusive end of the run of free bits that starts at `from`, limited to `end`.
    /// The run may be empty.
    #[must_use]
    #[inline]
    pub fn run_end(&self, from: u32, end: u32) -> u32 {
        let end = end.min(self.length);
        let mut at = from;
        while at < end {
            let used = self.words[(at / WORD) as usize] >> (at % WORD);
            if used != 0 {
                return (at + used.trailing_zeros()).min(end);
            }
            at = (at / WORD + 1) * WORD;
        }
        end.max(from)
    }

    /// Returns the start of the run of free bits that ends just before `end`. The run may be empty.
    fn run_start(&self, end: u32) -> u32 {
        let mut at = end;
        while at > 0 {
            let (word, bits) = ((at - 1) / WORD, (at - 1) % WORD + 1);
            let used = self.words[word as usize] << (WORD - bits);
            if used != 0 {
                return at - used.leading_zeros();
            }
            at = word * WORD;
        }
        0
    }

    /// Returns the start of the first run of `length` free bits within a range.
    #[must_use]
    pub fn find_run(&self, range: Range<u32>, length: u32) -> Option<u32> {
        if length == 0 || self.longest.get() < length {
            return None;
        }
        let (mut at, mut longest) = (range.start, 0);
        let end = range.end.min(self.length);
        while let Some(start) = self.next_free(at).filter(|start| *start < end) {
            let stop = self.run_end(start, end);
            if stop - start >= length {
                return Some(start);
            }
            longest = longest.max(stop - start);
            at = stop;
        }
        if range.start == 0 && end == self.length {
            self.longest.set(longest);
        }
        None
    }

    /// Returns the first bit of the first entirely free byte of the bitmap. The search starts with
    /// the byte that contains `from`.
    #[must_use]
    pub fn next_free_byte(&self, from: u32) -> Option<u32> {
        let first = (from / WORD) as usize;
        let mut skip = from % WORD / 8;
        for (at, word) in self.words.iter().enumerate().skip(first) {
            for byte in skip..8 {
                if (word >> (8 * byte)) & 0xff == 0 {
                    return Some(at as u32 * WORD + byte * 8);
                }
            }
            skip = 0;
        }
        None
    }

    /// Marks free bits as in use. Returns `false` without changing any bit if one of them is
    /// already in use.
    #[must_use]
    pub fn take(&mut self, run: Range<u32>) -> bool {
        if run.end > self.length || self.run_end(run.start, run.end) < run.end {
            return false;
        }
        self.each_word(run.clone(), |word, mask| *word |= mask);
        self.free -= run.len() as u32;
        true
    }

    /// Marks used bits as free. Returns `false` without changing any bit if one of them is already
    /// free.
    #[must_use]
    pub fn release(&mut self, run: Range<u32>) -> bool {
        if run.end > self.length || run.clone().any(|at| self.is_free(at)) {
            return false;
        }
        self.each_word(run.clone(), |word, mask| *word &= !mask);
        self.free += run.len() as u32;
        let whole = self.run_end(run.start, self.length) - self.run_start(run.start);
        self.longest.set(self.longest.get().max(whole));
        true
    }

    fn each_word(&mut self, run: Range<u32>, change: impl Fn(&mut u64, u64)) {
        let mut at = run.start;
        while at < run.end {
            let stop = run.end.min((at / WORD + 1) * WORD);
            let mask = (u64::MAX >> (WORD - (stop - at))) << (at % WORD);
            let index = (at / WORD) as usize;
            change(&mut self.words[index], mask);
            let (summary, bit) = (index / 64, 1 << (index % 64));
            if self.words[index] == u64::MAX {
                self.free_words[summary] &= !bit;
            } else {
                self.free_words[summary] |= bit;
            }
            at = stop;
        }
    }

    /// Returns the runs of free bits in ascending order.
    pub fn free_runs(&self) -> impl Iterator<Item = Range<u32>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = self.next_free(at)?;
            at = self.run_end(start, self.length);
            Some(start..at)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fslab_vfs_testing::environment::cases;
    use proptest::prelude::*;

    use super::*;
    use crate::bits;

    /// A reference model: the same operations on a plain set of free bit numbers.
    struct Plain(BTreeSet<u32>);

    impl Plain {
        fn find_run(&self, range: Range<u32>, length: u32) -> Option<u32> {
            (range.start..range.end).find(|&at| {
                at + length <= range.end && (at..at + length).all(|at| self.0.contains(&at))
            })
        }

        fn next_free_byte(&self, from: u32, length: u32) -> Option<u32> {
            (from / 8 * 8..length)
                .step_by(8)
                .find(|&at| at + 8 <= length && (at..at + 8).all(|at| self.0.contains(&at)))
        }
    }

    fn check_searches(bitmap: &Bitmap, plain: &Plain, from: u32, length: u32) {
        let all = bitmap.length();
        assert_eq!(bitmap.free() as usize, plain.0.len());
        assert_eq!(bitmap.next_free(from), plain.0.range(from..).next().copied());
        assert_eq!(bitmap.find_run(0..all, length), plain.find_run(0..all, length));
        assert_eq!(bitmap.find_run(from..all, length), plain.find_run(from.min(all)..all, length));
        assert_eq!(bitmap.next_free_byte(from), plain.next_free_byte(from, all));
        let runs: Vec<u32> = bitmap.free_runs().flatten().collect();
        assert_eq!(runs, plain.0.iter().copied().collect::<Vec<_>>());
    }

    proptest! {
        #![proptest_config(cases(256))]
        #[test]
        fn a_bitmap_is_a_set(
            length in 1..600_u32,
            steps in prop::collection::vec((any::<bool>(), 0..600_u32, 1..90_u32), 1..120),
        ) {
            let mut bitmap = Bitmap::new(length);
            let mut plain = Plain((0..length).collect());
            for (take, start, size) in steps {
                let run = start..start + size;
                let inside = run.end <= length;
                let free = run.clone().all(|at| plain.0.contains(&at));
                let used = !run.clone().any(|at| plain.0.contains(&at));
                if take {
                    prop_assert_eq!(bitmap.take(run.clone()), inside && free);
                    if inside && free {
                        plain.0.retain(|at| !run.contains(at));
                    }
                } else {
                    prop_assert_eq!(bitmap.release(run.clone()), inside && used);
                    if inside && used {
                        plain.0.extend(run);
                    }
                }
                check_searches(&bitmap, &plain, start, size);
            }
            let mut bytes = vec![0; 100];
            let used = (0..length).filter(|at| !plain.0.contains(at));
            used.for_each(|at| bits::set(&mut bytes, at));
            let again = Bitmap::from_bytes(&bytes, length);
            prop_assert_eq!(again.words, bitmap.words);
            prop_assert_eq!(again.free_words, bitmap.free_words);
        }
    }
}
