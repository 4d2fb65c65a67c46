//! Bitmaps in on-disk layout: bit 0 is the lowest bit of the first byte.

use std::ops::Range;

use crate::types::BlockSize;

pub(crate) fn is_set(bits: &[u8], index: u32) -> bool {
    bits[(index / 8) as usize] >> (index % 8) & 1 == 1
}

pub(crate) fn set(bits: &mut [u8], index: u32) {
    bits[(index / 8) as usize] |= 1 << (index % 8);
}

pub(crate) fn clear(bits: &mut [u8], index: u32) {
    bits[(index / 8) as usize] &= !(1 << (index % 8));
}

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

/// Returns a bitmap block in which the first `used` bits and the padding from `end` on are set.
pub(crate) fn bitmap(block_size: BlockSize, used: u32, end: u32) -> Vec<u8> {
    let mut bits = vec![0; block_size.bytes()];
    set_range(&mut bits, 0..used);
    set_range(&mut bits, end..block_size.bits());
    bits
}

/// Calls `call` with the index of every set bit.
pub(crate) fn each_set(bits: &[u8], mut call: impl FnMut(u32)) {
    for (at, byte) in bits.iter().enumerate().filter(|(_, byte)| **byte != 0) {
        (0..8).filter(|bit| byte >> bit & 1 == 1).for_each(|bit| call(at as u32 * 8 + bit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_range_sets_exactly_its_bits() {
        for (start, end) in [(0, 0), (1, 7), (0, 8), (3, 21), (8, 24), (7, 9)] {
            let mut bits = [0; 4];
            set_range(&mut bits, start..end);
            let mut set = Vec::new();
            each_set(&bits, |index| set.push(index));
            assert!(set.iter().all(|index| is_set(&bits, *index)));
            assert_eq!(set, (start..end).collect::<Vec<_>>());
        }
    }
}
