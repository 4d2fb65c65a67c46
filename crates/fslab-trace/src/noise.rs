//! Bytes for writes whose data a trace does not hold.

/// Fills a buffer with bytes that no codec can shorten; the same seed gives the same bytes. The
/// generator is SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
/// 2014).
pub fn noise(seed: u64, buffer: &mut [u8]) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for piece in buffer.chunks_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        piece.copy_from_slice(&mixed.to_le_bytes()[..piece.len()]);
    }
}
