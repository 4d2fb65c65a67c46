//! Bitmaps as the format has them: bit 0 is the lowest of the first byte.

use std::ops::Range;

/// Whether a bit is set.
pub(crate) fn is_set(bits: &[u8], index: u32) -> bool {
    bits[(index / 8) as usize] >> (index % 8) & 1 == 1
}

/// Sets a bit.
pub(crate) fn set(bits: &mut [u8], index: u32) {
    bits[(index / 8) as usize] |= 1 << (index % 8);
}

/// Clears a bit.
#[cfg(test)]
pub(crate) fn clear(bits: &mut [u8], index: u32) {
    bits[(index / 8) as usize] &= !(1 << (index % 8));
}

/// Sets all bits of a range.
pub(crate) fn set_range(bits: &mut [u8], range: Range<u32>) {
    let whole = range.start.next_multiple_of(8)..range.end / 8 * 8;
    if whole.start >= whole.end {
        range.for_each(|index| set(bits, index));
        return;
    }
    (range.start..whole.start).for_each(|index| set(bits, index));
    bits[(whole.start / 8) as usize..(whole.end / 8) as usize].fill(0xff);
    (whole.end..range.end).for_each(|index| set(bits, index));
}

/// The first bit of a range that is clear.
pub(crate) fn first_clear(bits: &[u8], range: Range<u32>) -> Option<u32> {
    let mut at = range.start;
    while at < range.end {
        let word = word(bits, at / 64) | ((1 << (at % 64)) - 1);
        if word != u64::MAX {
            let index = at / 64 * 64 + word.trailing_ones();
            return (index < range.end).then_some(index);
        }
        at = (at / 64 + 1) * 64;
    }
    None
}

/// How many of the first `length` bits are clear.
#[cfg(test)]
pub(crate) fn count_clear(bits: &[u8], length: u32) -> u32 {
    (0..length).filter(|index| !is_set(bits, *index)).count() as u32
}

fn word(bits: &[u8], index: u32) -> u64 {
    bits.get(index as usize * 8..)
        .and_then(<[u8]>::first_chunk)
        .map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_clear_bit_is_that_of_a_plain_search() {
        let mut bits = [0xff_u8; 32];
        for index in [3, 63, 64, 130, 255] {
            clear(&mut bits, index);
        }
        for start in 0..256 {
            for end in start..=256 {
                let plain = (start..end).find(|index| !is_set(&bits, *index));
                assert_eq!(first_clear(&bits, start..end), plain, "{start}..{end}");
            }
        }
    }

    #[test]
    fn ranges_are_set_whole() {
        for (start, end) in [(0, 0), (1, 7), (0, 8), (3, 21), (8, 24), (7, 9)] {
            let mut bits = [0; 4];
            set_range(&mut bits, start..end);
            let set: Vec<u32> = (0..32).filter(|index| is_set(&bits, *index)).collect();
            assert_eq!(set, (start..end).collect::<Vec<_>>());
            assert_eq!(count_clear(&bits, 32), 32 - (end - start));
        }
    }
}
